//! Tests of the fold.

use super::*;
use crate::event::{EVENT_VERSION, Judgement, Settled};
use crate::guard::{Permit, Spend};
use crate::ids::{Fence, TaskId};
use crate::stream::{TurnReport, Usage};

const OWNER: &str = "k3f9";

struct Journal {
    state: OtlpState,
    batch: OtlpBatch,
    seq: u64,
}

impl Journal {
    fn new() -> Self {
        Self { state: OtlpState::default(), batch: OtlpBatch::default(), seq: 0 }
    }

    fn at(mut self, at: i64, event: Event) -> Self {
        self.seq += 1;
        let owner = Some(LoopId::new(OWNER));
        let record = JournalRecord { seq: self.seq, at: Time(at), owner, version: EVENT_VERSION, event };
        self.state.take(&record, &mut self.batch);
        self
    }

    fn turn(self, from: i64, outcome: Outcome) -> Self {
        let task = TaskId::new("k3f9-1");
        let turn = TurnId::of(&task, Fence(1));
        let used = Usage { input: 7, output: 3, cache_read: 90, ..Usage::default() };
        let report = TurnReport { model: Some("m-1".to_owned()), used, ok: Some(true), ..TurnReport::default() };
        let exit = Exit { code: Some(0), report: Some(Box::new(report)), ..Exit::default() };
        let started = Event::TurnStarted {
            turn: turn.clone(),
            task,
            fence: Fence(1),
            number: 4,
            permit: Permit { scopes: Vec::new(), reserve: Spend::default(), canary: None, bucket: None },
            agent: "claude".to_owned(),
            account: "work".to_owned(),
            resume: None,
            chosen: None,
        };
        let integrated = Some(Integrated::Landed { commit: "abc".to_owned() });
        let settled = Settled::default();
        self.at(from, started)
            .at(from + 10, Event::TurnExited { turn: turn.clone(), exit })
            .at(from + 30, Event::TurnJudged { turn: turn.clone(), judgement: Judgement::default() })
            .at(from + 35, Event::TurnEnded { turn, outcome, settled, work: None, integrated })
    }

    fn spans(&self) -> Vec<serde_json::Value> {
        let sender = wire::OtlpSender { version: "1".to_owned(), instance: "n1".to_owned() };
        let all = wire::traces(&self.batch.spans, &sender);
        all["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("a list").clone()
    }
}

#[test]
fn a_turn_is_a_span_with_its_parts_under_that_of_its_loop() {
    let journal = Journal::new().turn(1_000, Outcome::Reached).at(2_000, Event::Ended { ending: LoopEnd::Reached });
    let spans = journal.spans();
    let names: Vec<&str> = spans.iter().filter_map(|span| span["name"].as_str()).collect();
    assert_eq!(names, ["invoke_agent", "checks", "land", "turn", "loop"]);
    let (turn, whole) = (&spans[3], &spans[4]);
    for part in &spans[..3] {
        assert_eq!(part["parentSpanId"], turn["spanId"], "{part}");
        assert_eq!(part["traceId"], whole["traceId"]);
    }
    assert_eq!((&turn["parentSpanId"], whole.get("parentSpanId")), (&whole["spanId"], None));
    assert_eq!(
        (&spans[1]["startTimeUnixNano"], &spans[1]["endTimeUnixNano"]),
        (&"1010000000".into(), &"1030000000".into())
    );
    let text = spans[0].to_string();
    assert!(text.contains(r#"{"key":"gen_ai.usage.input_tokens","value":{"intValue":"97"}}"#), "{text}");
    assert!(text.contains("m-1") && spans[0]["kind"] == 3, "{text}");
    assert_eq!(journal.state.sums.turns.get("reached"), Some(&1));
    assert_eq!(journal.state.sums.tokens.get("cache_read"), Some(&90));
}

#[test]
fn what_is_sent_again_has_the_same_ids_and_another_node_has_others() {
    let (first, again) = (Journal::new().turn(1, Outcome::NoOp), Journal::new().turn(1, Outcome::NoOp));
    assert_eq!(first.spans(), again.spans());
    let id = |instance: &str| {
        let sender = wire::OtlpSender { version: "1".to_owned(), instance: instance.to_owned() };
        wire::traces(&first.batch.spans, &sender)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"].clone()
    };
    assert_ne!(id("n1"), id("n2"));
}

#[test]
fn a_turn_that_began_before_the_fold_gives_no_span_and_is_counted() {
    let turn = TurnId::of(&TaskId::new("k3f9-1"), Fence(1));
    let (settled, outcome) = (Settled::default(), Outcome::AgentFailed { why: "x".to_owned(), kept: false });
    let ended = Event::TurnEnded { turn, outcome, settled, work: None, integrated: None };
    let journal = Journal::new().at(5, ended);
    assert_eq!(journal.spans(), Vec::<serde_json::Value>::new());
    assert_eq!(journal.state.sums.turns.get("agent failed"), Some(&1));
}

#[test]
fn failures_and_holds_stand_out() {
    let failed = Journal::new().turn(1, Outcome::TaskFailed { why: "it broke the folder".to_owned() });
    assert_eq!(failed.spans()[3]["status"], serde_json::json!({ "code": 2, "message": "it broke the folder" }));
    let ticket = Event::TicketOpened { key: "agent".to_owned(), text: "no login".to_owned() };
    let journal = Journal::new().at(1, ticket);
    assert_eq!((journal.batch.logs[0].severity, journal.state.sums.tickets), (LogSeverity::Warn, 1));
}
