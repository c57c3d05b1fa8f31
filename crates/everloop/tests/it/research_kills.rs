//! A research run is killed again and again, at any moment: its supervisor, the shims of its jobs,
//! its agents. It ends with the rows, refs, champion and state of a run without a kill.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everloop_core::jitter::mix;
use everloop_store::{Ledger as _, OpenMode, Sqlite};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::env::{Env, processes_of};
use crate::untouched::contents;

/// The metric: a sum, a crash that can be mended, one that cannot, or no number.
const METRIC: &str = "test -f numbers || { echo 'IndexError: no numbers'; exit 1; }\n\
    case $(head -n1 numbers) in mute) echo none; exit 0;; missing) echo 'No module named x'; exit 1;; esac\n\
    awk '{ s += $1 } END { print s }' numbers\n";

/// The agent: the number of the experiment is in its prompt, so that a killed turn makes the same
/// change again. It waits until the experiment is allowed, so that the kills cannot outlast the run.
const AGENT: &str = "#!/bin/sh\n\
    here=$(dirname \"$0\")\n\
    n=$(sed -n 's/^- this is experiment \\([0-9]*\\).*/\\1/p' \"$1\")\n\
    until test \"$(cat \"$here/allowed\")\" -ge \"$n\"; do sleep 0.01; done\n\
    grep -q 'Mend it' \"$1\" && n=$n-fix\n\
    sh \"$here/idea-$n\"\n";

/// No experiment of these is kept: the ladder is climbed to its end, and a line begins from an older
/// keep.
const STUCK: std::ops::Range<u32> = 28..56;

/// What the agent does in an experiment, and to mend it.
fn idea(n: u32) -> (String, Option<String>) {
    let stuck = STUCK.contains(&n);
    let better = if stuck { 2000 + n } else { 1000 - n };
    let set = |to: &str| format!("echo {to} > numbers");
    let change = match n % 20 {
        // Better than an older keep, and not than the champion.
        7 if stuck => set("982.5"),
        0 | 3 | 6 | 10 | 13 | 16 => set(&better.to_string()),
        1 | 11 => set(&(3000 + n).to_string()),
        2 => "echo 'echo 1' > metric.sh".to_owned(),
        4 => ":".to_owned(),
        5 | 15 => "rm numbers".to_owned(),
        // The same change twice.
        7 | 8 | 17 | 18 => set("4000"),
        9 | 19 => format!("{}; rm README", set("1")),
        12 => set("mute"),
        _ => set("missing"),
    };
    (format!("echo 'EXPERIMENT: idea {n}'; {change}"), matches!(n % 20, 5 | 15).then(|| set(&better.to_string())))
}

fn outside(env: &Env) -> PathBuf {
    env.project().with_file_name("outside")
}

/// What the supervisors wrote.
fn log(env: &Env) -> PathBuf {
    outside(env).join("log")
}

fn allow(env: &Env, experiments: u32) {
    let new = outside(env).join("allowed.new");
    fs::write(&new, experiments.to_string()).expect("the folder is the test's");
    fs::rename(new, outside(env).join("allowed")).expect("it was just written");
}

/// A person's repository with everything that could be disturbed.
fn world(experiments: u32) -> Env {
    let env = Env::new().git();
    env.write("numbers", "1500\n");
    env.write("metric.sh", METRIC);
    // Turns that die are failures of the agent; what the guard does about them is not looked at here.
    let guard = "[defaults.guard]\nbackoff_first = \"50ms\"\nbackoff_cap = \"50ms\"\ncooldown_deaths = 100000\n";
    env.write("everloop.toml", guard);
    env.write("mine.txt", "one\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-qm", "numbers"]);
    env.write("mine.txt", "stashed\n");
    env.git_run(&["stash", "-q"]);
    env.write("mine.txt", "staged\n");
    env.git_run(&["add", "mine.txt"]);
    env.write("mine.txt", "not staged\n");
    env.write("untracked.txt", "mine\n");
    env.git_run(&["config", "custom.key", "value"]);
    // Any `git status` refreshes the index; after this one there is nothing left to refresh.
    env.git_run(&["status"]);
    fs::create_dir_all(outside(&env)).expect("the folder is the test's");
    for n in 1..=experiments {
        let (change, fix) = idea(n);
        fs::write(outside(&env).join(format!("idea-{n}")), change).expect("the folder is the test's");
        if let Some(fix) = fix {
            fs::write(outside(&env).join(format!("idea-{n}-fix")), fix).expect("the folder is the test's");
        }
    }
    let agent = outside(&env).join("agent");
    fs::write(&agent, AGENT).expect("the folder is the test's");
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("it was just written");
    allow(&env, 0);
    env
}

fn command(env: &Env, experiments: u32) -> Command {
    let agent = format!("{} {{prompt_file}}", outside(env).join("agent").display());
    let (count, words) = (experiments.to_string(), ["research", "a smaller sum", "--metric", "sh metric.sh"]);
    let more = ["--direction", "lower", "--check", "test -f README", "--agent-cmd", &agent, "--min-gap", "0"];
    let mut command = env.command(&[&words[..], &more, &["-n", &count]].concat());
    let log = OpenOptions::new().append(true).create(true).open(log(env)).expect("the folder is the test's");
    command.stdout(Stdio::null()).stderr(log);
    command
}

/// Runs it to its end, however long that takes on a busy machine.
#[track_caller]
fn finish(env: &Env, experiments: u32) {
    allow(env, experiments);
    let status = command(env, experiments).status().expect("everloop starts");
    assert_eq!(status.code(), Some(3), "{}", env.run(&["research", "show"]).stdout);
}

/// A process of the run, of the kind that is due; the supervisor's, if there is none.
fn victim(env: &Env, supervisor: &Child, draw: u64) -> i32 {
    let agent = outside(env).join("agent").display().to_string();
    let is_due = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let is_shim = line.split(' ').nth(1) == Some("__job");
        // A process that the supervisor just forked looks like it until it executes its program.
        let is_everloop = line.starts_with(env!("CARGO_BIN_EXE_everloop"));
        match draw % 4 {
            0 | 1 => false,
            2 => is_shim,
            _ => !is_everloop && line.contains(&agent),
        }
    };
    processes_of(&env.state()).into_iter().find(is_due).unwrap_or_else(|| supervisor.id().cast_signed())
}

/// Kills so often, spread over all experiments.
fn run_killed(env: &Env, (experiments, kills): (u32, u32), mut seed: u64) {
    let start = || command(env, experiments).spawn().expect("everloop starts");
    let mut supervisor = start();
    for n in 0..kills {
        allow(env, (n * experiments / kills).min(experiments - 1));
        seed = mix(seed, 1);
        let end = Instant::now() + Duration::from_micros(seed % 250_000);
        while Instant::now() < end && supervisor.try_wait().expect("it is our child").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = supervisor.try_wait().expect("it is our child");
        let said = || fs::read_to_string(log(env)).unwrap_or_default();
        assert_eq!(ended, None, "it ended before kill {n}:\n{}", said());
        let victim = victim(env, &supervisor, seed >> 32);
        // A shim or an agent may just have ended.
        kill(Pid::from_raw(victim), Signal::SIGKILL).ok();
        if victim == supervisor.id().cast_signed() {
            supervisor.wait().expect("it is our child");
            supervisor = start();
        }
    }
    supervisor.kill().expect("it is our child");
    supervisor.wait().expect("it is our child");
    finish(env, experiments);
}

/// What a run came to, without what a clock, an id or a fence changes: commits by their trees.
fn findings(env: &Env) -> Value {
    let shown = env.run(&["research", "show", "--json"]).ok().json();
    let id = shown["loop"].as_str().expect("an id").to_owned();
    let ledger = Sqlite::open(&env.state().join("ledger.db"), OpenMode::ReadOnly).expect("the ledger is there");
    let stored = ledger.loops().expect("it can be read").into_iter().next().expect("there is one loop");
    let state: Value = serde_json::from_str(&stored.state).expect("a state is JSON");
    let mut research = state["research"].clone();
    let champion = research["champion"]["commit"].clone();
    let pins = env.git_run(&["for-each-ref", "--format=%(objectname)", &format!("refs/everloop/{id}/*/*")]);
    let mut rows = shown["rows"].clone();
    let trees = Trees::of(env);
    for row in rows.as_array().expect("rows") {
        let commit = row["commit"].as_str().unwrap_or_default();
        assert!(row["number"] == 0 || pins.contains(commit), "the work of experiment {} has no ref", row["number"]);
    }
    for part in [&mut rows, &mut research] {
        essence(&trees, part);
    }
    let work = env.git_run(&["rev-parse", &format!("refs/everloop/{id}/work")]);
    assert_eq!(work.trim(), champion.as_str().unwrap_or_default(), "the ref of the champion");
    let table = env.run(&["research", "export"]).ok().stdout;
    let table: Vec<Vec<String>> = table.lines().map(|line| cells(&trees, line)).collect();
    json!({ "rows": rows, "state": research, "table": table, "summary": without_commits(&shown["summary"]) })
}

/// Removes times, and names commits by their trees.
fn essence(trees: &Trees, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in ["at", "millis", "task", "times"] {
                map.remove(key);
            }
            for (key, value) in map.iter_mut() {
                match (key.as_str(), value.as_str()) {
                    ("commit" | "base", Some(commit)) => *value = json!(trees.of_commit(commit)),
                    _ => essence(trees, value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| essence(trees, item)),
        _ => {}
    }
}

/// Commits and their trees.
struct Trees(Vec<(String, String)>);

impl Trees {
    fn of(env: &Env) -> Self {
        let log = env.git_run(&["log", "--all", "--format=%H %T"]);
        let pair = |line: &str| line.split_once(' ').map(|(commit, tree)| (commit.to_owned(), tree.to_owned()));
        Self(log.lines().filter_map(pair).collect())
    }

    /// The tree of a commit, which may be shortened.
    fn of_commit(&self, commit: &str) -> String {
        let found = self.0.iter().find(|(known, _)| known.starts_with(commit));
        found.unwrap_or_else(|| panic!("no ref leads to {commit}")).1.clone()
    }
}

/// A line of the table, without task and duration.
fn cells(trees: &Trees, line: &str) -> Vec<String> {
    let mut cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
    if cells.len() > 8 && cells[0] != "iteration" {
        cells.drain(7..=8);
        // A change of nothing has no commit.
        if cells[1] != "-" {
            cells[1] = trees.of_commit(&cells[1]);
        }
    }
    cells
}

fn without_commits(summary: &Value) -> String {
    let words = summary.as_str().unwrap_or_default().split(' ');
    let is_commit = |word: &&str| word.starts_with('(') && word.len() == "(123456789012):".len();
    words.filter(|word| !is_commit(word)).collect::<Vec<_>>().join(" ")
}

fn equals_an_undisturbed_one((experiments, kills): (u32, u32), seed: u64) {
    let (calm, env) = (world(experiments), world(experiments));
    let before = contents(&env.project());
    std::thread::scope(|scope| {
        scope.spawn(|| finish(&calm, experiments));
        run_killed(&env, (experiments, kills), seed);
    });
    let (found, expected) = (findings(&env), findings(&calm));
    for part in ["rows", "table"] {
        let lines = |value: &Value| value[part].as_array().expect("a list").clone();
        for (line, other) in lines(&found).iter().zip(&lines(&expected)) {
            assert_eq!(line, other);
        }
    }
    assert_eq!(found, expected);
    let after = contents(&env.project());
    let touched: Vec<&String> = after.keys().chain(before.keys()).filter(|k| before.get(*k) != after.get(*k)).collect();
    assert_eq!(touched, Vec::<&String>::new(), "a person's file was touched");
    let said = env.run(&["replay"]).ok().stdout;
    assert!(said.contains("equal"), "{said}");
    env.wait_for("nothing of it is left", || processes_of(&env.state()).is_empty());
}

#[test]
fn long_a_run_that_is_killed_again_and_again_equals_an_undisturbed_one() {
    equals_an_undisturbed_one((10, 33), 11);
}

#[test]
fn soak_two_hundred_kills_of_sixty_experiments_change_nothing() {
    equals_an_undisturbed_one((60, 200), 7);
}
