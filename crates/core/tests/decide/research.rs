//! Research runs: every kind of outcome, with a crash of the supervisor before every input.

use std::collections::BTreeMap;
use std::time::Duration;

use everloop_core::action::{Action, Input, LoopCommand, TurnTrace};
use everloop_core::event::{Event, Exit, Judgement, LoopEnd};
use everloop_core::research::judge::Inspection;
use everloop_core::research::pareto::SecondaryMetric;
use everloop_core::research::row::{Row, Status};
use everloop_core::research::sample::{Contender, CrashKind, Measured, Sample};
use everloop_core::research::state::ExperimentStep;
use everloop_core::research::{Direction, MetricSpec, ResearchSpec};
use everloop_core::state::{LoopState, Phase, TurnStage};

use super::rig::{Rig, board};

/// How the change of an experiment turns out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
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
    /// Its true value and its size, where that counts.
    Sized {
        truth: f64,
        size: f64,
    },
    /// The same difference as every other change of this kind.
    Same,
}

pub const SCRIPT: [Change; 10] = [
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

/// Keeps, and smaller changes that are not as good.
pub const FRONTIER: [Change; 7] = [
    Change::Value(90.0),
    Change::Sized { truth: 95.0, size: 50.0 },
    Change::Sized { truth: 97.0, size: 60.0 },
    Change::Sized { truth: 92.0, size: 80.0 },
    Change::Value(93.0),
    Change::Value(80.0),
    Change::Sized { truth: 93.0, size: 50.0 },
];

/// Deterministic noise around a value.
const NOISE: [f64; 6] = [0.5, -0.5, 0.25, -0.25, 0.4, -0.4];

fn spec() -> ResearchSpec {
    ResearchSpec::new(MetricSpec::new("./bench".to_owned(), Direction::Lower))
}

/// The size of everything that has no other one.
pub const SIZE: f64 = 100.0;

fn value(value: f64) -> Sample {
    sized(value, SIZE)
}

fn sized(value: f64, size: f64) -> Sample {
    Sample { result: Measured::Value { value, others: BTreeMap::from([("size".to_owned(), size)]) }, millis: 100 }
}

/// A run that takes its results from a script.
pub struct Run {
    pub rig: Rig,
    script: Vec<Change>,
    /// All rows, also those that the state no longer holds.
    rows: Vec<Row>,
    /// The measurement that is wanted.
    wanted: Option<Contender>,
    /// The supervisor dies before this input.
    dies_at: Option<usize>,
    inputs: usize,
}

/// What a run came to.
pub struct Played {
    pub state: LoopState,
    pub script: Vec<Change>,
    pub rows: Vec<Row>,
}

/// Inputs after which a run of the longest script is over.
const MOST_INPUTS: usize = 400;

impl Run {
    pub fn new(script: &[Change], goal: Option<f64>, dies_at: Option<usize>) -> Self {
        let count = u32::try_from(script.len()).expect("scripts are short");
        let rig = Rig::with(|loop_spec| {
            loop_spec.research = Some(Box::new(ResearchSpec { goal_value: goal, ..spec() }));
            loop_spec.bounds.max_turns = Some(count);
            loop_spec.guard = loop_spec.guard.clone().free();
        });
        Self { rig, script: script.to_vec(), rows: Vec::new(), wanted: None, dies_at, inputs: 0 }
    }

    /// A run in which the size counts, too.
    pub fn with_frontier(dies_at: Option<usize>) -> Self {
        let mut run = Self::new(&FRONTIER, None, dies_at);
        let research = run.rig.state.spec.research.as_mut().expect("a research run");
        research.metric.pareto = vec![SecondaryMetric { name: "size".to_owned(), direction: Direction::Lower }];
        run
    }

    fn give(&mut self, input: &Input) {
        if self.dies_at == Some(self.inputs) {
            self.die();
        }
        self.inputs += 1;
        let decision = self.rig.give(input);
        self.note(&decision.actions);
        for event in &decision.events {
            if let Event::Experiment { step } = event
                && let ExperimentStep::Decided { row } = step.as_ref()
            {
                self.rows.push(row.as_ref().clone());
            }
        }
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
        self.script.get(number as usize).copied().unwrap_or(Change::Nothing)
    }

    fn sample(&self, change: Change, nth: usize) -> Sample {
        let mended = self.rig.state.research.as_ref().and_then(|r| r.open.as_ref()).map_or(0, |open| open.fixes);
        let noise = NOISE[nth % NOISE.len()];
        match change {
            Change::Lucky { look, .. } if nth == 0 => value(look),
            Change::Value(truth) | Change::Lucky { truth, .. } => value(truth + noise),
            Change::Sized { truth, size } => sized(truth + noise, size),
            Change::Crash { mended: needed } if mended < needed => {
                let text = "IndexError: 3".to_owned();
                Sample { result: Measured::Crash { kind: CrashKind::Runtime, text }, millis: 10 }
            }
            Change::Crash { .. } => value(85.0 + noise),
            Change::Hangs => Sample { result: Measured::Timeout { limit_ms: 10_000 }, millis: 10_000 },
            Change::Mute => Sample { result: Measured::Unreadable { why: "no number".to_owned() }, millis: 10 },
            Change::Same => value(95.0 + noise),
            Change::BreaksGuard | Change::Cheats | Change::Nothing => value(1.0),
        }
    }

    fn judgement(&self) -> Judgement {
        let (change, number) = (self.change(), self.rig.state.task.started);
        let passing = if change == Change::BreaksGuard { 2 } else { 3 };
        let inspection = Inspection {
            description: format!("{change:?}"),
            hash: Some(if change == Change::Same { 0 } else { u64::from(number) }),
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

    pub fn play(self) -> LoopState {
        self.played().state
    }

    pub fn played(mut self) -> Played {
        let samples = [100.5, 99.5, 100.25, 99.75].map(value).to_vec();
        let result = Ok((board(3, 3), Some("base".to_owned())));
        self.give(&Input::Baselined { result, notes: Vec::new(), samples });
        self.go_on()
    }

    /// Plays to the end, or until it is clear that there is none.
    fn go_on(mut self) -> Played {
        for _ in 0..MOST_INPUTS {
            match self.rig.state.phase.clone() {
                Phase::Ended { .. } => break,
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
        Played { state: self.rig.state, script: self.script, rows: self.rows }
    }
}

/// The findings of a run, without times.
fn findings(state: &LoopState) -> Vec<String> {
    let research = state.research.as_ref().expect("a research run");
    let rows = research.rows.iter().map(|row| {
        let (number, status, why) = (row.number, row.status.label(), &row.why);
        format!("{number} {status} {:?} {:?} {why} {} {:?}", row.value, row.samples, row.fixes, row.base)
    });
    rows.chain([format!("{:?} {:?}", research.champion, research.frontier)]).collect()
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
fn the_frontier_holds_what_nothing_dominates_and_moves_no_champion() {
    let state = Run::with_frontier(None).play();
    let expected = [
        Status::Keep,
        Status::Frontier,
        Status::Discard,
        Status::Frontier,
        Status::Discard,
        Status::Keep,
        Status::Frontier,
    ];
    assert_eq!(statuses(&state), expected);
    let research = state.research.as_ref().expect("a research run");
    let members: Vec<u32> = research.frontier.iter().map(|member| member.number).collect();
    assert_eq!(members, [4, 6, 7], "what is dominated left: {:?}", research.frontier);
    assert_eq!((research.champion.number, research.since_keep()), (6, 1), "the frontier ends no count");
    let calm = findings(&state);
    for dies_at in 0..40 {
        let run = Run::with_frontier(Some(dies_at)).play();
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
    let state = run.go_on().state;
    assert_eq!(statuses(&state).last(), Some(&Status::Keep));
    assert!(!state.people.tickets.contains(&key), "a value closes it: {:?}", state.people.tickets);
}

/// Two keeps, then nothing better.
fn stuck_script() -> Vec<Change> {
    let keeps = [Change::Value(90.0), Change::Value(80.0)];
    keeps.into_iter().chain((0..40).map(|n| Change::Value(200.0 + f64::from(n)))).collect()
}

/// What must hold for a run that is stuck, and for one whose metric has no value any more.
fn broken_promises() -> Vec<&'static str> {
    let stuck = Run::new(&stuck_script(), None, None).play();
    let mute = Run::new(&[Change::Mute, Change::Mute, Change::Value(1.0)], None, None).play();
    let has = |state: &LoopState, key: &str| state.people.tickets.iter().any(|ticket| ticket.starts_with(key));
    let found = stuck.research.as_ref().expect("a research run");
    let begun_elsewhere = found.rows.iter().any(|row| row.base.is_some() && row.base != found.champion.commit);
    let rules = [
        ("nothing stops by itself", found.number == 42),
        ("a run that is stuck for long has a ticket", has(&stuck, "research.stuck:")),
        ("a rung begins from an older keep", begun_elsewhere),
        ("a metric without a value has a ticket", has(&mute, "research.metric:")),
    ];
    rules.into_iter().filter(|(_, holds)| !holds).map(|(rule, _)| rule).collect()
}

#[cfg(feature = "planted")]
#[test]
fn planted_mistakes_of_the_ladder_are_found() {
    use everloop_core::planted::{Bug, plant};
    assert_eq!(broken_promises(), [""; 0]);
    for (bug, rule) in [
        (Bug::StopsWhenStuck, "nothing stops by itself"),
        (Bug::RungNeverChanges, "a run that is stuck for long has a ticket"),
        (Bug::MetricEndsSilently, "a metric without a value has a ticket"),
    ] {
        plant(Some(bug));
        let found = broken_promises();
        plant(None);
        assert!(found.contains(&rule), "{bug:?}: {found:?}");
    }
}

#[test]
fn the_ladder_is_climbed_and_nothing_stops_by_itself() {
    assert_eq!(broken_promises(), [""; 0]);
    let script = stuck_script();
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
        run.go_on().state
    };
    assert_eq!(again.research.as_ref().map(|research| research.number), Some(16), "patience begins again");
}
