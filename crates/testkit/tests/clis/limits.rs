//! The programs take the fake model's limits and refusals for real ones.

use std::time::{Duration, SystemTime};

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;
use serde_json::Value;

use crate::{WAIT_TIMEOUT, turn};

fn find(events: &[Value], kind: &str) -> Value {
    events.iter().find(|event| event["type"] == kind).cloned().unwrap_or_else(|| panic!("no `{kind}` in {events:#?}"))
}

#[test]
fn a_window_of_claude_says_when_it_ends_and_is_open_again_then() {
    offline(|| {
        let (model, leader_lease, run) = turn(CliProgram::ClaudeSubscription, "claude-limit:in=4,text");
        assert_eq!(run.code, Some(1), "{run:#?}");
        let limit = find(&run.events(), "rate_limit_event")["rate_limit_info"].clone();
        assert_eq!((limit["status"].as_str(), limit["rateLimitType"].as_str()), (Some("rejected"), Some("five_hour")));
        assert_eq!(find(&run.events(), "result")["api_error"], "usage_limit_reached");
        let resets_at = Duration::from_secs(limit["resetsAt"].as_u64().expect("the time is in the record"));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        // The end is known, so this waits for it and for nothing else.
        std::thread::sleep(resets_at.saturating_sub(now));
        let again = leader_lease.run("go on", WAIT_TIMEOUT).expect("it ends by itself");
        assert_eq!(again.code, Some(0), "{again:#?}");
        assert_eq!(model.main_calls(), 2, "{:#?}", model.requests());
        assert!(model.requests().iter().all(|r| r.auth == "bearer"), "{:#?}", model.requests());
    });
}

#[test]
fn the_usage_limit_of_codex_is_told_in_words_and_in_the_rollout() {
    offline(|| {
        let (model, leader_lease, run) = turn(CliProgram::Codex, "codex-limit:in=7200");
        assert_eq!((run.code, model.main_calls()), (Some(1), 1), "{run:#?}");
        let failed = find(&run.events(), "turn.failed");
        assert!(failed["error"]["message"].as_str().is_some_and(|m| m.contains("hit your usage limit")), "{failed}");
        let rollouts = walk(&leader_lease.home().join(".codex/sessions"));
        assert!(rollouts.contains("\"resets_at\":") && rollouts.contains("\"used_percent\":100.0"), "{rollouts}");
    });
}

/// The text of all files below `folder`.
fn walk(folder: &std::path::Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let text = entries.map(|entry| match entry.path() {
        path if path.is_dir() => walk(&path),
        path => std::fs::read_to_string(path).unwrap_or_default(),
    });
    text.collect()
}

#[test]
fn the_day_of_gemini_is_over_at_once() {
    offline(|| {
        let (model, _seat, run) = turn(CliProgram::Gemini, "gemini-day");
        // Its exit code is the HTTP status, of which a process keeps one byte.
        assert_eq!((run.code, model.main_calls()), (Some(429 % 256), 1), "{run:#?}");
    });
}

#[test]
fn a_refused_key_ends_claude_and_gemini() {
    offline(|| {
        let (model, _seat, run) = turn(CliProgram::ClaudeSubscription, "401");
        assert_eq!(run.code, Some(1), "{run:#?}");
        assert_eq!(find(&run.events(), "result")["api_error_status"], 401, "{run:#?}");
        assert!(model.requests().iter().all(|r| r.status == Some(401)), "{:#?}", model.requests());
        let (model, _seat, run) = turn(CliProgram::Gemini, "401");
        assert_eq!((run.code, model.main_calls()), (Some(401 % 256), 1), "{run:#?}");
    });
}
