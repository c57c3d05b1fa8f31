//! The records of channels in the ledger: what notifiers, trackers and mailboxes were sent, and
//! what waits for notifiers. `core::outbound` decides what is delivered and when; the supervisor
//! sends it.

use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::outbound::reports::{MAILBOX, TRACKER};
use everloop_core::outbound::tickets::{LocalTime, NOTIFY, Outbox};
use everloop_core::outbound::{FORMAT, Record};
use everloop_core::time::Time;
use everloop_store::Ledger;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Failure;

/// The document of a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordId {
    /// Of a notifier, by its name and its project.
    Notifier(String),
    /// Of a project's tracker, by the folder.
    Tracker(String),
    /// Of a loop's mailbox.
    Mailbox(LoopId),
}

impl RecordId {
    /// The document's kind and key.
    fn doc(&self) -> (&'static str, &str) {
        match self {
            RecordId::Notifier(name) => (NOTIFY, name),
            RecordId::Tracker(dir) => (TRACKER, dir),
            RecordId::Mailbox(id) => (MAILBOX, id.as_str()),
        }
    }
}

impl std::fmt::Display for RecordId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, key) = self.doc();
        write!(f, "{kind} {key}")
    }
}

/// A record and its version, if it was ever written.
pub fn find(ledger: &impl Ledger, id: &RecordId) -> Result<Option<(u64, Record)>, Failure> {
    let (kind, key) = id.doc();
    let Some(row) = ledger.doc(kind, key)? else { return Ok(None) };
    let record = match id {
        RecordId::Notifier(_) => read(id, &row.body).map(Record::Tickets),
        RecordId::Tracker(_) => read(id, &row.body).map(Record::Tasks),
        RecordId::Mailbox(_) => read(id, &row.body).map(Record::Status),
    };
    Ok(Some((row.version, record?)))
}

/// A record that cannot be read is an error and not a reason to send everything again.
fn read<T: DeserializeOwned>(id: &RecordId, body: &str) -> Result<T, Failure> {
    let broken = |e: serde_json::Error| Failure::failed(format!("cannot read the outbox of `{id}`")).because(&e);
    let value: Value = serde_json::from_str(body).map_err(broken)?;
    let format = value.get("format").or_else(|| value.get("told_version")).and_then(Value::as_u64);
    if format.is_some_and(|format| format > u64::from(FORMAT)) {
        return Err(Failure::failed(format!("the outbox of `{id}` is in a newer format"))
            .hint("use the everloop that wrote it, or a newer one"));
    }
    serde_json::from_value(value).map_err(broken)
}

/// The operation that keeps a record.
pub fn save(id: &RecordId, version: u64, record: &Record) -> Op {
    let body = serde_json::to_string(record).expect("a record is plain data and always has a JSON form");
    let (kind, key) = id.doc();
    Op::SaveDoc { kind: kind.to_owned(), key: key.to_owned(), version, body }
}

/// The outbox of a notifier.
pub fn outbox(ledger: &impl Ledger, key: &str) -> Result<Outbox, Failure> {
    match find(ledger, &RecordId::Notifier(key.to_owned()))? {
        Some((_, Record::Tickets(outbox))) => Ok(outbox),
        _ => Ok(Outbox::default()),
    }
}

/// The local date and time.
pub fn moment(now: Time) -> LocalTime {
    let at = Timestamp::from_millisecond(now.0).unwrap_or_default();
    LocalTime { now, local_minutes: TimeZone::system().to_offset(at).seconds() / 60 }
}

/// Notifiers that cannot be reached, by name, in words. Those that are no longer tried are left
/// out.
pub fn troubles(ledger: &impl Ledger, now: Time) -> Result<Vec<(String, String)>, Failure> {
    /// No wait between two attempts is longer than half of this.
    const TRIED: std::time::Duration = std::time::Duration::from_secs(2 * 3600);
    let mut found = Vec::new();
    for row in ledger.docs(NOTIFY)? {
        let queue = read::<Outbox>(&RecordId::Notifier(row.key.clone()), &row.body)?.queue;
        let tried = queue.failing.as_ref().is_some_and(|f| f.next + TRIED > now);
        let name = row.key.split_once('@').map_or(row.key.as_str(), |(name, _)| name).to_owned();
        found.extend(queue.trouble(now).filter(|_| tried).map(|text| (name, text)));
    }
    Ok(found)
}
