//! Deliveries to people and programs. Pure. Owns what waits for a channel, in which order it is
//! sent, when a failed attempt is repeated and when it is given up: one rule for all channels.
//!
//! - [`tickets`]: which tickets a notifier delivers, when and how often
//! - [`reports`]: what a tracker and a mailbox are still to get
//!
//! A [`Record`] is a document of the ledger: what a channel was sent so far. A message about
//! tickets is written there before it is sent and removed afterwards, because the next plan depends
//! on it; reports are derived again, so one that waited carries the present state. Either way a
//! crash between sending and recording sends the same again, under the same key. The transport is
//! not known here.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jitter::{between, doubled};
use crate::time::{Time, human};

pub mod reports;
pub mod tickets;

use reports::{Mailed, Reported, TrackerState};
use tickets::{Alert, Outbox, Severity};

/// Format of all records. A newer one is refused, never guessed at.
pub const FORMAT: u32 = 1;
/// First and longest wait after a delivery failed.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15 * 60));
/// First and longest wait after a refusal: a wrong token does not become right within seconds.
const REFUSED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// Upper bound of a wait that the other side requests.
const ASKED_CAP: Duration = Duration::from_secs(3600);
/// Refusals after which a message about tickets is given up, so that it does not block those behind
/// it. Its tickets are repeated anyway.
const REFUSALS: u32 = 3;

/// Something to be sent through a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Same for every attempt to send it, and for nothing else.
    pub key: String,
    /// The highest severity of its tickets.
    pub severity: Severity,
    /// One line of text.
    pub title: String,
    pub text: String,
    /// Numbers of the tickets in it.
    pub tickets: Vec<u64>,
    /// Replies with one press, where a channel has buttons.
    #[serde(default)]
    pub buttons: Vec<Button>,
    /// Number of refusals so far.
    #[serde(default)]
    pub refused: u32,
    /// Set for a report to a tracker or mailbox; never stored, since reports are derived again.
    #[serde(skip)]
    pub report: Option<Report>,
}

/// A button below a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    pub label: String,
    /// Data that a press sends back; read by [`tickets::pressed`].
    pub data: String,
}

/// A report in the form for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Arguments appended to those of a command.
    pub words: Vec<String>,
    pub json: Value,
    /// Recorded once it was received or rejected.
    pub then: Reported,
}

/// A failed delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// Error as text, without any secret.
    pub why: String,
    /// Wait that the other side requested.
    pub retry_after: Option<Duration>,
    /// Set when the other side was reached and refused.
    pub refused: Option<Refusal>,
}

/// Why a delivery was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Address, token or permission: everything would be refused.
    Access,
    /// The content; another delivery may be accepted.
    Content,
}

impl Undelivered {
    /// The other side cannot be reached for now.
    pub fn away(why: impl Into<String>) -> Self {
        Self { why: why.into(), retry_after: None, refused: None }
    }

    /// The other side refused.
    pub fn refused(why: impl Into<String>, refusal: Refusal) -> Self {
        Self { why: why.into(), retry_after: None, refused: Some(refusal) }
    }

    /// Wait before the next attempt, after this many failed ones in a row; `seed` spreads the
    /// attempts of many clients of one server.
    pub fn wait(&self, tries: u32, seed: u64) -> Duration {
        let (first, cap) = if self.refused.is_some() { REFUSED } else { RETRY };
        match self.retry_after {
            Some(asked) => asked.min(ASKED_CAP),
            None => between(first / 5, doubled(first, tries.saturating_sub(1), cap), seed),
        }
    }
}

/// A channel that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    pub since: Time,
    pub tries: u32,
    /// No attempt before this time.
    pub next: Time,
    /// Error of the latest attempt.
    pub why: String,
}

/// What waits for a channel, in the order in which it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub pending: Vec<Delivery>,
    /// Set while the channel cannot be reached.
    pub failing: Option<Failing>,
}

impl Queue {
    /// Whether no attempt may be made yet.
    pub fn rests(&self, now: Time) -> bool {
        self.failing.as_ref().is_some_and(|f| f.next > now)
    }

    /// Time of the next attempt, while the channel rests.
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        self.failing.as_ref().map(|f| f.next).filter(|next| *next > now)
    }

    /// What may be sent now, one after the other: a message about tickets alone, because it is
    /// recorded before the next one; reports together.
    pub fn ready(&self, now: Time) -> &[Delivery] {
        let together = match self.pending.first() {
            _ if self.rests(now) => 0,
            Some(Delivery { report: None, .. }) => 1,
            Some(_) | None => self.pending.len(),
        };
        &self.pending[..together]
    }

    /// Without anything pending, the next delivery will show whether the channel works.
    fn forget_failures(&mut self, now: Time) {
        if self.pending.is_empty() && !self.rests(now) {
            self.failing = None;
        }
    }

    /// Replaces what waits by what is due now.
    pub fn fill(&mut self, pending: Vec<Delivery>, now: Time) {
        self.pending = pending;
        self.forget_failures(now);
    }

    /// Records the end of an attempt. Returns whether the delivery is over: it arrived, or it is
    /// given up.
    fn settle(&mut self, sent: &Delivery, result: &Result<(), Undelivered>, (now, seed): (Time, u64)) -> bool {
        let failed = result.as_ref().err();
        let over = match (failed, self.pending.iter_mut().find(|d| d.key == sent.key)) {
            (None, _) => true,
            (Some(_), None) => false,
            // A report is sent once and in order, so it waits for access as long as that takes.
            (Some(how), Some(Delivery { report: Some(_), .. })) => how.refused == Some(Refusal::Content),
            (Some(how), Some(message)) => {
                message.refused += u32::from(how.refused.is_some());
                message.refused >= REFUSALS
            }
        };
        if over {
            self.pending.retain(|d| d.key != sent.key);
        }
        match failed {
            Some(how) if !over || sent.report.is_none() => self.rest(how, (now, seed)),
            // It arrived, or the channel of a rejected report works and may accept the next one.
            Some(_) | None => self.failing = None,
        }
        over
    }

    /// Makes the channel rest after a failure.
    pub fn rest(&mut self, how: &Undelivered, (now, seed): (Time, u64)) {
        let (since, tries) = self.failing.take().map_or((now, 1), |before| (before.since, before.tries + 1));
        self.failing = Some(Failing { since, tries, next: now + how.wait(tries, seed), why: how.why.clone() });
    }

    /// One line about a channel that cannot be reached.
    pub fn trouble(&self, now: Time) -> Option<String> {
        let failing = self.failing.as_ref()?;
        let waits = match self.pending.len() {
            0 => String::new(),
            1 => ", 1 message waits".to_owned(),
            n => format!(", {n} messages wait"),
        };
        let since = human(now.since(failing.since));
        Some(format!("cannot be reached for {since} ({} attempts{waits}): {}", failing.tries, failing.why))
    }
}

/// What a channel was sent so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Record {
    Tickets(Outbox),
    Tasks(TrackerState),
    Status(Mailed),
}

impl Record {
    /// What waits for the channel.
    pub fn queue(&mut self) -> &mut Queue {
        match self {
            Record::Tickets(Outbox { queue, .. })
            | Record::Tasks(TrackerState { queue, .. })
            | Record::Status(Mailed { queue, .. }) => queue,
        }
    }

    /// Records the end of an attempt; `seed` spreads the next ones. Returns whether the document
    /// changes.
    pub fn settle(
        &mut self,
        sent: &Delivery,
        result: &Result<(), Undelivered>,
        (alerts, now, seed): (&[Alert], Time, u64),
    ) -> bool {
        let over = self.queue().settle(sent, result, (now, seed));
        match (self, sent.report.as_ref().map(|report| &report.then)) {
            (record, _) if !over => return matches!(record, Record::Tickets(_)),
            (Record::Tickets(outbox), _) => outbox.count(sent, alerts, (result.is_ok(), now)),
            (Record::Tasks(told), Some(Reported::Task(task, known))) => told.take(task.clone(), known.clone()),
            (Record::Status(told), Some(Reported::Status { turns, over })) => {
                (told.turns, told.over) = (*turns, *over);
            }
            (Record::Tasks(_) | Record::Status(_), _) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Fence, TaskId};
    use reports::TrackedTask;

    const NOW: Time = Time(1_000_000);

    fn report(task: &str) -> Delivery {
        let known = TrackedTask { state: "done".to_owned(), fence: Fence(1), created_at: Time(1) };
        let then = Reported::Task(TaskId::new(task), known);
        let report = Report { words: Vec::new(), json: Value::Null, then };
        Delivery { key: format!("{task}:complete:1"), report: Some(report), ..Delivery::default() }
    }

    #[test]
    fn waits_grow_within_bounds() {
        for (how, first, cap) in [
            (Undelivered::away("down"), 5, 15 * 60),
            (Undelivered::refused("401", Refusal::Access), 60, 3600),
            (Undelivered::refused("400", Refusal::Content), 60, 3600),
        ] {
            let longest = |tries| (0..500).map(|seed| how.wait(tries, seed).as_secs()).max().expect("some");
            for (tries, most) in [(1, first), (2, first * 2), (3, first * 4), (99, cap)] {
                assert!((most * 9 / 10..=most).contains(&longest(tries)), "{how:?} {tries}: {}", longest(tries));
                assert!((0..500).all(|seed| how.wait(tries, seed).as_secs() >= first / 5), "{how:?} {tries}");
            }
            let asked = |s| Undelivered { retry_after: Some(Duration::from_secs(s)), ..how.clone() }.wait(1, 1);
            assert_eq!((asked(7).as_secs(), asked(99_999).as_secs()), (7, 3600), "{how:?}");
        }
    }

    #[test]
    fn a_report_waits_for_access_and_is_skipped_when_it_is_at_fault() {
        let mut record = Record::Tasks(TrackerState::begin(&[]));
        record.queue().fill(vec![report("a"), report("b")], NOW);
        assert_eq!(record.queue().ready(NOW).len(), 2, "reports go together");
        let (a, b) = (report("a"), report("b"));
        let denied = Err(Undelivered::refused("401", Refusal::Access));
        for _ in 0..REFUSALS * 2 {
            assert!(!record.settle(&a, &denied, (&[], NOW, 7)), "nothing is recorded");
        }
        assert_eq!((record.queue().pending.len(), record.queue().ready(NOW).len()), (2, 0), "it rests");
        let wake = record.queue().wake_at(NOW).expect("it rests until then");
        assert_eq!(record.queue().ready(wake).len(), 2);
        assert!(record.settle(&a, &Err(Undelivered::refused("422", Refusal::Content)), (&[], NOW, 7)));
        assert_eq!(record.queue().ready(NOW), std::slice::from_ref(&b), "the next one follows at once");
        assert!(record.settle(&b, &Ok(()), (&[], NOW, 7)));
        let Record::Tasks(told) = &record else { panic!("it stays what it is") };
        assert_eq!(told.tasks.keys().map(TaskId::as_str).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_channel_with_nothing_to_send_is_not_failing_for_ever() {
        let mut queue = Queue::default();
        queue.fill(vec![report("a")], NOW);
        assert!(!queue.settle(&report("a"), &Err(Undelivered::away("down")), (NOW, 7)));
        queue.fill(Vec::new(), NOW);
        let wake = queue.wake_at(NOW).expect("it was just tried");
        queue.fill(Vec::new(), wake);
        assert_eq!(queue, Queue::default());
    }

    /// Written by the version before records shared a queue.
    #[test]
    fn documents_of_before_are_read_and_written_as_they_were() {
        let outbox = r#"{"format":1,"told":{"question:k:1":{"id":1,"times":2,"last":5}},"recent":[5],"pending":[{"key":"1-1-3","severity":"warning","title":"t","text":"x","tickets":[1],"buttons":[{"label":"Seen","data":"ack:1"}],"refused":1}],"failing":{"since":5,"tries":2,"next":9,"why":"down"},"cursor":42}"#;
        let read: Outbox = serde_json::from_str(outbox).expect("it is readable");
        assert_eq!((read.cursor, read.queue.pending[0].refused, read.queue.rests(Time(8))), (42, 1, true));
        let tracker = r#"{"told_version":1,"since":3,"tasks":{"t":{"state":"leased","fence":2,"created_at":3}}}"#;
        let tracker_read: TrackerState = serde_json::from_str(tracker).expect("it is readable");
        let mailed = r#"{"told_version":1,"turns":4,"over":true}"#;
        let mailed_read: Mailed = serde_json::from_str(mailed).expect("it is readable");
        let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        for (record, before) in [
            (Record::Tickets(read), outbox),
            (Record::Tasks(tracker_read), tracker),
            (Record::Status(mailed_read), mailed),
        ] {
            assert_eq!(serde_json::to_value(&record).expect("plain data"), value(before));
        }
    }
}
