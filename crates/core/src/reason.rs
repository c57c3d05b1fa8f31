//! Reasons of decisions: the rule that decided and its inputs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::Time;

/// Declares the rules: each with its id, as it stands in journals, in `why` and in metrics. A
/// shipped id is never changed.
macro_rules! rules {
    ($($(#[$about:meta])* $name:ident = $id:literal,)+) => {
        /// The rule that decided. `why` knows a sentence for each.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RuleId {
            $($(#[$about])* $name,)+
            /// A rule of a newer version, by its id.
            Other(String),
        }

        impl RuleId {
            /// All rules of this version.
            pub const ALL: &'static [RuleId] = &[$(RuleId::$name),+];

            /// The id as a string.
            pub fn as_str(&self) -> &str {
                match self {
                    $(RuleId::$name => $id,)+
                    RuleId::Other(id) => id,
                }
            }
        }

        impl From<&str> for RuleId {
            fn from(id: &str) -> Self {
                match id {
                    $($id => RuleId::$name,)+
                    other => RuleId::Other(other.to_owned()),
                }
            }
        }
    };
}

rules! {
    /// A person wants the loop to wait until a point in time.
    Asleep = "asleep",
    /// A person paused the loop.
    Paused = "paused",
    /// The terminal that the loop belongs to is gone.
    Unattended = "unattended",
    /// Variables that the loop was started with are lost.
    Variables = "variables",
    /// Every check that does not pass is broken, so no turn could make it pass.
    ChecksBroken = "checks.broken",
    /// The loop has nothing to do and watches its monitors.
    Watching = "watch",
    /// The same for so long that it looks more rarely.
    Parked = "watch.parked",

    /// A persona has nothing to do and sleeps.
    Resting = "rhythm",

    /// A scope is frozen.
    GuardFreeze = "guard.freeze",
    /// The vendor limits the account.
    GuardLimit = "guard.limit",
    /// Loops that waited for one account start one after the other.
    GuardSpread = "guard.spread",
    /// The account's allowance is spread over its window.
    GuardPace = "guard.pace",
    /// A scope cools down.
    GuardCooldown = "guard.cooldown",
    /// The least time between two starts.
    GuardGap = "guard.gap",
    /// The wait after a failure, or one that the agent wants.
    GuardBackoff = "guard.backoff",
    /// The most starts per window.
    GuardCap = "guard.cap",
    /// What the loop may use in all.
    GuardBudget = "guard.budget",
    /// The steady rate of the account.
    GuardBucket = "guard.bucket",
    /// Turns that run at once on a machine.
    GuardSlots = "guard.slots",

    /// The experiments under way are the last ones of the run.
    ResearchOthers = "research.others",

    /// The first of the loop's agents.
    AgentPreferred = "agent.preferred",
    /// The first of the loop's agents that the task is for.
    AgentFits = "agent.fits",
    /// Another agent, because nothing got better.
    AgentChange = "agent.change",
    /// The task is for none of the loop's agents.
    AgentNone = "agent.none",
    /// The vendor refuses what the agent requests, so that repeating it is of no use.
    AgentRefused = "agent.refused",

    /// Turns without progress.
    StagnationTurns = "stagnation.turns",
    /// Time of work without progress.
    StagnationTime = "stagnation.time",
    /// Dollars without progress.
    StagnationSpend = "stagnation.spend",

    /// A subject does worse than others.
    ImmuneCharge = "immune.charge",
    /// A subject gets half of its work.
    ImmuneSoft = "immune.soft",
    /// A subject is quarantined.
    ImmuneOut = "immune.out",
    /// A trial of a quarantined subject went well.
    ImmunePassed = "immune.passed",
    /// A trial of a quarantined subject failed.
    ImmuneFailed = "immune.failed",
    /// A subject had no charge for a while.
    ImmuneClean = "immune.clean",
    /// The last turns of a subject failed.
    ImmuneDoubt = "immune.doubt",
    /// A person's rule, or one of experience.
    ImmuneRule = "immune.rule",
    /// Too many are quarantined for the fleet that is left.
    ImmuneCap = "immune.cap",
    /// At most a third of the machines may be quarantined.
    ImmuneThird = "immune.third",
    /// All look bad at once, so it is rather the observer.
    ImmuneObserver = "immune.observer",
    /// No worker would be left.
    ImmuneNobody = "immune.nobody",
    /// Fewer than two ways to go on would be left.
    ImmuneChoice = "immune.choice",
    /// Many are quarantined, so a threshold moves.
    ImmuneMany = "immune.many",
    /// Subjects were quarantined again, so a threshold moves.
    ImmuneRelapses = "immune.relapses",
    /// A moved threshold is looked at again.
    ImmuneSettled = "immune.settled",

    /// A loop of the mesh is over.
    MeshEnded = "mesh.ended",
    /// No node holds the leader lease.
    MeshNoLeader = "mesh.leaderless",
    /// A loop of the mesh is to stop.
    MeshStops = "mesh.stops",
    /// The leader runs the checks on the branch.
    MeshJudges = "mesh.judges",
    /// The leader merges work.
    MeshMerges = "mesh.merges",
    /// Nodes hold tasks.
    MeshWorks = "mesh.works",
    /// Tasks wait for a node.
    MeshQueued = "mesh.queued",
    /// The leader makes tasks.
    MeshPlans = "mesh.plans",

    /// A ticket is sent now.
    NotifyDue = "notify.due",
    /// A ticket is in the outbox.
    NotifyQueued = "notify.queued",
    /// A ticket is not for this notifier.
    NotifyRoute = "notify.route",
    /// A person has seen the ticket.
    NotifyAcked = "notify.acked",
    /// A ticket was sent often enough.
    NotifyTold = "notify.told",
    /// A ticket is sent again.
    NotifyRepeat = "notify.repeat",
    /// A ticket was sent lately for the same cause.
    NotifyFlapping = "notify.flapping",
    /// Quiet hours hold a ticket.
    NotifyQuiet = "notify.quiet",
    /// Many tickets are sent together.
    NotifyStorm = "notify.storm",
    /// The notifier cannot send.
    NotifyDown = "notify.down",
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for RuleId {
    fn eq(&self, id: &str) -> bool {
        self.as_str() == id
    }
}

impl PartialEq<&str> for RuleId {
    fn eq(&self, id: &&str) -> bool {
        self.as_str() == *id
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RuleId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Ok(RuleId::from(id.as_ref()))
    }
}

/// A decision's reason: which rule, on which inputs, until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The rule that was applied.
    pub rule: RuleId,
    /// What the rule looked at.
    pub inputs: BTreeMap<String, String>,
    /// When it will be looked at again by itself; `None` means only a signal or a person changes
    /// it.
    pub until: Option<Time>,
}

impl Reason {
    /// A reason without inputs.
    pub fn new(rule: RuleId) -> Self {
        Self { rule, inputs: BTreeMap::new(), until: None }
    }

    /// Adds an input value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.inputs.insert(name.to_owned(), format!("{value}"));
        self
    }

    /// Sets when it changes by itself.
    #[must_use]
    pub fn until(mut self, at: Time) -> Self {
        self.until = Some(at);
        self
    }

    /// An input, or an empty text.
    pub fn input(&self, name: &str) -> &str {
        self.inputs.get(name).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_stored_as_its_id_and_a_newer_one_is_kept() {
        let stored = |rule: &RuleId| serde_json::to_string(rule).expect("a text");
        for rule in RuleId::ALL {
            assert_eq!(stored(rule), format!("\"{rule}\""));
            assert_eq!(serde_json::from_str::<RuleId>(&stored(rule)).ok().as_ref(), Some(rule));
            assert!(!matches!(rule, RuleId::Other(_)), "{rule} is known");
        }
        let newer = RuleId::from("guard.of_tomorrow");
        assert_eq!(newer, RuleId::Other("guard.of_tomorrow".to_owned()));
        assert_eq!(serde_json::from_str::<RuleId>(&stored(&newer)).ok(), Some(newer));
    }
}
