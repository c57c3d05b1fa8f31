//! `everloop hook` and `everloop handoff`: calls of a CLI, and their answers.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::env::{Background, Env, Output};

/// The agent of the loop if everloop ran it; its secrets are redacted.
const AGENT: &str = r#"[account.work]
env = { X_KEY = "MY_KEY" }

[agent.mine]
command = ["true"]
account = "work"

"#;

/// A project with one loop, and a supervisor of another folder.
struct World {
    env: Env,
    up: Option<Background>,
}

impl World {
    fn new(toml: &str) -> Self {
        Self::in_env(Env::new(), toml)
    }

    fn in_env(env: Env, toml: &str) -> Self {
        let tmp = env.project().with_file_name("tmp").display().to_string();
        let reach = format!("[isolation]\nwritable = [\"{tmp}\"]\n");
        env.write("everloop.toml", &format!("{AGENT}{reach}[loop.main]\ngoal = \"make it\"\nagent = \"mine\"\n{toml}"));
        env.run(&["trust"]).ok();
        let up = env.spawn(&["-C", "../home", "up"]);
        env.wait_for("the supervisor", || env.state().join("bell").exists());
        Self { env, up: Some(up) }
    }

    #[track_caller]
    fn hook(&self, event: &str, more: &Value) -> Output {
        let mut payload = json!({
            "session_id": "s1", "cwd": self.env.project(), "hook_event_name": event,
            "transcript_path": self.env.project().join("../tmp/transcript.jsonl"),
        });
        for (name, value) in more.as_object().expect("fields") {
            payload[name] = value.clone();
        }
        self.raw(event, &payload.to_string())
    }

    /// Why a moment was refused.
    #[track_caller]
    fn refused(&self, event: &str, more: &Value) -> String {
        let out = self.hook(event, more).ok();
        let said: Value = serde_json::from_str(&out.stdout).expect("a refusal is JSON");
        let tool = &said["hookSpecificOutput"];
        assert!(
            ["block", "deny"].iter().any(|no| said["decision"] == *no || tool["permissionDecision"] == *no),
            "{said}"
        );
        let why = said["reason"].as_str().or(tool["permissionDecisionReason"].as_str());
        why.expect("a refusal has a reason").to_owned()
    }

    #[track_caller]
    fn raw(&self, event: &str, stdin: &str) -> Output {
        let mut child = self.env.command(&["hook", event]).stdin(Stdio::piped()).spawn().expect("it was built");
        let mut pipe = child.stdin.take().expect("it is piped");
        pipe.write_all(stdin.as_bytes()).ok();
        drop(pipe);
        let out = child.wait_with_output().expect("it is our child");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Output { code: out.status.code().unwrap_or(-1), stdout: text(out.stdout), stderr: text(out.stderr) }
    }

    /// The events of sessions, by name.
    fn did(&self) -> Vec<Value> {
        let lines = self.env.run(&["logs", "--json"]).ok().stdout;
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is a record"));
        all.filter(|r| r["event"]["event"] == "in_session").map(|r| r["event"]["did"].clone()).collect()
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.env.project().join("../tmp/runs")).map_or(0, |text| text.lines().count())
    }
}

/// A check that counts how often it is run.
const COUNTED: &str =
    "checks = [\"echo x >> ../tmp/runs; test -f made.txt || { echo made.txt is not there; exit 1; }\"]\n";

fn stop(again: bool) -> Value {
    json!({ "stop_hook_active": again, "background_tasks": [], "session_crons": [] })
}

#[test]
fn a_session_is_held_until_the_check_passes_and_the_same_tree_is_checked_once() {
    let world = World::new(COUNTED);
    let held = world.refused("Stop", &stop(false));
    assert!(held.contains("> made.txt is not there") && held.contains("Goal: make it"), "{held}");
    assert_eq!((world.did().len(), world.runs()), (0, 1), "whether it goes on is not known yet");
    world.refused("Stop", &stop(true));
    assert_eq!(world.runs(), 1, "nothing was changed, so nothing was run");
    world.env.write("made.txt", "");
    world.hook("Stop", &stop(true)).ok();
    assert_eq!(world.runs(), 2);
    let did: Vec<String> = world.did().iter().map(|d| format!("{} {}", d["did"], d["why"]["is"])).collect();
    assert_eq!(did, ["\"held\" null", "\"held\" null", "\"let_go\" \"passes\""]);
    world.env.run(&["replay"]).ok();
}

#[test]
fn at_the_cap_it_may_stop_and_a_person_is_told_until_he_speaks() {
    let world = World::new(&format!("{COUNTED}[hook]\nmax_holds = 2\n"));
    for again in [false, true] {
        world.refused("Stop", &stop(again));
    }
    world.hook("Stop", &stop(true)).ok();
    let status = world.env.run(&["status", "--json"]).stdout;
    assert!(status.contains("session:s1:stopped") && status.contains("was held 2 times"), "{status}");
    world.hook("UserPromptSubmit", &json!({ "prompt": "never mind" })).ok();
    assert!(!world.env.run(&["status", "--json"]).stdout.contains("session:s1:stopped"));
    world.refused("Stop", &stop(false));
}

#[test]
fn without_a_supervisor_nothing_is_said_and_nothing_is_run() {
    let mut world = World::new(COUNTED);
    drop(world.up.take());
    for event in ["Stop", "SessionStart", "UserPromptSubmit", "PreToolUse", "SessionEnd"] {
        let out = world.hook(event, &stop(false)).ok();
        assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""), "{event}");
    }
    assert_eq!(world.runs(), 0);
}

#[test]
fn whatever_is_wrong_the_session_is_not_disturbed() {
    let world = World::new(COUNTED);
    for (event, stdin) in [("Stop", ""), ("Stop", "{"), ("Stop", "[1]"), ("Stop", "{}"), ("NoSuchEvent", "{}")] {
        let out = world.raw(event, stdin).ok();
        assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""), "{event} {stdin}");
    }
    // What was trusted stays in force, whatever the file contains now.
    world.env.write("everloop.toml", "[loop.main]\ngoal = 7\n");
    world.refused("Stop", &stop(false));
    world.env.write(
        "everloop.toml",
        "[defaults]\nagent_cmd = \"true\"\nchecks = [\"false\"]\n[loop.a]\ngoal = \"x\"\n[loop.b]\ngoal = \"y\"\n",
    );
    world.env.run(&["trust"]).ok();
    world.hook("Stop", &stop(false)).ok();
    // The folder in which the session was started is gone.
    let gone = world.env.project().join("gone");
    std::fs::create_dir(&gone).expect("the project is ours");
    let script = "rmdir \"$PWD\"; exec \"$0\" hook Stop < /dev/null";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_everloop")]).current_dir(&gone);
    assert_eq!(command.env("EVERLOOP_STATE_DIR", world.env.state()).status().expect("sh is there").code(), Some(0));
}

#[test]
fn what_waits_for_its_own_work_may_stop() {
    let world = World::new(COUNTED);
    let tasks = json!({ "stop_hook_active": false, "background_tasks": [{ "id": "b1", "command": "make all", "status": "running" }] });
    world.hook("Stop", &tasks).ok();
    assert_eq!(world.runs(), 0);
    assert_eq!(world.did()[0]["why"]["what"], json!(["make all"]));
}

#[test]
fn a_frozen_guard_lets_everybody_go() {
    let world = World::new(COUNTED);
    world.env.run(&["guard", "hold", "all", "--reason", "lunch"]).ok();
    let out = world.hook("Stop", &stop(false));
    assert_eq!((out.code, world.runs()), (0, 0), "{}", out.stderr);
}

#[test]
fn the_loop_that_the_file_names_holds_unless_it_is_paused_or_the_session_is_a_turn() {
    let other = "[loop.other]\ngoal = \"break it\"\nagent = \"mine\"\nchecks = [\"false\"]\n";
    let world = World::new(&format!("{COUNTED}{other}[hook]\nloop = \"main\"\n"));
    assert!(world.refused("Stop", &stop(false)).contains("Goal: make it"));
    let payload = json!({ "session_id": "s1", "cwd": world.env.project(), "hook_event_name": "Stop" }).to_string();
    let mut command = world.env.command(&["hook", "Stop"]);
    let mut turn = command.env("EVERLOOP_TURN", "k3f9-1.1").stdin(Stdio::piped()).spawn().expect("it was built");
    turn.stdin.take().expect("piped").write_all(payload.as_bytes()).expect("it reads");
    let answer = turn.wait_with_output().expect("our child");
    assert_eq!((answer.status.code(), answer.stdout.as_slice()), (Some(0), &b""[..]), "a turn is judged after it");
    world.env.run(&["run", "--loop", "main", "--detach"]).ok();
    world.env.run(&["pause", "main"]).ok();
    world.env.wait_for("it is paused", || world.env.run(&["why", "main"]).stdout.contains("paused"));
    let before = world.runs();
    assert_eq!(world.hook("Stop", &stop(true)).ok().stdout, "");
    assert_eq!(world.runs(), before, "no check was run");
}

#[test]
fn what_a_hook_skips_is_logged_on_request() {
    let env = Env::new();
    let log = |env: &Env| env.run(&["hook", "NoSuchEvent"]).ok().stderr;
    assert_eq!(log(&env), "");
    assert!(log(&env.var("EVERLOOP_LOG", "debug")).contains("unknown hook"));
}

#[test]
fn checks_that_take_too_long_hold_nobody() {
    let world = World::new("checks = [\"sleep 30\"]\n[hook]\ncheck_timeout = \"1s\"\n");
    world.hook("Stop", &stop(false)).ok();
    assert_eq!(world.did()[0]["why"]["is"], "unjudged");
    let own = |pid: &i32| world.up.as_ref().is_some_and(|up| up.pid() != *pid);
    let left: Vec<i32> = crate::env::processes_of(&world.env.state()).into_iter().filter(own).collect();
    assert!(left.is_empty(), "the check goes on: {left:?}");
}

#[test]
fn what_judges_the_work_is_not_to_be_changed() {
    let world = World::new("checks = [\"sh check.sh\"]\n");
    world.env.write("check.sh", "exit 1\n");
    world.env.write("tests/old.rs", "fn f() {}\n");
    let write = |path: &str| json!({ "tool_name": "Write", "tool_input": { "file_path": path, "content": "x" } });
    for path in ["check.sh", "tests/old.rs", "everloop.toml"] {
        let absolute = world.env.project().join(path).display().to_string();
        for path in [path, absolute.as_str()] {
            let why = world.refused("PreToolUse", &write(path));
            assert!(why.contains("is protected"), "{why}");
        }
    }
    for path in ["tests/new.rs", "src.rs", "/etc/hosts"] {
        assert_eq!(world.hook("PreToolUse", &write(path)).ok().stdout, "", "{path}");
    }
    let patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new.rs\n+x\n*** Update File: check.sh\n@@\n-exit 1\n+exit 0\n*** End Patch\nEOF";
    let why = world.refused("PreToolUse", &json!({ "tool_name": "Bash", "tool_input": { "command": patch } }));
    assert!(why.contains("`check.sh` is protected"), "{why}");
    let read = json!({ "tool_name": "Read", "tool_input": { "file_path": "check.sh" } });
    world.hook("PreToolUse", &read).ok();
}

const MEMORY: &str = "what was learned\n";

#[test]
fn a_guarded_file_is_not_gutted_and_comes_back() {
    let world = World::new("checks = [\"true\"]\n[guardian]\nfiles = [\"MEMORY.md\", \"notes/**\"]\n");
    let long = MEMORY.repeat(50);
    world.env.write("MEMORY.md", &long);
    world.env.write("notes/deep/a.md", &long);
    world.hook("SessionStart", &json!({ "source": "startup" })).ok();
    let write =
        |text: &str| json!({ "tool_name": "Write", "tool_input": { "file_path": "MEMORY.md", "content": text } });
    assert!(world.refused("PreToolUse", &write("short")).contains("may lose at most 30 %"));
    world.hook("PreToolUse", &write(&MEMORY.repeat(40))).ok();
    let edit = json!({ "tool_name": "Edit",
        "tool_input": { "file_path": "MEMORY.md", "old_string": MEMORY, "new_string": "", "replace_all": true } });
    world.refused("PreToolUse", &edit);
    // Lost by other ways, it is restored within one hook.
    world.env.write("MEMORY.md", "");
    std::fs::remove_dir_all(world.env.project().join("notes")).expect("it was written");
    let why = world.refused("PostToolUse", &json!({ "tool_name": "Bash", "tool_input": { "command": "rm" } }));
    assert!(why.contains("MEMORY.md") && why.contains("notes/deep/a.md"), "{why}");
    assert_eq!((world.env.read("MEMORY.md"), world.env.read("notes/deep/a.md")), (long.clone(), long.clone()));
    let restored = world.did().iter().filter(|d| d["did"] == "restored").count();
    assert_eq!(restored, 2);
    // A person may change everything.
    world.env.write("MEMORY.md", "a fresh start");
    world.hook("UserPromptSubmit", &json!({ "prompt": "I emptied the memory" })).ok();
    world.hook("PostToolUse", &json!({ "tool_name": "Bash" })).ok();
    assert_eq!(world.env.read("MEMORY.md"), "a fresh start");
    let copies = std::fs::read_dir(world.env.state().join("copies")).expect("there are copies").flatten();
    for copy in copies.flat_map(|d| std::fs::read_dir(d.path()).expect("a folder per project")).flatten() {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(copy.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_session_starts_from_what_the_one_before_left() {
    let world = World::in_env(Env::new().git(), COUNTED);
    let said = json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": "the parser is half done" }],
        "usage": { "input_tokens": 180_000 } } });
    std::fs::write(world.env.project().join("../tmp/transcript.jsonl"), said.to_string()).expect("it is ours");
    world.refused("Stop", &stop(false));
    world.hook("SessionEnd", &json!({ "reason": "other" })).ok();
    let did: Vec<Value> = world.did().iter().map(|did| did["did"].clone()).collect();
    assert!(did.contains(&json!("not_held")) && !did.contains(&json!("held")), "it ended all the same: {did:?}");
    assert!(world.env.run(&["status", "--json"]).stdout.contains("was held and ended all the same"));
    let shown = world.env.run(&["handoff", "show"]).ok().stdout;
    assert!(shown.contains("the parser is half done") && shown.contains("everloop.toml"), "{shown}");
    let brief = world.hook("SessionStart", &json!({ "session_id": "s2", "source": "startup" })).ok();
    let told: Value = serde_json::from_str(&brief.stdout).expect("the CLI reads JSON");
    let text = told["hookSpecificOutput"]["additionalContext"].as_str().expect("a text");
    assert!(text.contains("> the parser is half done") && text.contains("Goal: make it"), "{text}");
    assert_eq!(told["hookSpecificOutput"]["hookEventName"], "SessionStart");
    // A handoff by the agent is not overwritten by a composed one.
    let mut child =
        world.env.command(&["handoff", "write", "--session", "s2"]).stdin(Stdio::piped()).spawn().expect("built");
    child.stdin.take().expect("piped").write_all(b"next: the printer").expect("it reads");
    assert!(child.wait().expect("our child").success());
    world.hook("PreCompact", &json!({ "session_id": "s2", "trigger": "auto" })).ok();
    assert!(world.env.run(&["handoff", "show"]).ok().stdout.contains("next: the printer"));
}

#[test]
fn a_session_that_begins_has_verdicts_and_messages() {
    let world = World::new(COUNTED);
    world.refused("Stop", &stop(false));
    world.env.run(&["message", "send", "@s1", "mind the windows"]).ok();
    let brief = world.hook("SessionStart", &json!({ "source": "resume" })).ok().stdout;
    assert!(brief.contains("mind the windows") && !brief.contains("not known yet"), "{brief}");
    world.hook("PreCompact", &json!({ "trigger": "auto" })).ok();
    let left = world.env.run(&["handoff", "show"]).ok().stdout;
    assert!(left.contains("Checks, when it last wanted to stop:") && left.contains(": fail"), "{left}");
}

#[test]
fn a_full_context_asks_for_a_handoff_once() {
    let world = World::new("checks = [\"true\"]\n[hook]\ncontext_tokens = 1000\n");
    let used = |n: u64| {
        json!({ "type": "assistant", "message": { "content": "ok", "usage": { "input_tokens": n } } }).to_string()
    };
    let transcript = world.env.project().join("../tmp/transcript.jsonl");
    std::fs::write(&transcript, used(800)).expect("it is ours");
    world.hook("Stop", &stop(false)).ok();
    std::fs::write(&transcript, used(900)).expect("it is ours");
    assert!(world.refused("Stop", &stop(false)).contains("90 % full"));
    assert_eq!(world.hook("Stop", &stop(true)).ok().stdout, "");
}

#[test]
fn a_prompt_is_logged_without_secrets_and_messages_are_delivered_once() {
    let env = Env::new().var("MY_KEY", "sk-very-secret-1");
    let world = World::in_env(env, "checks = [\"true\"]\n");
    world.env.run(&["message", "send", "@s1", "mind the\nwindows"]).ok();
    let told = world.hook("UserPromptSubmit", &json!({ "prompt": "use sk-very-secret-1 now" })).ok().stdout;
    assert!(told.contains(": mind the\\n> windows"), "{told}");
    assert_eq!(world.hook("UserPromptSubmit", &json!({ "prompt": "again" })).ok().stdout, "");
    let prompts: Vec<String> = world.did().iter().map(|d| d["text"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(prompts, ["use [redacted:X_KEY] now", "again"]);
    // Keys that nothing here knows go by their shape.
    let key = format!("ghp_{}", "a1B2c3".repeat(6));
    world.hook("UserPromptSubmit", &json!({ "prompt": format!("push with {key}") })).ok();
    let kept = world.env.run(&["prompt", "list"]).ok().stdout;
    assert!(kept.contains("push with [redacted:github token]") && !kept.contains(&key), "{kept}");
}

#[test]
fn a_vendor_that_does_not_serve_parks_the_session() {
    let world = World::new(COUNTED);
    let failure =
        json!({ "error": "rate_limit", "last_assistant_message": "You've hit your session limit · resets 11pm (UTC)" });
    world.hook("StopFailure", &failure).ok();
    let parked = world.did();
    assert!(parked[0]["did"] == "parked" && parked[0]["until"].is_i64(), "{parked:?}");
    world.hook("Stop", &stop(false)).ok();
    assert_eq!(world.runs(), 0);
}

#[test]
fn a_sign_of_being_complete_is_told_once_and_wakes_the_loop() {
    let env = Env::new();
    env.write(
        "everloop.toml",
        "[completion.plan]\nplan = \"PLAN.md\"\n[completion.said]\nmarker = \"ALL DONE\"\n\
         [loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"test -f done\"]\nworkspace = \"in-place\"\n",
    );
    let up = env.spawn(&["run"]);
    env.wait_for("it works", || env.run(&["logs"]).stdout.contains("ended"));
    env.run(&["pause", "--for", "1h"]).ok();
    env.wait_for("it sleeps", || env.run(&["why"]).stdout.contains("it was put to sleep"));
    let world = World { env, up: Some(up) };
    let used = json!({ "tool_name": "Bash", "tool_input": { "command": "x" } });
    world.env.write("PLAN.md", "- [ ] a\n");
    world.hook("PostToolUse", &used).ok();
    assert!(world.did().is_empty());
    world.env.write("PLAN.md", "- [x] a\n");
    for _ in 0..2 {
        world.hook("PostToolUse", &used).ok();
    }
    let done = json!({ "stop_hook_active": false, "last_assistant_message": "so:\nALL DONE" });
    for _ in 0..2 {
        // The checks hold it, whatever it claims.
        world.refused("Stop", &done);
    }
    let rules: Vec<Value> =
        world.did().iter().filter(|d| d["did"] == "looks_complete").map(|d| d["rule"].clone()).collect();
    assert_eq!(rules, ["plan", "said"]);
    let resumed = || world.env.run(&["logs"]).stdout.contains("resumed by completion `plan`");
    world.env.wait_for("the loop goes on", resumed);
    world.env.run(&["replay"]).ok();
}

#[test]
fn why_tells_what_was_decided_about_a_session() {
    let world = World::new(COUNTED);
    let unknown = world.env.run(&["why", "s1"]).exits(2);
    assert!(unknown.stderr.contains("no loop"), "{}", unknown.stderr);
    world.hook("SessionStart", &json!({ "source": "startup" })).ok();
    assert!(world.env.run(&["why", "s1"]).ok().stdout.contains("has not called a hook that decides yet"));
    world.refused("Stop", &stop(false));
    let why = world.env.run(&["why", "s1"]).ok().stdout;
    for words in
        ["Session s1 of claude works in", "for the loop `main`", "was held (1 in a row)", "held once in all", "0 of 1"]
    {
        assert!(why.contains(words), "{words} is missing: {why}");
    }
    world.env.write("made.txt", "");
    world.hook("Stop", &stop(true)).ok();
    let why = world.env.run(&["why", "s1", "--json"]).ok().json();
    assert_eq!(why["record"]["last"][1]["why"]["is"], "passes", "{why}");
    // Another session with the same beginning.
    world.hook("SessionStart", &json!({ "session_id": "s12", "source": "startup" })).ok();
    assert!(world.env.run(&["why", "s"]).exits(2).stderr.contains("matches several sessions"));
    assert!(world.env.run(&["why", "s12"]).ok().stdout.contains("Session s12"));
}

#[test]
fn a_handoff_is_found_by_session_and_by_loop() {
    let world = World::new("checks = [\"true\"]\n");
    let write = |id: &str, text: &str| {
        let mut child =
            world.env.command(&["handoff", "write", "--session", id]).stdin(Stdio::piped()).spawn().expect("built");
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
        assert!(child.wait().expect("our child").success());
    };
    write("s1", "the first one left this");
    write("s2", "the second one left that");
    world.hook("SessionStart", &json!({ "session_id": "s1-long", "source": "startup" })).ok();
    let show = |of: &[&str]| world.env.run(&[&["handoff", "show"], of].concat());
    assert!(show(&[]).ok().stdout.contains("the second one left that"));
    assert!(show(&["s1"]).ok().stdout.contains("the first one left this"));
    assert!(show(&["s1-l"]).exits(1).stderr.contains("no session left a handoff under `s1-l`"));
    assert_eq!(show(&["nobody"]).code, 2);
    world.env.run(&["run", "--detach"]).ok();
    assert!(show(&["main"]).ok().stdout.contains("the second one left that"));
}

#[test]
fn geminis_own_echo_of_our_reason_is_no_word_of_a_person() {
    let world = World::new(&format!("{COUNTED}[hook]\nmax_holds = 2\n"));
    let mut holds = 0;
    for round in 0..6 {
        let out = world.hook("AfterAgent", &json!({ "timestamp": "x", "stop_hook_active": round > 0 }));
        let Ok(said) = serde_json::from_str::<Value>(&out.ok().stdout) else { break };
        assert_eq!(said["decision"], "deny", "{said}");
        holds += 1;
        let echo = json!({ "timestamp": "x", "prompt": said["reason"].clone() });
        assert_eq!(world.hook("BeforeAgent", &echo).ok().stdout, "");
    }
    assert_eq!(holds, 2, "the cap holds");
    assert!(world.did().iter().all(|did| did["did"] != "prompted"));
}

#[test]
fn sessions_are_starts_that_the_guard_shows() {
    let world = World::new("checks = [\"true\"]\n");
    assert!(world.env.run(&["guard", "status"]).stdout.contains("nothing has started yet"));
    for number in 0..3 {
        let session = json!({ "session_id": format!("s{number}"), "source": "startup" });
        world.hook("SessionStart", &session).ok();
    }
    let shown = world.env.run(&["guard", "status", "--json"]).ok().json();
    let scopes = shown["scopes"].as_array().expect("a list of scopes");
    let of = |name: &str| scopes.iter().find(|scope| scope["scope"] == name).cloned().unwrap_or_default();
    assert!(of("all").to_string().contains('3') && of("account:work") != Value::Null, "{shown}");
    world.env.run(&["replay"]).ok();
}

/// A session that removes its hooks has them back within one hook; where no hook is called any more,
/// the supervisor and `doctor` see it.
#[test]
fn hooks_that_are_removed_are_put_back_or_reported() {
    let env = Env::new();
    env.run(&["init", "--yes", "--agent", "claude"]).ok();
    let world = World::in_env(env, "checks = [\"true\"]\n");
    let settings = world.env.read(".claude/settings.json");
    assert!(settings.contains("everloop hook Stop"));
    let write =
        json!({ "tool_name": "Write", "tool_input": { "file_path": ".claude/settings.json", "content": "{}" } });
    assert!(world.refused("PreToolUse", &write).contains("names the hooks of this session"));
    world.env.write(".claude/settings.json", "{}");
    let used = json!({ "tool_name": "Bash", "tool_input": { "command": "x" } });
    assert!(world.refused("PostToolUse", &used).contains(".claude/settings.json"));
    assert!(world.env.read(".claude/settings.json").contains("everloop hook Stop"), "they are back");
    assert!(world.did().iter().any(|did| did["did"] == "restored"));

    world.env.write(".claude/settings.json", "{}");
    let doctor = world.env.run(&["doctor"]);
    assert!(doctor.stdout.contains("lost everloop's hooks"), "{}", doctor.stdout);
    // A question to a person makes the supervisor look at once.
    let look = || world.env.run(&["message", "send", "person", "look"]);
    world.env.wait_for("the supervisor saw it", || {
        look();
        world.env.run(&["ticket", "list"]).stdout.contains("lost everloop's hooks")
    });
    world.env.write(".claude/settings.json", &settings);
    world.env.wait_for("and that they are back", || {
        look();
        !world.env.run(&["ticket", "list"]).stdout.contains("lost everloop's hooks")
    });
}

/// `init` and the plugin together: the project's own hook answers, the plugin's is silent.
#[test]
fn a_moment_that_two_hooks_report_is_answered_once() {
    let env = Env::new();
    env.run(&["init", "--yes", "--agent", "claude"]).ok();
    let world = World::in_env(env, "checks = [\"false\"]\n");
    let plugin = |event: &str| {
        let payload = json!({ "session_id": "s1", "cwd": world.env.project(), "hook_event_name": event });
        let mut command = world.env.command(&["hook", event, "--plugin"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was built");
        child.stdin.take().expect("piped").write_all(payload.to_string().as_bytes()).expect("it reads");
        String::from_utf8_lossy(&child.wait_with_output().expect("our child").stdout).into_owned()
    };
    assert_eq!((plugin("SessionStart").as_str(), plugin("Stop").as_str()), ("", ""));
    assert_eq!(world.did(), Vec::<Value>::new());
    world.env.write(".claude/settings.json", "{}");
    assert!(plugin("Stop").contains("\"decision\":\"block\""), "alone, the plugin holds");
}
