//! One loop: its checks over time, its turns as rows, its kept work, its prompt and its tickets.

use std::collections::BTreeMap;

use everloop_core::event::{Event, Integrated, Outcome};
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::journal::JournalRecord;
use everloop_core::picture::matrix::{Cell, Matrix};
use everloop_core::scoreboard::{NOT_RUN, Scoreboard, Verdict};
use everloop_core::state::{LoopState, Note, Phase};
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};
use serde::Serialize;

use super::inbox::{TicketCard, of_loop};
use super::now::{LoopCard, card};
use super::{ledger, line, lines};
use crate::error::Failure;
use crate::quantities::{Accuracy, ceiling, money, spend, took};
use crate::services::{ServiceContext, no_loops};

/// Records of a loop that are read for its history: some hundred turns.
const RECORDS: usize = 1_200;
/// Turns that are listed and drawn.
const TURNS_SHOWN: usize = 60;
/// Lines of a check's output; the turn's page has more.
const OUTPUT_LINES: usize = 12;
/// Lines of a handoff and of messages.
const TEXT_LINES: usize = 60;

/// One loop in full.
#[derive(Clone, Debug, Serialize)]
pub struct LoopView {
    pub card: LoopCard,
    pub goal: Vec<String>,
    pub agents: Vec<String>,
    pub dir: String,
    pub created_at: Time,
    /// What it used, and the most that it may still use.
    pub spent: String,
    pub left: String,
    pub checks: Vec<CheckRow>,
    pub history: CheckHistory,
    /// The newest turn comes first.
    pub turns: Vec<TurnRow>,
    /// Turns before those that are listed.
    pub hidden: u32,
    pub kept: Vec<KeptRow>,
    pub kept_count: u32,
    /// The last words for a turn that begins a fresh session.
    pub handoff: Vec<String>,
    /// Messages for the next turn.
    pub notes: Vec<String>,
    pub tickets: Vec<TicketCard>,
    pub is_research: bool,
}

/// A check as it stands.
#[derive(Clone, Debug, Serialize)]
pub struct CheckRow {
    pub name: String,
    pub verdict: String,
    pub cell: Cell,
    pub took: String,
    pub output: Vec<String>,
}

/// The checks over the turns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckHistory {
    pub columns: Vec<String>,
    /// Each check with its cells.
    pub rows: Vec<(String, Vec<Cell>)>,
}

impl CheckHistory {
    /// The cells as a drawing.
    pub fn svg(&self) -> String {
        let rows = self.rows.iter().map(|(name, cells)| (name.as_str(), cells.as_slice())).collect();
        Matrix { title: "Checks over turns", columns: &self.columns, rows }.svg()
    }
}

/// A turn in a list.
#[derive(Clone, Debug, Serialize)]
pub struct TurnRow {
    pub turn: TurnId,
    pub number: u32,
    pub agent: String,
    pub started_at: Time,
    pub ended_at: Option<Time>,
    /// Empty while it runs.
    pub outcome: &'static str,
    /// Details of the outcome.
    pub detail: String,
    pub diffstat: String,
    pub cost: String,
    /// Checks that pass after it, and all; `None` before it was judged.
    pub passing: Option<(usize, usize)>,
    pub commit: Option<String>,
    #[serde(skip)]
    board: Option<Scoreboard>,
}

/// Work that was kept.
#[derive(Clone, Debug, Serialize)]
pub struct KeptRow {
    pub task: String,
    pub commit: String,
    pub diffstat: String,
    /// How it reached the branch.
    pub landed: String,
}

/// Reads the loop that a word means.
pub fn one(context: &ServiceContext, word: &str) -> Result<LoopView, Failure> {
    let Some(ledger) = ledger(context)? else { return Err(no_loops()) };
    let (_, state) = context.find_loop(&ledger, Some(word))?;
    let (home, now) = (context.home()?, context.now());
    let records = ledger.journal_tail(Some(&state.id), RECORDS)?;
    let (baseline, turns) = fold(&records);
    let history = history(baseline.as_ref().or(state.progress.baseline.as_ref()), &turns);
    let shown = turns.len().min(TURNS_SHOWN);
    let hidden = state.task.started.saturating_sub(shown as u32);
    let limits = everloop_core::raise::RunLimits::of(&state);
    let note = |note: &Note| match note {
        Note::Operator(text) => line(text),
        Note::Mail { by, text } => line(&format!("{by}: {text}")),
    };
    Ok(LoopView {
        card: card(&state, &home, now),
        goal: lines(&state.spec.goal, TEXT_LINES),
        agents: state.spec.agents().map(|agent| line(&format!("{} ({})", agent.name, agent.account))).collect(),
        dir: line(&state.spec.workspace.dir),
        created_at: state.created_at,
        spent: spend(state.spend.spent, Accuracy::from(&state.spend)),
        left: ceiling(&state, &limits, now),
        checks: checks(&state.progress.board, OUTPUT_LINES),
        history,
        turns: turns.into_iter().rev().take(TURNS_SHOWN).collect(),
        hidden,
        kept: kept(&state),
        kept_count: state.progress.kept_count,
        handoff: lines(&state.task.handoff, TEXT_LINES),
        notes: state.people.notes.iter().map(note).collect(),
        tickets: of_loop(&ledger, &state.id, now)?,
        is_research: state.spec.research.is_some(),
    })
}

/// A scoreboard as rows; passing checks without their output.
pub fn checks(board: &Scoreboard, max_lines: usize) -> Vec<CheckRow> {
    let row = |check: &everloop_core::scoreboard::CheckResult| CheckRow {
        name: line(&check.name),
        verdict: line(&check.verdict.to_string()),
        cell: cell(&check.verdict),
        took: took(check.millis),
        output: if check.verdict.passes() { Vec::new() } else { lines(&check.output, max_lines) },
    };
    board.0.iter().map(row).collect()
}

fn cell(verdict: &Verdict) -> Cell {
    match verdict {
        Verdict::Pass => Cell::Pass,
        Verdict::Fail => Cell::Fail,
        Verdict::Flaky { .. } => Cell::Flaky,
        Verdict::Broken { why } if why == NOT_RUN => Cell::Unknown,
        Verdict::Broken { .. } => Cell::Broken,
        Verdict::Suspicious { .. } => Cell::Suspicious,
    }
}

fn kept(state: &LoopState) -> Vec<KeptRow> {
    let row = |work: &everloop_core::state::KeptWork| KeptRow {
        task: work.task.to_string(),
        commit: line(work.commit.as_deref().unwrap_or_default()).chars().take(9).collect(),
        diffstat: line(&work.diffstat),
        landed: match &work.integrated {
            Some(Integrated::Landed { .. }) => "landed".to_owned(),
            Some(Integrated::Aside { why, .. }) => line(&format!("aside: {why}")),
            Some(Integrated::InPlace) => "in the folder".to_owned(),
            None => "kept".to_owned(),
        },
    };
    state.progress.kept.iter().rev().map(row).collect()
}

/// The turns of these records, oldest first, and the baseline among them.
fn fold(records: &[JournalRecord]) -> (Option<Scoreboard>, Vec<TurnRow>) {
    let (mut baseline, mut order, mut turns) = (None, Vec::new(), BTreeMap::<TurnId, TurnRow>::new());
    for record in records {
        match &record.event {
            Event::Baselined { board, .. } if order.is_empty() => baseline = Some(board.clone()),
            Event::TurnStarted { turn, number, agent, .. } => {
                order.push(turn.clone());
                turns.insert(turn.clone(), begun(turn, *number, agent, record.at));
            }
            Event::TurnJudged { turn, judgement } => {
                if let Some(row) = turns.get_mut(turn) {
                    row.diffstat = line(&judgement.diffstat);
                    let board = &judgement.board;
                    row.passing = (!board.0.is_empty()).then(|| (board.passing().len(), board.0.len()));
                    row.board = Some(board.clone()).filter(|board| !board.0.is_empty());
                }
            }
            Event::TurnEnded { turn, outcome, settled, integrated, .. } => {
                if let Some(row) = turns.get_mut(turn) {
                    row.ended_at = Some(record.at);
                    row.outcome = outcome.label();
                    row.detail = line(&detail(outcome));
                    row.cost = cost(settled);
                    row.commit = match integrated {
                        Some(Integrated::Landed { commit } | Integrated::Aside { commit, .. }) => {
                            Some(commit.chars().take(9).collect())
                        }
                        Some(Integrated::InPlace) | None => None,
                    };
                }
            }
            _ => {}
        }
    }
    (baseline, order.into_iter().filter_map(|turn| turns.remove(&turn)).collect())
}

fn begun(turn: &TurnId, number: u32, agent: &str, at: Time) -> TurnRow {
    TurnRow {
        turn: turn.clone(),
        number,
        agent: line(agent),
        started_at: at,
        ended_at: None,
        outcome: "",
        detail: String::new(),
        diffstat: String::new(),
        cost: String::new(),
        passing: None,
        commit: None,
        board: None,
    }
}

fn cost(settled: &everloop_core::event::Settled) -> String {
    match settled.spend.microusd {
        0 => String::new(),
        sum => format!("{}{}", Accuracy::from(settled).of_dollars(), money(sum)),
    }
}

/// What an outcome's word leaves out.
pub(super) fn detail(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused { paths } => format!("protected files: {}", paths.join(", ")),
        Outcome::Regressed { lost } => format!("no longer passing: {}", lost.join(", ")),
        Outcome::Discarded { why } | Outcome::AgentFailed { why, .. } | Outcome::TaskFailed { why } => why.clone(),
        Outcome::Limited { class, .. } => class.describe().to_owned(),
        Outcome::Reached
        | Outcome::Progress
        | Outcome::NotYet
        | Outcome::NoOp
        | Outcome::Interrupted
        | Outcome::Lost => String::new(),
    }
}

/// Cells of all checks that were ever seen, over the baseline and the latest judged turns.
fn history(baseline: Option<&Scoreboard>, turns: &[TurnRow]) -> CheckHistory {
    let judged: Vec<&TurnRow> = turns.iter().filter(|turn| turn.board.is_some()).collect();
    let judged = &judged[judged.len().saturating_sub(TURNS_SHOWN)..];
    let boards: Vec<(String, &Scoreboard)> = baseline
        .map(|board| ("start".to_owned(), board))
        .into_iter()
        .chain(judged.iter().filter_map(|turn| Some((turn.number.to_string(), turn.board.as_ref()?))))
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for check in boards.iter().flat_map(|(_, board)| &board.0) {
        if !names.contains(&check.name.as_str()) {
            names.push(&check.name);
        }
    }
    let cells = |name: &str| {
        let mut before = Cell::Unknown;
        let row = boards.iter().map(|(_, board)| {
            let found = board.0.iter().find(|check| check.name == name);
            let now = found.map_or(Cell::Unknown, |check| cell(&check.verdict));
            let regressed = before == Cell::Pass && now == Cell::Fail;
            before = if now == Cell::Unknown { before } else { now };
            if regressed { Cell::Lost } else { now }
        });
        row.collect()
    };
    CheckHistory {
        rows: names.iter().map(|name| (line(name), cells(name))).collect(),
        columns: boards.into_iter().map(|(column, _)| column).collect(),
    }
}

/// The loop of a turn, with its latest records.
pub(super) fn of_turn(ledger: &Sqlite, turn: &TurnId) -> Result<Option<(LoopId, Vec<JournalRecord>)>, Failure> {
    let Some(id) = ledger.task(turn.task())?.and_then(|row| row.task.owner) else { return Ok(None) };
    let records = ledger.journal_tail(Some(&id), RECORDS)?;
    Ok(Some((id, records)))
}

/// Whether a turn is the one that runs.
pub(super) fn is_running(state: &LoopState, turn: &TurnId) -> bool {
    matches!(&state.phase, Phase::Turn(now) if now.id == *turn)
}

/// The row of one turn.
pub(super) fn row_of(records: &[JournalRecord], turn: &TurnId) -> Option<TurnRow> {
    fold(records).1.into_iter().find(|row| row.turn == *turn)
}

#[cfg(test)]
mod tests {
    use everloop_testkit::sample::board;

    use super::*;

    #[test]
    fn a_check_that_passed_before_is_marked_when_it_fails() {
        let row = |number: u32, verdict: Verdict| {
            let turn =
                TurnId::of(&everloop_core::ids::TaskId::new(format!("k-{number}")), everloop_core::ids::Fence(1));
            TurnRow { board: Some(board(&[("a", verdict)])), ..begun(&turn, number, "x", Time(0)) }
        };
        let before = board(&[("a", Verdict::Fail), ("gone", Verdict::Pass)]);
        let turns = [row(1, Verdict::Pass), row(2, Verdict::Fail), row(3, Verdict::Fail)];
        let found = history(Some(&before), &turns);
        assert_eq!(found.columns, ["start", "1", "2", "3"]);
        assert_eq!(found.rows[0], ("a".to_owned(), vec![Cell::Fail, Cell::Pass, Cell::Lost, Cell::Fail]));
        assert_eq!(found.rows[1].1[1..], [Cell::Unknown; 3]);
    }
}
