//! Workers of one research run over one ledger: their inputs in any order, writes of one in the
//! middle of another's decision, crashes at any moment. Every experiment is counted once, and the
//! champion moves only from the former champion.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::action::{Action, Input, TurnTrace};
use everloop_core::event::{Event, Exit, Judgement};
use everloop_core::ids::{LoopId, NodeId, TurnId};
use everloop_core::immune::Immune;
use everloop_core::op::{Op, Reply};
use everloop_core::planted::Bug;
use everloop_core::research::judge::Inspection;
use everloop_core::research::row::Row;
use everloop_core::research::sample::{Measured, Sample};
use everloop_core::research::shared::{DOC, SharedRun, divide};
use everloop_core::research::state::ExperimentStep;
use everloop_core::research::{Direction, MetricSpec, ResearchSpec};
use everloop_core::state::{LoopState, Phase, TurnStage};
use everloop_core::time::Time;
use everloop_store::shell::{Circumstances, Committed, InputRun, Progress, Rejected, ShellEffects};
use everloop_store::{Error, Ledger, Model};
use everloop_testkit::planted::Plant;
use everloop_testkit::random::{Random, of_text};
use everloop_testkit::sample;

/// Experiments of a run: fewer than the rung at which one begins from an older keep.
const EXPERIMENTS: u32 = 14;
const WORKERS: u32 = 4;
/// Measurements vary by less than this; changes are worth more.
const NOISE: f64 = 0.5;
/// Decisions after which a run does not end any more.
const STEPS: usize = 4_000;

struct Team {
    ledger: Model,
    run: LoopId,
    live: BTreeMap<LoopId, (LoopState, u64)>,
    todo: Vec<(LoopId, Action)>,
    /// The true value of each commit.
    values: BTreeMap<String, f64>,
    /// The commit that each turn began from.
    begun: BTreeMap<TurnId, String>,
    random: Random,
    noisy: bool,
    now: Time,
    seed: u64,
    /// A write of another worker is under way in the middle of a decision.
    nested: bool,
    broken: Vec<String>,
}

impl Team {
    fn new(seed: u64) -> Self {
        let mut spec = sample::spec();
        spec.checks.clear();
        spec.guard = spec.guard.free();
        spec.bounds.max_turns = Some(EXPERIMENTS);
        let metric = MetricSpec::new("./bench".to_owned(), Direction::Lower);
        spec.research =
            Some(Box::new(ResearchSpec { workers: WORKERS, simplicity: false, ..ResearchSpec::new(metric) }));
        let (run, now) = (LoopId::new("k3f9"), Time(1_700_000_000_000));
        divide(&mut spec, &run);
        let mut team = Self {
            ledger: Model::default(),
            run: run.clone(),
            live: BTreeMap::new(),
            todo: Vec::new(),
            values: BTreeMap::from([("c0".to_owned(), 100_000.0)]),
            begun: BTreeMap::new(),
            random: Random::new(seed),
            noisy: seed % 2 == 1,
            now,
            seed,
            nested: false,
            broken: Vec::new(),
        };
        let first = LoopState::new(run, "run".to_owned(), spec.clone(), now);
        for id in first.team() {
            let state = LoopState::new(id.clone(), id.to_string(), spec.clone(), now);
            team.ledger.transact(now, &state.birth()).unwrap();
        }
        team
    }

    /// Handles an input; after too many conflicts once more, as the next wake would.
    fn give(&mut self, id: &LoopId, input: &Input) {
        for _ in 0..4 {
            match InputRun::new(id, input, &[]).go(self).unwrap() {
                Progress::Done => return,
                Progress::Conflicts | Progress::Full => self.read_again(id).unwrap(),
            }
        }
        self.broken.push(format!("{id}: conflicts without end"));
    }

    /// The supervisor dies: what was not stored is gone.
    fn restart(&mut self) {
        self.todo.clear();
        self.live.clear();
        for row in self.ledger.loops().unwrap() {
            self.live.insert(row.id, (serde_json::from_str(&row.state).unwrap(), row.version));
        }
        let ids: Vec<LoopId> = self.live.keys().cloned().collect();
        for id in ids {
            let gone = self.random.one_in(4);
            let found = match &self.live[&id].0.phase {
                Phase::Turn(turn) if turn.stage == TurnStage::Running && gone => TurnTrace::Gone,
                Phase::Turn(turn) if turn.stage == TurnStage::Running => TurnTrace::Alive,
                _ => TurnTrace::Idle,
            };
            if !self.live[&id].0.is_over() {
                self.give(&id, &Input::Recovered { found });
            }
        }
    }

    /// Carries out one of the actions that are due.
    fn act(&mut self) -> bool {
        if self.todo.is_empty() {
            return false;
        }
        let at = usize::try_from(self.random.below(self.todo.len() as u64)).unwrap();
        let (id, action) = self.todo.swap_remove(at);
        if let Some(input) = self.answer(&id, &action) {
            self.give(&id, &input);
        }
        true
    }

    fn tick(&mut self) {
        let waits = |state: &LoopState| match state.phase {
            Phase::New => state.is_helper(),
            Phase::Waiting { .. } => true,
            _ => false,
        };
        let idle = self.live.values().filter(|(state, _)| waits(state)).map(|(state, _)| state.id.clone());
        for id in idle.collect::<Vec<_>>() {
            self.give(&id, &Input::Tick);
        }
    }

    fn sample(&mut self, commit: &str) -> Sample {
        let noise = if self.noisy { (self.random.below(1_000) as f64 / 1_000.0 - 0.5) * NOISE } else { 0.0 };
        let value = self.values[commit] + noise;
        Sample { result: Measured::Value { value, others: BTreeMap::new() }, millis: 100 }
    }

    fn judged(&mut self, commit: &str) -> Judgement {
        let hash = Some(of_text(self.seed, commit));
        let sample = Some(self.sample(commit));
        let found = Inspection { description: commit.to_owned(), hash, added: 1, removed: 1, scope: 9, sample };
        let (changed, commit) = (true, Some(commit.to_owned()));
        Judgement { changed, commit, experiment: Some(Box::new(found)), ..Judgement::default() }
    }

    fn answer(&mut self, id: &LoopId, action: &Action) -> Option<Input> {
        match action {
            Action::Baseline => {
                let samples = (0..5).map(|_| self.sample("c0")).collect();
                let result = Ok((everloop_core::scoreboard::Scoreboard::default(), Some("c0".to_owned())));
                Some(Input::Baselined { result, notes: Vec::new(), samples })
            }
            Action::Spawn { turn, .. } | Action::Adopt { turn } => {
                let exit = Exit { code: Some(0), started_at: self.now, ended_at: self.now, ..Exit::default() };
                Some(Input::Exited { turn: turn.clone(), exit })
            }
            Action::Judge { turn, .. } => {
                let (base, commit) = (self.begun[turn].clone(), turn.to_string());
                let now = self.live[id].0.next_base().cloned();
                if now.as_ref() != Some(&base) {
                    self.broken.push(format!("{turn} began from {base} and is collected from {now:?}"));
                }
                let worth = of_text(self.seed, &commit) % 3_000;
                let value = self.values[&base] + 500.0 - worth as f64;
                self.values.insert(commit.clone(), value);
                let judgement = self.judged(&commit);
                Some(Input::Judged { turn: turn.clone(), judgement })
            }
            Action::Measure { turn, subject, commit } => {
                let sample = self.sample(commit.as_deref()?);
                Some(Input::Measured { turn: turn.clone(), subject: *subject, sample })
            }
            Action::Replay { turn, commit, base, onto, .. } => {
                let (turn, onto) = (turn.clone(), onto.clone());
                if of_text(self.seed, &format!("{commit} {onto}")).is_multiple_of(5) {
                    return Some(Input::Replayed { turn, onto, result: Err(vec!["f".to_owned()]) });
                }
                let made = format!("{commit} on {onto}");
                let value = self.values[&onto] + self.values[commit] - self.values[base];
                self.values.insert(made.clone(), value);
                let result = Ok(Box::new(Judgement { target: Some(onto.clone()), ..self.judged(&made) }));
                Some(Input::Replayed { turn, onto, result })
            }
            Action::Stop { .. }
            | Action::Record
            | Action::Remember
            | Action::Integrate { .. }
            | Action::Tell { .. }
            | Action::Look
            | Action::Cleanup => None,
        }
    }

    /// Plays to the end; what does not hold afterwards.
    fn play(mut self) -> Vec<String> {
        self.restart();
        for _ in 0..STEPS {
            if self.live.values().all(|(state, _)| state.is_over()) {
                return self.check();
            }
            if self.random.one_in(25) {
                self.restart();
            }
            if !self.act() {
                self.now = self.now + std::time::Duration::from_secs(3600);
            }
            self.tick();
        }
        self.broken.push("it does not end".to_owned());
        self.check()
    }

    fn rows(&self) -> Vec<Row> {
        let steps = self.ledger.journal(0, None, usize::MAX).unwrap().into_iter();
        steps
            .filter_map(|record| match record.event {
                Event::Experiment { step } => match *step {
                    ExperimentStep::Decided { row } => Some(*row),
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }

    /// The document is the fold of the workers' events, and each state that of its own.
    fn check_fold(&mut self) {
        let (mut shared, mut loops) = (SharedRun::default(), BTreeMap::<LoopId, LoopState>::new());
        for record in self.ledger.journal(0, None, usize::MAX).unwrap() {
            let id = record.owner.unwrap();
            match (loops.get_mut(&id), &record.event) {
                (None, Event::LoopCreated { name, spec }) => {
                    let state = LoopState::new(id.clone(), name.clone(), (**spec).clone(), record.at);
                    loops.insert(id, state);
                }
                (Some(state), event) => {
                    state.apply(event, record.at);
                    shared.apply(state.spec.research.as_ref().unwrap(), &id, event);
                }
                (None, _) => self.broken.push(format!("{id} was never made")),
            }
        }
        let stored = self.ledger.doc(DOC, self.run.as_str()).unwrap();
        let stored = stored.map(|row| row.body).unwrap_or_default();
        if stored != shared.text() {
            self.broken.push(format!("the findings are not what the journal says: {stored} and {}", shared.text()));
        }
        for row in self.ledger.loops().unwrap() {
            if serde_json::from_str::<LoopState>(&row.state).unwrap() != loops[&row.id] {
                self.broken.push(format!("the state of {} is not what the journal says", row.id));
            }
        }
    }

    fn check(mut self) -> Vec<String> {
        self.check_fold();
        let rows = self.rows();
        let numbers: Vec<u32> = rows.iter().map(|row| row.number).collect();
        if numbers != (1..=EXPERIMENTS).collect::<Vec<_>>() {
            self.broken.push(format!("experiments {numbers:?}"));
        }
        let tasks: BTreeSet<&str> = rows.iter().map(|row| row.task.as_str()).collect();
        if tasks.len() != rows.len() {
            self.broken.push("a task was counted twice".to_owned());
        }
        let mut champion = "c0".to_owned();
        for row in rows.iter().filter(|row| row.status.keeps()) {
            let commit = row.commit.clone().unwrap();
            if row.base.as_ref() != Some(&champion) {
                self.broken.push(format!("{} was kept on {:?} instead of {champion}", row.number, row.base));
            }
            if self.values[&commit] >= self.values[&champion] {
                self.broken.push(format!("{} was kept and is worse", row.number));
            }
            champion = commit;
        }
        self.broken
    }
}

impl ShellEffects for Team {
    type Ledger = Model;
    type Error = Error;

    fn ledger(&self) -> &Model {
        &self.ledger
    }

    fn live(&self, id: &LoopId) -> Option<(&LoopState, u64)> {
        self.live.get(id).map(|(state, version)| (state, *version))
    }

    fn immune(&self) -> Result<(u64, Immune), Error> {
        let row = self.ledger.doc(everloop_core::immune::DOC, everloop_core::immune::FLEET)?;
        Ok(row.map_or((0, Immune::default()), |row| (row.version, Immune::read(&row.body).unwrap())))
    }

    fn circumstances(&mut self) -> Circumstances {
        Circumstances { now: self.now, seed: self.random.draw(), node: NodeId::new("here"), draining: false }
    }

    fn transact(&mut self, now: Time, batch: &[Op]) -> Result<Vec<Reply>, Rejected<Error>> {
        // Another process is faster: a worker of the same run decides first.
        let mine = batch.iter().find_map(|op| match op {
            Op::Append { owner, .. } => owner.clone(),
            _ => None,
        });
        let other = self.todo.iter().position(|(id, _)| Some(id) != mine.as_ref());
        if let (false, Some(at), true) = (self.nested, other, self.random.one_in(3)) {
            let (id, action) = self.todo.swap_remove(at);
            self.nested = true;
            if let Some(input) = self.answer(&id, &action) {
                self.give(&id, &input);
            }
            self.nested = false;
        }
        match self.ledger.transact(now, batch) {
            Ok(replies) => Ok(replies),
            Err(Error::Refused(refusal)) => Err(Rejected::Refused(refusal)),
            Err(e) => Err(Rejected::Failed(e)),
        }
    }

    fn read_again(&mut self, id: &LoopId) -> Result<(), Error> {
        if let Some(row) = self.ledger.get_loop(id)? {
            self.live.insert(id.clone(), (serde_json::from_str(&row.state).unwrap(), row.version));
        }
        Ok(())
    }

    fn committed(&mut self, committed: Committed) {
        if let Some(champion) = committed.state.research.as_ref().map(|found| &found.champion) {
            let truth = self.values[champion.commit.as_ref().unwrap()];
            if champion.samples.iter().any(|value| (value - truth).abs() > NOISE) {
                self.broken.push("measurements of another commit count for the champion".to_owned());
            }
        }
        self.live.insert(committed.state.id.clone(), (committed.state, committed.version));
    }

    fn perform(&mut self, id: &LoopId, action: Action) -> Result<(), Error> {
        if let Action::Spawn { turn, .. } = &action {
            let base = self.live[id].0.next_base().cloned().unwrap_or_default();
            self.begun.insert(turn.clone(), base);
        }
        self.todo.push((id.clone(), action));
        Ok(())
    }
}

/// Runs that are played.
const SEEDS: u64 = 60;

#[test]
fn workers_count_every_experiment_once_whatever_happens() {
    for seed in 0..SEEDS {
        let broken = Team::new(seed).play();
        assert!(broken.is_empty(), "seed {seed}: {broken:?}");
    }
}

#[test]
fn mistakes_of_workers_are_found() {
    for bug in [Bug::KeepsStaleWinners, Bug::OverwritesFindings, Bug::CountsAfterConflict, Bug::StartsBeyondTheEnd] {
        let _plant = Plant::new(bug);
        let found = (0..SEEDS).find(|seed| !Team::new(*seed).play().is_empty());
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
