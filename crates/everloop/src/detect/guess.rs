//! What a `run` with nothing but a goal works with: the checks that the project seems to have, and
//! the one agent that is here. A person sees the whole command before it starts.

use everloop_agents::agent::probe::Installed;
use everloop_core::spec::AgentSpec;
use everloop_engine::error::Failure;

use super::Proposal;
use crate::config::Lacking;

/// Flags that complete a command line, in the order in which they are typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    pub flags: Vec<(&'static str, String)>,
    /// What was found and why, a line each.
    pub found: Vec<String>,
}

/// Fills what is lacking from the proposals and from the installed CLIs, logged in ones first.
pub fn guess(lacking: Lacking, proposals: &[Proposal], clis: &[(AgentSpec, Installed)]) -> Result<Guess, Failure> {
    let mut guess = Guess::default();
    let checks: Vec<&Proposal> = proposals.iter().filter(|p| !p.optional).collect();
    if lacking.checks {
        if checks.is_empty() {
            return Err(Failure::usage("no check is given, and nothing here looks like a test")
                .hint("name the command that decides: --check 'CMD'"));
        }
        for check in &checks {
            guess.flags.push(("check", check.run.clone()));
            guess.found.push(format!("check: {} ({})", check.run, check.reason));
        }
        let mut setups: Vec<&String> = checks.iter().filter_map(|check| check.setup.as_ref()).collect();
        setups.dedup();
        if !setups.is_empty() {
            let setup = setups.into_iter().map(String::as_str).collect::<Vec<_>>().join(" && ");
            guess.found.push(format!("setup: {setup} (in every new checkout)"));
            guess.flags.push(("setup", setup));
        }
    }
    if lacking.agent {
        let agent = the_one(clis)?;
        guess.found.push(format!("agent: {agent} (installed here)"));
        guess.flags.push(("agent", agent.to_owned()));
        // Without its checks an agent works blind.
        let runs = guess.flags.iter().filter(|(flag, _)| *flag == "check").map(|(_, run)| run.clone());
        let plain: Vec<String> = runs.filter(|run| !run.contains(['&', '|', ';', '(', '$', '>', '<'])).collect();
        guess.flags.extend(plain.into_iter().map(|run| ("allow", run)));
    }
    Ok(guess)
}

fn the_one(clis: &[(AgentSpec, Installed)]) -> Result<&str, Failure> {
    let ready: Vec<&str> = clis.iter().filter(|(_, f)| f.hint.is_none()).map(|(a, _)| a.name.as_str()).collect();
    let all: Vec<&str> = clis.iter().map(|(agent, _)| agent.name.as_str()).collect();
    match (ready.as_slice(), all.as_slice()) {
        ([one], _) | ([], [one]) => Ok(one),
        (_, []) => Err(Failure::usage("no agent is given, and none is installed here").hint(
            "install one (`everloop agents` shows how) and name it: --agent claude; or use any command: \
             --agent-cmd 'my-agent {prompt}'",
        )),
        ([], several) | (several, _) => {
            let choices: Vec<String> = several.iter().map(|name| format!("--agent {name}")).collect();
            Err(Failure::usage("no agent is given, and several are installed here")
                .hint(format!("name one: {}", choices.join(" or "))))
        }
    }
}

impl Guess {
    /// The whole command, as it would be typed.
    pub fn command(&self, goal: &str, typed: &[String]) -> String {
        let quote = |word: &str| shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned);
        let mut words = vec!["everloop".to_owned(), "run".to_owned(), quote(goal)];
        words.extend(typed.iter().map(|word| quote(word)));
        for (flag, value) in &self.flags {
            words.extend([format!("--{flag}"), quote(value)]);
        }
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use everloop_agents::agent::probe::{Billing, LoginState};

    use super::*;

    fn cli(name: &str, hint: Option<&'static str>) -> (AgentSpec, Installed) {
        let found =
            Installed { path: None, version: None, login: LoginState::Unknown, billing: Billing::Unknown, hint };
        (AgentSpec { name: name.to_owned(), ..AgentSpec::default() }, found)
    }

    const BOTH: Lacking = Lacking { checks: true, agent: true };

    #[test]
    fn the_command_is_complete_and_quoted() {
        let mut proposal = Proposal::new("npm test", "npm test", "package.json has a script `test`");
        proposal.setup = Some("npm ci".to_owned());
        let optional = Proposal::new("lint", "make lint", "x").optional();
        let found = guess(BOTH, &[proposal, optional], &[cli("claude", None), cli("codex", Some("log in"))]);
        let guess = found.expect("one is ready");
        assert_eq!(
            guess.command("it's done", &["-n".to_owned(), "3".to_owned()]),
            "everloop run \"it's done\" -n 3 --check 'npm test' --setup 'npm ci' --agent claude --allow 'npm test'"
        );
    }

    #[test]
    fn what_cannot_be_guessed_is_requested() {
        let test = [Proposal::new("t", "make test", "x")];
        let hint = |proposals: &[Proposal], clis: &[(AgentSpec, Installed)]| {
            guess(BOTH, proposals, clis).expect_err("nothing to guess").hint.unwrap_or_default()
        };
        assert!(hint(&[], &[cli("claude", None)]).contains("--check 'CMD'"));
        assert!(hint(&test, &[]).contains("--agent-cmd"));
        assert_eq!(
            hint(&test, &[cli("claude", None), cli("codex", None)]),
            "name one: --agent claude or --agent codex"
        );
    }
}
