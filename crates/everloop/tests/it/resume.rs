//! `everloop resume`: a paused, stopped or exhausted loop goes on where it was.

use crate::env::Env;

#[test]
fn an_exhausted_loop_needs_more_turns_and_then_goes_on() {
    let env = Env::new();
    let agent = "if test -f one; then touch done; else touch one; fi";
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "-n", "1", "--min-gap", "0"]).exits(3);
    let refused = env.run(&["resume"]).exits(2);
    assert!(refused.stderr.contains("its turns are used up"), "{}", refused.stderr);
    assert!(refused.stderr.contains("-n 10"), "the hint is the next command: {}", refused.stderr);
    let said = env.run(&["resume", "-n", "3", "--json"]).ok().json();
    assert_eq!(
        (&said["done"], &said["supervisor"]),
        (&"goes on; at most 3 more turns".into(), &false.into()),
        "{said}"
    );
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the goal is reached", || env.the_loop()["phase"]["ending"]["is"] == "reached");
    assert_eq!(env.the_loop()["turns"], 2, "it went on and did not begin again");
    env.run(&["down"]).ok();
    up.wait().exits(143);
    env.run(&["replay"]).ok();
}

#[test]
fn a_reached_loop_is_not_resumed_and_an_agent_may_resume_none() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    let refused = env.run(&["resume"]).exits(2);
    assert!(refused.stderr.contains("has reached its goal"), "{}", refused.stderr);
    let agent = env.var("EVERLOOP_TURN", "k3f9-1.1");
    assert!(agent.run(&["resume"]).exits(2).stderr.contains("only a person may"));
}

/// An agent whose turns cost half a dollar each.
const PRICED: &str = "[agent.writer]\ncommand = \"sh agent.sh\"\nusd_per_turn = 0.5\nfree = true\n\n[loop.work]\ngoal = \"x\"\n\
    agent = \"writer\"\nchecks = [\"test -f done\"]\n";

#[test]
fn calls_and_time_that_are_used_up_can_be_raised() {
    let env = Env::new();
    let run = ["run", "x", "--check", "false", "--agent-cmd", "true", "--min-gap", "0", "--in-place"];
    env.run(&[&run[..], &["--max-calls", "2"]].concat()).exits(3);
    let refused = env.run(&["resume"]).exits(2).stderr;
    assert!(refused.contains("its calls are used up"), "{refused}");
    let further = env.run(&["resume", "--max-calls", "1"]).ok().stdout;
    assert!(further.contains("goes on; at most"), "{further}");
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the third call", || env.the_loop()["spent"]["calls"] == 3);
    env.wait_for("its end", || env.the_loop()["phase"]["ending"]["bound"] == "calls");
    env.run(&["resume", "--max-calls", "9", "--max-time", "1h"]).ok();
    assert!(env.the_loop()["spec"]["bounds"]["max_time"].as_u64().is_some_and(|ms| ms >= 3_600_000));
    env.run(&["stop"]).ok();
    env.run(&["down"]).ok();
    up.wait().exits(143);
}

#[test]
fn dollars_calls_and_a_deadline_that_are_used_up_can_be_raised() {
    let env = Env::new();
    env.write("everloop.toml", &format!("{PRICED}max_usd = 1\n"));
    env.write("agent.sh", "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; [ $n -lt 4 ] || touch done\n");
    let first = env.run(&["run"]).exits(3);
    assert!(first.stderr.contains("at most: $1.00"), "{}", first.stderr);
    assert_eq!(env.the_loop()["turns"], 2);

    let refused = env.run(&["resume", "-n", "5"]).exits(2).stderr;
    assert!(refused.contains("its dollars are used up") && refused.contains("--max-usd 5"), "{refused}");
    let again = env.run(&["run"]).exits(3).stderr;
    assert!(again.contains("its dollars are used up"), "{again}");

    let raised = env.run(&["run", "--max-usd", "1.5"]).exits(3).stderr;
    assert!(raised.contains("takes over") && raised.contains("max-usd"), "{raised}");
    assert!(raised.contains("at most: $0.50"), "{raised}");
    assert_eq!(env.the_loop()["turns"], 3);

    env.write("everloop.toml", &format!("{PRICED}max_usd = 2\n"));
    let applied = env.run(&["config", "apply"]).ok().stdout;
    assert!(applied.contains("changed: work"), "{applied}");
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the fourth turn", || env.the_loop()["turns"] == 4);
    env.wait_for("its end", || env.the_loop()["phase"]["ending"]["is"] == "exhausted");
    let further = env.run(&["resume", "--max-usd", "0.5"]).ok().stdout;
    assert!(further.contains("goes on; at most $0.50"), "{further}");
    env.wait_for("the goal is reached", || env.the_loop()["phase"]["ending"]["is"] == "reached");
    env.run(&["down"]).ok();
    up.wait().exits(143);
    env.run(&["replay"]).ok();
}

#[test]
fn a_limit_in_the_past_or_of_nothing_is_refused() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "false", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    for (args, words) in [
        (["--deadline", "2020-01-01T00:00"], "the deadline is in the past"),
        (["--deadline", "tomorrow"], "`tomorrow` is not a date and time"),
        (["--max-usd", "0"], "amount of dollars"),
        (["--max-calls", "0"], "0 is not in 1.."),
    ] {
        let refused = env.run(&["resume", args[0], args[1]]).exits(2).stderr;
        assert!(refused.contains(words), "{args:?}: {refused}");
    }
    assert_eq!(env.the_loop()["phase"]["ending"]["is"], "exhausted");
}

#[test]
fn the_time_before_a_stop_still_counts() {
    let env = Env::new().fast(10);
    let agent = "while ! test -f go; do sleep 0.05; done";
    let args = ["run", "x", "--check", "false", "--agent-cmd", agent, "--min-gap", "0", "--max-time", "2h"];
    let run = env.spawn(&args);
    env.wait_for_agent();
    env.let_pass(std::time::Duration::from_secs(60));
    env.run(&["stop", "--now"]).ok();
    run.wait().exits(3);
    let again = env.spawn(&args);
    env.wait_for_agent();
    env.run(&["stop", "--now"]).ok();
    let said = again.wait().exits(3).stderr;
    assert!(said.contains("at most: 1h 5"), "{said}");
}

/// One after the other; each is named alone, and is in force in the turn that follows.
#[test]
fn the_same_command_takes_over_agent_guard_watch_and_isolation() {
    let env = Env::new().var("CANARY", "sings");
    let out = env.project().with_file_name("out");
    std::fs::create_dir(&out).expect("the folder is the test's");
    let out = out.display().to_string();
    env.write("agent.sh", &format!("echo \"$CANARY\" > canary; echo x > {out}/reached; true\n"));
    let file = |park_after: u32| {
        let text = "goal = \"x\"\nagent_cmd = \"sh agent.sh\"\nchecks = [\"test -f done\"]\nmax_turns = 1";
        env.write("everloop.toml", &format!("[loop.work]\n{text}\npark_after = {park_after}\n"));
    };
    let mut flags = vec!["run", "--yes", "--min-gap", "0"];
    let taken_over = |flags: &[&str]| {
        let said = env.run(flags).exits(3).stderr;
        let line = said.lines().find_map(|line| line.split_once("takes over for loop ")?.1.split_once(": "));
        line.map(|(_, names)| names.to_owned()).unwrap_or_default()
    };
    file(7);
    assert_eq!(taken_over(&flags), "", "a new loop takes nothing over");
    assert_eq!(env.read("canary"), "\n");
    assert_eq!(taken_over(&flags), "max-turns", "as many turns again, and nothing else");

    flags.extend(["--env", "CANARY"]);
    assert_eq!(taken_over(&flags), "max-turns, agent");
    assert_eq!(env.read("canary"), "sings\n");

    flags.extend(["--writable", &out]);
    assert!(!env.project().join("../out/reached").exists());
    assert_eq!(taken_over(&flags), "max-turns, isolation");
    assert!(env.project().join("../out/reached").exists());

    flags[3] = "1ms";
    assert_eq!(taken_over(&flags), "max-turns, guard");
    assert_eq!(env.the_loop()["spec"]["guard"]["gap"], 1);

    file(9);
    assert_eq!(taken_over(&flags), "max-turns, watch");
    assert_eq!(env.the_loop()["spec"]["watch"]["park_after"], 9);
    assert_eq!(env.the_loop()["turns"], 6, "always the same loop");
    env.run(&["replay"]).ok();
}
