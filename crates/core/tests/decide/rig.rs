//! A loop on a bench: inputs in, decisions out, every event applied. No ledger, no clock but its
//! own.

use std::time::Duration;

use everloop_core::action::{Action, Input, Integration, LoopCommand};
use everloop_core::decide::{Context, Decision, PersonaContext, Ready, decide};
use everloop_core::event::{Event, Exit, Integrated, Judgement, Outcome, StopCause};
use everloop_core::guard::Guards;
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId, TurnId};
use everloop_core::immune::Immune;
use everloop_core::isolation::IsolationSpec;
use everloop_core::rhythm::calendar::TableCalendar;
use everloop_core::rhythm::inward::memory::StoredMemory;
use everloop_core::rhythm::row::WaitingSignal;
use everloop_core::rhythm::signal::PersonaName;
use everloop_core::scoreboard::{CheckResult, Scoreboard, Verdict};
use everloop_core::spec::{AgentSpec, Bounds, CheckSpec, GuardSpec, Integrate, LoopSpec, WorkspaceMode, WorkspaceSpec};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_core::watch::{KEEPALIVE, WatchSpec, keepalive_of};

/// A loop on a bench.
pub struct Rig {
    pub state: LoopState,
    pub guards: Guards,
    pub immune: Immune,
    pub now: Time,
    pub draining: bool,
    pub attended: bool,
    pub missing: Vec<String>,
    pub board_task: Option<Ready>,
    pub keepalive_gone: bool,
    /// What a persona's decision reads besides.
    pub waiting: Vec<WaitingSignal>,
    pub known: bool,
    pub related: Vec<(PersonaName, LoopId)>,
    pub memory: StoredMemory,
    decisions: u64,
}

pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn spec(checks: usize) -> LoopSpec {
    let check = |n: usize| CheckSpec {
        name: format!("c{n}"),
        run: "true".to_owned(),
        timeout: secs(60),
        weight: 1,
        pin: String::new(),
        proof: everloop_core::test_evidence::Proof::default(),
        parallel: false,
    };
    LoopSpec {
        goal: "pass".to_owned(),
        checks: (0..checks).map(check).collect(),
        agent: AgentSpec {
            name: "agent".to_owned(),
            argv: vec!["agent".to_owned()],
            pass_env: Vec::new(),
            account: "default".to_owned(),
            turn_microusd: 0,
            turn_tokens: 100,
            ..AgentSpec::default()
        },
        others: Vec::new(),
        workspace: WorkspaceSpec {
            dir: "/repo".to_owned(),
            mode: WorkspaceMode::Git { target: "refs/heads/main".to_owned() },
            integrate: Integrate::Progress,
            setup: None,
            include_dirty: false,
            protect: Vec::new(),
            judge: everloop_core::judge_files::JudgeFiles::default(),
            cache: Vec::new(),
            author: everloop_core::spec::CommitAuthor::Everloop,
            origin: None,
        },
        bounds: Bounds::default(),
        guard: GuardSpec::default(),
        watch: WatchSpec::default(),
        isolation: IsolationSpec::default(),
        research: None,
        persona: None,
        routes: Vec::new(),
    }
}

/// A board on which the first `passing` of `checks` pass.
pub fn board(passing: usize, checks: usize) -> Scoreboard {
    let row = |n: usize| CheckResult {
        name: format!("c{n}"),
        verdict: if n < passing { Verdict::Pass } else { Verdict::Fail },
        weight: 1,
        millis: 1,
        output: String::new(),
        fingerprint: n as u64 + 1,
        reference: None,
    };
    Scoreboard((0..checks).map(row).collect())
}

impl Rig {
    /// A loop with three checks that have not run yet.
    pub fn new() -> Self {
        let now = Time(1_700_000_000_000);
        Self {
            state: LoopState::new(LoopId::new("k"), "test".to_owned(), spec(3), now),
            guards: Guards::new(),
            immune: Immune::default(),
            now,
            draining: false,
            attended: true,
            missing: Vec::new(),
            board_task: None,
            keepalive_gone: false,
            decisions: 0,
            waiting: Vec::new(),
            known: false,
            related: Vec::new(),
            memory: StoredMemory::default(),
        }
    }

    /// The same with another specification.
    pub fn with(change: impl FnOnce(&mut LoopSpec)) -> Self {
        let mut rig = Self::new();
        change(&mut rig.state.spec);
        rig
    }

    /// The loop after its baseline, with its first turn under way.
    pub fn running() -> Self {
        let mut rig = Self::new();
        rig.baseline(0);
        rig
    }

    /// Decides, and applies what was decided as if it had been committed.
    pub fn give(&mut self, input: &Input) -> Decision {
        self.decisions += 1;
        let (node, calendar) = (NodeId::new("here"), TableCalendar::new());
        let ctx = Context {
            now: self.now,
            seed: self.decisions,
            node: &node,
            guards: &self.guards,
            immune: (0, &self.immune),
            shared: None,
            lease: secs(90),
            draining: self.draining,
            attended: self.attended,
            missing: self.missing.clone(),
            current_task: self.current_task(),
            board_task: self.board_task.clone(),
            keepalive: self.keepalive(),
            persona: PersonaContext {
                calendar: &calendar,
                waiting: self.waiting.clone(),
                known: self.known,
                related: self.related.clone(),
                memory: self.memory.clone(),
            },
        };
        let decision = decide(&self.state, input, &ctx);
        self.state = decision.state.clone();
        self.guards = decision.guards.clone();
        self.immune = decision.immune.clone();
        decision
    }

    /// The current keepalive is open unless a test took it away.
    fn keepalive(&self) -> Option<Ready> {
        let id = keepalive_of(&self.state).filter(|_| !self.keepalive_gone)?;
        Some(Ready { id, fence: Fence(0), kind: KEEPALIVE.to_owned(), priority: 0 })
    }

    /// The loop's task as it stands in the ledger.
    fn current_task(&self) -> Option<Ready> {
        let id = self.state.task.id.clone()?;
        let (kind, priority) = match &self.board_task {
            Some(task) if task.id == id => (task.kind.clone(), task.priority),
            _ => ("batch".to_owned(), 0),
        };
        Some(Ready { id, fence: self.state.task.fence, kind, priority })
    }

    /// Puts a task of another author on the board.
    pub fn put(&mut self, id: &str, kind: &str, priority: i32) {
        self.board_task = Some(Ready { id: TaskId::new(id), fence: Fence(4), kind: kind.to_owned(), priority });
    }

    pub fn baseline(&mut self, passing: usize) -> Decision {
        let result = Ok((board(passing, self.state.spec.checks.len()), Some("base".to_owned())));
        self.give(&Input::Baselined { result, notes: Vec::new(), samples: Vec::new() })
    }

    pub fn ask(&mut self, command: LoopCommand) -> Decision {
        self.give(&Input::Command { by: "ann".to_owned(), command })
    }

    pub fn tick(&mut self, after: u64) -> Decision {
        self.now = self.now + secs(after);
        self.give(&Input::Tick)
    }

    /// The id of the running turn.
    pub fn turn(&self) -> TurnId {
        match &self.state.phase {
            Phase::Turn(turn) => turn.id.clone(),
            other => panic!("no turn is under way: {other:?}"),
        }
    }

    /// The agent ends after some seconds.
    pub fn exit(&mut self, after: u64, code: i32) -> Decision {
        self.exit_as(after, Exit { code: Some(code), ..Exit::default() })
    }

    pub fn stopped(&mut self, after: u64, cause: StopCause) -> Decision {
        self.exit_as(after, Exit { signal: Some(15), stopped: Some(cause), ..Exit::default() })
    }

    pub fn exit_as(&mut self, after: u64, exit: Exit) -> Decision {
        let started_at = self.now;
        self.now = self.now + secs(after);
        let exit = Exit { started_at, ended_at: self.now, ..exit };
        self.give(&Input::Exited { turn: self.turn(), exit })
    }

    /// Judges the turn's work: a commit on which this many checks pass.
    pub fn judged(&mut self, passing: usize) -> Decision {
        let found = work(&self.turn(), board(passing, self.state.spec.checks.len()));
        self.judged_as(found)
    }

    pub fn judged_as(&mut self, judgement: Judgement) -> Decision {
        self.give(&Input::Judged { turn: self.turn(), judgement })
    }

    pub fn landed(&mut self) -> Decision {
        let result = Integration::Done(Integrated::Landed { commit: "landed".to_owned() });
        self.give(&Input::Integrated { turn: self.turn(), result })
    }

    pub fn moved(&mut self) -> Decision {
        let result = Integration::Moved("another commit landed".to_owned());
        self.give(&Input::Integrated { turn: self.turn(), result })
    }

    /// A whole turn that changes nothing; the next one is started if it has to wait.
    pub fn no_op(&mut self) -> Decision {
        self.exit(30, 0);
        let (passing, checks) = (self.state.progress.board.passing().len(), self.state.spec.checks.len());
        self.judged_as(Judgement { board: board(passing, checks), ..Judgement::default() })
    }

    /// Waits until the present wait is over.
    pub fn wait_out(&mut self) -> Decision {
        let until = match &self.state.phase {
            Phase::Waiting { reason, .. } => reason.until.expect("it ends by itself"),
            other => panic!("it does not wait: {other:?}"),
        };
        self.now = until;
        self.give(&Input::Tick)
    }

    /// Rule of the present wait.
    pub fn waits_for(&self) -> &str {
        match &self.state.phase {
            Phase::Waiting { reason, .. } => reason.rule.as_str(),
            other => panic!("it does not wait: {other:?}"),
        }
    }

    pub fn phase(&self) -> &'static str {
        self.state.phase.label()
    }
}

/// A judgement of a turn's work.
pub fn work(turn: &TurnId, board: Scoreboard) -> Judgement {
    Judgement {
        changed: true,
        commit: Some(format!("commit-{turn}")),
        pin: Some(format!("refs/everloop/{turn}")),
        diffstat: "1 file".to_owned(),
        board,
        ..Judgement::default()
    }
}

/// The outcome of the turn that a decision ended.
pub fn outcome(decision: &Decision) -> Outcome {
    let found = decision.events.iter().find_map(|e| match e {
        Event::TurnEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    found.expect("the decision ends a turn")
}

/// The names of a decision's actions.
pub fn actions(decision: &Decision) -> Vec<&'static str> {
    let name = |action: &Action| match action {
        Action::Baseline => "baseline",
        Action::Spawn { .. } => "spawn",
        Action::Adopt { .. } => "adopt",
        Action::Stop { .. } => "stop",
        Action::Judge { .. } => "judge",
        Action::Measure { .. } => "measure",
        Action::Record => "record",
        Action::Remember => "remember",
        Action::Integrate { .. } => "integrate",
        Action::Tell { .. } => "tell",
        Action::Look => "look",
        Action::Replay { .. } => "replay",
        Action::Cleanup => "cleanup",
    };
    decision.actions.iter().map(name).collect()
}
