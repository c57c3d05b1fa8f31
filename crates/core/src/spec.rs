//! What an operator asked for. Typed once at the edge; the core never sees flags or files.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{Time, millis, opt_millis};
use crate::watch::WatchSpec;

mod guard;

pub use guard::{
    BucketSpec, Budget, Caps, CooldownSpec, FreezeSpec, GuardField, GuardSetting, GuardSpec, PhaseLimit, PhaseLimits,
    guard_settings,
};

/// The account that is there without a section: whoever is logged in on the machine.
pub const DEFAULT_ACCOUNT: &str = "default";

/// A loop as the operator wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopSpec {
    /// What is to be reached, in the operator's words.
    pub goal: String,
    /// The commands that say whether it is reached.
    pub checks: Vec<CheckSpec>,
    /// Who works on it.
    pub agent: AgentSpec,
    /// Who works on it while that one's account is held, in the operator's order. Empty: nobody.
    #[serde(default)]
    pub others: Vec<AgentSpec>,
    /// Where the work happens.
    pub workspace: WorkspaceSpec,
    /// When to end without having reached it.
    pub bounds: Bounds,
    /// When a turn may start.
    pub guard: GuardSpec,
    /// What is watched besides the checks.
    #[serde(default, skip_serializing_if = "WatchSpec::is_empty")]
    pub watch: WatchSpec,
}

impl LoopSpec {
    /// Everybody who may work on it, in the operator's order.
    pub fn agents(&self) -> impl Iterator<Item = &AgentSpec> {
        std::iter::once(&self.agent).chain(&self.others)
    }
}

/// One criterion: a command whose exit code says whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckSpec {
    /// Unique within the loop.
    pub name: String,
    /// A shell command.
    pub run: String,
    /// A check that takes longer is broken.
    #[serde(with = "millis")]
    pub timeout: Duration,
    /// How much it counts in the score.
    pub weight: u32,
    /// Hash of the command and of the files it names, taken when the loop was made.
    pub pin: String,
}

/// Who takes a turn: a command, or a CLI whose options and stream everloop knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// What it is called in reports.
    pub name: String,
    /// How it is driven.
    #[serde(default)]
    pub kind: AgentKind,
    /// The argument vector. Of a command: `{prompt}` and `{prompt_file}` are replaced; with neither, the prompt arrives on
    /// stdin. Of a known CLI: the program, and arguments that the operator wants besides everloop's own.
    pub argv: Vec<String>,
    /// The model, where the operator wants a certain one.
    #[serde(default)]
    pub model: Option<String>,
    /// What the agent may do without asking.
    #[serde(default)]
    pub permission: Permission,
    /// Commands that it may run besides editing files, as prefixes (`cargo test`).
    #[serde(default)]
    pub allow: Vec<String>,
    /// Names of environment variables that it, the checks and the setup may see besides the built-in allow list.
    pub pass_env: Vec<String>,
    /// Names of environment variables that hold its own login: for it alone, never for checks, which run what it wrote.
    #[serde(default)]
    pub login: Vec<String>,
    /// The credential set it runs under; turns of one account share caps and rates.
    pub account: String,
    /// The account's own environment.
    #[serde(default)]
    pub env: Vec<Variable>,
    /// Where the vendor's API is, if not where the CLI looks by itself.
    #[serde(default)]
    pub api_base: Option<String>,
    /// Turns after which a conversation is ended and a fresh one begins; 1 never resumes. 0 stands for the default.
    #[serde(default)]
    pub session_turns: u32,
    /// What one turn is taken to cost, in millionths of a dollar, until the agent itself reports it.
    pub turn_microusd: u64,
    /// What one turn is taken to use in tokens, until the agent itself reports it.
    pub turn_tokens: u64,
    /// Which tasks it is for.
    #[serde(default)]
    pub tasks: Tasks,
    /// Whether a CLI that can is asked to send everloop its telemetry.
    #[serde(default, skip_serializing_if = "Telemetry::is_on")]
    pub telemetry: Telemetry,
}

/// Which tasks an agent is for; without a word: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    /// Only of these kinds; empty: of every kind. A loop's own tasks are of the kind `batch`.
    pub kinds: Vec<String>,
    /// Only from this priority up.
    pub min_priority: Option<i32>,
    /// Only up to this priority.
    pub max_priority: Option<i32>,
}

impl Tasks {
    /// All of them.
    pub fn all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a task is one of them.
    pub fn include(&self, kind: &str, priority: i32) -> bool {
        let of_kind = self.kinds.is_empty() || self.kinds.iter().any(|k| k == kind);
        of_kind && self.min_priority.is_none_or(|n| priority >= n) && self.max_priority.is_none_or(|n| priority <= n)
    }

    /// A priority for which nobody of these takes a task of a kind that none of them names; `None`: there is always somebody.
    pub fn gap(all: &[&Tasks]) -> Option<i32> {
        // What changes, changes at one of these.
        let below = all.iter().filter_map(|t| t.min_priority).map(|n| n.saturating_sub(1));
        let above = all.iter().filter_map(|t| t.max_priority).map(|n| n.saturating_add(1));
        let mut edges = [0].into_iter().chain(below).chain(above);
        edges.find(|priority| !all.iter().any(|t| t.include("", *priority)))
    }
}

/// Whether a CLI is asked for its telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Telemetry {
    /// It stays on this machine, and figures are all that is wanted.
    #[default]
    On,
    /// The operator does not want it.
    Off,
}

impl Telemetry {
    /// As it is when nobody says anything.
    pub fn is_on(&self) -> bool {
        *self == Telemetry::On
    }
}

/// How an agent is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// Any command; only its work, its exit code and signs of life are looked at.
    #[default]
    Command,
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// opencode.
    Opencode,
    /// everloop's own agent, which talks to a model itself.
    Api,
    /// An interactive agent in a tmux pane.
    Pane,
}

impl AgentKind {
    /// All of them.
    pub const ALL: [AgentKind; 7] = [
        AgentKind::Command,
        AgentKind::Claude,
        AgentKind::Codex,
        AgentKind::Gemini,
        AgentKind::Opencode,
        AgentKind::Api,
        AgentKind::Pane,
    ];

    /// As it is written in flags and files.
    pub fn label(self) -> &'static str {
        match self {
            AgentKind::Command => "command",
            AgentKind::Claude => "claude",
            AgentKind::Codex => "codex",
            AgentKind::Gemini => "gemini",
            AgentKind::Opencode => "opencode",
            AgentKind::Api => "api",
            AgentKind::Pane => "pane",
        }
    }
}

/// What an agent may do without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Edit files in its workspace and run the commands that the operator allows.
    #[default]
    Edits,
    /// Everything.
    Full,
}

/// An environment variable of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// As the agent sees it.
    pub name: String,
    /// Where its value comes from when a turn starts; a secret itself is never stored.
    pub source: VariableSource,
}

/// Where the value of a variable comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariableSource {
    /// A variable of the supervisor's own environment.
    Env(String),
    /// A file; its first line.
    File(String),
    /// A plain value that is no secret.
    Plain(String),
}

/// Where turns work and how their work reaches the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceSpec {
    /// The operator's folder.
    pub dir: String,
    /// Isolation of a turn from the operator's checkout.
    pub mode: WorkspaceMode,
    /// When work moves onto the operator's branch.
    pub integrate: Integrate,
    /// A command run in every new worktree before the first turn or check there (`npm ci`).
    pub setup: Option<String>,
    /// Start from the uncommitted state of the operator's tree instead of its last commit.
    pub include_dirty: bool,
    /// Existing files matching these globs may not be changed or removed by a turn that wants to count.
    pub protect: Vec<String>,
}

/// How a turn is kept apart from the operator's checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WorkspaceMode {
    /// A worktree of the repository; finished work is moved onto `target` (a full ref name).
    Git {
        /// For example `refs/heads/main`.
        target: String,
    },
    /// The folder itself.
    InPlace,
}

/// When a turn's work moves onto the operator's branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integrate {
    /// Whenever more checks pass than before and none that passed fails.
    Progress,
    /// Only when all checks pass.
    Reached,
}

/// When a loop ends without having reached its goal. Empty bounds mean: never.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Turns that may end.
    pub max_turns: Option<u32>,
    /// Time since the loop was made.
    #[serde(with = "opt_millis")]
    pub max_time: Option<Duration>,
    /// A point in time.
    pub deadline: Option<Time>,
}

impl Bounds {
    /// When the first of them is over, for what began at `from`, and its name.
    pub fn end(&self, from: Time) -> Option<(Time, &'static str)> {
        let by_time = self.max_time.map(|d| (from + d, "time"));
        let by_deadline = self.deadline.map(|at| (at, "deadline"));
        [by_time, by_deadline].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(kinds: &[&str], min_priority: Option<i32>, max_priority: Option<i32>) -> Tasks {
        Tasks { kinds: kinds.iter().map(|k| (*k).to_owned()).collect(), min_priority, max_priority }
    }

    #[test]
    fn tasks_are_told_apart_by_kind_and_priority() {
        let small = tasks(&["docs", "lint"], None, Some(0));
        assert!(small.include("docs", 0) && small.include("lint", -3));
        assert!(!small.include("docs", 1) && !small.include("batch", 0) && !small.all());
        assert!(Tasks::default().all() && Tasks::default().include("anything", i32::MIN));
    }

    #[test]
    fn a_task_that_nobody_takes_is_found() {
        let gap = |all: &[Tasks]| Tasks::gap(&all.iter().collect::<Vec<_>>());
        assert_eq!(gap(&[tasks(&["docs"], None, None), Tasks::default()]), None);
        assert_eq!(gap(&[tasks(&[], Some(1), None), tasks(&[], None, Some(0))]), None);
        assert_eq!(gap(&[tasks(&["docs"], None, None)]), Some(0));
        assert_eq!(gap(&[tasks(&[], Some(1), None)]), Some(0));
        assert_eq!(gap(&[tasks(&[], Some(3), None), tasks(&[], None, Some(1))]), Some(2));
        assert_eq!(gap(&[tasks(&[], None, Some(9))]), Some(10));
    }
}
