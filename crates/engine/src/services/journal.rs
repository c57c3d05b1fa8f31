//! The journal, read in pages: what happened from a time on, the last lines, and what is new.

use everloop_core::ids::LoopId;
use everloop_core::journal::JournalRecord;
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};

use crate::error::Failure;

/// Records read at once.
const CHUNK: usize = 500;
/// Lines of a listing without a beginning.
pub const LINES: usize = 50;

/// Which part of the journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalRange<'a> {
    /// Only records of this loop.
    pub owner: Option<&'a LoopId>,
    /// The last so many; without them all since `since`, or 50.
    pub lines: Option<usize>,
    /// Only what happened from this time on.
    pub since: Option<Time>,
}

/// Gives the records of a range to `sink`, page by page; returns the number after which new ones
/// begin.
pub fn read(
    ledger: &Sqlite,
    range: &JournalRange<'_>,
    mut sink: impl FnMut(&[JournalRecord]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let end = ledger.last_seq()?;
    let Some(since) = range.since else {
        let records = ledger.journal_tail(range.owner, range.lines.unwrap_or(LINES))?;
        sink(&records)?;
        return Ok(records.last().map_or(end, |r| r.seq.max(end)));
    };
    let mut after = before(ledger, since, end)?;
    let mut kept: Vec<JournalRecord> = Vec::new();
    loop {
        let records = ledger.journal(after, range.owner, CHUNK)?;
        let Some(last) = records.last() else { break };
        after = last.seq;
        match range.lines {
            None => sink(&records)?,
            Some(lines) => {
                kept.extend(records);
                kept.drain(..kept.len().saturating_sub(lines));
            }
        }
    }
    sink(&kept)?;
    Ok(after.max(end))
}

/// Gives the records after number `after` to `sink`; returns the number of the last one, and
/// whether the loop `owner` is over.
pub fn read_new(
    ledger: &Sqlite,
    owner: Option<&LoopId>,
    mut after: u64,
    mut sink: impl FnMut(&[JournalRecord]) -> Result<(), Failure>,
) -> Result<(u64, bool), Failure> {
    // Read before the records: an end that comes in between is seen the next time.
    let over = owner.map(|id| ended(ledger, id)).transpose()?.unwrap_or(false);
    loop {
        let records = ledger.journal(after, owner, CHUNK)?;
        let Some(last) = records.last() else { return Ok((after, over)) };
        after = last.seq;
        sink(&records)?;
    }
}

/// The number of the last record before a point in time. Numbers and times grow together, so 17
/// reads find one of 100,000.
pub fn before(ledger: &Sqlite, since: Time, end: u64) -> Result<u64, Failure> {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low.midpoint(high);
        let later = ledger.journal_raw(middle, 1)?.first().is_none_or(|row| row.at >= since);
        if later { high = middle } else { low = middle + 1 }
    }
    Ok(low)
}

fn ended(ledger: &Sqlite, id: &LoopId) -> Result<bool, Failure> {
    match ledger.get_loop(id)? {
        Some(row) => Ok(row.is_over()),
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::event::Event;
    use everloop_core::op::Op;

    use super::*;

    #[test]
    fn the_first_record_after_a_time_is_found_without_reading_all() {
        let mut ledger = Sqlite::in_memory().unwrap();
        for at in [10, 20, 20, 30, 40] {
            let note = Event::Note { text: at.to_string() };
            ledger.transact(Time(at), &[Op::Append { owner: None, events: vec![note] }]).unwrap();
        }
        let found: Vec<u64> =
            [0, 10, 11, 20, 25, 40, 41].iter().map(|t| before(&ledger, Time(*t), 5).unwrap()).collect();
        assert_eq!(found, [0, 0, 1, 1, 3, 4, 5]);
    }
}
