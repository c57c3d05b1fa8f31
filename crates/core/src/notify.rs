//! Delivery of tickets: which notifier sends what, when and how often. Pure: open tickets, the
//! notifier's route, its outbox and the time go in; the new outbox comes out, with the next wake
//! and the reason for each ticket.
//!
//! An outbox is a document of the ledger. A message is written there before it is sent and removed
//! afterwards: a crash between the two sends it again under the same key. The transport is not
//! known here.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::LoopId;
use crate::jitter::{between, doubled};
use crate::reason::{Reason, RuleId};
use crate::time::{Time, human};

pub mod quiet_hours;
mod words;

pub use quiet_hours::QuietHours;
pub use words::{message_of, pressed, replied, sentence};

/// Format of a stored outbox.
pub const OUTBOX_FORMAT: u32 = 1;
/// The first repeat; each further one waits twice as long.
pub const REPEAT_FIRST: Duration = Duration::from_secs(15 * 60);
/// The longest wait between two repeats.
pub const REPEAT_CAP: Duration = Duration::from_secs(4 * 3600);
/// Default number of repeats: a day and a half. The ticket stays open without them.
pub const REPEATS: u32 = 12;
/// A cause that comes and goes is reported again only after this.
const FLAPPING: Duration = Duration::from_secs(15 * 60);
/// Number of messages that are sent one by one…
const BURST: usize = 5;
/// …within this time; beyond that everything due is sent together.
const BURST_WINDOW: Duration = Duration::from_secs(10 * 60);
/// Gap between two messages of a storm: below the minute within which a cause has to be reported.
const STORM_GAP: Duration = Duration::from_secs(50);
/// Number of remembered causes with closed tickets.
const CLOSED_KEPT: usize = 100;
/// First and longest wait after a delivery failed.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15 * 60));
/// First and longest wait after a refusal: a wrong token does not become right within seconds.
const REFUSED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// Upper bound of a wait that the other side requests.
const ASKED_CAP: Duration = Duration::from_secs(3600);
/// Number of refusals after which a message is given up, so that it does not block those behind it.
const REFUSALS: u32 = 3;

/// Importance of a ticket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information only.
    Info,
    /// A person should look; the rest goes on.
    #[default]
    Warning,
    /// Nothing goes on, or something is badly wrong.
    Critical,
}

impl Severity {
    /// All severities, least important first.
    pub const ALL: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Critical];

    /// The severity in one word.
    pub fn label(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// Severity of the ticket of this cause.
pub fn severity(key: &str) -> Severity {
    match key.split_once(':').map_or(key, |(kind, _)| kind) {
        "guard.freeze" | "turns.stuck" | "stalled" | "journal" => Severity::Critical,
        "session" => Severity::Info,
        _ => Severity::Warning,
    }
}

/// An open ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    pub id: u64,
    pub key: String,
    pub owner: Option<LoopId>,
    pub text: String,
    pub opened_at: Time,
    /// A person has acknowledged it.
    pub acked: bool,
}

/// Selection of tickets for a notifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Minimum severity of a ticket.
    pub min_severity: Severity,
    /// Further limits the severities; empty allows all.
    pub only: Vec<Severity>,
    /// Hours without messages, except critical ones.
    pub quiet_hours: Option<QuietHours>,
    /// Maximum number of repeats of a ticket.
    pub repeats: u32,
}

impl Default for Route {
    fn default() -> Self {
        Self { min_severity: Severity::Info, only: Vec::new(), quiet_hours: None, repeats: REPEATS }
    }
}

/// The time, in UTC and on local clocks.
#[derive(Clone, Copy, Debug)]
pub struct LocalTime {
    pub now: Time,
    /// Minutes that local time is ahead of UTC.
    pub local_minutes: i32,
}

/// A message for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Same for every attempt to send it, and for no other message.
    pub key: String,
    /// The highest severity of its tickets.
    pub severity: Severity,
    /// One line of text.
    pub title: String,
    pub text: String,
    /// Numbers of the tickets in it.
    pub tickets: Vec<u64>,
    /// Replies with one press, where a notifier has buttons.
    #[serde(default)]
    pub buttons: Vec<Button>,
    /// Number of refusals so far.
    #[serde(default)]
    pub refused: u32,
}

/// A button below a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    pub label: String,
    /// Data that a press sends back; read by [`pressed`].
    pub data: String,
}

/// A person's remote reply to a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyAction {
    Answer {
        ticket: u64,
        text: String,
    },
    /// The person has seen it.
    Ack {
        ticket: u64,
    },
}

/// Reports of a cause so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeCount {
    pub id: u64,
    pub times: u32,
    pub last: Time,
}

/// A notifier that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    pub since: Time,
    pub tries: u32,
    /// No attempt before this time.
    pub next: Time,
    /// Error of the latest attempt.
    pub why: String,
}

/// Reports of one notifier so far, and its pending messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    /// Format of this document.
    pub format: u32,
    /// Reports by cause.
    pub told: BTreeMap<String, NoticeCount>,
    /// Times of the latest messages.
    pub recent: Vec<Time>,
    /// Messages to be sent, oldest first. None is added to a non-empty queue: further tickets are
    /// combined when it is empty.
    pub pending: Vec<Notification>,
    /// Set while the notifier cannot be reached.
    pub failing: Option<Failing>,
    /// Position of the next reply to be read, for notifiers with replies.
    #[serde(default)]
    pub cursor: i64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            format: OUTBOX_FORMAT,
            told: BTreeMap::new(),
            recent: Vec::new(),
            pending: Vec::new(),
            failing: None,
            cursor: 0,
        }
    }
}

/// Decision about a notifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryPlan {
    /// The new outbox; equal to the old one when nothing is to be written.
    pub outbox: Outbox,
    /// Time of the next planning.
    pub wake_at: Option<Time>,
    /// For each open ticket (by number) why it is sent now, later or not at all.
    pub reasons: BTreeMap<u64, Reason>,
}

/// A failed delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// Error as text, without any secret.
    pub why: String,
    /// Wait that the other side requested.
    pub retry_after: Option<Duration>,
    /// It was received and refused, so that a repetition is of little use.
    pub refused: bool,
}

/// Plans the messages of a notifier.
pub fn plan(alerts: &[Alert], route: &Route, outbox: &Outbox, moment: LocalTime) -> DeliveryPlan {
    let mut plan = DeliveryPlan { outbox: outbox.clone(), wake_at: None, reasons: BTreeMap::new() };
    plan.outbox.forget(alerts, moment.now);
    if route.quiet_hours.is_some_and(|quiet| quiet.end(moment.now, moment.local_minutes).is_some()) {
        // What could not be sent in time waits for the morning and does not delay critical
        // messages.
        plan.outbox.pending.retain(|m| m.severity == Severity::Critical);
    }
    let queued = !plan.outbox.pending.is_empty();
    let mut due = Vec::new();
    for alert in alerts {
        let reason = match when(alert, route, &plan.outbox, moment) {
            Due::Never(reason) => reason,
            Due::At(_, _) if queued => plan.outbox.why_queued(),
            Due::At(at, reason) if at > moment.now => {
                plan.wake_at = Some(plan.wake_at.map_or(at, |w: Time| w.min(at)));
                reason.until(at)
            }
            Due::At(_, reason) => {
                due.push(alert);
                reason
            }
        };
        plan.reasons.insert(alert.id, reason);
    }
    if queued {
        // A message that is due is sent at once, and its result causes the next planning: a wake in
        // the past would be a busy loop.
        plan.wake_at = plan.outbox.failing.as_ref().map(|f| f.next).filter(|next| *next > moment.now);
    } else if !due.is_empty() {
        plan.send(&due, moment.now);
    }
    plan
}

enum Due {
    At(Time, Reason),
    Never(Reason),
}

/// When a ticket is to be sent next.
fn when(alert: &Alert, route: &Route, outbox: &Outbox, moment: LocalTime) -> Due {
    let weight = severity(&alert.key);
    if weight < route.min_severity || !route.only.is_empty() && !route.only.contains(&weight) {
        return Due::Never(Reason::new(RuleId::NotifyRoute).with("severity", weight.label()));
    }
    if alert.acked {
        return Due::Never(Reason::new(RuleId::NotifyAcked));
    }
    let told = outbox.told.get(&alert.key);
    let (at, reason) = match told {
        None => (alert.opened_at, Reason::new(RuleId::NotifyDue)),
        Some(told) if told.id != alert.id => (told.last + FLAPPING, Reason::new(RuleId::NotifyFlapping)),
        Some(told) if told.times > route.repeats => {
            return Due::Never(Reason::new(RuleId::NotifyTold).with("times", told.times));
        }
        Some(told) => {
            let gap = doubled(REPEAT_FIRST, told.times.saturating_sub(1), REPEAT_CAP);
            (told.last + gap, Reason::new(RuleId::NotifyRepeat).with("times", told.times))
        }
    };
    let held = route.quiet_hours.filter(|_| weight != Severity::Critical);
    match held.and_then(|quiet| quiet.end(at.max(moment.now), moment.local_minutes)) {
        Some(end) => Due::At(end, Reason::new(RuleId::NotifyQuiet)),
        None => Due::At(at, reason),
    }
}

impl DeliveryPlan {
    /// Queues the due tickets: one by one, or together when that would be too many.
    fn send(&mut self, due: &[&Alert], now: Time) {
        let room = BURST.saturating_sub(self.outbox.recent.len());
        let next = self.outbox.recent.last().map(|last| *last + STORM_GAP);
        if let (0, Some(at)) = (room, next.filter(|at| *at > now)) {
            self.wake_at = Some(self.wake_at.map_or(at, |w| w.min(at)));
            for alert in due {
                self.reasons.insert(alert.id, Reason::new(RuleId::NotifyStorm).until(at));
            }
            return;
        }
        let times = |alert: &Alert| match self.outbox.told.get(&alert.key) {
            Some(told) if told.id == alert.id => told.times,
            _ => 0,
        };
        let messages: Vec<Notification> = if due.len() <= room {
            due.iter().map(|alert| message_of(&[(alert, times(alert))])).collect()
        } else {
            vec![message_of(&due.iter().map(|alert| (*alert, times(alert))).collect::<Vec<_>>())]
        };
        self.outbox.pending = messages;
    }
}

impl Outbox {
    /// Drops closed causes and messages that are obsolete.
    fn forget(&mut self, alerts: &[Alert], now: Time) {
        let open: BTreeMap<&str, &Alert> = alerts.iter().map(|a| (a.key.as_str(), a)).collect();
        let waits: BTreeSet<u64> = alerts.iter().filter(|a| !a.acked).map(|a| a.id).collect();
        self.pending.retain(|m| m.tickets.iter().any(|id| waits.contains(id)));
        self.told.retain(|key, told| open.contains_key(key.as_str()) || told.last + FLAPPING > now);
        let mut closed: Vec<(Time, String)> = self
            .told
            .iter()
            .filter(|(key, _)| !open.contains_key(key.as_str()))
            .map(|(key, told)| (told.last, key.clone()))
            .collect();
        closed.sort();
        for (_, key) in closed.iter().rev().skip(CLOSED_KEPT) {
            self.told.remove(key);
        }
        self.recent.retain(|at| *at + BURST_WINDOW > now && *at <= now);
        if self.pending.is_empty() {
            // No message is pending; the next one will show whether the notifier works.
            self.failing = self.failing.take().filter(|f| f.next > now);
        }
    }

    fn why_queued(&self) -> Reason {
        match &self.failing {
            Some(failing) => Reason::new(RuleId::NotifyDown).with("why", &failing.why).until(failing.next),
            None => Reason::new(RuleId::NotifyQueued),
        }
    }

    /// The message that may be sent now.
    pub fn ready(&self, now: Time) -> Option<&Notification> {
        let rests = self.failing.as_ref().is_some_and(|f| f.next > now);
        self.pending.first().filter(|_| !rests)
    }

    /// Records a successful delivery.
    pub fn delivered(&mut self, message: &Notification, alerts: &[Alert], now: Time) {
        self.pending.retain(|m| m.key != message.key);
        self.failing = None;
        self.recent.push(now);
        self.count(message, alerts, now);
    }

    /// Records a failed delivery; `seed` spreads the retries.
    pub fn undelivered(&mut self, key: &str, alerts: &[Alert], (how, now, seed): (&Undelivered, Time, u64)) {
        let before = self.failing.take();
        let tries = before.as_ref().map_or(0, |f| f.tries) + 1;
        let (first, cap) = if how.refused { REFUSED } else { RETRY };
        let wait = match how.retry_after {
            Some(asked) => asked.min(ASKED_CAP),
            // Anywhere up to the doubled wait, so that many clients of one server do not come back
            // at once.
            None => between(first / 5, doubled(first, tries - 1, cap), seed),
        };
        let since = before.map_or(now, |f| f.since);
        self.failing = Some(Failing { since, tries, next: now + wait, why: how.why.clone() });
        let Some(at) = self.pending.iter().position(|m| m.key == key) else { return };
        self.pending[at].refused += u32::from(how.refused);
        if self.pending[at].refused >= REFUSALS {
            let message = self.pending.remove(at);
            self.count(&message, alerts, now);
        }
    }

    fn count(&mut self, message: &Notification, alerts: &[Alert], now: Time) {
        for alert in alerts.iter().filter(|a| message.tickets.contains(&a.id)) {
            let told = self.told.entry(alert.key.clone()).or_insert(NoticeCount { id: alert.id, times: 0, last: now });
            let times = if told.id == alert.id { told.times } else { 0 };
            *told = NoticeCount { id: alert.id, times: times + 1, last: now };
        }
    }

    /// One line about a notifier that cannot be reached.
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

#[cfg(test)]
mod tests;
