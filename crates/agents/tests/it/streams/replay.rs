//! Every recorded run gives exactly the content of `<case>.said` next to it, however it is cut into
//! pieces.
//!
//! After an intended change: `EVERLOOP_UPDATE_SAID=1 cargo test -p everloop-agents --test streams`,
//! then read the difference.

use std::fmt::Write;
use std::fs;

use everloop_core::stream::{AgentEvent, Usage};

use super::fixtures::{self, Case, read, report};

fn written(said: &[AgentEvent]) -> String {
    let mut text = String::new();
    for one in said {
        writeln!(text, "{}", serde_json::to_string(one).unwrap()).unwrap();
    }
    text.push_str(&summed_up(said));
    text
}

/// Field by field, so that a new one in the report does not change the stored results.
fn summed_up(said: &[AgentEvent]) -> String {
    let r = report(said);
    let limit = r.limit.map_or_else(|| "none".to_owned(), |l| format!("{} {} {:?}", l.class, l.rule, l.reset_at));
    let json = |usage: &Usage| serde_json::to_string(usage).unwrap();
    format!(
        "report ok={:?} limit=({limit}) session={:?} lost={} model={:?} used={} in_all={} quotas={} context={:?} tools={} \
         retries={} denied={} unknown={} last={:?}\n",
        r.ok,
        r.session,
        r.session_lost,
        r.model,
        json(&r.used),
        r.in_all.as_ref().map_or_else(|| "none".to_owned(), json),
        r.quotas.len(),
        r.context_percent,
        r.tools,
        r.retries,
        r.denied,
        r.unknown,
        r.last_text
    )
}

fn check(case: &Case, update: bool) -> Option<String> {
    let now = written(&read(case, usize::MAX));
    if update {
        fs::write(&case.said, &now).unwrap();
    }
    let wanted = fs::read_to_string(&case.said).unwrap_or_default();
    (now != wanted).then(|| format!("{}:\n--- wanted\n{wanted}--- now\n{now}", case.name))
}

#[test]
fn recorded_runs_mean_what_is_written_down() {
    let update = std::env::var_os("EVERLOOP_UPDATE_SAID").is_some();
    let wrong: Vec<String> = fixtures::all().iter().filter_map(|case| check(case, update)).collect();
    assert!(wrong.is_empty(), "{} cases differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_sizes_of_the_pieces_change_nothing() {
    for case in fixtures::all() {
        let whole = read(&case, usize::MAX);
        for piece in [1, 7, 4096] {
            assert_eq!(read(&case, piece), whole, "{} in pieces of {piece}", case.name);
        }
    }
}

/// Exit code 0 is no success by itself, and neither is a success record.
#[test]
fn only_runs_that_ended_well_are_successes() {
    let failures = [
        "claude/sigint-hang",
        "claude/sigint-in-tool",
        "claude/stop-hook-cap",
        "claude/prompt-blocked-by-hook",
        "claude/empty-answer",
        "codex/empty-answer",
        "gemini/sigterm-norelaunch",
        "gemini/empty-answer",
        "gemini/loop-detected",
        "gemini/sse-error",
        "opencode/permission-ask",
        "opencode/empty-answer",
        "opencode/max-output-tokens",
    ];
    // A person's own command, which has no answer.
    let neither = ["claude/compact"];
    for case in fixtures::all() {
        let ok = report(&read(&case, usize::MAX)).ok == Some(true);
        let name = case.name.as_str();
        if !neither.contains(&name) {
            assert_eq!(ok, case.exit == 0 && !failures.contains(&name), "{name}");
        }
        let worse = Case { exit: 1, ..case };
        assert_ne!(report(&read(&worse, usize::MAX)).ok, Some(true), "{} with exit code 1", worse.name);
    }
}

#[test]
fn lost_conversations_are_known_as_such() {
    for case in fixtures::all() {
        let lost = report(&read(&case, usize::MAX)).session_lost;
        assert_eq!(lost, case.name.ends_with("/resume-unknown"), "{}", case.name);
    }
}

#[test]
fn nothing_in_a_recorded_run_is_unknown() {
    for case in fixtures::all() {
        assert_eq!(report(&read(&case, usize::MAX)).unknown, 0, "{}", case.name);
    }
}

/// The class that each recorded run must end with; all others must end without a limit.
#[test]
fn recorded_runs_end_with_the_right_limit() {
    let classes = [
        ("429", "rate"),
        ("quota-per-minute", "rate"),
        ("failed-rate-limit", "rate"),
        ("500", "overload"),
        ("503", "overload"),
        ("529", "overload"),
        ("sse-error", "overload"),
        ("failed-overloaded", "overload"),
        ("401", "auth"),
        ("403", "auth"),
        ("no-key", "auth"),
        ("402", "credit"),
        ("insufficient-quota", "credit"),
        ("drop-midstream", "network"),
        ("reset-before-headers", "network"),
        ("hang-api-timeout-4s", "network"),
        ("usage-limit-5h-oauth", "window"),
        ("usage-limit-7d-oauth", "weekly"),
        ("usage-limit-days", "weekly"),
        ("quota-per-day", "daily"),
        ("400", "request"),
        ("failed-context", "context"),
        ("limit-after-a-tool", "window"),
        ("too-long", "context"),
    ];
    let exactly = [
        ("codex/usage-limit", "window"),
        ("claude/prompt-too-long", "context"),
        ("codex/429-retry-after-600", "none"),
        ("codex/usage-limit-with-rollout", "window"),
        ("codex/sse-error", "network"),
        ("gemini/sse-error", "none"),
        ("opencode/context-overflow-loop", "context"),
    ];
    for case in fixtures::all() {
        let name = case.name.as_str();
        let case_name = name.split_once('/').unwrap().1;
        let begins = |(begin, _): &&(&str, &str)| case_name.starts_with(begin);
        let class = exactly.iter().find(|(n, _)| *n == name).or_else(|| classes.iter().find(begins));
        let wanted = class.map_or("none", |(_, class)| class);
        let found = report(&read(&case, usize::MAX)).limit.map_or("none".to_owned(), |l| l.class.to_string());
        assert_eq!(found, wanted, "{name}");
    }
}
