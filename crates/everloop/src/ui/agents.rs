//! Agents for people: permissions, installation, billing.

use everloop_agents::agent::probe::{Billing, Installed, LoginState};
use everloop_core::spec::{AgentKind, AgentSpec, LoopSpec, Permission};
use everloop_engine::services::agents::{is_there, title};

use super::paint::Paint;
use super::table::Table;
use super::text::{clean, fit};

/// What the agents of a loop may do without confirmation; printed before anything starts. Nothing
/// is known of a command.
pub fn permissions(spec: &LoopSpec) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let several = !spec.others.is_empty();
    for agent in spec.agents() {
        let Some(said) = permission(agent) else { continue };
        let whose = if several { format!("{}: ", title(agent)) } else { String::new() };
        lines.push(clean(&format!("{whose}permission: {said}")));
    }
    lines
}

fn permission(agent: &AgentSpec) -> Option<String> {
    if matches!(agent.kind, AgentKind::Command | AgentKind::Pane) {
        return None;
    }
    Some(match (agent.permission, agent.allow.as_slice()) {
        (Permission::Full, _) => "full (the agent may run any command as your user, without confirmation)".to_owned(),
        (Permission::Edits, []) => "edits (it changes files; --allow CMD lets it run a command)".to_owned(),
        (Permission::Edits, allowed) => format!("edits, and it may run: {}", allowed.join(", ")),
    })
}

pub fn login(login: LoginState) -> &'static str {
    match login {
        LoginState::LoggedIn => "logged in",
        LoginState::NotLoggedIn => "not logged in",
        LoginState::Unknown => "-",
    }
}

pub fn billing(billing: Billing) -> &'static str {
    match billing {
        Billing::Subscription => "subscription",
        Billing::Key => "key",
        Billing::Unknown => "-",
    }
}

/// A line for each agent, and below it how to get what is missing.
pub fn agents_table(agents: &[(AgentSpec, Installed)], paint: Paint, width: usize) -> Vec<String> {
    let mut table = Table::new(&["AGENT", "KIND", "ACCOUNT", "VERSION", "LOGIN", "BILLED", "PROGRAM"]);
    for (agent, found) in agents {
        let there = is_there(agent, found);
        let program = match (&found.path, agent.kind) {
            (Some(path), _) => path.display().to_string(),
            (None, AgentKind::Api) => "everloop itself".to_owned(),
            (None, _) => paint.warn("not installed"),
        };
        let logged = login(found.login);
        table.row([
            clean(&agent.name),
            agent.kind.label().to_owned(),
            clean(&agent.account),
            found.version.as_deref().map_or("-".to_owned(), clean),
            match (there, found.login) {
                (false, _) => "-".to_owned(),
                (true, LoginState::LoggedIn) => paint.good(logged),
                (true, LoginState::NotLoggedIn) => paint.warn(logged),
                (true, LoginState::Unknown) => logged.to_owned(),
            },
            if there { billing(found.billing).to_owned() } else { "-".to_owned() },
            program,
        ]);
    }
    let mut lines = table.lines(width);
    for (agent, found) in agents {
        if let Some(hint) = found.hint {
            let line = format!("hint: {}: {hint}", clean(&title(agent)));
            if !lines.contains(&line) {
                lines.push(fit(&line, width));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use everloop_testkit::sample;

    fn agent(kind: AgentKind, account: &str) -> AgentSpec {
        AgentSpec { name: kind.label().to_owned(), kind, account: account.to_owned(), ..AgentSpec::default() }
    }

    fn found(path: Option<&str>, login: LoginState, hint: Option<&'static str>) -> Installed {
        let billing = if login == LoginState::LoggedIn { Billing::Subscription } else { Billing::Unknown };
        let version = path.map(|_| "2.1.325".to_owned());
        Installed { path: path.map(PathBuf::from), version, login, billing, hint }
    }

    #[test]
    fn agents_are_listed_with_what_is_missing() {
        let agents = [
            (agent(AgentKind::Claude, "work"), found(Some("/usr/bin/claude"), LoginState::LoggedIn, None)),
            (
                agent(AgentKind::Codex, "default"),
                found(None, LoginState::NotLoggedIn, Some("npm install -g @openai/codex")),
            ),
            (agent(AgentKind::Api, "default"), found(None, LoginState::NotLoggedIn, Some("set ANTHROPIC_API_KEY"))),
        ];
        insta::assert_snapshot!(agents_table(&agents, Paint::Off, 100).join("\n"), @r"
        AGENT   KIND    ACCOUNT  VERSION  LOGIN          BILLED        PROGRAM
        claude  claude  work     2.1.325  logged in      subscription  /usr/bin/claude
        codex   codex   default  -        -              -             not installed
        api     api     default  -        not logged in  -             everloop itself
        hint: codex: npm install -g @openai/codex
        hint: api: set ANTHROPIC_API_KEY
        ");
    }

    #[test]
    fn full_permission_is_said_aloud_and_commands_promise_nothing() {
        let mut spec = sample::spec();
        assert_eq!(permissions(&spec), Vec::<String>::new());
        spec.agent = AgentSpec { permission: Permission::Full, ..agent(AgentKind::Claude, "default") };
        assert_eq!(
            permissions(&spec),
            ["permission: full (the agent may run any command as your user, without confirmation)"]
        );
        spec.others = vec![AgentSpec { allow: vec!["cargo test".to_owned()], ..agent(AgentKind::Codex, "work") }];
        assert!(permissions(&spec)[0].starts_with("claude: permission: full"), "{:?}", permissions(&spec));
        assert_eq!(permissions(&spec)[1], "codex@work: permission: edits, and it may run: cargo test");
    }
}
