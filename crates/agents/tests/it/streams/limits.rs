//! Refusals as vendors wrote them: every sample is recognised, with its class and its end.

use everloop_core::phase::{Doing, Phases};
use everloop_core::spec::AgentKind::{self, Claude, Codex, Gemini, Opencode};
use everloop_core::stream::AgentEvent;
use everloop_core::time::Time;
use serde_json::{Value, json};

use super::fixtures::{Case, NOW, read, read_text, report};

/// The end of the limit.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// Seconds since 1970.
    At(i64),
    /// Milliseconds from now.
    In(i64),
    /// At a time of day in the zone of the machine that the test runs on.
    Sometime,
    Unknown,
}

use Ends::{At, In, Sometime, Unknown};

struct Sample {
    kind: AgentKind,
    out: Value,
    exit: i32,
    rule: &'static str,
    class: &'static str,
    ends: Ends,
}

fn claude(out: Value, rule: &'static str, class: &'static str, ends: Ends) -> Sample {
    Sample { kind: Claude, out, exit: 1, rule, class, ends }
}

/// As 2.1.197 wrote it: without the machine-readable reason.
fn claude_says(text: &str, rule: &'static str, class: &'static str, ends: Ends) -> Sample {
    let out = json!({"type": "assistant", "message": {"model": "<synthetic>", "content": [{"type": "text", "text": text}]},
        "error": "unknown", "is_api_error_message": true});
    claude(out, rule, class, ends)
}

fn claude_result(text: &str, rule: &'static str, class: &'static str, ends: Ends) -> Sample {
    let out = json!({"type": "result", "subtype": "success", "is_error": true, "num_turns": 1, "result": text});
    claude(out, rule, class, ends)
}

fn claude_event(kind: &str, resets_at: i64, rule: &'static str, class: &'static str) -> Sample {
    let info = json!({"status": "rejected", "resetsAt": resets_at, "rateLimitType": kind, "isUsingOverage": false});
    claude(json!({"type": "rate_limit_event", "rate_limit_info": info}), rule, class, At(resets_at))
}

fn codex(message: &str, rule: &'static str, class: &'static str, ends: Ends) -> Sample {
    Sample {
        kind: Codex,
        out: json!({"type": "turn.failed", "error": {"message": message}}),
        exit: 1,
        rule,
        class,
        ends,
    }
}

fn gemini(message: &str, exit: i32, found: (&'static str, &'static str), ends: Ends) -> Sample {
    let out =
        json!({"type": "result", "status": "error", "error": {"type": "unknown", "message": message}, "stats": {}});
    Sample { kind: Gemini, out, exit, rule: found.0, class: found.1, ends }
}

fn opencode(data: &Value, rule: &'static str, class: &'static str, ends: Ends) -> Sample {
    let out = json!({"type": "error", "sessionID": "ses_1", "error": {"name": "APIError", "data": data}});
    Sample { kind: Opencode, out, exit: 1, rule, class, ends }
}

const SPEND_CAP: &str = "API Error: 400 You have reached your specified API usage limits. You will regain access on \
    2026-12-01 at 00:00 UTC.";

const DAY_LATER: i64 = 1_794_840_717;

fn claude_samples() -> Vec<Sample> {
    let status = |status: u64, error: &str, text: &str| {
        json!({"type": "assistant", "message": {"model": "<synthetic>", "content": [{"type": "text", "text": text}]},
            "error": error, "is_api_error_message": true, "api_error_status": status})
    };
    vec![
        claude_event("five_hour", 1_794_775_911, "claude.five-hour", "window"),
        claude_event("seven_day", DAY_LATER, "claude.seven-day", "weekly"),
        claude_event("seven_day_opus", DAY_LATER, "claude.seven-day-model", "model"),
        claude_event("something_new", DAY_LATER, "claude.allowance", "window"),
        claude_says(
            "You've hit your session limit · resets 9:38pm (UTC)",
            "claude.window-text",
            "window",
            At(1_794_778_740),
        ),
        claude_says("You've hit your Fable limit · resets 9pm (UTC)", "claude.model-text", "model", At(1_794_776_460)),
        claude_says("You've hit your monthly spend limit", "claude.spend-text", "spend", Unknown),
        claude_says("You've hit your team's shared budget", "claude.spend-text", "spend", Unknown),
        claude_says("You're out of usage credits", "claude.credit", "credit", Unknown),
        claude_says(
            "You're out of extra usage · resets 11:30am (Europe/Berlin)",
            "claude.window-text",
            "window",
            At(1_794_825_060),
        ),
        claude_says(
            "Weekly limit reached · resets 10am (Asia/Seoul) · /upgrade to Max",
            "claude.weekly-text",
            "weekly",
            At(1_794_790_860),
        ),
        claude_says("Weekly limit reached · resets 10am (Nowhere/Atall)", "claude.weekly-text", "weekly", Unknown),
        claude_says("5-hour limit reached ∙ resets 5am", "claude.window-text", "window", Sometime),
        claude_says(
            "You've hit your limit · resets 11pm (America/New_York)",
            "claude.window-text",
            "window",
            At(1_794_801_660),
        ),
        claude_result("Claude AI usage limit reached|1794775911", "claude.window-text", "window", At(1_794_775_911)),
        claude_result("Claude AI usage limit reached|1749924000", "claude.window-text", "window", Unknown),
        claude_result("Credit balance is too low", "claude.credit", "credit", Unknown),
        claude(status(400, "unknown", SPEND_CAP), "any.spend-cap", "spend", At(1_796_083_200)),
        claude(status(400, "unknown", "API Error: 400 fake 400"), "any.request", "request", Unknown),
        claude(
            status(404, "model_not_found", "There's an issue with the selected model (claude-nope)."),
            "any.request",
            "request",
            Unknown,
        ),
        claude_result("Invalid API key · Fix external API key", "claude.auth", "auth", Unknown),
        claude_result("Request timed out", "any.network", "network", Unknown),
        claude(status(429, "rate_limit", "API Error: Request rejected (429) · slow down"), "any.rate", "rate", Unknown),
        claude(status(529, "server_error", "API Error: 529 Overloaded."), "any.overload", "overload", Unknown),
        claude(status(403, "unknown", "API Error: 403"), "any.auth", "auth", Unknown),
        claude(status(413, "invalid_request", "Request too large"), "any.too-large", "context", Unknown),
        claude(
            json!({"type": "result", "subtype": "success", "is_error": true, "result": "x", "terminal_reason": "prompt_too_long"}),
            "any.context",
            "context",
            Unknown,
        ),
        claude(
            json!({"type": "result", "subtype": "success", "is_error": true, "result": "x", "api_error": "usage_limit_reached"}),
            "claude.usage-limit",
            "window",
            Unknown,
        ),
    ]
}

fn codex_samples() -> Vec<Sample> {
    let more = "To get more access now, send a request to your admin or try again at 11:16 PM.";
    let ascii = format!("You've hit your usage limit. {more}");
    vec![
        codex(
            "You’ve hit your usage limit. Upgrade or try again at 8:52 PM.",
            "codex.usage-limit",
            "window",
            At(1_794_775_980),
        ),
        codex(&ascii, "codex.usage-limit", "window", At(1_794_784_620)),
        codex(
            "You’ve hit your usage limit. Try again at Nov 20th, 2026 10:19 AM.",
            "codex.usage-limit",
            "weekly",
            At(1_795_170_000),
        ),
        codex("You’ve hit your usage limit. Try again later.", "codex.usage-limit", "window", Unknown),
        codex("Quota exceeded. Check your plan and billing details.", "codex.credit", "credit", Unknown),
        codex("You have reached the spend cap set by your workspace.", "codex.spend", "spend", Unknown),
        codex("Selected model is at capacity. Please try a different model.", "codex.overload", "overload", Unknown),
        codex(
            "We’re currently experiencing high demand, which may cause temporary errors.",
            "codex.overload",
            "overload",
            Unknown,
        ),
        codex("Codex ran out of room in the model's context window.", "any.context", "context", Unknown),
        codex("exceeded retry limit, last status: 429 Too Many Requests, request id: r", "any.rate", "rate", Unknown),
        codex(
            "rate limit exceeded: Rate limit reached for m. Please try again in 1.5s.",
            "codex.rate",
            "rate",
            In(1500),
        ),
        codex("unexpected status 401 Unauthorized: no, url: http://x", "any.auth", "auth", Unknown),
        codex("unexpected status 402 Payment Required: no", "any.credit", "credit", Unknown),
        codex("unexpected status 529 <unknown status code>: busy", "any.overload", "overload", Unknown),
        codex(
            "Your access token could not be refreshed. Please log out and sign in again.",
            "codex.auth",
            "auth",
            Unknown,
        ),
        codex("stream disconnected before completion: idle timeout waiting for SSE", "any.network", "network", Unknown),
        codex(
            "The model `gpt-nope` does not exist or you do not have access to it.",
            "codex.model-unknown",
            "request",
            Unknown,
        ),
        codex(
            r#"{"detail":"The 'gpt-nope' model is not supported when using Codex with a ChatGPT account."}"#,
            "codex.model-unknown",
            "request",
            Unknown,
        ),
        codex(
            r#"{"error": {"message": "fake 400", "type": "invalid_request_error", "param": null, "code": null}}"#,
            "any.request",
            "request",
            Unknown,
        ),
    ]
}

fn gemini_samples() -> Vec<Sample> {
    let auth = r#"[API Error: {"error":{"code":401,"message":"no","status":"UNAUTHENTICATED"}}]"#;
    let full = r#"[API Error: {"error":{"code":500,"message":"no","status":"INTERNAL"}}]"#;
    vec![
        gemini(
            "[API Error: You have exhausted your daily quota on this model.]",
            173,
            ("gemini.daily", "daily"),
            // Midnight in California.
            At(1_794_816_000),
        ),
        gemini(
            "[API Error: models/gemini-nope is not found for API version v1beta, or is not supported.]",
            1,
            ("gemini.model-unknown", "request"),
            Unknown,
        ),
        gemini(
            r#"[API Error: {"error":{"code":400,"message":"fake 400","status":"INVALID_ARGUMENT"}}]"#,
            144,
            ("any.request", "request"),
            Unknown,
        ),
        gemini(
            "You have exhausted your capacity on this model. Your quota will reset after 5s.",
            173,
            ("gemini.model", "model"),
            In(5000),
        ),
        gemini(
            "[API Error: You exceeded your current quota.\nSuggested retry after 4s.]",
            173,
            ("gemini.rate", "rate"),
            In(4000),
        ),
        gemini("[API Error: fake 429\nSuggested retry after 600s.]", 173, ("gemini.rate", "rate"), In(600_000)),
        gemini(auth, 145, ("gemini.auth", "auth"), Unknown),
        gemini(
            r#"[API Error: {"error":{"code":402,"message":"no","status":"PERMISSION_DENIED"}}]"#,
            146,
            ("gemini.credit", "credit"),
            Unknown,
        ),
        gemini(full, 244, ("gemini.overload", "overload"), Unknown),
        gemini("[API Error: something]", 247, ("any.overload", "overload"), Unknown),
        gemini("[API Error: something]", 173, ("any.rate", "rate"), Unknown),
        gemini("[API Error: something]", 147, ("any.auth", "auth"), Unknown),
        gemini(
            "[API Error: exception TypeError: fetch failed sending request]",
            1,
            ("any.network", "network"),
            Unknown,
        ),
    ]
}

fn opencode_samples() -> Vec<Sample> {
    let body = |kind: &str| format!("{{\"error\":{{\"message\":\"m\",\"type\":\"{kind}\",\"code\":null}}}}");
    vec![
        opencode(
            &json!({"message": "m", "statusCode": 429, "responseHeaders": {"retry-after": "3"}}),
            "any.rate",
            "rate",
            In(3000),
        ),
        opencode(
            &json!({"message": "m", "statusCode": 429, "responseHeaders": {"retry-after-ms": "1500", "retry-after": "9"}}),
            "any.rate",
            "rate",
            In(1500),
        ),
        opencode(
            &json!({"message": "m", "statusCode": 429, "responseBody": body("insufficient_quota")}),
            "any.credit",
            "credit",
            Unknown,
        ),
        opencode(
            &json!({"message": "m", "statusCode": 429, "responseBody": body("usage_limit_reached")}),
            "opencode.usage-limit",
            "window",
            Unknown,
        ),
        opencode(&json!({"message": "m", "statusCode": 401}), "any.auth", "auth", Unknown),
        opencode(&json!({"message": "m", "statusCode": 404}), "any.request", "request", Unknown),
        opencode(&json!({"message": "m", "statusCode": 503}), "any.overload", "overload", Unknown),
        opencode(
            &json!({"message": "Cannot connect to API: The socket connection was closed"}),
            "any.network",
            "network",
            Unknown,
        ),
        opencode(
            &json!({"message": "prompt is too long: 250000 tokens > 200000 maximum"}),
            "any.context",
            "context",
            Unknown,
        ),
    ]
}

#[test]
fn what_vendors_wrote_is_recognised() {
    let samples = samples();
    assert!(samples.len() >= 55);
    for sample in &samples {
        let limit = report(&read_text(sample.kind, &format!("{}\n", sample.out), sample.exit)).limit;
        let Some(limit) = limit else { panic!("missed: {}", sample.out) };
        assert_eq!(
            (limit.rule.as_str(), limit.class.to_string().as_str()),
            (sample.rule, sample.class),
            "{}",
            sample.out
        );
        let wanted = match sample.ends {
            At(seconds) => Some(Time(seconds * 1000)),
            In(millis) => Some(Time(NOW.0 + millis)),
            Sometime => limit.reset_at.filter(|t| t.since(NOW).as_secs() <= 86_460),
            Unknown => None,
        };
        assert_eq!(limit.reset_at, wanted, "{}", sample.out);
        assert!(!matches!(sample.ends, Sometime) || limit.reset_at.is_some());
    }
}

fn samples() -> Vec<Sample> {
    [claude_samples(), codex_samples(), gemini_samples(), opencode_samples()].into_iter().flatten().collect()
}

#[test]
fn every_rule_has_a_sample() {
    let samples = samples();
    // A line on standard output cannot show these: an exit code alone, an error by name, a line on
    // standard error, an error of a protocol. A wait has a class and is no limit yet.
    let elsewhere = ["opencode.auth", "gemini.network", "copilot.auth", "acp.auth"];
    for rule in everloop_agents::agent::limits::CATALOGUE {
        let wait = rule.id.starts_with("opencode.waits-for-");
        let shown = samples.iter().any(|s| s.rule == rule.id) || elsewhere.contains(&rule.id) || wait;
        assert!(shown, "`{}` has no sample", rule.id);
    }
}

#[test]
fn a_time_that_has_passed_or_is_far_away_is_none() {
    for resets_at in [1_794_768_000, 1_794_768_600 + 32 * 86_400, 0, -5] {
        let info = json!({"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"});
        let out = json!({"type": "rate_limit_event", "rate_limit_info": info});
        let limit = report(&read_text(Claude, &out.to_string(), 1)).limit.unwrap();
        assert_eq!(limit.reset_at, None, "{resets_at}");
    }
}

#[test]
fn a_failure_carries_the_sentence_of_the_vendor_and_the_id_of_its_request() {
    let synthetic = json!({"type": "assistant", "message": {"model": "<synthetic>",
        "content": [{"type": "text", "text": "API Error: 400 no"}]}, "error": "unknown", "request_id": "req_1",
        "is_api_error_message": true, "api_error_status": 400});
    let found = report(&read_text(Claude, &format!("{synthetic}\n"), 1));
    assert_eq!((found.error.as_deref(), found.request_id.as_deref()), (Some("API Error: 400 no"), Some("req_1")));
    let failed = json!({"type": "turn.failed", "error": {"message":
        "exceeded retry limit, last status: 429 Too Many Requests, request id: req_2"}});
    let found = report(&read_text(Codex, &format!("{failed}\n"), 1));
    let sentence = "exceeded retry limit, last status: 429 Too Many Requests";
    assert_eq!((found.error.as_deref(), found.request_id.as_deref()), (Some(sentence), Some("req_2")));
    let raw = json!({"type": "turn.failed", "error": {"message": "{\"detail\":\"no such model\"}"}});
    assert_eq!(report(&read_text(Codex, &format!("{raw}\n"), 1)).error.as_deref(), Some("no such model"));
    let silent = Case { err: b"warning: x\nerror: unknown option '--nope'\n".to_vec(), ..Case::empty(Claude) };
    let found = report(&read(&silent, usize::MAX));
    assert_eq!(found.error.as_deref(), Some("error: unknown option '--nope'"), "it failed before its first record");
}

/// A retry that the program announces is a limit until that time, once the turn is stopped for it.
#[test]
fn an_announced_retry_knows_its_time() {
    let announced = |kind, out: &str, err: &str| {
        let case = Case { out: out.into(), err: err.into(), exit: -15, ..Case::empty(kind) };
        let limit = report(&read(&case, usize::MAX)).announced.expect("it announced a retry");
        (limit.class.to_string(), limit.reset_at.map(|at| at.since(NOW).as_secs()))
    };
    let log = "2026-11-17T11:03:26Z  WARN codex_core::responses_retry: stream disconnected - retrying sampling \
        request (1/2 in 599.997878852s)... turn_id=x retries=1\n";
    let record = "{\"type\":\"error\",\"message\":\"Reconnecting... 1/2 (exceeded retry limit, last status: 429 Too Many \
        Requests, request id: req_123)\"}\n";
    assert_eq!(announced(Codex, record, log), ("rate".to_owned(), Some(599)));
    assert_eq!(announced(Codex, record, ""), ("rate".to_owned(), None), "without the log its length is unknown");
    let wait = |message: &str, seconds: u64| {
        let action = message.contains("usage limit").then(|| json!({"reason": "account_rate_limit"}));
        let status = json!({"type": "retry", "attempt": 1, "message": message, "next": 1_000 + seconds * 1_000,
            "action": action});
        let record = json!({"type": "session_status", "timestamp": 1_000, "sessionID": "ses_1", "status": status});
        announced(Opencode, &format!("{record}\n"), "")
    };
    assert_eq!(wait("Provider is overloaded", 600), ("overload".to_owned(), Some(600)));
    assert_eq!(wait("Rate limit exceeded", 3), ("rate".to_owned(), Some(3)));
    assert_eq!(wait("Weekly usage limit reached. It will reset in 2 days.", 172_800).0, "window");
    assert_eq!(wait("slow down", 600), ("rate".to_owned(), Some(600)), "opencode itself never waits that long");
}

/// A request that opencode tries again by itself is no limit, and its session is known from the
/// first wait on.
#[test]
fn a_wait_of_opencode_is_over_when_it_works_again() {
    let record =
        |status: Value| json!({"type": "session_status", "timestamp": 0, "sessionID": "ses_1", "status": status});
    let wait = record(json!({"type": "retry", "attempt": 2, "message": "fake 500", "next": 4_000}));
    let said = read_text(Opencode, &format!("{wait}\n{}\n", record(json!({"type": "busy"}))), 0);
    let found = report(&said);
    assert_eq!((found.session.as_deref(), found.retries, found.unknown), (Some("ses_1"), 1, 0));
    assert!(found.announced.is_none() && found.limit.is_none(), "{found:?}");
    let mut phase = Phases::new(NOW);
    for one in said.iter().filter(|one| !matches!(one, AgentEvent::Result { .. })) {
        phase.take(one, NOW);
    }
    assert_eq!(phase.phase_liveness(NOW).doing, Doing::Model);
}
