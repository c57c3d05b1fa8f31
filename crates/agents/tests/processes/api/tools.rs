//! What the model does in the workspace, and what it cannot do.

use std::time::{Duration, Instant};

use everloop_agents::api::ApiFormat;
use everloop_agents::process;
use everloop_core::spec::Permission;
use everloop_core::stream::AgentEvent;
use serde_json::json;

use super::server::Act;
use super::world::{CANARY, KEY_ENV, WIRES, World, call, one_call, text, told};
use crate::trials;

trials![
    a_call_writes_a_file_and_words_follow,
    an_edit_that_is_not_unique_changes_nothing,
    paths_do_not_leave_the_workspace,
    a_command_runs_without_the_key,
    a_command_that_takes_too_long_is_killed_with_its_tree,
    a_server_in_the_background_does_not_hold_the_turn,
    only_allowed_commands_run_under_edits,
    broken_calls_are_answered,
    a_flood_of_output_is_cut,
];

fn a_call_writes_a_file_and_words_follow() {
    for wire in WIRES {
        let world = World::new(wire, one_call(wire, "write", &json!({"path": "a/b.txt", "content": "hällo\n"})));
        let ran = world.works("make a file");
        assert_eq!(world.file("a/b.txt"), "hällo\n");
        let started =
            ran.said.iter().position(|s| matches!(s, AgentEvent::ToolStarted { name, .. } if name == "write"));
        let ended = ran.said.iter().position(|s| matches!(s, AgentEvent::ToolEnded { error: None, .. }));
        assert!(started.is_some() && started < ended, "{}", ran.raw);
        assert_eq!((ran.text().as_str(), ran.report().tools), ("done", 1));
        assert_eq!(ran.report().used.output, 40, "of both requests");
        assert_eq!(told(wire, &world.requests()[1]), "wrote 7 bytes");
    }
}

fn an_edit_that_is_not_unique_changes_nothing() {
    for wire in WIRES {
        let world = World::new(wire, one_call(wire, "edit", &json!({"path": "f", "old": "a", "new": "b"})));
        std::fs::write(world.path("f"), "a a").unwrap();
        let ran = world.works("edit it");
        assert_eq!(world.file("f"), "a a");
        assert!(told(wire, &world.requests()[1]).contains("2 times"));
        assert!(ran.said.iter().any(|s| matches!(s, AgentEvent::ToolEnded { error: Some(_), .. })), "{}", ran.raw);
    }
}

fn paths_do_not_leave_the_workspace() {
    for wire in WIRES {
        for path in ["../escaped", "/tmp/everloop-escaped", "link/escaped", ".git/hooks/post-commit"] {
            let world = World::new(wire, one_call(wire, "write", &json!({"path": path, "content": "x"})));
            std::os::unix::fs::symlink("..", world.path("link")).unwrap();
            std::fs::create_dir_all(world.path(".git/hooks")).unwrap();
            world.works("escape");
            assert!(told(wire, &world.requests()[1]).starts_with("error: "), "{path}");
            assert!(!world.path("../escaped").exists() && !world.path(".git/hooks/post-commit").exists());
        }
    }
}

fn a_command_runs_without_the_key() {
    for wire in WIRES {
        let command =
            format!("echo \"<${KEY_ENV}>\"; env | grep -c canary; tr '\\0' '\\n' < /proc/$PPID/environ; pwd; exit 3");
        let world = World::new(wire, one_call(wire, "shell", &json!({ "command": command })));
        let ran = world.works("look for the key");
        let told = told(wire, &world.requests()[1]);
        assert!(told.starts_with("<>\n0\n") && told.ends_with("[exit code 3]"), "{told}");
        assert!(told.contains("/workspace"), "{told}");
        assert!(!world.requests()[1].body.to_string().contains(CANARY) && !ran.raw.contains(CANARY), "{told}");
    }
}

/// Three ways to escape: the background, another session, an orphan in another session. Each writes
/// its pid to a file.
const RUNAWAYS: &str = "sh -c 'echo $$ > one; exec sleep 300' & setsid sh -c 'echo $$ > two; exec sleep 300' & \
    setsid sh -c 'sh -c \"echo \\$\\$ > three; exec sleep 300\" & ' ; \
    while ! test -s one || ! test -s two || ! test -s three; do :; done; echo started; sleep 300";

fn a_command_that_takes_too_long_is_killed_with_its_tree() {
    let wire = ApiFormat::Messages;
    let world = World::new(wire, one_call(wire, "shell", &json!({"command": RUNAWAYS, "timeout_seconds": 3})));
    let begun = Instant::now();
    let ran = world.works("run for ever");
    assert!(begun.elapsed() < Duration::from_secs(60));
    let told = told(wire, &world.requests()[1]);
    assert!(told.contains("started") && told.contains("[stopped after 3 s"), "{told}");
    assert!(
        ran.said.iter().any(|s| matches!(s, AgentEvent::ToolStarted { timeout_ms: Some(3_000), .. })),
        "{}",
        ran.raw
    );
    for name in ["one", "two", "three"] {
        let pid: i32 = world.file(name).trim().parse().unwrap();
        let alive = process::stat(pid).filter(process::Stat::is_alive);
        assert_eq!(alive, None, "{name} is still there");
    }
}

fn a_server_in_the_background_does_not_hold_the_turn() {
    let wire = ApiFormat::Messages;
    let mut script = vec![Act::Events(call(wire, "shell", &json!({"command": "sleep 300 & echo $! > pid; echo up"})))];
    script.push(Act::Events(call(wire, "shell", &json!({"command": "kill $(cat pid) && echo stopped"}))));
    script.push(Act::Events(text(wire, "done")));
    let world = World::new(wire, script);
    let begun = Instant::now();
    world.works("start a server");
    assert!(begun.elapsed() < Duration::from_secs(60));
    let requests = world.requests();
    assert_eq!((told(wire, &requests[1]).trim(), told(wire, &requests[2]).trim()), ("up", "stopped"));
}

fn only_allowed_commands_run_under_edits() {
    for wire in WIRES {
        for (command, runs) in [("touch ok", true), ("touch ok && touch bad", false), ("rm -rf .", false)] {
            let mut world = World::new(wire, one_call(wire, "shell", &json!({ "command": command })));
            world.options.permission = Permission::Edits;
            world.options.allow = vec!["touch".to_owned()];
            let ran = world.works("run it");
            assert_eq!((world.path("ok").exists(), ran.report().denied == 0), (runs, runs), "{command}: {}", ran.raw);
            assert_eq!(told(wire, &world.requests()[1]).contains("refused"), !runs);
        }
    }
}

fn broken_calls_are_answered() {
    for wire in WIRES {
        for (name, input) in [
            ("teleport", json!({})),
            ("write", json!({"path": 7})),
            ("read", json!({"path": "missing"})),
            ("shell", json!({})),
            ("edit", json!({"path": "x", "old": "", "new": ""})),
        ] {
            let world = World::new(wire, one_call(wire, name, &input));
            world.works("do something odd");
            assert!(told(wire, &world.requests()[1]).starts_with("error: "), "{name}");
        }
    }
    // Arguments that were cut off in the middle.
    let mut events = call(ApiFormat::Messages, "write", &json!({"path": "x", "content": "y"}));
    events.remove(4);
    let world =
        World::new(ApiFormat::Messages, vec![Act::Events(events), Act::Events(text(ApiFormat::Messages, "done"))]);
    world.works("write");
    assert!(told(ApiFormat::Messages, &world.requests()[1]).contains("not a JSON object") && !world.path("x").exists());
}

fn a_flood_of_output_is_cut() {
    let wire = ApiFormat::Responses;
    let world = World::new(wire, one_call(wire, "shell", &json!({"command": "seq 1 1000000; echo end"})));
    world.works("count");
    let told = told(wire, &world.requests()[1]);
    assert!(told.len() < 70_000 && told.starts_with("1\n2\n") && told.trim().ends_with("end"), "{}", told.len());
    assert!(told.contains("bytes left out"));
}
