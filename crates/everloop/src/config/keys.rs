//! The keys of everloop.toml: their names, their kinds, and (as doc comments) what they mean.
//!
//! The comments become the JSON Schema and `docs/config.md`. Numbers are not here: defaults come from the core.

use std::collections::BTreeMap;

use everloop_core::spec;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Visitor, value::Error};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use super::notify::NotifyKeys;
use super::value::{
    AgentKindName, Amount, ApiFormat, CommandLine, Count, CountLimit, Deadline, Dollars, FileVariables, Flag, Gap,
    List, ListenAddress, NamedVariables, NonEmptyText, PermissionKey, PlainVariables, Price, Priority, Span, TimeLimit,
    VariableName, choose,
};

/// A file that says which loops there are and how they work.
///
/// Values are taken from, in rising order: built-in, `config.toml` of the user, `everloop.toml`, the environment, flags.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "everloop.toml")]
#[expect(dead_code, reason = "the shape of the whole file, for the schema; it is read section by section")]
pub struct ConfigFile {
    /// The keys of a loop, used where a loop says nothing.
    defaults: Option<LoopKeys>,
    /// Agents that can take a turn, by name. `claude`, `codex`, `gemini`, `opencode` and `api` are there without a section.
    agent: Option<BTreeMap<String, AgentKeys>>,
    /// Accounts of agents, by name.
    account: Option<BTreeMap<String, AccountKeys>>,
    /// Loops, by name.
    r#loop: Option<BTreeMap<String, LoopKeys>>,
    /// The supervisor on this machine.
    node: Option<NodeKeys>,
    /// The hub of a mesh.
    hub: Option<HubKeys>,
    /// The board as a file of the project.
    board: Option<BoardKeys>,
    /// Who hears how the loops of the project are doing.
    mailbox: Option<MailboxKeys>,
    /// Who hears what happens to tasks.
    tracker: Option<TrackerKeys>,
    /// Who is told of tickets.
    notify: Option<Vec<NotifyKeys>>,
    /// Sessions in this project that everloop did not start.
    hook: Option<HookKeys>,
    /// Files that may not shrink in such a session.
    guardian: Option<GuardianKeys>,
    /// Signs of being complete, by name.
    completion: Option<BTreeMap<String, CompletionKeys>>,
}

/// Where the hub's address is found. The address itself holds a password and never stands in this file.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HubKeys {
    /// The name of the variable of your environment that holds the address `postgres://…`.
    pub url_env: Option<VariableName>,
    /// The file whose first line is the address; readable by you alone.
    pub url_file: Option<NonEmptyText>,
}

/// The supervisor on this machine.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NodeKeys {
    /// Where `everloop up` answers `/health` and `/metrics`: an address and port of loopback, or `off`. A port that is taken
    /// is replaced by a free one.
    pub listen: Option<ListenAddress>,
}

/// The board as a file of the project.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BoardKeys {
    /// Where it is written, like `tasks/board.json`, relative to this file. The folder `inbox` beside it takes wishes of agents.
    /// Without it nothing is written.
    pub file: Option<NonEmptyText>,
}

/// Who hears how the loops of the project are doing.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MailboxKeys {
    /// A command that gets a status as JSON on standard input every few turns and when a loop ends. It has 20 seconds; what it
    /// answers is not read, and its failure disturbs nothing: it is tried again later, with the status as it is then.
    pub command: Option<CommandLine>,
    /// A server that gets it by POST instead: `https://…`, or `http://` on this machine.
    pub url: Option<NonEmptyText>,
    /// The variable of the supervisor's environment that holds the token for it (`Authorization: Bearer`).
    pub token_env: Option<VariableName>,
    /// The file whose first line is the token.
    pub token_file: Option<NonEmptyText>,
    /// After how many turns.
    pub every: Option<Count>,
}

/// Who hears what happens to tasks.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrackerKeys {
    /// A command that is run with `create`, `claim`, `complete` or `comment` and the task's id behind it, and gets the task as JSON on
    /// standard input. As for the mailbox, nobody waits for it. While it fails, what happens is kept and told later, in order; a
    /// command that ends with 65 does not want this one.
    pub command: Option<CommandLine>,
    /// A server that gets it by POST instead: `https://…`, or `http://` on this machine. The header `Idempotency-Key` is the same
    /// when something is told again.
    pub url: Option<NonEmptyText>,
    /// The variable of the supervisor's environment that holds the token for it (`Authorization: Bearer`).
    pub token_env: Option<VariableName>,
    /// The file whose first line is the token.
    pub token_file: Option<NonEmptyText>,
}

/// How far a session is held that everloop did not start: a person's `claude`, `codex` or `gemini` in this project.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HookKeys {
    /// The loop whose checks say whether a session may stop. Without it: the only loop of this file.
    pub r#loop: Option<NonEmptyText>,
    /// A session is held at most this often in a row while it changes nothing; then it may stop and you are told.
    pub max_holds: Option<Count>,
    /// And at most this often after one prompt of yours.
    pub holds_in_all: Option<Count>,
    /// Time for all checks together when a session wants to stop. If they need longer it may stop.
    pub check_timeout: Option<Span>,
    /// Percent of the context window at which the session is asked to write down what the next one must know.
    pub handoff_at: Option<Count>,
    /// Tokens that the context window holds.
    pub context_tokens: Option<Amount>,
}

/// Files that a session may not lose: its memory, plan and notes.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GuardianKeys {
    /// Globs of these files, from the folder of this file.
    pub files: Option<List>,
    /// Percent that one of them may lose at once. More is refused, or put back.
    pub max_shrink_percent: Option<Count>,
}

/// A sign that somebody else's work gives of being complete. It is told as a signal: an event, and the loop looks again. Whether the
/// goal is reached only the checks say.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompletionKeys {
    /// A Markdown file with boxes: complete when none of them is open (`- [ ]`).
    pub plan: Option<NonEmptyText>,
    /// A line that says exactly this: in what an agent says last, or in the file `within`.
    pub marker: Option<NonEmptyText>,
    /// The file in which the marker is looked for.
    pub within: Option<NonEmptyText>,
    /// A file: complete when it is there.
    pub file: Option<NonEmptyText>,
    /// Only for this loop. Without it: for all loops of this file.
    pub r#loop: Option<NonEmptyText>,
}

/// A goal, its checks, and the rules by which agents work on it.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoopKeys {
    /// What is to be reached, in your words. The agent reads it; only the checks decide.
    pub goal: Option<NonEmptyText>,
    /// Which agent works on it: `claude`, `codex`, `gemini`, `opencode`, `api`, or the NAME of an `[agent.NAME]`.
    /// `NAME@ACCOUNT` lets it run under that `[account.ACCOUNT]`.
    pub agent: Option<NonEmptyText>,
    /// Several of them, instead of `agent`: the first works on it; while its account is held, the next one does.
    pub agents: Option<List>,
    /// A command that works on it, instead of `agent`. `{prompt}` and `{prompt_file}` are replaced; with neither, the
    /// prompt arrives on stdin. With shell syntax in it (`|`, `>`, `$X`, …) it is run by `sh`.
    pub agent_cmd: Option<CommandLine>,
    /// The model, instead of the agent's; of several agents, for those of the same kind as the first.
    pub model: Option<NonEmptyText>,
    /// What the agent may do without asking, instead of the agent's: `edits` or `full`.
    pub permission: Option<PermissionKey>,
    /// Commands that the agent may run under `edits`, instead of the agent's list.
    pub allow: Option<List>,
    /// Shell commands that say whether the goal is reached: each must exit with 0. For names, times and weights use
    /// `[[loop.NAME.check]]`.
    pub checks: Option<List>,
    /// Checks with a name, a time and a weight.
    pub check: Option<Vec<CheckKeys>>,
    /// More globs of existing files that a turn may not change, besides the built-in ones (tests, CI, this file).
    pub protect: Option<List>,
    /// Globs of files that a turn may change although a built-in or own glob protects them.
    pub unprotect: Option<List>,
    /// `git`: each turn works in a worktree of its own. `in-place`: in the folder itself. `auto`: git where there is a
    /// repository.
    pub workspace: Option<WorkspaceKey>,
    /// When work moves onto your branch: with every `progress`, or only when the goal is `reached`.
    pub integrate: Option<IntegrateKey>,
    /// A shell command run in every new worktree before anything else there, for example `npm ci`.
    pub setup: Option<NonEmptyText>,
    /// Start from the uncommitted state of your tree instead of its last commit.
    pub include_dirty: Option<Flag>,
    /// The folder to work in, relative to this file.
    pub dir: Option<NonEmptyText>,
    /// Turns after which the loop ends.
    pub max_turns: Option<CountLimit>,
    /// Time after which the loop ends.
    pub max_time: Option<TimeLimit>,
    /// A point in time at which the loop ends; without a zone it is your local time.
    pub deadline: Option<Deadline>,
    /// Dollars that the loop may use in all.
    pub max_usd: Option<Dollars>,
    /// Tokens that the loop may use in all.
    pub max_tokens: Option<CountLimit>,
    /// Starts of an agent that the loop may use in all, also failed ones.
    pub max_calls: Option<CountLimit>,
    /// What is watched besides the checks. A loop with monitors does not end when its checks pass: it watches.
    pub monitor: Option<Vec<MonitorKeys>>,
    /// Beats without news after which a loop that has nothing to do is parked: then it looks ten times as rarely. `"none"`: never.
    pub park_after: Option<CountLimit>,
    /// When a turn may start.
    pub guard: Option<GuardKeys>,
}

/// One criterion.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["run"]))]
pub struct CheckKeys {
    /// How it is called on the scoreboard; unique. Without it, a short form of the command.
    pub name: Option<NonEmptyText>,
    /// A shell command; exit code 0 means that the criterion holds.
    pub run: Option<NonEmptyText>,
    /// A check that takes longer counts as broken.
    pub timeout: Option<Span>,
    /// How much it counts in the score.
    pub weight: Option<Count>,
}

/// One thing that is watched: exactly one of `file`, `command`, `stream`, `mailbox` and `http`.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorKeys {
    /// How it is called; unique. Without it, its kind.
    pub name: Option<NonEmptyText>,
    /// Files that match this glob, from the loop's folder: one appeared, changed or went.
    pub file: Option<NonEmptyText>,
    /// A shell command, run in the loop's folder: its exit code or its output changed.
    pub command: Option<NonEmptyText>,
    /// A file to which lines are added: there are new ones.
    pub stream: Option<NonEmptyText>,
    /// A box of messages like `@reviewer`: there are new ones (`everloop send @reviewer`).
    pub mailbox: Option<NonEmptyText>,
    /// An address: its status, its etag or else its body changed.
    pub http: Option<NonEmptyText>,
    /// How often it is looked at; at least a second lies between two looks.
    pub every: Option<Span>,
    /// A look that takes longer has failed; at most ten minutes. After three in a row you are told.
    pub timeout: Option<Span>,
    /// What the task is called that a change makes.
    pub title: Option<NonEmptyText>,
    /// What you want done about a change. What the monitor saw is quoted below it, as data.
    pub prompt: Option<NonEmptyText>,
}

/// An agent that can take a turn: a command, or a CLI that everloop knows.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentKeys {
    /// How it is driven. Without it: the section's name where that is a kind, else `command`. Of a CLI that everloop knows
    /// it reads sessions, usage and limits; `api` is everloop's own agent; `pane` is an interactive agent in tmux.
    pub kind: Option<AgentKindName>,
    /// The command, as a list of words or as one text that is split like in a shell (and run by `sh` when it has shell
    /// syntax in it). `{prompt}` and `{prompt_file}` are replaced; with neither, the prompt arrives on stdin. Of a known CLI:
    /// the program, if it is not the usual one, and further arguments; the prompt is handed over by itself.
    pub command: Option<CommandLine>,
    /// The model, if not the one that the CLI takes by itself.
    pub model: Option<NonEmptyText>,
    /// What it may do without asking. `edits`: change files, and run what `allow` names. `full`: run everything as you.
    pub permission: Option<PermissionKey>,
    /// Commands that it may run under `edits`, as beginnings: `"cargo test"` also allows `cargo test --doc`.
    pub allow: Option<List>,
    /// Names of environment variables that it may see besides the built-in few. A known CLI under the account `default` also
    /// sees those that hold its own login.
    pub pass_env: Option<List>,
    /// The `[account.NAME]` it runs under; loops that share an account share its rates and limits.
    pub account: Option<NonEmptyText>,
    /// Where the vendor's API is, if not where the CLI looks by itself.
    pub api_base: Option<NonEmptyText>,
    /// Turns after which a conversation is ended and a fresh one begins; 1 never goes on with one.
    pub session_turns: Option<Count>,
    /// The API format that the kind `api` uses.
    pub api_format: Option<ApiFormat>,
    /// The variable that holds the key of the kind `api`; without it `ANTHROPIC_API_KEY` for `messages`, `OPENAI_API_KEY` for
    /// `responses`.
    pub key_env: Option<VariableName>,
    /// A PEM file of certificates that the kind `api` trusts besides those of this machine: `"~/company-root.pem"`, or from
    /// the root of the file system.
    pub ca_file: Option<NonEmptyText>,
    /// The pane of the kind `pane`.
    pub pane: Option<NonEmptyText>,
    /// What one turn is taken to cost, in dollars, until the agent reports it itself.
    pub usd_per_turn: Option<Price>,
    /// What one turn is taken to use, in tokens, until the agent reports it itself.
    pub tokens_per_turn: Option<Amount>,
    /// Only tasks of these kinds are for it (`everloop task add --kind`); a loop's own are of the kind `batch`. Of a loop's
    /// `agents` the first that a task is for takes it, so name those for few tasks first.
    pub kinds: Option<List>,
    /// Only tasks from this priority up are for it; a loop's own have 0.
    pub min_priority: Option<Priority>,
    /// Only tasks up to this priority are for it.
    pub max_priority: Option<Priority>,
    /// Its turns cost nothing: no minimum gap and no caps, unless you set them.
    pub free: Option<Flag>,
    /// Whether it sends figures of its use to everloop on this machine, besides its stream; only `claude` can.
    pub telemetry: Option<Flag>,
}

/// Credentials and settings of one account. Its agents see these variables instead of those that hold your own login.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccountKeys {
    /// Variables, and for each the name of the variable of your own environment that holds its value:
    /// `{ ANTHROPIC_API_KEY = "MY_WORK_KEY" }`.
    pub env: Option<NamedVariables>,
    /// Variables, and for each the file whose first line is its value: `{ ANTHROPIC_API_KEY = "~/.keys/work" }`.
    pub file: Option<FileVariables>,
    /// Variables with values that are no secrets: `{ CLAUDE_CONFIG_DIR = "~/.claude-work" }`.
    pub set: Option<PlainVariables>,
}

/// When a turn may start.
#[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GuardKeys {
    /// Least time between two starts. `"0"` also lifts the caps that you did not set.
    pub min_gap: Option<Gap>,
    /// Most starts in any minute.
    pub per_minute: Option<CountLimit>,
    /// Most starts in any hour.
    pub per_hour: Option<CountLimit>,
    /// Most starts in any day.
    pub per_day: Option<CountLimit>,
    /// Spread the allowance of the account's windows, so that it lasts until their reset: a start waits while more of it is
    /// used than time has gone, 5 % ahead (20 % for a task with a priority above 0).
    pub pace: Option<Flag>,
    /// Turns that may run at once on this machine.
    pub max_parallel_turns: Option<Count>,
    /// A turn that takes longer is stopped.
    pub turn_timeout: Option<Span>,
    /// A turn without any sign of life for this long is stopped.
    pub turn_idle_timeout: Option<Span>,
    /// An agent with a stream: it is stuck when nothing is heard of it for this long after its start…
    pub starting_hard: Option<Span>,
    /// …when its model says nothing for this long and there is no other sign of life…
    pub model_soft: Option<Span>,
    /// …or in any case for this long…
    pub model_hard: Option<Span>,
    /// …when a tool that names no limit of its own runs for this long without a sign of life…
    pub tool_soft: Option<Span>,
    /// …or in any case for this long.
    pub tool_hard: Option<Span>,
    /// It is stopped when it uses tokens for this long and no file of its workspace changes.
    pub no_diff: Option<TimeLimit>,
    /// First wait after an agent failed; it doubles.
    pub backoff_first: Option<Span>,
    /// The longest such wait.
    pub backoff_cap: Option<Span>,
    /// Turns without progress after which another way is tried, and after as many more you are told.
    pub stagnation_turns: Option<Count>,
    /// The same as time that turns took without progress.
    pub stagnation_time: Option<TimeLimit>,
    /// The same as dollars that were used without progress.
    pub stagnation_usd: Option<Dollars>,
    /// Try another way first: a fresh conversation, the next of the loop's agents, and a prompt that asks for another approach.
    /// `false`: you are told at once.
    pub stagnation_change: Option<Flag>,
    /// Starts that an account may make at once (together with `bucket_every`).
    pub bucket_burst: Option<Count>,
    /// Time after which an account may make one more start (together with `bucket_burst`).
    pub bucket_every: Option<Span>,
    /// Frosty: this many starts that die young…
    pub cooldown_deaths: Option<Count>,
    /// …within this time…
    pub cooldown_window: Option<Span>,
    /// …bring a cooldown of this length, which doubles while it repeats…
    pub cooldown_first: Option<Span>,
    /// …up to this.
    pub cooldown_cap: Option<Span>,
    /// A failed turn shorter than this died young.
    pub cooldown_young: Option<Span>,
    /// Willy: this many cooldowns…
    pub freeze_cooldowns: Option<Count>,
    /// …within this time…
    pub freeze_window: Option<Span>,
    /// …bring a freeze of this length…
    pub freeze_time: Option<Span>,
    /// …in which one trial start is made per this time.
    pub freeze_canary: Option<Span>,
    /// A second freeze within this time waits for a person…
    pub freeze_relapse: Option<Span>,
    /// …with one trial start per this time.
    pub freeze_relapse_canary: Option<Span>,
}

/// How turns are kept apart from your checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, rename_all = "kebab-case")]
pub enum WorkspaceKey {
    /// Git where there is a repository, else the folder itself.
    Auto,
    /// A worktree per turn.
    Git,
    /// The folder itself.
    InPlace,
}

/// When work moves onto your branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, rename_all = "kebab-case")]
pub enum IntegrateKey {
    /// Whenever more checks pass than before and none that passed fails.
    Progress,
    /// Only when all checks pass.
    Reached,
}

impl<'de> Deserialize<'de> for WorkspaceKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choose(deserializer, &[("auto", Self::Auto), ("git", Self::Git), ("in-place", Self::InPlace)])
    }
}

impl<'de> Deserialize<'de> for IntegrateKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choose(deserializer, &[("progress", Self::Progress), ("reached", Self::Reached)])
    }
}

impl From<IntegrateKey> for spec::Integrate {
    fn from(key: IntegrateKey) -> Self {
        match key {
            IntegrateKey::Progress => spec::Integrate::Progress,
            IntegrateKey::Reached => spec::Integrate::Reached,
        }
    }
}

/// The names of a section's keys, as serde knows them.
pub fn names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The probe answers with an error after it has seen the names; there is nothing to read.
    drop(T::deserialize(Probe(&mut names)));
    names
}

/// What a key means, in the words of its comment.
pub fn meaning<T: JsonSchema>(key: &str) -> Option<String> {
    let schema = schemars::schema_for!(T).to_value();
    let words = schema["properties"][key]["description"].as_str()?;
    Some(words.replace('\n', " "))
}

/// Looks at which keys a struct asks for.
struct Probe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(serde::de::Error::custom("only the names were asked for"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("not a section"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_know_their_keys() {
        assert_eq!(names::<CheckKeys>(), ["name", "run", "timeout", "weight"]);
        assert!(names::<GuardKeys>().contains(&"freeze_canary"));
        assert!(names::<LoopKeys>().contains(&"max_turns"));
        assert_eq!(names::<AccountKeys>(), ["env", "file", "set"]);
        assert_eq!(names::<NodeKeys>(), ["listen"]);
        assert_eq!(names::<BoardKeys>(), ["file"]);
        assert_eq!(names::<MailboxKeys>(), ["command", "url", "token_env", "token_file", "every"]);
        assert_eq!(names::<TrackerKeys>(), ["command", "url", "token_env", "token_file"]);
        assert_eq!(names::<CompletionKeys>(), ["plan", "marker", "within", "file", "loop"]);
        assert_eq!(meaning::<CheckKeys>("weight").as_deref(), Some("How much it counts in the score."));
    }
}
