//! Which refusal of a vendor is which limit, and when it ends. Reads the status, the headers and
//! the error record only: nothing that the model wrote gets here.

use std::time::Duration;

use everloop_core::stream::{LimitClass, VendorLimit};
use everloop_core::time::Time;
use jiff::Timestamp;
use serde_json::Value;
use ureq::http::HeaderMap;

use super::reply::ApiRefusal;

/// Characters kept of a vendor's message.
const TEXT_KEPT: usize = 400;
/// No vendor's window is longer than a month; a later end is an error.
const FARTHEST: Duration = Duration::from_secs(32 * 86_400);

/// A refusal as the vendor sent it.
pub(super) struct RefusalText<'a> {
    /// The status, or the one that this error would have had before the stream began.
    pub(super) status: u16,
    /// Empty for an error inside of a stream.
    pub(super) headers: &'a HeaderMap,
    /// The error record: `type`, `code`, `message`, sometimes `resets_at`.
    pub(super) error: &'a Value,
    /// The time of the response.
    pub(super) now: Time,
}

/// From the response to a request.
pub(super) fn of_answer(status: u16, headers: &HeaderMap, body: &str, now: Time) -> ApiRefusal {
    let record: Value = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    let error = record.get("error").filter(|e| !e.is_null()).unwrap_or(&record);
    of(&RefusalText { status, headers, error, now })
}

/// From an error inside of a stream, which has no status of its own.
pub(super) fn in_stream(error: &Value, now: Time) -> ApiRefusal {
    let said = |name: &str| [word(error, "type"), word(error, "code")].contains(&name);
    let any = |names: &[&str]| names.iter().any(|n| said(n));
    let status = if any(&["overloaded_error", "server_is_overloaded", "slow_down"]) {
        529
    } else if any(&["rate_limit_error", "rate_limit_exceeded", "usage_limit_reached", "usage_not_included"]) {
        429
    } else if any(&["authentication_error", "invalid_api_key"]) {
        401
    } else if any(&["permission_error"]) {
        403
    } else if any(&["billing_error", "insufficient_quota"]) {
        402
    } else if any(&["request_too_large"]) {
        413
    } else if any(&["invalid_request_error", "context_length_exceeded", "invalid_prompt", "not_found_error"]) {
        400
    } else {
        // Anything else that breaks a running stream counts as a fault of the vendor.
        500
    };
    of(&RefusalText { status, headers: &HeaderMap::new(), error, now })
}

fn of(said: &RefusalText<'_>) -> ApiRefusal {
    let text = words(said);
    let Some((rule, class)) = rule(said) else { return ApiRefusal::plain(text) };
    let reset_at = if class == LimitClass::Auth { None } else { reset(said) };
    ApiRefusal { limit: Some(VendorLimit { rule, class, reset_at, text: text.clone() }), text }
}

/// The first rule that matches.
fn rule(said: &RefusalText<'_>) -> Option<(String, LimitClass)> {
    let message = message(said.error).to_ascii_lowercase();
    let named = |names: &[&str]| names.iter().any(|n| [word(said.error, "type"), word(said.error, "code")].contains(n));
    let tells = |parts: &[&str]| parts.iter().any(|p| message.contains(p));
    let by_status = |class| Some((format!("api.{}", said.status), class));
    let by_name = |name: &str, class| Some((format!("api.{name}"), class));
    match said.status {
        402 => by_status(LimitClass::Credit),
        _ if named(&["insufficient_quota", "billing_error", "billing_not_active", "billing_hard_limit_reached"]) => {
            by_name("credit", LimitClass::Credit)
        }
        400 | 403 if tells(&["credit balance is too low"]) => by_name("credit", LimitClass::Credit),
        400 | 403 | 429 if tells(&["reached your specified api usage limits", "you will regain access on"]) => {
            by_name("spend", LimitClass::Spend)
        }
        _ if named(&["context_length_exceeded"]) => by_name("context", LimitClass::Context),
        400 | 422 if tells(&["prompt is too long", "maximum context length", "exceeds the context window"]) => {
            by_name("context", LimitClass::Context)
        }
        413 => by_status(LimitClass::Context),
        401 | 403 | 407 => by_status(LimitClass::Auth),
        429 => by_status(window(said)),
        408 | 425 | 500.. => by_status(LimitClass::Overload),
        400 | 404 | 405 | 422 => by_status(LimitClass::Request),
        _ => None,
    }
}

/// The allowance that a 429 is about.
fn window(said: &RefusalText<'_>) -> LimitClass {
    match header(said.headers, "anthropic-ratelimit-unified-representative-claim") {
        Some("five_hour") => LimitClass::Window,
        Some(claim) if claim.starts_with("seven_day") => LimitClass::Weekly,
        _ if word(said.error, "type") == "usage_limit_reached" => LimitClass::Window,
        _ => LimitClass::Rate,
    }
}

/// The end of the limit: fields of this refusal first, then those that describe allowances in
/// general.
fn reset(said: &RefusalText<'_>) -> Option<Time> {
    let in_head = |name: &str| header(said.headers, name);
    let of_window = || in_head("anthropic-ratelimit-unified-reset").and_then(moment);
    let in_body = || {
        let field = |name: &str| said.error.get(name).and_then(plain);
        let wait = || field("resets_in_seconds").or_else(|| field("retry_after")).and_then(|s| seconds(&s));
        field("resets_at").and_then(|at| moment(&at)).or_else(|| wait().map(|wait| said.now + wait))
    };
    let millis = || in_head("retry-after-ms")?.parse().ok().map(|ms| said.now + Duration::from_millis(ms));
    let retry = || {
        let value = in_head("retry-after")?;
        seconds(value).map(|wait| said.now + wait).or_else(|| http_date(value))
    };
    let told = || regained(&message(said.error));
    let found = of_window().or_else(in_body).or_else(millis).or_else(retry).or_else(told).or_else(|| used_up(said));
    found.filter(|at| *at >= said.now && *at <= said.now + FARTHEST)
}

/// The latest end among the exhausted allowances.
fn used_up(said: &RefusalText<'_>) -> Option<Time> {
    let in_head = |name: &str| header(said.headers, name);
    let none_left = |name: &str| in_head(name).is_none_or(|left| left.trim() == "0");
    let openai = ["requests", "tokens"].into_iter().filter_map(|what| {
        let wait = span(in_head(&format!("x-ratelimit-reset-{what}"))?)?;
        none_left(&format!("x-ratelimit-remaining-{what}")).then_some(said.now + wait)
    });
    let anthropic = ["requests", "tokens", "input-tokens", "output-tokens"].into_iter().filter_map(|what| {
        let at = moment(in_head(&format!("anthropic-ratelimit-{what}-reset"))?)?;
        none_left(&format!("anthropic-ratelimit-{what}-remaining")).then_some(at)
    });
    openai.chain(anthropic).max()
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn word<'v>(error: &'v Value, name: &str) -> &'v str {
    error.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn plain(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned).or_else(|| value.is_number().then(|| value.to_string()))
}

/// The message for people; of a page that is not a record, its beginning.
fn message(error: &Value) -> String {
    let text = error.as_str().or_else(|| ["message", "detail"].iter().find_map(|name| error.get(name)?.as_str()));
    text.unwrap_or_default().to_owned()
}

fn words(said: &RefusalText<'_>) -> String {
    let name = [word(said.error, "type"), word(said.error, "code")].into_iter().find(|n| !n.is_empty());
    let mut text = format!("the API refused with {}", said.status);
    for part in [name.unwrap_or_default(), message(said.error).trim()].iter().filter(|p| !p.is_empty()) {
        text.push_str(": ");
        text.push_str(part);
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_KEPT).collect()
}

/// Seconds or milliseconds since 1970, or a date in RFC 3339.
fn moment(value: &str) -> Option<Time> {
    if let Ok(number) = value.parse::<f64>() {
        // Ten digits are seconds until the year 2286, thirteen are milliseconds.
        let millis = if number < 1e11 { number * 1000.0 } else { number };
        return (millis.is_finite() && (0.0..9e15).contains(&millis)).then_some(Time(millis as i64));
    }
    value.parse::<Timestamp>().ok().map(|at| Time(at.as_millisecond()))
}

fn http_date(value: &str) -> Option<Time> {
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(Time(at.as_millisecond()))
}

fn seconds(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(value.trim().parse().ok()?).ok()
}

/// Reads `20ms`, `1.5s`, `6m0s`, `1h2m3s`, and bare seconds.
fn span(value: &str) -> Option<Duration> {
    let mut rest = value.trim();
    if let Some(bare) = seconds(rest) {
        return Some(bare);
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let scale = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()?;
        sum = sum.checked_add(part)?;
        rest = after;
    }
    Some(sum)
}

/// Reads the date out of `You will regain access on 2026-01-01 at 00:00 UTC.`
fn regained(message: &str) -> Option<Time> {
    let rest = message.split_once("regain access on ")?.1;
    let (day, rest) = rest.split_once(" at ")?;
    let (clock, _) = rest.split_once(" UTC")?;
    moment(&format!("{day}T{clock}:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use ureq::http::{HeaderName, HeaderValue};

    const NOW: Time = Time(1_800_000_000_000);

    fn refused(status: u16, headers: &[(&str, &str)], error: &Value) -> ApiRefusal {
        let pairs = headers
            .iter()
            .map(|(n, v)| (HeaderName::from_bytes(n.as_bytes()).unwrap(), HeaderValue::from_str(v).unwrap()));
        of_answer(status, &pairs.collect(), &json!({ "error": error }).to_string(), NOW)
    }

    #[track_caller]
    fn class(status: u16, error: &Value, rule: &str, class: LimitClass) {
        let limit = refused(status, &[], error).limit.unwrap();
        assert_eq!((limit.rule.as_str(), limit.class), (rule, class));
    }

    #[test]
    fn each_refusal_is_its_limit() {
        class(429, &json!({"type": "rate_limit_error"}), "api.429", LimitClass::Rate);
        class(429, &json!({"type": "usage_limit_reached"}), "api.429", LimitClass::Window);
        class(429, &json!({"code": "insufficient_quota"}), "api.credit", LimitClass::Credit);
        class(402, &json!({}), "api.402", LimitClass::Credit);
        class(400, &json!({"message": "Your credit balance is too low"}), "api.credit", LimitClass::Credit);
        class(401, &json!("no"), "api.401", LimitClass::Auth);
        class(403, &json!(null), "api.403", LimitClass::Auth);
        class(529, &json!({"type": "overloaded_error"}), "api.529", LimitClass::Overload);
        class(502, &json!("<html>"), "api.502", LimitClass::Overload);
        class(400, &json!({"code": "context_length_exceeded"}), "api.context", LimitClass::Context);
        class(400, &json!({"message": "prompt is too long: 9 tokens > 8"}), "api.context", LimitClass::Context);
        class(413, &json!({"type": "request_too_large"}), "api.413", LimitClass::Context);
        class(404, &json!({"type": "not_found_error", "message": "model: x"}), "api.404", LimitClass::Request);
        class(400, &json!({"type": "invalid_request_error"}), "api.400", LimitClass::Request);
        assert_eq!(refused(302, &[], &json!({"message": "what model?"})).limit, None);
    }

    #[test]
    fn a_stream_that_breaks_is_what_its_error_says() {
        for (error, rule) in [
            (json!({"type": "overloaded_error"}), "api.529"),
            (json!({"code": "rate_limit_exceeded"}), "api.429"),
            (json!({"code": "insufficient_quota"}), "api.402"),
            (json!({"code": "context_length_exceeded"}), "api.context"),
            (json!({"type": "api_error"}), "api.500"),
            (json!({}), "api.500"),
        ] {
            assert_eq!(in_stream(&error, NOW).limit.unwrap().rule, rule);
        }
    }

    #[test]
    fn the_end_is_where_a_vendor_writes_it() {
        let end = |headers: &[(&str, &str)], error: Value| refused(429, headers, &error).limit.unwrap().reset_at;
        let after = |s: u64| Some(NOW + Duration::from_secs(s));
        assert_eq!(end(&[("retry-after", "30")], json!({})), after(30));
        assert_eq!(end(&[("retry-after-ms", "1500")], json!({})), Some(NOW + Duration::from_millis(1500)));
        assert_eq!(end(&[("retry-after", "Fri, 15 Jan 2027 08:01:00 GMT")], json!({})), after(60));
        assert_eq!(
            end(&[("anthropic-ratelimit-unified-reset", "1800000900"), ("retry-after", "1")], json!({})),
            after(900)
        );
        assert_eq!(end(&[], json!({"resets_at": 1_800_000_060})), after(60));
        assert_eq!(end(&[], json!({"resets_at": "2027-01-15T08:02:00Z"})), after(120));
        assert_eq!(end(&[], json!({"resets_in_seconds": 7})), after(7));
        let both = [
            ("x-ratelimit-reset-requests", "20ms"),
            ("x-ratelimit-remaining-requests", "9"),
            ("x-ratelimit-reset-tokens", "6m0s"),
            ("x-ratelimit-remaining-tokens", "0"),
        ];
        assert_eq!(end(&both, json!({})), after(360));
        let old = [
            ("anthropic-ratelimit-requests-reset", "2027-01-15T09:00:00Z"),
            ("anthropic-ratelimit-requests-remaining", "10"),
            ("anthropic-ratelimit-tokens-reset", "2027-01-15T08:00:30Z"),
            ("anthropic-ratelimit-tokens-remaining", "0"),
        ];
        assert_eq!(end(&old, json!({})), after(30));
        assert_eq!(end(&[], json!({"message": "You will regain access on 2027-01-16 at 08:00 UTC."})), after(86_400));
    }

    #[test]
    fn an_end_that_cannot_be_is_none() {
        for value in ["-1", "nan", "inf", "1e300", "soon", "", "99999999999", "Thu, 01 Jan 1970 00:00:00 GMT"] {
            let limit = refused(429, &[("retry-after", value)], &json!({"resets_at": value})).limit.unwrap();
            assert_eq!(limit.reset_at, None, "{value}");
        }
        assert_eq!(span("1x"), None);
        assert_eq!(span("1h2m3.5s"), Some(Duration::from_millis(3_723_500)));
    }

    #[test]
    fn what_is_shown_is_short_and_on_one_line() {
        let text = refused(500, &[], &json!({"message": format!("a\nb\u{1b}[1m{}", "x".repeat(9_000))})).text;
        assert!(text.chars().count() <= TEXT_KEPT && !text.chars().any(char::is_control), "{text}");
    }
}
