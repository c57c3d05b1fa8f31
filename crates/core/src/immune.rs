//! Fault attribution: which node, account, agent, pane or task kind makes turns fail, and the
//! response. Pure: outcomes and the time in, steps with their reasons out.
//!
//! Every turn that ends is an outcome of several [`Subject`]s at once: node, pane, account, agent,
//! kind of task. A failure is counted for all subjects it concerns and charged to the one that
//! fails across different values of the others ([`blame`]). Charges raise the tier ([`tier`]):
//! first a smaller share of the work, then none except one trial after a while; if that does not
//! help, one threshold moves for a time. [`caps`] bound the damage: a fleet is never quarantined
//! out of existence, and when everything fails at once the observer is suspected instead. [`rules`]
//! are set by people or learned from repeated corrections.
//!
//! The state is [`Immune`], one document in the ledger, changed by [`ImmuneStep`] only
//! ([`Immune::apply`]).

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Outcome};
use crate::ids::{NodeId, TurnId};
use crate::op::Op;
use crate::reason::Reason;
use crate::spec::{AgentKind, AgentSpec, DEFAULT_ACCOUNT};
use crate::stream::LimitClass;
use crate::time::Time;

mod apply;
pub mod blame;
pub mod caps;
pub mod choice;
pub mod record;
pub mod rules;
pub mod tier;

pub use record::OutcomeRecord;
pub use rules::{ImmuneRule, RuleEffect};
pub use tier::observe;

/// Format of the stored document. A newer one is refused, never guessed at.
pub const IMMUNE_VERSION: u32 = 1;
/// Kind of the document in the ledger.
pub const DOC: &str = "immune";
/// Key of the document: one for all nodes.
pub const FLEET: &str = "fleet";

/// Length of a beat for a quarantined subject; for a working one a beat is an outcome.
pub const BEAT: Duration = Duration::from_secs(60);

/// Longer names are cut: kinds of tasks are free text and may come from agents.
const NAME_CHARS: usize = 64;

/// Kind of a subject. The order breaks ties: of two that were never seen apart the narrower one is
/// charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// An interactive agent in a terminal.
    Pane,
    /// A credential set.
    Account,
    /// The agent, as the strategy of a turn.
    Agent,
    Kind,
    Node,
}

impl Dimension {
    /// All dimensions, narrowest first.
    pub const ALL: [Dimension; 5] =
        [Dimension::Pane, Dimension::Account, Dimension::Agent, Dimension::Kind, Dimension::Node];

    /// Prefix in the written form of a subject.
    pub fn label(self) -> &'static str {
        match self {
            Dimension::Pane => "pane",
            Dimension::Account => "account",
            Dimension::Agent => "agent",
            Dimension::Kind => "kind",
            Dimension::Node => "node",
        }
    }
}

/// A possible cause of failures: `account:default`, `node:here`, `kind:docs`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Subject {
    /// In which respect.
    pub dimension: Dimension,
    pub name: String,
}

impl Subject {
    /// Creates a subject; a long name is cut.
    pub fn new(dimension: Dimension, name: &str) -> Self {
        Self { dimension, name: name.chars().take(NAME_CHARS).collect() }
    }

    /// Whether a rule about this subject is one about the other. The default accounts of all kinds
    /// of agents have a name in common.
    pub fn covers(&self, other: &Subject) -> bool {
        let is_default = self.dimension == Dimension::Account && self.name == DEFAULT_ACCOUNT;
        let below = || other.name.split_once('/').is_some_and(|(name, _)| name == DEFAULT_ACCOUNT);
        self == other || is_default && other.dimension == Dimension::Account && below()
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dimension.label(), self.name)
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> String {
        subject.to_string()
    }
}

impl TryFrom<String> for Subject {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let parts = text.split_once(':').filter(|(_, name)| !name.is_empty());
        let found = parts.and_then(|(word, name)| {
            let dimension = Dimension::ALL.into_iter().find(|d| d.label() == word)?;
            Some(Subject::new(dimension, name))
        });
        found.ok_or_else(|| {
            format!(
                "`{text}` cannot be quarantined; write `node:NAME`, `pane:NAME`, `account:NAME`, \
                 `agent:NAME` or `kind:NAME`"
            )
        })
    }
}

/// Class of a turn's end for its subjects. The first two are no failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It brought progress.
    Good,
    /// The turn ended well and the checks still fail.
    NotYet,
    /// The agent could not take or finish the turn; the task is not at fault.
    AgentFailed,
    /// The vendor reported that it does not serve the account.
    Unserved,
    /// The turn broke its workspace or exceeded its time limit.
    TaskFailed,
}

impl Class {
    /// Class of an outcome; `None` when it proves nothing (stopped by a person, vanished with its
    /// node).
    pub fn of(outcome: &Outcome) -> Option<Class> {
        match outcome {
            Outcome::Reached | Outcome::Progress => Some(Class::Good),
            Outcome::NotYet
            | Outcome::NoOp
            | Outcome::Refused { .. }
            | Outcome::Regressed { .. }
            | Outcome::Discarded { .. } => Some(Class::NotYet),
            // A missing connection may as well be the node's fault.
            Outcome::AgentFailed { .. } | Outcome::Limited { class: LimitClass::Network, .. } => {
                Some(Class::AgentFailed)
            }
            Outcome::Limited { .. } => Some(Class::Unserved),
            Outcome::TaskFailed { .. } => Some(Class::TaskFailed),
            Outcome::Interrupted | Outcome::Lost => None,
        }
    }

    /// Whether the turn failed.
    pub fn failed(self) -> bool {
        matches!(self, Class::AgentFailed | Class::Unserved | Class::TaskFailed)
    }

    /// Whether it is a failure of such a subject; `None` when the turn did not put it to the test.
    pub fn failed_for(self, dimension: Dimension) -> Option<bool> {
        match self {
            Class::Good | Class::NotYet => Some(false),
            // An agent that cannot start proves nothing about the task: a vendor's outage ends no
            // loop.
            Class::AgentFailed => (dimension != Dimension::Kind).then_some(true),
            // The vendor named the account; no other subject was put to the test.
            Class::Unserved => (dimension == Dimension::Account).then_some(true),
            // A broken workspace may be the node's fault; the agent itself worked.
            Class::TaskFailed => Some(matches!(dimension, Dimension::Kind | Dimension::Node)),
        }
    }
}

/// Outcome of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedOutcome {
    /// All subjects that took part, at most one of each dimension.
    pub subjects: Vec<Subject>,
    pub class: Class,
    /// When the vendor serves the account again, if it reported that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<Time>,
}

/// All subjects of a turn.
pub fn subjects(node: &NodeId, agent: &AgentSpec, kind: Option<&str>) -> Vec<Subject> {
    let mut all = vec![
        Subject::new(Dimension::Node, node.as_str()),
        Subject::new(Dimension::Account, &agent.guard_account()),
        Subject::new(Dimension::Agent, agent.subject()),
    ];
    if let (AgentKind::Pane, Some(pane)) = (agent.kind, agent.argv.get(1).or(agent.argv.first())) {
        all.push(Subject::new(Dimension::Pane, pane));
    }
    all.extend(kind.map(|kind| Subject::new(Dimension::Kind, kind)));
    all
}

/// State of the immune system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Immune {
    /// Format of this document.
    pub immune_version: u32,
    pub record: OutcomeRecord,
    /// Subjects that were charged lately.
    pub standings: BTreeMap<Subject, SubjectTier>,
    /// Rules of people and learned ones.
    pub rules: Vec<ImmuneRule>,
    /// Recent corrections; a correction that repeats becomes a rule.
    pub corrections: Vec<rules::Correction>,
    /// The number of the next rule.
    pub next_rule: u32,
    /// Everything fails at once, so no subject is held.
    pub suspicion: Option<Reason>,
    /// Learned deviations from the built-in values.
    pub thresholds: Thresholds,
    /// The latest move, while its effect is unknown.
    pub moved: Option<Moved>,
    /// Times at which released subjects had to be quarantined again.
    pub relapses: Vec<Time>,
}

impl Default for Immune {
    fn default() -> Self {
        Self {
            immune_version: IMMUNE_VERSION,
            record: OutcomeRecord::default(),
            standings: BTreeMap::new(),
            rules: Vec::new(),
            corrections: Vec::new(),
            next_rule: 1,
            suspicion: None,
            thresholds: Thresholds::default(),
            moved: None,
            relapses: Vec::new(),
        }
    }
}

impl Immune {
    /// Reads the document and refuses a newer format.
    pub fn read(body: &str) -> Result<Self, String> {
        let immune: Self = serde_json::from_str(body).map_err(|e| e.to_string())?;
        if immune.immune_version > IMMUNE_VERSION {
            return Err("a newer everloop wrote it".to_owned());
        }
        Ok(immune)
    }

    /// Applies these steps and returns the operations that store them, unless another writer stored
    /// since `version`.
    pub fn save(&mut self, version: u64, steps: Vec<ImmuneStep>, now: Time) -> Vec<Op> {
        for step in &steps {
            self.apply(step, now);
        }
        let body = serde_json::to_string(self).expect("it is plain data and always has a JSON form");
        let events = steps.into_iter().map(|step| Event::Immune { step: Box::new(step) }).collect();
        let save = Op::SaveDoc { kind: DOC.to_owned(), key: FLEET.to_owned(), version, body };
        vec![save, Op::Append { owner: None, events }]
    }
}

/// Standing of a subject that was charged lately; all others have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectTier {
    pub tier: Tier,
    /// Outcomes since the first charge.
    pub beats: u64,
    /// Beats at which it was charged, oldest first.
    pub charges: Vec<u64>,
    /// Beats at which its share was reduced.
    pub softs: Vec<u64>,
    /// How often the quarantine was doubled.
    pub level: u32,
    /// Beat of the last step up or down.
    pub stepped: u64,
    /// When it was last released from quarantine.
    pub let_back: Option<Time>,
    /// Why it has this tier.
    pub reason: Reason,
}

/// Treatment of a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Tier {
    Watched,
    /// Half of the work.
    Soft {
        until: Time,
    },
    /// Quarantined: no work.
    Out {
        /// Time of the next trial.
        until: Time,
        trial: Option<TurnId>,
    },
}

impl Tier {
    /// When the tier changes by itself or by a trial.
    pub fn until(&self) -> Option<Time> {
        match self {
            Tier::Watched => None,
            Tier::Soft { until } | Tier::Out { until, .. } => Some(*until),
        }
    }
}

/// Thresholds that may be tuned, within half and double. The guard's limits are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// Excess over the other subjects' failure rate that a charge needs.
    Margin,
    /// Length of a quarantine.
    Out,
}

/// Thousandths of the built-in values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    pub margin_permille: u32,
    pub out_permille: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { margin_permille: 1000, out_permille: 1000 }
    }
}

impl Thresholds {
    /// Present value of one threshold.
    pub fn get(self, which: Threshold) -> u32 {
        match which {
            Threshold::Margin => self.margin_permille,
            Threshold::Out => self.out_permille,
        }
    }

    fn set(&mut self, which: Threshold, permille: u32) {
        match which {
            Threshold::Margin => self.margin_permille = permille,
            Threshold::Out => self.out_permille = permille,
        }
    }
}

/// A threshold that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub threshold: Threshold,
    pub from: u32,
    pub at: Time,
    /// Number of quarantined subjects at that time.
    pub out: u32,
}

/// A journaled step, the only thing that changes an [`Immune`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum ImmuneStep {
    /// A turn ended.
    Seen {
        turn: TurnId,
        seen: ObservedOutcome,
    },
    /// A failure was charged to a subject.
    Charged {
        subject: Subject,
        reason: Reason,
    },
    /// The subject gets half of its work.
    Soft {
        subject: Subject,
        until: Time,
        reason: Reason,
    },
    /// The subject is quarantined.
    Out {
        subject: Subject,
        /// Time of the next trial.
        until: Time,
        /// How often the quarantine was doubled.
        level: u32,
        reason: Reason,
    },
    /// One turn tests whether the subject works again.
    Trial {
        subject: Subject,
        turn: TurnId,
    },
    /// The trial proved nothing; another one may start.
    Untried {
        subject: Subject,
    },
    /// The subject's tier goes down by one step.
    Eased {
        subject: Subject,
        reason: Reason,
    },
    /// Everything fails at once: no subject is held, the observer is suspected.
    Suspected {
        reason: Reason,
    },
    /// The suspicion against the observer is over.
    Trusted,
    /// One threshold was moved, for a time.
    Moved {
        threshold: Threshold,
        /// Thousandths of the built-in value.
        permille: u32,
        reason: Reason,
    },
    /// The move was reviewed: it helped and stays, or it did not and is undone.
    Settled {
        threshold: Threshold,
        /// Thousandths of the built-in value.
        permille: u32,
        reason: Reason,
    },
    /// A person or a step corrected something.
    Corrected {
        what: RuleEffect,
    },
    Ruled {
        rule: ImmuneRule,
    },
    /// A person lifted a rule or a quarantine.
    Lifted {
        what: RuleEffect,
        by: String,
        why: String,
    },
}
