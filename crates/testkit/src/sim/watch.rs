//! Beats: when the supervisor looks at a loop's monitor, and what it sees there.

use std::collections::BTreeMap;

use everloop_core::action::Input;
use everloop_core::decide::Ready;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::{Op, TaskState};
use everloop_core::planted::{self, Bug};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::watch::{self, Blind, KEEPALIVE, MonitorSpec, SIGNAL, WatchReading, WatchedContent};
use everloop_store::Ledger as _;

use super::world::{Flow, Halt, Occurrence, World};

/// What the supervisor remembers of its looks; gone with it.
#[derive(Default)]
pub(super) struct Rounds {
    looked: BTreeMap<String, Time>,
    empty: u32,
    blind: u32,
    /// When the next one is planned, in milliseconds of the world.
    next: Option<u64>,
    beats: u64,
}

impl Rounds {
    /// Whether the next look is planned.
    pub(super) fn goes_on(&self) -> bool {
        self.next.is_some()
    }
}

impl World {
    /// The keepalive that counts, if it is open.
    pub(super) fn keepalive(&self, state: &LoopState) -> Option<Ready> {
        let row = self.ledger.model().task(&watch::keepalive_of(state)?).expect("the model always answers")?;
        matches!(row.state, TaskState::Queued | TaskState::Leased { .. }).then(|| Ready::from(&row))
    }

    /// Plans the next beat where it is not planned yet.
    pub(super) fn plan_beat(&mut self, id: &LoopId) {
        let (now, now_ms) = (self.clock(), self.now_ms);
        let Some(supervisor) = self.supervisor.as_mut().filter(|s| !s.draining) else { return };
        let Some(held) = supervisor.held.get_mut(id) else { return };
        let at = watch::next(&held.state, &held.rounds.looked, now);
        let at_ms = at.map(|at| now_ms + at.since(now).as_millis() as u64 + 1);
        if held.rounds.next == at_ms {
            return;
        }
        held.rounds.next = at_ms;
        held.rounds.beats += 1;
        let beats = held.rounds.beats;
        if let Some(at_ms) = at_ms {
            self.mine(at_ms - now_ms, Occurrence::Beat(id.clone(), beats));
        }
    }

    /// All monitors are looked at as soon as possible.
    pub(super) fn look_soon(&mut self, id: &LoopId) {
        let Some(held) = self.supervisor.as_mut().and_then(|s| s.held.get_mut(id)) else { return };
        held.rounds.looked.clear();
        held.rounds.empty = 0;
    }

    /// Looks at what is due.
    pub(super) fn beat(&mut self, id: &LoopId, beats: u64) -> Flow {
        let now = self.clock();
        let held = self.supervisor.as_mut().and_then(|s| s.held.get_mut(id));
        let Some(held) = held.filter(|h| h.rounds.beats == beats) else { return Ok(()) };
        held.rounds.next = None;
        let state = held.state.clone();
        let due = watch::due(&state, &held.rounds.looked, now);
        held.rounds.looked.extend(due.iter().map(|m| (m.name.clone(), now)));
        let free: Vec<&MonitorSpec> =
            due.into_iter().filter(|m| !watch::latest_task(&state, m).is_some_and(|t| self.waits(t))).collect();
        if !free.is_empty() {
            let looks = self.looks(id, &state, &free)?;
            let news = looks.iter().any(WatchReading::is_news);
            let held = self.supervisor.as_mut().and_then(|s| s.held.get_mut(id));
            let empty = held.map_or(0, |h| {
                h.rounds.empty = if news { 0 } else { h.rounds.empty + 1 };
                h.rounds.empty
            });
            self.handle(id, &Input::Beat { looks, empty }, &[])?;
        }
        self.plan_beat(id);
        Ok(())
    }

    fn looks(&mut self, id: &LoopId, state: &LoopState, monitors: &[&MonitorSpec]) -> Flow<Vec<WatchReading>> {
        let seen = self.step("look", id.as_str(), |w| w.sites[id].news)?;
        let Some(rounds) = self.supervisor.as_mut().and_then(|s| s.held.get_mut(id)).map(|h| &mut h.rounds) else {
            return Err(Halt::Kill);
        };
        rounds.blind = if seen.is_ok() { 0 } else { rounds.blind + 1 };
        let found = match seen {
            Ok(news) => {
                Ok(WatchedContent { cursor: news.to_string(), summary: String::new(), text: "news".to_owned() })
            }
            Err(_) => Err(Blind { why: "it cannot be read".to_owned(), times: rounds.blind }),
        };
        let look = |m: &&MonitorSpec| {
            let from = state.watch.seen.get(&m.name).map(|seen| seen.cursor.clone());
            WatchReading { monitor: m.name.clone(), from, found: found.clone() }
        };
        Ok(monitors.iter().map(look).collect())
    }

    fn waits(&self, task: &TaskId) -> bool {
        let row = self.ledger.model().task(task).expect("the model always answers");
        row.is_some_and(|row| row.state == TaskState::Queued)
    }
}

/// The planted mistakes: what belongs together is written in two transactions.
pub(super) fn torn_off(batch: &mut Vec<Op>) -> Vec<Op> {
    let kind = if planted::is(Bug::KeepaliveInTwoWrites) {
        KEEPALIVE
    } else if planted::is(Bug::SignalInTwoWrites) {
        SIGNAL
    } else {
        return Vec::new();
    };
    let taken = |id: &TaskId| batch.iter().any(|op| matches!(op, Op::Take { task, .. } if task == id));
    let later = |op: &Op| matches!(op, Op::Enqueue(task) if task.kind == kind && !taken(&task.id));
    let torn: Vec<Op> = batch.iter().filter(|op| later(op)).cloned().collect();
    batch.retain(|op| !torn.contains(op));
    torn
}
