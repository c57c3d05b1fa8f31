//! Newtypes for everything that has an identity. The edges draw ids; this file has no rules about
//! that.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// One run of an agent on a task: `<task>.<fence>`.
    TurnId
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

impl TurnId {
    /// The turn that holds `task` under `fence`.
    pub fn of(task: &TaskId, fence: Fence) -> Self {
        Self(format!("{task}.{}", fence.0))
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
