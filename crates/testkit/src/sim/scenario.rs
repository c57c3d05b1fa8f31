//! What is simulated: loops, their agents, people and faults. One builder, so that a new scenario
//! is a few lines.

use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::guard::Scope;
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::isolation::CommandAccess;
use everloop_core::op::{Amendment, NewTask, Trust};
use everloop_core::spec::{AgentSpec, Bounds, CheckSpec, LoopSpec, WorkspaceMode, WorkspaceSpec};
use everloop_core::test_evidence::Proof;
use everloop_core::time::Time;
use everloop_core::watch::{MonitorSpec, Target, WatchSpec};

use super::agent::{Kind, Script};
use super::git::Tree;
use crate::sample;

mod known;
mod random;

pub use known::{bad_account, known, storm};
pub use random::random;

const HOUR_MS: u64 = 3_600_000;
/// The name of the only person.
pub(super) const PERSON: &str = "person";

/// A loop and the agent that works for it.
#[derive(Clone, Debug)]
pub struct LoopSetup {
    pub id: LoopId,
    pub spec: LoopSpec,
    /// What its repository holds at first.
    pub tree: Tree,
    pub script: Script,
    /// A check that holds is seen to fail once in so many runs.
    pub flaky: Option<u64>,
    /// Under this account the agent always dies at once.
    pub bad_account: Option<&'static str>,
}

/// Something that comes from outside.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A person sends a command to a loop.
    Ask(LoopId, LoopCommand),
    /// A person holds a scope.
    Hold(Scope),
    /// A person releases it.
    Release(Scope),
    /// A person changes the current task of a loop.
    Amend(LoopId, Amendment),
    /// A person puts a task on the board.
    Enqueue(LoopId),
    /// The operator commits on the target directly.
    OperatorCommits(LoopId),
    /// The operator writes the last commit of the target anew, with its trailer.
    OperatorAmends(LoopId),
    /// Something is there for the monitor of a loop to see.
    News(LoopId),
    /// A person releases everything between a decision and its commit.
    Meddles,
    /// The wall clock jumps by this many milliseconds.
    ClockJumps(i64),
    /// The machine sleeps for this many milliseconds.
    Sleeps(u64),
    /// The supervisor's process ends in good order and comes back.
    Restarts,
    /// From now on nothing fails any more, and the agents behave like this.
    Heals(Option<Kind>),
}

/// A whole world at its beginning.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    pub loops: Vec<LoopSetup>,
    /// What comes from outside, with the time in milliseconds.
    pub happenings: Vec<(u64, Happening)>,
    /// By then all loops must have ended.
    pub limit_ms: u64,
    /// How the loops must end; `None` when either way is right.
    pub ends: Option<&'static str>,
}

impl Scenario {
    /// A world with one loop `a` of so many checks and a good agent; it is to end reached.
    pub fn new(name: &str, checks: u32) -> Self {
        Self {
            name: name.to_owned(),
            loops: vec![LoopSetup::new("a", checks)],
            happenings: Vec::new(),
            limit_ms: 48 * HOUR_MS,
            ends: Some("reached"),
        }
    }

    /// The first loop is changed like this.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut LoopSetup)) -> Self {
        change(&mut self.loops[0]);
        self
    }

    /// One more loop `b` of so many checks and a good agent, changed like this.
    #[must_use]
    pub fn and(mut self, checks: u32, change: impl FnOnce(&mut LoopSetup)) -> Self {
        self.loops.push(LoopSetup::new("b", checks));
        change(&mut self.loops[1]);
        self
    }

    /// Something comes from outside at this second.
    #[must_use]
    pub fn at(mut self, secs: u64, happening: Happening) -> Self {
        self.happenings.push((secs * 1000, happening));
        self
    }

    /// A person sends a command to the first loop at this second.
    #[must_use]
    pub fn ask(self, secs: u64, command: LoopCommand) -> Self {
        let id = self.loops[0].id.clone();
        self.at(secs, Happening::Ask(id, command))
    }

    /// It is to end like this.
    #[must_use]
    pub fn ends(mut self, how: &'static str) -> Self {
        self.ends = Some(how);
        self
    }
}

impl LoopSetup {
    /// A loop with a good agent.
    pub fn new(id: &str, checks: u32) -> Self {
        Self {
            id: LoopId::new(id),
            spec: spec(checks),
            tree: Tree::default(),
            script: Script::always(Kind::Good),
            flaky: None,
            bad_account: None,
        }
    }

    /// How many checks it has.
    pub fn checks(&self) -> u32 {
        self.spec.checks.len() as u32
    }

    /// Whether its turns work in the folder itself.
    pub fn in_place(&self) -> bool {
        self.spec.workspace.mode == WorkspaceMode::InPlace
    }
}

/// Three agents with an account each.
fn three_agents(spec: &mut LoopSpec) {
    for name in ["second", "third"] {
        let other = AgentSpec { name: name.to_owned(), account: name.to_owned(), ..spec.agent.clone() };
        spec.others.push(other);
    }
}

/// The agent may go on under a second account.
fn second_account(spec: &mut LoopSpec) {
    spec.others.push(AgentSpec { account: "own".to_owned(), ..spec.agent.clone() });
}

/// The loop watches something, every so many seconds.
fn watchful(spec: &mut LoopSpec, every: u64, park_after: u32) {
    let monitor = MonitorSpec {
        name: "news".to_owned(),
        target: Target::Stream("news".to_owned()),
        every: Duration::from_secs(every),
        timeout: Duration::from_secs(20),
        title: String::new(),
        prompt: String::new(),
        access: CommandAccess::default(),
    };
    spec.watch = WatchSpec { monitors: vec![monitor], park_after };
}

/// A task that a person queues.
pub(super) fn task(id: String, owner: LoopId, kind: &str, ready_at: Time) -> NewTask {
    NewTask {
        id: TaskId::new(id),
        owner: Some(owner),
        kind: kind.to_owned(),
        title: "look at this".to_owned(),
        prompt: "please".to_owned(),
        priority: 1,
        deps: Vec::new(),
        author: PERSON.to_owned(),
        trust: Trust::Operator,
        ready_at,
    }
}

/// A check of this name.
pub(super) fn check(name: String) -> CheckSpec {
    let (run, timeout) = (format!("./{name}"), Duration::from_secs(60));
    CheckSpec { name, run, timeout, weight: 1, pin: String::new(), proof: Proof::default(), parallel: false }
}

/// The spec of a simulated loop: that of the samples, with checks and a script.
pub fn spec(checks: u32) -> LoopSpec {
    let sample = sample::spec();
    LoopSpec {
        checks: (0..checks).map(|n| check(format!("check{n}"))).collect(),
        agent: AgentSpec { name: "scripted".to_owned(), turn_microusd: 0, turn_tokens: 1000, ..sample.agent },
        workspace: WorkspaceSpec { protect: vec!["checks/**".to_owned()], ..sample.workspace },
        bounds: Bounds { max_turns: Some(40), ..Bounds::default() },
        ..sample
    }
}
