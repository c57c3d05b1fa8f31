//! `everloop run`: its output when a goal is handed over.

use crate::env::Env;

const DONE: [&str; 6] = ["run", "x", "--check", "test -f done", "--agent-cmd", "touch done"];

/// The arguments of `run` with an agent that is a line of shell.
fn sh<'a>(goal: &'a str, check: &'a str, agent: &'a str, more: &[&'a str]) -> Vec<String> {
    let agent = format!("sh -c '{agent}'");
    let mut args: Vec<String> = ["run", goal, "--check", check, "--agent-cmd", &agent].map(str::to_owned).to_vec();
    args.extend(more.iter().map(|m| (*m).to_owned()));
    args
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

#[test]
fn a_command_that_prints_json_of_its_own_is_still_only_a_command() {
    let env = Env::new().git();
    let agent =
        "printf '{\"type\":\"result\",\"is_error\":true}\\n{\"said\":\"result\",\"ok\":false,\"text\":\"\"}\\n'";
    env.run(&["run", "x", "--check", "false", "--agent-cmd", agent, "--min-gap", "0", "-n", "1"]).exits(3);
    let tally = env.the_loop()["tally"].clone();
    assert_eq!((tally["no_op"].as_u64(), tally["agent_failed"].as_u64()), (Some(1), Some(0)), "{tally}");
}

#[test]
fn one_turn_reaches_the_goal_and_lands_on_the_branch() {
    let env = Env::new().git();
    let out = env.run(&DONE).ok();
    assert!(out.stdout.contains("1 turn with progress"), "{}", out.stdout);
    assert_eq!(env.git_run(&["status", "--porcelain"]), "", "the work tree is clean");
    assert_eq!(env.git_run(&["ls-tree", "--name-only", "main"]), "README\ndone\n");
    assert_eq!(env.git_run(&["rev-list", "--count", "main"]).trim(), "2");
    assert_eq!(env.git_run(&["branch", "--format=%(refname)"]).trim(), "refs/heads/main", "no branch of ours");
    assert_eq!(env.git_run(&["worktree", "list"]).lines().count(), 1, "no worktree of ours is left");
    env.run(&["replay"]).ok();
}

#[test]
fn a_repository_without_a_commit() {
    let env = Env::new().git_unborn();
    env.run(&DONE).ok();
    assert_eq!(env.git_run(&["status", "--porcelain"]), "");
    assert_eq!(env.git_run(&["ls-tree", "--name-only", "main"]), "done\n");
}

#[test]
fn a_folder_without_git() {
    let env = Env::new();
    let out = env.run(&DONE).ok();
    assert!(out.stderr.contains("directly in"), "it prints where it works: {}", out.stderr);
    assert!(env.project().join("done").exists());
    assert_eq!(std::fs::read_dir(env.project()).unwrap().count(), 1, "nothing else is left in the folder");
}

#[test]
fn an_agent_that_only_says_so_never_succeeds() {
    let env = Env::new().git();
    let args = ["run", "x", "--check", "test -f done", "--agent-cmd", "echo all done", "-n", "3", "--min-gap", "0"];
    let out = env.run(&args).exits(3);
    assert!(out.stdout.contains("3 no-op turns"), "{}", out.stdout);
    assert!(out.stderr.contains("without a minimum gap"), "--min-gap 0 is announced: {}", out.stderr);
}

#[test]
fn an_agent_that_edits_the_check_is_refused_and_its_edit_is_kept() {
    let env = Env::new().git();
    env.write("check.sh", "test -f done\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "check"]);
    let out = env.run(&words(&sh("x", "sh check.sh", "echo true > check.sh", &["-n", "2", "--min-gap", "0"]))).exits(3);
    assert!(out.stdout.contains("2 refused turns"), "{}", out.stdout);
    assert_eq!(env.read("check.sh"), "test -f done\n");
    let pins = env.git_run(&["for-each-ref", "--format=%(refname)", "refs/everloop"]);
    let pin = pins.lines().find(|r| r.ends_with("-1/1")).expect("the attempt is pinned").to_owned();
    assert_eq!(env.git_run(&["show", &format!("{pin}:check.sh")]), "true\n");
}

#[test]
fn without_git_an_edited_check_is_put_back() {
    let env = Env::new();
    env.write("check.sh", "test -f done\n");
    let out = env.run(&words(&sh("x", "sh check.sh", "echo true > check.sh", &["-n", "1", "--min-gap", "0"]))).exits(3);
    assert!(out.stdout.contains("1 refused turn"), "{}", out.stdout);
    assert_eq!(env.read("check.sh"), "test -f done\n");
}

#[test]
fn an_ignored_file_that_an_agent_plants_proves_nothing() {
    let env = Env::new().git();
    env.write(".gitignore", "done\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "ignore"]);
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "-n", "1", "--min-gap", "0"])
        .exits(3);
}

#[test]
fn prompt_and_output_of_the_last_50_turns_of_a_loop_are_kept() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "false", "--agent-cmd", "echo said", "--min-gap", "0", "-n", "52"]).exits(3);
    let turns = std::fs::read_dir(env.state().join("turns")).expect("it is there").flatten().count();
    assert_eq!(turns, 50);
    let id = env.the_loop()["id"].as_str().expect("a loop has an id").to_owned();
    assert!(env.run(&["show", &format!("{id}-52.1")]).ok().stdout.contains("said"));
}

/// A check leaves a file in two folders; the next run of it finds the one that was named.
#[test]
fn only_a_named_folder_of_the_checks_is_kept_between_their_runs() {
    let env = Env::new().git();
    env.write("../seen/log", "");
    let seen = env.project().join("../seen").canonicalize().expect("it was just made").display().to_string();
    let look = "for d in cache other; do test -e $d/n && echo $d; mkdir -p $d; touch $d/n; done";
    let check = format!("{{ {look}; }} >> {seen}/log; test -f done");
    let run = ["run", "x", "--check", &check, "--agent-cmd", "touch done", "--min-gap", "0", "--writable", &seen];
    env.run(&[&run[..], &["--check-cache", "cache"]].concat()).ok();
    let log = env.read("../seen/log");
    assert!(!log.is_empty() && log.lines().all(|line| line == "cache"), "{log}");
}

/// What git ignores is there for the next turn; the setup runs once for turns, and for the checks
/// again when what it made was removed, or once where that folder is kept.
#[test]
fn caches_of_turns_stay_and_setup_runs_where_it_is_needed() {
    for cache in [&[][..], &["--check-cache", "cache"]] {
        let env = Env::new().git();
        env.write(".gitignore", "cache/\n");
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "ignore"]);
        env.write("../seen/log", "");
        let seen = env.project().join("../seen").canonicalize().expect("it was just made").display().to_string();
        let setup = format!("mkdir cache; basename $PWD >> {seen}/log");
        let agent = "if test -e cache/n; then touch done; else touch cache/n; fi";
        let run = ["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0", "-n", "2"];
        env.run(&[&run[..], &["--setup", &setup, "--writable", &seen], cache].concat()).ok();
        let log = env.read("../seen/log");
        let of = |side: &str| log.lines().filter(|line| *line == side).count();
        assert_eq!((of("turn"), of("verify") == 1), (1, !cache.is_empty()), "{cache:?}: {log}");
    }
}

#[test]
fn work_that_breaks_another_check_is_set_aside() {
    let env = Env::new().git();
    let mut args = sh("x", "test -f README", "rm README", &["-n", "1", "--min-gap", "0"]);
    args.extend(["--check", "test -f never"].map(str::to_owned));
    let out = env.run(&words(&args)).exits(3);
    assert!(out.stdout.contains("regressed"), "{}", out.stdout);
    assert_eq!(env.git_run(&["ls-tree", "--name-only", "main"]), "README\n");
}

#[test]
fn progress_lands_step_by_step_and_only_when_reached_if_asked() {
    let agent = "if test -f one; then touch two; else touch one; fi";
    for (policy, commits) in [("progress", "2"), ("reached", "1")] {
        let env = Env::new().git();
        let mut args = sh("x", "test -f one", agent, &["-n", "1", "--min-gap", "0", "--integrate", policy]);
        args.extend(["--check", "test -f two"].map(str::to_owned));
        env.run(&words(&args)).exits(3);
        assert_eq!(env.git_run(&["rev-list", "--count", "main"]).trim(), commits, "{policy}");
        env.run(&words(&args)).ok();
        assert_eq!(env.git_run(&["ls-tree", "--name-only", "main"]), "README\none\ntwo\n", "{policy}");
    }
}

#[test]
fn a_goal_that_is_reached_already_starts_nothing() {
    let env = Env::new().git();
    let out = env.run(&["run", "x", "--check", "test -f README", "--agent-cmd", "touch never"]).ok();
    assert!(!out.stderr.contains("turn 1 started"), "{}", out.stderr);
}

#[test]
fn the_minimum_gap_applies_without_any_configuration() {
    let env = Env::new().git();
    let _run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", "true"]);
    env.wait_for("the loop waits for the gap", || {
        let why = env.run(&["why"]).stdout;
        why.contains("at least 15s lie between two starts") && why.contains("[guard.gap]")
    });
    assert_eq!(env.the_loop()["started"], 1);
}

#[test]
fn the_prompt_arrives_by_argument_by_file_and_on_stdin() {
    for (agent, how) in [
        ("cp {prompt_file} got", "file"),
        ("tee got", "stdin"),
        ("sh -c 'printf %s \"$1\" > got' sh {prompt}", "argument"),
    ] {
        let env = Env::new();
        env.run(&["run", "greet $(touch pwned) `x`", "--check", "test -f got", "--agent-cmd", agent]).ok();
        let got = env.read("got");
        assert!(got.contains("greet $(touch pwned) `x`") && got.contains("test -f got"), "{how}: {got}");
        assert!(!env.project().join("pwned").exists(), "{how}: the goal was executed");
    }
}

#[test]
fn a_prompt_inside_shell_code_is_refused() {
    let env = Env::new();
    let args = ["run", "x", "--check", "true", "--agent-cmd", "sh -c 'agent \"{prompt}\"'"];
    let out = env.run(&args);
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("$1"), "the hint shows the safe way: {}", out.stderr);
}

#[test]
fn the_environment_is_cleared_and_named_secrets_are_redacted() {
    let env = Env::new().var("OUTER_SECRET", "hidden-from-agents").var("MY_TOKEN", "s3cr3t-t0k3n-value");
    let agent = "env > seen; echo the token is $MY_TOKEN; touch done";
    let mut args = sh("x", "test -f done", agent, &["--min-gap", "0"]);
    args.extend(["--env", "MY_TOKEN"].map(str::to_owned));
    let out = env.run(&words(&args)).ok();
    let seen = env.read("seen");
    assert!(seen.contains("MY_TOKEN=s3cr3t") && !seen.contains("OUTER_SECRET"), "{seen}");
    for name in ["LOOP", "TASK", "TURN", "PROMPT_FILE"] {
        assert!(seen.contains(&format!("EVERLOOP_{name}=")), "{name}: {seen}");
    }
    let turn = env.the_loop()["tries"][0]["turn"].as_str().unwrap().to_owned();
    let shown = env.run(&["logs", "--turn", &turn]).ok().stdout;
    assert!(shown.contains("the token is [redacted:MY_TOKEN]"), "{shown}");
    assert!(!out.stderr.contains("s3cr3t") && !out.stdout.contains("s3cr3t"));
    let grep =
        std::process::Command::new("grep").args(["-ral", "s3cr3t-t0k3n-value"]).arg(env.state()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "", "the secret is in the state folder");
}

#[test]
fn what_an_agent_types_reaches_the_everloop_that_started_it() {
    let env = Env::new();
    let other = env.project().join("../other-state").display().to_string();
    let exe = env!("CARGO_BIN_EXE_everloop");
    let agent = format!("{exe} message send @reviewer 'from within' && touch done");
    let run = ["--state-dir", &other, "run", "x", "--check", "test -f done", "--agent-cmd", &agent, "--min-gap", "0"];
    env.run(&run).ok();
    let told =
        env.run(&["--state-dir", &other, "message", "inbox", "@reviewer", "--json"]).ok().json()["messages"].clone();
    assert_eq!((&told[0]["text"], &told[0]["trust"]), (&"from within".into(), &"agent".into()), "{told}");
    assert_eq!(env.run(&["message", "inbox", "@reviewer", "--json"]).ok().json()["messages"], serde_json::json!([]));
}

#[test]
fn a_task_from_the_board_is_what_the_turn_is_about() {
    let env = Env::new();
    let args = ["run", "x", "--check", "test -f done", "--agent-cmd", "cat > got", "-n", "1", "--min-gap", "0"];
    env.run(&args).exits(3);
    assert!(!env.read("got").contains("mind the gap"));
    let add = ["task", "add", "mind the gap", "--prompt", "between train and platform", "--loop", "x", "--json"];
    let added = env.run(&add).ok().json();
    env.run(&args).exits(3);
    let got = env.read("got");
    assert!(got.contains("mind the gap") && got.contains("between train and platform"), "{got}");
    let task = env.run(&["task", "show", added["task"].as_str().unwrap(), "--json"]).ok().json();
    assert_eq!(task["task"]["state"]["is"], "done", "{task}");
}

#[test]
fn shell_syntax_in_the_agent_command_works() {
    let env = Env::new();
    env.run(&[
        "run",
        "x",
        "--check",
        "test -s done",
        "--agent-cmd",
        "echo $EVERLOOP_TASK | cat > done",
        "--min-gap",
        "0",
    ])
    .ok();
    assert!(env.read("done").ends_with("-1\n"));
}

#[test]
fn a_check_script_that_is_not_committed_is_told() {
    let env = Env::new().git();
    env.write("check.sh", "true\n");
    let out =
        env.run(&["run", "x", "--check", "sh check.sh", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    assert!(out.stderr.contains("`check.sh`, which is not committed"), "{}", out.stderr);
    env.run(&["run", "y", "--check", "sh check.sh", "--agent-cmd", "true", "--include-dirty"]).ok();
}

#[test]
fn bounds_end_the_loop_and_resume_goes_on() {
    let env = Env::new().git();
    let base = ["run", "x", "--check", "test -f done", "--agent-cmd", "true", "--min-gap", "0"];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    env.run(&with(&["--max-time", "1ms"])).exits(3);
    env.run(&with(&["--max-calls", "2", "--new"])).exits(3);
    assert_eq!(env.the_loop()["spent"]["calls"], 2);
    let refused = env.run(&["resume"]).exits(2);
    assert!(refused.stderr.contains("its calls are used up"), "{}", refused.stderr);
}

#[test]
fn typos_get_hints() {
    let env = Env::new();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["run"], 2, "everloop run \"GOAL\""),
        (&["run", "x", "--agent-cmd", "true"], 2, "--check"),
        (&["run", "x", "--check", "true"], 2, "--agent-cmd"),
        (&["run", "x", "--check", "true", "--agent-cmd", "true", "--min-gap", "soon"], 2, "15m"),
        (&["statsu"], 2, "status"),
    ];
    for (args, code, hint) in cases {
        let out = env.run(args).exits(code);
        assert!(out.stderr.contains(hint), "{args:?}: {}", out.stderr);
    }
}

#[test]
fn a_check_that_passes_by_luck_does_not_end_the_loop() {
    let env = Env::new().git();
    // Passes in every odd run on one checkout.
    let check = "test -f done && { n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; [ $((n % 2)) = 0 ]; }";
    let confirmed = ["run", "x", "--check", check, "--agent-cmd", "touch done", "-n", "1"];
    env.run(&confirmed).exits(3);
    let state = env.the_loop();
    assert_eq!(state["board"][0]["verdict"]["is"], "flaky", "{state}");
    let honest = ["run", "y", "--check", "test -f made", "--agent-cmd", "touch made", "-n", "1"];
    env.run(&honest).ok();
}

#[test]
fn no_wait_ends_with_4_when_a_person_pauses_the_loop() {
    let env = Env::new();
    let agent = "touch begun; until test -f go; do sleep 0.05; done";
    let words = ["run", "x", "--check", "false", "--agent-cmd", agent, "--min-gap", "0", "--no-wait"];
    let run = env.spawn(&words);
    env.wait_for("the agent works", || env.project().join("begun").exists());
    env.run(&["pause", "--reason", "lunch"]).ok();
    env.write("go", "");
    run.wait().exits(4);
}

#[test]
fn no_wait_ends_at_once_for_a_loop_that_was_held_before() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "false", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    env.run(&["guard", "hold", "--reason", "a test"]).ok();
    for _ in 0..2 {
        let args = ["run", "x", "--check", "false", "--agent-cmd", "true", "-n", "3", "--min-gap", "0", "--no-wait"];
        let said = env.run(&args).exits(5).stderr;
        assert!(said.contains("a test"), "the reason is printed: {said}");
    }
}

#[test]
fn no_wait_ends_at_once_for_a_loop_that_needs_a_person() {
    let env = Env::new();
    let run =
        env.spawn(&["run", "x", "--check", "false", "--agent-cmd", "true", "-n", "3", "--min-gap", "1h", "--no-wait"]);
    env.wait_for("it waits for the next turn", || env.run(&["why"]).stdout.contains("[guard.gap]"));
    env.run(&["pause"]).ok();
    run.wait().exits(4);
}

#[test]
fn what_a_refused_turn_changed_is_shown_and_can_be_excepted() {
    let env = Env::new().git();
    env.write("tests/a", "old\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "tests"]);
    let args = sh("x", "test -f done", "echo new > tests/a; touch done", &["-n", "1", "--min-gap", "0"]);
    env.run(&words(&args)).exits(3);
    let logs = env.run(&["logs"]).ok().stdout;
    assert!(logs.contains("it touched protected files: tests/a"), "{logs}");
    env.run(&[&words(&args)[..], &["--new", "--unprotect", "tests/**"]].concat()).ok();
    assert_eq!(env.read("tests/a"), "new\n");
}

#[test]
fn setup_runs_each_time_where_checks_run_unless_a_folder_is_kept() {
    let runs = |more: &str| {
        let env = Env::new().git();
        let log = env.project().with_file_name("setups");
        let file = format!(
            "[loop.a]\ngoal = \"g\"\nchecks = [\"test -f done\"]\nagent_cmd = \"touch done\"\n\
             setup = \"mkdir -p kept; touch kept/it; basename $PWD >> {}\"\n{more}\n[isolation]\nmode = \"none\"\n",
            log.display()
        );
        env.write("everloop.toml", &file);
        env.write(".gitignore", "kept\n");
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "setup"]);
        env.run(&["run"]).ok();
        let log = std::fs::read_to_string(log).expect("it ran");
        log.lines().filter(|line| *line == "verify").count()
    };
    assert!(runs("") > 1);
    assert_eq!(runs("check_cache = [\"kept\"]"), 1);
}
