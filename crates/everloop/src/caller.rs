//! Who acts: a person at the keyboard, the agent of a turn, or an agent that speaks MCP. What an agent writes is data and
//! never the operator's word, whichever way it came.

use everloop_core::op::Trust;

/// The variable in which a turn's agent finds its turn.
pub const TURN: &str = "EVERLOOP_TURN";
/// A longer name does not fit into listings.
const NAME_MAX_CHARS: usize = 40;

/// Who acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Somebody at a keyboard, or a script of theirs.
    Person(String),
    /// An agent that typed a command in its turn.
    Turn(String),
    /// An agent on the other end of a protocol; standard input is the protocol's.
    Client(String),
}

impl Caller {
    /// Who started this process.
    pub fn here() -> Self {
        match turn() {
            Some(turn) => Self::Turn(turn),
            None => Self::Person(person()),
        }
    }

    /// A program that calls itself `name`. Within a turn it is that turn's agent, whatever it calls itself.
    pub fn client(name: &str) -> Self {
        let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_MAX_CHARS).collect();
        match (turn(), name.trim()) {
            (Some(turn), _) => Self::Client(format!("turn {turn}")),
            (None, "") => Self::Client("an agent".to_owned()),
            (None, name) => Self::Client(format!("agent {name}")),
        }
    }

    /// As the journal calls them.
    pub fn name(&self) -> String {
        match self {
            Self::Person(name) | Self::Client(name) => name.clone(),
            Self::Turn(turn) => format!("turn {turn}"),
        }
    }

    /// How far their words are trusted.
    pub fn trust(&self) -> Trust {
        if self.is_person() { Trust::Operator } else { Trust::Agent }
    }

    /// Whether it is a person.
    pub fn is_person(&self) -> bool {
        matches!(self, Self::Person(_))
    }

    /// Whether standard input is theirs to write to.
    pub fn has_stdin(&self) -> bool {
        !matches!(self, Self::Client(_))
    }
}

fn turn() -> Option<String> {
    std::env::var(TURN).ok().filter(|turn| !turn.is_empty())
}

/// Who types.
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
