//! Who is told of a ticket, when and how often. Pure: open tickets, what a notifier is for, what it was told and the time
//! go in; the notifier's outbox comes out, with when to look again and why each ticket stands where it does.
//!
//! An outbox is a document of the ledger. A message is written there before it is sent and taken out when it was: a crash
//! between the two sends it again under the same key. How a message travels is not known here.

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
/// Repeats when nobody says how many: a day and a half. The ticket stays open without them.
pub const REPEATS: u32 = 12;
/// A cause that comes and goes is told again only after this.
const FLAPPING: Duration = Duration::from_secs(15 * 60);
/// So many messages may go one by one…
const BURST: usize = 5;
/// …within this; then what is due goes together.
const BURST_WINDOW: Duration = Duration::from_secs(10 * 60);
/// Between two messages of a storm: below the minute within which a cause has to be told.
const STORM_GAP: Duration = Duration::from_secs(50);
/// Causes that are remembered although their tickets are closed.
const CLOSED_KEPT: usize = 100;
/// First and longest wait after a delivery failed.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15 * 60));
/// The same for a notifier that was refused: a wrong token does not become right within seconds.
const REFUSED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// Nobody may make us wait longer.
const ASKED_CAP: Duration = Duration::from_secs(3600);
/// A message that was refused this often is given up, so that it does not keep back those behind it.
const REFUSALS: u32 = 3;

/// How much a ticket matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Somebody should look; the rest goes on.
    #[default]
    Warning,
    /// Nothing goes on, or something is badly wrong.
    Critical,
}

impl Severity {
    /// All of them, from least to most.
    pub const ALL: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Critical];

    /// One word.
    pub fn label(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// How much the ticket of this cause matters.
pub fn severity(key: &str) -> Severity {
    match key.split_once(':').map_or(key, |(kind, _)| kind) {
        "guard.freeze" | "turns.stuck" | "stalled" => Severity::Critical,
        "session" => Severity::Info,
        _ => Severity::Warning,
    }
}

/// An open ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its number.
    pub id: u64,
    /// Its cause.
    pub key: String,
    /// Which loop, if any.
    pub owner: Option<LoopId>,
    /// What it says.
    pub text: String,
    /// Since when.
    pub opened_at: Time,
    /// A person has seen it.
    pub acked: bool,
}

/// What a notifier is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Only tickets that matter at least so much.
    pub min_severity: Severity,
    /// And of these only such; empty: all.
    pub only: Vec<Severity>,
    /// When it must not disturb, except for what is critical.
    pub quiet_hours: Option<QuietHours>,
    /// How often a ticket is repeated at most.
    pub repeats: u32,
}

impl Default for Route {
    fn default() -> Self {
        Self { min_severity: Severity::Info, only: Vec::new(), quiet_hours: None, repeats: REPEATS }
    }
}

/// The time, and what people's clocks make of it.
#[derive(Clone, Copy, Debug)]
pub struct LocalTime {
    /// The time.
    pub now: Time,
    /// Minutes that local time is ahead of UTC.
    pub local_minutes: i32,
}

/// A message for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// The same for every attempt to send it, and for no other message.
    pub key: String,
    /// How much it matters: the most of its tickets.
    pub severity: Severity,
    /// One line.
    pub title: String,
    /// What it says.
    pub text: String,
    /// The tickets that it tells of.
    pub tickets: Vec<u64>,
    /// What can be done about it with one press, where a notifier has buttons.
    #[serde(default)]
    pub buttons: Vec<Button>,
    /// How often it was refused.
    #[serde(default)]
    pub refused: u32,
}

/// A button beneath a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    /// What it says.
    pub label: String,
    /// What it sends back; read by [`pressed`].
    pub data: String,
}

/// What a person did about a ticket, from afar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyAction {
    /// Answered it.
    Answer {
        /// Which.
        ticket: u64,
        /// In these words.
        text: String,
    },
    /// Has seen it.
    Ack {
        /// Which.
        ticket: u64,
    },
}

/// How often somebody was told of a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeCount {
    /// The ticket.
    pub id: u64,
    /// How often.
    pub times: u32,
    /// When last.
    pub last: Time,
}

/// A notifier that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    /// Since when.
    pub since: Time,
    /// Attempts in a row.
    pub tries: u32,
    /// Not tried again before.
    pub next: Time,
    /// What it said.
    pub why: String,
}

/// What one notifier was told and what it still has to hear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    /// Format of this document.
    pub format: u32,
    /// By cause.
    pub told: BTreeMap<String, NoticeCount>,
    /// When messages went lately.
    pub recent: Vec<Time>,
    /// What waits to be sent, oldest first. Nothing joins them: what else is due is put together when they are gone.
    pub pending: Vec<Notification>,
    /// It cannot be reached.
    pub failing: Option<Failing>,
    /// The next answer to be read, for those who answer.
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

/// What is to happen with a notifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryPlan {
    /// The outbox as it should be; the same as before when nothing is to be written.
    pub outbox: Outbox,
    /// When to look again by itself.
    pub wake_at: Option<Time>,
    /// For each open ticket (by number) why it is told now, later or not at all.
    pub reasons: BTreeMap<u64, Reason>,
}

/// How a delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// In words, without any secret.
    pub why: String,
    /// How long the other side wants to be left alone.
    pub retry_after: Option<Duration>,
    /// It was heard and refused, so that the same again is of little use.
    pub refused: bool,
}

/// What a notifier has to hear now.
pub fn plan(alerts: &[Alert], route: &Route, outbox: &Outbox, moment: LocalTime) -> DeliveryPlan {
    let mut plan = DeliveryPlan { outbox: outbox.clone(), wake_at: None, reasons: BTreeMap::new() };
    plan.outbox.forget(alerts, moment.now);
    if route.quiet_hours.is_some_and(|quiet| quiet.end(moment.now, moment.local_minutes).is_some()) {
        // What could not be sent in time waits for the morning, and keeps back nothing that cannot.
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
        // Once its time has come it is sent, and whoever sends it comes back by himself: a wake in the past would be a busy loop.
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

/// When a ticket is to be told next.
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
    /// Queues what is due: one by one, or together when that would be too many.
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
    /// Lets go of what is over.
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
            // Nobody waits for it any more; whether it works is found out with the next message.
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

    /// A message arrived.
    pub fn delivered(&mut self, message: &Notification, alerts: &[Alert], now: Time) {
        self.pending.retain(|m| m.key != message.key);
        self.failing = None;
        self.recent.push(now);
        self.count(message, alerts, now);
    }

    /// A message did not arrive; `seed` spreads those who try again.
    pub fn undelivered(&mut self, key: &str, alerts: &[Alert], (how, now, seed): (&Undelivered, Time, u64)) {
        let before = self.failing.take();
        let tries = before.as_ref().map_or(0, |f| f.tries) + 1;
        let (first, cap) = if how.refused { REFUSED } else { RETRY };
        let wait = match how.retry_after {
            Some(asked) => asked.min(ASKED_CAP),
            // Anywhere up to the doubled wait, so that many who lost the same server do not come back at once.
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
