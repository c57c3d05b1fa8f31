//! How events change a loop. The only writer of [`LoopState`].

use std::time::Duration;

use super::{
    AgentSession, KEPT_LISTED, KeptWork, LoopState, NOTES_KEPT, Note, POISON, Pause, Phase, STATE_VERSION, StopWish,
    StrategyChange, TRIES_KEPT, Then, Try, Turn, TurnStage, TurnTally, worker,
};
use crate::event::{Event, Exit, Integrated, LoopEnd, Outcome, Settled, StopCause};
use crate::guard::Spend;
use crate::ids::{Fence, LoopId, TaskId, TurnId};
use crate::op::Trust;
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::scoreboard::{self, Scoreboard};
use crate::spec::{Bounds, Budget, LoopSpec, WorkspaceMode};
use crate::stream::LimitClass;
use crate::telemetry::{UsageSource, settle};
use crate::time::Time;
use crate::watch::{MonitorCursor, PARKED, WATCHING, WatchState};

impl LoopState {
    /// The state after [`Event::LoopCreated`].
    pub fn new(id: LoopId, name: String, spec: LoopSpec, at: Time) -> Self {
        let board = scoreboard::unknown(&spec.checks);
        let watch = WatchState { keepalive: u32::from(!spec.watch.is_empty()), ..WatchState::default() };
        Self {
            state_version: STATE_VERSION,
            id,
            name,
            spec,
            phase: Phase::New,
            paused: None,
            stop: None,
            created_at: at,
            updated_at: at,
            clock_from: at,
            events: 1,
            started: 0,
            turns: 0,
            task_number: 0,
            task: None,
            fence: Fence(0),
            retry: false,
            task_failures: 0,
            baseline: None,
            landed: board.clone(),
            board,
            work: None,
            tries: Vec::new(),
            tally: TurnTally::default(),
            kept: Vec::new(),
            kept_count: 0,
            since_progress: 0,
            then: None,
            strategy: None,
            noops: 0,
            same_error: 0,
            notes: Vec::new(),
            spent: Spend::default(),
            spent_estimated: false,
            asleep: Duration::ZERO,
            in_turns: Duration::ZERO,
            tickets: Vec::new(),
            session: None,
            handoff: String::new(),
            worker: String::new(),
            dearest: Spend::default(),
            watch,
        }
    }

    /// Applies an event of the journal.
    pub fn apply(&mut self, event: &Event, at: Time) {
        self.events += 1;
        self.updated_at = at;
        match event {
            // The first belongs to the constructor; the others change nothing here.
            Event::LoopCreated { .. }
            | Event::Recovered { .. }
            | Event::Note { .. }
            | Event::InSession { .. }
            | Event::ConfigAccepted { .. }
            | Event::ConfigRevoked { .. }
            | Event::Immune { .. }
            | Event::Noticed { .. }
            | Event::Cooldown { .. }
            | Event::Backoff { .. }
            | Event::DelayLifted { .. }
            | Event::Frozen { .. }
            | Event::Limited { .. }
            | Event::AgentSwitched { .. }
            | Event::Released { .. } => {}
            Event::Woken { .. } => self.check_again(at),
            Event::SpecChanged { spec } => self.change_spec(spec),
            Event::Baselined { board, work } => self.set_baseline(board, work.as_ref(), at),
            Event::Waiting { reason } => {
                let since = self.leave_waiting(at);
                self.phase = Phase::Waiting { reason: reason.clone(), since: since.unwrap_or(at) };
            }
            Event::TurnStarted { .. } => self.begin(event, at),
            Event::TurnExited { turn, exit } => self.leave(turn, exit),
            Event::TurnJudged { turn, judgement } => self.with_turn(turn, |t| {
                t.stage = TurnStage::Integrating;
                t.judgement = Some(judgement.clone());
            }),
            Event::TurnReturned { turn, .. } => self.with_turn(turn, |t| {
                t.stage = TurnStage::Judging;
                t.returned += 1;
            }),
            Event::Stopping { turn, cause } => self.with_turn(turn, |t| t.stopping = Some(*cause)),
            Event::TurnEnded { outcome, settled, work, integrated, .. } => {
                self.end_turn(outcome, settled, (work.as_ref(), integrated.as_ref()), at);
            }
            Event::Paused { by, reason, until } => {
                self.paused = Some(Pause { by: by.clone(), reason: reason.clone(), at, until: *until });
            }
            Event::Resumed { bounds, budget, keeps_clock, .. } => {
                self.resume((bounds.as_ref(), budget.as_ref()), *keeps_clock, at);
            }
            Event::StopAsked { by, now } => self.stop = Some(StopWish { by: by.clone(), now: *now }),
            Event::Steered { by, message, trust } => {
                self.notes.push(match trust {
                    Trust::Operator => Note::Operator(message.clone()),
                    Trust::Agent => Note::Mail { by: by.clone(), text: message.clone() },
                });
                let extra = self.notes.len().saturating_sub(NOTES_KEPT);
                self.notes.drain(..extra);
                if let Phase::Turn(turn) = &mut self.phase {
                    turn.told = turn.told.saturating_sub(extra);
                }
            }
            Event::StrategyChanged { reason, agent } => self.change_strategy(reason, agent),
            Event::TicketOpened { key, .. } if self.tickets.contains(key) => {}
            Event::TicketOpened { key, .. } => self.tickets.push(key.clone()),
            Event::TicketClosed { key } => self.tickets.retain(|k| k != key),
            Event::Signalled { monitor, cursor, task, .. } => self.see(monitor, cursor, task.as_ref(), at),
            Event::Keepalive { number, .. } => self.watch.keepalive = *number,
            Event::Ended { ending } => {
                self.leave_waiting(at);
                self.stop = None;
                self.phase = Phase::Ended { ending: ending.clone(), at };
            }
        }
    }

    /// From here on time and money without progress are counted, if they are limited.
    fn begin_streak(&mut self) {
        let guard = &self.spec.guard;
        let wanted = guard.stagnation_time.is_some() || guard.stagnation_microusd.is_some();
        self.then = wanted.then(|| Box::new(Then { in_turns: self.in_turns, spent: self.spent }));
    }

    /// The session so far did not help: the next turn begins a fresh one.
    fn change_strategy(&mut self, reason: &Reason, agent: &str) {
        self.session = None;
        self.strategy = Some(Box::new(StrategyChange {
            reason: reason.clone(),
            from_turn: self.started + 1,
            agent: agent.to_owned(),
            turns: self.since_progress,
            then: Then { in_turns: self.in_turns, spent: self.spent },
        }));
    }

    fn change_spec(&mut self, spec: &LoopSpec) {
        let checks_changed = spec.checks != self.spec.checks;
        self.watch.change_spec(&self.spec.watch, &spec.watch);
        self.spec = spec.clone();
        if self.then.is_none() {
            self.begin_streak();
        }
        if !spec.guard.stagnation_change {
            self.strategy = None;
        }
        if checks_changed {
            self.board = scoreboard::unknown(&spec.checks);
            self.landed = self.board.clone();
            self.baseline = None;
            if matches!(self.phase, Phase::Ready | Phase::Waiting { .. }) {
                self.phase = Phase::New;
            }
        }
    }

    fn see(&mut self, monitor: &str, cursor: &str, task: Option<&TaskId>, at: Time) {
        if task.is_some() {
            self.watch.signals += 1;
            self.check_again(at);
        }
        let known = self.watch.seen.remove(monitor);
        let kept = known.as_ref().filter(|_| planted::is(Bug::SignalKeepsCursor)).map(|seen| seen.cursor.clone());
        let task = task.cloned().or_else(|| known.and_then(|seen| seen.task));
        let cursor = kept.unwrap_or_else(|| cursor.to_owned());
        self.watch.seen.insert(monitor.to_owned(), MonitorCursor { cursor, at, task });
    }

    /// The verdicts that satisfied a loop may not hold any more: its checks run again on the
    /// present target branch, and only then it is known what there is to do. Work left aside for a
    /// person stays recorded.
    fn check_again(&mut self, at: Time) {
        let Phase::Waiting { reason, .. } = &self.phase else { return };
        if ![WATCHING, PARKED].contains(&reason.rule) {
            return;
        }
        self.leave_waiting(at);
        let aside = matches!(self.kept.last().map(|k| &k.integrated), Some(Some(Integrated::Aside { .. })));
        self.work = self.work.take().filter(|_| aside);
        self.phase = Phase::New;
    }

    fn set_baseline(&mut self, board: &Scoreboard, work: Option<&String>, at: Time) {
        if self.baseline.is_none() {
            self.baseline = Some(board.clone());
            self.clock_from = at;
        }
        self.board = board.clone();
        self.landed = board.clone();
        self.work = work.cloned();
        self.phase = Phase::Ready;
    }

    /// Counts the waiting time; returns since when the loop waits, if it does.
    fn leave_waiting(&mut self, at: Time) -> Option<Time> {
        let Phase::Waiting { since, .. } = &self.phase else { return None };
        let since = *since;
        self.asleep += at.since(since);
        Some(at)
    }

    fn begin(&mut self, event: &Event, at: Time) {
        let Event::TurnStarted { turn, task, fence, number, permit, agent, account, resume, chosen } = event else {
            return;
        };
        self.leave_waiting(at);
        if self.task.as_ref() != Some(task) {
            self.task_failures = 0;
        }
        if *task == TaskId::of_loop(&self.id, self.task_number + 1) {
            self.task_number += 1;
        }
        self.task = Some(task.clone());
        self.fence = *fence;
        self.started = *number;
        self.retry = false;
        self.phase = Phase::Turn(Box::new(Turn {
            id: turn.clone(),
            task: task.clone(),
            fence: *fence,
            number: *number,
            started_at: at,
            permit: permit.clone(),
            stage: TurnStage::Running,
            stopping: None,
            exit: None,
            judgement: None,
            returned: 0,
            told: self.notes.len(),
            agent: agent.clone(),
            account: account.clone(),
            resume: resume.clone(),
            chosen: chosen.clone(),
            used: None,
            source: UsageSource::Stream,
        }));
        self.worker = worker(agent, account);
        if resume.is_none() {
            self.session = None;
        }
    }

    /// The agent ended: the session and the usage of its stream are known from here on.
    fn leave(&mut self, id: &TurnId, exit: &Exit) {
        let Phase::Turn(turn) = &mut self.phase else { return };
        if turn.id != *id {
            return;
        }
        turn.stage = TurnStage::Judging;
        turn.exit = Some(exit.clone());
        let Some(report) = &exit.report else { return };
        let before = self.session.take().filter(|s| report.session.as_ref().is_none_or(|id| *id == s.id));
        let counted = before.as_ref().and_then(|s| s.in_all).unwrap_or_default();
        let said = report.in_all.map_or(report.used, |all| all.since(counted));
        let (used, source) = settle(said, report.telemetry);
        turn.used = Some(used);
        turn.source = source;
        if !report.last_text.is_empty() {
            self.handoff.clone_from(&report.last_text);
        }
        let too_long = exit.limit().is_some_and(|l| l.class == LimitClass::Context);
        let spinning = matches!(exit.stopped, Some(StopCause::Spinning | StopCause::NoDiff));
        if report.session_lost || too_long || spinning {
            return;
        }
        let Some(session) = report.session.clone().or_else(|| before.as_ref().map(|s| s.id.clone())) else { return };
        // A turn that was cut off by a limit continues: it is not one more.
        let more = u32::from(exit.limit().is_none());
        self.session = Some(AgentSession {
            worker: worker(&turn.agent, &turn.account),
            id: session,
            turns: before.as_ref().map_or(0, |s| s.turns) + more,
            context_percent: report.context_percent.or(before.as_ref().and_then(|s| s.context_percent)),
            in_all: report.in_all.or(before.and_then(|s| s.in_all)),
        });
    }

    fn with_turn(&mut self, id: &TurnId, change: impl FnOnce(&mut Turn)) {
        if let Phase::Turn(turn) = &mut self.phase
            && turn.id == *id
        {
            change(turn);
        }
    }

    fn end_turn(
        &mut self,
        outcome: &Outcome,
        settled: &Settled,
        (work, integrated): (Option<&String>, Option<&Integrated>),
        at: Time,
    ) {
        let Phase::Turn(turn) = std::mem::replace(&mut self.phase, Phase::Ready) else { return };
        let took = turn.exit.as_ref().map_or(at, |e| e.ended_at).since(turn.started_at);
        self.in_turns += took;
        self.spent = self.spent.plus(settled.spend);
        self.spent_estimated |= settled.estimated;
        self.dearest = self.dearest.most(settled.spend);
        if outcome.counts() || planted::is(Bug::CountsLostTurns) {
            self.turns += 1;
        }
        self.tally.count(outcome);
        self.retry = outcome.retries();
        if matches!(outcome, Outcome::TaskFailed { .. }) {
            self.task_failures += 1;
            self.retry = self.task_failures < POISON;
        }
        // A turn that never ran has not delivered the messages in its prompt; later ones were not
        // in it.
        let ran = turn.exit.as_ref().is_some_and(|e| e.spawn_error.is_none());
        if outcome.counts() && ran {
            let told = if planted::is(Bug::ForgetsLateMessages) { usize::MAX } else { turn.told };
            self.notes.drain(..told.min(self.notes.len()));
        }
        self.take_board(&turn, work, integrated);
        self.take_streaks(&turn, outcome, settled);
        self.remember(&turn, outcome, took);
    }

    fn take_board(&mut self, turn: &Turn, work: Option<&String>, integrated: Option<&Integrated>) {
        let Some(judgement) = &turn.judgement else { return };
        let in_place = matches!(integrated, Some(Integrated::InPlace));
        if work.is_some() || in_place {
            self.board = judgement.board.clone();
            self.work = work.cloned().or(self.work.take());
        }
        if integrated.is_some() {
            self.landed = judgement.board.clone();
        }
        // Work that was not believed is in the folder all the same: a satisfied loop has to check
        // again.
        let content = self.board.all_pass() && self.landed.all_pass() && !self.spec.watch.is_empty();
        if content && integrated.is_none() && self.spec.workspace.mode == WorkspaceMode::InPlace {
            self.board = scoreboard::unknown(&self.spec.checks);
            self.landed = self.board.clone();
        }
        if judgement.changed && (work.is_some() || in_place) {
            self.kept_count += 1;
            self.kept.push(KeptWork {
                task: turn.task.clone(),
                commit: judgement.commit.clone(),
                diffstat: judgement.diffstat.clone(),
                integrated: integrated.cloned(),
            });
            let extra = self.kept.len().saturating_sub(KEPT_LISTED);
            self.kept.drain(..extra);
        }
    }

    fn take_streaks(&mut self, turn: &Turn, outcome: &Outcome, settled: &Settled) {
        if settled.progress {
            self.since_progress = 0;
            self.strategy = None;
            self.begin_streak();
        } else if outcome.counts() {
            self.since_progress += 1;
        }
        match outcome {
            Outcome::NoOp => self.noops += 1,
            Outcome::Interrupted | Outcome::Lost | Outcome::Limited { .. } => {}
            _ => self.noops = 0,
        }
        let Some(judgement) = &turn.judgement else { return };
        let now = judgement.board.fingerprint();
        match self.tries.last() {
            Some(last) if last.fingerprint == now && now != 0 && judgement.changed => self.same_error += 1,
            _ => self.same_error = u32::from(now != 0),
        }
    }

    fn remember(&mut self, turn: &Turn, outcome: &Outcome, took: Duration) {
        let judgement = turn.judgement.as_ref();
        let board = judgement.map_or(&self.board, |j| &j.board);
        let tail = turn.exit.as_ref().map_or("", |e| e.report.as_ref().map_or(e.tail.as_str(), |r| &r.last_text));
        self.tries.push(Try {
            turn: turn.id.clone(),
            number: turn.number,
            outcome: outcome.clone(),
            diffstat: judgement.map_or_else(String::new, |j| j.diffstat.clone()),
            pin: judgement.and_then(|j| j.pin.clone()),
            passing: board.passing().into_iter().map(str::to_owned).collect(),
            fingerprint: board.fingerprint(),
            took,
            exit: turn.exit.as_ref().map_or_else(|| "no record".to_owned(), Exit::describe),
            last_line: last_line(tail),
            agent: turn.agent.clone(),
            chosen: turn.chosen.clone(),
            doubts: judgement.map_or_else(Vec::new, |j| j.board.doubts()),
        });
        let extra = self.tries.len().saturating_sub(TRIES_KEPT);
        self.tries.drain(..extra);
    }

    fn resume(&mut self, (bounds, budget): (Option<&Bounds>, Option<&Budget>), keeps_clock: bool, at: Time) {
        self.paused = None;
        self.stop = None;
        if let Some(bounds) = bounds {
            self.spec.bounds = bounds.clone();
        }
        if let Some(budget) = budget {
            self.spec.guard.budget = budget.clone();
        }
        if let Phase::Ended { ending, at: ended_at } = &self.phase
            && *ending != LoopEnd::Reached
        {
            self.clock_from = if keeps_clock { self.clock_from + at.since(*ended_at) } else { at };
            self.phase = if self.baseline.is_some() { Phase::Ready } else { Phase::New };
        }
    }
}

impl TurnTally {
    fn count(&mut self, outcome: &Outcome) {
        let slot = match outcome {
            Outcome::Reached | Outcome::Progress => &mut self.progress,
            Outcome::NotYet => &mut self.not_yet,
            Outcome::NoOp => &mut self.no_op,
            Outcome::Refused { .. } => &mut self.refused,
            Outcome::Regressed { .. } => &mut self.regressed,
            Outcome::AgentFailed { .. } => &mut self.agent_failed,
            Outcome::TaskFailed { .. } => &mut self.task_failed,
            Outcome::Limited { .. } => &mut self.limited,
            Outcome::Interrupted => &mut self.interrupted,
            Outcome::Lost => &mut self.lost,
        };
        *slot += 1;
    }
}

/// The last line with something in it, at most 200 characters.
fn last_line(tail: &str) -> String {
    let line = tail.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("");
    line.trim().chars().take(200).collect()
}
