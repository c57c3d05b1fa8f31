//! The agent in a new everloop.toml: an installed CLI or a command, instead of the placeholder.

use everloop_core::spec::AgentKind;
use everloop_engine::error::Failure;
use toml::Value;

use super::Proposal;

/// The command of an unknown agent in the text of [`super::render_toml`].
pub(super) const PLACEHOLDER: &str = "command = [\"my-agent\", \"{prompt}\"]";

/// Names an installed CLI instead of the placeholder, and lets it run the checks: everloop runs
/// them anyway.
pub fn with_cli(text: &str, kind: AgentKind, proposals: &[Proposal]) -> String {
    let Some((before, rest)) = text.split_once("[agent.default]") else { return text.to_owned() };
    let Some((_, after)) = rest.split_once("[loop.main]") else { return text.to_owned() };
    let plain = |run: &&str| !run.contains(['&', '|', ';', '(', '$', '>', '<']);
    let runs = proposals.iter().filter(|p| !p.optional).map(|p| p.run.as_str()).filter(plain);
    let allow = Value::from(runs.map(Value::from).collect::<Vec<_>>());
    let agent = format!(
        "# Installed here; `everloop agents` lists what else there is.\nagent = \"{}\"\n\
         # What it may run besides changing files; `permission = \"full\"` lets it run everything as your user.\nallow = {allow}",
        kind.label()
    );
    format!("{before}[loop.main]{}", after.replacen("agent = \"default\"", &agent, 1))
}

/// Replaces the placeholder by the agent's command.
pub fn with_command(text: String, command: Option<&str>) -> Result<String, Failure> {
    let Some(command) = command else { return Ok(text) };
    let example = "--agent-cmd 'my-agent {prompt}'";
    let words = shlex::split(command).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| Failure::usage(format!("`{command}` is not a command")).hint(example))?;
    let list = Value::from(words.into_iter().map(Value::from).collect::<Vec<_>>());
    Ok(text.replace(PLACEHOLDER, &format!("command = {list}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PROJECT_FILE;
    use crate::detect::{detect, render_toml};

    #[test]
    fn an_installed_cli_takes_the_agents_place_and_may_run_the_checks() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Cargo.toml"), "[package]\nname = \"x\"\n").unwrap();
        let proposals = detect(dir.path());
        let text = with_cli(&render_toml(&proposals, "x"), AgentKind::Claude, &proposals);
        assert!(text.contains("agent = \"claude\"") && text.contains("allow = [\"cargo test\"]"), "{text}");
        assert!(!text.contains("[agent.") && !text.contains("my-agent"), "{text}");
        std::fs::write(dir.path().join(PROJECT_FILE), &text).unwrap();
        let config = crate::config::load(dir.path(), None, &crate::config::Overrides::default()).unwrap();
        let moment = crate::config::ResolveContext::at(everloop_core::time::Time(0));
        assert_eq!(config.resolve("main", &moment).unwrap().agent.kind, AgentKind::Claude);
    }

    #[test]
    fn the_agents_command_takes_the_placeholders_place() {
        let plain = render_toml(&[], "x");
        assert!(plain.contains(PLACEHOLDER), "{plain}");
        let text = with_command(plain, Some("my-tool --model 'big one' {prompt_file}")).unwrap();
        assert!(text.contains(r#"command = ["my-tool", "--model", "big one", "{prompt_file}"]"#), "{text}");
        assert!(with_command(String::new(), Some("'unclosed")).is_err());
    }
}
