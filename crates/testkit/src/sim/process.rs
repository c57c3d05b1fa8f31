//! Shims and agents: processes that outlive the supervisor, and the records they leave.
//!
//! A shim takes its turn's lock, runs the agent, and leaves `exit.json` (written aside, synced,
//! renamed, folder synced). A process that finds neither a live shim nor a record takes the lock
//! itself, so that a shim that is late cannot begin.

use everloop_core::action::{Input, TurnTrace};
use everloop_core::event::{Exit, StopCause};
use everloop_core::ids::{LoopId, TaskId, TurnId};
use everloop_core::prompt::prompt;
use everloop_core::state::{Phase, TurnStage};
use everloop_core::stream::TurnReport;
use everloop_core::time::Time;

use super::agent::Kind;
use super::fault::Loss;
use super::world::{Flow, Plans, World};
use crate::random::of_text;

/// The stop ladder takes at most this long.
const LADDER_MS: u64 = 10_000;

/// A turn's processes.
#[derive(Clone, Debug)]
pub(super) struct Shim {
    pub(super) owner: LoopId,
    kind: Kind,
    pub(super) alive: bool,
    /// The agent runs; it can outlive a killed shim.
    pub(super) agent: bool,
    began_ms: u64,
    started_at: Time,
    /// How often the plan for its end was changed.
    ends: u64,
}

/// The record of a turn's end, written aside (`exit.new`), synced, and given its name
/// (`exit.json`); the name is safe once the folder is synced.
#[derive(Clone, Debug)]
pub(super) struct Record {
    exit: Exit,
    named: bool,
    safe: bool,
}

impl World {
    /// The shim's first act, some time after it was forked.
    pub(super) fn shim_starts(&mut self, turn: &TurnId) -> Flow {
        if !self.locked.insert(turn.clone()) {
            self.say("shim: locked out", turn.as_str());
            self.watch.mark("late shim locked out");
            return Ok(());
        }
        let task = turn.task().clone();
        let Some(owner) = self.owner_of(&task) else { return Ok(()) };
        self.say("shim: starts", turn.as_str());
        let started_at = self.wall();
        let held = self.stored(&owner).filter(|s| matches!(&s.phase, Phase::Turn(held) if held.id == *turn));
        let asked = held.as_ref().is_some_and(|state| prompt(state, None, started_at).rethink.is_some());
        let account = held.and_then(|state| match state.phase {
            Phase::Turn(held) => Some(held.account),
            _ => None,
        });
        let site = self.sites.get_mut(&owner).expect("the owner was just found");
        let runs = site.runs.entry(task.clone()).or_default();
        let bad = site.setup.bad_account.is_some_and(|bad| account.as_deref() == Some(bad));
        let kind = match site.setup.script.kind(&task, *runs) {
            _ if bad => Kind::Crasher,
            Kind::Stubborn if asked => Kind::Good,
            kind => kind,
        };
        *runs += u32::from(!bad);
        let shim = Shim { owner, kind, alive: true, agent: true, began_ms: self.now_ms, started_at, ends: 0 };
        self.shims.insert(turn.clone(), shim);
        if self.stops.contains_key(turn) || kind == Kind::Missing {
            return self.agent_ends(turn, 0);
        }
        self.watch.read(turn);
        let seed = of_text(self.seed, turn.as_str());
        let plans = Plans::Machine(self.boot);
        let turn = turn.clone();
        match kind.takes_ms(seed) {
            Some(ms) if kind == Kind::Vanish => self.plan(ms, plans, move |w| {
                w.shim_dies(&turn);
                Ok(())
            }),
            Some(ms) => self.plan(ms, plans, move |w| w.agent_ends(&turn, 0)),
            None => {}
        }
        Ok(())
    }

    /// Requests the shim to stop its agent.
    pub(super) fn stop_shim(&mut self, turn: &TurnId, cause: StopCause) {
        self.stops.insert(turn.clone(), cause);
        let wait = self.random.below(LADDER_MS);
        let (plans, id) = (Plans::Machine(self.boot), turn.clone());
        match self.shims.get_mut(turn) {
            Some(shim) if shim.alive => {
                shim.ends += 1;
                let ends = shim.ends;
                self.plan(wait, plans, move |w| w.agent_ends(&id, ends));
            }
            // There is no shim to stop: look again what is left of the turn. A shim that is about
            // to start sees the request.
            _ => self.deliver_in(wait, turn),
        }
    }

    /// The shim is killed; its agent may go on.
    fn shim_dies(&mut self, turn: &TurnId) {
        let orphan = self.random.one_in(2);
        let Some(shim) = self.shims.get_mut(turn).filter(|s| s.alive) else { return };
        shim.alive = false;
        shim.agent = orphan;
        self.say("shim: killed", turn.as_str());
        self.deliver_in(50, turn);
    }

    /// The agent ended: by itself, or because it was stopped. The shim leaves its record.
    fn agent_ends(&mut self, turn: &TurnId, ends: u64) -> Flow {
        let stopped = self.stops.get(turn).copied();
        let ended_at = self.wall();
        let Some(shim) = self.shims.get_mut(turn).filter(|s| s.alive && s.ends == ends) else { return Ok(()) };
        shim.agent = false;
        let shim = shim.clone();
        self.say("agent: ends", turn.as_str());
        self.agent_works(turn, &shim, stopped);
        let report = match shim.kind {
            Kind::Metered => Some(self.metered(&shim.owner, ended_at)),
            kind => kind.report(ended_at.max(shim.started_at)),
        };
        let missing = shim.kind == Kind::Missing && stopped.is_none();
        let exit = Exit {
            code: (stopped.is_none() && !missing).then(|| shim.kind.code()),
            signal: stopped.is_some().then_some(15),
            spawn_error: missing.then(|| "no such file".to_owned()),
            started_at: shim.started_at,
            ended_at: ended_at.max(shim.started_at),
            out_bytes: 100,
            tail: "all done, everything works".to_owned(),
            backoff_ms: shim.kind.asks_ms().filter(|_| stopped.is_none()),
            stopped,
            report: report.filter(|_| stopped.is_none()),
            ..Exit::default()
        };
        let left = self.leave_record(turn, &exit);
        if let Some(shim) = self.shims.get_mut(turn) {
            shim.alive = false;
        }
        if self.supervisor.is_some() {
            let pause = self.random.below(200);
            self.deliver_in(pause, turn);
        }
        left
    }

    /// The report of a metered agent about its account.
    fn metered(&mut self, owner: &LoopId, now: Time) -> Box<TurnReport> {
        let account = match self.stored(owner).map(|s| s.phase) {
            Some(Phase::Turn(turn)) => turn.account,
            _ => String::new(),
        };
        let quota = self.meters.entry(account).or_default().turn(now);
        Box::new(TurnReport { ok: Some(true), quotas: vec![quota], ..TurnReport::default() })
    }

    /// What the agent did to its checkout; one that is stopped in the middle leaves half of it.
    fn agent_works(&mut self, turn: &TurnId, shim: &Shim, stopped: Option<StopCause>) {
        let Some(site) = self.sites.get_mut(&shim.owner) else { return };
        let kind = match stopped {
            None => shim.kind,
            Some(_) if shim.kind == Kind::Slow => Kind::Busy,
            Some(_) => return,
        };
        let checks = site.setup.checks();
        if site.setup.in_place() {
            kind.work(&mut site.folder, checks, turn.task());
        } else if let Some(worktree) = site.git.worktrees.get_mut(turn) {
            kind.work(&mut worktree.tree, checks, turn.task());
        }
    }

    /// Never half a record: aside, synced, renamed, folder synced. A shim that cannot leave one
    /// ends without.
    fn leave_record(&mut self, turn: &TurnId, exit: &Exit) -> Flow {
        let record = Record { exit: exit.clone(), named: false, safe: false };
        self.records.insert(turn.clone(), record);
        for what in ["record: write", "record: sync", "record: rename", "record: sync folder"] {
            let act = |w: &mut Self| {
                let record = w.records.get_mut(turn).expect("it was just inserted");
                record.named |= what == "record: rename";
                record.safe |= what == "record: sync folder";
            };
            if !self.step_beside(what, turn.as_str(), act)? {
                break;
            }
        }
        Ok(())
    }

    /// The power fails: of the names that no sync of their folder confirmed, some are gone.
    pub(super) fn lose_records(&mut self, loss: Loss) {
        let named = self.records.values_mut().filter(|record| record.named);
        let mut unsafe_names: Vec<&mut Record> = named.filter(|record| !record.safe).collect();
        let kept = loss.keeps(unsafe_names.len() as u64, &mut self.random) as usize;
        unsafe_names.iter_mut().take(kept).for_each(|record| record.safe = true);
        self.records.retain(|_, record| record.safe);
    }

    /// The record of a turn's end, if there is one.
    pub(super) fn exit_of(&self, turn: &TurnId) -> Option<Exit> {
        self.records.get(turn).filter(|record| record.named).map(|record| record.exit.clone())
    }

    /// What is left of a turn. Without a shim and a record its lock is taken and its remaining
    /// processes are killed.
    pub(super) fn find(&mut self, turn: &TurnId) -> TurnTrace {
        if let Some(exit) = self.exit_of(turn) {
            return TurnTrace::Exited(exit);
        }
        match self.shims.get_mut(turn) {
            Some(shim) if shim.alive => {
                self.watch.mark("turn adopted");
                TurnTrace::Alive
            }
            other => {
                if let Some(shim) = other {
                    let orphan = std::mem::replace(&mut shim.agent, false);
                    if orphan {
                        self.watch.mark("orphan reaped");
                    }
                }
                self.locked.insert(turn.clone());
                TurnTrace::Gone
            }
        }
    }

    /// The supervisor notices in so many milliseconds that a turn's shim is gone.
    pub(super) fn deliver_in(&mut self, ms: u64, turn: &TurnId) {
        let turn = turn.clone();
        self.mine(ms, move |w| w.deliver(&turn));
    }

    fn deliver(&mut self, turn: &TurnId) -> Flow {
        let Some(owner) = self.owner_of(turn.task()) else { return Ok(()) };
        let waits = self.held(&owner).is_some_and(
            |h| matches!(&h.state.phase, Phase::Turn(t) if t.id == *turn && t.stage == TurnStage::Running),
        );
        if !waits {
            return Ok(());
        }
        // A shim that was forked and has not started yet is no reason to give the turn up while its
        // supervisor lives.
        if !self.shims.contains_key(turn) && !self.locked.contains(turn) {
            return Ok(());
        }
        match self.must("find", turn.as_str(), |w| w.find(turn))? {
            TurnTrace::Exited(exit) => self.answer(&owner, &Input::Exited { turn: turn.clone(), exit }),
            TurnTrace::Gone => self.answer(&owner, &Input::Vanished { turn: turn.clone() }),
            TurnTrace::Alive | TurnTrace::Idle => Ok(()),
        }
    }

    /// Time without a sign of life of a running turn.
    pub(super) fn silent_ms(&self, turn: &TurnId) -> u64 {
        match self.shims.get(turn) {
            Some(shim) if shim.kind == Kind::Hang => self.now_ms - shim.began_ms,
            _ => 0,
        }
    }

    pub(super) fn owner_of(&self, task: &TaskId) -> Option<LoopId> {
        let owner = task.as_str().split('-').next()?;
        self.sites.keys().find(|id| id.as_str() == owner).cloned()
    }
}
