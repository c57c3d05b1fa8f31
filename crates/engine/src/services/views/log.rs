//! The journal, newest first, in pages. Lines of records are made by what shows them.

use everloop_core::ids::LoopId;
use everloop_core::journal::JournalRecord;
use everloop_store::{Ledger, Sqlite};
use serde::Serialize;

use super::ledger;
use crate::error::Failure;
use crate::services::{ServiceContext, no_loops};

/// Records of a page.
const PAGE: usize = 100;

/// Which part of the journal.
#[derive(Clone, Debug, Default)]
pub struct LogRequest {
    /// Only of this loop, by name or id.
    pub word: Option<String>,
    /// Only records before this number: the page before.
    pub before: Option<u64>,
}

/// A page of the journal.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogView {
    #[serde(rename = "loop")]
    pub owner: Option<LoopId>,
    /// The newest record comes first.
    pub records: Vec<JournalRecord>,
    /// The number under which the page before ends.
    pub older: Option<u64>,
}

/// Reads a page.
pub fn log(context: &ServiceContext, request: &LogRequest) -> Result<LogView, Failure> {
    let Some(ledger) = ledger(context)? else {
        return if request.word.is_some() { Err(no_loops()) } else { Ok(LogView::default()) };
    };
    let owner = context.named_loop(&ledger, request.word.as_deref())?;
    let mut records = match (request.before, &owner) {
        (None, _) => ledger.journal_tail(owner.as_ref(), PAGE)?,
        (Some(before), None) => {
            let after = before.saturating_sub(PAGE as u64 + 1);
            ledger.journal(after, None, (before.saturating_sub(1) - after) as usize)?
        }
        (Some(before), Some(owner)) => of_loop_before(&ledger, owner, before)?,
    };
    records.reverse();
    let older = records.last().map(|last| last.seq).filter(|seq| *seq > 1 && records.len() >= PAGE);
    Ok(LogView { owner, records, older })
}

/// The records of one loop before a number: its numbers have gaps, so its tail is read up to where
/// the page lies, at most so far back.
fn of_loop_before(ledger: &Sqlite, owner: &LoopId, before: u64) -> Result<Vec<JournalRecord>, Failure> {
    const MOST: usize = 5_000;
    let mut records = ledger.journal_tail(Some(owner), MOST)?;
    records.retain(|record| record.seq < before);
    records.drain(..records.len().saturating_sub(PAGE));
    Ok(records)
}

/// A new record, as open tabs are informed of it.
#[derive(Clone, Debug, Serialize)]
pub struct NewRecord {
    pub seq: u64,
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub owner: Option<LoopId>,
    /// The event's name.
    pub event: String,
}

/// Which records came after a number, at most `max`, and the number of the journal's last.
pub fn news(context: &ServiceContext, after: u64, max: usize) -> Result<(Vec<NewRecord>, u64), Failure> {
    let Some(ledger) = ledger(context)? else { return Ok((Vec::new(), 0)) };
    let last = ledger.last_seq()?;
    if last <= after {
        return Ok((Vec::new(), last));
    }
    let rows = ledger.journal_raw(after, max)?;
    let news = rows.into_iter().map(|row| {
        // The stored text begins with the tag: a name needs no parse of a whole judgement.
        let event = row.body.split('"').nth(3).unwrap_or_default().to_owned();
        NewRecord { seq: row.seq, owner: row.owner, event }
    });
    Ok((news.collect(), last))
}
