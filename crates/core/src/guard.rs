//! Permits: whether a turn may start now; if not, when and why. The single place for every permit,
//! pure.
//!
//! [`permit`](permit::permit) evaluates the rules in this order: freeze; the vendor's limit, pace,
//! cooldown, gap, backoff and caps (of these the one that holds longest is named); budgets; bucket;
//! slots. The guard's memory is [`GuardState`], one per [`Scope`], kept in the ledger and changed
//! by events only ([`GuardState::apply`]). [`reflex`] turns the end of a turn into cooldowns and
//! freezes.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

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

/// The subject of a guard rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Scope {
    All,
    Node(NodeId),
    Account(String),
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

/// Usage in calls, tokens and dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    pub calls: u64,
    pub tokens: u64,
    /// Millionths of a dollar.
    pub microusd: u64,
}

impl Spend {
    /// The greater value of each field.
    #[must_use]
    pub fn most(self, other: Spend) -> Spend {
        Spend {
            calls: self.calls.max(other.calls),
            tokens: self.tokens.max(other.tokens),
            microusd: self.microusd.max(other.microusd),
        }
    }

    /// The sum of each field.
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
    /// All scopes that are charged.
    pub scopes: Vec<Scope>,
    /// Reservation until the turn is settled.
    pub reserve: Spend,
    /// The frozen scope for which this start is a trial.
    pub canary: Option<Scope>,
    /// State of the account's bucket after this start.
    pub bucket: Option<Bucket>,
}

impl Permit {
    /// The scope of the account that is charged.
    pub fn account(&self) -> Option<&Scope> {
        self.scopes.iter().find(|scope| matches!(scope, Scope::Account(_)))
    }
}

/// Answer to a permit request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermitDecision {
    Go(Permit),
    Wait(Reason),
    /// Never within the loop's budget.
    Spent(Reason),
}

/// Content of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Thousandths of a start.
    pub millistarts: u64,
    /// Time at which the content was computed.
    pub at: Time,
}

/// A full hold, with the record of why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// `cooldowns`, `relapse`, `person`.
    pub cause: String,
    /// Turns, exits and cooldowns that led to the freeze.
    pub audit: Vec<String>,
    pub since: Time,
    /// The booked end; `None` waits for a person.
    pub until: Option<Time>,
    /// Next trial start, if trials are allowed.
    pub canary_at: Option<Time>,
    /// Time between trial starts, in milliseconds.
    pub canary_every_ms: u64,
    /// The person that requested it, if a person did.
    pub by: Option<String>,
}

impl Freeze {
    /// A person's hold, until a time or until it is released.
    pub fn by_person(by: String, reason: &str, since: Time, until: Option<Time>) -> Self {
        Self {
            cause: "person".to_owned(),
            audit: vec![format!("{by}: {reason}")],
            since,
            until,
            canary_at: None,
            canary_every_ms: 0,
            by: Some(by),
        }
    }
}

/// A scope that cools down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cooling {
    pub until: Time,
    /// Cooldowns in a row.
    pub level: u32,
}

/// A wait after a failure, or a delay that the agent requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backing {
    pub until: Time,
    /// `failure: …`, or the delay that the agent requested.
    pub why: String,
    /// Whether the agent requested it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requested: bool,
}

/// The vendor's own limit on an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountHold {
    /// The limit as the CLI reported it.
    pub limit: VendorLimit,
    /// No turn starts before this time.
    pub until: Time,
    /// Limits in a row without a success.
    pub strikes: u32,
}

/// Stored guard state of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardState {
    pub freeze: Option<Freeze>,
    pub cooling: Option<Cooling>,
    pub backing: Option<Backing>,
    pub last_start: Option<Time>,
    /// Counts of starts per period.
    pub starts: Starts,
    /// Reservations of running turns.
    pub reserved: BTreeMap<TurnId, Spend>,
    /// Usage of ended turns.
    pub spent: Spend,
    /// Starts that died young since the last progress, newest last.
    pub deaths: Vec<Time>,
    pub failures: u32,
    /// Cooldowns in a row without progress.
    pub level: u32,
    /// Recent cooldowns, newest last.
    pub cooldowns: Vec<Time>,
    /// Recent freezes that the guard itself made, newest last.
    pub freezes: Vec<Time>,
    /// A freeze ended by the clock, not by a success: the next young death freezes again at once.
    pub probation: bool,
    pub bucket: Option<Bucket>,
    /// The vendor's own limit; stays, with its time passed, until a turn ended without one.
    #[serde(default)]
    pub held: Option<AccountHold>,
    /// Usual silences of this account's agents.
    #[serde(default)]
    pub gaps: Gaps,
    /// Allowances that this account's turns reported last.
    #[serde(default)]
    pub windows: Vec<Window>,
}

/// A guard's state and the version under which it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// 0 when it was never written.
    pub version: u64,
    pub state: GuardState,
}

/// All guard states that a decision reads.
pub type Guards = BTreeMap<Scope, Versioned>;
