//! everloop's own decisions about proposals of the arena: `decide` in this process, with the events
//! of a research run and without processes, git or a ledger.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use everloop_core::action::Input;
use everloop_core::decide::{Context, PersonaContext, Ready, decide};
use everloop_core::event::{Exit, Judgement};
use everloop_core::guard::Guards;
use everloop_core::ids::{LoopId, NodeId};
use everloop_core::immune::Immune;
use everloop_core::research::judge::Inspection;
use everloop_core::research::race::baseline_suffices;
use everloop_core::research::sample::{Measured, Sample};
use everloop_core::research::{Direction, MetricSpec, ResearchSpec};
use everloop_core::rhythm::calendar::TableCalendar;
use everloop_core::scoreboard::Scoreboard;
use everloop_core::state::{LoopState, Phase, TurnStage};
use everloop_core::time::Time;

use super::arena::{Curve, Place, Proposals};
use crate::Result;

/// A run whose experiments are proposals of the arena; a commit is the number of a proposal.
struct Run {
    state: LoopState,
    guards: Guards,
    immune: Immune,
    now: Time,
    decisions: u64,
    proposals: Proposals,
    /// Proposals so far; 0 is the start.
    made: u32,
    higher: bool,
    curve: Curve,
}

/// Plays a run to the end of its evaluations. Those of the baseline count, too.
pub fn play(place: &Place, (landscape, higher): (&str, bool), seed: u32, budget: usize) -> Result<Curve> {
    let mut spec = everloop_testkit::sample::spec();
    let direction = if higher { Direction::Higher } else { Direction::Lower };
    spec.research = Some(Box::new(ResearchSpec::new(MetricSpec::new("arena".to_owned(), direction))));
    spec.guard = spec.guard.free();
    spec.bounds.max_turns = None;
    let now = Time(1_700_000_000_000);
    let mut run = Run {
        state: LoopState::new(LoopId::new("k"), landscape.to_owned(), spec, now),
        guards: Guards::new(),
        immune: Immune::default(),
        now,
        decisions: 0,
        proposals: place.serve(landscape, seed)?,
        made: 0,
        higher,
        curve: Curve { best: Vec::new(), seconds: 0.0, evaluating: 0.0 },
    };
    let began = Instant::now();
    run.begin()?;
    while run.curve.best.len() < budget {
        run.step()?;
    }
    run.curve.seconds = began.elapsed().as_secs_f64();
    Ok(run.curve)
}

impl Run {
    fn begin(&mut self) -> Result<()> {
        let value = self.evaluate(None)?;
        let mut values = vec![value];
        // The problems do not vary, so the same value again needs no evaluation; it still counts as one.
        while !baseline_suffices(&values) {
            values.push(value);
            self.curve.best.push(value);
        }
        let samples = values.iter().map(|value| sample(*value)).collect();
        let result = Ok((Scoreboard(Vec::new()), Some("0".to_owned())));
        self.give(&Input::Baselined { result, notes: Vec::new(), samples });
        Ok(())
    }

    fn evaluate(&mut self, parent: Option<u32>) -> Result<f64> {
        let began = Instant::now();
        let value = self.proposals.next(parent)?;
        self.curve.evaluating += began.elapsed().as_secs_f64();
        let best = self.curve.best.last().copied().unwrap_or(value);
        self.curve.best.push(if self.higher { best.max(value) } else { best.min(value) });
        Ok(value)
    }

    fn step(&mut self) -> Result<()> {
        let input = match &self.state.phase {
            Phase::New | Phase::Ready | Phase::Waiting { .. } => {
                self.now = self.now + Duration::from_secs(60);
                Input::Tick
            }
            Phase::Ended { ending, .. } => return Err(format!("the run ended: {ending:?}").into()),
            Phase::Turn(turn) => match turn.stage {
                TurnStage::Running => {
                    let exit = Exit { code: Some(0), started_at: self.now, ended_at: self.now, ..Exit::default() };
                    Input::Exited { turn: turn.id.clone(), exit }
                }
                TurnStage::Judging => {
                    let turn = turn.id.clone();
                    Input::Judged { turn, judgement: self.experiment()? }
                }
                TurnStage::Measuring | TurnStage::Integrating => {
                    return Err("a metric that never varies is measured once".into());
                }
            },
        };
        self.give(&input);
        Ok(())
    }

    /// One proposal from the commit that the state names, and its value.
    fn experiment(&mut self) -> Result<Judgement> {
        let parent = self.state.next_base().ok_or("there is a base")?.parse()?;
        let value = self.evaluate(Some(parent))?;
        self.made += 1;
        let inspection = Inspection {
            description: format!("proposal {}", self.made),
            hash: Some(u64::from(self.made)),
            added: 1,
            removed: 1,
            scope: 100,
            sample: Some(sample(value)),
        };
        Ok(Judgement {
            changed: true,
            commit: Some(self.made.to_string()),
            experiment: Some(Box::new(inspection)),
            ..Judgement::default()
        })
    }

    fn give(&mut self, input: &Input) {
        self.decisions += 1;
        let node = NodeId::new("here");
        let task = &self.state.task;
        let current = task.id.clone().map(|id| Ready { id, fence: task.fence, kind: "batch".to_owned(), priority: 0 });
        let calendar = TableCalendar::new();
        let context = Context {
            now: self.now,
            seed: self.decisions,
            node: &node,
            guards: &self.guards,
            immune: (0, &self.immune),
            shared: None,
            lease: Duration::from_secs(90),
            draining: false,
            attended: true,
            missing: Vec::new(),
            current_task: current,
            board_task: None,
            keepalive: None,
            persona: PersonaContext::quiet(&calendar),
        };
        let decision = decide(&self.state, input, &context);
        (self.state, self.guards, self.immune) = (decision.state, decision.guards, decision.immune);
    }
}

fn sample(value: f64) -> Sample {
    Sample { result: Measured::Value { value, others: BTreeMap::new() }, millis: 1 }
}
