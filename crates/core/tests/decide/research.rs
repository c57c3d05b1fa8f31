//! Research runs: every kind of outcome, with a crash of the supervisor before every input.

use std::collections::BTreeMap;
use std::time::Duration;

use everloop_core::action::{Action, Input, LoopCommand, TurnTrace};
use everloop_core::event::{Exit, Judgement, LoopEnd};
use everloop_core::research::judge::Inspection;
use everloop_core::research::row::Status;
use everloop_core::research::sample::{Contender, CrashKind, Measured, Sample};
use everloop_core::research::{Direction, MetricSpec, ResearchSpec};
use everloop_core::state::{LoopState, Phase, TurnStage};

use super::rig::{Rig, board};

/// How the change of an experiment turns out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// Its true value.
    Value(f64),
    /// The first look is much better than the true value.
    Lucky {
        look: f64,
        truth: f64,
    },
    /// It crashes until it was mended so often.
    Crash {
        mended: u32,
    },
    BreaksGuard,
    Cheats,
    Nothing,
    Hangs,
    Mute,
}

const SCRIPT: [Change; 10] = [
    Change::Value(90.0),
    Change::Value(95.0),
    Change::Lucky { look: 50.0, truth: 92.0 },
    Change::Crash { mended: 1 },
    Change::BreaksGuard,
    Change::Cheats,
    Change::Nothing,
    Change::Hangs,
    Change::Crash { mended: 9 },
    Change::Value(70.0),
];

/// Deterministic noise around a value.
const NOISE: [f64; 6] = [0.5, -0.5, 0.25, -0.25, 0.4, -0.4];

fn spec() -> ResearchSpec {
    ResearchSpec::new(MetricSpec::new("./bench".to_owned(), Direction::Lower))
}

fn value(value: f64) -> Sample {
    Sample { result: Measured::Value { value, others: BTreeMap::new() }, millis: 100 }
}

/// A run that takes its results from a script.
struct Run {
    rig: Rig,
    script: Vec<Change>,
    /// The measurement that is wanted.
    wanted: Option<Contender>,
    /// The supervisor dies before this input.
    dies_at: Option<usize>,
    inputs: usize,
}

impl Run {
    fn new(script: &[Change], goal: Option<f64>, dies_at: Option<usize>) -> Self {
        let count = u32::try_from(script.len()).expect("scripts are short");
        let rig = Rig::with(|loop_spec| {
            loop_spec.research = Some(Box::new(ResearchSpec { goal_value: goal, ..spec() }));
            loop_spec.bounds.max_turns = Some(count);
            loop_spec.guard = loop_spec.guard.clone().free();
        });
        Self { rig, script: script.to_vec(), wanted: None, dies_at, inputs: 0 }
    }

    fn give(&mut self, input: &Input) {
        if self.dies_at == Some(self.inputs) {
            self.die();
        }
        self.inputs += 1;
        let decision = self.rig.give(input);
        self.note(&decision.actions);
    }

    fn note(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Measure { subject, .. } = action {
                self.wanted = Some(*subject);
            }
        }
    }

    /// What was not stored is gone; the next supervisor finds the rest.
    fn die(&mut self) {
        let stored = serde_json::to_string(&self.rig.state).expect("a state has a JSON form");
        self.rig.state = serde_json::from_str(&stored).expect("it was just written");
        self.wanted = None;
        let found = match &self.rig.state.phase {
            Phase::Turn(turn) if turn.stage == TurnStage::Running => TurnTrace::Alive,
            _ => TurnTrace::Idle,
        };
        let decision = self.rig.give(&Input::Recovered { found });
        self.note(&decision.actions);
    }

    /// The change of the experiment that is under way.
    fn change(&self) -> Change {
        let number = self.rig.state.research.as_ref().map_or(0, |research| research.number);
        self.script[number as usize]
    }

    fn sample(&self, change: Change, nth: usize) -> Sample {
        let mended = self.rig.state.research.as_ref().and_then(|r| r.open.as_ref()).map_or(0, |open| open.fixes);
        let noise = NOISE[nth % NOISE.len()];
        match change {
            Change::Lucky { look, .. } if nth == 0 => value(look),
            Change::Value(truth) | Change::Lucky { truth, .. } => value(truth + noise),
            Change::Crash { mended: needed } if mended < needed => {
                let text = "IndexError: 3".to_owned();
                Sample { result: Measured::Crash { kind: CrashKind::Runtime, text }, millis: 10 }
            }
            Change::Crash { .. } => value(85.0 + noise),
            Change::Hangs => Sample { result: Measured::Timeout { limit_ms: 10_000 }, millis: 10_000 },
            Change::Mute => Sample { result: Measured::Unreadable { why: "no number".to_owned() }, millis: 10 },
            Change::BreaksGuard | Change::Cheats | Change::Nothing => value(1.0),
        }
    }

    fn judgement(&self) -> Judgement {
        let (change, number) = (self.change(), self.rig.state.task.started);
        let passing = if change == Change::BreaksGuard { 2 } else { 3 };
        let inspection = Inspection {
            description: format!("{change:?}"),
            hash: Some(u64::from(number)),
            added: 1,
            removed: 1,
            scope: 100,
            sample: Some(self.sample(change, 0)),
        };
        Judgement {
            changed: change != Change::Nothing,
            commit: Some(format!("commit {number}")),
            violations: if change == Change::Cheats { vec!["bench".to_owned()] } else { Vec::new() },
            board: board(passing, 3),
            experiment: Some(Box::new(inspection)),
            ..Judgement::default()
        }
    }

    /// The next measurement of the race.
    fn measured(&self, subject: Contender) -> Sample {
        let Phase::Turn(turn) = &self.rig.state.phase else { panic!("no turn is measured") };
        let known = turn.measured.iter().filter(|(of, _)| *of == subject).count();
        match subject {
            Contender::Candidate => self.sample(self.change(), known + 1),
            Contender::Champion => {
                let mean = self.rig.state.research.as_ref().map_or(0.0, |research| research.champion.value());
                value(mean + NOISE[known % NOISE.len()])
            }
        }
    }

    fn play(mut self) -> LoopState {
        let samples = [100.5, 99.5, 100.25, 99.75].map(value).to_vec();
        let result = Ok((board(3, 3), Some("base".to_owned())));
        self.give(&Input::Baselined { result, notes: Vec::new(), samples });
        self.go_on()
    }

    /// Plays to the end.
    fn go_on(mut self) -> LoopState {
        for _ in 0..400 {
            match self.rig.state.phase.clone() {
                Phase::Ended { .. } => return self.rig.state,
                Phase::Waiting { .. } | Phase::Ready => {
                    self.rig.now = self.rig.now + Duration::from_secs(3600);
                    self.give(&Input::Tick);
                }
                Phase::New => panic!("the baseline was given"),
                Phase::Turn(turn) => match turn.stage {
                    TurnStage::Running => {
                        let now = self.rig.now;
                        let exit = Exit { code: Some(0), started_at: now, ended_at: now, ..Exit::default() };
                        self.give(&Input::Exited { turn: turn.id, exit });
                    }
                    TurnStage::Judging => {
                        let judgement = self.judgement();
                        self.give(&Input::Judged { turn: turn.id, judgement });
                    }
                    TurnStage::Measuring => {
                        if self.wanted.is_none() {
                            // Only a new supervisor does not know what was wanted.
                            self.die();
                        }
                        let subject = self.wanted.take().expect("a measurement is wanted");
                        let sample = self.measured(subject);
                        self.give(&Input::Measured { turn: turn.id, subject, sample });
                    }
                    TurnStage::Integrating => panic!("an experiment does not land by itself"),
                },
            }
        }
        panic!("it does not end: {:?}", self.rig.state.phase);
    }
}

/// The findings of a run, without times.
fn findings(state: &LoopState) -> Vec<String> {
    let research = state.research.as_ref().expect("a research run");
    let rows = research.rows.iter().map(|row| {
        let (number, status, why) = (row.number, row.status.label(), &row.why);
        format!("{number} {status} {:?} {:?} {why} {} {:?}", row.value, row.samples, row.fixes, row.base)
    });
    rows.chain([format!("{:?}", research.champion)]).collect()
}

fn statuses(state: &LoopState) -> Vec<Status> {
    state.research.iter().flat_map(|research| research.rows.iter().map(|row| row.status)).collect()
}

#[test]
fn every_outcome_is_decided_by_what_was_measured() {
    let state = Run::new(&SCRIPT, None, None).play();
    let expected = [
        Status::Keep,
        Status::Discard,
        Status::Discard,
        Status::Keep,
        Status::Discard,
        Status::Refused,
        Status::NoOp,
        Status::Timeout,
        Status::Crash,
        Status::Keep,
    ];
    assert_eq!(statuses(&state), expected);
    assert_eq!(violations(&state), Vec::<String>::new());
}

#[test]
fn a_supervisor_that_dies_before_any_input_changes_nothing() {
    let calm = Run::new(&SCRIPT, None, None);
    let calm = findings(&calm.play());
    for dies_at in 0..80 {
        let run = Run::new(&SCRIPT, None, Some(dies_at)).play();
        assert_eq!(findings(&run), calm, "it died before input {dies_at}");
    }
}

#[test]
fn two_outputs_without_a_value_end_the_run() {
    let state = Run::new(&[Change::Mute, Change::Mute, Change::Value(1.0)], None, None).play();
    assert_eq!(statuses(&state), [Status::MetricError, Status::MetricError]);
    assert!(matches!(&state.phase, Phase::Ended { ending: LoopEnd::Failed { why }, .. } if why.contains("no number")));
    let key = format!("research.metric:{}", state.id);
    assert!(state.people.tickets.contains(&key), "{:?}", state.people.tickets);
    let mut run = Run::new(&[Change::Mute, Change::Mute, Change::Value(1.0)], None, None);
    run.rig.state = state;
    run.give(&Input::Command { by: "ann".to_owned(), command: LoopCommand::Resume { bounds: None, budget: None } });
    let state = run.go_on();
    assert_eq!(statuses(&state).last(), Some(&Status::Keep));
    assert!(!state.people.tickets.contains(&key), "a value closes it: {:?}", state.people.tickets);
}

#[test]
fn the_ladder_is_climbed_and_nothing_stops_by_itself() {
    let mut script = vec![Change::Value(90.0), Change::Value(80.0)];
    script.extend((0..40).map(|n| Change::Value(200.0 + f64::from(n))));
    let state = Run::new(&script, None, None).play();
    let research = state.research.as_ref().expect("a research run");
    assert_eq!((research.number, research.since_keep()), (42, 40));
    assert!(state.people.tickets.iter().any(|key| key.starts_with("research.stuck:")), "{:?}", state.people.tickets);
    let impatient = {
        let mut run = Run::new(&script, None, None);
        run.rig.state.spec.research.as_mut().expect("a research run").patience = Some(7);
        run.play()
    };
    assert_eq!(impatient.research.as_ref().map(|research| research.number), Some(9));
    let again = {
        let mut run = Run::new(&script, None, None);
        run.rig.state = impatient;
        run.give(&Input::Command { by: "ann".to_owned(), command: LoopCommand::Resume { bounds: None, budget: None } });
        run.go_on()
    };
    assert_eq!(again.research.as_ref().map(|research| research.number), Some(16), "patience begins again");
}

/// What must hold for the findings of the script.
fn violations(state: &LoopState) -> Vec<String> {
    let Some(research) = &state.research else { return vec!["no findings".to_owned()] };
    let mut found = Vec::new();
    for row in &research.rows {
        if row.status == Status::Keep && row.samples.len() < 2 {
            found.push(format!("{} was kept at its first look", row.number));
        }
        if row.status == Status::Keep && row.description.contains("Lucky") {
            found.push(format!("{} was kept for its luck", row.number));
        }
        if row.status.keeps() && row.guard == Some(false) {
            found.push(format!("{} was kept with a broken guard", row.number));
        }
        if matches!(row.status, Status::Crash | Status::Timeout) && row.value.is_some() {
            found.push(format!("{} crashed and has a value", row.number));
        }
    }
    let kept = research.rows.iter().rev().find(|row| row.status.keeps());
    if kept.is_some_and(|row| row.samples.len() > 1 && research.champion.samples.first() == row.samples.first()) {
        found.push("the look that chose the champion counts".to_owned());
    }
    let spec = state.spec.research.as_ref().expect("a research run");
    let goal = spec.goal_value.unwrap_or(f64::MIN);
    let met = research.rows.iter().position(|row| row.status.keeps() && row.value.is_some_and(|v| v <= goal));
    if met.is_some_and(|at| at + 1 < research.rows.len()) {
        found.push("it went on after its goal".to_owned());
    }
    found
}

#[cfg(feature = "planted")]
#[test]
fn planted_mistakes_are_found() {
    use everloop_core::planted::{Bug, plant};
    for bug in [
        Bug::KeepsOnFirstLook,
        Bug::CountsTheFirstLook,
        Bug::KeepsTheLuckyValue,
        Bug::IgnoresBrokenGuards,
        Bug::CrashIsZero,
        Bug::GoalOnlyAtTheEnd,
    ] {
        assert_eq!(violations(&Run::new(&SCRIPT, Some(88.0), None).play()), Vec::<String>::new());
        plant(Some(bug));
        let found = [None, Some(88.0)].map(|goal| violations(&Run::new(&SCRIPT, goal, None).play()));
        plant(None);
        assert!(found.iter().any(|found| !found.is_empty()), "{bug:?} is not found");
    }
}
