//! Mistakes about the files and processes of experiments are made on purpose, and found.

use std::fs;

use everloop_core::planted::{Bug, EXPERIMENTS, VARIABLE};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::env::{Env, processes_of};
use crate::research::{agent, project, research, statuses};

const DROP: &str = "echo 'EXPERIMENT: drop the largest number'; sed -i 1d numbers";
const ADD: &str = "echo 'EXPERIMENT: add a number'; echo 7 >> numbers";

/// Every row of the run is in its table, in the order of the experiments.
fn table_is_whole(plant: &dyn Fn(Env) -> Env) -> bool {
    let env = plant(project(&[DROP, ADD, DROP]));
    let table = env.project().with_file_name("results.tsv");
    research(&env, &["-n", "3", "--results", &table.display().to_string()]).exits(3);
    let text = fs::read_to_string(&table).expect("the table was written");
    let numbers: Vec<&str> = text.lines().skip(2).filter_map(|line| line.split('\t').next()).collect();
    numbers == ["0", "1", "2", "3"]
}

/// A change outside of the scope is refused.
fn scope_holds(plant: &dyn Fn(Env) -> Env) -> bool {
    let env = plant(project(&["echo 'EXPERIMENT: elsewhere'; echo 1 > numbers; echo x > other"]));
    research(&env, &["-n", "1", "--scope", "numbers"]).exits(3);
    statuses(&env) == ["baseline", "refused"]
}

/// A metric that hangs is killed with all it started.
fn nothing_lives_on(plant: &dyn Fn(Env) -> Env) -> bool {
    let env = plant(project(&["echo 'EXPERIMENT: hang'; echo hang > numbers"]));
    let hang = "if grep -q hang numbers; then setsid sleep 1000 >/dev/null 2>&1 & wait; fi; echo 5\n";
    env.write("metric.sh", hang);
    env.git_run(&["commit", "-qam", "a metric that may hang"]);
    research(&env, &["-n", "1", "--isolation", "none"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "timeout"]);
    let is_sleep = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    !processes_of(&env.state()).iter().any(is_sleep)
}

/// A measurement whose shim was killed is made again.
fn lost_measurements_are_repeated(plant: &dyn Fn(Env) -> Env) -> bool {
    let env = plant(project(&[DROP]));
    let gate = env.project().with_file_name("gate");
    fs::create_dir(&gate).expect("the folder is the test's");
    let wait =
        "if test $(wc -l < numbers) -lt 3; then touch GATE/begun; until test -e GATE/go; do sleep 0.01; done; fi\n";
    let sum = "awk '{ s += $1 } END { print s }' numbers\n";
    env.write("metric.sh", &format!("{}{sum}", wait.replace("GATE", &gate.display().to_string())));
    env.git_run(&["commit", "-qam", "a metric that waits"]);
    let agent = agent(&env);
    let words = ["research", "x", "--metric", "sh metric.sh", "--direction", "lower", "--agent-cmd", &agent];
    let writable = gate.display().to_string();
    let run = env.spawn(&[&words[..], &["--min-gap", "0", "-n", "1", "--writable", &writable]].concat());
    env.wait_for("it is measured", || gate.join("begun").exists());
    let is_shim = |pid: &&i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"__job")
    };
    let shim = *processes_of(&env.state()).iter().find(is_shim).expect("the metric runs in a job");
    kill(Pid::from_raw(shim), Signal::SIGKILL).expect("it is there");
    fs::write(gate.join("go"), "").expect("the folder is the test's");
    run.wait().exits(3);
    statuses(&env) == ["baseline", "keep"]
}

#[test]
fn long_planted_mistakes_of_files_and_processes_are_found() {
    for bug in EXPERIMENTS {
        let holds: fn(&dyn Fn(Env) -> Env) -> bool = match bug {
            Bug::TableRewritten => table_is_whole,
            Bug::ScopeIgnored => scope_holds,
            Bug::KillsOnlyTheParent => nothing_lives_on,
            Bug::VanishedRunsCount => lost_measurements_are_repeated,
            other => panic!("{other:?} has no test"),
        };
        assert!(holds(&|env| env), "without {bug:?}");
        assert!(!holds(&|env| env.var(VARIABLE, &format!("{bug:?}"))), "{bug:?} is not found");
    }
}
