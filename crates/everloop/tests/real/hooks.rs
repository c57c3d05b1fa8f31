//! The real claude in a session of its own, with everloop's hooks: held while a check fails, let go when it passes, at the cap
//! and when nobody supervises. Every call of the model is counted.

use std::process::Stdio;

use everloop_testkit::clis::Cli;
use everloop_testkit::fake_model::FakeModel;
use everloop_testkit::offline::offline;
use serde_json::{Value, json};

use super::env::{Background, Env};
use super::world::tell;

/// What `everloop init` writes for claude, with this very binary.
fn settings(env: &Env) -> String {
    let state = env.state().display().to_string();
    let mut hooks = json!({});
    for event in ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "PreCompact", "SessionEnd"] {
        let command = format!("{} --state-dir {state} hook {event}", env!("CARGO_BIN_EXE_everloop"));
        hooks[event] = json!([{ "hooks": [{ "type": "command", "command": command }] }]);
    }
    json!({ "hooks": hooks }).to_string()
}

struct Played {
    env: Env,
    model: FakeModel,
    said: Vec<Value>,
}

/// One headless session of claude in a project whose check wants `made.txt`.
fn play(script: &str, hook: &str, supervised: bool) -> Played {
    let model = FakeModel::start(script).expect("a free port on loopback");
    let env = Env::new().git();
    let toml =
        format!("[loop.main]\ngoal = \"make made.txt\"\nagent_cmd = \"true\"\nchecks = [\"test -f made.txt\"]\n{hook}");
    env.write("everloop.toml", &toml);
    env.write(".claude/settings.json", &settings(&env));
    let mut up: Option<Background> = None;
    if supervised {
        up = Some(env.spawn(&["-C", "../home", "up"]));
        env.wait_for("the supervisor", || env.state().join("bell").exists());
    }
    let mut command = std::process::Command::new(Cli::Claude.program());
    command.args(Cli::Claude.arguments(&model.base_url(), "make made.txt"));
    command.current_dir(env.project()).env_clear().envs(Cli::Claude.environment(&model.base_url()));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", env.project().join("../home"));
    let out = command.stdin(Stdio::null()).output().expect("claude is there");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    drop(up);
    Played { env, model, said: text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() }
}

impl Played {
    fn result(&self) -> &Value {
        self.said.iter().rfind(|said| said["type"] == "result").expect("claude says how it ended")
    }

    fn did(&self, what: &str) -> Vec<Value> {
        let lines = self.env.run(&["logs", "--json", "-n", "1000"]).ok().stdout;
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is a record"));
        all.map(|record| record["event"]["did"].clone()).filter(|did| did["did"] == what).collect()
    }
}

#[test]
fn claude_that_is_done_too_early_is_held_until_the_check_passes() {
    offline(|| {
        let played = play("text:say=done,text:say=done,edit:path=made.txt:text=hello,text:say=really", "", true);
        assert!(played.env.read("made.txt").starts_with("hello"));
        assert_eq!(played.did("held").len(), 2, "twice it said that it was done, and was not");
        assert_eq!(played.did("let_go")[0]["why"]["is"], "passes");
        assert_eq!(played.model.main_calls(), 4, "done, done, the edit, and the last word");
        assert_eq!(played.result()["result"], "really");
        assert_eq!((played.did("began").len(), played.did("prompted").len(), played.did("ended").len()), (1, 1, 1));
        tell(&format!("claude: held 2 times, {} calls", played.model.main_calls()));
    });
}

#[test]
fn claude_at_the_cap_ends_and_a_person_is_told() {
    offline(|| {
        let played = play("text:say=done", "[hook]\nholds = 3\n", true);
        assert_eq!(played.did("held").len(), 3);
        assert_eq!(played.model.main_calls(), 4, "the first word and one after each hold");
        assert_eq!(played.result()["result"], "done", "it was not cut off by its own cap");
        let status = played.env.run(&["status", "--json"]).stdout;
        assert!(status.contains(":stopped") && status.contains("was held 3 times"), "{status}");
    });
}

#[test]
fn claude_ends_normally_while_nobody_supervises() {
    offline(|| {
        let played = play("text:say=done", "", false);
        assert_eq!(played.model.main_calls(), 1);
        assert_eq!(played.result()["result"], "done");
    });
}

#[test]
fn claude_is_refused_what_judges_its_work() {
    offline(|| {
        let played = play("edit:path=everloop.toml:text=x,edit:path=made.txt:text=hello,text:say=done", "", true);
        assert!(played.env.read("everloop.toml").starts_with("[loop.main]"));
        assert_eq!(played.did("refused").len(), 1);
        assert_eq!(played.did("let_go")[0]["why"]["is"], "passes");
    });
}
