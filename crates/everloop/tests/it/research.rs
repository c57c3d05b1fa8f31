//! `everloop research`: experiments are measured, kept or discarded, and survive every kill.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::env::{Env, Output, processes_of};

/// A project whose metric is the sum of the numbers in `numbers`, and an agent that makes the changes
/// of a script one after the other: line N of `ideas` is its change number N.
fn project(ideas: &[&str]) -> Env {
    let env = Env::new();
    let env = env.git();
    env.write("numbers", "50\n30\n20\n");
    env.write("metric.sh", "awk '{ s += $1 } END { print s }' numbers\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-qm", "numbers"]);
    let outside = env.project().join("../outside");
    fs::create_dir_all(&outside).expect("the folder is the test's");
    for (n, idea) in ideas.iter().enumerate() {
        fs::write(outside.join(format!("idea-{}", n + 1)), idea).expect("the folder is the test's");
    }
    let agent = "#!/bin/sh\n# The number of the experiment is in the prompt, so that a killed turn makes the same change again.\n\
        n=$(sed -n 's/^- this is experiment \\([0-9]*\\).*/\\1/p' \"$1\")\n\
        grep -q 'Mend it' \"$1\" && n=$n-fix\n\
        sh \"$(dirname \"$0\")/idea-$n\"\n";
    let path = outside.join("agent");
    fs::write(&path, agent).expect("the folder is the test's");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it was just written");
    env
}

fn agent(env: &Env) -> String {
    let agent = env.project().join("../outside/agent").canonicalize().expect("it was made");
    format!("{} {{prompt_file}}", agent.display())
}

fn research(env: &Env, more: &[&str]) -> Output {
    let agent = agent(env);
    let words = [
        "research",
        "a smaller sum",
        "--metric",
        "sh metric.sh",
        "--direction",
        "lower",
        "--agent-cmd",
        &agent,
        "--min-gap",
        "0",
    ];
    env.run(&[&words[..], more].concat())
}

fn rows(env: &Env) -> Vec<Value> {
    env.run(&["research", "show", "--json"]).ok().json()["rows"].as_array().expect("rows").clone()
}

fn statuses(env: &Env) -> Vec<String> {
    rows(env).iter().map(|row| row["status"].as_str().expect("a status").to_owned()).collect()
}

/// A keep, a discard, a change of the metric's own script, a change of nothing, a crash that is mended.
const IDEAS: [&str; 5] = [
    "echo 'EXPERIMENT: drop the largest number'; sed -i 1d numbers",
    "echo 'EXPERIMENT: add a number'; echo 7 >> numbers",
    "echo 'EXPERIMENT: a metric that is always 1'; echo 'echo 1' > metric.sh",
    "echo 'EXPERIMENT: think'",
    "echo 'EXPERIMENT: halve the first'; echo 15 > numbers; echo 20 >> numbers",
];

#[test]
fn experiments_are_kept_or_discarded_by_the_metric_alone() {
    let env = project(&IDEAS);
    let before = env.git_run(&["rev-parse", "HEAD"]);
    let out = research(&env, &["-n", "5"]).exits(3);
    assert!(out.stdout.contains("=== Autoresearch Complete (5/5 iterations) ==="), "{}", out.stdout);
    assert!(out.stdout.contains("Baseline: 100 -> Final: 35 (65.0 % better)"), "{}", out.stdout);
    assert_eq!(statuses(&env), ["baseline", "keep", "discard", "refused", "no_op", "keep"]);
    assert!(out.stderr.contains("at most: 5 experiments"), "{}", out.stderr);
    let lines = |what: &str| out.stderr.lines().filter(|line| line.contains(what)).count();
    assert_eq!((lines(" experiment 2: discard"), lines(" ended: ")), (1, 1), "one line each: {}", out.stderr);
    let rows = rows(&env);
    let row = |n: usize| (rows[n]["value"].as_f64(), rows[n]["description"].as_str().unwrap_or_default());
    assert_eq!(row(1), (Some(50.0), "drop the largest number"));
    assert_eq!(row(2), (Some(57.0), "add a number"));
    assert_eq!(row(3).0, None, "what is refused is not measured");
    assert_eq!(env.git_run(&["rev-parse", "HEAD"]), before, "nothing moves before `apply`");
    assert_eq!(env.git_run(&["status", "--porcelain"]), "");
    let shown = env.run(&["research", "show"]).ok().stdout;
    assert!(shown.contains("drop the largest number") && shown.contains("Estimated false keeps"), "{shown}");
    let diff = env.run(&["research", "diff", "2"]).ok().stdout;
    assert!(diff.contains("+7"), "a discarded change can be seen: {diff}");
    let best = env.run(&["research", "best"]).ok().stdout;
    assert!(best.contains("experiment 5") && best.contains("35 (baseline 100)"), "{best}");
    let list = env.run(&["research", "list"]).ok().stdout;
    assert!(list.contains("100 -> 35"), "{list}");
    env.run(&["research", "apply"]).ok();
    assert_eq!(env.read("numbers"), "15\n20\n");
    let subjects = env.git_run(&["log", "-2", "--format=%s"]);
    assert_eq!(subjects.trim(), "halve the first\ndrop the largest number", "a commit names what was tried");
    let none = env.run(&["research", "diff", "77"]).exits(2).stderr;
    assert!(none.contains("has no experiment 77") && none.contains("0 (the baseline) to 5"), "{none}");
}

#[test]
fn without_a_name_the_latest_run_of_the_folder_is_meant() {
    let env = project(&IDEAS);
    let (agent, goals) = (agent(&env), ["one", "two", "three", "four"]);
    for goal in goals {
        let words = ["research", goal, "--metric", "sh metric.sh", "--direction", "lower", "--agent-cmd", &agent];
        env.run(&[&words[..], &["--min-gap", "0", "-n", "1"]].concat()).exits(3);
    }
    let list = env.run(&["research", "list", "--json"]).ok().json();
    let listed: Vec<&str> =
        list["runs"].as_array().expect("runs").iter().filter_map(|run| run["goal"].as_str()).collect();
    assert_eq!(listed, goals, "the latest last");
    assert_eq!(env.run(&["research", "show", "--json"]).ok().json()["goal"], "four");
}

#[test]
fn the_table_is_only_appended_to_and_holds_every_experiment() {
    let env = project(&IDEAS);
    let table = env.project().join("../results.tsv");
    let name = table.display().to_string();
    research(&env, &["-n", "2", "--results", &name]).exits(3);
    let first = fs::read_to_string(&table).expect("the table was written");
    let lines: Vec<&str> = first.lines().collect();
    assert_eq!(lines[0], "# metric_direction: lower");
    assert_eq!(
        lines[1],
        "iteration\tcommit\tmetric\tdelta\tguard\tstatus\tdescription\ttask_id\tduration_s\tagent\tcost_usd"
    );
    assert!(
        lines[2].starts_with("0\t") && lines[3].contains("\t50\t-50\t-\tkeep\tdrop the largest number\t"),
        "{first}"
    );
    let id = env.the_loop()["id"].as_str().expect("an id").to_owned();
    env.run(&["resume", &id, "-n", "2"]).ok();
    let agent = agent(&env);
    let words =
        ["research", "a smaller sum", "--metric", "sh metric.sh", "--direction", "lower", "--agent-cmd", &agent];
    env.run(&[&words[..], &["--min-gap", "0", "-n", "4", "--results", &name]].concat()).exits(3);
    let second = fs::read_to_string(&table).expect("the table is there");
    assert!(second.starts_with(&first) && second.lines().count() == 7, "{second}");
    let exported = env.run(&["research", "export"]).ok().stdout;
    assert_eq!(exported.trim_end(), second.trim_end());
    // Rows of others in the same file, and a row that was cut off, hide none of this run.
    let foreign = second.replace(&format!("\t{id}-"), "\tother-");
    fs::write(&table, format!("{foreign}4\tcut")).expect("the table is the test's");
    env.run(&["research", "show"]).ok();
    let third = fs::read_to_string(&table).expect("the table is there");
    assert_eq!(third.lines().filter(|line| line.contains(&format!("\t{id}-"))).count(), 5, "{third}");
    env.run(&["forget", &id, "--force", "--yes"]).ok();
    assert!(!env.state().join("research").join(&id).exists(), "forgotten with its loop");
}

#[test]
fn a_goal_value_ends_the_run_at_the_first_keep_that_meets_it() {
    let env = project(&IDEAS);
    let out = research(&env, &["--goal-value", "50", "-n", "9"]).ok();
    assert!(out.stdout.contains("(1/9 iterations)"), "{}", out.stdout);
    assert_eq!(statuses(&env), ["baseline", "keep"]);
}

#[test]
fn a_crash_is_mended_in_the_same_experiment_and_has_no_value() {
    let crash = "echo 'EXPERIMENT: remove the file'; rm numbers";
    let env = project(&[crash, IDEAS[0]]);
    fs::write(env.project().join("../outside/idea-1-fix"), "echo 44 > numbers").expect("the folder is the test's");
    env.write(
        "metric.sh",
        "test -f numbers || { echo 'IndexError: no numbers'; exit 1; }; awk '{ s += $1 } END { print s }' numbers\n",
    );
    env.git_run(&["commit", "-qam", "a metric that can fail"]);
    research(&env, &["-n", "1"]).exits(3);
    let rows = rows(&env);
    assert_eq!((rows[1]["status"].as_str(), rows[1]["value"].as_f64()), (Some("keep"), Some(44.0)));
    assert_eq!(rows[1]["fixes"], 1);
}

#[test]
fn a_broken_guard_discards_whatever_the_metric_gives() {
    let env = project(&["echo 'EXPERIMENT: nothing is left'; : > numbers; echo 0 > numbers; rm README", IDEAS[0]]);
    let out = research(&env, &["-n", "2", "--check", "test -f README"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "discard", "keep"], "{}", out.stderr);
    let rows = rows(&env);
    assert_eq!((rows[1]["guard"].as_bool(), rows[1]["value"].as_f64()), (Some(false), None));
    assert!(rows[1]["why"].as_str().is_some_and(|why| why.contains("a guard does not pass")));
}

#[test]
fn what_is_outside_of_the_scope_is_refused() {
    let env = project(&["echo 'EXPERIMENT: elsewhere'; echo 1 > numbers; echo x > other", IDEAS[0]]);
    research(&env, &["-n", "2", "--scope", "numbers"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "refused", "keep"]);
    assert!(rows(&env)[1]["why"].as_str().is_some_and(|why| why.contains("other (outside of the scope)")));
}

#[test]
fn the_same_change_is_measured_once() {
    let env = project(&[IDEAS[1], IDEAS[1], IDEAS[0]]);
    research(&env, &["-n", "3"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "discard", "repeat", "keep"]);
}

#[test]
fn a_metric_without_a_number_stops_the_run_at_the_second_time() {
    let silent = "echo 'EXPERIMENT: silence'; echo x > numbers";
    let env = project(&[silent, "echo 'EXPERIMENT: more silence'; echo y > numbers", IDEAS[0]]);
    env.write(
        "metric.sh",
        "grep -v x numbers | grep -v y | awk '{ s += $1 } END { if (s) print s; else print \"none\" }'\n",
    );
    env.git_run(&["commit", "-qam", "a metric that may be silent"]);
    let out = research(&env, &["-n", "9"]).exits(1);
    assert!(out.stderr.contains("the metric gave no value 2 times in a row"), "{}", out.stderr);
    assert_eq!(statuses(&env), ["baseline", "metric_error", "metric_error"]);
}

#[test]
fn a_metric_that_hangs_is_killed_with_all_it_started() {
    let hang = "echo 'EXPERIMENT: hang'; echo hang > numbers";
    let env = project(&[hang, IDEAS[0]]);
    let metric =
        "if grep -q hang numbers; then setsid sleep 1000 & wait; fi; awk '{ s += $1 } END { print s }' numbers\n";
    env.write("metric.sh", metric);
    env.git_run(&["commit", "-qam", "a metric that may hang"]);
    research(&env, &["-n", "2"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "timeout", "keep"]);
    env.wait_for("nothing lives on", || processes_of(&env.state()).is_empty());
}

#[test]
fn bad_input_gets_a_reason_and_a_hint() {
    let env = project(&IDEAS);
    let none = env.run(&["research", "x", "--direction", "lower"]).exits(2).stderr;
    assert!(none.contains("--metric"), "{none}");
    let way = env.run(&["research", "x", "--metric", "true", "--direction", "down"]).exits(2).stderr;
    assert!(way.contains("`lower` or `higher`"), "{way}");
    let agent = agent(&env);
    let words = ["research", "x", "--direction", "lower", "--agent-cmd", &agent, "--min-gap", "0", "-n", "1"];
    let mute = env.run(&[&words[..], &["--metric", "echo hello"]].concat()).exits(1).stderr;
    assert!(mute.contains("the metric cannot be read: no line of the output is a number"), "{mute}");
    let broken = env.run(&[&words[..], &["--metric", "echo 1", "--check", "false"]].concat()).exits(1).stderr;
    assert!(broken.contains("does not pass before anything was changed"), "{broken}");
    let plan = env.run(&[&words[..], &["--metric", "echo 1", "--plan", "nowhere.md"]].concat()).exits(2).stderr;
    assert!(plan.contains("cannot read the plan"), "{plan}");
    let folder = Env::new();
    let no_git = folder.run(&[&words[..], &["--metric", "echo 1"]].concat()).exits(2).stderr;
    assert!(no_git.contains("git init"), "{no_git}");
    let shown = folder.run(&["research", "show"]).exits(2).stderr;
    assert!(shown.contains("everloop research") || shown.contains("no loops"), "{shown}");
}

#[test]
fn the_report_is_one_page_with_plan_and_diffs() {
    let env = project(&IDEAS);
    env.write(".everloop/research-plan.md", "# Plan\n\n- drop the largest\n- sort them\n");
    research(&env, &["-n", "2"]).exits(3);
    env.run(&["research", "report", "-o", "out.html"]).ok();
    let page = env.read("out.html");
    for words in ["<svg", "drop the largest", "sort them", "prefers-color-scheme", "-50"] {
        assert!(page.contains(words), "{words} is not in the page");
    }
    assert!(page.len() < 300_000 && !page.contains("<script") && !page.contains("<link") && !page.contains("src="));
}

/// The rows without what a clock or a fence changes.
fn essence(env: &Env) -> Vec<String> {
    let keys = ["number", "status", "value", "delta", "description", "why", "fixes", "guard", "samples"];
    rows(env).iter().map(|row| keys.map(|key| format!("{key}={}", row[key])).join(" ")).collect()
}

fn is_over(env: &Env) -> bool {
    env.the_loop()["phase"]["ending"]["is"] == "exhausted"
}

/// Kills of one run, at any moment.
const KILLS: usize = 40;
/// Its experiments: one in three is kept.
const EXPERIMENTS: u32 = 12;

#[test]
fn long_a_run_that_is_killed_again_and_again_equals_an_undisturbed_one() {
    let change = |n: u32| match n % 3 {
        0 => format!("echo 'EXPERIMENT: {n} is better'; echo {} > numbers", 90 - n),
        1 => format!("echo 'EXPERIMENT: {n} is worse'; echo {} > numbers", 200 + n),
        _ => format!("echo 'EXPERIMENT: {n} cheats'; echo 'echo {n}' > metric.sh"),
    };
    let ideas: Vec<String> = (1..=EXPERIMENTS).map(change).collect();
    let ideas: Vec<&str> = ideas.iter().map(String::as_str).collect();
    let count = EXPERIMENTS.to_string();
    let calm = project(&ideas);
    research(&calm, &["-n", &count]).exits(3);
    let env = project(&ideas);
    // A turn whose supervisor dies between its record and its process is lost, and two of them in a
    // row are a failure of the agent; what the guard does about that is not looked at here.
    let guard = "[defaults.guard]\nbackoff_first = \"100ms\"\nbackoff_cap = \"100ms\"\ncooldown_deaths = 1000\n";
    env.write("everloop.toml", guard);
    env.git_run(&["add", "everloop.toml"]);
    env.git_run(&["commit", "-qm", "everloop.toml"]);
    let agent = agent(&env);
    let words = ["research", "a smaller sum", "--metric", "sh metric.sh", "--direction", "lower"];
    let words = [&words[..], &["--agent-cmd", &agent, "--min-gap", "0", "-n", &count]].concat();
    let mut seed = 11;
    for _ in 0..KILLS {
        seed = everloop_core::jitter::mix(seed, 1);
        let mut run = env.command(&words);
        run.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = run.spawn().expect("everloop starts");
        let end = Instant::now() + Duration::from_micros(seed % 200_000);
        while Instant::now() < end && child.try_wait().expect("it can be waited for").is_none() {
            std::thread::sleep(Duration::from_micros(500));
        }
        child.kill().ok();
        child.wait().expect("it was started here");
        if is_over(&env) {
            break;
        }
    }
    // The same command on a run that is over would give it as many experiments again.
    if !is_over(&env) {
        env.run(&words).exits(3);
    }
    assert_eq!(essence(&env), essence(&calm));
    assert_eq!(env.git_run(&["status", "--porcelain"]), "");
    let said = env.run(&["replay"]).ok().stdout;
    assert!(said.contains("equal"), "{said}");
}
