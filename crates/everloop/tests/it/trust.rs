//! `everloop trust`, and what an everloop.toml that no person accepted does: nothing.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::env::{Background, Env, Output};

/// A file beside the project, which no check and no workspace touches.
fn beside(env: &Env, name: &str) -> PathBuf {
    env.project().join("../tmp").join(name)
}

/// The files beside the project that a configuration in force would have made.
fn traces(env: &Env) -> Vec<&'static str> {
    ["mailed", "notified", "monitored", "evil-agent", "checked", "other"]
        .into_iter()
        .filter(|name| beside(env, name).exists())
        .collect()
}

/// What an agent would like to have in force.
const HOSTILE: &str = r#"
[isolation]
mode = "none"

[mailbox]
command = ["touch", "../tmp/mailed"]
every = 1

[[notify]]
kind = "command"
command = ["touch", "../tmp/notified"]

[agent.evil]
command = ["touch", "../tmp/evil-agent"]

[defaults.guard]
min_gap = "0"
stagnation_turns = 999

[loop.main]
goal = "whatever"
agent = "evil"
checks = ["test -f done"]
workspace = "in-place"
max_turns = 1

[[loop.main.monitor]]
command = "touch ../tmp/monitored"
every = "1s"
"#;

const RUN: [&str; 11] =
    ["run", "x", "--check", "test -f done", "--agent-cmd", "./agent.sh", "-n", "2", "--min-gap", "0", "--in-place"];

fn tickets(env: &Env) -> Vec<Value> {
    let all = env.run(&["ticket", "list", "--all", "--json"]).json()["tickets"].clone();
    let all = all.as_array().expect("a list").clone();
    all.into_iter().filter(|t| t["key"].as_str().is_some_and(|key| key.starts_with("config:"))).collect()
}

fn is_open(ticket: &Value) -> bool {
    ticket["closed_at"].is_null()
}

/// The hashes of accepted files, in the order of the journal.
fn hashes(env: &Env) -> Vec<String> {
    let lines = env.run(&["logs", "--json", "-n", "1000"]).ok().stdout;
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is a record"));
    let accepted = all.map(|record| record["event"].clone()).filter(|event| event["event"] == "config_accepted");
    accepted.map(|event| event["hash"].as_str().expect("it has a hash").to_owned()).collect()
}

fn sha256sum(env: &Env) -> String {
    let out = Command::new("sha256sum").arg(env.project().join("everloop.toml")).output().expect("coreutils are there");
    String::from_utf8_lossy(&out.stdout).split(' ').next().expect("a sum").to_owned()
}

fn trusted(env: &Env) -> Vec<Value> {
    env.run(&["trust", "--list", "--json"]).ok().json()["folders"].as_array().expect("a list").clone()
}

/// A supervisor of another folder.
fn up_elsewhere(env: &Env) -> Background {
    let up = env.spawn(&["-C", "../home", "up", "--listen", "off"]);
    env.wait_for("the supervisor", || env.state().join("bell").exists());
    up
}

/// Whether a session has to go on.
fn is_refused(out: &Output) -> bool {
    out.stdout.contains("\"decision\":\"block\"")
}

#[track_caller]
fn hook(env: &Env, event: &str, cwd: &PathBuf) -> Output {
    let payload = json!({ "session_id": "s1", "cwd": cwd, "hook_event_name": event, "stop_hook_active": false });
    let mut child = env.command(&["hook", event]).stdin(Stdio::piped()).spawn().expect("it was built");
    child.stdin.take().expect("it is piped").write_all(payload.to_string().as_bytes()).expect("it reads");
    let out = child.wait_with_output().expect("it is our child");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Output { code: out.status.code().unwrap_or(-1), stdout: text(out.stdout), stderr: text(out.stderr) }
}

#[test]
fn what_an_agent_writes_into_everloop_toml_is_not_in_force_until_a_person_says_so() {
    let env = Env::new();
    env.write("hostile.toml", HOSTILE);
    env.script("agent.sh", "cp hostile.toml everloop.toml; echo x >> work");
    env.run(&RUN).exits(3);
    assert_eq!(traces(&env), [""; 0]);
    let spec = env.the_loop()["spec"].clone();
    assert_ne!(spec["guard"]["stagnation_turns"], 999, "{spec}");
    assert_eq!(hashes(&env), [""; 0]);
    assert_eq!(trusted(&env), Vec::<Value>::new());

    // What a turn adds is moved aside; another program may write the same. The person goes on with
    // the loop: the change is not taken along.
    env.write("everloop.toml", HOSTILE);
    let refused = env.run(&RUN).exits(4);
    assert!(refused.stderr.contains("agents worked there since"), "{}", refused.stderr);
    assert!(refused.stderr.contains("everloop config apply"), "{}", refused.stderr);
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("it supervises", || env.run(&["status", "--json"]).json()["supervisor"]["role"] == "up");
    env.wait_for("a ticket", || tickets(&env).iter().any(is_open));
    let told = tickets(&env);
    assert_eq!(told.len(), 1, "once per content: {told:?}");
    assert!(told[0]["text"].as_str().is_some_and(|t| t.contains("config apply")), "{told:?}");
    env.run(&["down"]).ok();
    let said = up.wait().exits(143).stderr;
    assert!(said.contains("is not trusted, nothing of it runs") && !said.contains("added loop"), "{said}");
    assert!(said.contains("touch ../tmp/mailed"), "it says what would run: {said}");
    assert_eq!(traces(&env), [""; 0]);

    env.run(&["config", "apply"]).ok();
    assert_eq!(hashes(&env), [sha256sum(&env)]);
    assert!(tickets(&env).iter().all(|ticket| !is_open(ticket)));
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("now it is in force", || ["mailed", "evil-agent"].iter().all(|n| traces(&env).contains(n)));
    drop(up);
    env.run(&["replay"]).ok();
}

#[test]
fn yes_takes_a_change_over_and_a_change_without_agents_needs_none() {
    let env = Env::new();
    let toml = "[loop.main]\ngoal = \"x\"\nagent_cmd = \"echo x >> work\"\nchecks = [\"test -f done\"]\nworkspace = \"in-place\"\nmax_turns = 1\nguard = { min_gap = \"0\" }\n";
    env.write("everloop.toml", toml);
    env.run(&["run"]).exits(3);
    assert_eq!(hashes(&env), [sha256sum(&env)]);
    env.run(&["run"]).exits(3);
    assert_eq!(hashes(&env).len(), 1, "the same content is accepted once");
    env.write("everloop.toml", &toml.replace("max_turns = 1", "max_turns = 2"));
    env.run(&["run"]).exits(4);
    assert_eq!(hashes(&env).len(), 1);
    env.write("everloop.toml", &toml.replace("echo x", "echo another"));
    let asked = env.on_terminal(&["run"], "n\n");
    assert!(asked.code != 0 && asked.stdout.contains("echo another"), "it lists what is new: {asked:?}");
    assert_eq!(hashes(&env).len(), 1);
    env.write("everloop.toml", &toml.replace("max_turns = 1", "max_turns = 2"));
    env.run(&["run", "--yes"]).exits(3);
    assert_eq!(hashes(&env).last(), Some(&sha256sum(&env)));
    let log = env.run(&["logs", "-n", "1000"]).ok().stdout;
    assert!(log.contains("is in force since `run` by tester"), "{log}");
}

#[test]
fn a_file_that_changed_by_itself_is_a_line_and_a_ticket_and_what_was_accepted_stays() {
    let env = Env::new();
    let toml = "[mailbox]\ncommand = [\"touch\", \"../tmp/mailed\"]\nisolation = \"none\"\nevery = 1\n[loop.main]\ngoal = \"x\"\nagent_cmd = \"echo x >> work\"\nchecks = [\"test -f done\"]\nworkspace = \"in-place\"\nguard = { min_gap = \"1h\" }\n";
    env.write("everloop.toml", toml);
    let run = env.spawn(&["run"]);
    env.wait_for("the accepted mailbox is used", || traces(&env) == ["mailed"]);
    let line = |env: &Env| env.run(&["status", "--json"]).ok().json()["configuration"].clone();
    assert_eq!(line(&env), json!([]));

    env.write("everloop.toml", &toml.replace("mailed", "other"));
    env.run(&["wake"]).ok();
    env.wait_for("a ticket", || tickets(&env).len() == 1);
    assert_eq!(
        (line(&env)[0]["state"].as_str(), line(&env)[0]["hash"].as_str()),
        (Some("changed"), Some(&*sha256sum(&env)))
    );
    let said = env.run(&["status"]).ok().stdout;
    assert!(said.contains("changed (sha256") && said.contains("config apply"), "{said}");
    env.run(&["ticket", "answer", &tickets(&env)[0]["id"].to_string(), "I know"]).ok();
    // The second wake is seen after everything that the first one made happen.
    let woken = || env.run(&["logs", "-n", "1000"]).ok().stdout.matches("woken by tester").count();
    for _ in 0..2 {
        let before = woken();
        env.run(&["wake"]).ok();
        env.wait_for("it woke", || woken() > before);
    }
    assert_eq!(tickets(&env).len(), 1, "the same content is not reported again");
    env.write("everloop.toml", &toml.replace("mailed", "another"));
    env.run(&["wake"]).ok();
    env.wait_for("one for the next content, none for the first again", || tickets(&env).len() == 2);

    // A pipe in its place blocks nothing.
    let file = env.project().join("everloop.toml");
    std::fs::remove_file(&file).expect("it is ours");
    assert!(Command::new("mkfifo").arg(&file).status().expect("coreutils are there").success());
    assert_eq!(line(&env)[0]["state"], "gone");
    std::fs::remove_file(&file).expect("it is ours");
    env.write("everloop.toml", toml);
    assert_eq!(line(&env), json!([]), "it is again what was accepted");
    drop(run);
    assert_eq!(traces(&env), ["mailed"]);
}

#[test]
fn a_fresh_clone_runs_nothing_until_it_is_trusted_and_a_changed_byte_is_not_trusted() {
    let env = Env::new();
    let toml = "[isolation]\nmode = \"none\"\n[loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"touch ../tmp/checked; false\"]\n";
    env.write("everloop.toml", toml);
    let _up = up_elsewhere(&env);
    let project = env.project();
    for event in ["SessionStart", "Stop"] {
        let out = hook(&env, event, &project).ok();
        let told: Value = serde_json::from_str(&out.stdout).expect("an answer in the format of the CLIs");
        let line = told["systemMessage"].as_str().expect("a line for the person");
        assert!(line.contains("touch ../tmp/checked; false") && line.contains("everloop trust"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
    assert_eq!(traces(&env), [""; 0]);

    let said = env.run(&["trust"]).ok().stdout;
    assert!(said.contains("[loop.main] checks: touch ../tmp/checked; false"), "{said}");
    assert_eq!(hashes(&env), [sha256sum(&env)]);
    assert!(is_refused(&hook(&env, "Stop", &project).ok()));
    assert_eq!(traces(&env), ["checked"]);

    // Another content: its command is not run, and a session does not free itself by a change.
    env.write("everloop.toml", &toml.replace("checked; false", "other"));
    env.write("work", "x");
    assert_eq!(trusted(&env)[0]["state"], "changed");
    assert!(is_refused(&hook(&env, "Stop", &project).ok()));
    assert_eq!(traces(&env), ["checked"]);
    env.run(&["trust"]).ok();
    env.write("work", "y");
    assert!(!is_refused(&hook(&env, "Stop", &project).ok()));
    assert_eq!(traces(&env), ["checked", "other"]);

    env.run(&["trust", "--revoke", "."]).ok();
    std::fs::remove_file(beside(&env, "other")).expect("it was just there");
    env.write("work", "z");
    assert!(hook(&env, "Stop", &project).ok().stdout.contains("is not trusted"));
    assert_eq!((traces(&env), trusted(&env)), (vec!["checked"], Vec::new()));
}

#[test]
fn folders_are_named_as_they_are_and_mistakes_are_told() {
    let env = Env::new();
    env.write("deep/everloop.toml", "[loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"false\"]\n");
    let said = env.run(&["trust", "depe"]).exits(2).stderr;
    assert!(said.contains("there is no folder `depe`"), "{said}");
    let said = env.run(&["trust"]).exits(2).stderr;
    assert!(said.contains("no readable everloop.toml") && said.contains("everloop init"), "{said}");
    let said = env.run(&["trust", "--revoke", "deep"]).exits(2).stderr;
    assert!(said.contains("nothing is trusted in") && said.contains("trust --list"), "{said}");
    env.write("wrong/everloop.toml", "[loop.main]\nnonsense = 1\n");
    env.run(&["trust", "wrong"]).exits(7);
    assert!(env.run(&["trust", "--list"]).ok().stdout.contains("no folder is trusted"));

    // One folder, whatever leads to it.
    let (real, link) = (env.project().join("deep"), env.project().join("link"));
    symlink(&real, &link).expect("a link can be made");
    env.run(&["trust", "link"]).ok();
    env.run(&["trust", "deep"]).ok();
    let real = real.canonicalize().expect("it is there");
    assert_eq!(trusted(&env).iter().map(|f| f["dir"].clone()).collect::<Vec<_>>(), [json!(real)]);
    let _up = up_elsewhere(&env);
    assert!(is_refused(&hook(&env, "Stop", &link).ok()));
    // The name leads elsewhere now: what was trusted is the folder, not its name.
    env.write(
        "elsewhere/everloop.toml",
        "[loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"touch ../../tmp/other; false\"]\n",
    );
    std::fs::remove_file(&link).and_then(|()| symlink(env.project().join("elsewhere"), &link)).expect("it is ours");
    assert!(!is_refused(&hook(&env, "Stop", &link).ok()));
    assert_eq!(traces(&env), [""; 0]);
    env.run(&["trust", "--revoke", "deep"]).ok();
    assert_eq!(trusted(&env), Vec::<Value>::new());
}

#[test]
fn trust_leaves_the_settings_of_loops_and_check_makes_nothing_trusted() {
    let env = Env::new();
    let file = |check: &str| {
        format!(
            "[loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"{check}\"]\nmax_turns = 1\n\
             workspace = \"in-place\"\nguard = {{ min_gap = \"0\" }}\n"
        )
    };
    env.write("everloop.toml", &file("test -f done"));
    env.run(&["check"]).exits(3);
    assert_eq!(trusted(&env), Vec::<Value>::new(), "it was used once");
    env.run(&["run"]).exits(3);
    env.write("everloop.toml", &file("test -d ."));
    env.run(&["check"]).exits(3);
    let state = trusted(&env)[0]["state"].clone();
    assert_eq!((state, hashes(&env).len()), (json!("changed"), 1), "the checks of the loop stay");
    let check = || env.the_loop()["spec"]["checks"][0]["run"].clone();
    env.run(&["trust"]).ok();
    assert_eq!((hashes(&env).last(), check()), (Some(&sha256sum(&env)), json!("test -f done")));
    env.run(&["config", "apply"]).ok();
    assert_eq!(check(), "test -d .");
}

#[test]
fn the_agent_of_a_turn_accepts_nothing() {
    let env = Env::new().var("EVERLOOP_TURN", "k3f9-1.1");
    env.write("Makefile", "test:\n\ttrue\n");
    env.run(&["init", "--yes", "--agent-cmd", "true"]).ok();
    for args in [&["trust"][..], &["trust", "--revoke", "."], &["config", "apply"]] {
        let said = env.run(args).exits(2).stderr;
        assert!(said.contains("only a person may"), "{said}");
    }
    assert_eq!(trusted(&env), Vec::<Value>::new());
}

#[test]
fn what_a_person_writes_with_init_is_trusted_and_uninstall_ends_that() {
    let env = Env::new();
    env.write("Makefile", "test:\n\ttrue\n");
    env.run(&["init", "--yes", "--agent-cmd", "true"]).ok();
    assert_eq!(trusted(&env)[0]["via"], "init");
    assert_eq!(hashes(&env), [sha256sum(&env)]);
    env.run(&["init", "--remove", "--yes"]).ok();
    assert_eq!(trusted(&env), Vec::<Value>::new());
}
