//! Research with several workers: every experiment is counted once, and the champion only moves from
//! the former champion.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::env::{Env, Output, processes_of};

/// Files with a number each; their sum is the metric.
const FILES: usize = 16;
/// The number in each of them.
const NUMBER: u32 = 100_000;

/// A project whose metric is the sum of the numbers in `f1`, `f2`, …, and an agent that makes change
/// N of a script in the experiment that began as number N.
fn project(idea: impl Fn(usize) -> String) -> Env {
    let env = Env::new().git();
    for n in 1..=FILES {
        env.write(&format!("f{n}"), &format!("{NUMBER}\n"));
    }
    env.write("metric.sh", "cat f* | awk '{ s += $1 } END { print s }'\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-qm", "numbers"]);
    let outside = env.project().join("../outside");
    fs::create_dir_all(&outside).expect("the folder is the test's");
    for n in 1..=FILES {
        fs::write(outside.join(format!("idea-{n}")), idea(n)).expect("the folder is the test's");
    }
    let agent = "#!/bin/sh\nn=$(sed -n 's/^- this is experiment \\([0-9]*\\).*/\\1/p' \"$1\")\n\
        here=$(dirname \"$0\")\necho \"EXPERIMENT: change $n\"\n. \"$here/idea-$n\"\n";
    let path = outside.join("agent");
    fs::write(&path, agent).expect("the folder is the test's");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it was just written");
    env
}

fn command(env: &Env, more: &[&str]) -> Vec<String> {
    let agent = env.project().join("../outside/agent").canonicalize().expect("it was made");
    let agent = format!("{} {{prompt_file}}", agent.display());
    let words = ["research", "a smaller sum", "--metric", "sh metric.sh", "--direction", "lower", "--min-gap", "0"];
    let words = words.iter().chain(more).map(|word| (*word).to_owned());
    words.chain(["--agent-cmd".to_owned(), agent]).collect()
}

fn research(env: &Env, more: &[&str]) -> Output {
    let words = command(env, more);
    env.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn start(env: &Env, more: &[&str]) -> Child {
    let words = command(env, more);
    let mut run = env.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    run.stdout(Stdio::null()).stderr(Stdio::null());
    run.spawn().expect("everloop starts")
}

/// The idea waits until the test calls `go`.
fn waits(name: &str, change: &str) -> String {
    format!("while ! test -e \"$here/{name}\"; do sleep 0.05; done\n{change}")
}

fn go(env: &Env, name: &str) {
    fs::write(env.project().join("../outside").join(name), "").expect("the folder is the test's");
}

fn shown(env: &Env) -> Value {
    let out = env.run(&["research", "show", "--json"]);
    if out.code == 0 { out.json() } else { Value::Null }
}

fn rows(env: &Env) -> Vec<Value> {
    shown(env)["rows"].as_array().cloned().unwrap_or_default()
}

fn statuses(env: &Env) -> Vec<String> {
    rows(env).iter().map(|row| row["status"].as_str().expect("a status").to_owned()).collect()
}

/// Numbers without gaps, every turn once, each keep on the former champion, and the journal says the
/// same.
fn assert_sound(env: &Env, experiments: usize) {
    let rows = rows(env);
    let numbers: Vec<u64> = rows.iter().filter_map(|row| row["number"].as_u64()).collect();
    assert_eq!(numbers, (0..=experiments as u64).collect::<Vec<_>>());
    let tasks: BTreeSet<&str> = rows.iter().filter_map(|row| row["task"].as_str()).collect();
    assert_eq!(tasks.len(), rows.len(), "a task is one experiment: {tasks:?}");
    let mut champion = rows[0]["commit"].clone();
    for row in &rows[1..] {
        if row["status"] == "keep" || row["status"] == "simpler" {
            assert_eq!(row["base"], champion, "{row}");
            champion = row["commit"].clone();
        }
    }
    let best = env.run(&["research", "best", "--json"]).ok().json();
    assert_eq!(best["commit"], champion);
    let table = env.run(&["research", "export"]).ok().stdout;
    let lines: Vec<&str> = table.lines().skip(2).collect();
    let first = |line: &&str| line.split('\t').next().and_then(|cell| cell.parse().ok());
    assert_eq!(lines.iter().filter_map(first).collect::<Vec<u64>>(), numbers, "{table}");
    let said = env.run(&["replay"]).ok().stdout;
    assert!(said.contains("equal"), "{said}");
    assert_eq!(env.git_run(&["status", "--porcelain"]), "");
}

/// Change N is worth more than all changes before it, so that a stale one may well be the best.
fn doubling(n: usize) -> String {
    format!("echo {} > f{n}", NUMBER - 2_u32.pow(u32::try_from(n).expect("it is small")))
}

#[test]
fn four_workers_count_every_experiment_once() {
    let env = project(doubling);
    let out = research(&env, &["-n", "12", "--workers", "4"]).exits(3);
    assert!(out.stderr.contains("4 experiments at a time"), "{}", out.stderr);
    assert!(out.stdout.contains("(12/12 iterations)"), "{}", out.stdout);
    assert_sound(&env, 12);
    let shown = env.run(&["research", "show"]).ok().stdout;
    assert!(shown.contains("4 workers"), "{shown}");
    let list = env.run(&["research", "list", "--json"]).ok().json();
    assert_eq!(list["runs"].as_array().map(Vec::len), Some(1), "{list}");
    let status = env.run(&["status", "--json"]).ok().json();
    assert_eq!(status["loops"].as_array().map(Vec::len), Some(1), "{status}");
    let table = env.state().join("research").join(list["runs"][0]["loop"].as_str().expect("an id"));
    let table = fs::read_to_string(table.join("autoresearch-results.tsv")).expect("the table is there");
    assert_eq!(table.trim_end(), env.run(&["research", "export"]).ok().stdout.trim_end());
    let id = list["runs"][0]["loop"].as_str().expect("an id");
    let report = env.run(&["report", id, "--json"]).ok().json()["report"].clone();
    assert_eq!(report["spent"]["turns"], 12, "a report about a run has all its workers: {report}");
    assert_eq!(report["loops"].as_array().map(Vec::len), Some(4), "{report}");
    env.run(&["forget", id, "--force", "--yes"]).ok();
    assert_eq!(env.git_run(&["for-each-ref", "refs/everloop"]), "", "all workers are forgotten");
    env.wait_for("nothing lives on", || processes_of(&env.state()).is_empty());
}

#[test]
fn a_winner_on_an_old_champion_is_made_again_on_the_new_one_and_measured_there() {
    let env = project(|n| match n {
        1 => "echo 99990 > f1".to_owned(),
        _ => waits("go", "echo 1 > f2"),
    });
    let mut run = start(&env, &["-n", "2", "--workers", "2"]);
    env.wait_for("the first one is kept", || rows(&env).len() == 2);
    go(&env, "go");
    assert_eq!(run.wait().expect("it was started here").code(), Some(3));
    assert_sound(&env, 2);
    assert_eq!(statuses(&env), ["baseline", "keep", "keep"]);
    let rows = rows(&env);
    let sum = f64::from(NUMBER) * 14.0 + 99_990.0 + 1.0;
    assert_eq!((rows[2]["value"].as_f64(), &rows[2]["base"]), (Some(sum), &rows[1]["commit"]));
    assert!(env.run(&["research", "diff", "2"]).ok().stdout.contains("+1\n"));
    env.run(&["research", "apply"]).ok();
    assert_eq!((env.read("f1"), env.read("f2")), ("99990\n".to_owned(), "1\n".to_owned()));
}

#[test]
fn a_stale_change_that_conflicts_or_is_not_better_is_discarded() {
    let env = project(|n| match n {
        1 => "echo 50000 > f1".to_owned(),
        2 => waits("go", "echo 1 > f1"),
        3 => waits("go", "echo 99999 > f3"),
        _ => "true".to_owned(),
    });
    let mut run = start(&env, &["-n", "3", "--workers", "3"]);
    env.wait_for("the first one is kept", || rows(&env).len() == 2);
    go(&env, "go");
    assert_eq!(run.wait().expect("it was started here").code(), Some(3));
    assert_sound(&env, 3);
    let why: BTreeSet<String> =
        rows(&env)[2..].iter().filter_map(|row| row["why"].as_str().map(str::to_owned)).collect();
    let wanted = ["it conflicts with the new champion in f1", "not better than the champion"];
    assert_eq!(why, BTreeSet::from(wanted.map(str::to_owned)));
}

#[test]
fn an_exclusive_metric_never_runs_twice_at_once() {
    let env = project(|n| format!("echo {n} > f{n}"));
    let metric = "start=$(date +%s%N)\nsleep 0.05\ncat f* | awk '{ s += $1 } END { print \"METRIC sum=\" s }'\n\
        echo \"METRIC start=$start\"\necho \"METRIC end=$(date +%s%N)\"\n";
    env.write("metric.sh", metric);
    env.git_run(&["commit", "-qam", "a metric with its times"]);
    let out = research(&env, &["-n", "8", "--workers", "5", "--exclusive", "--metric-name", "sum"]).exits(3);
    assert!(out.stderr.contains("max_parallel_turns is 4; for this run it is 5"), "{}", out.stderr);
    assert_sound(&env, 8);
    let time = |row: &Value, name: &str| row["others"][name].as_f64();
    let mut times: Vec<(f64, f64)> =
        rows(&env).iter().filter_map(|row| Some((time(row, "start")?, time(row, "end")?))).collect();
    assert!(times.len() >= 8, "{times:?}");
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two measurements at once: {times:?}");
}

#[test]
fn stop_and_the_same_command_again_reach_all_workers() {
    let env = project(|n| waits("go", &doubling(n)));
    let mut run = start(&env, &["-n", "6", "--workers", "2"]);
    let agents = || processes_of(&env.state()).len();
    env.wait_for("the run has begun", || !rows(&env).is_empty() && agents() > 0);
    env.run(&["research", "stop"]).ok();
    go(&env, "go");
    run.wait().expect("it was started here");
    let begun = rows(&env).len() - 1;
    assert!(begun <= 2, "no worker begins another experiment: {begun}");
    assert_eq!(env.the_loop()["phase"]["ending"]["is"], "stopped");
    env.wait_for("nothing lives on", || agents() == 0);
    research(&env, &["-n", "6", "--workers", "2"]).exits(3);
    assert_sound(&env, 6);
    let other = research(&env, &["-n", "8", "--workers", "3"]).exits(3);
    assert!(other.stderr.contains("goes on with 2 at a time"), "{}", other.stderr);
    assert_sound(&env, 8);
}

#[test]
fn a_metric_that_fails_at_the_baseline_ends_all_workers() {
    let env = project(doubling);
    let words = command(&env, &["-n", "3", "--workers", "3", "--metric-max", "1"]);
    let out = env.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).exits(1);
    assert!(out.stderr.contains("the metric cannot be read"), "{}", out.stderr);
    let many = research(&env, &["--workers", "65"]).exits(2).stderr;
    assert!(many.contains("a number from 1 to 64"), "{many}");
    let said = env.run(&["replay"]).ok().stdout;
    assert!(said.contains("equal"), "{said}");
}

/// Kills of one run, at any moment.
const KILLS: usize = 30;
const EXPERIMENTS: usize = 12;

#[test]
fn long_workers_that_are_killed_again_and_again_lose_nothing_and_count_nothing_twice() {
    let env = project(doubling);
    let guard = "[defaults.guard]\nbackoff_first = \"100ms\"\nbackoff_cap = \"100ms\"\ncooldown_deaths = 1000\n";
    env.write("everloop.toml", guard);
    env.git_run(&["add", "everloop.toml"]);
    env.git_run(&["commit", "-qm", "everloop.toml"]);
    let count = EXPERIMENTS.to_string();
    let more = ["-n", count.as_str(), "--workers", "4"];
    let is_over = || rows(&env).len() > EXPERIMENTS && env.the_loop()["phase"]["is"] == "ended";
    let mut seed = 23;
    for _ in 0..KILLS {
        seed = everloop_core::jitter::mix(seed, 1);
        let mut child = start(&env, &more);
        let end = Instant::now() + Duration::from_micros(100_000 + seed % 500_000);
        while Instant::now() < end && child.try_wait().expect("it can be waited for").is_none() {
            std::thread::sleep(Duration::from_micros(500));
        }
        child.kill().ok();
        child.wait().expect("it was started here");
        if is_over() {
            break;
        }
    }
    // The same command on a run that is over would give it as many experiments again.
    if !is_over() {
        research(&env, &more).exits(3);
    }
    assert_sound(&env, EXPERIMENTS);
}
