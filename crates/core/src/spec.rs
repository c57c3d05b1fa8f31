//! The specification of a loop. Typed once at the edge; the core never sees flags or files.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::isolation::IsolationSpec;
use crate::judge_files::JudgeFiles;
use crate::prices::Prices;
use crate::research::ResearchSpec;
use crate::rhythm::persona::{PersonaSpec, RouteSpec};
use crate::stream::LimitClass;
use crate::test_evidence::Proof;
use crate::time::{Time, millis, opt_millis};
use crate::watch::WatchSpec;

mod guard;

pub use guard::{
    BucketSpec, Budget, CooldownSpec, FreezeSpec, GuardField, GuardSetting, GuardSpec, PhaseLimit, PhaseLimits,
    StartCaps, guard_settings,
};

/// The account that exists without a section: the one that is logged in on the machine.
pub const DEFAULT_ACCOUNT: &str = "default";

/// Everything a person configures about a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopSpec {
    /// The goal, in a person's words.
    pub goal: String,
    /// Commands that decide whether the goal is reached.
    pub checks: Vec<CheckSpec>,
    /// The preferred agent.
    pub agent: AgentSpec,
    /// Agents that take over while the preferred one's account is held, in the configured order.
    #[serde(default)]
    pub others: Vec<AgentSpec>,
    pub workspace: WorkspaceSpec,
    /// When the loop ends without having reached its goal.
    pub bounds: Bounds,
    /// When a turn may start.
    pub guard: GuardSpec,
    /// Monitors besides the checks.
    #[serde(default, skip_serializing_if = "WatchSpec::is_default")]
    pub watch: WatchSpec,
    /// What its commands may reach.
    #[serde(default, skip_serializing_if = "IsolationSpec::is_default")]
    pub isolation: IsolationSpec,
    /// Set in a loop that is a research run: turns are experiments, and its checks are the guards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub research: Option<Box<ResearchSpec>>,
    /// Set in a loop without an end, which sleeps with nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<Box<PersonaSpec>>,
    /// Entries of streams that become tasks of a loop; those of a persona are in its own part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteSpec>,
}

impl LoopSpec {
    /// All agents, in the configured order.
    pub fn agents(&self) -> impl Iterator<Item = &AgentSpec> {
        std::iter::once(&self.agent).chain(&self.others)
    }

    /// The routes that lead to the loop.
    pub fn routes(&self) -> impl Iterator<Item = &RouteSpec> {
        self.persona.iter().flat_map(|persona| &persona.routes).chain(&self.routes)
    }
}

/// One criterion: a command that passes with exit code 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckSpec {
    /// Unique within the loop.
    pub name: String,
    /// A shell command.
    pub run: String,
    /// A check that takes longer is broken.
    #[serde(with = "millis")]
    pub timeout: Duration,
    /// Share of the score.
    pub weight: u32,
    /// Hash of the command and of the files it names, taken when the loop was created.
    pub pin: String,
    /// What a true pass looks like.
    #[serde(default, skip_serializing_if = "Proof::is_empty")]
    pub proof: Proof,
    /// It may run beside the other checks that may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parallel: bool,
}

/// An agent: a command, or a CLI with options and a stream that everloop supports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentSpec {
    pub name: String,
    #[serde(default)]
    pub kind: AgentKind,
    /// The argument vector. Of a command: `{prompt}` and `{prompt_file}` are replaced; with
    /// neither, the prompt arrives on stdin. Of a supported CLI: the program, and arguments besides
    /// everloop's own.
    pub argv: Vec<String>,
    #[serde(default)]
    pub model: Option<String>,
    /// Permissions without approval by a person.
    #[serde(default)]
    pub permission: Permission,
    /// Commands that it may run besides editing files, as prefixes (`cargo test`).
    #[serde(default)]
    pub allow: Vec<String>,
    /// Names of environment variables that the agent, the checks and the setup may see besides the
    /// built-in allow list.
    pub pass_env: Vec<String>,
    /// Names of environment variables with the agent's own login: for the agent alone, never for
    /// checks, which run what it wrote.
    #[serde(default)]
    pub login: Vec<String>,
    /// Its credential set; turns of one account share caps and rates.
    pub account: String,
    /// Environment variables of the account.
    #[serde(default)]
    pub env: Vec<Variable>,
    /// Base URL of the vendor's API, if not the CLI's default.
    #[serde(default)]
    pub api_base: Option<String>,
    /// Turns after which a fresh session begins; 1 never resumes. 0 stands for the default.
    #[serde(default)]
    pub session_turns: u32,
    /// Assumed cost of a turn, in millionths of a dollar, until the agent reports it.
    pub turn_microusd: u64,
    /// Assumed tokens of a turn, until the agent reports them.
    pub turn_tokens: u64,
    /// Configured prices of its tokens; they come before its own reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Tasks that the agent takes.
    #[serde(default)]
    pub tasks: Tasks,
    /// Whether a CLI with telemetry is configured to send it to everloop.
    #[serde(default, skip_serializing_if = "Telemetry::is_on")]
    pub telemetry: Telemetry,
    /// Of a command: a name that differs from that of every other program, also of one with the
    /// same file name in another folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Of a command: the known CLI whose stream it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<AgentKind>,
    /// Of a command without a stream: sentences of a failed run that are a vendor's limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_rules: Vec<TextLimit>,
}

impl AgentSpec {
    /// The kind by which its output is read.
    pub fn stream_kind(&self) -> AgentKind {
        self.dialect.filter(|_| self.kind == AgentKind::Command).unwrap_or(self.kind)
    }

    /// The account as limits, holds and blame know it. The default one is whatever login is found
    /// on the node, so every kind of agent and every command has one of its own.
    pub fn guard_account(&self) -> String {
        if self.account != DEFAULT_ACCOUNT {
            return self.account.clone();
        }
        match &self.program {
            Some(program) if self.kind == AgentKind::Command => format!("{DEFAULT_ACCOUNT}/{program}"),
            _ => format!("{DEFAULT_ACCOUNT}/{}", self.kind.label()),
        }
    }

    /// The name under which its failures are counted. A bare command is named after its file, which
    /// many programs may be; its program differs.
    pub fn subject(&self) -> &str {
        match &self.program {
            Some(program) if program.starts_with(&format!("{}-", self.name)) => program,
            _ => &self.name,
        }
    }
}

/// A sentence in the output of a command that stands for a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextLimit {
    /// Compared without regard to case.
    pub says: String,
    pub class: LimitClass,
}

/// Selection of tasks for an agent; all by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    /// Accepted kinds; empty accepts every kind. A loop's own tasks are of the kind `batch`.
    pub kinds: Vec<String>,
    pub min_priority: Option<i32>,
    pub max_priority: Option<i32>,
}

impl Tasks {
    /// Whether every task is accepted.
    pub fn all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a task is accepted.
    pub fn include(&self, kind: &str, priority: i32) -> bool {
        let of_kind = self.kinds.is_empty() || self.kinds.iter().any(|k| k == kind);
        of_kind && self.min_priority.is_none_or(|n| priority >= n) && self.max_priority.is_none_or(|n| priority <= n)
    }

    /// A priority at which none of these accepts a task of a kind that none of them names; `None`
    /// when there is no such gap.
    pub fn gap(all: &[&Tasks]) -> Option<i32> {
        // Coverage only changes at these priorities.
        let below = all.iter().filter_map(|t| t.min_priority).map(|n| n.saturating_sub(1));
        let above = all.iter().filter_map(|t| t.max_priority).map(|n| n.saturating_add(1));
        let mut edges = [0].into_iter().chain(below).chain(above);
        edges.find(|priority| !all.iter().any(|t| t.include("", *priority)))
    }
}

/// Whether a CLI sends its telemetry to everloop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Telemetry {
    /// It stays on this node, and only figures are used.
    #[default]
    On,
    Off,
}

impl Telemetry {
    /// Whether this is the default.
    pub fn is_on(&self) -> bool {
        *self == Telemetry::On
    }
}

/// Driver of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// Any command; only its work, its exit code and its signs of life are observed.
    #[default]
    Command,
    Claude,
    Codex,
    Gemini,
    Opencode,
    Copilot,
    /// A CLI that speaks the Agent Client Protocol.
    Acp,
    /// everloop's own agent, which calls a model itself.
    Api,
    /// An interactive agent in a tmux pane.
    Pane,
}

impl AgentKind {
    /// All kinds, in the order of the reference.
    pub const ALL: [AgentKind; 9] = [
        AgentKind::Command,
        AgentKind::Claude,
        AgentKind::Codex,
        AgentKind::Gemini,
        AgentKind::Opencode,
        AgentKind::Copilot,
        AgentKind::Acp,
        AgentKind::Api,
        AgentKind::Pane,
    ];

    /// Name in flags and files.
    pub fn label(self) -> &'static str {
        match self {
            AgentKind::Command => "command",
            AgentKind::Claude => "claude",
            AgentKind::Codex => "codex",
            AgentKind::Gemini => "gemini",
            AgentKind::Opencode => "opencode",
            AgentKind::Copilot => "copilot",
            AgentKind::Acp => "acp",
            AgentKind::Api => "api",
            AgentKind::Pane => "pane",
        }
    }
}

/// Permissions of an agent without approval by a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Edit files in its workspace and run the allowed commands.
    #[default]
    Edits,
    Full,
}

/// An environment variable of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Name that the agent sees.
    pub name: String,
    /// Origin of the value when a turn starts; a secret itself is never stored.
    pub source: VariableSource,
}

/// Origin of a variable's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariableSource {
    /// A variable of the supervisor's own environment.
    Env(String),
    /// The first line of a file.
    File(String),
    /// A plain value that is no secret.
    Plain(String),
}

/// Where turns work and how their work reaches the target branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceSpec {
    /// The project folder of a person.
    pub dir: String,
    /// Isolation of a turn from the person's checkout.
    pub mode: WorkspaceMode,
    /// When work moves onto the target branch.
    pub integrate: Integrate,
    /// A command run in every new checkout before the first turn or check there (`npm ci`).
    pub setup: Option<String>,
    /// Start from the uncommitted state of the person's tree instead of its last commit.
    pub include_dirty: bool,
    /// Globs of existing files that a turn must not change or remove; otherwise its work does not
    /// count.
    pub protect: Vec<String>,
    /// What decides the checks, as it was when the loop was made; empty for loops of before.
    #[serde(default, skip_serializing_if = "JudgeFiles::is_empty")]
    pub judge: JudgeFiles,
    /// Folders that survive in the checks' checkout although git ignores them; only checks write
    /// there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache: Vec<String>,
    /// The author of its commits.
    #[serde(default, skip_serializing_if = "CommitAuthor::is_everloop")]
    pub author: CommitAuthor,
    /// The repository when the loop was made; `None` without git, and for loops of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// The author of a loop's commits. With another author, everloop is named as co-author.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitAuthor {
    #[default]
    Everloop,
    /// The identity in the person's git configuration; everloop without one.
    Person,
    Named {
        name: String,
        email: String,
    },
}

impl CommitAuthor {
    /// Whether everloop itself is the author.
    pub fn is_everloop(&self) -> bool {
        *self == Self::Everloop
    }

    /// `everloop`, `person` or `NAME <EMAIL>`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "everloop" => return Some(Self::Everloop),
            "person" => return Some(Self::Person),
            _ => {}
        }
        let (name, email) = text.trim().strip_suffix('>')?.split_once('<')?;
        let (name, email) = (name.trim().to_owned(), email.trim().to_owned());
        let is_plain = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control() || "<>".contains(c));
        (is_plain(&name) && is_plain(&email)).then_some(Self::Named { name, email })
    }
}

/// The repository when a loop was made. Part of the loop's first event, so that no ref and no file
/// has to be believed later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The commit where the loop began; determines which files existed then.
    pub start: String,
    /// The commit of the target; `None` for a branch without commits.
    pub target: Option<String>,
    /// Digest of the git settings in force: filters, merge drivers, attributes, ignored files.
    pub rules: String,
}

/// Isolation of a turn from the person's checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WorkspaceMode {
    /// A clone of the repository; finished work is moved onto `target` (a full ref name).
    Git {
        /// For example `refs/heads/main`.
        target: String,
    },
    /// The folder itself.
    InPlace,
}

/// When a turn's work moves onto the target branch.
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
    pub max_turns: Option<u32>,
    /// Time since the loop was created.
    #[serde(with = "opt_millis")]
    pub max_time: Option<Duration>,
    pub deadline: Option<Time>,
}

impl Bounds {
    /// The earliest time bound for a loop that began at `from`, and its name.
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
