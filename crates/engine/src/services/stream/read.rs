//! Reads of streams, and what drops their entries.

use std::collections::BTreeMap;
use std::time::Duration;

use everloop_core::op::streams::{DeliverRequest, Delivered, GroupState, StreamEnds, StreamEntry, StreamOp};
use everloop_core::op::{Op, Reply};
use everloop_store::{Ledger, Sqlite, StreamRow};
use serde::Serialize;

use super::super::ServiceContext;
use crate::error::Failure;

/// Most entries of one answer.
const PAGE_MAX: usize = 10_000;

/// A stream as it is listed.
#[derive(Clone, Debug, Serialize)]
pub struct StreamView {
    pub name: String,
    /// Entries that are kept.
    pub entries: u64,
    /// Number of the last entry.
    pub last: u64,
    /// Entries that were dropped.
    pub trimmed: u64,
    /// Groups by their names.
    pub groups: BTreeMap<String, GroupView>,
}

/// A group as it is listed.
#[derive(Clone, Debug, Serialize)]
pub struct GroupView {
    /// Number of the last entry that was taken.
    pub cursor: u64,
    /// Taken and not acknowledged.
    pub pending: usize,
}

/// Which entries are read.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    pub stream: String,
    pub count: usize,
    pub from: Begin,
}

/// Where reading begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With the oldest entry.
    Oldest,
    /// After the entry with this number.
    After(u64),
    /// With the newest ones.
    Newest,
    /// With what a group has not had yet; it holds them until they are acknowledged.
    Group { group: String, consumer: String, idle: Duration },
}

/// Entries of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    pub stream: String,
    pub entries: Vec<StreamEntry>,
    /// Entries after the beginning that were dropped before they were read: a gap.
    pub missed: u64,
}

/// Acknowledge entries of a group.
#[derive(Clone, Debug)]
pub struct AckRequest {
    pub stream: String,
    pub group: String,
    pub numbers: Vec<u64>,
}

/// Drop entries of a stream.
#[derive(Clone, Debug)]
pub struct TrimRequest {
    pub stream: String,
    /// Keep so many.
    pub keep: Option<u64>,
    /// Drop what is older.
    pub older: Option<Duration>,
}

/// What was dropped.
#[derive(Clone, Debug, Serialize)]
pub struct Trimmed {
    pub stream: String,
    pub trimmed: u64,
}

/// All streams, by name.
pub fn list(context: &ServiceContext) -> Result<Vec<StreamView>, Failure> {
    let Some(ledger) = context.reader(&context.home()?)? else { return Ok(Vec::new()) };
    let view = |row: StreamRow| {
        let group = |state: GroupState| GroupView { cursor: state.cursor, pending: state.pending.len() };
        let groups = row.groups.clone().into_iter().map(|(name, state)| (name, group(state))).collect();
        let (entries, ends) = (row.kept(), row.ends);
        StreamView { name: row.name, entries, last: ends.last, trimmed: ends.trimmed, groups }
    };
    Ok(ledger.streams()?.into_iter().map(view).collect())
}

/// The streams whose entries are on their way out, with how many there are.
pub fn outgoing(ledger: &impl Ledger) -> Result<Vec<(String, u64)>, Failure> {
    let rows = ledger.streams()?.into_iter().filter(|row| row.name.contains(':'));
    Ok(rows.map(|row| (row.name.clone(), row.kept())).collect())
}

/// Entries of a stream. Only a group's read changes anything.
pub fn read(context: &ServiceContext, request: ReadRequest) -> Result<Page, Failure> {
    let ReadRequest { stream, count, from } = request;
    let (home, count) = (context.home()?, count.min(PAGE_MAX));
    if let Begin::Group { group, consumer, idle } = from {
        let mut ledger = context.writer(&home)?;
        need(&ledger, &stream)?;
        let n = u32::try_from(count).unwrap_or(u32::MAX);
        let deliver = DeliverRequest { stream: stream.clone(), group, consumer, n, idle };
        let replies = ledger.transact(context.now(), &[Op::Stream(StreamOp::Deliver(deliver))])?;
        let Some(Reply::Delivered(Delivered { entries, missed })) = replies.into_iter().next() else {
            return Err(Failure::failed("the ledger answered with something else"));
        };
        return Ok(Page { stream, entries, missed });
    }
    let Some(ledger) = context.reader(&home)? else { return Err(unknown(&stream)) };
    let ends = need(&ledger, &stream)?;
    let (after, missed) = match from {
        Begin::After(number) => (number, ends.trimmed.saturating_sub(number)),
        Begin::Newest => (ends.last.saturating_sub(count as u64), 0),
        Begin::Oldest | Begin::Group { .. } => (0, 0),
    };
    Ok(Page { entries: ledger.entries(&stream, after, count)?, stream, missed })
}

/// Acknowledges entries that a group holds.
pub fn ack(context: &ServiceContext, request: AckRequest) -> Result<AckRequest, Failure> {
    let mut ledger = context.writer(&context.home()?)?;
    need(&ledger, &request.stream)?;
    let AckRequest { stream, group, numbers: ids } = request.clone();
    ledger.transact(context.now(), &[Op::Stream(StreamOp::Ack { stream, group, ids })])?;
    Ok(request)
}

/// Drops the oldest entries of a stream.
pub fn trim(context: &ServiceContext, request: &TrimRequest) -> Result<Trimmed, Failure> {
    context.for_a_person("trim a stream")?;
    let mut ledger = context.writer(&context.home()?)?;
    let ends = need(&ledger, &request.stream)?;
    let by_count = request.keep.map_or(0, |keep| ends.last.saturating_sub(keep));
    let limit = request.older.map(|older| context.now() - older);
    // From the oldest on; a clock that was set back keeps what follows.
    let old = match limit {
        Some(limit) => {
            let kept = ledger.entries(&request.stream, 0, usize::MAX)?;
            kept.iter().take_while(|entry| entry.at < limit).last().map_or(0, |entry| entry.id)
        }
        None => 0,
    };
    let (stream, up_to) = (request.stream.clone(), by_count.max(old));
    let op = Op::Stream(StreamOp::Trim { stream: stream.clone(), up_to });
    let replies = ledger.transact(context.now(), &[op])?;
    let Some(Reply::Trimmed(trimmed)) = replies.into_iter().next() else {
        return Err(Failure::failed("the ledger answered with something else"));
    };
    Ok(Trimmed { stream, trimmed })
}

fn need(ledger: &Sqlite, stream: &str) -> Result<StreamEnds, Failure> {
    let row = ledger.streams()?.into_iter().find(|row| row.name == stream);
    row.map(|row| row.ends).ok_or_else(|| unknown(stream))
}

fn unknown(stream: &str) -> Failure {
    Failure::usage(format!("there is no stream `{}`", stream.escape_debug()))
        .hint("`everloop stream list` shows them; a stream begins with its first entry")
}
