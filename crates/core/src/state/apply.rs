//! How events change a loop. The only writer of [`LoopState`].

use std::time::Duration;

use super::{
    AgentSession, KEPT_LISTED, KeptWork, LoopPeople, LoopProgress, LoopSpend, LoopState, LoopTask, NOTES_KEPT, Note,
    POISON, Pause, Phase, STATE_VERSION, StopWish, StrategyChange, TRIES_KEPT, Then, Try, Turn, TurnStage, TurnTally,
    worker,
};
use crate::event::{Event, Exit, Integrated, Judgement, LoopEnd, Outcome, Settled, StopCause};
use crate::ids::{LoopId, TaskId, TurnId};
use crate::op::Trust;
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::research::state::ExperimentStep;
use crate::rhythm::state::RhythmStep;
use crate::scoreboard::{self, Scoreboard};
use crate::spec::{LoopSpec, WorkspaceMode};
use crate::telemetry::{UsageSource, settle};
use crate::time::Time;
use crate::watch::{MonitorCursor, PARKED, WATCHING, WatchState};

impl LoopState {
    /// The state after [`Event::LoopCreated`].
    pub fn new(id: LoopId, name: String, spec: LoopSpec, at: Time) -> Self {
        let board = scoreboard::unknown(&spec.checks);
        let persona = spec.persona.is_some().then(Box::default);
        let watch = WatchState { keepalive: u32::from(!spec.watch.is_empty()), ..WatchState::default() };
        Self {
            state_version: STATE_VERSION,
            id,
            name,
            spec,
            phase: Phase::New,
            created_at: at,
            updated_at: at,
            events: 1,
            progress: LoopProgress { landed: board.clone(), board, ..LoopProgress::default() },
            task: LoopTask::default(),
            spend: LoopSpend { clock_from: at, ..LoopSpend::default() },
            people: LoopPeople::default(),
            watch,
            research: None,
            persona,
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
            | Event::CliStarted { .. }
            | Event::Frozen { .. }
            | Event::Limited { .. }
            | Event::AgentSwitched { .. }
            | Event::Forgotten
            | Event::Released { .. } => {}
            Event::Attached { .. } | Event::Detached { .. } => self.people.attached = is_attached(event),
            Event::PriceUnknown { model, .. } => {
                self.spend.unpriced.insert(model.clone());
            }
            Event::AgentRefused { agent, account, limit } => {
                self.task.refused.insert(worker(agent, account), limit.text.clone());
            }
            Event::Woken { .. } => {
                self.task.refused.clear();
                self.check_again(at);
            }
            Event::SpecChanged { spec } => self.change_spec(spec),
            Event::Baselined { board, work } => self.set_baseline(board, work.as_ref(), at),
            Event::Waiting { reason } => {
                let since = self.leave_waiting(at);
                self.phase = Phase::Waiting { reason: reason.clone(), since: since.unwrap_or(at) };
            }
            Event::TurnStarted { .. } => self.begin(event, at),
            Event::TurnExited { turn, exit } => self.leave(turn, exit),
            Event::Experiment { step } => self.take_step(step),
            Event::Rhythm { step } => self.take_rhythm(step),
            Event::TurnJudged { turn, judgement } => self.take_judgement(turn, judgement),
            Event::TurnReturned { turn, .. } => self.with_turn(turn, |t| {
                t.stage = TurnStage::Judging;
                t.returned += 1;
            }),
            Event::Stopping { turn, cause } => self.with_turn(turn, |t| t.stopping = Some(*cause)),
            Event::TurnEnded { outcome, settled, work, integrated, .. } => {
                self.end_turn(outcome, settled, (work.as_ref(), integrated.as_ref()), at);
            }
            Event::Paused { .. } => self.pause(event, at),
            Event::Resumed { .. } => self.resume(event, at),
            Event::StopAsked { by, now } => self.people.stop = Some(StopWish { by: by.clone(), now: *now }),
            Event::Steered { .. } => self.steer(event),
            Event::WorkTaken { commit, .. } => self.take_work(commit),
            Event::StrategyChanged { reason, agent } => self.change_strategy(reason, agent),
            Event::TicketOpened { key, .. } if self.people.tickets.contains(key) => {}
            Event::TicketOpened { key, .. } => self.people.tickets.push(key.clone()),
            Event::TicketClosed { key } => self.people.tickets.retain(|k| k != key),
            Event::Signalled { monitor, cursor, task, .. } => self.see(monitor, cursor, task.as_ref(), at),
            Event::Keepalive { number, .. } => self.watch.keepalive = *number,
            Event::Ended { ending } => {
                self.leave_waiting(at);
                self.people.stop = None;
                self.phase = Phase::Ended { ending: ending.clone(), at };
            }
        }
    }

    fn take_judgement(&mut self, turn: &TurnId, judgement: &Judgement) {
        let stage = if self.spec.research.is_some() { TurnStage::Measuring } else { TurnStage::Integrating };
        self.with_turn(turn, |t| {
            t.stage = stage;
            t.judgement = Some(judgement.clone());
        });
    }

    fn take_step(&mut self, step: &ExperimentStep) {
        let Some(direction) = self.spec.research.as_ref().map(|research| research.metric.direction) else { return };
        if let ExperimentStep::Measured { subject, sample } = step
            && let Phase::Turn(turn) = &mut self.phase
        {
            turn.measured.push((*subject, sample.clone()));
        }
        if let ExperimentStep::Replayed { judgement, .. } = step
            && let Phase::Turn(turn) = &mut self.phase
        {
            turn.judgement = Some((**judgement).clone());
            turn.measured.clear();
        }
        // Findings of several workers are a document of their own.
        if self.shared_run().is_some() {
            return;
        }
        self.research.get_or_insert_default().apply(step, direction);
    }

    fn take_rhythm(&mut self, step: &RhythmStep) {
        let Some(spec) = &self.spec.persona else { return };
        self.persona.get_or_insert_default().apply(step, &spec.cadence, &spec.inward);
    }

    /// The person has this work, and all that it builds on; what came later still waits.
    fn take_work(&mut self, commit: &str) {
        let progress = &mut self.progress;
        let holds = |kept: &KeptWork| match &kept.integrated {
            Some(Integrated::Landed { commit: c } | Integrated::Aside { commit: c, .. }) => c == commit,
            Some(Integrated::InPlace) | None => kept.commit.as_deref() == Some(commit),
        };
        if let Some(last) = progress.kept.iter().rposition(holds) {
            for kept in &mut progress.kept[..=last] {
                let own = kept.commit.clone().unwrap_or_else(|| commit.to_owned());
                if !matches!(kept.integrated, Some(Integrated::Landed { .. } | Integrated::InPlace)) {
                    kept.integrated = Some(Integrated::Landed { commit: own });
                }
            }
        }
        if progress.work.as_deref() == Some(commit) {
            progress.landed = progress.board.clone();
        }
        progress.taken = Some(commit.to_owned());
    }

    fn steer(&mut self, event: &Event) {
        let Event::Steered { by, message, trust } = event else { return };
        self.people.notes.push(match trust {
            Trust::Operator => Note::Operator(message.clone()),
            Trust::Agent => Note::Mail { by: by.clone(), text: message.clone() },
        });
        let extra = self.people.notes.len().saturating_sub(NOTES_KEPT);
        self.people.notes.drain(..extra);
        if let Phase::Turn(turn) = &mut self.phase {
            turn.told = turn.told.saturating_sub(extra);
        }
    }

    fn pause(&mut self, event: &Event, at: Time) {
        let Event::Paused { by, reason, until } = event else { return };
        self.people.paused = Some(Pause { by: by.clone(), reason: reason.clone(), at, until: *until });
    }

    /// From here on time and money without progress are counted, if they are limited.
    fn begin_streak(&mut self) {
        let guard = &self.spec.guard;
        let wanted = guard.stagnation_time.is_some() || guard.stagnation_microusd.is_some();
        self.progress.then = wanted.then(|| Box::new(Then { in_turns: self.spend.in_turns, spent: self.spend.spent }));
    }

    /// The session so far did not help: the next turn begins a fresh one.
    fn change_strategy(&mut self, reason: &Reason, agent: &str) {
        self.task.session = None;
        self.progress.strategy = Some(Box::new(StrategyChange {
            reason: reason.clone(),
            from_turn: self.task.started + 1,
            agent: agent.to_owned(),
            turns: self.progress.since_progress,
            then: Then { in_turns: self.spend.in_turns, spent: self.spend.spent },
        }));
    }

    fn change_spec(&mut self, spec: &LoopSpec) {
        let checks_changed = spec.checks != self.spec.checks;
        self.watch.change_spec(&self.spec.watch, &spec.watch);
        if !spec.agents().eq(self.spec.agents()) {
            self.task.refused.clear();
        }
        self.spec = spec.clone();
        if spec.persona.is_some() {
            self.persona.get_or_insert_default();
        }
        if self.progress.then.is_none() {
            self.begin_streak();
        }
        if !spec.guard.stagnation_change {
            self.progress.strategy = None;
        }
        if checks_changed {
            self.progress.board = scoreboard::unknown(&spec.checks);
            self.progress.landed = self.progress.board.clone();
            self.progress.baseline = None;
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
        if ![WATCHING, PARKED, RuleId::ChecksBroken, RuleId::Resting].contains(&reason.rule) {
            return;
        }
        self.leave_waiting(at);
        // A persona also rests with work that did not land; it goes on with that.
        let aside = match self.progress.kept.last().map(|kept| &kept.integrated) {
            Some(Some(Integrated::Aside { .. })) => true,
            Some(None) => self.spec.persona.is_some(),
            Some(Some(Integrated::Landed { .. } | Integrated::InPlace)) | None => false,
        };
        self.progress.work = self.progress.work.take().filter(|_| aside);
        self.phase = Phase::New;
    }

    fn set_baseline(&mut self, board: &Scoreboard, work: Option<&String>, at: Time) {
        if self.progress.baseline.is_none() {
            self.progress.baseline = Some(board.clone());
            self.spend.clock_from = at;
        }
        self.progress.board = board.clone();
        self.progress.landed = board.clone();
        self.progress.work = work.cloned();
        self.phase = Phase::Ready;
    }

    /// Counts the waiting time; returns since when the loop waits, if it does.
    fn leave_waiting(&mut self, at: Time) -> Option<Time> {
        let Phase::Waiting { since, .. } = &self.phase else { return None };
        let since = *since;
        self.spend.asleep += at.since(since);
        Some(at)
    }

    fn begin(&mut self, event: &Event, at: Time) {
        let Event::TurnStarted { turn, task, fence, number, permit, agent, account, resume, chosen } = event else {
            return;
        };
        self.leave_waiting(at);
        if self.task.id.as_ref() != Some(task) {
            self.task.failures = 0;
        }
        if *task == TaskId::of_loop(&self.id, self.task.number + 1) {
            self.task.number += 1;
        }
        self.task.id = Some(task.clone());
        self.task.fence = *fence;
        self.task.started = *number;
        self.task.retry = false;
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
            told: self.people.notes.len(),
            agent: agent.clone(),
            account: account.clone(),
            resume: resume.clone(),
            chosen: chosen.clone(),
            used: None,
            source: UsageSource::Stream,
            measured: Vec::new(),
        }));
        // Neither the session nor the agent of the work is another one after an inward turn.
        if self.inward().is_some() {
            return;
        }
        self.task.worker = worker(agent, account);
        if resume.is_none() {
            self.task.session = None;
        }
    }

    /// The agent ended: the session and the usage of its stream are known from here on.
    fn leave(&mut self, id: &TurnId, exit: &Exit) {
        let inward = self.inward().is_some();
        let Phase::Turn(turn) = &mut self.phase else { return };
        if turn.id != *id {
            return;
        }
        turn.stage = TurnStage::Judging;
        turn.exit = Some(exit.clone());
        let Some(report) = &exit.report else { return };
        let session = if inward { None } else { self.task.session.take() };
        let before = session.filter(|s| report.session.as_ref().is_none_or(|id| *id == s.id));
        let counted = before.as_ref().and_then(|s| s.in_all).unwrap_or_default();
        let said = report.in_all.map_or(report.used, |all| all.since(counted));
        let (used, source) = settle(said, report.telemetry);
        turn.used = Some(used);
        turn.source = source;
        if inward {
            return;
        }
        if !report.last_text.is_empty() {
            self.task.handoff.clone_from(&report.last_text);
        }
        // A fresh session fits again, and may be accepted where this one is refused.
        let too_long = exit.limit().is_some_and(|l| !l.class.holds_account());
        let spinning = matches!(exit.stopped, Some(StopCause::Spinning | StopCause::NoDiff));
        if report.session_lost || too_long || spinning {
            return;
        }
        let Some(session) = report.session.clone().or_else(|| before.as_ref().map(|s| s.id.clone())) else { return };
        // A turn that was cut off by a limit continues: it is not one more.
        let more = u32::from(exit.limit().is_none());
        self.task.session = Some(AgentSession {
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
        self.spend.in_turns += took;
        self.spend.spent = self.spend.spent.plus(settled.spend);
        if settled.estimated {
            self.spend.tokens_exact = settled.tokens_exact && (self.spend.tokens_exact || !self.spend.estimated);
        }
        self.spend.estimated |= settled.estimated;
        self.spend.dearest = self.spend.dearest.most(settled.spend);
        if outcome.counts() || planted::is(Bug::CountsLostTurns) {
            self.task.turns += 1;
        }
        self.progress.tally.count(outcome);
        if self.inward().is_some() {
            return;
        }
        self.task.retry = outcome.retries();
        if matches!(outcome, Outcome::TaskFailed { .. }) {
            self.task.failures += 1;
            self.task.retry = self.task.failures < POISON;
        }
        // A turn that never ran has not delivered the messages in its prompt; later ones were not
        // in it.
        let ran = turn.exit.as_ref().is_some_and(|e| e.spawn_error.is_none());
        if outcome.counts() && ran {
            let told = if planted::is(Bug::ForgetsLateMessages) { usize::MAX } else { turn.told };
            self.people.notes.drain(..told.min(self.people.notes.len()));
        }
        self.take_board(&turn, work, integrated);
        self.take_streaks(&turn, outcome, settled);
        self.remember(&turn, outcome, took);
    }

    fn take_board(&mut self, turn: &Turn, work: Option<&String>, integrated: Option<&Integrated>) {
        let Some(judgement) = &turn.judgement else { return };
        let in_place = matches!(integrated, Some(Integrated::InPlace));
        if work.is_some() || in_place {
            self.progress.board = judgement.board.clone();
            self.progress.work = work.cloned().or(self.progress.work.take());
        }
        if integrated.is_some() {
            self.progress.landed = judgement.board.clone();
        }
        // Work that was not believed is in the folder all the same: a satisfied loop has to check
        // again.
        let content = self.progress.board.all_pass() && self.progress.landed.all_pass() && !self.spec.watch.is_empty();
        if content && integrated.is_none() && self.spec.workspace.mode == WorkspaceMode::InPlace {
            self.progress.board = scoreboard::unknown(&self.spec.checks);
            self.progress.landed = self.progress.board.clone();
        }
        if judgement.changed && (work.is_some() || in_place) {
            self.progress.kept_count += 1;
            self.progress.kept.push(KeptWork {
                task: turn.task.clone(),
                commit: judgement.commit.clone(),
                diffstat: judgement.diffstat.clone(),
                integrated: integrated.cloned(),
            });
            let extra = self.progress.kept.len().saturating_sub(KEPT_LISTED);
            self.progress.kept.drain(..extra);
        }
    }

    fn take_streaks(&mut self, turn: &Turn, outcome: &Outcome, settled: &Settled) {
        if settled.progress {
            self.progress.since_progress = 0;
            self.progress.strategy = None;
            self.begin_streak();
        } else if outcome.counts() {
            self.progress.since_progress += 1;
        }
        match outcome {
            Outcome::NoOp => self.progress.noops += 1,
            Outcome::Interrupted | Outcome::Lost | Outcome::Limited { .. } => {}
            _ => self.progress.noops = 0,
        }
        let Some(judgement) = &turn.judgement else { return };
        let now = judgement.board.fingerprint();
        match self.progress.tries.last() {
            Some(last) if last.fingerprint == now && now != 0 && judgement.changed => self.progress.same_error += 1,
            _ => self.progress.same_error = u32::from(now != 0),
        }
    }

    fn remember(&mut self, turn: &Turn, outcome: &Outcome, took: Duration) {
        let judgement = turn.judgement.as_ref();
        let board = judgement.map_or(&self.progress.board, |j| &j.board);
        let tail = turn.exit.as_ref().map_or("", Exit::last_words);
        self.progress.tries.push(Try {
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
        let extra = self.progress.tries.len().saturating_sub(TRIES_KEPT);
        self.progress.tries.drain(..extra);
    }

    fn resume(&mut self, event: &Event, at: Time) {
        let Event::Resumed { bounds, budget, keeps_clock, .. } = event else { return };
        self.task.refused.clear();
        self.people.paused = None;
        self.people.stop = None;
        if let Some(bounds) = bounds {
            self.spec.bounds = bounds.clone();
        }
        if self.shared_run().is_none()
            && let Some(research) = &mut self.research
        {
            research.resume();
        }
        if let Some(budget) = budget {
            self.spec.guard.budget = budget.clone();
        }
        if let Phase::Ended { ending, at: ended_at } = &self.phase
            && *ending != LoopEnd::Reached
        {
            self.spend.clock_from = if *keeps_clock { self.spend.clock_from + at.since(*ended_at) } else { at };
            self.phase = if self.progress.baseline.is_some() { Phase::Ready } else { Phase::New };
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
            Outcome::Discarded { .. } => &mut self.discarded,
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

fn is_attached(event: &Event) -> bool {
    matches!(event, Event::Attached { .. })
}
