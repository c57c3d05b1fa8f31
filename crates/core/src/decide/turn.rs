//! A turn under way: its end, its judgement, its integration, its recovery.

use super::Step;
use super::rhythm::LastTurn;
use crate::action::{Action, Integration, TurnTrace};
use crate::correlated_stalls::Company;
use crate::event::{Event, Exit, Integrated, Judgement, Outcome, Settled, StopCause};
use crate::evidence::{Health, Sample, health};
use crate::guard::reflex::{Trial, TurnEnd, reflexes};
use crate::guard::{Freeze, Scope, Spend};
use crate::ids::{LoopId, TurnId};
use crate::judge::{Assessment, assess};
use crate::op::{Op, TaskEnd};
use crate::permission::PERMISSION;
use crate::phase::Gaps;
use crate::planted::{self, Bug};
use crate::prices;
use crate::recovery::{RecoveryPlan, plan};
use crate::rhythm::inward::Inward;
use crate::spec::{CooldownSpec, WorkspaceMode};
use crate::state::{POISON, Phase, Turn, TurnStage, UNPRICED_MOST, worker};
use crate::stream::{LimitClass, VendorLimit};
use crate::telemetry::UsageSource;
use crate::time::human;
use std::time::Duration;

/// Why a turn failed that was lost like the one before it. Part of the journal, and compared with.
const LOST_AGAIN: &str = "its process vanished, as in the turn before";

/// Maximum number of judgements of one turn because the target moved; then the work waits for the
/// next turn.
const RETURNS: u32 = 3;

impl Step<'_> {
    pub(super) fn turn_in(&self, id: &TurnId, stage: TurnStage) -> Option<Turn> {
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
                (TurnTrace::Idle, TurnStage::Measuring) => "being measured",
            };
            self.emit(Event::Recovered { found: format!("{} {word}", turn.id) });
        }
        match (plan, turn) {
            (RecoveryPlan::Baseline, _) if self.is_unattended() => {}
            (RecoveryPlan::Baseline, _) => self.request_baseline(),
            (RecoveryPlan::Advance, _) => self.advance(),
            (RecoveryPlan::Redo(action), _) => self.act(action),
            (RecoveryPlan::Weigh, Some(turn)) => self.weigh(&turn),
            (RecoveryPlan::Adopt, Some(turn)) => {
                self.act(Action::Adopt { turn: turn.id.clone() });
                if let Some(cause) = turn.stopping {
                    self.act(Action::Stop { turn: turn.id, cause });
                }
            }
            (RecoveryPlan::TakeExit(exit), Some(turn)) => self.exited(&turn.id, &exit),
            (RecoveryPlan::GiveBack, Some(turn)) => self.vanished(&turn.id),
            (
                RecoveryPlan::Nothing
                | RecoveryPlan::Adopt
                | RecoveryPlan::TakeExit(_)
                | RecoveryPlan::GiveBack
                | RecoveryPlan::Weigh,
                _,
            ) => {}
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
        } else if self.state().inward().is_some() {
            self.end_inward(&turn, exit);
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
        let before = self.state().progress.tries.last().map(|last| &last.outcome);
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
        let account = turn.permit.account().and_then(|scope| self.out.guards.get(scope));
        let gaps = account.map(|v| &v.state.gaps);
        let health = health(sample, &self.state().spec.guard, gaps.unwrap_or(&Gaps::default()));
        if health != Health::Stuck {
            self.close_ticket(&stuck_together(id), "it shows signs of life again");
        }
        if health == Health::Healthy {
            // Also closes the question of an earlier turn: it was answered, or no longer matters.
            self.close_questions(|_| true, "the agent goes on");
        }
        // Its CLI waits for an answer without a word in its stream.
        if health != Health::OverWall && self.asks_for_permission() {
            return;
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
            Health::Announced => StopCause::Announced,
            Health::OverWall => StopCause::Wall,
        };
        self.stop_turn(&turn, cause);
    }

    fn asks_for_permission(&self) -> bool {
        self.state().people.tickets.iter().any(|key| key.starts_with(PERMISSION))
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
        if self.state().spec.research.is_some() {
            return self.experiment_judged(&turn, &exit, found);
        }
        if self.state().spec.workspace.mode == WorkspaceMode::InPlace {
            let landed = keep.then_some(Integrated::InPlace);
            return self.end_turn(&turn, &exit, (outcome, None, landed));
        }
        let line = found.commit.clone().filter(|_| keep);
        // Earlier work that had not passed a further check may be due now, too.
        match found.commit.clone().or_else(|| self.state().progress.work.clone()) {
            Some(commit) if integrate => self.act(Action::Integrate { turn: id.clone(), task: turn.task, commit }),
            _ => self.end_turn(&turn, &exit, (outcome, line, None)),
        }
    }

    pub(super) fn integrated(&mut self, id: &TurnId, result: &Integration) {
        let Some(turn) = self.turn_in(id, TurnStage::Integrating) else { return };
        let (exit, found) = (turn.exit.clone().unwrap_or_default(), turn.judgement.clone().unwrap_or_default());
        let outcome = assess(self.state(), &exit, &found).outcome;
        let line = found.commit.clone().or_else(|| self.state().progress.work.clone());
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
    pub(super) fn end_turn(&mut self, turn: &Turn, exit: &Exit, what: (Outcome, Option<String>, Option<Integrated>)) {
        let (outcome, work, integrated) = what;
        self.last = left_off(exit, work.as_ref(), integrated.as_ref());
        let turn = &self.latest(turn);
        let refused = refusal(turn, exit, &outcome).cloned();
        let settled = settle(turn, exit, (&outcome, refused.as_ref()), &self.state().spec.guard.cooldown);
        let ended = Event::TurnEnded {
            turn: turn.id.clone(),
            outcome: outcome.clone(),
            settled: settled.clone(),
            work,
            integrated,
        };
        let before = self.state().since_then();
        let inward = self.state().inward();
        if inward.is_some() {
            self.last.wish = None;
        }
        self.emit(ended);
        self.close_ticket(&stuck_together(&turn.id), "the turn ended");
        // A turn that ended with an open question may still wait for its answer, in a pane for
        // example; the next turn shows whether it does.
        let asked = asks(&turn.id);
        self.close_questions(|key| key != asked || exit.ok(), "a turn ended without a question");
        let waiting: Vec<String> =
            self.state().people.tickets.iter().filter(|key| key.starts_with(PERMISSION)).cloned().collect();
        for key in waiting {
            self.close_ticket(&key, "the turn that asked has ended");
        }
        self.close_task(turn, &outcome, inward);
        self.blame(turn, exit, &outcome);
        if let Some(limit) = &refused {
            self.refuse(turn, limit);
        }
        self.say_unpriced(turn, exit);
        let spec = self.state().spec.guard.clone();
        let end = TurnEnd {
            permit: &turn.permit,
            settled: &settled,
            how: &exit.describe(),
            asked: exit.backoff_ms.map(Duration::from_millis),
            limit: exit.limit(),
            refused: refused.is_some(),
            trial: Trial::of(&outcome),
            spec: &spec,
            seed: self.ctx.seed,
        };
        for event in reflexes(&self.out.guards, &end, self.ctx.now) {
            self.react(event);
        }
        if inward.is_none() {
            self.say_patterns(settled.progress, &before);
        }
        // Here too, because a persona that is paused meanwhile does not come to its rest.
        if !self.state().task.retry {
            self.end_work();
        }
        if let Some(inward) = inward {
            self.take_answer(inward, exit, (&outcome, settled.spend));
        }
        self.advance();
    }

    /// Reports a model without a known price, once per loop: its turns cost no dollars that a budget
    /// could count.
    fn say_unpriced(&mut self, turn: &Turn, exit: &Exit) {
        let Some(report) = &exit.report else { return };
        let (Some(model), Some(used)) = (&report.model, &turn.used) else { return };
        let unpriced = used.tokens() > 0 && prices::dollars(used, report.rates.as_ref()).is_none();
        let said = &self.state().spend.unpriced;
        if unpriced && said.len() < UNPRICED_MOST && !said.contains(model) {
            self.emit(Event::PriceUnknown { agent: turn.agent.clone(), model: model.clone() });
        }
    }

    /// The vendor refuses what the agent requests: it is not started again as it is.
    fn refuse(&mut self, turn: &Turn, limit: &VendorLimit) {
        let (agent, account) = (turn.agent.clone(), turn.account.clone());
        let key = refusal_key(&self.state().id, &worker(&agent, &account));
        let text = format!(
            "the agent `{agent}` is not started again, because its request itself is refused: {}; change its \
             model or settings and `everloop config apply`, or try again with `everloop wake {}`",
            limit.text,
            self.state().id
        );
        self.emit(Event::AgentRefused { agent, account, limit: limit.clone() });
        self.ticket(key, text);
    }

    /// Closes the tickets of refused agents that may start again.
    pub(super) fn close_refusals(&mut self) {
        let state = self.state();
        let still: Vec<String> = state.task.refused.keys().map(|w| refusal_key(&state.id, w)).collect();
        let over = |key: &&String| key.starts_with(REFUSED) && !still.contains(key);
        let keys: Vec<String> = state.people.tickets.iter().filter(over).cloned().collect();
        for key in keys {
            self.close_ticket(&key, "it may start again");
        }
    }

    /// Closes the matching tickets of agents that wait for a person's answer.
    pub(super) fn close_questions(&mut self, which: impl Fn(&str) -> bool, answer: &str) {
        let asked = |key: &&String| key.starts_with(ASKS) && which(key);
        let keys: Vec<String> = self.state().people.tickets.iter().filter(asked).cloned().collect();
        for key in keys {
            self.close_ticket(&key, answer);
        }
    }

    /// The turn as the events of this decision have left it.
    pub(super) fn latest(&self, turn: &Turn) -> Turn {
        match &self.state().phase {
            Phase::Turn(known) if known.id == turn.id => (**known).clone(),
            _ => turn.clone(),
        }
    }

    fn close_task(&mut self, turn: &Turn, outcome: &Outcome, inward: Option<Inward>) {
        let (task, fence) = (turn.task.clone(), turn.fence);
        let poisoned = matches!(outcome, Outcome::TaskFailed { .. }) && self.state().task.failures >= POISON;
        let result = serde_json::to_string(outcome).expect("an outcome is plain data and always has a JSON form");
        if poisoned {
            self.out.ops.push(Op::Finish { task: task.clone(), fence, state: TaskEnd::Dead, result });
            let text = format!("task {task} failed {POISON} times ({}); it was set aside", outcome.label());
            self.ticket(format!("task.dead:{task}"), text);
        } else if outcome.retries() && inward.is_none() {
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

/// Prefix of the tickets of agents that the vendor refuses.
const REFUSED: &str = "agent.refused:";

/// Ticket of an agent that the vendor refuses.
fn refusal_key(owner: &LoopId, worker: &str) -> String {
    format!("{REFUSED}{owner}:{worker}")
}

/// The refusal of the request itself, if repeating it is of no use. One in a session that had begun
/// may concern that session only, and a fresh one follows.
fn refusal<'a>(turn: &Turn, exit: &'a Exit, outcome: &Outcome) -> Option<&'a VendorLimit> {
    let limit = exit.limit().filter(|l| l.class == LimitClass::Request && exit.stopped.is_none())?;
    let worked = exit.report.as_ref().is_some_and(|r| r.tools > 0);
    let failed = matches!(outcome, Outcome::AgentFailed { .. });
    (failed && turn.resume.is_none() && !worked).then_some(limit)
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
fn settle(
    turn: &Turn,
    exit: &Exit,
    (outcome, refused): (&Outcome, Option<&VendorLimit>),
    cooldown: &CooldownSpec,
) -> Settled {
    let failed = matches!(outcome, Outcome::AgentFailed { .. } | Outcome::TaskFailed { .. });
    let limited = matches!(outcome, Outcome::Limited { .. });
    let young = exit.ended_at.since(exit.started_at) < cooldown.young;
    Settled {
        failed,
        // A limit holds the account by itself, on a ladder where its end is unknown; a refused agent
        // does not start again. Neither is Frosty's case.
        died_young: young && failed && refused.is_none(),
        progress: matches!(outcome, Outcome::Progress | Outcome::Reached),
        limited,
        source: turn.source,
        ..charge(turn, exit)
    }
}

fn left_off(exit: &Exit, work: Option<&String>, integrated: Option<&Integrated>) -> LastTurn {
    let commit = match integrated {
        Some(Integrated::Landed { commit } | Integrated::Aside { commit, .. }) => Some(commit),
        Some(Integrated::InPlace) | None => work,
    };
    LastTurn { wish: exit.wish.clone(), words: exit.last_words().to_owned(), commit: commit.cloned() }
}

/// The usage that the agent reported, the reservation where it reported none, and which of it is an
/// estimate.
pub(super) fn charge(turn: &Turn, exit: &Exit) -> Settled {
    let reserve = turn.permit.reserve;
    let Some(used) = turn.used else {
        return Settled { spend: reserve, estimated: reserve.tokens > 0 || reserve.microusd > 0, ..Settled::default() };
    };
    let report = exit.report.as_deref();
    let dollars = prices::dollars(&used, report.and_then(|r| r.rates.as_ref()));
    let counted = Spend { calls: 1, tokens: used.tokens(), microusd: dollars.map_or(0, |d| d.microusd) };
    let by_list = dollars.is_some_and(|d| d.estimated);
    if report.is_none_or(|r| r.ok.is_none()) {
        // The turn was cut off: its usage after the last record is unknown, except through
        // telemetry.
        let spend = counted.most(reserve);
        let tokens_exact = turn.source == UsageSource::Telemetry && spend.tokens == counted.tokens;
        let estimated = !tokens_exact || by_list || spend != counted;
        return Settled { spend, estimated, tokens_exact: estimated && tokens_exact, ..Settled::default() };
    }
    let assumed = if dollars.is_none() && counted.tokens > 0 { reserve.microusd } else { 0 };
    let estimated = by_list || assumed > 0;
    let spend = Spend { microusd: counted.microusd + assumed, ..counted };
    Settled { spend, estimated, tokens_exact: estimated, ..Settled::default() }
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
