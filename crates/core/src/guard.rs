//! Who may start a turn now; if not, when and why. One place for every permit, pure.
//!
//! [`permit`](permit::permit) asks the rules in this order: freeze; the vendor's limit, pace, cooldown, gap, backoff and caps (of these the one
//! that holds longest is named); budgets; bucket; slots. What the guard remembers is [`GuardState`], one per [`Scope`], kept in
//! the ledger and changed by events only ([`GuardState::apply`]). [`reflex`] turns the end of a turn into cooldowns and
//! freezes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{LoopId, NodeId, TurnId};
use crate::pacing::Window;
use crate::phase::Gaps;
use crate::reason::Reason;
use crate::stream::VendorLimit;
use crate::time::Time;

mod apply;
pub mod permit;
pub mod reflex;
mod starts;

pub use starts::Starts;

/// Whom a rule of the guard is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Scope {
    /// Everything.
    All,
    /// A machine.
    Node(NodeId),
    /// A credential set.
    Account(String),
    /// A loop.
    Loop(LoopId),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::All => f.write_str("all"),
            Scope::Node(n) => write!(f, "node:{n}"),
            Scope::Account(a) => write!(f, "account:{a}"),
            Scope::Loop(l) => write!(f, "loop:{l}"),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> String {
        scope.to_string()
    }
}

impl TryFrom<String> for Scope {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "all" => Ok(Scope::All),
            Some(("node", id)) if !id.is_empty() => Ok(Scope::Node(NodeId::new(id))),
            Some(("account", name)) if !name.is_empty() => Ok(Scope::Account(name.to_owned())),
            Some(("loop", id)) if !id.is_empty() => Ok(Scope::Loop(LoopId::new(id))),
            _ => Err(format!("`{text}` is not a scope; write `all`, `loop:ID`, `account:NAME` or `node:NAME`")),
        }
    }
}

/// Calls, tokens and dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// Turns.
    pub calls: u64,
    /// Tokens.
    pub tokens: u64,
    /// Millionths of a dollar.
    pub microusd: u64,
}

impl Spend {
    /// The greater of each.
    #[must_use]
    pub fn most(self, other: Spend) -> Spend {
        Spend {
            calls: self.calls.max(other.calls),
            tokens: self.tokens.max(other.tokens),
            microusd: self.microusd.max(other.microusd),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Spend) -> Spend {
        Spend {
            calls: self.calls.saturating_add(other.calls),
            tokens: self.tokens.saturating_add(other.tokens),
            microusd: self.microusd.saturating_add(other.microusd),
        }
    }
}

/// The right to start one turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// Everybody who is charged.
    pub scopes: Vec<Scope>,
    /// What is set aside until the turn is settled.
    pub reserve: Spend,
    /// The frozen scope for which this start is a trial.
    pub canary: Option<Scope>,
    /// The account's bucket after this start.
    pub bucket: Option<Bucket>,
}

/// The guard's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermitDecision {
    /// Start.
    Go(Permit),
    /// Not now.
    Wait(Reason),
    /// Not within the loop's budget, ever.
    Spent(Reason),
}

/// A token bucket's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Thousandths of a start.
    pub millistarts: u64,
    /// As of when.
    pub at: Time,
}

/// A full hold, with the record of why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// `cooldowns`, `relapse`, `person`.
    pub cause: String,
    /// Who was involved and what was seen: turns, exits, cooldowns.
    pub audit: Vec<String>,
    /// Since when.
    pub since: Time,
    /// The booked end; `None` waits for a person.
    pub until: Option<Time>,
    /// The next trial start, if any is allowed.
    pub canary_at: Option<Time>,
    /// Time between trial starts, in milliseconds.
    pub canary_every_ms: u64,
    /// Who asked for it, when a person did.
    pub by: Option<String>,
}

/// A scope that cools down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cooling {
    /// Until when.
    pub until: Time,
    /// How often in a row.
    pub level: u32,
}

/// A wait after a failure, or one that the agent asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backing {
    /// Until when.
    pub until: Time,
    /// `failure` or `asked`.
    pub why: String,
}

/// The vendor's own limit on an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountHold {
    /// What its CLI said.
    pub limit: VendorLimit,
    /// Nothing starts before.
    pub until: Time,
    /// How often in a row without a success.
    pub strikes: u32,
}

/// What the guard remembers about a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardState {
    /// A full hold.
    pub freeze: Option<Freeze>,
    /// A short one.
    pub cooling: Option<Cooling>,
    /// A wait after a failure.
    pub backing: Option<Backing>,
    /// When the last turn started.
    pub last_start: Option<Time>,
    /// How many started when.
    pub starts: Starts,
    /// What running turns have set aside.
    pub reserved: BTreeMap<TurnId, Spend>,
    /// What ended turns used.
    pub spent: Spend,
    /// Starts that died young since the last progress, newest last.
    pub deaths: Vec<Time>,
    /// Failures in a row.
    pub failures: u32,
    /// Cooldowns in a row without progress.
    pub level: u32,
    /// Recent cooldowns, newest last.
    pub cooldowns: Vec<Time>,
    /// Recent freezes that the guard itself made, newest last.
    pub freezes: Vec<Time>,
    /// A freeze ended by the clock, not by a success: the next young death freezes again at once.
    pub probation: bool,
    /// The bucket.
    pub bucket: Option<Bucket>,
    /// The vendor's own limit; stays, with its time passed, until a turn ended without one.
    #[serde(default)]
    pub held: Option<AccountHold>,
    /// How long this account's agents usually say nothing.
    #[serde(default)]
    pub gaps: Gaps,
    /// What this account's turns last said of its allowances.
    #[serde(default)]
    pub windows: Vec<Window>,
}

/// A guard's state and the version under which it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// 0 when it was never written.
    pub version: u64,
    /// What it remembers.
    pub state: GuardState,
}

/// All guard states that a decision looks at.
pub type Guards = BTreeMap<Scope, Versioned>;
