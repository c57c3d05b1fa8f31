//! Which loops there are, which of them sleep, and what wakes these: a timer, a message, work, or a
//! change by another process. A wake-up reads what is new along indexes, so it costs the same
//! beside ten sleeping personas and beside ten thousand.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::process;
use everloop_core::action::Input;
use everloop_core::ids::LoopId;
use everloop_core::op::Message;
use everloop_core::reason::RuleId;
use everloop_core::state::Phase;
use everloop_core::time::Time;
use everloop_core::watch::MonitorRounds;
use everloop_store::{Ledger, LoopMark, NewestLoop, Recipients};

use super::inbox::ROUND;
use super::notify::HOMES;
use super::sleepers::Sleeper;
use super::{LiveLoop, LoopSelection, NAP, Supervisor, Until, Watcher};
use crate::error::Failure;
use crate::record::read_state;

/// Timers that end in one round. When thousands end at once, messages are still read in between.
pub(super) const DUE_AT_ONCE: usize = 16;

/// Loops that are refused a slot in a row before the others wait for the next end of a turn. Rules of
/// accounts differ, so one refusal says little about the next loop.
const REFUSED_AT_ONCE: usize = 8;
/// A wake-up lets all loops in memory decide that wait. If that takes longer than this, the next one
/// rests, so that a storm of signals does not ask a thousand waiting loops a hundred times a second.
const TICK_MOST: Duration = Duration::from_millis(20);
/// Rest after such a round, in times of its own length.
const TICK_REST_FACTOR: u32 = 10;

/// Messages that one round takes, and those to one loop: each is a commit, and a signal to another
/// persona waits for the end of the round.
const AT_ONCE: usize = 32;
const FROM_ONE: usize = 8;

/// The last count of all loops, and the last round of those that wait.
#[derive(Default)]
pub(super) struct Census {
    /// Absent before the first one.
    counted_at: Option<Time>,
    newest: Option<NewestLoop>,
    /// Those that wait have to decide again.
    pub waiting_wanted: bool,
    /// But not before this.
    rests_until: Time,
    /// The last round took messages, so there may be more.
    pub messages_left: bool,
    /// The recipient that was the last one in it.
    served: Option<LoopId>,
}

impl LiveLoop {
    /// The sleeper that it becomes, if nothing but its timer concerns it.
    fn asleep(&self) -> Option<Sleeper> {
        let Phase::Waiting { reason, .. } = &self.state.phase else { return None };
        let persona = self.state.persona.as_deref().filter(|_| self.state.is_persona())?;
        let rests = reason.rule == RuleId::Resting && self.action_runs == 0 && self.state.spec.watch.is_empty();
        let knows_work = persona.history.pending.is_some();
        self.wake_at.filter(|_| rests).map(|wake_at| Sleeper { version: self.version, wake_at, knows_work })
    }
}

impl Supervisor {
    /// Drops the states of personas that sleep. A `run` keeps all of its loops.
    pub(super) fn settle(&mut self) {
        if self.until != Until::Told || self.draining {
            return;
        }
        let asleep: Vec<(LoopId, Sleeper)> =
            self.slots.iter().filter_map(|(id, slot)| Some((id.clone(), slot.asleep()?))).collect();
        for (id, sleeper) in asleep {
            if let Some(slot) = self.slots.remove(&id) {
                self.sleepers.put(id, sleeper, Path::new(&slot.state.spec.workspace.dir));
            }
        }
    }

    /// Reads the state of a persona that sleeps; returns whether it did.
    pub(super) fn rouse(&mut self, id: &LoopId) -> Result<bool, Failure> {
        let Some(sleeper) = self.sleepers.take(id) else { return Ok(false) };
        // Without a row a person has removed it.
        let Some(row) = self.ledger.get_loop(id)? else { return Ok(false) };
        let slot = LiveLoop {
            state: read_state(&row)?,
            version: row.version,
            wake_at: Some(sleeper.wake_at),
            liveness: None,
            action_runs: 0,
            workspace: None,
            rounds: MonitorRounds::default(),
        };
        self.slots.insert(id.clone(), slot);
        Ok(true)
    }

    /// Wakes those whose time has come.
    pub(super) async fn rouse_due(&mut self, now: Time, watcher: &mut impl Watcher) -> Result<(), Failure> {
        for id in self.sleepers.due(now, DUE_AT_ONCE) {
            self.rouse_and_tick(&id, watcher).await?;
        }
        Ok(())
    }

    async fn rouse_and_tick(&mut self, id: &LoopId, watcher: &mut impl Watcher) -> Result<(), Failure> {
        if self.rouse(id)? { self.handle(id, &Input::Tick, watcher).await } else { Ok(()) }
    }

    /// Time until the next timer of a sleeper, or until those that wait may decide again.
    pub(super) fn census_nap(&self, now: Time) -> Option<Duration> {
        let timer = self.sleepers.next().filter(|_| !self.draining).map(|(at, _)| at);
        let round = self.census.waiting_wanted.then_some(self.census.rests_until);
        let messages = self.census.messages_left.then_some(now);
        timer.into_iter().chain(round).chain(messages).min().map(|at| at.since(now))
    }

    /// Lets the loops in memory that wait decide again, if that is wanted and its rest is over.
    pub(super) async fn tick_wanted(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let begun = self.clock.now();
        if !self.census.waiting_wanted || begun < self.census.rests_until {
            return Ok(());
        }
        self.census.waiting_wanted = false;
        let waits = |s: &LiveLoop| matches!(&s.state.phase, Phase::Waiting { .. });
        let hopeful: Vec<LoopId> = self.slots.iter().filter(|(_, s)| waits(s)).map(|(id, _)| id.clone()).collect();
        for id in hopeful {
            self.handle(&id, &Input::Tick, watcher).await?;
        }
        let took = self.clock.now().since(begun);
        if took > TICK_MOST {
            self.census.rests_until = self.clock.now() + took * TICK_REST_FACTOR;
        }
        Ok(())
    }

    /// Lets those that wait longest for a free slot decide again, until enough of them were refused:
    /// each polls, too, so in a storm none is forgotten and the others are not all read for each end
    /// of a turn.
    pub(super) async fn tick_held_by_slots(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let since = |slot: &LiveLoop| match &slot.state.phase {
            Phase::Waiting { reason, since } if reason.rule == RuleId::GuardSlots => Some(*since),
            _ => None,
        };
        let mut held: Vec<(Time, LoopId)> =
            self.slots.iter().filter_map(|(id, slot)| Some((since(slot)?, id.clone()))).collect();
        held.sort();
        let mut refused = 0;
        for (_, id) in held {
            self.handle(&id, &Input::Tick, watcher).await?;
            refused += usize::from(self.slots.get(&id).and_then(since).is_some());
            if refused == REFUSED_AT_ONCE {
                break;
            }
        }
        Ok(())
    }

    /// Picks up the loops that a supervisor of all does not know, and wakes sleepers that have work.
    pub(super) async fn find_loops(&mut self, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let now = self.clock.now();
        let is_fresh = self.census.counted_at.is_some_and(|at| now.since(at) < NAP);
        let known = self.census.newest.as_ref().filter(|_| is_fresh);
        // Before the list: what is made in between is seen twice, and not never.
        let newest = self.ledger.newest_loop()?;
        let new = known.map(|newest| self.ledger.loops_since(newest)).transpose()?.flatten();
        match new {
            Some(new) => self.pick_up_all(&new, watcher).await?,
            None => self.count_all(now, watcher).await?,
        }
        self.census.newest = newest;
        for id in self.ledger.loops_with_work()? {
            if self.sleepers.get(&id).is_some_and(|sleeper| !sleeper.knows_work) {
                self.rouse_and_tick(&id, watcher).await?;
            }
        }
        Ok(())
    }

    /// The whole count: what other processes removed, or changed without a word, is found here.
    async fn count_all(&mut self, now: Time, watcher: &mut impl Watcher) -> Result<(), Failure> {
        if self.census.counted_at.is_none() {
            for row in self.ledger.ended_loops(HOMES)? {
                self.outbound.notifiers.add_home(&row.id, Path::new(&read_state(&row)?.spec.workspace.dir));
            }
        }
        let marks = self.ledger.open_loops()?;
        let open: BTreeSet<&LoopId> = marks.iter().map(|mark| &mark.id).collect();
        let gone: Vec<LoopId> = self.sleepers.ids().filter(|id| !open.contains(id)).cloned().collect();
        for id in gone {
            self.sleepers.take(&id);
        }
        self.pick_up_all(&marks, watcher).await?;
        if self.census.counted_at.replace(now).is_none() {
            // Each of them was in memory for a moment.
            process::give_back_memory();
        }
        Ok(())
    }

    async fn pick_up_all(&mut self, marks: &[LoopMark], watcher: &mut impl Watcher) -> Result<(), Failure> {
        for LoopMark { id, version } in marks {
            match self.sleepers.get(id) {
                Some(sleeper) if sleeper.version == *version => {}
                Some(_) => self.rouse_and_tick(id, watcher).await?,
                None if self.slots.contains_key(id) => {}
                None => self.pick_up_by_id(id, watcher).await?,
            }
        }
        Ok(())
    }

    async fn pick_up_by_id(&mut self, id: &LoopId, watcher: &mut impl Watcher) -> Result<(), Failure> {
        let Some(row) = self.ledger.get_loop(id)? else { return Ok(()) };
        self.watchdog.alive();
        self.pick_up(&row, watcher).await?;
        // Thousands of them are never in memory together.
        self.settle();
        Ok(())
    }

    /// The next messages to loops in reach. A loop with messages is in memory afterwards, also one
    /// that slept or is over.
    pub(super) async fn next_commands(&mut self, watcher: &mut impl Watcher) -> Result<Vec<Message>, Failure> {
        if matches!(self.reach, LoopSelection::Only(_)) {
            let to: Vec<String> = self.slots.keys().map(ToString::to_string).collect();
            return Ok(self.ledger.messages(Recipients::These(&to), ROUND)?);
        }
        let mut addressed = self.ledger.addressed_loops()?;
        for id in &addressed {
            if self.sleepers.get(id).is_none() && !self.slots.contains_key(id) {
                self.pick_up_by_id(id, watcher).await?;
            }
        }
        // Where the last round ended, so that a storm at one loop keeps none waiting.
        let first = self.census.served.as_ref().map_or(0, |served| addressed.partition_point(|id| id <= served));
        addressed.rotate_left(first);
        let mut messages = Vec::new();
        for id in addressed {
            self.rouse(&id)?;
            if self.slots.contains_key(&id) {
                messages.extend(self.ledger.messages(Recipients::These(&[id.to_string()]), FROM_ONE)?);
            }
            if messages.len() >= AT_ONCE {
                self.census.served = Some(id);
                break;
            }
        }
        Ok(messages)
    }

    /// The folders that loops work in.
    pub(super) fn folders(&self) -> BTreeSet<PathBuf> {
        let awake = self.slots.values().map(|slot| PathBuf::from(&slot.state.spec.workspace.dir));
        awake.chain(self.sleepers.folders().map(Path::to_owned)).collect()
    }

    /// The folder of a loop that is supervised.
    pub(super) fn folder_of(&self, id: &LoopId) -> Option<&Path> {
        let awake = self.slots.get(id).map(|slot| Path::new(&slot.state.spec.workspace.dir));
        awake.or_else(|| self.sleepers.folder_of(id))
    }
}
