//! Sessions over several turns.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use everloop_agents::api::ApiFormat;
use everloop_core::stream::AgentEvent;
use serde_json::json;

use super::server::Act;
use super::world::{WIRES, World, call, text};
use crate::trials;

trials![
    a_conversation_goes_on,
    an_unknown_conversation_is_lost,
    a_conversation_of_the_other_wire_is_lost,
    a_turn_that_was_killed_during_a_call_goes_on,
];

fn a_conversation_goes_on() {
    for wire in WIRES {
        let script = vec![
            Act::Events(call(wire, "write", &json!({"path": "f", "content": "x"}))),
            Act::Events(text(wire, "the answer is 42")),
            Act::Events(text(wire, "as I said")),
        ];
        let mut world = World::new(wire, script);
        let first = world.works("what is the answer?");
        world.options.resume = Some(first.session());
        let second = world.works("say it again");
        assert_eq!(second.session(), first.session());
        let asked = world.requests()[2].body.to_string();
        let parts = ["what is the answer?", "wrote 1 bytes", "the answer is 42", "say it again"];
        let places: Vec<_> = parts.iter().map(|part| asked.find(part)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {asked}");
        let file = world.options.state_dir.join(format!("sessions/{}.jsonl", first.session()));
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }
}

fn an_unknown_conversation_is_lost() {
    for id in ["nobody-knows", "../../etc/passwd", ""] {
        let mut world = World::new(ApiFormat::Messages, Vec::new());
        world.options.resume = Some(id.to_owned());
        let ran = world.run("go on");
        assert_eq!((ran.code, ran.report().session_lost, world.requests().len()), (1, true, 0), "{}", ran.raw);
        assert!(ran.said.contains(&AgentEvent::SessionLost));
    }
}

fn a_conversation_of_the_other_wire_is_lost() {
    let mut world = World::new(ApiFormat::Messages, vec![Act::Events(text(ApiFormat::Messages, "hello"))]);
    world.options.resume = Some(world.works("hello").session());
    world.options.wire = ApiFormat::Responses;
    assert!(world.run("go on").report().session_lost);
}

fn a_turn_that_was_killed_during_a_call_goes_on() {
    for wire in WIRES {
        let script = vec![Act::Events(text(wire, "hello")), Act::Events(text(wire, "going on"))];
        let mut world = World::new(wire, script);
        let id = world.works("hello").session();
        // The file after a crash during a call, in the middle of the next write.
        let item = match wire {
            ApiFormat::Messages => json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": "call_9", "name": "shell", "input": {"command": "make"}},
            ]}),
            ApiFormat::Responses => {
                json!({"type": "function_call", "call_id": "call_9", "name": "shell", "arguments": "{}"})
            }
        };
        let file = world.options.state_dir.join(format!("sessions/{id}.jsonl"));
        let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
        file.write_all(format!("{item}\n{{\"role\":\"us").as_bytes()).unwrap();
        world.options.resume = Some(id);
        world.works("go on");
        let asked = world.requests()[1].body.to_string();
        assert!(asked.matches("call_9").count() == 2 && asked.contains("was interrupted"), "{asked}");
    }
}
