//! The supervisor: the product's shell ([`everloop_store::shell`]) with simulated effects, its
//! timers and its inbox.

use std::collections::BTreeMap;
use std::time::Duration;

use everloop_core::action::{Action, Input, TurnTrace};
use everloop_core::evidence::Sample;
use everloop_core::guard::permit::SLOTS;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::immune::Immune;
use everloop_core::jitter::mix;
use everloop_core::op::{Op, Refusal, Reply};
use everloop_core::state::{LoopState, Phase, TurnStage};
use everloop_core::time::Time;
use everloop_store::shell::{self, Circumstances, Committed, InputRun, Progress, Rejected, ShellEffects};
use everloop_store::{Error, Ledger as _, Model, Recipients};

use super::ledger::Prepared;
use super::watch::Rounds;
use super::world::{Flow, Halt, Violation, World, here, violated};

/// Signs of life are looked for this often.
const LOOK_MS: u64 = 60_000;
/// A full disk is waited out in steps of this.
const FULL_WAIT_MS: u64 = 5_000;
/// The box is read this often even when the bell was lost.
const POLL_MS: u64 = 30_000;

/// A loop in the supervisor's memory.
pub(super) struct Held {
    pub(super) state: LoopState,
    pub(super) version: u64,
    /// When its timer rings, in milliseconds of the world.
    pub(super) timer: Option<u64>,
    timers: u64,
    /// Time that the machine slept since the running turn began.
    pub(super) slept_ms: u64,
    /// The turn that is watched for signs of life.
    watched: Option<TurnId>,
    pub(super) rounds: Rounds,
}

pub(super) struct Supervisor {
    pub(super) held: BTreeMap<LoopId, Held>,
    pub(super) since_ms: u64,
    clock: Time,
    pub(super) draining: bool,
}

impl World {
    /// The supervisor's clock does not jump: the wall clock when it began, plus the time since.
    pub(super) fn clock(&self) -> Time {
        let base = self.supervisor.as_ref().map_or_else(|| self.wall(), |s| s.clock);
        let since = self.supervisor.as_ref().map_or(self.now_ms, |s| s.since_ms);
        base + Duration::from_millis(self.now_ms - since)
    }

    pub(super) fn start_up(&mut self) -> Flow {
        if self.supervisor.is_some() {
            return Ok(());
        }
        let (clock, since_ms) = (self.wall(), self.now_ms);
        self.supervisor = Some(Supervisor { held: BTreeMap::new(), since_ms, clock, draining: false });
        if let Err(e) = self.must("open", "", |w| w.ledger.reopen())? {
            return violated("durability", format!("the ledger cannot be opened: {e}"));
        }
        if self.ledger.last_seq() < self.ledger.promised {
            let (is, was) = (self.ledger.last_seq(), self.ledger.promised);
            return violated("durability", format!("journal record {was} was promised, {is} are there"));
        }
        for row in self.ledger.model().loops().expect("the model always answers") {
            let state: LoopState = serde_json::from_str(&row.state).expect("a stored state can be read");
            self.pick_up(state, row.version)?;
        }
        self.read_box()
    }

    fn pick_up(&mut self, state: LoopState, version: u64) -> Flow {
        let id = state.id.clone();
        let ended = matches!(state.phase, Phase::Ended { .. });
        let found = match &state.phase {
            Phase::Turn(turn) => {
                let turn = turn.id.clone();
                self.must("find", turn.as_str(), |w| w.find(&turn))?
            }
            _ => TurnTrace::Idle,
        };
        let rounds = Rounds::default();
        let held = Held { state, version, timer: None, timers: 0, slept_ms: 0, watched: None, rounds };
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.held.insert(id.clone(), held);
        }
        if ended {
            return Ok(());
        }
        self.handle(&id, &Input::Recovered { found }, &[])?;
        self.must_be_alive()
    }

    /// What an input means for a loop, with operations that belong into the same transaction.
    pub(super) fn handle(&mut self, id: &LoopId, input: &Input, extra: &[Op]) -> Flow {
        let mut run = InputRun::new(id, input, extra);
        loop {
            match run.go(self)? {
                Progress::Done => return Ok(()),
                Progress::Full => self.stand_still(FULL_WAIT_MS),
                Progress::Conflicts => return violated("I5", "the loop is written by somebody else all the time"),
            }
        }
    }

    /// Writes and syncs; false when the disk was full, nothing was written, and another try is
    /// needed.
    fn store(&mut self, prepared: &Prepared) -> Flow<bool> {
        if self.step("commit: write", "", |w| w.ledger.write(prepared))?.is_err() {
            if self.random.one_in(2) {
                self.say("disk full", "");
                self.watch.mark("disk full");
                return self.ledger.reopen().map(|()| false).or(Err(Halt::GiveUp));
            }
            return Err(Halt::GiveUp);
        }
        if self.step("commit: sync", "", |w| w.ledger.sync())?.is_err() {
            self.ledger.fail_to_sync(&mut self.random);
            return Err(Halt::GiveUp);
        }
        Ok(true)
    }

    fn tick(&mut self, id: &LoopId, timers: u64) -> Flow {
        let Some(held) = self.held_mut(id).filter(|h| h.timers == timers) else { return Ok(()) };
        held.timer = None;
        self.say("tick", id.as_str());
        self.handle(id, &Input::Tick, &[])
    }

    /// An action answered; a slot may have come free for another loop.
    pub(super) fn answer(&mut self, id: &LoopId, input: &Input) -> Flow {
        self.handle(id, input, &[])?;
        let waits = |h: &Held| matches!(&h.state.phase, Phase::Waiting { reason, .. } if reason.rule == SLOTS);
        let held = self.supervisor.as_ref().map(|s| &s.held);
        let hopeful: Vec<LoopId> =
            held.into_iter().flatten().filter(|(_, h)| waits(h)).map(|(id, _)| id.clone()).collect();
        for id in hopeful {
            self.handle(&id, &Input::Tick, &[])?;
        }
        Ok(())
    }

    /// Reads the box; each command's events and the removal of its message are one transaction.
    pub(super) fn read_box(&mut self) -> Flow {
        for message in self.ledger.model().messages(Recipients::All, 100).expect("the model always answers") {
            self.say("obey", &message.body);
            let (input, consume) = shell::obey(&message);
            self.handle(&LoopId::new(message.to), &input.expect("people write commands"), &[consume])?;
        }
        self.mine(POLL_MS, Self::read_box);
        Ok(())
    }

    fn look_later(&mut self, id: LoopId, turn: TurnId) {
        self.mine(LOOK_MS, move |w| w.look(&id, &turn));
    }

    /// Looks for signs of life of a running turn.
    fn look(&mut self, id: &LoopId, turn: &TurnId) -> Flow {
        let (now, late_ms, signs) = (self.clock(), self.late_ms, self.silent_ms(turn));
        let Some(held) = self.held_mut(id) else { return Ok(()) };
        let Phase::Turn(current) = &held.state.phase else { return Ok(()) };
        if current.id != *turn || current.stage != TurnStage::Running {
            return Ok(());
        }
        held.slept_ms += late_ms;
        let slept = Duration::from_millis(held.slept_ms);
        let sample = Sample {
            running: now.since(current.started_at).saturating_sub(slept),
            silent: Duration::from_millis(signs),
            timer_late: Duration::from_millis(late_ms),
            ..Sample::default()
        };
        // Refused when a person took the task away.
        let renew = [shell::renew(current)];
        self.ledger.transact(now, &renew).ok();
        self.handle(id, &Input::Evidence { turn: turn.clone(), sample }, &[])?;
        self.look_later(id.clone(), turn.clone());
        Ok(())
    }

    /// The supervisor goes down in good order: stops its turns, waits for them, leaves.
    pub(super) fn leave(&mut self) -> Flow {
        let Some(supervisor) = self.supervisor.as_mut() else { return Ok(()) };
        let first = !std::mem::replace(&mut supervisor.draining, true);
        let ids: Vec<LoopId> = supervisor.held.keys().cloned().collect();
        if first {
            for id in &ids {
                self.handle(id, &Input::Shutdown, &[])?;
            }
        }
        let held = self.supervisor.iter().flat_map(|s| s.held.values());
        let busy = held.filter(|h| matches!(&h.state.phase, Phase::Turn(t) if t.stage == TurnStage::Running)).count();
        if busy == 0 {
            return Err(Halt::Kill);
        }
        self.mine(1_000, Self::leave);
        Ok(())
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Halt::Violated(Violation { invariant: "ledger", text: error.to_string() })
    }
}

impl ShellEffects for World {
    type Ledger = Model;
    type Error = Halt;

    fn ledger(&self) -> &Model {
        self.ledger.model()
    }

    fn live(&self, id: &LoopId) -> Option<(&LoopState, u64)> {
        self.held(id).map(|held| (&held.state, held.version))
    }

    fn immune(&self) -> Flow<(u64, Immune)> {
        Ok(self.ledger.immune())
    }

    fn circumstances(&mut self) -> Circumstances {
        self.decisions += 1;
        let seed = mix(self.seed ^ self.incarnation, self.decisions);
        let draining = self.supervisor.as_ref().is_some_and(|s| s.draining);
        Circumstances { now: self.clock(), seed, node: here(), draining }
    }

    fn transact(&mut self, now: Time, batch: &[Op]) -> Result<Vec<Reply>, Rejected<Halt>> {
        self.meddle();
        let prepared = match self.ledger.prepare(now, batch) {
            Ok(prepared) => prepared,
            Err(Error::Refused(refusal)) => return Err(self.refused(refusal)),
            Err(e) => return Err(Rejected::Failed(e.into())),
        };
        if !self.store(&prepared).map_err(Rejected::Failed)? {
            return Err(Rejected::Full);
        }
        let replies = self.ledger.confirm(prepared);
        self.must_be_alive().map_err(Rejected::Failed)?;
        Ok(replies)
    }

    fn read_again(&mut self, id: &LoopId) -> Flow {
        let row = self.ledger.model().get_loop(id)?;
        if let (Some(row), Some(held)) = (row, self.held_mut(id)) {
            held.state = serde_json::from_str(&row.state).expect("a stored state can be read");
            held.version = row.version;
        }
        Ok(())
    }

    fn committed(&mut self, committed: Committed) {
        let id = committed.state.id.clone();
        let (now, now_ms) = (self.clock(), self.now_ms);
        let Some(held) = self.held_mut(&id) else { return };
        held.state = committed.state;
        held.version = committed.version;
        held.timers += 1;
        // A millisecond late is in time; a millisecond early would be a second wake for nothing.
        held.timer = committed.wake_at.map(|at| now_ms + at.since(now).as_millis() as u64 + 1);
        let running = match &held.state.phase {
            Phase::Turn(turn) if turn.stage == TurnStage::Running => Some(turn.id.clone()),
            _ => None,
        };
        let look = running.is_some() && held.watched != running;
        if look {
            held.slept_ms = 0;
            held.watched.clone_from(&running);
        }
        let (timer, timers) = (held.timer, held.timers);
        if let Some(at) = timer {
            let id = id.clone();
            self.mine(at - now_ms, move |w| w.tick(&id, timers));
        }
        if let (true, Some(turn)) = (look, running) {
            self.look_later(id.clone(), turn);
        }
        self.plan_beat(&id);
    }

    fn perform(&mut self, id: &LoopId, action: Action) -> Flow {
        self.begin(id, action)
    }
}

impl World {
    /// Only a person is a reason for a refusal.
    fn refused(&mut self, refusal: Refusal) -> Rejected<Halt> {
        match &refusal {
            Refusal::Conflict { .. } => self.watch.mark("conflict"),
            Refusal::Fenced { task, .. } if self.watch.amended.contains(task) => self.watch.mark("late_result"),
            _ => {
                let text = format!("an honest write was refused: {refusal}");
                return Rejected::Failed(Halt::Violated(Violation { invariant: "I3", text }));
            }
        }
        Rejected::Refused(refusal)
    }

    pub(super) fn held(&self, id: &LoopId) -> Option<&Held> {
        self.supervisor.as_ref()?.held.get(id)
    }

    pub(super) fn held_mut(&mut self, id: &LoopId) -> Option<&mut Held> {
        self.supervisor.as_mut()?.held.get_mut(id)
    }
}
