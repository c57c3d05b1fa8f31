//! Who is to blame when turns fail, and what is done about it. Pure: outcomes and the time in, steps with their reasons out.
//!
//! Every turn that ends is an outcome on several [`Subject`]s at once: machine, pane, account, agent, kind of task. A failure
//! is counted on all of them that it concerns and charged to the one that fails across different values of the others
//! ([`blame`]). Charges bring tiers ([`tier`]): first less work, then none but one trial after a while; then, if that does not
//! help, one threshold is moved for a time. [`caps`] keep all of that from doing harm: a fleet is never quarantined out of
//! existence, and when everybody looks bad it is the observer who is. [`rules`] are what people and experience say on top.
//!
//! What is remembered is [`Immune`], one document in the ledger, changed by [`ImmuneStep`] only ([`Immune::apply`]).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Outcome};
use crate::ids::{NodeId, TurnId};
use crate::op::Op;
use crate::reason::Reason;
use crate::spec::{AgentKind, AgentSpec};
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
/// The kind of the document in the ledger.
pub const DOC: &str = "immune";
/// Its key: there is one for all machines.
pub const FLEET: &str = "fleet";

/// A beat of a subject at work is one of its outcomes; of one that is held, this much time.
pub const BEAT: Duration = Duration::from_secs(60);

/// Names longer than this are cut: kinds of tasks are free text, also of agents.
const NAME_CHARS: usize = 64;

/// In which respect subjects differ. The order breaks ties: of two that were never seen apart the narrower one is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// An interactive agent in a terminal.
    Pane,
    /// A credential set.
    Account,
    /// Which agent, the strategy of a turn.
    Agent,
    /// The kind of the task.
    Kind,
    /// The machine.
    Node,
}

impl Dimension {
    /// All of them.
    pub const ALL: [Dimension; 5] =
        [Dimension::Pane, Dimension::Account, Dimension::Agent, Dimension::Kind, Dimension::Node];

    /// As it is written.
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

/// Somebody who can be to blame: `account:default`, `node:here`, `kind:docs`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Subject {
    /// In which respect.
    pub dimension: Dimension,
    /// Which one.
    pub name: String,
}

impl Subject {
    /// A subject; a long name is cut.
    pub fn new(dimension: Dimension, name: &str) -> Self {
        Self { dimension, name: name.chars().take(NAME_CHARS).collect() }
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
                "`{text}` is nobody who can be quarantined; write `node:NAME`, `pane:NAME`, `account:NAME`, \
                 `agent:NAME` or `kind:NAME`"
            )
        })
    }
}

/// What a turn's end says about its subjects. The first two are nobody's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It brought progress.
    Good,
    /// The turn ended well and the checks still fail.
    NotYet,
    /// The agent could not take or finish the turn: never the task's fault.
    AgentFailed,
    /// The vendor would not serve the account, and said so.
    Unserved,
    /// The turn broke its workspace or ran out its time.
    TaskFailed,
}

impl Class {
    /// What an outcome says; `None` when it says nothing (stopped by a person, vanished with its machine).
    pub fn of(outcome: &Outcome) -> Option<Class> {
        match outcome {
            Outcome::Reached | Outcome::Progress => Some(Class::Good),
            Outcome::NotYet | Outcome::NoOp | Outcome::Refused { .. } | Outcome::Regressed { .. } => {
                Some(Class::NotYet)
            }
            // No connection may as well be the machine's fault.
            Outcome::AgentFailed { .. } | Outcome::Limited { class: LimitClass::Network, .. } => {
                Some(Class::AgentFailed)
            }
            Outcome::Limited { .. } => Some(Class::Unserved),
            Outcome::TaskFailed { .. } => Some(Class::TaskFailed),
            Outcome::Interrupted | Outcome::Lost => None,
        }
    }

    /// Whether somebody failed.
    pub fn failed(self) -> bool {
        matches!(self, Class::AgentFailed | Class::Unserved | Class::TaskFailed)
    }

    /// Whether it is a failure of such a subject: `None` when the turn did not put it to the test.
    pub fn failed_for(self, dimension: Dimension) -> Option<bool> {
        match self {
            Class::Good | Class::NotYet => Some(false),
            // An agent that cannot start says nothing about the task: a vendor's outage ends no loop.
            Class::AgentFailed => (dimension != Dimension::Kind).then_some(true),
            // The vendor named the account; nobody else was put to the test.
            Class::Unserved => (dimension == Dimension::Account).then_some(true),
            // A broken workspace may be the machine's; the agent had its say.
            Class::TaskFailed => Some(matches!(dimension, Dimension::Kind | Dimension::Node)),
        }
    }
}

/// An outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedOutcome {
    /// Everybody who took part, at most one of each dimension.
    pub subjects: Vec<Subject>,
    /// What it says about them.
    pub class: Class,
    /// When the vendor serves the account again, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<Time>,
}

/// Everybody who takes part in a turn.
pub fn subjects(node: &NodeId, agent: &AgentSpec, kind: Option<&str>) -> Vec<Subject> {
    let mut all = vec![
        Subject::new(Dimension::Node, node.as_str()),
        Subject::new(Dimension::Account, &agent.account),
        Subject::new(Dimension::Agent, &agent.name),
    ];
    if let (AgentKind::Pane, Some(pane)) = (agent.kind, agent.argv.get(1).or(agent.argv.first())) {
        all.push(Subject::new(Dimension::Pane, pane));
    }
    all.extend(kind.map(|kind| Subject::new(Dimension::Kind, kind)));
    all
}

/// What is remembered about everybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Immune {
    /// Format of this document.
    pub immune_version: u32,
    /// The latest outcomes.
    pub record: OutcomeRecord,
    /// Everybody who was charged lately.
    pub standings: BTreeMap<Subject, SubjectTier>,
    /// What people and experience say.
    pub rules: Vec<ImmuneRule>,
    /// What was corrected lately; the same correction again and again becomes a rule.
    pub corrections: Vec<rules::Correction>,
    /// The number of the next rule.
    pub next_rule: u32,
    /// Everybody looks bad, so nobody is held.
    pub suspicion: Option<Reason>,
    /// What was moved by experience.
    pub thresholds: Thresholds,
    /// The latest move, while it is not known whether it helps.
    pub moved: Option<Moved>,
    /// When subjects that had been let back had to be taken out again.
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
    /// Reads the document, refusing what a newer everloop wrote.
    pub fn read(body: &str) -> Result<Self, String> {
        let immune: Self = serde_json::from_str(body).map_err(|e| e.to_string())?;
        if immune.immune_version > IMMUNE_VERSION {
            return Err("a newer everloop wrote it".to_owned());
        }
        Ok(immune)
    }

    /// Takes these steps; the operations that keep them, if nobody else wrote since `version`.
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

/// How a subject stands. There is none for whoever was not charged lately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectTier {
    /// What is done about it.
    pub tier: Tier,
    /// Its outcomes since it was first charged.
    pub beats: u64,
    /// The beats at which it was charged, oldest first.
    pub charges: Vec<u64>,
    /// The beats at which it was given less work.
    pub softs: Vec<u64>,
    /// How often the time without work was doubled.
    pub level: u32,
    /// The beat of its last step up or down.
    pub stepped: u64,
    /// When it was last let back after having been out.
    pub let_back: Option<Time>,
    /// Why it stands so.
    pub reason: Reason,
}

/// What is done about a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Tier {
    /// Nothing; it is watched.
    Watched,
    /// It gets half of its work.
    Soft {
        /// Until then.
        until: Time,
    },
    /// It gets none.
    Out {
        /// Then one trial.
        until: Time,
        /// The trial under way.
        trial: Option<TurnId>,
    },
}

impl Tier {
    /// When it changes by itself or by a trial.
    pub fn until(&self) -> Option<Time> {
        match self {
            Tier::Watched => None,
            Tier::Soft { until } | Tier::Out { until, .. } => Some(*until),
        }
    }
}

/// What experience may move, within half and double. The guard's limits are not among it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// By how much a subject must be worse than the others to be charged.
    Margin,
    /// For how long a subject is out.
    Out,
}

/// Thousandths of the built-in values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Of [`Threshold::Margin`].
    pub margin_permille: u32,
    /// Of [`Threshold::Out`].
    pub out_permille: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { margin_permille: 1000, out_permille: 1000 }
    }
}

impl Thresholds {
    /// Where one stands.
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
    /// Which.
    pub threshold: Threshold,
    /// Thousandths before.
    pub from: u32,
    /// When.
    pub at: Time,
    /// How many subjects were out then.
    pub out: u32,
}

/// A step, as it is journaled. The only thing that changes an [`Immune`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum ImmuneStep {
    /// A turn ended.
    Seen {
        /// Which.
        turn: TurnId,
        /// What it says about whom.
        seen: ObservedOutcome,
    },
    /// A failure was charged.
    Charged {
        /// To whom.
        subject: Subject,
        /// The comparison.
        reason: Reason,
    },
    /// It gets half of its work.
    Soft {
        /// Who.
        subject: Subject,
        /// Until then.
        until: Time,
        /// Why.
        reason: Reason,
    },
    /// It gets no work.
    Out {
        /// Who.
        subject: Subject,
        /// Then one trial.
        until: Time,
        /// How often that was doubled.
        level: u32,
        /// Why.
        reason: Reason,
    },
    /// One turn tries whether it works again.
    Trial {
        /// Who is tried.
        subject: Subject,
        /// In which turn.
        turn: TurnId,
    },
    /// The trial said nothing; another one may be made.
    Untried {
        /// Who.
        subject: Subject,
    },
    /// One step down.
    Eased {
        /// Who.
        subject: Subject,
        /// Why.
        reason: Reason,
    },
    /// Everybody looks bad: nobody is held, the observer is looked at.
    Suspected {
        /// What was seen.
        reason: Reason,
    },
    /// They do not any more.
    Trusted,
    /// One threshold was moved, for a time.
    Moved {
        /// Which.
        threshold: Threshold,
        /// Thousandths of the built-in value.
        permille: u32,
        /// Why.
        reason: Reason,
    },
    /// The move was looked at again: it helped and stays, or it did not and is taken back.
    Settled {
        /// Which.
        threshold: Threshold,
        /// Thousandths of the built-in value.
        permille: u32,
        /// What came of it.
        reason: Reason,
    },
    /// A person or a step corrected something.
    Corrected {
        /// What.
        what: RuleEffect,
    },
    /// A rule was made.
    Ruled {
        /// Which.
        rule: ImmuneRule,
    },
    /// A person ended it.
    Lifted {
        /// What.
        what: RuleEffect,
        /// Who.
        by: String,
        /// Why.
        why: String,
    },
}
