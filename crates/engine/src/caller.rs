//! The caller of a verb: a person at the keyboard, the agent of a turn, or an agent over MCP. What
//! an agent writes is data and never has a person's trust, whichever way it came.
//!
//! A turn is known by its variable, and without it by where its processes are: a command that drops
//! the variable is still below the shim of its job.

use std::net::SocketAddr;
use std::path::Path;

use everloop_agents::job::{self, InsideJob};
use everloop_agents::peer;
use everloop_core::op::Trust;

use crate::state_folder::StateFolder;

/// The variable that names the current turn to its agent.
pub const TURN: &str = "EVERLOOP_TURN";
/// A longer name does not fit into listings.
const NAME_MAX_CHARS: usize = 40;

/// The person or agent that acts. What it may do depends on the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A person at a keyboard, or a script of theirs.
    Person(String),
    /// An agent that typed a command in its turn.
    Turn(String),
    /// An agent on the other end of a protocol, which owns standard input.
    Client(String),
}

impl Caller {
    /// The caller of this process, which is about to use a state folder (`None`: the usual one).
    pub fn here(state_dir: Option<&Path>) -> Self {
        match inside(state_dir).or_else(turn) {
            Some(turn) => Self::Turn(turn),
            None => Self::Person(person()),
        }
    }

    /// A program named `name`. Within a turn it is that turn's agent, whatever name it gives.
    pub fn client(name: &str) -> Self {
        let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_MAX_CHARS).collect();
        match (turn(), name.trim()) {
            (Some(turn), _) => Self::Client(format!("turn {turn}")),
            (None, "") => Self::Client("an agent".to_owned()),
            (None, name) => Self::Client(format!("agent {name}")),
        }
    }

    /// The name in the journal.
    pub fn name(&self) -> String {
        match self {
            Self::Person(name) | Self::Client(name) => name.clone(),
            Self::Turn(turn) => format!("turn {turn}"),
        }
    }

    /// The turn that acts, directly or over a protocol.
    pub fn turn(&self) -> Option<&str> {
        match self {
            Self::Turn(turn) => Some(turn),
            Self::Client(name) => name.strip_prefix("turn "),
            Self::Person(_) => None,
        }
    }

    /// How far texts of this caller are trusted: only a person's are instructions.
    pub fn trust(&self) -> Trust {
        if self.is_person() { Trust::Operator } else { Trust::Agent }
    }

    /// Whether a person acts, so that decisions reserved for people are allowed.
    pub fn is_person(&self) -> bool {
        matches!(self, Self::Person(_))
    }

    /// Whether standard input is free for the caller's data.
    pub fn has_stdin(&self) -> bool {
        !matches!(self, Self::Client(_))
    }
}

/// The program on the other end of a connection over loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The command of a turn or of a check, by its name.
    Job(String),
    /// Any other program of this machine.
    Program,
    /// One that the kernel does not show.
    Unknown,
}

impl Peer {
    /// Of the connection from `peer` to `here`. A connection that several processes hold belongs to a
    /// job if one of them does.
    pub fn of(home: &StateFolder, peer: SocketAddr, here: SocketAddr) -> Self {
        let processes = peer::processes_at(peer, here);
        match processes.iter().find_map(|pid| job::job_of_process(home.root(), *pid)) {
            Some(found) => Self::Job(named(&found).unwrap_or_else(|| "that is over".to_owned())),
            None if processes.is_empty() => Self::Unknown,
            None => Self::Program,
        }
    }
}

/// The turn or check of a state folder that this process is part of, with any variables.
pub fn inside(state_dir: Option<&Path>) -> Option<String> {
    let root = StateFolder::place(state_dir).ok()?;
    let found = job::inside_job(&root)?;
    named(&found).or_else(turn).or_else(|| Some("that is over".to_owned()))
}

/// The name of a job's turn; `None` for a job without a shim.
fn named(found: &InsideJob) -> Option<String> {
    let InsideJob::Of(dir) = found else { return None };
    let names: Vec<&str> = dir.iter().rev().take(2).filter_map(|name| name.to_str()).collect();
    match names[..] {
        [turn, "turns"] => Some(turn.to_owned()),
        _ => Some("under check".to_owned()),
    }
}

fn turn() -> Option<String> {
    std::env::var(TURN).ok().filter(|turn| !turn.is_empty())
}

/// The user name of the person.
pub fn person() -> String {
    std::env::var("USER").ok().filter(|u| !u.is_empty()).unwrap_or_else(|| "a person".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_no_person_whatever_it_calls_itself() {
        let client = Caller::client("tester\u{1b}[31m");
        assert_eq!((client.name().as_str(), client.trust()), ("agent tester[31m", Trust::Agent));
        assert!(!client.is_person() && !client.has_stdin());
        assert_eq!(Caller::client(" ").name(), "an agent");
        assert_eq!(Caller::Turn("k3f9-1.1".into()).name(), "turn k3f9-1.1");
        assert_eq!(Caller::Person("me".into()).trust(), Trust::Operator);
    }
}
