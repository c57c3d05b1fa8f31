//! Experiments: from the judgement of a turn's work to a kept or discarded change.

use super::Step;
use super::turn::charge;
use crate::action::Action;
use crate::event::{Event, Exit, Judgement, LoopEnd, Outcome, StopCause};
use crate::ids::{TaskId, TurnId};
use crate::judge;
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::research::ResearchSpec;
use crate::research::idea::focus;
use crate::research::judge::{Experiment, ExperimentVerdict};
use crate::research::ladder::{DUAL, Rung};
use crate::research::pareto::{FRONTIER_MOST, FrontierStep, secondary_values};
use crate::research::race::{mean, unbiased};
use crate::research::row::{Row, Status};
use crate::research::sample::{Contender, Measured, Sample};
use crate::research::state::{ExperimentStep, METRIC_ERRORS, ResearchState, SAME_CRASHES};
use crate::research::summary::{is_line_due, status_line};
use crate::state::{LoopState, Turn, TurnStage};

/// Description of the first row.
const BASELINE: &str = "baseline";

impl Step<'_> {
    fn experiment(&mut self, step: ExperimentStep) {
        self.emit(Event::Experiment { step: Box::new(step) });
    }

    /// Records the metric before the first experiment.
    pub(super) fn begin_research(&mut self, samples: &[Sample]) {
        if self.state().spec.research.is_none() {
            return;
        }
        if let Some(research) = &self.state().research {
            if research.is_uncalibrated() && !samples.is_empty() {
                self.experiment(ExperimentStep::Calibrated { samples: samples.to_vec() });
            }
            return;
        }
        let values: Vec<f64> = samples.iter().filter_map(Sample::value).collect();
        let state = self.state();
        let further = state.spec.research.as_deref().map_or(&[][..], |spec| &spec.metric.pareto);
        let secondary = secondary_values(further, &samples.iter().collect::<Vec<_>>());
        let frontier = secondary.filter(|_| !further.is_empty());
        let row = Row {
            frontier: frontier.map(|secondary| FrontierStep { secondary, ..FrontierStep::default() }),
            commit: state.progress.work.clone(),
            value: Some(mean(&values)),
            samples: values,
            guard: (!state.spec.checks.is_empty()).then_some(true),
            millis: samples.iter().map(|sample| sample.millis).sum(),
            description: BASELINE.to_owned(),
            ..Row::new(0, Status::Baseline, TaskId::of_loop(&state.id, 0), self.ctx.now)
        };
        self.experiment(ExperimentStep::Baseline { samples: samples.to_vec(), row: Box::new(row) });
        self.act(Action::Record);
    }

    /// Handles the judgement of an experiment's work.
    pub(super) fn experiment_judged(&mut self, turn: &Turn, exit: &Exit, found: &Judgement) {
        match unfinished(exit, found) {
            Some(outcome) => self.end_turn(turn, exit, (outcome, None, None)),
            None => self.weigh(turn),
        }
    }

    /// Handles a further measurement of candidate or champion.
    pub(super) fn measured(&mut self, id: &TurnId, subject: Contender, sample: &Sample) {
        let Some(turn) = self.turn_in(id, TurnStage::Measuring) else { return };
        // Meanwhile another commit became the champion, and the measurement is none of it.
        let foreign = subject == Contender::Champion && self.state().research.as_ref().is_some_and(|r| r.is_stale());
        if !foreign {
            self.experiment(ExperimentStep::Measured { subject, sample: sample.clone() });
        }
        self.weigh(&turn);
    }

    /// Handles the change of an experiment on a new champion.
    pub(super) fn replayed(&mut self, id: &TurnId, onto: &str, result: &Result<Box<Judgement>, Vec<String>>) {
        let Some(turn) = self.turn_in(id, TurnStage::Measuring) else { return };
        let exit = turn.exit.clone().unwrap_or_default();
        match result {
            Ok(found) if let Some(why) = &found.error => {
                self.end_turn(&turn, &exit, (Outcome::TaskFailed { why: why.clone() }, None, None));
            }
            Ok(judgement) => {
                let (onto, judgement) = (onto.to_owned(), judgement.clone());
                self.experiment(ExperimentStep::Replayed { onto, judgement });
                self.weigh(&turn);
            }
            Err(paths) => {
                let why = format!("it conflicts with the new champion in {}", paths.join(", "));
                self.close_as(&turn, Status::Discard, why);
            }
        }
    }

    /// Ends an experiment with what is known of it.
    fn close_as(&mut self, turn: &Turn, status: Status, why: String) {
        let turn = self.latest(turn);
        let Some((spec, research)) = of(self.state()) else { return };
        let found = turn.judgement.clone().unwrap_or_default();
        let inspection = found.experiment.clone().unwrap_or_default();
        let experiment =
            Experiment { spec: &spec, state: &research, found: &found, inspection: &inspection, again: &turn.measured };
        let row = self.row(&turn, &experiment, (status, why));
        self.close_experiment(&turn, row);
    }

    /// Why no further experiment begins: those under way are the last ones.
    pub(super) fn others_suffice(&self) -> Option<Reason> {
        let (_, research) = of(self.state())?;
        let most = self.state().spec.bounds.max_turns?;
        let begun = research.number.saturating_add(research.others());
        let waits = research.own.is_some() && research.open.is_none() && begun >= most;
        (waits && !planted::is(Bug::StartsBeyondTheEnd)).then(|| Reason::new(RuleId::ResearchOthers).with("of", most))
    }

    /// Decides what an experiment needs next.
    pub(super) fn weigh(&mut self, turn: &Turn) {
        let turn = self.latest(turn);
        let Some((spec, research)) = of(self.state()) else { return };
        let found = turn.judgement.clone().unwrap_or_default();
        let inspection = found.experiment.clone().unwrap_or_default();
        let experiment =
            Experiment { spec: &spec, state: &research, found: &found, inspection: &inspection, again: &turn.measured };
        let exit = turn.exit.clone().unwrap_or_default();
        match experiment.weigh() {
            ExperimentVerdict::Measure(subject) => {
                let commit = match subject {
                    Contender::Candidate => found.commit.clone(),
                    Contender::Champion => research.champion.commit.clone(),
                };
                self.act(Action::Measure { turn: turn.id.clone(), subject, commit });
            }
            ExperimentVerdict::Fix { kind, text } => {
                let why = format!("it crashed ({}), and the next turn mends it", kind.label());
                let commit = found.commit.clone().unwrap_or_default();
                let (plan, (millis, microusd)) = (self.planned(&spec, &research), self.took(&turn));
                self.experiment(ExperimentStep::Crashed { commit, kind, text, plan, millis, microusd });
                self.end_turn(&turn, &exit, (Outcome::Discarded { why }, None, None));
            }
            ExperimentVerdict::Replay => {
                let base = research.own.as_ref().and_then(|own| own.base.clone());
                let (Some(commit), Some(base)) = (found.commit.clone(), base) else { return };
                let onto = research.champion.commit.clone().unwrap_or_default();
                let (turn, task) = (turn.id.clone(), turn.task.clone());
                self.act(Action::Replay { turn, task, commit, base, onto });
            }
            ExperimentVerdict::Decide { status, why } => {
                let row = self.row(&turn, &experiment, (status, why));
                self.close_experiment(&turn, row);
            }
        }
    }

    fn row(&self, turn: &Turn, experiment: &Experiment<'_>, (status, why): (Status, String)) -> Row {
        let (found, research, values) = (experiment.found, experiment.state, experiment.values());
        let crashed = matches!(status, Status::Crash | Status::Timeout | Status::MetricError);
        let zero = planted::is(Bug::CrashIsZero) && crashed;
        let known = !values.is_empty() && !crashed;
        let others = experiment.samples().first().and_then(|sample| match &sample.result {
            Measured::Value { others, .. } => Some(others.clone()),
            Measured::Crash { .. } | Measured::Timeout { .. } | Measured::Unreadable { .. } => None,
        });
        let open = research.open.as_ref();
        let (millis, microusd) = self.took(turn);
        let unmeasured = matches!(status, Status::Refused | Status::NoOp | Status::Repeat);
        let frontier = experiment.frontier(status);
        let why = match frontier.as_ref().and_then(|step| step.crowded_out) {
            Some(oldest) => format!("{why}; experiment {oldest} leaves the frontier, which holds {FRONTIER_MOST}"),
            None => why,
        };
        Row {
            commit: found.commit.clone(),
            base: research.begun_from(),
            value: if zero { Some(0.0) } else { known.then(|| mean(unbiased(&values))) },
            delta: experiment.delta().filter(|_| known),
            samples: values,
            guard: (!unmeasured && !found.board.0.is_empty()).then(|| found.board.all_pass()),
            why,
            millis: open.map_or(0, |open| open.millis) + millis,
            agent: turn.agent.clone(),
            microusd: open.map_or(0, |open| open.microusd) + microusd,
            others: others.unwrap_or_default(),
            fixes: open.map_or(0, |open| open.fixes),
            plan: self.planned(experiment.spec, research),
            hash: experiment.inspection.hash.filter(|_| !crashed),
            frontier,
            luck: if status == Status::Keep { experiment.luck() } else { 0.0 },
            description: experiment.inspection.description.clone(),
            ..Row::new(research.number + 1, status, turn.task.clone(), self.ctx.now)
        }
    }

    /// The strategy of the plan that the experiment is about.
    fn planned(&self, spec: &ResearchSpec, research: &ResearchState) -> Option<u32> {
        match &research.open {
            Some(open) => open.plan,
            None => focus(spec, research, self.state().experiments_left()).plan(),
        }
    }

    /// Milliseconds and millionths of a dollar of the turn.
    fn took(&self, turn: &Turn) -> (u64, u64) {
        let millis = self.ctx.now.since(turn.started_at).as_millis().try_into().unwrap_or(u64::MAX);
        (millis, turn.exit.as_ref().map_or(0, |exit| charge(turn, exit).spend.microusd))
    }

    fn close_experiment(&mut self, turn: &Turn, row: Row) {
        let (status, why, commit) = (row.status, row.why.clone(), row.commit.clone());
        self.experiment(ExperimentStep::Decided { row: Box::new(row) });
        let Some((spec, research)) = of(self.state()) else { return };
        if is_line_due(research.number) {
            self.emit(Event::Note { text: status_line(&spec, &research) });
        }
        // What a shared run does next is decided where all its rows are.
        if research.ends_after.is_none() {
            self.climb(&research);
            self.say_crashes(&research);
            self.say_metric_errors(&research);
        }
        self.act(Action::Record);
        let met = research.meets_goal(&spec) && !planted::is(Bug::GoalOnlyAtTheEnd);
        let found = turn.judgement.clone().unwrap_or_default();
        let outcome = match status {
            Status::Keep | Status::Simpler if met => {
                let text = format!("experiment {} is as good as the goal value", research.champion.number);
                self.emit(Event::Note { text });
                Outcome::Reached
            }
            Status::Keep | Status::Simpler => Outcome::Progress,
            Status::Refused => Outcome::Refused { paths: found.violations },
            Status::NoOp => Outcome::NoOp,
            _ => Outcome::Discarded { why },
        };
        let exit = turn.exit.clone().unwrap_or_default();
        self.end_turn(turn, &exit, (outcome, commit.filter(|_| status.keeps()), None));
    }

    /// Begins the rung of the ladder that is due.
    fn climb(&mut self, research: &ResearchState) {
        let key = format!("research.stuck:{}", self.state().id);
        if research.since_keep() < DUAL {
            self.close_ticket(&key, "an experiment was kept");
        }
        let Some(rung) = Rung::begins(research.since_keep()) else { return };
        let text = format!("{} experiments in a row were not kept: {}", research.since_keep(), rung.describe());
        self.emit(Event::Note { text: text.clone() });
        match rung {
            Rung::Branch => {
                // From what is on record alone: a run that was killed takes the same way.
                if let Some(from) = research.older_keep(research.baseline.to_bits()) {
                    self.experiment(ExperimentStep::Branched { from });
                }
            }
            Rung::DualForcing => self.ticket(key, format!("{text}; the run goes on")),
            Rung::Refine | Rung::NextPlan => {}
        }
    }

    fn say_crashes(&mut self, research: &ResearchState) {
        let key = format!("research.crashes:{}", self.state().id);
        match &research.crash {
            Some((why, n)) if *n >= SAME_CRASHES => {
                self.ticket(key, format!("{n} experiments in a row crashed in the same way: {why}"));
            }
            Some(_) => {}
            None => self.close_ticket(&key, "an experiment did not crash"),
        }
    }

    /// A metric without a value is for a person to mend: it ends the run with a ticket.
    fn say_metric_errors(&mut self, research: &ResearchState) {
        let key = format!("research.metric:{}", self.state().id);
        if research.metric_errors >= METRIC_ERRORS && !planted::is(Bug::MetricEndsSilently) {
            let again = format!("mend it, then: everloop resume {}", self.state().id);
            self.ticket(key, format!("{}; {again}", metric_failed(research)));
        } else if research.metric_errors == 0 {
            self.close_ticket(&key, "the metric has a value again");
        }
    }

    /// How a research run ends besides its bounds.
    pub(super) fn research_ending(&self) -> Option<LoopEnd> {
        let (spec, research) = of(self.state())?;
        if let Some(last) = research.ends_after {
            return (research.number >= last).then(|| LoopEnd::Exhausted { bound: "turns".to_owned() });
        }
        if research.meets_goal(&spec) && !planted::is(Bug::GoalOnlyAtTheEnd) {
            return Some(LoopEnd::Reached);
        }
        if research.metric_errors >= METRIC_ERRORS {
            return Some(LoopEnd::Failed { why: metric_failed(&research) });
        }
        if planted::is(Bug::StopsWhenStuck) && research.rung() == Some(Rung::DualForcing) {
            return Some(LoopEnd::Exhausted { bound: "patience".to_owned() });
        }
        (!research.is_patient(spec.patience)).then(|| LoopEnd::Exhausted { bound: "patience".to_owned() })
    }
}

fn metric_failed(research: &ResearchState) -> String {
    let why = research.rows.last().map_or("", |row| row.why.as_str());
    format!("the metric gave no value {METRIC_ERRORS} times in a row: {why}")
}

/// The parts of a research run; `None` for any other loop.
fn of(state: &LoopState) -> Option<(ResearchSpec, ResearchState)> {
    Some((state.spec.research.as_deref()?.clone(), state.research.as_deref()?.clone()))
}

/// The outcome of a turn that made no experiment: its work is not looked at.
fn unfinished(exit: &Exit, found: &Judgement) -> Option<Outcome> {
    if let Some(why) = &found.error {
        return Some(Outcome::TaskFailed { why: why.clone() });
    }
    if let (Some(limit), None | Some(StopCause::Announced)) =
        (exit.limit().filter(|l| l.class.holds_account()), exit.stopped)
    {
        return Some(Outcome::Limited { class: limit.class, kept: false });
    }
    if exit.report.as_ref().is_some_and(|r| r.session_lost) && !found.changed {
        return Some(Outcome::Lost);
    }
    let stopped = !exit.ok() && exit.stopped != Some(StopCause::Budget);
    stopped.then(|| judge::failed(exit, false, false).outcome)
}
