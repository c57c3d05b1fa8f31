//! A turn under way: its end, its judgement, its integration, its recovery.

use super::Step;
use crate::action::{Action, Integration, TurnTrace};
use crate::correlated_stalls::Company;
use crate::event::{Event, Exit, Integrated, Judgement, Outcome, Settled, StopCause};
use crate::evidence::{Health, Sample, health};
use crate::guard::reflex::{TurnEnd, reflexes};
use crate::guard::{Freeze, Scope, Spend};
use crate::ids::TurnId;
use crate::judge::{Assessment, assess};
use crate::op::{Op, TaskEnd};
use crate::phase::Gaps;
use crate::planted::{self, Bug};
use crate::recovery::{RecoveryPlan, plan};
use crate::spec::{CooldownSpec, WorkspaceMode};
use crate::state::{POISON, Phase, Turn, TurnStage};
use crate::telemetry::UsageSource;
use crate::time::human;
use std::time::Duration;

/// Why a turn failed that was lost like the one before it. Part of the journal, and compared with.
const LOST_AGAIN: &str = "its process vanished, as in the turn before";

/// Maximum number of judgements of one turn because the target moved; then the work waits for the
/// next turn.
const RETURNS: u32 = 3;

impl Step<'_> {
    fn turn_in(&self, id: &TurnId, stage: TurnStage) -> Option<Turn> {
        match &self.state().phase {
            Phase::Turn(turn) if turn.id == *id && turn.stage == stage => Some((**turn).clone()),
            _ => None,
        }
    }

    pub(super) fn recovered(&mut self, found: &TurnTrace) {
        let plan = plan(self.state(), found);
        let turn = match &self.state().phase {
            Phase::Turn(turn) => Some((**turn).clone()),
            _ => None,
        };
        if let Some(turn) = &turn {
            let word = match (found, turn.stage) {
                (TurnTrace::Alive, _) => "still at work",
                (TurnTrace::Exited(_), _) => "ended meanwhile",
                (TurnTrace::Gone, _) => "gone without a result",
                (TurnTrace::Idle, TurnStage::Running) => "not started",
                (TurnTrace::Idle, TurnStage::Judging | TurnStage::Integrating) => "at its checks",
            };
            self.emit(Event::Recovered { found: format!("{} {word}", turn.id) });
        }
        match (plan, turn) {
            (RecoveryPlan::Baseline, _) => self.act(Action::Baseline),
            (RecoveryPlan::Advance, _) => self.advance(),
            (RecoveryPlan::Redo(action), _) => self.act(action),
            (RecoveryPlan::Adopt, Some(turn)) => {
                self.act(Action::Adopt { turn: turn.id.clone() });
                if let Some(cause) = turn.stopping {
                    self.act(Action::Stop { turn: turn.id, cause });
                }
            }
            (RecoveryPlan::TakeExit(exit), Some(turn)) => self.exited(&turn.id, &exit),
            (RecoveryPlan::GiveBack, Some(turn)) => self.vanished(&turn.id),
            (RecoveryPlan::Nothing | RecoveryPlan::Adopt | RecoveryPlan::TakeExit(_) | RecoveryPlan::GiveBack, _) => {}
        }
    }

    pub(super) fn exited(&mut self, id: &TurnId, exit: &Exit) {
        let Some(turn) = self.turn_in(id, TurnStage::Running) else { return };
        self.emit(Event::TurnExited { turn: id.clone(), exit: exit.clone() });
        if let Some(why) = &exit.spawn_error {
            let outcome = Outcome::AgentFailed { why: format!("could not start: {why}"), kept: false };
            self.end_turn(&turn, exit, (outcome, None, None));
        } else if matches!(exit.stopped, Some(StopCause::Person | StopCause::Shutdown)) {
            // Otherwise it was stopped by the machine's shutdown, or by the agent itself.
            let requested = turn.stopping.is_some();
            let outcome = if requested { Outcome::Interrupted } else { self.loss() };
            self.end_turn(&turn, exit, (outcome, None, None));
        } else {
            self.act(Action::Judge { turn: id.clone(), task: turn.task });
        }
    }

    pub(super) fn vanished(&mut self, id: &TurnId) {
        let Some(turn) = self.turn_in(id, TurnStage::Running) else { return };
        let exit = Exit { started_at: turn.started_at, ended_at: self.ctx.now, ..Exit::default() };
        // A shim that vanishes while its turn is being stopped was killed for that.
        let outcome = if turn.stopping.is_some() { Outcome::Lost } else { self.loss() };
        self.end_turn(&turn, &exit, (outcome, None, None));
    }

    /// What a turn without a proper end counts as. One may be an accident of the machine and is not
    /// charged; the next one in a row is a failure of the agent, which could otherwise take turns
    /// for ever by killing its own shim.
    fn loss(&self) -> Outcome {
        let before = self.state().tries.last().map(|last| &last.outcome);
        let again = match before {
            Some(Outcome::Lost) => true,
            Some(Outcome::AgentFailed { why, .. }) => why == LOST_AGAIN,
            _ => false,
        };
        if again && !planted::is(Bug::LossesNeverCount) {
            return Outcome::AgentFailed { why: LOST_AGAIN.to_owned(), kept: false };
        }
        Outcome::Lost
    }

    pub(super) fn evidence(&mut self, id: &TurnId, sample: &Sample) {
        let Some(turn) = self.turn_in(id, TurnStage::Running) else { return };
        if turn.stopping.is_some() {
            return;
        }
        let account = Scope::Account(turn.account.clone());
        let gaps = self.out.guards.get(&account).map(|v| &v.state.gaps);
        let health = health(sample, &self.state().spec.guard, gaps.unwrap_or(&Gaps::default()));
        if health != Health::Stuck {
            self.close_ticket(&stuck_together(id), "it shows signs of life again");
        }
        if health == Health::Healthy {
            // Also closes the question of an earlier turn: it was answered, or no longer matters.
            self.close_questions(|_| true, "the agent goes on");
        }
        let cause = match health {
            Health::Healthy => return,
            Health::Asking => {
                let text = format!("the agent of turn {} waits for a person's answer", turn.number);
                return self.ticket(asks(&turn.id), text);
            }
            Health::Stuck => match sample.company {
                Company::Alone => StopCause::Stuck,
                Company::Together { stuck, running, tells: true } => {
                    let text = format!(
                        "{stuck} of {running} turns look stuck at the same time; none is stopped, because that is rather \
                         this node or its network than all of them"
                    );
                    return self.ticket(stuck_together(id), text);
                }
                Company::Unclear | Company::Together { .. } => return,
            },
            Health::Spinning => StopCause::Spinning,
            Health::NoDiff => StopCause::NoDiff,
            Health::Lingers => StopCause::Lingers,
            Health::OverWall => StopCause::Wall,
        };
        self.stop_turn(&turn, cause);
    }

    pub(super) fn stop_turn(&mut self, turn: &Turn, cause: StopCause) {
        self.emit(Event::Stopping { turn: turn.id.clone(), cause });
        self.act(Action::Stop { turn: turn.id.clone(), cause });
    }

    pub(super) fn shutdown(&mut self) {
        if let Phase::Turn(turn) = &self.state().phase
            && turn.stage == TurnStage::Running
            && turn.stopping.is_none()
        {
            let turn = (**turn).clone();
            self.stop_turn(&turn, StopCause::Shutdown);
        }
    }

    pub(super) fn judged(&mut self, id: &TurnId, found: &Judgement) {
        let Some(turn) = self.turn_in(id, TurnStage::Judging) else { return };
        let exit = turn.exit.clone().unwrap_or_default();
        let Assessment { outcome, keep, integrate } = assess(self.state(), &exit, found);
        self.emit(Event::TurnJudged { turn: id.clone(), judgement: found.clone() });
        if self.state().spec.workspace.mode == WorkspaceMode::InPlace {
            let landed = keep.then_some(Integrated::InPlace);
            return self.end_turn(&turn, &exit, (outcome, None, landed));
        }
        let line = found.commit.clone().filter(|_| keep);
        // Earlier work that had not passed a further check may be due now, too.
        match found.commit.clone().or_else(|| self.state().work.clone()) {
            Some(commit) if integrate => self.act(Action::Integrate { turn: id.clone(), task: turn.task, commit }),
            _ => self.end_turn(&turn, &exit, (outcome, line, None)),
        }
    }

    pub(super) fn integrated(&mut self, id: &TurnId, result: &Integration) {
        let Some(turn) = self.turn_in(id, TurnStage::Integrating) else { return };
        let (exit, found) = (turn.exit.clone().unwrap_or_default(), turn.judgement.clone().unwrap_or_default());
        let outcome = assess(self.state(), &exit, &found).outcome;
        let line = found.commit.clone().or_else(|| self.state().work.clone());
        match result {
            Integration::Done(how) => self.end_turn(&turn, &exit, (outcome, line, Some(how.clone()))),
            Integration::Moved(why) if turn.returned < RETURNS => {
                self.emit(Event::TurnReturned { turn: id.clone(), why: why.clone() });
                self.act(Action::Judge { turn: id.clone(), task: turn.task });
            }
            Integration::Moved(_) => self.end_turn(&turn, &exit, (Outcome::NotYet, found.commit, None)),
        }
    }

    /// Counts the turn, gives the task back or ends it, applies the guard's reflexes, and advances.
    fn end_turn(&mut self, turn: &Turn, exit: &Exit, what: (Outcome, Option<String>, Option<Integrated>)) {
        let (outcome, work, integrated) = what;
        let turn = &self.latest(turn);
        let settled = settle(turn, exit, &outcome, &self.state().spec.guard.cooldown);
        let ended = Event::TurnEnded {
            turn: turn.id.clone(),
            outcome: outcome.clone(),
            settled: settled.clone(),
            work,
            integrated,
        };
        self.emit(ended);
        self.close_ticket(&stuck_together(&turn.id), "the turn ended");
        // A turn that ended with an open question may still wait for its answer, in a pane for
        // example; the next turn shows whether it does.
        let asked = asks(&turn.id);
        self.close_questions(|key| key != asked || exit.ok(), "a turn ended without a question");
        self.close_task(turn, &outcome);
        self.blame(turn, exit, &outcome);
        let spec = self.state().spec.guard.clone();
        let end = TurnEnd {
            permit: &turn.permit,
            settled: &settled,
            how: &exit.describe(),
            asked: exit.backoff_ms.map(Duration::from_millis),
            limit: exit.limit(),
            spec: &spec,
            seed: self.ctx.seed,
        };
        for event in reflexes(&self.out.guards, &end, self.ctx.now) {
            self.react(event);
        }
        self.say_patterns(settled.progress);
        self.advance();
    }

    /// Closes the matching tickets of agents that wait for a person's answer.
    pub(super) fn close_questions(&mut self, which: impl Fn(&str) -> bool, answer: &str) {
        let asked = |key: &&String| key.starts_with(ASKS) && which(key);
        let keys: Vec<String> = self.state().tickets.iter().filter(asked).cloned().collect();
        for key in keys {
            self.close_ticket(&key, answer);
        }
    }

    /// The turn as the events of this decision have left it.
    fn latest(&self, turn: &Turn) -> Turn {
        match &self.state().phase {
            Phase::Turn(known) if known.id == turn.id => (**known).clone(),
            _ => turn.clone(),
        }
    }

    fn close_task(&mut self, turn: &Turn, outcome: &Outcome) {
        let (task, fence) = (turn.task.clone(), turn.fence);
        let poisoned = matches!(outcome, Outcome::TaskFailed { .. }) && self.state().task_failures >= POISON;
        let result = serde_json::to_string(outcome).expect("an outcome is plain data and always has a JSON form");
        if poisoned {
            self.out.ops.push(Op::Finish { task: task.clone(), fence, state: TaskEnd::Dead, result });
            let text = format!("task {task} failed {POISON} times ({}); it was set aside", outcome.label());
            self.ticket(format!("task.dead:{task}"), text);
        } else if outcome.retries() {
            let failed = matches!(outcome, Outcome::TaskFailed { .. });
            self.out.ops.push(Op::Release { task, fence, ready_at: self.ctx.now, failed });
        } else {
            self.out.ops.push(Op::Finish { task, fence, state: TaskEnd::Done, result });
        }
    }

    fn react(&mut self, event: Event) {
        let tell = match &event {
            Event::Frozen { scope, freeze } => Some((scope.clone(), freeze_text(scope, freeze))),
            _ => None,
        };
        let over = match &event {
            Event::Released { scope, reason, .. } => Some((format!("guard.freeze:{scope}"), reason.clone())),
            _ => None,
        };
        self.emit(event);
        if let Some((scope, text)) = tell {
            self.ticket(format!("guard.freeze:{scope}"), text);
        }
        if let Some((key, reason)) = over {
            self.close_ticket(&key, &reason);
        }
    }
}

/// Prefix of the tickets of agents that wait for a person's answer.
const ASKS: &str = "agent.asks:";

/// Ticket of a turn that waits for a person's answer.
fn asks(turn: &TurnId) -> String {
    format!("{ASKS}{turn}")
}

/// Ticket of turns that look stuck together.
fn stuck_together(turn: &TurnId) -> String {
    format!("turns.stuck:{turn}")
}

/// What a turn is charged, and how it counts for the guard.
fn settle(turn: &Turn, exit: &Exit, outcome: &Outcome, cooldown: &CooldownSpec) -> Settled {
    let failed = matches!(outcome, Outcome::AgentFailed { .. } | Outcome::TaskFailed { .. });
    let limited = matches!(outcome, Outcome::Limited { .. });
    // A limit with a known end is waited for; one without may be a storm, which is Frosty's case.
    let stormy = exit.limit().is_some_and(|l| l.reset_at.is_none() && !l.class.needs_person());
    let young = exit.ended_at.since(exit.started_at) < cooldown.young;
    let (spend, estimated) = charge(turn, exit);
    Settled {
        spend,
        estimated,
        failed,
        died_young: young && (failed || limited && stormy),
        progress: matches!(outcome, Outcome::Progress | Outcome::Reached),
        limited,
        source: turn.source,
    }
}

/// The usage the agent reported, the reservation where it reported none, and whether that is an
/// estimate.
fn charge(turn: &Turn, exit: &Exit) -> (Spend, bool) {
    let reserve = turn.permit.reserve;
    let guess = (reserve, reserve.tokens > 0 || reserve.microusd > 0);
    let Some(used) = turn.used else { return guess };
    let counted = Spend { calls: 1, tokens: used.tokens(), microusd: used.microusd.unwrap_or(0) };
    if exit.report.as_ref().is_none_or(|r| r.ok.is_none()) {
        // The turn was cut off: its usage after the last record is unknown, except through
        // telemetry.
        let most = counted.most(reserve);
        return (most, turn.source == UsageSource::Stream || most != counted);
    }
    match used.microusd {
        Some(_) => (counted, false),
        None if counted.tokens == 0 => (counted, false),
        None => (Spend { microusd: reserve.microusd, ..counted }, true),
    }
}

fn freeze_text(scope: &Scope, freeze: &Freeze) -> String {
    let until = match freeze.until {
        Some(at) => format!("it resumes by itself in {}", human(at.since(freeze.since))),
        None => "it waits for a person".to_owned(),
    };
    let trial = match freeze.canary_at {
        Some(_) => format!(", one trial start per {}", human(Duration::from_millis(freeze.canary_every_ms))),
        None => String::new(),
    };
    let audit = freeze.audit.join("; ");
    format!(
        "{scope} is frozen ({}): {audit}; {until}{trial}; to release it: everloop guard release {scope} --reason TEXT",
        freeze.cause
    )
}
