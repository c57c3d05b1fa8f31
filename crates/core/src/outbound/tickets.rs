//! Delivery of tickets: which notifier sends what, when and how often. Pure: open tickets, the
//! notifier's route, its outbox and the time go in; the new outbox comes out, with the next wake
//! and the reason for each ticket.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Delivery, FORMAT, Queue};
use crate::ids::LoopId;
use crate::jitter::doubled;
use crate::reason::{Reason, RuleId};
use crate::time::Time;

pub mod quiet_hours;
mod words;

pub use quiet_hours::QuietHours;
pub use words::{message_of, pressed, replied, sentence};

/// Kind of the documents that hold outboxes.
pub const NOTIFY: &str = "notify";
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

/// Reports of one notifier so far, and its pending messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    /// Format of this document.
    pub format: u32,
    /// Reports by cause.
    pub told: BTreeMap<String, NoticeCount>,
    /// Times of the latest messages.
    pub recent: Vec<Time>,
    /// Messages to be sent. None is added to a non-empty queue: further tickets are combined when
    /// it is empty.
    #[serde(flatten)]
    pub queue: Queue,
    /// Position of the next reply to be read, for notifiers with replies.
    #[serde(default)]
    pub cursor: i64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { format: FORMAT, told: BTreeMap::new(), recent: Vec::new(), queue: Queue::default(), cursor: 0 }
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

/// Plans the messages of a notifier.
pub fn plan(alerts: &[Alert], route: &Route, outbox: &Outbox, moment: LocalTime) -> DeliveryPlan {
    let mut plan = DeliveryPlan { outbox: outbox.clone(), wake_at: None, reasons: BTreeMap::new() };
    plan.outbox.forget(alerts, moment.now);
    if route.quiet_hours.is_some_and(|quiet| quiet.end(moment.now, moment.local_minutes).is_some()) {
        // What could not be sent in time waits for the morning and does not delay critical
        // messages.
        plan.outbox.queue.pending.retain(|m| m.severity == Severity::Critical);
    }
    let queued = !plan.outbox.queue.pending.is_empty();
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
        plan.wake_at = plan.outbox.queue.wake_at(moment.now);
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
        let messages: Vec<Delivery> = if due.len() <= room {
            due.iter().map(|alert| message_of(&[(alert, times(alert))])).collect()
        } else {
            vec![message_of(&due.iter().map(|alert| (*alert, times(alert))).collect::<Vec<_>>())]
        };
        self.outbox.queue.pending = messages;
    }
}

impl Outbox {
    /// Drops closed causes and messages that are obsolete.
    fn forget(&mut self, alerts: &[Alert], now: Time) {
        let open: BTreeMap<&str, &Alert> = alerts.iter().map(|a| (a.key.as_str(), a)).collect();
        let waits: BTreeSet<u64> = alerts.iter().filter(|a| !a.acked).map(|a| a.id).collect();
        self.queue.pending.retain(|m| m.tickets.iter().any(|id| waits.contains(id)));
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
        self.queue.forget_failures(now);
    }

    fn why_queued(&self) -> Reason {
        match &self.queue.failing {
            Some(failing) => Reason::new(RuleId::NotifyDown).with("why", &failing.why).until(failing.next),
            None => Reason::new(RuleId::NotifyQueued),
        }
    }

    /// Counts a message that arrived or was given up.
    pub(super) fn count(&mut self, message: &Delivery, alerts: &[Alert], (arrived, now): (bool, Time)) {
        self.recent.extend(arrived.then_some(now));
        for alert in alerts.iter().filter(|a| message.tickets.contains(&a.id)) {
            let told = self.told.entry(alert.key.clone()).or_insert(NoticeCount { id: alert.id, times: 0, last: now });
            let times = if told.id == alert.id { told.times } else { 0 };
            *told = NoticeCount { id: alert.id, times: times + 1, last: now };
        }
    }
}

#[cfg(test)]
mod tests;
