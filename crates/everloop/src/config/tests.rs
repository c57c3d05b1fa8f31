//! What is refused, where it points, which layer wins. One builder: a project in a temporary
//! folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::{Args, FromArgMatches};
use everloop_agents::channel::{Address, Auth, Channel, SecretSource};
use everloop_core::completion::CompletionSign;
use everloop_core::isolation::IsolationMode;
use everloop_core::spec::{
    AgentKind, BucketSpec, GuardSpec, Integrate, Permission, StartCaps, Variable, VariableSource,
};
use everloop_core::time::Time;
use jiff::tz::TimeZone;

use super::keys::WorkspaceKey;
use super::*;

/// A project and a user, in a folder of their own.
struct Project {
    dir: tempfile::TempDir,
    overrides: Overrides,
}

/// A loop that needs nothing more.
const GOOD: &str = "[loop.a]\ngoal = \"g\"\nagent_cmd = \"x {prompt}\"\nchecks = [\"true\"]\n";

impl Project {
    fn new(toml: &str) -> Self {
        let dir = tempfile::tempdir().expect("tests can make folders");
        std::fs::write(dir.path().join(PROJECT_FILE), toml).expect("tests can write files");
        Self { dir, overrides: Overrides::default() }
    }

    fn user(self, toml: &str) -> Self {
        std::fs::create_dir(self.user_dir()).expect("tests can make folders");
        std::fs::write(self.user_dir().join(USER_FILE), toml).expect("tests can write files");
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.overrides.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn flags(mut self, words: &[&str]) -> Self {
        self.overrides.flags = flags(words);
        self
    }

    fn user_dir(&self) -> PathBuf {
        self.dir.path().join("user")
    }

    fn load(&self) -> Result<Config, ConfigError> {
        load(self.dir.path(), Some(&self.user_dir()), &self.overrides)
    }

    fn resolve(&self, name: &str) -> Result<ResolvedLoop, ConfigError> {
        self.load()?.resolve(name, &moment())
    }

    fn good(&self) -> ResolvedLoop {
        self.resolve("a").unwrap_or_else(|error| panic!("{error}"))
    }

    /// Everything that is wrong, as it is printed.
    fn wrong(&self) -> String {
        let error = self.load().and_then(|config| config.check(&moment())).expect_err("something is wrong");
        let folder = self.dir.path().display().to_string();
        error.to_string().replace(&folder, "DIR").trim_end().to_owned()
    }
}

/// What a command line sets.
fn flags(words: &[&str]) -> Flags {
    let command = Flags::augment_args(clap::Command::new("run"));
    let matches = command.try_get_matches_from(["run"].iter().chain(words)).expect("the test types good flags");
    Flags::from_arg_matches(&matches).expect("each was declared")
}

fn moment() -> ResolveContext {
    // 2026-11-15 21:00 UTC
    ResolveContext { now: Time(1_794_776_400_000), zone: TimeZone::UTC, home: Some(PathBuf::from("/home/me")) }
}

#[test]
fn a_small_file_gives_a_loop_with_the_defaults_of_the_core() {
    let resolved = Project::new(GOOD).good();
    assert_eq!(resolved.guard, GuardSpec::default());
    assert_eq!(resolved.goal, "g");
    assert_eq!(resolved.agent.argv, ["x", "{prompt}"]);
    assert_eq!((resolved.agent.name.as_str(), resolved.agent.account.as_str()), ("x", "default"));
    assert_eq!(resolved.checks.len(), 1);
    assert_eq!(resolved.checks[0].timeout, Duration::from_secs(600));
    assert_eq!(resolved.workspace.kind, WorkspaceKey::Auto);
    assert!(resolved.workspace.protect.contains(&"everloop.toml".to_owned()));
    assert_eq!(resolved.warnings, Vec::<String>::new());
}

#[test]
fn every_key_reaches_the_loop() {
    let toml = r#"
[account.work]
env = { BOT_KEY = "MY_BOT_KEY" }

[agent.bot]
command = ["bot", "--prompt-file", "{prompt_file}"]
pass_env = ["BOT_KEY"]
account = "work"
usd_per_turn = 0.10
tokens_per_turn = 5000

[loop.a]
goal = "make it work"
agent = "bot"
checks = ["cargo test", "cargo test --doc"]
protect = ["golden/**"]
unprotect = ["**/tests/**", "golden/new/**"]
workspace = "git"
integrate = "reached"
setup = "npm ci"
include_dirty = true
dir = "sub"
max_turns = 30
max_time = "8h"
deadline = "2026-11-16T07:00"
max_usd = 5
max_tokens = 1_000_000
max_calls = 40

[[loop.a.check]]
name = "lint"
run = "cargo clippy"
timeout = "5m"
weight = 3

[loop.a.guard]
min_gap = "1m"
per_hour = "none"
max_parallel_turns = 2
bucket_burst = 2
bucket_every = "10m"
freeze_canary = "20m"
"#;
    let project = Project::new(toml);
    let resolved = project.good();
    let names: Vec<&str> = resolved.checks.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["cargo test", "cargo test 2", "lint"]);
    assert_eq!((resolved.checks[2].weight, resolved.checks[2].timeout), (3, Duration::from_secs(300)));
    assert_eq!((resolved.agent.turn_microusd, resolved.agent.turn_tokens), (100_000, 5000));
    assert_eq!(resolved.agent.pass_env, ["BOT_KEY"]);
    assert_eq!(resolved.bounds.max_turns, Some(30));
    assert_eq!(resolved.bounds.deadline, Some(Time(1_794_776_400_000 + 10 * 3_600_000)));
    assert_eq!(resolved.guard.budget.microusd, Some(5_000_000));
    assert_eq!(resolved.guard.caps, StartCaps { per_hour: None, ..GuardSpec::default().caps });
    assert_eq!(resolved.guard.bucket, Some(BucketSpec { burst: 2, every: Duration::from_secs(600) }));
    assert_eq!(resolved.guard.freeze.canary, Duration::from_secs(1200));
    let plan = &resolved.workspace;
    assert_eq!(plan.dir, project.dir.path().join("sub"));
    assert_eq!((plan.kind, plan.integrate, plan.include_dirty), (WorkspaceKey::Git, Integrate::Reached, true));
    assert!(!plan.protect.contains(&"**/tests/**".to_owned()) && plan.protect.contains(&"golden/**".to_owned()));
    assert_eq!(plan.unprotect, ["golden/new/**"]);
    let spec = resolved.spec(everloop_core::spec::WorkspaceMode::InPlace);
    assert_eq!(spec.workspace.protect.last().map(String::as_str), Some("!golden/new/**"));
}

#[test]
fn a_mistyped_key_points_at_itself_and_names_its_neighbour() {
    insta::assert_snapshot!(Project::new("[loop.a]\ngoal = \"g\"\n  max_turn = 3\n").wrong(), @r"
    error: unknown key `max_turn` in `[loop.a]`
     --> everloop.toml:3:3
      |
    3 |   max_turn = 3
      |   ^^^^^^^^
    hint: did you mean `max_turns`?
    ");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let toml = r#"max_turns = 3
[lop.x]
goal = "g"

[agent.bot]
comand = "bot"

[loop.a]
goal = 5
min_gap = "15s"
workspace = "gti"
max_time = "5 parsecs"
max_turns = 0
checks = "cargo test"

[loop.a.guard]
min_gap = 15
max_turns = 3
turn_timeout = "0s"

[[loop.a.check]]
name = "no command"
wieght = 2
weight = 0
"#;
    insta::assert_snapshot!(Project::new(toml).wrong());
}

#[test]
fn broken_toml_points_at_the_place() {
    insta::assert_snapshot!(Project::new("[loop.a]\ngoal = \"never closed\nmax_turns = 3\n").wrong());
    insta::assert_snapshot!(Project::new("[loop.a]\ngoal =\n").wrong());
}

#[test]
fn what_is_there_twice_is_refused() {
    insta::assert_snapshot!(Project::new("[loop.a]\ngoal = \"x\"\n\n[loop.a]\ngoal = \"y\"\n").wrong(), @r#"
    error: section `a` is there twice
     --> everloop.toml:4:7
      |
    4 | [loop.a]
      |       ^
    hint: keep one of them
    "#);
    let toml = "[loop.a]\ngoal = \"x\"\ngoal = \"y\"\n";
    assert!(Project::new(toml).wrong().starts_with("error: key `goal` is there twice\n --> everloop.toml:3:1"));
}

/// File, then the expected diagnostic and its place.
const REFUSED: [(&str, &str, &str); 40] = [
    ("[loop.a]\nagent_cmd = \"x\"\nchecks = [\"true\"]", "loop `a` has no goal", ":1:7"),
    ("[loop.a]\ngoal = \"g\"\nagent_cmd = \"x\"", "loop `a` has no check", ":1:7"),
    ("[loop.a]\ngoal = \"g\"\nchecks = [\"true\"]", "loop `a` has no agent", ":1:7"),
    (
        "[loop.a]\ngoal = \"g\"\nchecks = [\"true\"]\nagent = \"bto\"\n[agent.bot]\ncommand = \"bot\"",
        "there is no agent `bto`",
        ":4:1",
    ),
    (
        "[loop.a]\ngoal = \"g\"\nchecks = [\"true\"]\nagent = \"b\"\nagent_cmd = \"b\"",
        "has both `agent` and `agent_cmd`",
        ":5:1",
    ),
    ("[loop.a]\nagent_cmd = \"x {prompt} {prompt}\"", "the prompt stands in the command more than once", ":2:13"),
    ("[agent.x]\ncommand = []", "the command is empty", ":2:11"),
    ("[agent.x]\ncommand = [\"\"]", "the command is empty", ":2:11"),
    ("[agent.x]\naccount = \"a\"", "`[agent.x]` has no `command`", ":1:8"),
    ("[loop.a]\ndeadline = \"tomorrow\"", "`tomorrow` is not a date and time", ":2:12"),
    ("[loop.a]\nchecks = [\"a\", 3]", "expected a list of texts, found `3`", ":2:10"),
    ("[loop.a]\ncheck = \"cargo test\"", "`check` must be a list of sections", ":2:9"),
    ("[loop]\ngoal = \"g\"", "key `goal` stands in `[loop]`", ":2:1"),
    ("[loop.\"a b\"]\ngoal = \"g\"", "`a b` is not a good name", ":1:7"),
    ("loop = 3", "`loop.NAME` must be a section", ":1:8"),
    ("[[loop.a.check]]\nname = \"x\"", "has no `run`", ":1:1"),
    ("[agent.x]\ncommand = \"x\"\nusd_per_turn = \"much\"", "expected dollars like `0.10`, found `\"much\"`", ":3:16"),
    ("[loop.a]\ninclude_dirty = \"yes\"", "expected `true` or `false`", ":2:17"),
    ("[loop.a]\nmax_turns = 99999999999999999999", "wrong value for `max_turns`", ":2:13"),
    ("[defaults]\nweight = 3", "unknown key `weight` in `[defaults]`", ":2:1"),
    ("[defaults.gaurd]\nmin_gap = \"1s\"", "unknown key `gaurd` in `[defaults]`", ":1:11"),
    ("[loop.a]\nagent_cmd = \"sh -c 'x {prompt}'\"", "a prompt inside shell code would be executed", ":2:13"),
    ("[loop.a]\nagent = \"claude\"\nagents = [\"codex\"]", "has both `agent` and `agents`", ":3:1"),
    ("[loop.a]\nagents = \"codex\"", "expected a list of texts", ":2:10"),
    ("[loop.a]\nagents = []", "`agents` is empty", ":2:1"),
    ("[loop.a]\nagents = [\"codex\", \"codex\"]", "`codex` is there twice", ":2:1"),
    ("[loop.a]\nagent = \"cluade\"", "there is no agent `cluade`", ":2:1"),
    ("[loop.a]\nagent = \"claude@wrok\"\n[account.work]", "there is no account `wrok`", ":2:1"),
    ("[agent.x]\ncommand = \"x\"\naccount = \"mine\"", "there is no account `mine`", ":3:1"),
    ("[agent.x]\nkind = \"cloude\"", "expected one of `\"command\"`, `\"claude\"`", ":2:8"),
    ("[agent.claude]\npermission = \"all\"", "expected one of `\"edits\"`, `\"full\"`", ":2:14"),
    ("[agent.x]\ncommand = \"x\"\npermission = \"edits\"", "`permission` means nothing for agent `x`", ":3:1"),
    ("[agent.api]\nca_file = \"root.pem\"", "`ca_file` has to begin with", ":2:1"),
    ("[agent.claude]\napi_format = \"messages\"", "`api_format` means nothing for agent `claude`", ":2:1"),
    ("[agent.claude]\ncommand = \"claude -p {prompt}\"", "everloop hands the prompt to `claude` by itself", ":2:1"),
    ("[agent.tui]\nkind = \"pane\"", "`[agent.tui]` has no `pane`", ":1:8"),
    ("[agent.api]\nkey_env = \"sk-ant-secret\"", "this is no name of a variable", ":2:1"),
    ("[account.w]\nenv = { K = \"sk-ant-secret\" }", "what `K` is set to is no name of a variable", ":2:1"),
    ("[account.w]\nfile = { K = \"keys/work\" }", "what `K` is read from is no whole path", ":2:1"),
    ("[account.w]\nenv = { K = \"A\" }\nset = { K = \"b\" }", "account `w` sets `K` in two ways", ":3:1"),
];

#[test]
fn each_mistake_is_refused_at_its_place() {
    for (toml, message, place) in REFUSED {
        let wrong = Project::new(toml).wrong();
        assert!(wrong.contains(message), "{toml}\n---\n{wrong}");
        assert!(wrong.contains(&format!(" --> everloop.toml{place}\n")), "{toml}\n---\n{wrong}");
        assert!(wrong.contains("hint: "), "{toml}\n---\n{wrong}");
    }
}

/// More of the same, each added to a loop that is good without it.
const ADDED: [(&str, &str); 15] = [
    ("deadline = \"2020-01-01T00:00\"", "the deadline is in the past"),
    ("[loop.a.guard]\nbucket_burst = 3", "`bucket_burst` needs `bucket_every`"),
    ("[loop.a.guard]\nbackoff_cap = \"1s\"", "`backoff_cap` is shorter than `backoff_first`"),
    ("[loop.a.guard]\ncooldown_first = \"1h\"", "`cooldown_cap` is shorter than `cooldown_first`"),
    (
        "[[loop.a.check]]\nname = \"x\"\nrun = \"a\"\n[[loop.a.check]]\nname = \"x\"\nrun = \"b\"",
        "two checks of `a` are called `x`",
    ),
    ("[loop.b]\ngoal = \"h\"", "loop `b` has no check"),
    ("[[loop.a.monitor]]\nname = \"m\"", "a monitor watches nothing"),
    ("[[loop.a.monitor]]\nfile = \"a\"\nhttp = \"https://x\"", "has both `file` and `http`"),
    ("[[loop.a.monitor]]\nmailbox = \"ops\"", "`ops` is no box"),
    ("[[loop.a.monitor]]\nhttp = \"ftp://x\"", "`ftp://x` is no address"),
    ("[[loop.a.monitor]]\nhttp = \"https://me:pw@x/\"", "an address holds a password"),
    ("[[loop.a.monitor]]\nfile = \"a[\"", "`a[` is not a glob"),
    ("[[loop.a.monitor]]\nfile = \"a\"\nevery = \"100ms\"", "is looked at too often"),
    ("[[loop.a.monitor]]\nfile = \"a\"\ntimeout = \"1h\"", "may take too long"),
    (
        "[[loop.a.monitor]]\nfile = \"a\"\nname = \"x\"\n[[loop.a.monitor]]\nfile = \"b\"\nname = \"x\"",
        "two monitors are called `x`",
    ),
];

#[test]
fn monitors_are_read_with_their_defaults() {
    let toml = format!(
        "{GOOD}park_after = \"none\"\n[[loop.a.monitor]]\nstream = \"x.log\"\nprompt = \"mend it\"\n\
         [[loop.a.monitor]]\nstream = \"y.log\"\nevery = \"5m\"\n"
    );
    let watch = Project::new(&toml).good().watch;
    let names: Vec<&str> = watch.monitors.iter().map(|m| m.name.as_str()).collect();
    assert_eq!((names, watch.park_after), (vec!["stream", "stream-2"], 0));
    let [first, second] = &watch.monitors[..] else { panic!("two") };
    assert_eq!(
        (first.every, first.timeout, first.prompt.as_str()),
        (Duration::from_secs(60), Duration::from_secs(20), "mend it")
    );
    assert_eq!(second.every, Duration::from_secs(300));
    assert!(Project::new(GOOD).good().watch.is_empty());
}

#[test]
fn rules_over_several_values_hold() {
    for (toml, message) in ADDED {
        let wrong = Project::new(&format!("{GOOD}{toml}\n")).wrong();
        assert!(wrong.contains(message) && wrong.contains(" --> everloop.toml:"), "{toml}\n---\n{wrong}");
    }
}

#[test]
fn the_highest_layer_wins_and_is_named() {
    let project = Project::new(&format!("[defaults]\nmax_turns = 2\nmax_usd = 1\n{GOOD}max_turns = 3\n"))
        .user("[defaults]\nmax_turns = 1\nmax_time = \"1h\"\nintegrate = \"reached\"\n")
        .env("EVERLOOP_MAX_USD", "7.5")
        .env("EVERLOOP_MIN_GAP", "20s")
        .flags(&["--min-gap", "30s"]);
    let resolved = project.good();
    let user_file = project.user_dir().join(USER_FILE).display().to_string();
    let origin = |key: &str| {
        let row = resolved.values.iter().find(|row| row.key == key).expect("the key has a value");
        (row.value.to_string(), row.origin.replace(&user_file, "USER"))
    };
    assert_eq!(origin("max_turns"), ("3".into(), "everloop.toml:8".into()));
    assert_eq!(origin("max_time"), ("\"1h\"".into(), "USER:3".into()));
    assert_eq!(origin("integrate"), ("\"reached\"".into(), "USER:4".into()));
    assert_eq!(origin("max_usd"), ("7.5".into(), "EVERLOOP_MAX_USD".into()));
    assert_eq!(origin("guard.min_gap"), ("\"30s\"".into(), "--min-gap".into()));
    assert_eq!(origin("guard.max_parallel_turns").1, "built-in");
    assert_eq!(resolved.guard.min_gap, Duration::from_secs(30));
    assert_eq!(resolved.guard.budget.microusd, Some(7_500_000));
}

#[test]
fn an_upper_layer_can_say_the_same_thing_in_another_way() {
    let toml = "[defaults]\nagent = \"gone\"\nchecks = [\"old\"]\n[loop.a]\ngoal = \"g\"\nagent_cmd = \"x\"\n[[loop.a.check]]\nrun = \"new\"\n";
    let resolved = Project::new(toml).good();
    assert_eq!(resolved.agent.argv, ["x"]);
    assert_eq!(resolved.checks.iter().map(|c| c.run.as_str()).collect::<Vec<_>>(), ["new"]);
    let toml = "[agent.bot]\ncommand = \"bot\"\n[defaults]\nagent_cmd = \"old\"\n\
        [loop.a]\ngoal = \"g\"\nagent = \"bot\"\nchecks = [\"true\"]\n";
    assert_eq!(Project::new(toml).good().agent.argv, ["bot"]);
}

#[test]
fn limits_of_a_lower_layer_can_be_lifted() {
    let resolved = Project::new(&format!(
        "[defaults]\nmax_turns = 2\nmax_time = \"1h\"\n{GOOD}max_turns = \"none\"\nmax_time = \"none\"\n"
    ))
    .good();
    assert_eq!((resolved.bounds.max_turns, resolved.bounds.max_time), (None, None));
}

#[test]
fn bad_environment_and_flags_are_named() {
    let project = Project::new(GOOD).env("EVERLOOP_MIN_GAP", "15").env("EVERLOOP_MAX_TURNS", "many");
    insta::assert_snapshot!(project.wrong(), @r#"
    error: `EVERLOOP_MAX_TURNS`: expected a whole number from 1 up, or `"none"`, found `"many"`

    error: `EVERLOOP_MIN_GAP`: `15` has no unit
    hint: write it like `15s` or `15m`
    "#);
    let shell = "sh -c 'agent \"{prompt}\"'";
    let refused =
        [Project::new(GOOD).flags(&["--agent-cmd", shell]), Project::new(GOOD).env("EVERLOOP_AGENT_CMD", shell)];
    for project in refused {
        assert!(project.wrong().contains("a prompt inside shell code would be executed"));
    }
    let both = ["--agent", "a", "--agent-cmd", "b"];
    assert!(Project::new(GOOD).flags(&both).wrong().contains("`--agent` and `--agent-cmd` are both set"));
}

#[test]
fn free_turns_have_no_gap_and_no_caps_unless_set() {
    let none = StartCaps::NONE;
    let agent = "[agent.c]\ncommand = \"c\"\nfree = true\n";
    let of = |guard: &str| {
        let toml =
            format!("{agent}[loop.a]\ngoal = \"g\"\nagent = \"c\"\nchecks = [\"true\"]\n[loop.a.guard]\n{guard}\n");
        Project::new(&toml).good()
    };
    assert_eq!(of("").guard, GuardSpec::default().free());
    assert_eq!(of("").warnings, ["turns start without a minimum gap (agent `c` is marked `free`)"]);
    let kept = of("min_gap = \"5s\"\nper_hour = 7").guard;
    assert_eq!((kept.min_gap, kept.caps), (Duration::from_secs(5), StartCaps { per_hour: Some(7), ..none.clone() }));
    let zero = Project::new(GOOD).flags(&["--min-gap", "0"]).good();
    assert_eq!((zero.guard.min_gap, zero.guard.caps), (Duration::ZERO, none));
    assert_eq!(zero.warnings, ["turns start without a minimum gap (--min-gap)"]);
    let default = Project::new(&format!("{GOOD}[loop.a.guard]\nmin_gap = \"15s\"\n")).good();
    assert_eq!(default.guard, GuardSpec::default());
}

#[test]
fn a_budget_that_cannot_bite_is_warned_about() {
    let warnings = Project::new(&format!("{GOOD}max_usd = 1\nmax_tokens = 5\n")).good().warnings;
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].contains("`max_usd` cannot end the loop") && warnings[1].contains("`tokens_per_turn`"));
}

#[test]
fn one_off_loops_need_no_file() {
    let dir = tempfile::tempdir().expect("tests can make folders");
    let one_off = |flags: Flags| {
        let overrides = Overrides { env: BTreeMap::new(), flags };
        load(dir.path(), None, &overrides).and_then(|config| config.one_off("Make x", &moment()))
    };
    let words = ["--check", "test -f done", "--agent-cmd", "touch done", "-n", "3", "--in-place"];
    let resolved = one_off(flags(&words)).expect("flags are enough");
    assert_eq!((resolved.name.as_str(), resolved.goal.as_str()), ("make-x", "Make x"));
    assert_eq!(resolved.checks[0].name, "test -f done");
    assert_eq!((resolved.bounds.max_turns, resolved.workspace.kind), (Some(3), WorkspaceKey::InPlace));
    insta::assert_snapshot!(one_off(Flags::default()).expect_err("nothing is there").to_string(), @r#"
    error: `GOAL`: loop `make-x` has no agent
    hint: pass `--agent claude` (`everloop agents` lists what is there), or `--agent-cmd 'my-agent {prompt}'`

    error: `GOAL`: loop `make-x` has no check, so nothing could prove it reached
    hint: add `checks = ["cargo test"]`, or pass `--check 'cargo test'`
    "#);
}

#[test]
fn one_off_loops_see_the_agents_of_files() {
    let project = Project::new("[agent.p]\ncommand = \"p\"\nusd_per_turn = 0.5\n")
        .user("[agent.u]\ncommand = \"u\"\n[agent.p]\ncommand = \"old\"\naccount = \"mine\"\n[account.mine]\n")
        .flags(&["--agent", "p", "--check", "true"]);
    let config = project.load().expect("the files are good");
    assert_eq!(config.agents(), ["p", "u"]);
    let agent = config.one_off("g", &moment()).expect("the agent is known").agent;
    assert_eq!((agent.argv, agent.account, agent.turn_microusd), (vec!["p".to_owned()], "mine".to_owned(), 500_000));
}

#[test]
fn the_users_file_holds_no_loops_and_missing_loops_are_said() {
    let wrong = Project::new(GOOD).user("[loop.x]\ngoal = \"g\"\n").wrong();
    assert!(
        wrong.contains("a loop stands in the file of the user") && wrong.contains("DIR/user/config.toml:1:2"),
        "{wrong}"
    );
    let error = Project::new(GOOD).resolve("aa").expect_err("there is no such loop");
    assert_eq!(error.to_string(), "error: there is no loop `aa`\nhint: did you mean `a`?\n");
}

#[test]
fn files_that_cannot_be_read_are_errors_and_never_defaults() {
    let project = Project::new(GOOD);
    let path = project.dir.path().join(PROJECT_FILE);
    std::fs::write(&path, b"[loop.a]\ngoal = \"\xff\"\n").expect("tests can write files");
    assert!(project.wrong().contains("not valid UTF-8"), "{}", project.wrong());
    assert!(project.wrong().contains("everloop.toml:2:9"), "{}", project.wrong());
    std::fs::remove_file(&path).expect("tests can remove files");
    std::fs::create_dir(&path).expect("tests can make folders");
    assert!(project.wrong().contains("it is not a file"));
    std::fs::remove_dir(&path).expect("tests can remove folders");
    assert_eq!(project.load().expect("no file is no mistake").loops(), Vec::<String>::new());
}

#[test]
fn what_is_shown_can_be_read_again() {
    let toml = format!(
        "{GOOD}max_turns = 3\n[[loop.a.check]]\nname = \"n\"\nrun = \"r\"\ntimeout = \"90s\"\n[[loop.a.monitor]]\nfile = \"in\"\n"
    );
    let first = Project::new(&toml).good();
    let shown = render(&first.values, WithOrigin::Yes);
    let second = Project::new(&shown).good();
    assert_eq!((&first.checks, &first.bounds, &first.guard), (&second.checks, &second.bounds, &second.guard));
    assert_eq!((first.watch.monitors.len(), &first.watch), (1, &second.watch));
    // The guard's numbers are the core's business.
    let mine: Vec<&str> = shown.lines().filter(|line| !line.starts_with("guard.")).collect();
    insta::assert_snapshot!(mine.join("\n"));
}

#[test]
fn the_nearest_file_and_the_users_folder_are_found() {
    let project = Project::new(GOOD);
    let deep = project.dir.path().join("x/y");
    std::fs::create_dir_all(&deep).expect("tests can make folders");
    assert_eq!(find(&deep), Some(project.dir.path()));
    let var = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
    assert_eq!(user_dir(var).as_deref(), Some(Path::new("/home/me/.config/everloop")));
    assert_eq!(user_dir(|_| Some("relative".to_owned())), None);
}

/// A loop that names its agents itself.
fn loop_of(agents: &str, more: &str) -> ResolvedLoop {
    Project::new(&format!("[loop.a]\ngoal = \"g\"\nchecks = [\"true\"]\n{agents}\n{more}\n")).good()
}

#[test]
fn known_agents_need_no_section() {
    for kind in BUILT_IN {
        let agent = loop_of(&format!("agent = \"{}\"", kind.label()), "").agent;
        assert_eq!((agent.kind, agent.name.as_str(), agent.account.as_str()), (kind, kind.label(), "default"));
        assert_eq!(agent.permission, Permission::Edits);
        assert_eq!(agent, built_in(kind));
    }
    let claude = loop_of("agent = \"claude\"", "");
    assert_eq!(claude.agent.argv, ["claude"]);
    assert!(claude.agent.login.contains(&"ANTHROPIC_API_KEY".to_owned()) && claude.agent.pass_env.is_empty());
    assert_eq!(claude.guard, GuardSpec::default());
    assert_eq!(
        loop_of("agent = \"api\"", "").agent.argv,
        ["api", "--api-format", "messages", "--key-env", "ANTHROPIC_API_KEY"]
    );
    assert_eq!(loop_of("agent = \"api\"", "").agent.login, ["ANTHROPIC_API_KEY"]);
}

#[test]
fn every_key_of_an_agent_reaches_it() {
    let toml = r#"
[agent.fast]
kind = "claude"
command = ["/opt/claude", "--add-dir", "/srv"]
model = "haiku"
permission = "full"
allow = ["cargo test", "git status"]
pass_env = ["PROXY"]
api_base = "http://127.0.0.1:1"
session_turns = 3
[agent.mine]
kind = "api"
api_format = "responses"
key_env = "MY_KEY"
ca_file = "~/root.pem"
[agent.tui]
kind = "pane"
pane = "dev:1"
"#;
    let fast = loop_of("agent = \"fast\"", toml).agent;
    assert_eq!((fast.kind, fast.argv[0].as_str()), (AgentKind::Claude, "/opt/claude"));
    assert_eq!((fast.model.as_deref(), fast.permission), (Some("haiku"), Permission::Full));
    assert_eq!(fast.allow, ["cargo test", "git status"]);
    assert_eq!((fast.api_base.as_deref(), fast.session_turns), (Some("http://127.0.0.1:1"), 3));
    assert!(fast.pass_env == ["PROXY"] && fast.login.contains(&"CLAUDE_CONFIG_DIR".to_owned()));
    let mine = loop_of("agent = \"mine\"", toml).agent;
    assert_eq!(mine.argv, ["api", "--api-format", "responses", "--ca-file", "~/root.pem", "--key-env", "MY_KEY"]);
    assert_eq!(loop_of("agent = \"tui\"", toml).agent.argv, ["pane", "dev:1"]);
}

const ACCOUNTS: &str = r#"
[account.work]
env = { ANTHROPIC_API_KEY = "MY_WORK_KEY" }
file = { OTHER_KEY = "~/.keys/work" }
set = { CLAUDE_CONFIG_DIR = "~/.claude-work" }
[account.own]
env = { ANTHROPIC_API_KEY = "MY_OWN_KEY" }
"#;

#[test]
fn an_account_replaces_the_login_of_the_machine() {
    let resolved = loop_of("agents = [\"claude@work\", \"claude@own\", \"codex\"]", ACCOUNTS);
    let of = |name: &str, source| Variable { name: name.to_owned(), source };
    let work = &resolved.agent;
    assert_eq!((work.name.as_str(), work.account.as_str()), ("claude", "work"));
    assert_eq!(
        work.env,
        [
            of("ANTHROPIC_API_KEY", VariableSource::Env("MY_WORK_KEY".to_owned())),
            of("OTHER_KEY", VariableSource::File("/home/me/.keys/work".to_owned())),
            of("CLAUDE_CONFIG_DIR", VariableSource::Plain("/home/me/.claude-work".to_owned())),
        ]
    );
    assert!(work.pass_env.is_empty() && work.login.is_empty(), "nothing of another login");
    let others: Vec<(&str, &str)> = resolved.others.iter().map(|a| (a.name.as_str(), a.account.as_str())).collect();
    assert_eq!(others, [("claude", "own"), ("codex", "default")]);
    assert!(resolved.others[1].login.contains(&"CODEX_HOME".to_owned()) && resolved.others[1].env.is_empty());
    let spec = resolved.spec(everloop_core::spec::WorkspaceMode::InPlace);
    assert_eq!(spec.others, resolved.others);
    assert_eq!(resolved.warnings, Vec::<String>::new());
}

#[test]
fn the_account_of_an_agent_holds_unless_the_loop_names_another() {
    let agent = "[agent.bot]\ncommand = \"bot\"\naccount = \"work\"\npass_env = [\"EXTRA\"]\n";
    let bot = loop_of("agent = \"bot\"", &format!("{agent}{ACCOUNTS}")).agent;
    assert_eq!((bot.account.as_str(), bot.env.len(), bot.pass_env), ("work", 3, vec!["EXTRA".to_owned()]));
    let bot = loop_of("agent = \"bot@own\"", &format!("{agent}{ACCOUNTS}")).agent;
    assert_eq!((bot.account.as_str(), bot.env.len()), ("own", 1));
    let bot = loop_of("agent = \"bot@default\"", &format!("{agent}{ACCOUNTS}")).agent;
    assert_eq!((bot.account.as_str(), bot.env.len()), ("default", 0));
}

#[test]
fn what_the_loop_says_about_its_agents_wins() {
    let loop_keys =
        "agents = [\"claude\", \"codex\", \"x\"]\nmodel = \"big\"\npermission = \"full\"\nallow = [\"make\"]";
    let more = "[agent.x]\ncommand = \"x\"\n[agent.codex]\nmodel = \"small\"\nallow = [\"ls\"]\n";
    let resolved = loop_of(loop_keys, more);
    let seen: Vec<_> = resolved.agents().map(|a| (a.model.as_deref(), a.permission, a.allow.len())).collect();
    let expected =
        [(Some("big"), Permission::Full, 1), (Some("small"), Permission::Full, 1), (None, Permission::Edits, 0)];
    assert_eq!(seen, expected);
    assert_eq!(
        resolved.warnings,
        [
            "`permission` has no effect on agent `x`: it runs as it is",
            "`allow` has no effect on agent `x`: it runs as it is"
        ]
    );
}

#[test]
fn flags_and_environment_name_agents_in_order() {
    let project = Project::new(&format!("{GOOD}{ACCOUNTS}"));
    let agents = ["--agent", "claude@work", "--agent", "codex", "--model", "m", "--permission", "full"];
    let resolved = project.flags(&[&agents[..], &["--allow", "make test", "--allow", "ls"]].concat()).good();
    assert_eq!((resolved.agent.account.as_str(), resolved.others[0].name.as_str()), ("work", "codex"));
    assert_eq!(resolved.agent.model.as_deref(), Some("m"));
    assert_eq!((resolved.agent.permission, resolved.agent.allow.len()), (Permission::Full, 2));
    let origin = |key: &str| resolved.values.iter().find(|row| row.key == key).map(|row| row.origin.clone());
    assert_eq!(origin("agents").as_deref(), Some("--agent"));
    assert_eq!(origin("agent_cmd"), None, "an upper layer says it in another way");
    let env = Project::new(&format!("{GOOD}{ACCOUNTS}"))
        .env("EVERLOOP_AGENTS", "codex, claude@own")
        .env("EVERLOOP_MODEL", "4");
    let resolved = env.good();
    assert_eq!((resolved.agent.name.as_str(), resolved.others[0].account.as_str()), ("codex", "own"));
    assert_eq!(resolved.agent.model.as_deref(), Some("4"));
    let both = ["--agent", "a", "--agent", "b", "--agent-cmd", "b"];
    assert!(Project::new(GOOD).flags(&both).wrong().contains("`--agent` and `--agent-cmd` are both set"));
}

#[test]
fn what_an_agent_lacks_may_stand_in_the_other_file() {
    let project = Project::new(
        "[agent.fast]\nmodel = \"haiku\"\n[loop.a]\ngoal = \"g\"\nagent = \"fast\"\nchecks = [\"true\"]\n",
    )
    .user("[agent.fast]\nkind = \"claude\"\n");
    let agent = project.good().agent;
    assert_eq!((agent.kind, agent.model.as_deref()), (AgentKind::Claude, Some("haiku")));
    let alone = Project::new("[agent.fast]\nmodel = \"haiku\"\n");
    assert!(alone.wrong().contains("`[agent.fast]` has no `command`"), "{}", alone.wrong());
}

#[test]
fn secrets_in_the_wrong_place_are_neither_kept_nor_shown() {
    let wrong = Project::new("[agent.api]\nkey_env = \"sk-ant-canary\"\n").wrong();
    assert!(!wrong.contains("canary"), "{wrong}");
    let wrong = Project::new("[account.w]\nenv = { K = \"sk-ant-canary\" }\n").wrong();
    insta::assert_snapshot!(wrong, @r"
    error: wrong value for `env`: what `K` is set to is no name of a variable
     --> everloop.toml:2:1
      |
    2 | env = …
      | ^^^
    hint: write the name of the variable of your environment that holds it, never the secret itself
    ");
    // What is set so would stand in the journal.
    for set in ["K = \"sk-ant-canary\"", "MY_API_KEY = \"canary0123456789abcdef\""] {
        let wrong = Project::new(&format!("[account.w]\nset = {{ {set} }}\n")).wrong();
        assert!(
            wrong.contains("in `set` looks like a secret") && wrong.contains("hint: use `env` or `file`"),
            "{wrong}"
        );
        assert!(!wrong.contains("canary"), "{wrong}");
    }
    for set in ["MY_API_KEY = \"dummy\"", "KEY_FILE = \"/home/me/.keys/the-one-for-work\"", "K = \"canary\""] {
        assert_eq!(loop_of("agent = \"claude@w\"", &format!("[account.w]\nset = {{ {set} }}\n")).warnings.len(), 0);
    }
}

#[test]
fn agents_and_accounts_are_shown_and_can_be_read_again() {
    let agents = "agents = [\"claude@work\", \"codex\"]";
    let first = loop_of(agents, ACCOUNTS);
    let shown = render(&first.values, WithOrigin::No);
    let second = Project::new(&shown).good();
    assert_eq!((&first.agent, &first.others), (&second.agent, &second.others), "{shown}");
    let mine: Vec<&str> = shown.lines().skip_while(|line| !line.starts_with("[agent")).collect();
    insta::assert_snapshot!(mine.join("\n"));
}

#[test]
fn budgets_that_a_cli_reports_itself_are_not_warned_about() {
    let budget = "max_usd = 1\nmax_tokens = 5\n";
    assert_eq!(loop_of("agent = \"claude\"", budget).warnings, Vec::<String>::new());
    assert_eq!(loop_of("agent = \"codex\"", budget).warnings, Vec::<String>::new(), "by the list of prices");
    let with = |keys: &str| loop_of("agent = \"codex\"", &format!("{budget}[agent.codex]\n{keys}")).warnings;
    let unknown = with("model = \"gpt-99\"\n");
    assert!(unknown.len() == 1 && unknown[0].contains("`max_usd`"), "{unknown:?}");
    assert_eq!(with("model = \"gpt-99\"\nprices = [1.25, 10]\n"), Vec::<String>::new());
    let free = "[agent.c]\ncommand = \"c\"\nfree = true\n";
    assert_eq!(
        loop_of("agents = [\"c\", \"claude\"]", free).guard,
        GuardSpec::default(),
        "only all free ones are free"
    );
}

#[test]
fn a_completion_says_one_thing_about_a_file_of_the_project() {
    let rules = |toml: &str| Project::new(&format!("{GOOD}{toml}")).load().expect("it can be read").completions();
    let good = rules(
        "[completion.plan]\nplan = \"docs/PLAN.md\"\nloop = \"a\"\n[completion.said]\nmarker = \"ALL DONE\"\n\
         [completion.log]\nmarker = \"END\"\nwithin = \"out.log\"\n[completion.report]\nfile = \"report.md\"\n",
    );
    let good: Vec<_> = good.expect("all of it is good").into_iter().map(|rule| rule.sign).collect();
    let text = str::to_owned;
    let expected = [
        CompletionSign::Line { marker: text("END"), file: text("out.log") },
        CompletionSign::Plan { file: text("docs/PLAN.md") },
        CompletionSign::Appears { file: text("report.md") },
        CompletionSign::Said { marker: text("ALL DONE") },
    ];
    assert_eq!(good, expected);
    for (toml, said) in [
        ("[completion.x]\nplan = \"P.md\"\nmarker = \"END\"\n", "needs one of"),
        ("[completion.x]\nloop = \"a\"\n", "needs one of"),
        ("[completion.x]\nplan = \"../P.md\"\n", "is no file of the project"),
        ("[completion.x]\nfile = \"/etc/passwd\"\n", "is no file of the project"),
        ("[completion.x]\nplan = \"P.md\"\nwithin = \"x\"\n", "`within` belongs to `marker`"),
        ("[completion.x]\nplan = \"P.md\"\nloop = \"b\"\n", "there is no loop `b`"),
    ] {
        let wrong = rules(toml).expect_err(toml).to_string();
        assert!(wrong.contains(said) && wrong.contains("hint: "), "{toml}: {wrong}");
        assert!(Project::new(&format!("{GOOD}{toml}")).load().expect("it is TOML").check(&moment()).is_err());
    }
}

#[test]
fn a_container_is_for_the_work_of_agents_and_for_monitors() {
    let modes = |mode: &str| {
        let monitor = "[[loop.a.monitor]]\ncommand = \"x\"\n";
        let keys = format!("[isolation]\nmode = \"{mode}\"\ncontainer = [\"docker\"]\n[mailbox]\ncommand = [\"x\"]\n");
        let project = Project::new(&format!("{GOOD}{monitor}{keys}"));
        let outside = project.load().expect("it can be read").outbound().expect("all of it is good");
        let good = project.good();
        let monitor = good.watch.monitors[0].access.spec(&good.isolation).mode;
        (outside.mailbox.expect("it is named").access.around.mode, monitor)
    };
    assert_eq!(modes("container"), (IsolationMode::Auto, IsolationMode::Container));
    assert_eq!(modes("bubblewrap"), (IsolationMode::Bubblewrap, IsolationMode::Bubblewrap));
}

#[test]
fn who_else_hears_of_it_is_named_in_one_way_and_no_token_goes_out_in_the_open() {
    let outside = |toml: &str| Project::new(&format!("{GOOD}{toml}")).load().expect("it can be read").outbound();
    let good =
        outside("[tracker]\nurl = \"https://t.example/x\"\ntoken_env = \"TOKEN\"\n[mailbox]\ncommand = [\"x\"]\n");
    let good = good.expect("all of it is good");
    let auth = Some(Auth::Bearer(SecretSource::Env("TOKEN".to_owned())));
    let url = Address::Open("https://t.example/x".to_owned());
    assert_eq!(good.tracker.map(|to| to.channel), Some(Channel::Webhook { url, auth }));
    assert_eq!(good.mailbox.map(|to| to.channel), Some(Channel::Command { argv: vec!["x".to_owned()] }));
    for (toml, said) in [
        ("[tracker]\nurl = \"http://t.example/x?key=k3y\"\n", "in the open"),
        ("[tracker]\nurl = \"https://me:k3y@t.example/\"\n", "holds a password"),
        ("[mailbox]\nurl = \"https://t.example/k3y\"\ncommand = [\"x\"]\n", "both `command` and `url`"),
        ("[mailbox]\ncommand = [\"x\"]\ntoken_env = \"TOKEN\"\n", "a token without a `url`"),
        ("[tracker]\nurl = \"https://t.example\"\ntoken_env = \"A\"\ntoken_file = \"b\"\n", "keep one of them"),
    ] {
        let wrong = outside(toml).expect_err(toml).to_string();
        assert!(wrong.contains(said) && !wrong.contains("k3y"), "{toml}: {wrong}");
    }
}
