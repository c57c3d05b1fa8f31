//! What an operator asked for. Typed once at the edge; the core never sees flags or files.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{Time, millis, opt_millis};
use crate::watch::WatchSpec;

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

/// When a turn may start. Every number here has its reason in [`GuardSpec::default`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardSpec {
    /// Least time between two starts of this loop.
    #[serde(rename = "gap", with = "millis")]
    pub min_gap: Duration,
    /// Most starts in a minute, an hour, a day.
    pub caps: StartCaps,
    /// What the loop may use in all.
    pub budget: Budget,
    /// Steady rate of an account, over all its loops.
    pub bucket: Option<BucketSpec>,
    /// Spread the allowance of the account's windows, so that it lasts until their reset.
    #[serde(default)]
    pub pace: bool,
    /// Turns that may run at once on this machine.
    #[serde(rename = "slots")]
    pub max_parallel_turns: u32,
    /// The short reflex, Frosty.
    #[serde(rename = "frosty")]
    pub cooldown: CooldownSpec,
    /// The deep reflex, Really Chill Willy.
    #[serde(rename = "willy")]
    pub freeze: FreezeSpec,
    /// First wait after an agent failed; doubles.
    #[serde(with = "millis")]
    pub backoff_first: Duration,
    /// The longest such wait.
    #[serde(with = "millis")]
    pub backoff_cap: Duration,
    /// A turn that takes longer is stopped.
    #[serde(rename = "turn_wall", with = "millis")]
    pub turn_timeout: Duration,
    /// A turn without any sign of life for this long is stopped.
    #[serde(rename = "turn_silence", with = "millis")]
    pub turn_idle_timeout: Duration,
    /// How long an agent with a stream may say nothing, by what it is busy with.
    #[serde(default)]
    pub phases: PhaseLimits,
    /// Turns without progress after which another way is tried, and after as many more a person is told.
    pub stagnation_turns: u32,
    /// The same as time that turns took, where the operator wants it.
    #[serde(default, with = "opt_millis", skip_serializing_if = "Option::is_none")]
    pub stagnation_time: Option<Duration>,
    /// The same in millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stagnation_microusd: Option<u64>,
    /// Whether another way is tried at all before a person is told.
    #[serde(default = "on", skip_serializing_if = "is_on")]
    pub stagnation_change: bool,
}

/// As it is when nobody says anything, and as it was not written before there was a choice.
fn on() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_on(flag: &bool) -> bool {
    *flag
}

/// How long an agent with a stream may say nothing, by what it is busy with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseLimits {
    /// Nothing was heard of it yet.
    pub starting: PhaseLimit,
    /// The model thinks or writes.
    pub model: PhaseLimit,
    /// A tool runs that names no limit of its own.
    pub tool: PhaseLimit,
    /// Another agent works for it.
    pub subagent: PhaseLimit,
    /// It said its last word and has not ended.
    pub after_result: PhaseLimit,
    /// It uses tokens and changes nothing in its workspace.
    #[serde(default = "no_diff", with = "opt_millis")]
    pub no_diff: Option<Duration>,
}

/// Half an hour is long for reading alone, and what was understood by then stands in the conversation.
#[expect(clippy::unnecessary_wraps, reason = "a field's default is the field's type")]
fn no_diff() -> Option<Duration> {
    Some(Duration::from_secs(30 * 60))
}

/// Past `soft` without any other sign of life, or past `hard` in any case, an agent is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseLimit {
    /// With evidence of life it may take longer.
    #[serde(with = "millis")]
    pub soft: Duration,
    /// It may not.
    #[serde(with = "millis")]
    pub hard: Duration,
}

impl Default for PhaseLimits {
    fn default() -> Self {
        let limit = |soft, hard| PhaseLimit { soft: Duration::from_secs(soft), hard: Duration::from_secs(hard) };
        Self {
            // A CLI that loads plugins and servers still says hello within half a minute.
            starting: limit(30, 120),
            // The longest thinking seen is minutes; the CLIs themselves give up a silent stream after five.
            model: limit(180, 900),
            // Builds and test runs.
            tool: limit(600, 3600),
            subagent: limit(1200, 3600),
            // Enough to write a session; a CLI that hangs after its result is a known illness.
            after_result: limit(10, 20),
            no_diff: no_diff(),
        }
    }
}

/// Most starts per window; `None` is no cap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCaps {
    /// Starts in any 60 s.
    pub per_minute: Option<u32>,
    /// Starts in any 60 min.
    pub per_hour: Option<u32>,
    /// Starts in any 24 h.
    pub per_day: Option<u32>,
}

impl StartCaps {
    /// Those that are set: the window's name and length, and the starts in it.
    pub fn windows(&self) -> impl Iterator<Item = (&'static str, Duration, u32)> {
        let all = [("minute", 60, self.per_minute), ("hour", 3600, self.per_hour), ("day", 86_400, self.per_day)];
        all.into_iter().filter_map(|(name, secs, cap)| Some((name, Duration::from_secs(secs), cap?)))
    }
}

/// What a loop may use in all; reserved before a turn, settled after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Turns.
    pub calls: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Millionths of a dollar.
    pub microusd: Option<u64>,
}

/// A token bucket: `burst` starts at once, then one per `every`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSpec {
    /// Size of the bucket.
    pub burst: u32,
    /// Time to refill one start.
    #[serde(with = "millis")]
    pub every: Duration,
}

/// Frosty: starts that die young bring a cooldown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CooldownSpec {
    /// This many deaths…
    pub deaths: u32,
    /// …within this window, or in a row without progress…
    #[serde(with = "millis")]
    pub window: Duration,
    /// …bring a cooldown of this length, doubling while it repeats…
    #[serde(rename = "cooldown", with = "millis")]
    pub first: Duration,
    /// …up to this.
    #[serde(with = "millis")]
    pub cap: Duration,
    /// A failed turn shorter than this died young.
    #[serde(with = "millis")]
    pub young: Duration,
}

/// Really Chill Willy: repeated cooldowns bring a freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeSpec {
    /// This many cooldowns…
    pub cooldowns: u32,
    /// …within this window…
    #[serde(with = "millis")]
    pub window: Duration,
    /// …bring a freeze of this length…
    #[serde(rename = "freeze", with = "millis")]
    pub time: Duration,
    /// …in which one trial start is allowed per this time.
    #[serde(with = "millis")]
    pub canary: Duration,
    /// A second freeze within this time waits for a person…
    #[serde(with = "millis")]
    pub relapse: Duration,
    /// …with one trial start per this time, so that an outage that heals by itself ends by itself.
    #[serde(with = "millis")]
    pub relapse_canary: Duration,
}

impl Default for GuardSpec {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            // A model turn that ends sooner did nothing worth a second one at once.
            min_gap: secs(15),
            // Above what one busy loop does in good health, far below what a runaway does; the gap rules the minute.
            caps: StartCaps { per_minute: None, per_hour: Some(100), per_day: Some(1000) },
            budget: Budget::default(),
            bucket: None,
            // A loop is never slowed down without having been asked to be.
            pace: false,
            // Two agents saturate a laptop; four leave room for turns that wait on a model.
            max_parallel_turns: 4,
            cooldown: CooldownSpec { deaths: 3, window: secs(20), first: secs(60), cap: secs(900), young: secs(20) },
            freeze: FreezeSpec {
                cooldowns: 3,
                window: secs(3600),
                time: secs(3600),
                canary: secs(900),
                relapse: secs(86_400),
                relapse_canary: secs(3600),
            },
            backoff_first: secs(10),
            backoff_cap: secs(300),
            // Long enough for a big refactoring, short enough that a night has several tries.
            turn_timeout: secs(2 * 3600),
            // Without a stream there is only evidence: output, CPU, children, changed files.
            turn_idle_timeout: secs(600),
            phases: PhaseLimits::default(),
            stagnation_turns: 10,
            stagnation_time: None,
            stagnation_microusd: None,
            // A fresh start costs one conversation; a person who is called for nothing costs trust.
            stagnation_change: true,
        }
    }
}

impl GuardSpec {
    /// For commands that cost nothing: no gap and no caps. Frosty and Willy stay.
    #[must_use]
    pub fn free(mut self) -> Self {
        self.min_gap = Duration::ZERO;
        self.caps = StartCaps::default();
        self
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
