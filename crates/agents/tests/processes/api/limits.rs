//! Refusals: which limit each is, when it ends, and that the key is never shown.

use everloop_agents::api::ApiFormat;
use everloop_agents::clock;
use everloop_core::stream::LimitClass;
use serde_json::{Value, json};

use super::server::Act;
use super::world::{CANARY, WIRES, World, text};
use crate::trials;

trials![
    too_many_requests_say_when_they_end,
    each_status_is_its_class,
    an_error_inside_of_a_stream_is_the_same_limit,
    a_refusal_that_is_no_limit_is_only_a_failure,
    the_key_is_never_shown,
    without_a_key_nothing_is_asked,
];

fn error(status: u16, headers: &[(&'static str, &str)], error: &Value) -> Act {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Act::Status(status, headers, json!({ "type": "error", "error": error }).to_string())
}

fn too_many_requests_say_when_they_end() {
    let term = clock::now().0 / 1000 + 3600;
    let unified = ("anthropic-ratelimit-unified-reset", term.to_string());
    let claim = ("anthropic-ratelimit-unified-representative-claim", "five_hour".to_owned());
    let body = json!({"error": {"type": "rate_limit_error", "message": "no more"}}).to_string();
    let world = World::new(ApiFormat::Messages, vec![Act::Status(429, vec![unified, claim], body)]);
    let limit = world.run("hello").limit();
    assert_eq!((limit.rule.as_str(), limit.class), ("api.429", LimitClass::Window));
    assert_eq!(limit.reset_at.map(|t| t.0), Some(term * 1000));
    assert_eq!(world.requests().len(), 1, "a limit is never retried here");

    let world = World::new(ApiFormat::Responses, vec![error(429, &[], &json!({"resets_at": term}))]);
    let limit = world.run("hello").limit();
    assert_eq!((limit.class, limit.reset_at.map(|t| t.0)), (LimitClass::Rate, Some(term * 1000)));

    for wire in WIRES {
        let before = clock::now();
        let world = World::new(wire, vec![error(429, &[("retry-after", "60")], &json!({}))]);
        let wait = world.run("hello").limit().reset_at.unwrap().since(before).as_secs();
        assert!((60..120).contains(&wait), "{wait}");
    }
}

fn each_status_is_its_class() {
    for wire in WIRES {
        for (status, rule, class) in [
            (401, "api.401", LimitClass::Auth),
            (403, "api.403", LimitClass::Auth),
            (402, "api.402", LimitClass::Credit),
            (500, "api.500", LimitClass::Overload),
            (503, "api.503", LimitClass::Overload),
            (529, "api.529", LimitClass::Overload),
            (413, "api.413", LimitClass::Context),
        ] {
            let limit = World::new(wire, vec![error(status, &[], &json!({"message": "no"}))]).run("hello").limit();
            assert_eq!((limit.rule.as_str(), limit.class), (rule, class));
        }
        let quota = error(429, &[], &json!({"code": "insufficient_quota"}));
        assert_eq!(World::new(wire, vec![quota]).run("hello").limit().class, LimitClass::Credit);
        let long = error(400, &[], &json!({"message": "prompt is too long: 210000 tokens > 200000 maximum"}));
        assert_eq!(World::new(wire, vec![long]).run("hello").limit().class, LimitClass::Context);
    }
}

fn an_error_inside_of_a_stream_is_the_same_limit() {
    let messages = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let failure = json!({"code": "rate_limit_exceeded", "message": "slow down"});
    let responses = json!({"type": "response.failed", "response": {"error": failure}});
    for (wire, event, rule) in
        [(ApiFormat::Messages, messages, "api.529"), (ApiFormat::Responses, responses, "api.429")]
    {
        let mut events = text(wire, "I begin, and");
        events.truncate(2);
        events.push(event);
        assert_eq!(World::new(wire, vec![Act::Events(events)]).run("hello").limit().rule, rule);
    }
}

fn a_refusal_that_is_no_limit_is_only_a_failure() {
    for wire in WIRES {
        let world = World::new(wire, vec![error(409, &[], &json!({"type": "conflict", "message": "model: x"}))]);
        let ran = world.run("hello");
        assert_eq!((ran.code, ran.report().ok, ran.report().limit.is_none()), (1, Some(false), true), "{}", ran.raw);
        assert!(ran.report().last_text.contains("model: x"));
    }
}

fn the_key_is_never_shown() {
    for wire in WIRES {
        let world = World::new(wire, vec![Act::Echo]);
        let ran = world.run(&format!("{CANARY} was pasted here"));
        assert!(world.requests()[0].head.contains(CANARY), "the server received it");
        assert!(ran.raw.contains("[redacted:TEST_API_KEY]"), "{}", ran.raw);
        assert!(!ran.raw.contains(CANARY), "{}", ran.raw);
        assert!(!world.stored().contains(CANARY), "{}", world.stored());

        let words = format!("your key is {CANARY}, I believe");
        let world = World::new(wire, vec![Act::Events(text(wire, &words))]);
        let ran = world.works("what is my key?");
        assert!(!ran.raw.contains(CANARY) && !world.stored().contains(CANARY), "{}", ran.raw);
    }
}

fn without_a_key_nothing_is_asked() {
    for key in ["", "two words", "newline\n inside"] {
        let world = World::new(ApiFormat::Messages, Vec::new());
        let limit = world.run_with_key("hello", key).limit();
        assert_eq!((limit.class, world.requests().len()), (LimitClass::Auth, 0), "{limit:?}");
    }
    let mut world = World::new(ApiFormat::Responses, vec![Act::Events(text(ApiFormat::Responses, "hello"))]);
    world.options.key_env = None;
    world.works("hello");
    assert!(!world.requests()[0].head.contains("authorization"));
}
