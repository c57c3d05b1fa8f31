//! Answers: complete ones, odd ones, broken ones.

use std::time::Duration;

use everloop_agents::api::{ApiFormat, usual_prices};
use everloop_core::stream::{AgentEvent, LimitClass};
use serde_json::json;

use super::server::{Act, bytes};
use super::world::{WIRES, World, call, one_call, text};
use crate::trials;

trials![
    words_are_passed_on_and_counted,
    a_cap_on_tokens_ends_the_turn_before_the_next_request,
    a_price_makes_a_cost_and_a_budget_ends_the_turn,
    the_list_of_prices_ends_a_turn_and_reports_no_dollars,
    requests_have_an_end,
    an_answer_cut_at_its_length_goes_on,
    a_server_that_hangs_is_a_network_limit,
    a_stream_that_stalls_is_a_network_limit,
    a_stream_that_is_cut_is_a_network_limit,
    a_stream_that_ends_early_is_a_network_limit,
    nonsense_in_a_stream_is_skipped,
    a_stream_of_nonsense_is_no_answer,
    a_page_is_no_answer,
    a_hundred_megabytes_are_not_read,
    a_reset_is_tried_once_more,
    nobody_there_is_a_network_limit,
];

fn words_are_passed_on_and_counted() {
    for wire in WIRES {
        let world = World::new(wire, vec![Act::Events(text(wire, "Hello, world.\n"))]);
        let ran = world.works("say hello");
        assert_eq!(ran.text(), "Hello, world.\n");
        let report = ran.report();
        assert_eq!(report.last_text, "Hello, world.\n");
        assert_eq!((report.used.input, report.used.cache_read, report.used.output), (100, 40, 20));
        assert_eq!(report.used.microusd, None);
        assert_eq!(report.unknown, 0, "{}", ran.raw);
        assert!(report.context_percent.is_some() && report.model.as_deref() == Some("some-model"));
        let request = &world.requests()[0];
        let (path, auth) = match wire {
            ApiFormat::Messages => ("post /v1/messages http/1.1", "x-api-key: sk-canary"),
            ApiFormat::Responses => ("post /v1/responses http/1.1", "authorization: bearer sk-canary"),
        };
        assert!(request.head.starts_with(path) && request.head.contains(auth), "{}", request.head);
        assert_eq!((&request.body["stream"], &request.body["model"]), (&json!(true), &json!("some-model")));
        assert!(request.body.to_string().contains("say hello"));
    }
}

fn a_cap_on_tokens_ends_the_turn_before_the_next_request() {
    for wire in WIRES {
        let script = (0..9).map(|_| Act::Events(call(wire, "read", &json!({"path": "."})))).collect();
        let mut world = World::new(wire, script);
        world.options.left_tokens = Some(1);
        let ran = world.run("look around for ever");
        assert_eq!((ran.code, world.requests().len()), (1, 1), "{}", ran.raw);
        assert!(ran.report().last_text.contains("tokens for this turn are used up"), "{}", ran.raw);
    }
}

fn a_price_makes_a_cost_and_a_budget_ends_the_turn() {
    for wire in WIRES {
        let script = (0..9).map(|_| Act::Events(call(wire, "read", &json!({"path": "."})))).collect();
        let mut world = World::new(wire, script);
        world.options.prices = Some(usual_prices(wire, 10_000_000, 100_000_000));
        world.options.left_microusd = Some(7_000);
        let ran = world.run("look around for ever");
        let report = ran.report();
        // More than 3,000 each: three requests are started while something is left.
        assert_eq!((ran.code, report.ok, report.limit.clone()), (1, Some(false), None), "{}", ran.raw);
        assert_eq!(world.requests().len(), 3);
        assert!(report.used.microusd.is_some_and(|m| (9_000..12_000).contains(&m)), "{:?}", report.used);
        assert!(report.last_text.contains("used up"), "{}", ran.raw);
    }
}

/// An estimate is no report: the turn is priced, and marked, where it is charged.
fn the_list_of_prices_ends_a_turn_and_reports_no_dollars() {
    for wire in WIRES {
        let script = (0..9).map(|_| Act::Events(call(wire, "read", &json!({"path": "."})))).collect();
        let mut world = World::new(wire, script);
        "gpt-5.5-pro".clone_into(&mut world.options.model);
        world.options.left_microusd = Some(1);
        let ran = world.run("look around for ever");
        assert_eq!((ran.code, world.requests().len()), (1, 1), "{}", ran.raw);
        let report = ran.report();
        assert!(report.last_text.contains("used up") && report.used.microusd.is_none(), "{}", ran.raw);
    }
}

fn requests_have_an_end() {
    let wire = ApiFormat::Messages;
    let mut world = World::new(wire, vec![Act::Events(call(wire, "read", &json!({"path": "."}))); 5]);
    world.options.max_requests = 2;
    let ran = world.run("look around for ever");
    assert_eq!((ran.code, world.requests().len(), ran.report().limit), (1, 2, None), "{}", ran.raw);
}

fn an_answer_cut_at_its_length_goes_on() {
    for wire in WIRES {
        let cut = match wire {
            ApiFormat::Messages => {
                let mut events = text(wire, "first half");
                let at = events.len() - 2;
                events[at]["delta"]["stop_reason"] = json!("max_tokens");
                events
            }
            ApiFormat::Responses => {
                let mut events = text(wire, "first half");
                let last = events.last_mut().unwrap();
                last["type"] = json!("response.incomplete");
                last["response"]["incomplete_details"] = json!({"reason": "max_output_tokens"});
                events
            }
        };
        let world = World::new(wire, vec![Act::Events(cut), Act::Events(text(wire, "second half"))]);
        let ran = world.works("write a lot");
        assert_eq!(ran.text(), "first halfsecond half");
        assert!(world.requests()[1].body.to_string().contains("first half"));
    }
}

fn a_server_that_hangs_is_a_network_limit() {
    for wire in WIRES {
        let mut world = World::new(wire, vec![Act::Hang]);
        world.options.timeouts.first_byte = Duration::from_millis(300);
        let limit = world.run("hello").limit();
        assert_eq!((limit.rule.as_str(), limit.class), ("api.timeout", LimitClass::Network), "{limit:?}");
        assert_eq!(world.requests().len(), 1, "a timeout is not retried here");
    }
}

fn a_stream_that_stalls_is_a_network_limit() {
    for wire in WIRES {
        let events = text(wire, "half a sentence");
        let mut world = World::new(wire, vec![Act::Stall(bytes(&events[..3]))]);
        world.options.timeouts.idle = Duration::from_millis(300);
        let ran = world.run("hello");
        let limit = ran.limit();
        assert_eq!((limit.rule.as_str(), limit.class), ("api.timeout", LimitClass::Network), "{limit:?}");
        assert!(ran.text().contains("half"), "what arrived is shown: {}", ran.raw);
    }
}

fn a_stream_that_is_cut_is_a_network_limit() {
    for wire in WIRES {
        let world = World::new(wire, vec![Act::Cut(bytes(&text(wire, "half a sentence")[..3]))]);
        let ran = world.run("hello");
        let limit = ran.limit();
        assert_eq!((limit.rule.as_str(), limit.class), ("api.cut", LimitClass::Network), "{limit:?}");
        assert!(ran.said.iter().any(|s| matches!(s, AgentEvent::Used(u) if u.input > 0)), "{}", ran.raw);
        assert!(!world.stored().contains("half a sentence"), "an incomplete answer is not kept");
    }
}

fn a_stream_that_ends_early_is_a_network_limit() {
    for wire in WIRES {
        let world = World::new(wire, vec![Act::Stream(bytes(&text(wire, "half a sentence")[..3]))]);
        assert_eq!(world.run("hello").limit().rule, "api.cut");
    }
}

fn nonsense_in_a_stream_is_skipped() {
    for wire in WIRES {
        let mut stream =
            b"data: {not json\n\ndata: 7\n\n: comment\n\ndata: {\"type\":\"brand_new\"}\n\n\xff\xfe\n\n".to_vec();
        stream.extend(bytes(&text(wire, "still here")));
        let ran = World::new(wire, vec![Act::Stream(stream)]).works("hello");
        assert_eq!((ran.text().as_str(), ran.report().unknown), ("still here", 3), "{}", ran.raw);
    }
}

fn a_stream_of_nonsense_is_no_answer() {
    for wire in WIRES {
        for stream in [&b""[..], b"\0\0\0", b"data: [DONE]\n\n", b"data: []\n\ndata: null\n\n"] {
            assert_eq!(World::new(wire, vec![Act::Stream(stream.to_vec())]).run("hello").limit().rule, "api.cut");
        }
        let empty = World::new(wire, vec![Act::Events(text(wire, ""))]).works("hello");
        assert_eq!(empty.text(), "");
    }
}

fn a_page_is_no_answer() {
    let page = Act::Status(200, Vec::new(), "<html>Please log in to this network</html>".to_owned());
    assert_eq!(World::new(ApiFormat::Messages, vec![page]).run("hello").limit().rule, "api.no-stream");
}

fn a_hundred_megabytes_are_not_read() {
    for wire in WIRES {
        for piece in [&b"x"[..], b"data: 12345678\n", b"data: {\"type\":\"ping\"}\n\n"] {
            let limit = World::new(wire, vec![Act::Flood(piece)]).run("hello").limit();
            assert_eq!((limit.rule.as_str(), limit.class), ("api.too-big", LimitClass::Overload), "{limit:?}");
        }
        let error = r#"{"error":{"type":"rate_limit_error"}}"#.to_owned();
        assert_eq!(World::new(wire, vec![Act::Huge(429, error)]).run("hello").limit().rule, "api.429");
    }
}

fn a_reset_is_tried_once_more() {
    for wire in WIRES {
        let world = World::new(wire, vec![Act::Reset, Act::Events(text(wire, "hello"))]);
        let ran = world.works("hello");
        assert_eq!((ran.report().retries, world.requests().len()), (1, 2), "{}", ran.raw);
        let world = World::new(wire, vec![Act::Reset, Act::Reset]);
        let limit = world.run("hello").limit();
        assert_eq!((limit.rule.as_str(), limit.class, world.requests().len()), ("api.reset", LimitClass::Network, 2));
    }
    // A second request finds the first connection closed; that is no reason to end a turn.
    let world = World::new(ApiFormat::Messages, one_call(ApiFormat::Messages, "read", &json!({"path": "."})));
    assert_eq!(world.works("look").report().tools, 1);
}

fn nobody_there_is_a_network_limit() {
    let mut world = World::new(ApiFormat::Messages, Vec::new());
    // Bound and released: nothing listens there.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    world.options.base = format!("http://{address}");
    assert_eq!(world.run("hello").limit().class, LimitClass::Network);
    world.options.base = String::from("http://api.example");
    let ran = world.run("hello");
    assert_eq!((ran.code, ran.report().limit.is_none()), (1, true), "{}", ran.raw);
    assert!(ran.report().last_text.contains("hint: use `https://`"), "{}", ran.raw);
}
