//! `everloop research`: experiments are measured, kept or discarded, and survive every kill.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::env::{Env, Output, processes_of};

/// A project with the sum of the numbers in `numbers` as its metric, and an agent that makes the changes
/// of a script one after the other: line N of `ideas` is its change number N.
pub fn project(ideas: &[&str]) -> Env {
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

pub fn agent(env: &Env) -> String {
    let agent = env.project().join("../outside/agent").canonicalize().expect("it was made");
    format!("{} {{prompt_file}}", agent.display())
}

fn command(env: &Env, more: &[&str]) -> Command {
    let agent = agent(env);
    let words = ["research", "a smaller sum", "--metric", "sh metric.sh", "--direction", "lower"];
    env.command(&[&words[..], &["--agent-cmd", &agent, "--min-gap", "0"], more].concat())
}

pub fn research(env: &Env, more: &[&str]) -> Output {
    let args: Vec<_> = command(env, more).get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    env.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn rows(env: &Env) -> Vec<Value> {
    env.run(&["research", "show", "--json"]).ok().json()["rows"].as_array().expect("rows").clone()
}

pub fn statuses(env: &Env) -> Vec<String> {
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

/// The supervisor is killed while the agent works; the next one has only files and the ledger.
#[test]
fn a_scope_holds_for_a_turn_that_outlived_its_supervisor() {
    let wait = "until test -e \"$(dirname \"$0\")/go\"; do sleep 0.05; done";
    let elsewhere = format!("echo 'EXPERIMENT: elsewhere'; {wait}; echo 1 > numbers; echo x > other");
    let env = project(&[&elsewhere, IDEAS[0]]);
    let more = ["-n", "2", "--scope", "numbers"];
    let mut first = command(&env, &more);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("everloop starts");
    env.wait_for("the turn runs", || env.the_loop()["phase"]["is"] == "turn");
    first.kill().expect("it is our child");
    first.wait().expect("it is our child");
    fs::write(env.project().join("../outside/go"), "").expect("the folder is the test's");
    research(&env, &more).exits(3);
    assert_eq!(statuses(&env), ["baseline", "refused", "keep"]);
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
    let tickets = env.run(&["ticket", "show", "1"]).exits(4).stdout;
    assert!(tickets.contains("the metric gave no value 2 times in a row") && tickets.contains("mend it"), "{tickets}");
}

/// Processes that are `sleep` with this argument.
fn sleepers(mark: &str) -> usize {
    let line = format!("sleep\0{mark}\0").into_bytes();
    let entries = fs::read_dir("/proc").expect("tests run on Linux").flatten();
    entries.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line)).count()
}

#[test]
fn a_metric_that_hangs_is_killed_with_all_it_started() {
    let hang = "echo 'EXPERIMENT: hang'; echo hang > numbers";
    let env = project(&[hang, IDEAS[0]]);
    // Grandchildren in sessions of their own, one of which ignores the polite signal.
    let mark = format!("86399.{}", std::process::id());
    let metric = format!(
        "if grep -q hang numbers; then\n(setsid sh -c 'trap \"\" TERM; cd /; sleep {mark}; :' &)\n\
         (setsid sleep {mark} >/dev/null 2>&1 </dev/null &)\nsleep {mark}\nfi\n\
         awk '{{ s += $1 }} END {{ print s }}' numbers\n"
    );
    env.write("metric.sh", &metric);
    env.git_run(&["commit", "-qam", "a metric that may hang"]);
    let agent = agent(&env);
    let words =
        ["research", "a smaller sum", "--metric", "sh metric.sh", "--direction", "lower", "--agent-cmd", &agent];
    let run = env.spawn(&[&words[..], &["--min-gap", "0", "-n", "2"]].concat());
    env.wait_for("three of them sleep", || sleepers(&mark) == 3);
    run.wait().exits(3);
    env.wait_for("nothing lives on", || sleepers(&mark) == 0);
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

/// Keeps in files of their own: the first number, a second file, a change of what the second one made.
fn project_with_three_keeps() -> Env {
    let env = project(&[
        "echo 'EXPERIMENT: a smaller first number'; sed -i 's/^50$/40/' numbers",
        "echo 'EXPERIMENT: a larger number'; echo 9 >> numbers",
        "echo 'EXPERIMENT: a discount'; echo -10 > discount",
        "echo 'EXPERIMENT: a larger discount'; echo -15 > discount",
    ]);
    env.write("metric.sh", "touch discount; cat numbers discount | awk '{ s += $1 } END { print s }'\n");
    env.git_run(&["commit", "-qam", "a metric with a discount"]);
    research(&env, &["-n", "4", "--check", "! grep -q 13 numbers"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "keep", "discard", "keep", "keep"]);
    env
}

fn commits(env: &Env) -> Vec<String> {
    env.git_run(&["log", "--reverse", "--format=%s"]).lines().skip(3).map(str::to_owned).collect()
}

#[test]
fn the_champion_is_applied_as_its_line_or_as_one_commit() {
    let env = project_with_three_keeps();
    env.write("numbers", "mine\n");
    let refused = env.run(&["research", "apply"]).exits(1).stderr;
    assert!(refused.contains("uncommitted changes of yours") && refused.contains("git -C "), "{refused}");
    assert_eq!(env.read("numbers"), "mine\n");
    env.git_run(&["checkout", "-q", "numbers"]);
    env.run(&["research", "apply", "--branch", "idea"]).ok();
    assert_eq!(env.git_run(&["rev-list", "--count", "main..idea"]).trim(), "3");
    let said = env.run(&["research", "apply", "--squash"]).ok().stdout;
    assert!(said.contains("it holds experiments 1, 3, 4"), "{said}");
    assert_eq!((env.read("numbers"), env.read("discount")), ("40\n30\n20\n".to_owned(), "-15\n".to_owned()));
    let log = env.git_run(&["log", "-1", "--format=%B"]);
    assert_eq!(commits(&env).len(), 1, "one commit");
    assert!(log.contains("a smaller sum") && log.contains("100 -> 75") && log.contains("- 3: a discount"), "{log}");
    assert_eq!(env.git_run(&["status", "--porcelain"]), "");
    let again = env.run(&["research", "apply", "--squash"]).ok().stdout;
    assert!(again.contains("is in main already"), "{again}");
}

#[test]
fn chosen_keeps_are_applied_alone_once_the_checks_pass_on_them() {
    let env = project_with_three_keeps();
    let said = env.run(&["research", "apply", "--only", "2"]).exits(2).stderr;
    assert!(said.contains("experiment 2") && said.contains("was not kept (discard)"), "{said}");
    assert!(said.contains("1, 3, 4"), "{said}");
    let said = env.run(&["research", "apply", "--only", "4"]).exits(1).stderr;
    assert!(
        said.contains("experiment 4 builds on a change that is left out") && said.contains("--only 1,3,4"),
        "{said}"
    );
    assert_eq!(env.git_run(&["status", "--porcelain"]), "", "nothing moved");
    let said = env.run(&["research", "apply", "--only", "4,3"]).ok().stdout;
    assert!(said.contains("it holds experiments 3, 4") && said.contains("1 checks pass on it"), "{said}");
    assert_eq!((env.read("numbers"), env.read("discount")), ("50\n30\n20\n".to_owned(), "-15\n".to_owned()));
    assert_eq!(commits(&env).len(), 2, "one commit for each");
    let none = project(&[IDEAS[1]]);
    research(&none, &["-n", "1"]).exits(3);
    let said = none.run(&["research", "apply"]).exits(2).stderr;
    assert!(said.contains("has kept no experiment"), "{said}");
}

#[test]
fn chosen_keeps_on_which_a_check_breaks_are_refused() {
    let env = project(&[
        "echo 'EXPERIMENT: a helper'; echo 'x() { echo 10; }' > lib.sh; sed -i 's/^50$/49/' numbers",
        "echo 'EXPERIMENT: use it'; echo '. ./lib.sh' > app.sh; echo x >> app.sh; sed -i 's/^20$/10/' numbers",
    ]);
    research(&env, &["-n", "2", "--check", "test ! -f app.sh || sh app.sh"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "keep", "keep"]);
    let before = env.git_run(&["rev-parse", "HEAD"]);
    let said = env.run(&["research", "apply", "--only", "2"]).exits(1).stderr;
    assert!(said.contains("these experiments alone do not pass") && said.contains("everloop research apply"), "{said}");
    assert_eq!(env.git_run(&["rev-parse", "HEAD"]), before);
    env.run(&["research", "apply"]).ok();
    assert_eq!(env.read("app.sh"), ". ./lib.sh\nx\n");
}

#[test]
fn long_each_rung_is_seen_and_nothing_stops_by_itself() {
    // Experiments 1 and 2 are kept, nothing after them is; the description is what the prompt requests.
    let asked = "sed -n '/^# What this experiment is about/,/^# /p' \"$P\" | sed -n 3p | cut -c1-80";
    let ideas: Vec<String> = (1..=30_u32)
        .map(|n| {
            let number = if n <= 2 { 50 - n } else { 200 + n };
            format!("echo \"EXPERIMENT: {n} $({asked})\"; sed -i '1s/.*/{number}/' numbers")
        })
        .collect();
    let ideas: Vec<&str> = ideas.iter().map(String::as_str).collect();
    let env = project(&ideas);
    let script = env.project().join("../outside/agent");
    let text = fs::read_to_string(&script).expect("it was made").replace("sh \"$(dirname", "P=$1 sh \"$(dirname");
    fs::write(&script, text).expect("the folder is the test's");
    env.write(".everloop/research-plan.md", "- a strategy of the plan\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-qm", "a plan"]);
    let plan = env.read(".everloop/research-plan.md");
    let out = research(&env, &["-n", "30"]).exits(3);
    let rows = rows(&env);
    let (first, about) = (rows[1]["commit"].clone(), |n: usize| rows[n]["description"].as_str().unwrap_or_default());
    assert!(about(8).contains("Several experiments in a row"), "refine: {}", about(8));
    assert!(about(18).contains("You start from an older keep"), "{}", about(18));
    assert_ne!(rows[18]["base"], rows[2]["commit"], "it begins from an older keep");
    assert!(rows[18]["base"] == first || rows[18]["base"] == rows[0]["commit"], "{:?}", rows[18]);
    assert_eq!(rows[19]["base"], rows[2]["commit"], "every other one begins from the champion");
    assert!(about(28).contains("Describe two opposite changes"), "{}", about(28));
    assert_eq!(rows[28]["base"], rows[2]["commit"], "the next rung begins from the champion");
    for said in [
        "5 experiments in a row were not kept: the code and all results are read again",
        "10 experiments in a row were not kept: the next strategy of the plan is due",
        "15 experiments in a row were not kept: every other experiment begins from an older keep",
        "25 experiments in a row were not kept: two opposite changes are described",
    ] {
        assert!(out.stderr.contains(said), "`{said}` is missing:\n{}", out.stderr);
    }
    let why = env.run(&["why"]).ok().stdout;
    assert!(
        why.contains("28 experiments in a row were not kept; from experiment 28 on: two opposite changes"),
        "{why}"
    );
    assert!(why.contains("[research.dual-forcing]"), "{why}");
    let tickets = env.run(&["ticket", "show", "1"]).exits(4).stdout;
    assert!(
        tickets.contains("25 experiments in a row were not kept") && tickets.contains("the run goes on"),
        "{tickets}"
    );
    assert_eq!(env.read(".everloop/research-plan.md"), plan, "the plan is never rewritten");
}

#[test]
fn ideas_that_failed_more_than_once_are_named_in_the_prompt() {
    let named = "sed -n '/^# Tried more than once/,/^# Rules/p' \"$P\" | grep -c 'larger numbers (experiments 1, 2)'";
    let env = project(&[
        "echo 'EXPERIMENT: add a larger number'; echo 60 >> numbers",
        "echo 'EXPERIMENT: add larger numbers'; echo 70 >> numbers",
        &format!("echo \"EXPERIMENT: named $({named})\"; sed -i 1d numbers"),
    ]);
    let script = env.project().join("../outside/agent");
    let text = fs::read_to_string(&script).expect("it was made").replace("sh \"$(dirname", "P=$1 sh \"$(dirname");
    fs::write(&script, text).expect("the folder is the test's");
    research(&env, &["-n", "3"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "discard", "discard", "keep"], "the same words are measured again");
    assert_eq!(rows(&env)[3]["description"], "named 1");
}

#[test]
fn a_mailbox_gets_the_state_every_five_experiments_and_its_failure_disturbs_nothing() {
    let ideas: Vec<String> = (1..=6).map(|n| format!("echo 'EXPERIMENT: {n}'; echo {} >> numbers", 100 + n)).collect();
    let ideas: Vec<&str> = ideas.iter().map(String::as_str).collect();
    for command in ["cat >> ../tmp/heard.jsonl", "exit 1"] {
        let env = project(&ideas);
        let tmp = env.project().join("../tmp").canonicalize().expect("it was made");
        let toml =
            format!("[mailbox]\ncommand = [\"sh\", \"-c\", \"{command}\"]\nwritable = [\"{}\"]\n", tmp.display());
        env.write("everloop.toml", &toml);
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-qm", "a mailbox"]);
        research(&env, &["-n", "6"]).exits(3);
        let task = rows(&env)[5]["task"].as_str().expect("a task").to_owned();
        let line = "experiment 5: best 100 (baseline 100, 0.0 % better), 0 kept, 5 since the last keep";
        env.wait_for_words(&["message", "inbox", &task], &[line]);
        if command != "exit 1" {
            let heard = fs::read_to_string(tmp.join("heard.jsonl")).expect("it was sent");
            let first: Value = serde_json::from_str(heard.lines().next().expect("a line")).expect("JSON");
            assert_eq!((&first["kind"], &first["research"]["baseline"]), (&"status".into(), &100.0.into()), "{first}");
            assert!(first["research"]["experiments"].as_u64().is_some_and(|n| n >= 5), "{first}");
        }
    }
}

#[test]
fn patience_ends_a_run_without_a_keep() {
    let env = project(&[IDEAS[0], "echo 60 >> numbers", "echo 61 >> numbers", "echo 62 >> numbers"]);
    let out = research(&env, &["-n", "9", "--patience", "2"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "keep", "discard", "discard"], "{}", out.stderr);
    assert!(env.run(&["why"]).ok().stdout.contains("patience"));
}
