//! What `run` finds wrong before it starts anything.

use crate::agents::with_claude;
use crate::env::Env;

#[test]
fn a_missing_agent_is_refused_with_the_line_that_installs_it() {
    let env = Env::new().git().var("PATH", "/usr/bin:/bin");
    let said = env.run(&["run", "x", "--check", "false", "--agent", "codex"]).exits(2).stderr;
    assert!(said.contains("agent `codex` is not installed"), "{said}");
    assert!(said.contains("npm install -g @openai/codex"), "{said}");
    let said = env.run(&["run", "x", "--check", "false", "--agent-cmd", "my-agnet {prompt}"]).exits(2).stderr;
    assert!(said.contains("there is no program `my-agnet`") && said.contains("hint: "), "{said}");
    let loops = env.run(&["status", "--json"]).ok().json();
    assert_eq!(loops["loops"], serde_json::json!([]), "no loop is left");
}

#[test]
fn an_agent_without_login_is_refused_unless_a_person_knows_better() {
    let env = with_claude();
    let run = ["run", "a file", "--check", "test -f done", "--agent", "claude", "--in-place"];
    let said = env.run(&run).exits(2).stderr;
    assert!(said.contains("agent `claude` is not logged in") && said.contains("--yes"), "{said}");
    env.run(&[&run[..], &["--yes"]].concat()).ok();
}

#[test]
fn one_working_agent_is_enough_and_the_others_are_named() {
    let env = Env::new().git();
    env.write(
        "everloop.toml",
        "[agent.one]\ncommand = [\"no-such-thing\"]\n[agent.two]\ncommand = [\"touch\", \"done\"]\n",
    );
    let run = ["run", "x", "--check", "test -f done", "--agent", "one", "--agent", "two", "--yes", "-n", "2"];
    let said = env.run(&[&run[..], &["--min-gap", "0"]].concat()).stderr;
    assert!(said.contains("there is no program `no-such-thing` for agent `one`"), "{said}");
}

#[test]
fn what_the_agent_will_not_see_is_named() {
    let env = Env::new().git();
    env.write("README", "changed\n");
    env.write("notes.txt", "new\n");
    env.write(".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib\n");
    let run = ["run", "x", "--check", "test -f done", "--agent-cmd", "touch done"];
    let said = env.run(&run).ok().stderr;
    assert!(said.contains("uncommitted changes in README: the agent does not see them"), "{said}");
    assert!(said.contains("not in git: .gitmodules, notes.txt"), "{said}");
    assert!(said.contains("submodules (lib) are empty") && said.contains("--setup"), "{said}");
}

#[test]
fn a_goal_alone_finds_its_checks_and_its_agent() {
    let env = with_claude().var("ANTHROPIC_API_KEY", "x");
    env.write("Makefile", "test:\n\ttest -f done\n");
    let said = env.run(&["run", "a file"]).exits(2).stderr;
    assert!(said.contains("found check: make test") && said.contains("found agent: claude"), "{said}");
    assert!(
        said.contains("hint: everloop run 'a file' --check 'make test' --agent claude --allow 'make test'"),
        "the exact command: {said}"
    );
    env.run(&["run", "a file", "--in-place", "--yes"]).ok();
    let state = env.the_loop();
    assert_eq!(
        (&state["spec"]["checks"][0]["run"], &state["spec"]["agent"]["name"]),
        (&"make test".into(), &"claude".into())
    );
}

#[test]
fn what_was_found_is_started_after_enter() {
    let env = with_claude().var("ANTHROPIC_API_KEY", "x");
    env.write("Makefile", "test:\n\ttest -f done\n");
    let said = env.on_terminal(&["run", "a file", "--in-place"], "n\n");
    assert!(said.code != 0 && said.stdout.contains("found check: make test"), "{said:?}");
    assert!(!env.project().join("done").exists(), "{said:?}");
    let said = env.on_terminal(&["run", "a file", "--in-place"], "\n").ok();
    assert!(said.stdout.contains("found agent: claude") && env.project().join("done").exists(), "{said:?}");
}

#[test]
fn no_turn_is_spent_while_every_failing_check_is_broken() {
    let env = Env::new().git();
    let run = ["run", "x", "--check", "pytset -q", "--agent-cmd", "touch done", "--min-gap", "0", "-n", "1"];
    let said = env.run(&run).exits(4).stderr;
    assert!(said.contains("every check that does not pass is broken") && said.contains("pytset"), "{said}");
    assert!(said.contains("--yes"), "{said}");
    assert_eq!(env.the_loop()["started"], 0);
    // The same command looks again.
    let said = env.run(&run).exits(4).stderr;
    assert!(said.contains("baseline: 0 of 1 check passes"), "{said}");
    let asked = env.on_terminal(&run, "n\n").exits(4).stdout;
    assert!(asked.contains("start turns all the same?"), "{asked}");
    assert_eq!(env.the_loop()["started"], 0, "a person declined");
    env.run(&[&run[..], &["--yes"]].concat()).exits(3);
    assert_eq!(env.the_loop()["started"], 1);
}

#[test]
fn a_check_that_passes_in_the_folder_only_names_what_is_missing() {
    let env = Env::new().git();
    env.write(".gitignore", "node_modules/\n");
    env.write("node_modules/tool", "x");
    env.git_run(&["add", ".gitignore"]);
    env.git_run(&["commit", "-q", "-m", "ignore"]);
    let run = ["run", "x", "--check", "test -f node_modules/tool", "--agent-cmd", "true", "--min-gap", "0", "-n", "1"];
    let said = env.run(&run).exits(3).stderr;
    assert!(said.contains("passes in your folder and fails on the commit: `node_modules` is ignored"), "{said}");
    assert!(said.contains("--setup 'npm ci'"), "{said}");
}

/// Such a check reads the person's folder, and runs there only where writing can be prevented.
#[test]
fn checks_that_are_compared_with_the_folder_write_nothing_in_it() {
    for (isolation, looked) in [("auto", true), ("none", false)] {
        let env = Env::new().git();
        env.write(".gitignore", "node_modules/\n");
        env.write("node_modules/tool", "x");
        env.git_run(&["add", ".gitignore"]);
        env.git_run(&["commit", "-q", "-m", "ignore"]);
        env.write("../seen/log", "");
        let seen = env.project().join("../seen").canonicalize().expect("it was just made").display().to_string();
        let check = format!("pwd >> {seen}/log; touch node_modules/left; test -f node_modules/tool");
        let run = ["run", "x", "--check", &check, "--agent-cmd", "true", "--min-gap", "0", "-n", "1"];
        env.run(&[&run[..], &["--isolation", isolation, "--writable", &seen]].concat()).exits(3);
        let folder = env.project().canonicalize().expect("it is there").display().to_string();
        let log = env.read("../seen/log");
        assert_eq!(log.lines().any(|line| line == folder), looked, "{isolation}: {log}");
        assert!(!env.project().join("node_modules/left").exists(), "{isolation}");
    }
}

#[test]
fn a_run_that_joins_brings_its_environment() {
    let env = Env::new();
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for_words(&["status", "--json"], &["\"up\""]);
    let tools = env.project().join("../tools");
    std::fs::create_dir(&tools).expect("the folder is the test's");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let agent = "sh -c 'echo $MY_TOKEN $PATH > got'";
    let mut run = env.command(&["run", "x", "--check", "test -s got", "--agent-cmd", agent, "--env", "MY_TOKEN"]);
    let out = run.env("MY_TOKEN", "s3cr3t-t0k3n-value").env("PATH", &path).output().expect("it was built");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let got = env.read("got");
    assert!(got.starts_with("s3cr3t-t0k3n-value ") && got.contains(&tools.display().to_string()), "{got}");
    let grep = std::process::Command::new("grep").args(["-ral", "s3cr3t-t0k3n-value"]).arg(env.state()).output();
    assert_eq!(String::from_utf8_lossy(&grep.expect("grep is there").stdout), "", "the secret is in the state folder");
    env.run(&["down"]).ok();
    up.wait().exits(143);
}

#[test]
fn what_the_agent_says_is_printed_while_it_works() {
    let env = Env::new();
    let agent = "sh -c 'echo hello from the agent; until test -f go; do sleep 0.05; done; touch done'";
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--follow", "--min-gap", "0"]);
    env.wait_for_agent();
    let logs = env.spawn(&["logs", "-f", "x"]);
    env.write("go", "");
    let said = run.wait().ok().stderr;
    assert!(said.contains("  | hello from the agent"), "{said}");
    let said = logs.wait().ok().stdout;
    assert!(said.contains("  | hello from the agent") && said.contains("reached"), "{said}");
}

/// What a `run` brought is gone with the supervisor that had it in memory: the loop says so, and
/// starts nothing without it.
#[test]
fn a_supervisor_that_was_started_again_lacks_what_a_run_brought() {
    let env = Env::new();
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("it supervises", || env.run(&["status", "--json"]).stdout.contains("\"up\""));
    let agent = r#"sh -c 'echo "got $MY_TOKEN" >> got'"#;
    let words = ["run", "x", "--check", "false", "--agent-cmd", agent, "--env", "MY_TOKEN", "--min-gap", "1s"];
    let run = || {
        let mut run = env.command(&[&words[..], &["-n", "1000", "--detach"]].concat());
        let ended = run.env("MY_TOKEN", "hunter2").output().expect("the binary was built for this test");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    };
    let got = || std::fs::read_to_string(env.project().join("got")).unwrap_or_default();
    run();
    env.wait_for("a turn ran", || got().contains("got "));
    env.run(&["down"]).ok();
    up.wait();
    let again = env.spawn(&["up", "--listen", "off"]);
    env.wait_for_words(&["why"], &["it needs MY_TOKEN", "run the same `everloop run` command again", "[variables]"]);
    assert!(env.run(&["status"]).stdout.contains("MY_TOKEN"), "{}", env.run(&["status"]).stdout);
    let before = got().lines().count();
    run();
    env.wait_for("it goes on", || got().lines().count() > before);
    assert!(got().lines().all(|line| line == got().lines().next().unwrap_or_default()), "{}", got());
    assert!(!got().lines().any(|line| line.trim() == "got"), "no turn ran without it: {}", got());
    env.run(&["down"]).ok();
    again.wait();
}
