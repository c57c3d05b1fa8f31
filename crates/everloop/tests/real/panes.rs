//! The real claude in a real tmux pane takes turns, as a person would work with it.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everloop_testkit::clis::CliProgram;
use everloop_testkit::fake_model::FakeModel;
use everloop_testkit::offline::offline;

use super::env::Env;

/// Settings that keep claude from prompting at its start in the project.
fn furnish(env: &Env, key: &str) {
    let home = env.project().join("../home");
    let project = env.project().canonicalize().expect("it is there");
    let trusted = serde_json::json!({ "hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true });
    let settings = serde_json::json!({
        "hasCompletedOnboarding": true, "lastOnboardingVersion": "2.1.325", "theme": "dark",
        "bypassPermissionsModeAccepted": true, "hasSeenAutoDefaultNotice": true,
        "customApiKeyResponses": { "approved": [&key[key.len() - 20..]], "rejected": [] },
        "projects": { project.display().to_string(): trusted },
    });
    std::fs::write(home.join(".claude.json"), settings.to_string()).expect("the home is ours");
}

#[test]
fn claude_in_a_pane_takes_a_turn() {
    offline(|| takes_a_turn(&["--in-place"]));
}

/// The pane was started in the project; for the turn claude is started again in the clone.
#[test]
fn claude_in_a_pane_takes_a_turn_in_a_clone() {
    offline(|| takes_a_turn(&[]));
}

/// Confirms, as a person would in `pane attach`, that claude may work in a folder that is new to it.
fn trust_the_folder(env: &Env, ended: &AtomicBool) {
    let tmux = |words: &[&str]| {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(env.state().join("panes/tmux.sock")).args(words).output().expect("tmux is there")
    };
    while !ended.load(Ordering::Relaxed) {
        let screen = tmux(&["capture-pane", "-p", "-t", "helper"]).stdout;
        let screen = String::from_utf8_lossy(&screen);
        // One key at a time: claude draws before it takes keys.
        if screen.contains("❯ Yes, I trust this folder") {
            tmux(&["send-keys", "-t", "helper", "Enter"]);
        } else if screen.contains("Yes, I trust this folder") {
            tmux(&["send-keys", "-t", "helper", "Down"]);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn takes_a_turn(more: &[&str]) {
    let key = "sk-ant-dummy-0123456789-0123456789";
    let model = FakeModel::start("edit:path=made.txt:text=hello,text:say=done").expect("a free port");
    let env = Env::new().var("ANTHROPIC_API_KEY", key).var("ANTHROPIC_BASE_URL", &model.base_url()).git();
    furnish(&env, key);
    let program = CliProgram::Claude.program().display().to_string();
    let mut words = vec!["pane", "start", "helper", "--kind", "claude"];
    let fixed = ["IS_SANDBOX=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"];
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"].into_iter().chain(fixed) {
        words.extend(["--env", name]);
    }
    words.extend(["--", &program, "--dangerously-skip-permissions"]);
    env.run(&words).ok();
    env.write("everloop.toml", "[agent.helper]\nkind = \"pane\"\npane = \"helper\"\n");
    let mut run = vec!["run", "make made.txt", "--check", "test -f made.txt", "--agent", "helper", "--min-gap", "0"];
    run.extend(more);
    let ended = AtomicBool::new(false);
    let out = std::thread::scope(|scope| {
        scope.spawn(|| trust_the_folder(&env, &ended));
        let out = env.run(&run);
        ended.store(true, Ordering::Relaxed);
        out
    });
    let screen = env.run(&["pane", "read", "helper"]).stdout;
    let used = env.run(&["usage", "--json"]).ok().json()["total"]["tokens"].as_u64();
    assert!(used.is_some_and(|tokens| tokens > 0), "usage comes from the transcript: {used:?}");
    env.run(&["pane", "kill", "helper"]).ok();
    // It outlives its panes on purpose.
    let socket = env.state().join("panes/tmux.sock");
    Command::new("tmux").arg("-S").arg(socket).arg("kill-server").status().expect("tmux is there");
    assert_eq!(out.code, 0, "{}\n{}\n{screen}", out.stdout, out.stderr);
    assert_eq!(env.read("made.txt").trim(), "hello");
    assert_eq!(model.main_calls(), 2, "one turn: a tool call and a last word");
}
