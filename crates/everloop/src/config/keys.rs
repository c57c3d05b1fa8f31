//! The keys of everloop.toml. Each is one row: its name, its kind, its default, its variable, its
//! flag, and (as comment) what it means. Reading, layers, `config show`, the flags of `run`, the
//! JSON Schema and `docs/config.md` follow from that. The keys of the guard are declared in
//! `core::spec`.

use std::collections::BTreeMap;

use everloop_core::hook::Rules;
use everloop_core::isolation::MAX_PROCESSES;
use everloop_core::spec::{self, DEFAULT_ACCOUNT};
use everloop_core::watch;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::guard::GuardKeys;
use super::hook::{CHECK_TIMEOUT as HOOK_CHECK_TIMEOUT, MAX_SHRINK_PERCENT};
use super::notify::NotifyKeys;
use super::outbound::EVERY as MAILBOX_EVERY;
use super::persona::PersonaKeys;
use super::research::ResearchKeys;
use super::resolve::CHECK_TIMEOUT;
use super::route::RouteKeys;
use super::settings::{LoopFlag, Takes, section};
use super::value::{
    AgentKindName, Amount, ApiFormat, CommandLine, Count, CountLimit, Deadline, DialectName, Dollars, FileVariables,
    Flag, IsolationModeKey, LimitRules, List, ListenAddress, NamedVariables, NetworkKey, NonEmptyText, PermissionKey,
    PlainVariables, Price, PriceList, Priority, Span, TimeLimit, VariableName, choose, write_duration,
};

/// A file that declares loops and how they work.
///
/// Values are taken from, in rising order: built-in, `config.toml` of the user, `everloop.toml`,
/// the environment, flags.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "everloop.toml")]
#[expect(dead_code, reason = "the shape of the whole file, for the schema; it is read section by section")]
pub struct ConfigFile {
    /// The keys of a loop, used where a loop does not set them.
    defaults: Option<LoopKeys>,
    /// What the commands of all loops may reach.
    isolation: Option<IsolationKeys>,
    /// Agents that can take a turn, by name. `claude`, `codex`, `gemini`, `opencode` and `api` are
    /// there without a section.
    agent: Option<BTreeMap<String, AgentKeys>>,
    /// Accounts of agents, by name.
    account: Option<BTreeMap<String, AccountKeys>>,
    /// Loops, by name.
    r#loop: Option<BTreeMap<String, LoopKeys>>,
    /// Experiments on a metric, by name.
    research: Option<BTreeMap<String, ResearchKeys>>,
    /// Loops without an end, by name.
    persona: Option<BTreeMap<String, PersonaKeys>>,
    /// Entries of streams that become signals of personas.
    route: Option<Vec<RouteKeys>>,
    /// The supervisor on this machine.
    node: Option<NodeKeys>,
    /// Signals over the port of the supervisor.
    gateway: Option<GatewayKeys>,
    /// A collector of OpenTelemetry.
    otel: Option<OtelKeys>,
    /// The hub of a mesh.
    hub: Option<HubKeys>,
    /// The board as a file of the project.
    board: Option<BoardKeys>,
    /// Where the status of the project's loops is sent.
    mailbox: Option<MailboxKeys>,
    /// Where changes of tasks are sent.
    tracker: Option<TrackerKeys>,
    /// Where tickets are sent.
    notify: Option<Vec<NotifyKeys>>,
    /// Sessions in this project that everloop did not start.
    hook: Option<HookKeys>,
    /// Files that may not shrink in such a session.
    guardian: Option<GuardianKeys>,
    /// Signs of being complete, by name.
    completion: Option<BTreeMap<String, CompletionKeys>>,
}

section! {
    /// Where the hub's address is found. The address itself holds a password and never stands in
    /// this file.
    pub struct HubKeys;

    /// The name of the variable of your environment that holds the address `postgres://…`.
    url_env: VariableName;

    /// The file with the address as its first line; readable by you alone.
    url_file: NonEmptyText;
}

section! {
    /// The supervisor on this machine.
    pub struct NodeKeys;

    /// Where `everloop up` answers `/health` and `/metrics`: an address and port of loopback, or
    /// `off`. A port that is taken is replaced by a free one.
    listen: ListenAddress = everloop_engine::port::DEFAULT.to_string();
}

section! {
    /// Signals over the port of the supervisor.
    pub struct GatewayKeys;

    /// Whether programs of this machine may send signals without the token. Turns never may.
    open: Flag = false;
}

section! {
    /// A collector of OpenTelemetry, which gets spans, figures and log records over HTTP. Without
    /// this section nothing is sent.
    pub struct OtelKeys;

    /// The base of its paths, like `http://127.0.0.1:4318`; elsewhere than on this machine `https`.
    endpoint: NonEmptyText;

    /// The variable with the token for `Authorization: Bearer`.
    token_env: VariableName;

    /// The file with that token, mode 600.
    token_file: NonEmptyText;

    /// A file with certificates that are trusted for it.
    ca_file: NonEmptyText;
}

section! {
    /// The board as a file of the project.
    pub struct BoardKeys;

    /// Where it is written, like `tasks/board.json`, relative to this file. The folder `inbox`
    /// beside it takes wishes of agents. Without it nothing is written.
    file: NonEmptyText;
}

section! {
    /// Where the status of the project's loops is sent.
    pub struct MailboxKeys;

    /// A command that gets a status as JSON on standard input every few turns and when a loop ends.
    /// It has 20 seconds; what it answers is not read, and its failure disturbs nothing: it is
    /// tried again later, with the status as it is then.
    command: CommandLine;

    /// A server that gets it by POST instead: `https://…`, or `http://` on this machine.
    url: NonEmptyText;

    /// The variable of the supervisor's environment that holds the token for it (`Authorization:
    /// Bearer`).
    token_env: VariableName;

    /// The file with the token as its first line.
    token_file: NonEmptyText;

    /// After how many turns.
    every: Count = i64::from(MAILBOX_EVERY);

    /// Paths that its command may read although they hold secrets: `["~/.ssh"]`, `["~/.config/gh"]`.
    readable: List;

    /// Paths that its command may write, besides its own folder for temporary files.
    writable: List;

    /// By which means its command is isolated, where it differs from `[isolation] mode`.
    isolation: IsolationModeKey;
}

section! {
    /// Where changes of tasks are sent.
    pub struct TrackerKeys;

    /// A command that is run with `create`, `claim`, `complete` or `comment` and the task's id as
    /// arguments, and gets the task as JSON on standard input. As for the mailbox, nothing waits
    /// for it. While it fails, changes are kept and sent later, in order; a command that exits with
    /// 65 rejects this change.
    command: CommandLine;

    /// A server that gets it by POST instead: `https://…`, or `http://` on this machine. The header
    /// `Idempotency-Key` is the same when a change is sent again.
    url: NonEmptyText;

    /// The variable of the supervisor's environment that holds the token for it (`Authorization:
    /// Bearer`).
    token_env: VariableName;

    /// The file with the token as its first line.
    token_file: NonEmptyText;

    /// Paths that its command may read although they hold secrets: `["~/.ssh"]`, `["~/.config/gh"]`.
    readable: List;

    /// Paths that its command may write, besides its own folder for temporary files.
    writable: List;

    /// By which means its command is isolated, where it differs from `[isolation] mode`.
    isolation: IsolationModeKey;
}

section! {
    /// How far a session is held that everloop did not start: a person's `claude`, `codex` or
    /// `gemini` in this project.
    pub struct HookKeys;

    /// The loop with the checks that decide whether a session may stop. Without it: the only loop
    /// of this file.
    r#loop: NonEmptyText;

    /// A session is held at most this often in a row while it changes nothing; then it may stop and
    /// you are notified.
    max_holds: Count = i64::from(Rules::default().max_holds);

    /// And at most this often after one prompt of yours.
    holds_in_all: Count = i64::from(Rules::default().holds_in_all);

    /// Time for all checks together when a session wants to stop. If they need longer it may stop.
    check_timeout: Span = write_duration(HOOK_CHECK_TIMEOUT);

    /// Percent of the context window at which the session is prompted to write down what the next
    /// one must know.
    handoff_at: Count = i64::from(Rules::default().handoff_at);

    /// Tokens that the context window holds, if not as its CLI or its model says.
    context_tokens: Amount;
}

section! {
    /// Files that a session may not lose: its memory, plan and notes.
    pub struct GuardianKeys;

    /// Globs of these files, from the folder of this file.
    files: List;

    /// Percent that one of them may lose at once. More is refused, or put back.
    max_shrink_percent: Count = i64::from(MAX_SHRINK_PERCENT);
}

section! {
    /// A sign that work outside of everloop is complete. It becomes a signal: an event, after which
    /// the loop looks again. Only the checks decide whether the goal is reached.
    pub struct CompletionKeys;

    /// A Markdown file with boxes: complete when none of them is open (`- [ ]`).
    plan: NonEmptyText;

    /// A line with exactly this text: in the last message of an agent, or in the file `within`.
    marker: NonEmptyText;

    /// The file in which the marker is looked for.
    within: NonEmptyText;

    /// A file: complete when it is there.
    file: NonEmptyText;

    /// Only for this loop. Without it: for all loops of this file.
    r#loop: NonEmptyText;
}

section! {
    /// A goal, its checks, and the rules by which agents work on it.
    pub struct LoopKeys;

    /// What is to be reached, in your words. The agent reads it; only the checks decide.
    goal: NonEmptyText;

    /// Which agent works on it: `claude`, `codex`, `gemini`, `opencode`, `api`, or the NAME of an
    /// `[agent.NAME]`. `NAME@ACCOUNT` lets it run under that `[account.ACCOUNT]`.
    agent: NonEmptyText => env "EVERLOOP_AGENT";

    /// Several of them, instead of `agent`: the first works on it; while its account is held, the
    /// next one does.
    agents: List => env "EVERLOOP_AGENTS" flag LoopFlag::new("agent", Takes::Several("NAME[@ACCOUNT]")).help(
        "claude, codex, gemini, opencode, copilot, api or an agent of everloop.toml, under an account of it; repeat for others that \
         work while the account of those before is held"
    );

    /// A command that works on it, instead of `agent`. `{prompt}` and `{prompt_file}` are replaced;
    /// with neither, the prompt arrives on stdin. With shell syntax in it (`|`, `>`, `$X`, …) it is
    /// run by `sh`.
    agent_cmd: CommandLine => env "EVERLOOP_AGENT_CMD" flag LoopFlag::new("agent-cmd", Takes::One("CMD"));

    /// The model, instead of the agent's; of several agents, for those of the same kind as the
    /// first.
    model: NonEmptyText => env "EVERLOOP_MODEL" flag LoopFlag::new("model", Takes::One("MODEL"));

    /// What the agent may do without approval, instead of the agent's: `edits` or `full`.
    permission: PermissionKey => env "EVERLOOP_PERMISSION" flag LoopFlag::new("permission", Takes::One("WHAT"));

    /// Commands that the agent may run under `edits`, instead of the agent's list.
    allow: List => env "EVERLOOP_ALLOW" flag LoopFlag::new("allow", Takes::Several("CMD"));

    /// Shell commands that decide whether the goal is reached: each must exit with 0.
    /// `NAME, TIME, parallel :: CMD` gives a name, and if you like a time limit and leave to run
    /// beside others; for weights and evidence use `[[loop.NAME.check]]`.
    checks: List => flag LoopFlag::new("check", Takes::Several("CMD")).short('c');

    /// Checks with a name, a time and a weight.
    check: Vec<CheckKeys>;

    /// More globs of existing files that a turn may not change, besides the built-in ones (tests,
    /// CI, this file).
    protect: List => flag LoopFlag::new("protect", Takes::Several("GLOB"));

    /// Globs of files that a turn may change although a built-in or own glob protects them.
    unprotect: List => flag LoopFlag::new("unprotect", Takes::Several("GLOB"));

    /// Folders that git ignores and that survive between checks, for example `target` or
    /// `node_modules`. Only checks write there; all other ignored files are removed before each.
    check_cache: List => flag LoopFlag::new("check-cache", Takes::Several("DIR"));

    /// `git`: each turn works in a clone of its own. `in-place`: in the folder itself. `auto`:
    /// git where there is a repository.
    workspace: WorkspaceKey = "auto" => env "EVERLOOP_WORKSPACE" flag LoopFlag::new("in-place", Takes::Nothing("in-place"))
        .help("Work in this folder itself instead of a private clone");

    /// When work moves onto your branch: with every `progress`, or only when the goal is `reached`.
    integrate: IntegrateKey = "progress" => env "EVERLOOP_INTEGRATE" flag LoopFlag::new("integrate", Takes::One("WHEN"));

    /// A shell command run in every new clone before anything else there, for example `npm ci`;
    /// where checks run it runs again when what it made was removed; `check_cache` keeps that.
    setup: NonEmptyText => flag LoopFlag::new("setup", Takes::One("CMD"));

    /// Start from the uncommitted state of your tree instead of its last commit.
    include_dirty: Flag = false => flag LoopFlag::new("include-dirty", Takes::Nothing("true"));

    /// The author of its commits: `everloop`, `person` (the identity of your git), or
    /// `NAME <EMAIL>`. Everloop is the co-author of the latter two.
    commit_author: NonEmptyText = "everloop";

    /// The folder to work in, relative to this file.
    dir: NonEmptyText = ".";

    /// Turns after which the loop ends.
    max_turns: CountLimit => env "EVERLOOP_MAX_TURNS" flag LoopFlag::new("max-turns", Takes::One("N")).short('n');

    /// Time after which the loop ends.
    max_time: TimeLimit => env "EVERLOOP_MAX_TIME" flag LoopFlag::new("max-time", Takes::One("TIME"));

    /// A point in time at which the loop ends; without a zone it is your local time.
    deadline: Deadline => env "EVERLOOP_DEADLINE" flag LoopFlag::new("deadline", Takes::One("WHEN"));

    /// Dollars that the loop may use in all.
    max_usd: Dollars => env "EVERLOOP_MAX_USD" flag LoopFlag::new("max-usd", Takes::One("USD"));

    /// Tokens that the loop may use in all.
    max_tokens: CountLimit => env "EVERLOOP_MAX_TOKENS" flag LoopFlag::new("max-tokens", Takes::One("N"));

    /// Starts of an agent that the loop may use in all, also failed ones.
    max_calls: CountLimit => env "EVERLOOP_MAX_CALLS" flag LoopFlag::new("max-calls", Takes::One("N"));

    /// What is watched besides the checks. A loop with monitors does not end when its checks pass:
    /// it watches.
    monitor: Vec<MonitorKeys>;

    /// Beats without news after which a loop that has nothing to do is parked: then it looks ten
    /// times as rarely. `"none"`: never.
    park_after: CountLimit = i64::from(watch::PARK_AFTER);

    /// When a turn may start.
    guard: GuardKeys;

    /// What its commands may reach, where it differs from `[isolation]`.
    isolation: IsolationKeys;
}

section! {
    /// What turns, checks and setups may read, write and connect to.
    pub struct IsolationKeys;

    /// By which means: `auto` (Landlock where the kernel has it, else bubblewrap), `landlock`,
    /// `bubblewrap`, `container`, or `none`.
    mode: IsolationModeKey = "auto" => env "EVERLOOP_ISOLATION" flag LoopFlag::new("isolation", Takes::One("MODE")).help(
        "what isolates turns and checks: auto, landlock, bubblewrap, container or none"
    );

    /// Paths that may be read although they are on the built-in list of secrets.
    readable: List;

    /// More paths that no command may read.
    unreadable: List;

    /// Paths that commands may write, besides their own folder: caches.
    writable: List => flag LoopFlag::new("writable", Takes::Several("PATH"));

    /// Whether the caches of cargo, npm, pip, go and the like may be written.
    caches: Flag = true;

    /// What checks may connect to: `open`, `loopback` (one of their own) or `none`.
    check_network: NetworkKey = "open";

    /// What an agent may connect to that is a plain command; a CLI needs its vendor.
    agent_network: NetworkKey = "open";

    /// The command line of the mode `container`: `{command}` stands for the command's words,
    /// `{dir}` for its folder, `{tmp}` for its folder of temporary files.
    container: CommandLine;

    /// Processes of one command at a time, where a control group can be made.
    max_processes: CountLimit = MAX_PROCESSES.cast_signed();

    /// Megabytes of memory of one command, where a control group can be made.
    max_memory_mb: CountLimit = "none";
}

section! {
    /// One criterion of the goal.
    #[schemars(extend("required" = ["run"]))]
    pub struct CheckKeys;

    /// How it is called on the scoreboard; unique. Without it, a short form of the command.
    name: NonEmptyText;

    /// A shell command; exit code 0 means that the criterion holds.
    run: NonEmptyText;

    /// A check that takes longer counts as broken.
    timeout: Span = write_duration(CHECK_TIMEOUT);

    /// How much it counts in the score.
    weight: Count = 1;

    /// Whether it may run beside the other checks that may. They share one folder.
    parallel: Flag = false;

    /// A regular expression that the output has to match; otherwise a pass is suspicious and does
    /// not count. `^` and `$` hold at every line.
    evidence: NonEmptyText;

    /// Tests that have to run, as the runner counts them and without skipped ones; with fewer, a
    /// pass is suspicious and does not count.
    min_tests: Count;
}

section! {
    /// One thing that is watched: exactly one of `file`, `command`, `stream`, `mailbox` and `http`.
    pub struct MonitorKeys;

    /// How it is called; unique. Without it, its kind.
    name: NonEmptyText;

    /// Files that match this glob, from the loop's folder: one appeared, changed or went.
    file: NonEmptyText;

    /// A shell command, run in the loop's folder: its exit code or its output changed.
    command: NonEmptyText;

    /// A file to which lines are added: there are new ones.
    stream: NonEmptyText;

    /// A box of messages like `@reviewer`: there are new ones (`everloop message send @reviewer`).
    mailbox: NonEmptyText;

    /// An address: its status, its etag or else its body changed.
    http: NonEmptyText;

    /// How often it is looked at; at least a second lies between two looks.
    every: Span = write_duration(watch::EVERY);

    /// A look that takes longer has failed; at most ten minutes. After three in a row you are
    /// notified.
    timeout: Span = write_duration(watch::TIMEOUT);

    /// What the task is called that a change makes.
    title: NonEmptyText;

    /// What you want done about a change. What the monitor saw is quoted below it, as data.
    prompt: NonEmptyText;

    /// `command`: paths that it may read although they hold secrets: `["~/.ssh"]`, `["~/.config/gh"]`.
    readable: List;

    /// `command`: paths that it may write, besides its own folder for temporary files.
    writable: List;

    /// `command`: by which means it is isolated, where it differs from `[isolation] mode`.
    isolation: IsolationModeKey;
}

section! {
    /// An agent that can take a turn: a command, or a CLI that everloop knows.
    pub struct AgentKeys;

    /// How it is driven. Without it: the section's name where that is a kind, else `command`. Of a
    /// CLI that everloop knows it reads sessions, usage and limits; `api` is everloop's own agent;
    /// `pane` is an interactive agent in tmux.
    kind: AgentKindName;

    /// The command, as a list of words or as one text that is split like in a shell (and run by
    /// `sh` when it has shell syntax in it). `{prompt}` and `{prompt_file}` are replaced; with
    /// neither, the prompt arrives on stdin. Of a known CLI: the program, if it is not the usual
    /// one, and further arguments; the prompt is handed over by itself.
    command: CommandLine;

    /// Of a command: the known CLI whose stream it writes (`claude` for qwen code), or a known
    /// program that prints text (`aider`, `goose`), whose sentences about limits are understood.
    dialect: DialectName;

    /// Of a command without a stream: sentences at the end of a failed run that are a limit of its
    /// vendor, as `"CLASS: WORDS"` with a class of `window`, `weekly`, `model`, `rate`, `overload`,
    /// `network`, `spend`, `credit`, `auth`, `context`.
    limit_rules: LimitRules;

    /// The model, if not the one that the CLI takes by itself.
    model: NonEmptyText;

    /// What it may do without approval. `edits`: change files, and run what `allow` names. `full`:
    /// run everything as you.
    permission: PermissionKey = "edits";

    /// Commands that it may run under `edits`, as beginnings: `"cargo test"` also allows `cargo
    /// test --doc`.
    allow: List = Vec::<toml::Value>::new();

    /// Names of environment variables that it may see besides the built-in few. A known CLI under
    /// the account `default` also sees those that hold its own login.
    pass_env: List = Vec::<toml::Value>::new();

    /// The `[account.NAME]` it runs under; loops that share an account share its rates and limits.
    account: NonEmptyText = DEFAULT_ACCOUNT;

    /// Where the vendor's API is, if not where the CLI looks by itself.
    api_base: NonEmptyText;

    /// Turns after which a conversation is ended and a fresh one begins; 1 never goes on with one.
    session_turns: Count;

    /// The API format that the kind `api` uses.
    api_format: ApiFormat;

    /// The variable that holds the key of the kind `api`; without it `ANTHROPIC_API_KEY` for
    /// `messages`, `OPENAI_API_KEY` for `responses`.
    key_env: VariableName;

    /// A PEM file of certificates that the kind `api` trusts besides those of this machine:
    /// `"~/company-root.pem"`, or from the root of the file system.
    ca_file: NonEmptyText;

    /// The pane of the kind `pane`.
    pane: NonEmptyText;

    /// What one turn is taken to cost, in dollars, until the agent reports it itself.
    usd_per_turn: Price = 0.0;

    /// What one turn is taken to use, in tokens, until the agent reports it itself.
    tokens_per_turn: Amount = 0;

    /// What a million of its tokens costs, in dollars, where everloop's own list is wrong or lacks
    /// the model: `[input, output]`, or `[input, output, cached, cache write]`. They come before
    /// the dollars that the agent reports.
    prices: PriceList;

    /// Only tasks of these kinds are for it (`everloop task add --kind`); a loop's own are of the
    /// kind `batch`. Of a loop's `agents` the first that a task is for takes it, so name those for
    /// few tasks first.
    kinds: List;

    /// Only tasks from this priority up are for it; a loop's own have 0.
    min_priority: Priority;

    /// Only tasks up to this priority are for it.
    max_priority: Priority;

    /// Its turns cost nothing: no minimum gap and no caps, unless you set them.
    free: Flag = false;

    /// Whether it sends figures of its use to everloop on this machine, besides its stream; only
    /// `claude` can.
    telemetry: Flag = true;
}

section! {
    /// Credentials and settings of one account. Its agents see these variables instead of those
    /// that hold your own login.
    pub struct AccountKeys;

    /// Variables, and for each the name of the variable of your own environment that holds its
    /// value: `{ ANTHROPIC_API_KEY = "MY_WORK_KEY" }`.
    env: NamedVariables;

    /// Variables, and for each the file with its value as the first line: `{ ANTHROPIC_API_KEY =
    /// "~/.keys/work" }`.
    file: FileVariables;

    /// Variables with values that are no secrets: `{ CLAUDE_CONFIG_DIR = "~/.claude-work" }`.
    set: PlainVariables;
}

/// How turns are kept apart from your checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, rename_all = "kebab-case")]
pub enum WorkspaceKey {
    /// Git where there is a repository, else the folder itself.
    Auto,
    /// A clone per loop.
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

#[cfg(test)]
mod tests {
    use super::super::settings::{meaning, names};
    use super::*;

    #[test]
    fn sections_know_their_keys() {
        assert_eq!(names::<CheckKeys>(), ["name", "run", "timeout", "weight", "parallel", "evidence", "min_tests"]);
        assert!(names::<GuardKeys>().contains(&"freeze_canary"));
        assert!(names::<LoopKeys>().contains(&"max_turns"));
        assert_eq!(names::<AccountKeys>(), ["env", "file", "set"]);
        assert_eq!(names::<NodeKeys>(), ["listen"]);
        assert_eq!(names::<BoardKeys>(), ["file"]);
        assert_eq!(
            names::<MailboxKeys>(),
            ["command", "url", "token_env", "token_file", "every", "readable", "writable", "isolation"]
        );
        assert_eq!(
            names::<TrackerKeys>(),
            ["command", "url", "token_env", "token_file", "readable", "writable", "isolation"]
        );
        assert_eq!(names::<CompletionKeys>(), ["plan", "marker", "within", "file", "loop"]);
        assert_eq!(meaning::<CheckKeys>("weight").as_deref(), Some("How much it counts in the score."));
    }
}
