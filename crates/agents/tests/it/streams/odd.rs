//! Streams that were seen or must be expected, and of which there is no recording.

use everloop_agents::agent::Reader;
use everloop_core::spec::AgentKind;
use everloop_core::stream::{AgentEvent, LimitClass, Usage};
use serde_json::json;

use super::fixtures::{self, Case, NOW, end, read, read_text, report};

const EVENT: &str = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1794775911,"rateLimitType":"five_hour"}}"#;

#[test]
fn an_event_in_the_middle_of_another_line_is_found() {
    let record = r#"{"type":"assistant","message":{"id":"m","model":"c","content":[{"type":"text","text":"hello"}]}}"#;
    let (front, back) = record.split_at(40);
    for (out, unknown) in [
        (format!("{front}{EVENT}{back}\n"), 0),
        (format!("{front}{EVENT}\n{back}\n"), 2),
        (format!("{EVENT}{record}\n"), 0),
    ] {
        let said = read_text(AgentKind::Claude, &out, 1);
        assert!(said.iter().any(|s| matches!(s, AgentEvent::Limit(l) if l.class == LimitClass::Window)), "{out}");
        assert_eq!(report(&said).unknown, unknown, "{out}");
    }
}

#[test]
fn what_nobody_knows_is_counted_and_skipped() {
    let out = format!("no record\n{{\"type\":\"new\"}}\n[1]\n\u{fffd}\n{EVENT}\n");
    for kind in [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini, AgentKind::Opencode, AgentKind::Api] {
        let unknown = report(&read_text(kind, &out, 0)).unknown;
        assert_eq!(unknown, if kind == AgentKind::Claude { 4 } else { 5 }, "{kind:?}");
    }
}

#[test]
fn bytes_that_are_no_text_spoil_only_their_own_place() {
    let mut reader = Reader::new(AgentKind::Codex, false);
    let mut all = Vec::new();
    let line = b"{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"a\xff\xfeb\"}}\n";
    reader.out(line, NOW, &mut |said| all.push(said));
    assert_eq!(all, [AgentEvent::Text { text: "a\u{fffd}\u{fffd}b".to_owned() }]);
}

#[test]
fn a_gap_costs_only_the_lines_that_it_tore_apart() {
    let text =
        |t: &str| format!("{{\"type\":\"item.completed\",\"item\":{{\"type\":\"agent_message\",\"text\":\"{t}\"}}}}\n");
    let (a, b, c) = (text("a"), text("b"), text("c"));
    let mut reader = Reader::new(AgentKind::Codex, false);
    let mut all = Vec::new();
    let mut take = |said| all.push(said);
    reader.out(format!("{a}{}", &b[..20]).as_bytes(), NOW, &mut take);
    reader.gap();
    reader.out(format!("{}{c}", &b[30..]).as_bytes(), NOW, &mut take);
    reader.end(&end(1, &[]), &mut take);
    assert_eq!(all, [AgentEvent::Text { text: "a".to_owned() }, AgentEvent::Text { text: "c".to_owned() }]);
}

/// 2.1.197 has only counts from the beginning of the session.
#[test]
fn what_an_older_claude_used_is_what_it_used_since() {
    let result = |tokens: u64, cost: f64| {
        json!({"type": "result", "subtype": "success", "is_error": false, "num_turns": 1, "result": "ok",
            "total_cost_usd": cost, "modelUsage": {"c": {"inputTokens": tokens, "outputTokens": 1}}})
    };
    let out = format!("{}\n{}\n", result(10, 0.5), result(30, 0.75));
    let fresh = report(&read_text(AgentKind::Claude, &out, 0));
    assert_eq!(fresh.used, Usage { input: 30, output: 1, microusd: Some(750_000), ..Usage::default() });
    assert_eq!(fresh.in_all, None);

    let mut reader = Reader::new(AgentKind::Claude, true);
    let mut all = Vec::new();
    reader.out(out.as_bytes(), NOW, &mut |said| all.push(said));
    let resumed = report(&all);
    assert_eq!(resumed.used, Usage::default());
    assert_eq!(resumed.in_all, Some(Usage { input: 30, output: 1, microusd: Some(750_000), ..Usage::default() }));
}

#[test]
fn a_claude_that_was_killed_has_used_at_least_what_its_answers_say() {
    let answer = |id: &str| {
        json!({"type": "assistant", "message": {"id": id, "model": "c", "content": [],
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 1}}})
    };
    let out = format!("{}\n{}\n{}\n", answer("a"), answer("a"), answer("b"));
    let used = report(&read_text(AgentKind::Claude, &out, -9)).used;
    assert_eq!(used, Usage { input: 20, output: 2, cache_read: 200, ..Usage::default() });
}

/// codex prints a time to the minute; its session file has it to the second, and the fill of the
/// context.
#[test]
fn codex_is_read_from_its_own_notes() {
    let case = fixtures::all().into_iter().find(|c| c.name == "codex/usage-limit-with-rollout").unwrap();
    let noted = report(&fixtures::read(&case, usize::MAX));
    let printed = report(&fixtures::read(&fixtures::Case { rollout: Vec::new(), ..case }, usize::MAX));
    let exact = noted.limit.unwrap();
    assert_eq!(exact.class, LimitClass::Window);
    let (exact, coarse) = (exact.reset_at.unwrap(), printed.limit.unwrap().reset_at.unwrap());
    assert!(exact != coarse && coarse.since(exact).as_secs() <= 60, "{exact:?} {coarse:?}");
    assert_eq!(noted.quotas[0].used_permille, 1000);
    assert_eq!(printed.quotas, []);
}

#[test]
fn codex_names_its_model_and_its_window_in_its_own_notes() {
    let case = fixtures::all().into_iter().find(|c| c.name == "codex/usage-limit-with-rollout").unwrap();
    let mut rollout = case.rollout.clone();
    let context = json!({"type": "turn_context", "payload": {"cwd": "/", "model": "gpt-5.5"}});
    let count = json!({"type": "event_msg", "payload": {"type": "token_count", "info": {
        "total_token_usage": {"input_tokens": 68_000, "output_tokens": 1}, "last_token_usage": {"total_tokens": 68_000},
        "model_context_window": 272_000}}});
    rollout.extend(format!("\n{context}\n{count}\n").into_bytes());
    let noted = report(&fixtures::read(&fixtures::Case { rollout, ..case }, usize::MAX));
    assert_eq!((noted.model.as_deref(), noted.context_percent), (Some("gpt-5.5"), Some(25)));
}

/// The text changes with almost every release; the code in codex's session file remains.
#[test]
fn codex_is_understood_when_its_words_change() {
    let case = fixtures::all().into_iter().find(|c| c.name == "codex/usage-limit-with-rollout").unwrap();
    let thread = String::from_utf8(case.out.clone()).unwrap().lines().next().unwrap().to_owned();
    let failed = json!({"type": "turn.failed", "error": {"message": "Take a break."}});
    let case = fixtures::Case { out: format!("{thread}\n{failed}\n").into_bytes(), ..case };
    let limit = report(&fixtures::read(&case, usize::MAX)).limit.unwrap();
    assert_eq!((limit.rule.as_str(), limit.class), ("codex.usage-limit", LimitClass::Window));
    assert!(limit.reset_at.is_some());
}

#[test]
fn our_own_format_is_read_back() {
    let said = [
        AgentEvent::Session { id: "s".to_owned(), model: None },
        AgentEvent::Text { text: "hello".to_owned() },
        AgentEvent::Used(Usage { input: 1, ..Usage::default() }),
        AgentEvent::Result { ok: true, text: "done".to_owned() },
    ];
    let lines: Vec<String> = said.iter().map(|s| serde_json::to_string(s).unwrap()).collect();
    let out = lines.join("\n");
    assert_eq!(read_text(AgentKind::Api, &out, 0), said);
    assert_eq!(read_text(AgentKind::Command, &out, 0), said);
    // If the pane's own output comes first, it is text.
    assert_eq!(report(&read_text(AgentKind::Pane, &format!("$ \n{out}"), 0)).session, None);
}

#[test]
fn a_pane_speaks_by_its_exit_code() {
    assert_eq!(report(&read_text(AgentKind::Pane, "all done\n", 0)).ok, Some(true));
    assert!(read_text(AgentKind::Pane, "proceed?\n", 4).contains(&AgentEvent::Asking { what: "proceed?".to_owned() }));
    assert_eq!(report(&read_text(AgentKind::Pane, "limit\n", 5)).limit.unwrap().class, LimitClass::Window);
}

/// The CLI itself would go on for ever; a model that makes progress in between is not given up.
#[test]
fn a_conversation_that_never_fits_is_given_up_and_a_long_one_is_not() {
    let overflow = r#"{"type":"error","sessionID":"s","error":{"name":"ContextOverflowError","data":{"message":"prompt is too long"}}}"#;
    let summary = r#"{"type":"text","sessionID":"s","part":{"text":"what was done so far"}}"#;
    let resume = r#"{"type":"text","sessionID":"s","part":{"text":"Continue","synthetic":true,"metadata":{"compaction_continue":true}}}"#;
    let words = "{\"type\":\"step_start\",\"sessionID\":\"s\"}\n{\"type\":\"text\",\"sessionID\":\"s\",\"part\":{\"text\":\"going on\"}}";
    let tool =
        r#"{"type":"tool_use","sessionID":"s","part":{"tool":"bash","callID":"1","state":{"status":"completed"}}}"#;
    let finish = r#"{"type":"step_finish","sessionID":"s","part":{"reason":"stop","tokens":{"input":5}}}"#;
    let round = [overflow, summary, resume].join("\n");
    let hopeless = [round.as_str(), &round, &round, words, finish].join("\n");
    let said = read_text(AgentKind::Opencode, &hopeless, -9);
    let last_word = said.iter().position(|s| matches!(s, AgentEvent::Result { ok: false, .. })).unwrap();
    assert!(said[last_word + 1..].iter().all(|s| matches!(s, AgentEvent::Used(_))), "{said:?}");
    let sum = report(&said);
    assert_eq!((sum.limit.unwrap().class, sum.ok, sum.used.input), (LimitClass::Context, Some(false), 5));
    assert_eq!(sum.last_text, "what was done so far", "the summary is what can be handed on");
    for between in [words, tool] {
        let slow = [round.as_str(), &round, between, &round, &round, words, finish].join("\n");
        let sum = report(&read_text(AgentKind::Opencode, &slow, 0));
        assert_eq!((sum.limit, sum.ok), (None, Some(true)), "{between}");
    }
}

/// Measured with 0.61.0: a key alone is accepted, a key with an address is not, unless the settings
/// choose it.
#[test]
fn a_key_that_gemini_does_not_take_comes_with_a_hint() {
    let case = Case { err: b"Invalid auth method selected.\n".to_vec(), exit: 41, ..Case::empty(AgentKind::Gemini) };
    let limit = report(&read(&case, usize::MAX)).limit.unwrap();
    assert!(limit.class == LimitClass::Auth && limit.text.contains("selectedType"), "{limit:?}");
    let plain = Case { exit: 41, ..Case::empty(AgentKind::Gemini) };
    assert!(!report(&read(&plain, usize::MAX)).limit.unwrap().text.contains("selectedType"));
}
