//! The line above every view, and all loops in four groups: what needs a person, what works, what
//! sleeps, what is over.

use everloop_agents::job::{self, Stream};
use everloop_core::event::LoopEnd;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_core::why::why;
use everloop_store::{Ledger, Sqlite, Tickets};
use serde::Serialize;

use super::inbox::{TicketCard, cards};
use super::{clock, ledger, line, states};
use crate::error::Failure;
use crate::outboxes;
use crate::quantities::{Accuracy, money};
use crate::services::ServiceContext;
use crate::services::status::freeze_of;
use crate::state_folder::StateFolder;
use crate::trust::{FileHashes, TrustStore};

/// The end of a running agent's output that is looked at for its last line.
const TAIL_BYTES: u64 = 4096;
/// Tickets that are shown in full; the inbox has all.
const TICKETS_SHOWN: usize = 10;

/// The line above every view.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GlobalBar {
    /// What this machine does, in a word.
    pub word: &'static str,
    /// Since when, where that is known.
    pub since: Option<Time>,
    pub next_wake: Option<PlannedWake>,
    /// The number of open tickets.
    pub needs_you: usize,
    /// Whether a supervisor runs.
    pub supervised: bool,
    /// What does not work: notifiers, a file that is not in force.
    pub troubles: Vec<String>,
    /// The journal's last record when this was read.
    pub seq: u64,
}

/// The next timer of a loop.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedWake {
    pub at: Time,
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub name: String,
    /// The rule that it waits by.
    pub rule: String,
}

/// All loops in their groups.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NowView {
    pub bar: GlobalBar,
    pub tickets: Vec<TicketCard>,
    pub needs_you: Vec<LoopCard>,
    pub working: Vec<LoopCard>,
    pub asleep: Vec<LoopCard>,
    pub done: Vec<LoopCard>,
    /// Loops that are over and not listed.
    pub hidden: usize,
}

/// A loop in a few lines.
#[derive(Clone, Debug, Serialize)]
pub struct LoopCard {
    pub id: LoopId,
    pub name: String,
    pub goal: String,
    /// The phase in a word.
    pub word: &'static str,
    pub passing: usize,
    pub checks: usize,
    pub turns: u32,
    pub max_turns: Option<u32>,
    /// Turns since something more passed.
    pub since_progress: u32,
    /// The last line of its agent.
    pub said: String,
    /// Why it is where it is.
    pub why: String,
    /// When it looks again by itself.
    pub next: Option<Time>,
    /// Since when it is in its phase.
    pub since: Time,
    /// The running turn.
    pub turn: Option<TurnId>,
    pub spent: String,
    pub over: bool,
    pub paused: bool,
}

/// Reads the line above every view.
pub fn bar(context: &ServiceContext) -> Result<GlobalBar, Failure> {
    Ok(now(context)?.bar)
}

/// Reads all loops.
pub fn now(context: &ServiceContext) -> Result<NowView, Failure> {
    let home = context.home()?;
    let supervised = home.is_owned();
    let Some(ledger) = ledger(context)? else {
        return Ok(NowView {
            bar: GlobalBar { word: "idle", supervised, ..GlobalBar::default() },
            ..NowView::default()
        });
    };
    let (states, hidden) = states(&ledger)?;
    let open = ledger.tickets(Tickets::Open)?;
    let guards = ledger.guards()?;
    let now = context.now();
    let mut view = NowView { hidden, ..NowView::default() };
    for state in &states {
        let card = card(state, &home, now);
        let is_asked = open.iter().any(|ticket| ticket.owner.as_ref() == Some(&state.id));
        let held = !state.is_over() && freeze_of(state, &guards).is_some_and(|(_, freeze)| freeze.until.is_none());
        let group = match &state.phase {
            Phase::Ended { ending: LoopEnd::Failed { .. }, .. } if is_asked => &mut view.needs_you,
            Phase::Ended { .. } => &mut view.done,
            _ if is_asked || held || state.people.paused.as_ref().is_some_and(|pause| pause.until.is_none()) => {
                &mut view.needs_you
            }
            Phase::Turn(_) | Phase::New | Phase::Ready => &mut view.working,
            Phase::Waiting { .. } => &mut view.asleep,
        };
        group.push(card);
    }
    view.bar = GlobalBar {
        needs_you: open.len(),
        supervised,
        troubles: troubles(context, &home, &ledger, &states)?,
        seq: ledger.last_seq()?,
        next_wake: next_wake(&states, now),
        ..word(&view, open.iter().map(|ticket| ticket.opened_at).min())
    };
    view.tickets = cards(&ledger, open.into_iter().take(TICKETS_SHOWN).collect(), now)?;
    Ok(view)
}

/// The state of the machine in a word, and since when.
fn word(view: &NowView, asked: Option<Time>) -> GlobalBar {
    let first = |cards: &[LoopCard]| cards.iter().map(|card| card.since).min();
    let last = |cards: &[LoopCard]| cards.iter().map(|card| card.since).max();
    let (word, since) = if !view.working.is_empty() {
        ("working", first(&view.working))
    } else if asked.is_some() || !view.needs_you.is_empty() {
        ("waiting for you", asked.or_else(|| first(&view.needs_you)))
    } else if view.asleep.is_empty() {
        ("idle", last(&view.done))
    } else {
        ("asleep", last(&view.asleep))
    };
    GlobalBar { word, since, ..GlobalBar::default() }
}

fn next_wake(states: &[LoopState], now: Time) -> Option<PlannedWake> {
    let timers = states.iter().filter(|state| state.people.paused.is_none()).filter_map(|state| match &state.phase {
        Phase::Waiting { reason, .. } => reason.until.map(|at| (at.max(now), state, reason.rule.to_string())),
        Phase::New | Phase::Ready | Phase::Turn(_) | Phase::Ended { .. } => None,
    });
    let (at, state, rule) = timers.min_by_key(|(at, _, _)| *at)?;
    Some(PlannedWake { at, id: state.id.clone(), name: line(&state.name), rule })
}

/// What a person should know on every view.
fn troubles(
    context: &ServiceContext,
    home: &StateFolder,
    ledger: &Sqlite,
    states: &[LoopState],
) -> Result<Vec<String>, Failure> {
    let mut found: Vec<String> = outboxes::troubles(ledger, context.now())?
        .into_iter()
        .map(|(name, why)| line(&format!("notifier {name}: {why}")))
        .collect();
    let open: Vec<_> = states.iter().filter(|state| !state.is_over()).collect();
    let own = crate::trust::canonical(home.root());
    let dirs: std::collections::BTreeSet<_> =
        open.iter().map(|state| std::path::PathBuf::from(&state.spec.workspace.dir)).collect();
    let dirs = dirs.iter().filter(|dir| !crate::trust::canonical(dir).starts_with(&own));
    let store = TrustStore::read(ledger)?;
    let differences =
        store.differences(&*context.projects, dirs.map(std::path::PathBuf::as_path), &mut FileHashes::default());
    found.extend(differences.iter().map(|one| line(&one.describe())));
    if !home.is_owned() && !open.is_empty() {
        found.push("no supervisor is running; start one: everloop up".to_owned());
    }
    Ok(found)
}

/// A loop in a few lines.
pub(super) fn card(state: &LoopState, home: &StateFolder, now: Time) -> LoopCard {
    let board = &state.progress.board;
    let (next, since, turn) = match &state.phase {
        Phase::Waiting { reason, since } => (reason.until, *since, None),
        Phase::Turn(turn) => (None, turn.started_at, Some(turn.id.clone())),
        Phase::Ended { at, .. } => (None, *at, None),
        Phase::New | Phase::Ready => (None, state.updated_at, None),
    };
    let paused = state.people.paused.is_some();
    let spent = match state.spend.spent.microusd {
        0 => String::new(),
        sum => format!("{}{}", Accuracy::from(&state.spend).of_dollars(), money(sum)),
    };
    LoopCard {
        id: state.id.clone(),
        name: line(&state.name),
        goal: line(state.spec.goal.lines().next().unwrap_or_default()),
        word: if paused && !state.is_over() { "paused" } else { state.phase.label() },
        passing: board.passing().len(),
        checks: board.0.len(),
        turns: state.task.turns,
        max_turns: state.spec.bounds.max_turns,
        since_progress: state.progress.since_progress,
        said: said(state, turn.as_ref(), home),
        why: line_of_why(state, now),
        next,
        since,
        turn,
        spent,
        over: state.is_over(),
        paused,
    }
}

/// The explanation of a loop, as a safe paragraph.
pub(super) fn line_of_why(state: &LoopState, now: Time) -> String {
    crate::text::clean(&why(state, now, &clock))
}

/// The last line of the running agent, else of the one before.
fn said(state: &LoopState, turn: Option<&TurnId>, home: &StateFolder) -> String {
    let running = turn.and_then(|turn| {
        let tail = job::output(&home.turn(turn), Stream::Out, TAIL_BYTES).ok()?;
        // Records of a CLI are read on the page of the turn.
        let words = tail.lines().rev().find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('{'));
        words.map(line)
    });
    running.unwrap_or_else(|| state.progress.tries.last().map(|last| line(&last.last_line)).unwrap_or_default())
}
