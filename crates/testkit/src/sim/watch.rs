//! Beats: when the supervisor looks at a loop's monitor, and what it sees there.

use everloop_core::ids::LoopId;
use everloop_core::state::LoopState;
use everloop_core::watch::{Blind, MonitorRounds, MonitorSpec, WatchReading, WatchedContent};
use everloop_store::shell;

use super::world::{Flow, World};

/// What the supervisor remembers of its looks; gone with it.
#[derive(Default)]
pub(super) struct Rounds {
    pub(super) monitors: MonitorRounds,
    /// When the next one is planned, in milliseconds of the world.
    pub(super) next: Option<u64>,
    beats: u64,
}

impl World {
    /// Plans the next beat where it is not planned yet.
    pub(super) fn plan_beat(&mut self, id: &LoopId) {
        let (now, now_ms) = (self.clock(), self.now_ms);
        let Some(supervisor) = self.supervisor.as_mut().filter(|s| !s.draining) else { return };
        let Some(held) = supervisor.held.get_mut(id) else { return };
        let at = held.rounds.monitors.next(&held.state, now);
        let at_ms = at.map(|at| now_ms + at.since(now).as_millis() as u64 + 1);
        if held.rounds.next == at_ms {
            return;
        }
        held.rounds.next = at_ms;
        held.rounds.beats += 1;
        let beats = held.rounds.beats;
        if let Some(at_ms) = at_ms {
            let id = id.clone();
            self.mine(at_ms - now_ms, move |w| w.beat(&id, beats));
        }
    }

    /// Looks at what is due.
    fn beat(&mut self, id: &LoopId, beats: u64) -> Flow {
        let now = self.clock();
        let Some(held) = self.held_mut(id).filter(|h| h.rounds.beats == beats) else { return Ok(()) };
        held.rounds.next = None;
        let state = held.state.clone();
        let mut due = held.rounds.monitors.begin(&state, now);
        due.retain(|m| !shell::is_told(self.ledger.model(), &state, m).expect("the model always answers"));
        if !due.is_empty() {
            let looks = self.looks(id, &state, &due)?;
            if let Some(beat) = self.held_mut(id).and_then(|held| held.rounds.monitors.end(looks)) {
                self.handle(id, &beat, &[])?;
            }
        }
        self.plan_beat(id);
        Ok(())
    }

    fn looks(&mut self, id: &LoopId, state: &LoopState, monitors: &[&MonitorSpec]) -> Flow<Vec<WatchReading>> {
        let found = match self.step("look", id.as_str(), |w| w.sites[id].news)? {
            Ok(news) => {
                Ok(WatchedContent { cursor: news.to_string(), summary: String::new(), text: "news".to_owned() })
            }
            Err(_) => Err(Blind { why: "it cannot be read".to_owned(), times: 0 }),
        };
        let look = |m: &&MonitorSpec| {
            let from = state.watch.seen.get(&m.name).map(|seen| seen.cursor.clone());
            WatchReading { monitor: m.name.clone(), from, found: found.clone() }
        };
        Ok(monitors.iter().map(look).collect())
    }
}
