//! Newtypes for everything that has an identity. The edges draw ids; this file has no rules about
//! that.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps a text that is already known to be such an id.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The id as it is written in commands and files.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// A loop: short, drawn at random when the loop is made (`k3f9`).
    LoopId
);
text_id!(
    /// A piece of work in the queue. A loop's own tasks are `<loop>-<number>`.
    TaskId
);
text_id!(
    /// A node: an installation of everloop that takes turns.
    NodeId
);

impl TaskId {
    /// The id of the `number`-th task that a loop makes for itself.
    pub fn of_loop(owner: &LoopId, number: u32) -> Self {
        Self(format!("{owner}-{number}"))
    }
}

/// One run of an agent on a task, written `<task>.<fence>`: the turn that holds the task under this
/// fence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId {
    task: TaskId,
    fence: Fence,
    text: String,
}

impl TurnId {
    /// The turn that holds `task` under `fence`.
    pub fn of(task: &TaskId, fence: Fence) -> Self {
        Self { task: task.clone(), fence, text: format!("{task}.{fence}") }
    }

    /// The task it works on.
    pub fn task(&self) -> &TaskId {
        &self.task
    }

    /// The fence it holds the task under.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The id as it is written in commands and files.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for TurnId {
    type Err = NotATurn;

    fn from_str(text: &str) -> Result<Self, NotATurn> {
        let parts = text.rsplit_once('.').filter(|(task, _)| !task.is_empty());
        let turn = parts.and_then(|(task, fence)| Some(Self::of(&TaskId::new(task), Fence(fence.parse().ok()?))));
        // `+1` and `01` are numbers too; two names for one turn would be two folders.
        turn.filter(|turn| turn.text == text).ok_or_else(|| NotATurn(text.to_owned()))
    }
}

/// A text that is no id of a turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the id of a turn")]
pub struct NotATurn(String);

impl Serialize for TurnId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for TurnId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A number on a task that only ever grows; every write of a turn carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence of the next claim.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_turn_is_read_as_it_is_written() {
        let turn = TurnId::of(&TaskId::new("release-1.2"), Fence(7));
        assert_eq!(turn.to_string(), "release-1.2.7");
        assert_eq!("release-1.2.7".parse(), Ok(turn.clone()));
        let stored = serde_json::to_string(&turn).expect("a text");
        assert_eq!(stored, "\"release-1.2.7\"");
        assert_eq!(serde_json::from_str::<TurnId>(&stored).ok(), Some(turn));
        for wrong in ["", "x", "x.", ".1", "k3f9-3.1.lost", "x.01", "x.+1", "x.-1", "x.99999999999999999999"] {
            assert!(wrong.parse::<TurnId>().is_err(), "{wrong}");
        }
    }
}
