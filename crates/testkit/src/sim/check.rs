//! The invariants of FAULTS.md, asserted after everything that happens.
//!
//! They are derived from the journal and from the facts of the simulated world (processes, commits,
//! clocks), never from what the core reports about itself: `journal` follows the events of each
//! loop, `streak` those without progress, `starts` compares every start with the guarantees of the
//! guard, `facts` looks at processes, timers, tasks and repositories.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::decide::scopes_of;
use everloop_core::event::{Event, Exit, LoopEnd};
use everloop_core::guard::{Freeze, GuardState, Guards, Scope};
use everloop_core::ids::{Fence, LoopId, TaskId, TurnId};
use everloop_core::immune::Immune;
use everloop_core::journal::JournalRecord;
use everloop_core::state::LoopState;
use everloop_core::stream::Quota;
use everloop_core::time::Time;
use everloop_store::{Ledger as _, Recipients};

use super::world::{Plans, Violation, World};

mod facts;
mod immune;
mod journal;
mod marks;
mod starts;
mod streak;
mod watch;

pub use immune::OUT_MOST;
pub use marks::MARKS;

/// The whole state is compared with its journal once in so many occurrences.
const DEEP_ONE_IN: u64 = 50;
/// Nothing may be left to do when a run ends; it is given this long.
const FINISH_MS: u64 = 60_000;

/// What is known about a loop from its journal.
#[derive(Clone, Debug)]
pub struct Invariants {
    /// The fold of its events.
    pub fold: LoopState,
    /// When turns started, by the clock of the journal.
    pub starts: Vec<Time>,
    paused: bool,
    stop: bool,
    /// How it ended, if it did.
    pub ended: Option<LoopEnd>,
    current: Option<Current>,
    counted: u32,
    tickets: BTreeSet<String>,
    fences: BTreeMap<TaskId, Fence>,
    done: BTreeSet<TaskId>,
    over: BTreeMap<TurnId, u64>,
    pins: Vec<(String, String)>,
    notes: Vec<String>,
    reflexes: starts::Reflexes,
    moved_ms: u64,
    /// How much of the input of its monitor it has received.
    heard: Option<u64>,
    streak: streak::Streak,
}

/// A turn under way.
#[derive(Clone, Debug)]
struct Current {
    turn: TurnId,
    task: TaskId,
    fence: Fence,
    exit: Option<Exit>,
}

/// What is watched over a whole run.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    pub loops: BTreeMap<LoopId, Invariants>,
    /// Supervisors that died.
    pub crashes: u32,
    pub(super) healed: bool,
    pub(super) amended: BTreeSet<TaskId>,
    pub(super) board_used: bool,
    seen: u64,
    /// The journal's end when the keepalives were last counted.
    kept: Option<u64>,
    guards: Guards,
    /// The fold of the immune system's steps.
    immune: Immune,
    frozen: BTreeMap<Scope, Freeze>,
    cooling: BTreeMap<Scope, Time>,
    /// Accounts that their vendor does not serve before.
    unserved: BTreeMap<Scope, Time>,
    /// The use of the accounts' windows, as their turns reported it.
    windows: BTreeMap<String, Quota>,
    /// The messages in the prompts of turns, and those that an agent has read.
    pub(super) prompts: BTreeMap<TurnId, Vec<String>>,
    read: BTreeMap<TurnId, Vec<String>>,
    told: BTreeMap<String, u32>,
    opened: BTreeMap<String, u32>,
    /// How often each of [`MARKS`] was met.
    pub marks: BTreeMap<&'static str, u64>,
    /// The longest time in which a loop that was free to go on wrote nothing.
    pub longest_stall_ms: u64,
}

impl Watch {
    /// Something worth counting happened.
    pub(super) fn mark(&mut self, what: &'static str) {
        *self.marks.entry(what).or_default() += 1;
    }

    /// The agent has its prompt.
    pub(super) fn read(&mut self, turn: &TurnId) {
        let notes = self.prompts.get(turn).cloned().unwrap_or_default();
        self.read.insert(turn.clone(), notes);
    }

    /// The machine did nothing for a while.
    pub(super) fn stood_still(&mut self, ms: u64) {
        for invariants in self.loops.values_mut() {
            invariants.moved_ms += ms;
            invariants.over.values_mut().for_each(|at_ms| *at_ms += ms);
        }
    }

    /// A person was notified of a ticket.
    pub(super) fn tell(&mut self, key: &str) {
        *self.told.entry(key.to_owned()).or_default() += 1;
    }
}

/// An invariant that does not hold.
fn broken<T>(invariant: &'static str, text: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { invariant, text: text.into() })
}

impl World {
    /// Everything that must hold now.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        if self.ledger.is_settled() {
            if self.ledger.last_seq() < self.ledger.promised {
                return broken("durability", "a promised journal record is gone");
            }
            self.follow_journal()?;
        }
        self.check_keepalive_again()?;
        self.check_processes()?;
        self.check_timers()?;
        let deep = self.occurrences.is_multiple_of(DEEP_ONE_IN);
        if deep && self.ledger.is_settled() {
            self.check_fold()?;
            self.check_tasks()?;
        }
        if !self.finishing && self.is_over() {
            self.finishing = true;
            self.plan(FINISH_MS, Plans::World, |w| {
                w.finished = true;
                Ok(())
            });
        }
        Ok(())
    }

    fn follow_journal(&mut self) -> Result<(), Violation> {
        while self.watch.seen < self.ledger.last_seq() {
            let records = self.ledger.model().journal(self.watch.seen, None, 100);
            let records = records.map_err(|e| Violation { invariant: "journal", text: e.to_string() })?;
            for record in records {
                self.watch.seen = record.seq;
                self.observe(&record)?;
            }
        }
        Ok(())
    }

    fn observe(&mut self, record: &JournalRecord) -> Result<(), Violation> {
        self.watch.mark(marks::of(&record.event));
        if let Some(id) = &record.owner {
            self.observe_loop(id, &record.event, record.at)?;
        }
        self.watch.observe_guard(&record.event, record.at);
        self.observe_step(&record.event, record.at)
    }

    fn is_over(&self) -> bool {
        let loops = &self.watch.loops;
        let ended = loops.len() == self.sites.len() && loops.values().all(|w| w.ended.is_some());
        let quiet = || self.ledger.model().messages(Recipients::All, 1).is_ok_and(|m| m.is_empty());
        ended && self.to_come == 0 && quiet()
    }

    pub(super) fn never_ended(&self) -> Violation {
        let open = self.watch.loops.iter().filter(|(_, w)| w.ended.is_none());
        let open: Vec<String> = open.map(|(id, w)| format!("{id} is {:?}", w.fold.phase)).collect();
        Violation { invariant: "I5", text: format!("not over in time: {}", open.join("; ")) }
    }

    /// The stored states are the folds of the journal.
    fn check_fold(&self) -> Result<(), Violation> {
        for (id, invariants) in &self.watch.loops {
            let stored = self.stored(id);
            if stored.as_ref() != Some(&invariants.fold) {
                return broken("replay", format!("loop {id}: stored {stored:?}, replayed {:?}", invariants.fold));
            }
            if stored.is_some_and(|s| s.task.turns != invariants.counted) {
                return broken(
                    "turns",
                    format!("loop {id}: {} turns count, it says {}", invariants.counted, invariants.fold.task.turns),
                );
            }
        }
        self.check_immune()?;
        let empty = GuardState::default();
        for (scope, stored) in self.ledger.guards() {
            let fold = self.watch.guards.get(&scope).map_or(&empty, |v| &v.state);
            let idle = self.watch.loops.values().all(|w| w.current.is_none());
            if idle && !stored.state.reserved.is_empty() {
                return broken("reservations", format!("{scope} has {:?} set aside", stored.state.reserved));
            }
            if stored.state != *fold {
                return broken("replay", format!("guard {scope}: stored {:?}, replayed {fold:?}", stored.state));
            }
        }
        Ok(())
    }
}

impl Watch {
    fn observe_guard(&mut self, event: &Event, at: Time) {
        for scope in scopes_of(event, &self.guards) {
            self.guards.entry(scope.clone()).or_default().state.apply(&scope, event, at);
        }
        match event {
            Event::Frozen { scope, freeze } => {
                self.frozen.insert(scope.clone(), freeze.clone());
            }
            Event::Released { scope, .. } => {
                self.frozen.remove(scope);
                self.cooling.remove(scope);
                self.unserved.remove(scope);
                if let Scope::Loop(id) = scope
                    && let Some(invariants) = self.loops.get_mut(id)
                {
                    invariants.reflexes = starts::Reflexes::default();
                }
            }
            Event::Cooldown { scope, until, .. } => {
                self.cooling.insert(scope.clone(), *until);
            }
            Event::TurnStarted { permit, .. } => {
                if let Some(freeze) = permit.canary.as_ref().and_then(|s| self.frozen.get_mut(s)) {
                    freeze.canary_at = Some(at + std::time::Duration::from_millis(freeze.canary_every_ms));
                }
            }
            _ => {}
        }
    }
}
