//! Sums over turns: usage by loop, agent, account, day or model, and the last known state of the
//! accounts' windows. A fold over journal records.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use everloop_core::event::{Event, Exit, Settled};
use everloop_core::guard::Scope;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::journal::JournalRecord;
use everloop_core::pacing::Window;
use everloop_core::spec::DEFAULT_ACCOUNT;
use everloop_core::stream::Usage;
use everloop_core::telemetry::{UsageSource, settle};
use everloop_core::time::Time;
use jiff::tz::TimeZone;
use serde::Serialize;

/// The label of usage without a known agent, account or model.
const UNKNOWN: &str = "unknown";

/// The dimension of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Sum by loop
    Loop,
    /// Sum by the agent of the turn
    Agent,
    /// Sum by the paying account
    Account,
    /// Sum by the day of the turn's end
    Day,
    /// Sum by the answering model
    Model,
}

impl By {
    /// The name of the grouping, as heading of its column.
    pub fn label(self) -> &'static str {
        match self {
            By::Loop => "loop",
            By::Agent => "agent",
            By::Account => "account",
            By::Day => "day",
            By::Model => "model",
        }
    }
}

/// The usage of several turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageSum {
    /// Turns that ended.
    pub turns: u64,
    /// Tokens read, as far as agents report it.
    pub input: u64,
    /// Tokens written, as far as agents report it.
    pub output: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens put into a cache.
    pub cache_write: u64,
    /// All tokens that were charged.
    pub tokens: u64,
    /// Millionths of a dollar that were charged.
    pub microusd: u64,
    /// Some of what was charged is everloop's estimate.
    pub estimated: bool,
    /// Some of the tokens are, too.
    pub tokens_estimated: bool,
    /// Turns for which the agent's telemetry gave more than its stream.
    pub from_telemetry: u64,
}

impl UsageSum {
    fn add(&mut self, used: Usage, settled: &Settled) {
        self.turns += 1;
        self.input = self.input.saturating_add(used.input);
        self.output = self.output.saturating_add(used.output);
        self.cache_read = self.cache_read.saturating_add(used.cache_read);
        self.cache_write = self.cache_write.saturating_add(used.cache_write);
        self.tokens = self.tokens.saturating_add(settled.spend.tokens);
        self.microusd = self.microusd.saturating_add(settled.spend.microusd);
        self.estimated |= settled.estimated;
        self.tokens_estimated |= settled.estimated && !settled.tokens_exact;
        self.from_telemetry += u64::from(settled.source == UsageSource::Telemetry);
    }
}

/// Facts about a loop besides its journal, for turns of times in which the journal did not name
/// their agent.
#[derive(Clone, Debug)]
pub struct Loop {
    pub name: String,
    pub agent: String,
    pub account: String,
}

/// A turn without an end so far.
#[derive(Clone, Debug, Default)]
struct Open {
    agent: String,
    account: String,
    resumed: bool,
    model: Option<String>,
    used: Usage,
}

/// The growing sums.
#[derive(Debug)]
pub struct UsageTally {
    pub by: By,
    pub since: Option<Time>,
    pub rows: BTreeMap<String, UsageSum>,
    pub total: UsageSum,
    /// By account and name of the window.
    pub windows: BTreeMap<(String, String), Window>,
    /// Accounts under which paced loops work.
    pub paced: BTreeSet<String>,
    zone: TimeZone,
    loops: HashMap<LoopId, Loop>,
    open: HashMap<TurnId, Open>,
    /// Total usage of sessions, for CLIs that report totals only.
    sessions: HashMap<String, Usage>,
}

impl UsageTally {
    /// An empty tally that counts records from `since` on.
    pub fn new(by: By, zone: TimeZone, since: Option<Time>) -> Self {
        Self {
            by,
            since,
            zone,
            rows: BTreeMap::new(),
            total: UsageSum::default(),
            windows: BTreeMap::new(),
            paced: BTreeSet::new(),
            loops: HashMap::new(),
            open: HashMap::new(),
            sessions: HashMap::new(),
        }
    }

    /// Registers a loop, so that its records are assigned to its agent and account.
    pub fn know(&mut self, id: LoopId, known: Loop) {
        self.loops.insert(id, known);
    }

    /// Adds a record; records that are not about a turn's usage change nothing.
    pub fn take(&mut self, record: &JournalRecord) {
        match &record.event {
            Event::TurnStarted { turn, agent, account, resume, permit, .. } => {
                // The default account is one per kind of agent, as the permit names it.
                let charged = permit.scopes.iter().find_map(|scope| match scope {
                    Scope::Account(name) => Some(name),
                    Scope::All | Scope::Node(_) | Scope::Loop(_) => None,
                });
                let open = Open {
                    agent: agent.clone(),
                    account: charged.unwrap_or(account).clone(),
                    resumed: resume.is_some(),
                    ..Open::default()
                };
                self.open.insert(turn.clone(), open);
            }
            Event::TurnExited { turn, exit } => self.exited(turn, exit, record),
            Event::TurnEnded { turn, settled, .. } => {
                let open = self.open.remove(turn).unwrap_or_default();
                if self.since.is_none_or(|since| record.at >= since) {
                    let key = self.key(&open, record);
                    self.rows.entry(key).or_default().add(open.used, settled);
                    self.total.add(open.used, settled);
                }
            }
            _ => {}
        }
    }

    fn exited(&mut self, turn: &TurnId, exit: &Exit, record: &JournalRecord) {
        let Some(report) = &exit.report else { return };
        let open = self.open.entry(turn.clone()).or_default();
        open.model.clone_from(&report.model);
        let said = match (report.in_all, &report.session) {
            (None, _) => report.used,
            (Some(all), None) => all,
            (Some(all), Some(session)) => match self.sessions.insert(session.clone(), all) {
                Some(before) => all.since(before),
                // Earlier turns of the session were not read, and their usage is not this turn's.
                None if open.resumed => Usage::default(),
                None => all,
            },
        };
        open.used = settle(said, report.telemetry).0;
        let account = account_of(open, loop_of(&self.loops, record));
        for quota in &report.quotas {
            let window = Window { quota: quota.clone(), seen: record.at };
            let key = (account.clone(), quota.window.clone());
            self.windows.entry(key).or_insert(window).renew(quota, record.at);
        }
    }

    /// The key under which a turn is counted.
    fn key(&self, open: &Open, record: &JournalRecord) -> String {
        let known = loop_of(&self.loops, record);
        match self.by {
            By::Loop => match (&record.owner, known) {
                (Some(id), Some(known)) => format!("{id} ({})", known.name),
                (Some(id), None) => id.to_string(),
                (None, _) => UNKNOWN.to_owned(),
            },
            By::Agent => named(&open.agent, known.map(|l| l.agent.as_str())),
            By::Account => account_of(open, known),
            By::Model => named(open.model.as_deref().unwrap_or_default(), None),
            By::Day => jiff::Timestamp::from_millisecond(record.at.0).map_or_else(
                |_| UNKNOWN.to_owned(),
                |at| at.to_zoned(self.zone.clone()).strftime("%Y-%m-%d").to_string(),
            ),
        }
    }
}

fn loop_of<'a>(loops: &'a HashMap<LoopId, Loop>, record: &JournalRecord) -> Option<&'a Loop> {
    record.owner.as_ref().and_then(|id| loops.get(id))
}

/// The account of a turn. Records from before every kind of agent had a default account of its own
/// name the plain one, which is then that of the loop's agent.
fn account_of(open: &Open, known: Option<&Loop>) -> String {
    let of_loop = known.map(|l| l.account.as_str());
    let is_plain = open.account == DEFAULT_ACCOUNT && known.is_some_and(|l| open.agent == l.agent);
    named(if is_plain { "" } else { &open.account }, of_loop)
}

fn named(said: &str, otherwise: Option<&str>) -> String {
    let name = if said.is_empty() { otherwise.unwrap_or_default() } else { said };
    if name.is_empty() { UNKNOWN.to_owned() } else { name.to_owned() }
}
