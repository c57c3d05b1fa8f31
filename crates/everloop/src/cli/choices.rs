//! Types of the engine as values of arguments: their names and help texts on the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use everloop_engine::install::plan::AgentCli;
use everloop_engine::tally::By;
use everloop_engine::unit::Manager;

type Choice<T> = (&'static str, &'static str, T);

const AGENT_CLIS: [Choice<AgentCli>; 4] = [
    ("claude", "Claude Code of Anthropic", AgentCli::Claude),
    ("codex", "Codex of OpenAI", AgentCli::Codex),
    ("gemini", "Gemini CLI of Google", AgentCli::Gemini),
    ("opencode", "opencode, any vendor", AgentCli::Opencode),
];

const SUMS: [Choice<By>; 5] = [
    ("loop", "Sum by loop", By::Loop),
    ("agent", "Sum by the agent of the turn", By::Agent),
    ("account", "Sum by the paying account", By::Account),
    ("day", "Sum by the day of the turn's end", By::Day),
    ("model", "Sum by the answering model", By::Model),
];

const MANAGERS: [Choice<Manager>; 2] = [
    ("systemd", "A user unit of systemd", Manager::Systemd),
    ("launchd", "A launch agent of launchd", Manager::Launchd),
];

/// An agent's CLI.
pub fn agent_cli() -> impl TypedValueParser<Value = AgentCli> {
    parser(&AGENT_CLIS)
}

/// The dimension of sums.
pub fn sums() -> impl TypedValueParser<Value = By> {
    parser(&SUMS)
}

/// A service manager.
pub fn manager() -> impl TypedValueParser<Value = Manager> {
    parser(&MANAGERS)
}

fn parser<T: Copy + Send + Sync + 'static>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).map(|given| {
        let chosen = choices.iter().find(|(name, ..)| *name == given);
        chosen.expect("clap lets only these names through").2
    })
}
