//! Monitors: what a loop watches, which monitors are due, and what is remembered of each.
//!
//! A beat is a probe of the monitors that are due. It is an action run of the shell: a beat without
//! news starts no turn and writes nothing. The ledger shows that a loop watches by its keepalive, a
//! task of which exactly one is open while there are monitors (see `decide/watch.rs`).

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::Input;
use crate::ids::{LoopId, TaskId};
use crate::isolation::CommandAccess;
use crate::op::{NewTask, Op, Trust};
use crate::reason::RuleId;
use crate::state::{LoopState, Phase};
use crate::time::{Time, millis};

/// Kind of the task that keeps a watching loop alive.
pub const KEEPALIVE: &str = "keepalive";
/// Kind of the tasks that monitors create.
pub const SIGNAL: &str = "signal";

/// The rule of a loop that has nothing to do and watches.
pub const WATCHING: RuleId = RuleId::Watching;
/// The rule of one that has watched in vain for long.
pub const PARKED: RuleId = RuleId::Parked;

/// Minimum interval of a monitor; a probe costs a process or a request.
pub const LEAST_EVERY: Duration = Duration::from_secs(1);
/// Default interval: every minute is soon enough for what people and builds do.
pub const EVERY: Duration = Duration::from_secs(60);
/// Default timeout of a probe.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum timeout of a probe: it delays the loop's other monitors.
pub const MOST_TIMEOUT: Duration = Duration::from_secs(600);
/// Beats without news after which a loop that has nothing to do is parked.
pub const PARK_AFTER: u32 = 30;
/// Factor by which a parked loop probes more rarely…
const PARKED_STRETCH: u32 = 10;
/// …but at least this often, unless the configured interval is longer.
const PARKED_EVERY: Duration = Duration::from_secs(3600);
/// Maximum number of monitors of one loop.
pub const MOST_MONITORS: usize = 20;
/// Maximum length of a change in a prompt.
pub const CHANGE_MAX_CHARS: usize = 8_000;
/// Maximum length of a change in the journal.
pub const SUMMARY_MAX_CHARS: usize = 200;
/// Failed probes in a row before a ticket is opened.
pub const BLIND: u32 = 3;

/// What a loop watches besides its checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchSpec {
    /// In the configured order.
    pub monitors: Vec<MonitorSpec>,
    /// Beats without news after which it is parked; 0 for never.
    pub park_after: u32,
}

impl Default for WatchSpec {
    fn default() -> Self {
        Self { monitors: Vec::new(), park_after: PARK_AFTER }
    }
}

impl WatchSpec {
    /// Whether there is nothing to watch.
    pub fn is_empty(&self) -> bool {
        self.monitors.is_empty()
    }

    /// Whether nothing differs from the defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// A monitor by its name.
    pub fn get(&self, name: &str) -> Option<&MonitorSpec> {
        self.monitors.iter().find(|monitor| monitor.name == name)
    }
}

/// One monitored source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorSpec {
    /// Unique within the loop.
    pub name: String,
    pub target: Target,
    /// Interval of the probes.
    #[serde(with = "millis")]
    pub every: Duration,
    /// Time limit of a probe.
    #[serde(with = "millis")]
    pub timeout: Duration,
    /// Title of the task that a change creates; empty for one that names the monitor.
    pub title: String,
    /// Instruction for the turn about a change; may be empty.
    pub prompt: String,
    /// What its command may reach besides.
    #[serde(default, skip_serializing_if = "CommandAccess::is_default")]
    pub access: CommandAccess,
}

impl MonitorSpec {
    /// Title of a task about a change.
    pub fn title(&self) -> String {
        if self.title.is_empty() {
            format!("handle the change that monitor `{}` saw", self.name)
        } else {
            self.title.clone()
        }
    }
}

/// Source of a monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "of", rename_all = "snake_case")]
pub enum Target {
    /// Files that match a glob: one appeared, changed or went.
    File(String),
    /// A shell command: its exit code or its output changed.
    Command(String),
    /// A file to which lines are added: there are new ones.
    Stream(String),
    /// A mailbox with new messages.
    Mailbox(String),
    /// An address: its status, etag or body changed.
    Http(String),
}

impl Target {
    /// The kind in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::File(_) => "file",
            Target::Command(_) => "command",
            Target::Stream(_) => "stream",
            Target::Mailbox(_) => "mailbox",
            Target::Http(_) => "http",
        }
    }

    /// The pattern, command, path or address.
    pub fn of(&self) -> &str {
        match self {
            Target::File(of) | Target::Command(of) | Target::Stream(of) | Target::Mailbox(of) | Target::Http(of) => of,
        }
    }
}

/// Memory of a loop's monitors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchState {
    /// Number of the current keepalive; 0 before the first.
    pub keepalive: u32,
    /// Changes seen so far.
    pub signals: u32,
    /// Last known state, by monitor.
    pub seen: BTreeMap<String, MonitorCursor>,
}

impl WatchState {
    /// Whether nothing was ever watched.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Drops the memory of monitors with another source.
    pub(crate) fn change_spec(&mut self, old: &WatchSpec, new: &WatchSpec) {
        let target = |spec: &WatchSpec, name: &str| spec.get(name).map(|m| m.target.clone());
        self.seen.retain(|name, _| target(new, name).is_some() && target(old, name) == target(new, name));
    }
}

/// Last known state of a monitored source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorCursor {
    /// The monitor's own short form: a position, a hash.
    pub cursor: String,
    /// When it was first seen in this state.
    pub at: Time,
    /// The latest task that a change created.
    pub task: Option<TaskId>,
}

/// Result of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchReading {
    pub monitor: String,
    /// The cursor that it was compared with; `None` for the first probe.
    pub from: Option<String>,
    pub found: Result<WatchedContent, Blind>,
}

/// State of the source at a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedContent {
    /// The new cursor.
    pub cursor: String,
    /// The difference in one line; data.
    pub summary: String,
    /// The difference at length; data.
    pub text: String,
}

/// A failed probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blind {
    pub why: String,
    /// Failures in a row.
    pub times: u32,
}

impl WatchReading {
    /// Whether the probe found a change.
    pub fn is_news(&self) -> bool {
        self.found.as_ref().is_ok_and(|found| self.from.as_ref() != Some(&found.cursor))
    }
}

/// The probes of one loop's monitors, in a supervisor's memory.
#[derive(Clone, Debug, Default)]
pub struct MonitorRounds {
    /// When each was last probed.
    looked: BTreeMap<String, Time>,
    /// Failed probes in a row, by monitor.
    blind: BTreeMap<String, u32>,
    /// Beats in a row without a change.
    empty: u32,
    /// A probe is under way.
    under_way: bool,
}

impl MonitorRounds {
    /// When the next beat is due; not while one is under way.
    pub fn next(&self, state: &LoopState, now: Time) -> Option<Time> {
        next(state, &self.looked, now).filter(|_| !self.under_way)
    }

    /// Begins a beat: the monitors that are due.
    pub fn begin<'a>(&mut self, state: &'a LoopState, now: Time) -> Vec<&'a MonitorSpec> {
        let due = due(state, &self.looked, now);
        self.looked.extend(due.iter().map(|m| (m.name.clone(), now)));
        due
    }

    /// The beat waits for probes.
    pub fn wait(&mut self) {
        self.under_way = true;
    }

    /// Makes all monitors due soon.
    pub fn look_soon(&mut self) {
        self.looked.clear();
        self.empty = 0;
    }

    /// Ends a beat: its input for the loop, if a monitor was probed.
    pub fn end(&mut self, mut looks: Vec<WatchReading>) -> Option<Input> {
        self.under_way = false;
        if looks.is_empty() {
            return None;
        }
        for look in &mut looks {
            let times = self.blind.entry(look.monitor.clone()).or_default();
            match &mut look.found {
                Ok(_) => *times = 0,
                Err(blind) => {
                    *times += 1;
                    blind.times = *times;
                }
            }
        }
        self.empty = if looks.iter().any(WatchReading::is_news) { 0 } else { self.empty.saturating_add(1) };
        Some(Input::Beat { looks, empty: self.empty })
    }
}

/// The id of a loop's keepalive.
pub fn keepalive_id(owner: &LoopId, number: u32) -> TaskId {
    TaskId::new(format!("{owner}-keepalive-{number}"))
}

/// The current keepalive, if there ever was one.
pub fn keepalive_of(state: &LoopState) -> Option<TaskId> {
    (state.watch.keepalive > 0).then(|| keepalive_id(&state.id, state.watch.keepalive))
}

/// Puts the keepalive of this number on the board. It is never claimed there: it is never due.
pub fn keepalive(state: &LoopState, number: u32) -> Op {
    let names: Vec<&str> = state.spec.watch.monitors.iter().map(|m| m.name.as_str()).collect();
    Op::Enqueue(NewTask {
        id: keepalive_id(&state.id, number),
        owner: Some(state.id.clone()),
        kind: KEEPALIVE.to_owned(),
        title: format!("watch {}", names.join(", ")),
        prompt: String::new(),
        priority: 0,
        deps: Vec::new(),
        author: "everloop".to_owned(),
        trust: Trust::Operator,
        ready_at: NEVER,
    })
}

/// Later than anything: the year 9999, which every ledger can hold.
pub const NEVER: Time = Time(253_402_300_799_000);

/// Operation for the transaction that creates a loop: a loop with monitors always has a keepalive.
pub fn at_birth(state: &LoopState) -> Option<Op> {
    (state.watch.keepalive > 0).then(|| keepalive(state, state.watch.keepalive))
}

/// Whether the loop probes its monitors.
fn is_watching(state: &LoopState) -> bool {
    let over = matches!(state.phase, Phase::Ended { .. });
    !state.spec.watch.is_empty() && !over && state.people.paused.is_none()
}

/// Present interval of a monitor.
fn every(state: &LoopState, monitor: &MonitorSpec) -> Duration {
    let every = monitor.every.max(LEAST_EVERY);
    if is_parked(state) { (every * PARKED_STRETCH).min(PARKED_EVERY).max(every) } else { every }
}

/// Whether the loop has watched in vain for long.
pub fn is_parked(state: &LoopState) -> bool {
    matches!(&state.phase, Phase::Waiting { reason, .. } if reason.rule == PARKED)
}

/// The monitors that are due.
pub fn due<'a>(state: &'a LoopState, looked: &BTreeMap<String, Time>, now: Time) -> Vec<&'a MonitorSpec> {
    let is_due = |m: &&MonitorSpec| looked.get(&m.name).is_none_or(|at| *at + every(state, m) <= now);
    state.spec.watch.monitors.iter().filter(|_| is_watching(state)).filter(is_due).collect()
}

/// The task about the last change of a monitor. While it is queued the monitor is not probed: a
/// second change becomes part of a later probe, so that a cause has one task and a flood has few.
pub fn latest_task<'a>(state: &'a LoopState, monitor: &MonitorSpec) -> Option<&'a TaskId> {
    state.watch.seen.get(&monitor.name)?.task.as_ref()
}

/// When the next monitor is due.
pub fn next(state: &LoopState, looked: &BTreeMap<String, Time>, now: Time) -> Option<Time> {
    let at = |m: &MonitorSpec| looked.get(&m.name).map_or(now, |at| *at + every(state, m));
    state.spec.watch.monitors.iter().filter(|_| is_watching(state)).map(at).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_targets_are_seen_anew_and_others_are_remembered() {
        let monitor = |name: &str, target| MonitorSpec {
            name: name.to_owned(),
            target,
            every: EVERY,
            timeout: TIMEOUT,
            title: String::new(),
            prompt: String::new(),
            access: CommandAccess::default(),
        };
        let spec = |monitors| WatchSpec { monitors, park_after: 1 };
        let seen = MonitorCursor { cursor: "1".to_owned(), at: Time(0), task: None };
        let mut watch = WatchState::default();
        for name in ["same", "other", "gone"] {
            watch.seen.insert(name.to_owned(), seen.clone());
        }
        let file = |glob: &str| Target::File(glob.to_owned());
        let old = spec(vec![monitor("same", file("a")), monitor("other", file("b")), monitor("gone", file("c"))]);
        let new = spec(vec![monitor("same", file("a")), monitor("other", Target::Stream("b".to_owned()))]);
        watch.change_spec(&old, &new);
        assert_eq!(watch.seen.keys().collect::<Vec<_>>(), ["same"]);
    }
}
