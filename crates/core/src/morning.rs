//! The morning report: what loops did in a period, what is proved, kept and refused, what waits for
//! a person, and what it cost. A fold over journal records; [`document`] writes it for people.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event::{Event, Outcome, Settled};
use crate::guard::Spend;
use crate::ids::{LoopId, TurnId};
use crate::journal::JournalRecord;
use crate::picture::timeline::{Bar, BarKind, total};
use crate::state::{LoopState, Phase};
use crate::time::Time;

pub mod document;

/// Kept changes and reasons of a loop that a report lists; its journal has all of them.
const MAX_LISTED: usize = 12;
/// Turns that a reason names.
const MAX_NUMBERS: usize = 12;
/// Files that a reason names.
const MAX_PATHS: usize = 4;

/// What happened in a period.
#[derive(Clone, Debug, Serialize)]
pub struct MorningReport {
    pub from: Time,
    pub to: Time,
    pub loops: Vec<LoopReport>,
    /// Open tickets, the oldest first.
    pub tickets: Vec<WaitingTicket>,
    pub spent: Spent,
}

/// A ticket that waits for a person.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingTicket {
    pub ticket: u64,
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub owner: Option<LoopId>,
    pub text: String,
    pub opened_at: Time,
}

/// What turns used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Turns that ended.
    pub turns: u32,
    pub tokens: u64,
    pub microusd: u64,
    /// Whether a figure is an estimate.
    pub estimated: bool,
}

impl Spent {
    fn add(&mut self, settled: &Settled) {
        let Spend { tokens, microusd, .. } = settled.spend;
        self.turns += 1;
        self.tokens = self.tokens.saturating_add(tokens);
        self.microusd = self.microusd.saturating_add(microusd);
        self.estimated |= settled.estimated;
    }

    fn join(&mut self, other: Spent) {
        self.turns += other.turns;
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.microusd = self.microusd.saturating_add(other.microusd);
        self.estimated |= other.estimated;
    }
}

/// A loop in the period.
#[derive(Clone, Debug, Serialize)]
pub struct LoopReport {
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub name: String,
    pub goal: String,
    pub phase: String,
    /// Why it is in its phase, in a paragraph.
    pub why: String,
    pub checks: Vec<CheckStand>,
    /// The latest kept changes, oldest first.
    pub kept: Vec<KeptTurn>,
    /// All of the period, including those that are not listed.
    pub kept_count: u32,
    /// What all kept work of the loop changes; `None` where that is not known.
    pub changes: Option<Changes>,
    /// Work that was not used, by reason, the most frequent first.
    pub refused: Vec<RefusedTurns>,
    pub spent: Spent,
    /// Milliseconds in which nothing was allowed to start.
    pub asleep: u64,
    /// Milliseconds in turns.
    pub in_turns: u64,
    pub bars: Vec<Bar>,
    /// The result of a research run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub research: Option<String>,
}

/// A check as it stands.
#[derive(Clone, Debug, Serialize)]
pub struct CheckStand {
    pub name: String,
    pub verdict: String,
    pub passes: bool,
    /// Whether it passed before the first turn.
    pub passed_before: bool,
}

/// A turn whose work was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptTurn {
    pub number: u32,
    pub at: Time,
    pub outcome: &'static str,
    pub commit: Option<String>,
    pub diffstat: String,
}

/// Files and lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Changes {
    pub files: usize,
    pub added: u64,
    pub removed: u64,
}

/// Turns whose work was not used for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedTurns {
    pub outcome: &'static str,
    pub why: String,
    /// The first of them.
    pub turns: Vec<u32>,
    pub count: u32,
}

/// A turn that has begun.
#[derive(Clone, Debug)]
struct OpenTurn {
    number: u32,
    from: Time,
    commit: Option<String>,
    diffstat: String,
}

/// A loop while its records are read.
#[derive(Clone, Debug, Default)]
struct LoopFold {
    open: BTreeMap<TurnId, OpenTurn>,
    asleep_from: Option<Time>,
    bars: Vec<Bar>,
    kept: Vec<KeptTurn>,
    kept_count: u32,
    refused: BTreeMap<(&'static str, String), Vec<u32>>,
    spent: Spent,
    is_active: bool,
}

/// Records of a period, summed up by loop.
#[derive(Clone, Debug)]
pub struct MorningFold {
    from: Time,
    to: Time,
    loops: BTreeMap<LoopId, LoopFold>,
}

impl MorningFold {
    /// Counts what happened from one time to another. Records from before are needed, too, for
    /// turns and sleeps that were under way.
    pub fn new(from: Time, to: Time) -> Self {
        Self { from, to, loops: BTreeMap::new() }
    }

    /// Adds a record of a loop; other records change nothing.
    pub fn take(&mut self, record: &JournalRecord) {
        let Some(owner) = &record.owner else { return };
        let (from, to) = (self.from, self.to);
        let fold = self.loops.entry(owner.clone()).or_default();
        fold.is_active |= record.at >= from;
        fold.take(record, from, to);
    }

    /// Whether something happened to the loop in the period.
    pub fn is_active(&self, id: &LoopId) -> bool {
        self.loops.get(id).is_some_and(|fold| fold.is_active)
    }

    /// The report of a loop; `why` explains its phase.
    pub fn finish(&mut self, state: &LoopState, why: String) -> LoopReport {
        let mut fold = self.loops.remove(&state.id).unwrap_or_default();
        fold.end(state, self.from, self.to);
        let checks = state.progress.board.0.iter().map(|check| CheckStand {
            name: check.name.clone(),
            verdict: check.verdict.to_string(),
            passes: check.verdict.passes(),
            passed_before: state.progress.baseline.as_ref().is_some_and(|b| b.passing().contains(check.name.as_str())),
        });
        let reasons = fold.refused.into_iter().map(|((outcome, why), turns)| RefusedTurns {
            outcome,
            why,
            count: turns.len() as u32,
            turns: turns.into_iter().take(MAX_NUMBERS).collect(),
        });
        let mut refused: Vec<RefusedTurns> = reasons.collect();
        refused.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        refused.truncate(MAX_LISTED);
        let in_turns = BarKind::ALL.into_iter().filter(|kind| *kind != BarKind::Asleep);
        let millis = |kind: BarKind| u64::try_from(total(&fold.bars, kind).as_millis()).unwrap_or(u64::MAX);
        LoopReport {
            id: state.id.clone(),
            name: state.name.clone(),
            goal: state.spec.goal.clone(),
            phase: state.phase.label().to_owned(),
            why,
            checks: checks.collect(),
            kept_count: fold.kept_count,
            kept: fold.kept,
            changes: None,
            refused,
            spent: fold.spent,
            asleep: millis(BarKind::Asleep),
            in_turns: in_turns.map(millis).sum(),
            bars: fold.bars,
            research: None,
        }
    }
}

impl LoopFold {
    fn take(&mut self, record: &JournalRecord, from: Time, to: Time) {
        let at = record.at;
        match &record.event {
            Event::TurnStarted { turn, number, .. } => {
                self.wake(at, from, to);
                let open = OpenTurn { number: *number, from: at, commit: None, diffstat: String::new() };
                self.open.insert(turn.clone(), open);
            }
            Event::TurnJudged { turn, judgement } => {
                if let Some(open) = self.open.get_mut(turn) {
                    open.commit.clone_from(&judgement.commit);
                    open.diffstat.clone_from(&judgement.diffstat);
                }
            }
            Event::TurnEnded { turn, outcome, settled, .. } => {
                if let Some(open) = self.open.remove(turn) {
                    self.turn(open, outcome, settled, (at, from, to));
                }
            }
            Event::Waiting { .. } => self.asleep_from = self.asleep_from.or(Some(at)),
            Event::Ended { .. } | Event::Resumed { .. } | Event::Woken { .. } => self.wake(at, from, to),
            _ => {}
        }
    }

    fn turn(&mut self, open: OpenTurn, outcome: &Outcome, settled: &Settled, (at, from, to): (Time, Time, Time)) {
        let label = format!("turn {}: {}", open.number, outcome.label());
        self.bar(kind_of(outcome), (open.from, at), (from, to), label);
        if at < from || at > to {
            return;
        }
        self.spent.add(settled);
        match why_unused(outcome) {
            Some(why) => self.refused.entry((outcome.label(), why)).or_default().push(open.number),
            None if kind_of(outcome) == BarKind::Kept => {
                self.kept_count += 1;
                let OpenTurn { number, commit, diffstat, .. } = open;
                self.kept.push(KeptTurn { number, at, outcome: outcome.label(), commit, diffstat });
                let surplus = self.kept.len().saturating_sub(MAX_LISTED);
                self.kept.drain(..surplus);
            }
            None => {}
        }
    }

    /// Ends a sleep.
    fn wake(&mut self, at: Time, from: Time, to: Time) {
        if let Some(slept_from) = self.asleep_from.take() {
            self.bar(BarKind::Asleep, (slept_from, at), (from, to), "asleep".to_owned());
        }
    }

    /// What is under way goes on until the end of the period.
    fn end(&mut self, state: &LoopState, from: Time, to: Time) {
        if let Phase::Waiting { since, .. } = &state.phase {
            // A sleep that is older than the records that were read.
            self.asleep_from = self.asleep_from.or(Some(*since));
        }
        if state.is_over() {
            self.asleep_from = None;
        }
        self.wake(to, from, to);
        if let Phase::Turn(turn) = &state.phase {
            let label = format!("turn {}: not over", turn.number);
            self.bar(BarKind::Working, (turn.started_at, to), (from, to), label);
        }
        self.bars.sort_by_key(|bar| (bar.from, bar.to));
    }

    /// Adds the part of a bar that is in the period.
    fn bar(&mut self, kind: BarKind, (begin, end): (Time, Time), (from, to): (Time, Time), label: String) {
        let (begin, end) = (begin.max(from), end.min(to));
        if begin < end || begin == end && kind != BarKind::Asleep && begin > from {
            self.bars.push(Bar { kind, from: begin, to: end, label });
        }
    }
}

impl MorningReport {
    /// The report of these loops.
    pub fn new(from: Time, to: Time, loops: Vec<LoopReport>, tickets: Vec<WaitingTicket>) -> Self {
        let mut spent = Spent::default();
        for part in &loops {
            spent.join(part.spent);
        }
        Self { from, to, loops, tickets, spent }
    }
}

/// The bar of a turn with this outcome.
fn kind_of(outcome: &Outcome) -> BarKind {
    match outcome {
        Outcome::Reached | Outcome::Progress => BarKind::Kept,
        Outcome::NotYet | Outcome::NoOp => BarKind::Tried,
        Outcome::Refused { .. } | Outcome::Regressed { .. } | Outcome::Discarded { .. } => BarKind::Refused,
        Outcome::AgentFailed { .. }
        | Outcome::TaskFailed { .. }
        | Outcome::Limited { .. }
        | Outcome::Interrupted
        | Outcome::Lost => BarKind::Failed,
    }
}

/// Why the work of a turn was not used; `None` when it was.
fn why_unused(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Reached | Outcome::Progress | Outcome::NotYet => None,
        Outcome::NoOp => Some("it changed nothing".to_owned()),
        Outcome::Refused { paths } => Some(format!("it changed what decides the checks: {}", listed(paths))),
        Outcome::Regressed { lost } => Some(format!("checks no longer passed: {}", listed(lost))),
        Outcome::Discarded { why } | Outcome::AgentFailed { why, .. } | Outcome::TaskFailed { why } => {
            Some(why.clone())
        }
        Outcome::Limited { class, .. } => Some(format!("the vendor did not serve the account: {class}")),
        Outcome::Interrupted => Some("it was interrupted and does not count".to_owned()),
        Outcome::Lost => Some("its process vanished and it does not count".to_owned()),
    }
}

fn listed(names: &[String]) -> String {
    let rest = names.len().saturating_sub(MAX_PATHS);
    let first = names.iter().take(MAX_PATHS).map(String::as_str).collect::<Vec<_>>().join(", ");
    if rest == 0 { first } else { format!("{first} and {rest} more") }
}
