//! A fleet in memory around `core::immune`: nodes with panes, accounts, agents and kinds of tasks,
//! of which one is bad, or none, or all. The same seed gives the same run.
//!
//! It keeps its own score: the subjects that the core quarantines are compared with the bad ones,
//! and the caps are counted here, not read from the core.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use everloop_core::ids::{Fence, TaskId, TurnId};
use everloop_core::immune::choice::Admission;
use everloop_core::immune::{BEAT, Class, Dimension, Immune, ImmuneStep, ObservedOutcome, Subject, Tier, observe};
use everloop_core::time::Time;

use crate::random::Random;

/// The longest quarantine, in beats.
const OUT_MOST: u32 = 160;
/// The duration of a node's turn, roughly.
const TURN: Duration = Duration::from_secs(180);
/// An available subject is found within this many draws, or there is none.
const DRAWS: u32 = 400;

/// The size of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: u64,
    /// Panes on each; 0 for none.
    pub panes: u64,
    pub accounts: u64,
    pub agents: u64,
    pub kinds: u64,
}

/// The bad subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    Nobody,
    These(Vec<Subject>),
    /// All of them: the network is gone.
    All,
}

/// A fleet and its faults.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub size: Size,
    pub bad: Bad,
    /// How often turns fail for no reason, in thousandths.
    pub base: u64,
    /// How often they fail with a bad subject, in thousandths.
    pub failing: u64,
    pub outcomes: u64,
    /// The outcomes during which the bad subjects are bad.
    pub ill: Range<u64>,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    pub charged: BTreeMap<Subject, u32>,
    /// The first subject that got less work or none.
    pub first: Option<Subject>,
    /// The quarantined subjects, and the outcome at which each was first.
    pub out: BTreeMap<Subject, u64>,
    /// The subjects that got less work.
    pub soft: BTreeSet<Subject>,
    /// How often thresholds were moved.
    pub moved: u32,
    /// The observer was suspected.
    pub suspected: bool,
    /// The first violated invariant.
    pub broken: Option<String>,
    /// The subjects in quarantine at the end.
    pub still_out: BTreeSet<Subject>,
    /// A hash of all steps.
    pub trace: u64,
}

/// A subject of the fleet.
pub fn subject(dimension: Dimension, n: u64) -> Subject {
    Subject::new(dimension, &format!("{}{n}", dimension.label()))
}

impl Fleet {
    /// Whether this one is bad.
    pub fn is_bad(&self, subject: &Subject) -> bool {
        matches!(&self.bad, Bad::These(bad) if bad.contains(subject))
    }

    /// Runs the fleet with a seed.
    pub fn run(&self, seed: u64) -> Story {
        let mut random = Random::new(seed);
        let (mut immune, mut story) = (Immune::default(), Story::default());
        let mut now = Time(1_700_000_000_000);
        for n in 0..self.outcomes {
            now = now + TURN / u32::try_from(self.size.nodes).unwrap_or(1);
            let turn = TurnId::of(&TaskId::new(format!("t{n}")), Fence(1));
            let Some(subjects) = self.choose(&immune, &mut random, now) else {
                story.broken.get_or_insert("no subject can be used".to_owned());
                return story;
            };
            for did in immune.trials(&subjects, &turn, now) {
                immune.apply(&did, now);
            }
            let seen = self.outcome(n, subjects, &mut random);
            for did in observe(&immune, &turn, &seen, &[], now) {
                immune.apply(&did, now);
                story.follow(&did, n);
            }
            let promise = self.check(&immune, now);
            story.broken = story.broken.take().or(promise);
        }
        let out = immune.standings.iter().filter(|(_, s)| matches!(s.tier, Tier::Out { .. }));
        story.still_out = out.map(|(s, _)| s.clone()).collect();
        story
    }

    /// Subjects for the next turn; one with less work is skipped every other time.
    fn choose(&self, immune: &Immune, random: &mut Random, now: Time) -> Option<Vec<Subject>> {
        for _ in 0..DRAWS {
            let Size { nodes, panes, accounts, agents, kinds } = self.size;
            let node = random.below(nodes);
            let mut subjects = vec![subject(Dimension::Node, node)];
            if panes > 0 {
                subjects.push(subject(Dimension::Pane, node * panes + random.below(panes)));
            }
            subjects.push(subject(Dimension::Account, random.below(accounts)));
            subjects.push(subject(Dimension::Agent, random.below(agents)));
            subjects.push(subject(Dimension::Kind, random.below(kinds)));
            match immune.may(&subjects, now) {
                Admission::Free | Admission::Trial(_) => return Some(subjects),
                Admission::Less(_) if random.one_in(2) => return Some(subjects),
                Admission::Less(_) | Admission::Out(_) | Admission::Barred(_) => {}
            }
        }
        None
    }

    fn outcome(&self, n: u64, subjects: Vec<Subject>, random: &mut Random) -> ObservedOutcome {
        let culprit = match &self.bad {
            Bad::These(bad) => bad.iter().find(|b| subjects.contains(b)),
            Bad::All => subjects.first(),
            Bad::Nobody => None,
        };
        let culprit = culprit.filter(|_| self.ill.contains(&n));
        let failed = random.below(1000) < if culprit.is_some() { self.failing } else { self.base };
        let of_task = match culprit {
            Some(bad) if self.bad != Bad::All => bad.dimension == Dimension::Kind,
            _ => random.one_in(4),
        };
        let class = match (failed, of_task) {
            (false, _) if random.one_in(2) => Class::Good,
            (false, _) => Class::NotYet,
            (true, true) => Class::TaskFailed,
            (true, false) => Class::AgentFailed,
        };
        ObservedOutcome { subjects, class, reset_at: None }
    }

    /// I8, counted from the document's entries.
    fn check(&self, immune: &Immune, now: Time) -> Option<String> {
        let Size { nodes, panes, accounts, agents, kinds } = self.size;
        let out = |s: Subject| matches!(immune.standings.get(&s).map(|s| &s.tier), Some(Tier::Out { .. }));
        let left = |dimension, all: u64| (0..all).filter(|n| !out(subject(dimension, *n))).count() as u64;
        let working = left(Dimension::Node, nodes);
        if (nodes - working) * 3 > nodes {
            return Some(format!("{} of {nodes} nodes are quarantined", nodes - working));
        }
        let on = |node: &u64| !out(subject(Dimension::Node, *node));
        let pane = |node: u64| (0..panes).filter(|n| !out(subject(Dimension::Pane, node * panes + n))).count() as u64;
        let places: u64 = (0..nodes).filter(on).map(|node| if panes == 0 { 1 } else { pane(node) }).sum();
        let others = [(Dimension::Account, accounts), (Dimension::Agent, agents), (Dimension::Kind, kinds)];
        let ways = others.into_iter().fold(places, |ways, (dimension, all)| ways * left(dimension, all));
        if ways < 2 {
            return Some(format!("{ways} ways to go on are left"));
        }
        for (subject, standing) in &immune.standings {
            if standing.tier.until().is_some_and(|until| until > now + BEAT * OUT_MOST) {
                return Some(format!("{subject} is held for longer than {OUT_MOST} beats"));
            }
        }
        None
    }
}

impl Story {
    fn follow(&mut self, did: &ImmuneStep, n: u64) {
        let text = serde_json::to_string(did).expect("a step is plain data");
        self.trace = crate::random::of_text(self.trace, &text);
        match did {
            ImmuneStep::Charged { subject, .. } => *self.charged.entry(subject.clone()).or_default() += 1,
            ImmuneStep::Soft { subject, .. } => {
                self.first.get_or_insert_with(|| subject.clone());
                self.soft.insert(subject.clone());
            }
            ImmuneStep::Out { subject, .. } => {
                self.first.get_or_insert_with(|| subject.clone());
                self.out.entry(subject.clone()).or_insert(n);
            }
            ImmuneStep::Suspected { .. } => self.suspected = true,
            ImmuneStep::Moved { .. } => self.moved += 1,
            ImmuneStep::Seen { .. }
            | ImmuneStep::Trial { .. }
            | ImmuneStep::Untried { .. }
            | ImmuneStep::Eased { .. }
            | ImmuneStep::Trusted
            | ImmuneStep::Settled { .. }
            | ImmuneStep::Corrected { .. }
            | ImmuneStep::Ruled { .. }
            | ImmuneStep::Lifted { .. } => {}
        }
    }
}
