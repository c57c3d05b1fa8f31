//! A walk over the whole journal of any ledger that checks every record against the one before it.

use everloop_core::journal::{self, JournalRecord};

use crate::{Error, Ledger};

/// Rows held in memory at once: enough to hide the cost of a query, small against the supervisor's
/// memory.
const CHUNK_ROWS: usize = 512;

/// Passes every record of the journal to `each`, oldest first, and returns their number.
///
/// Stops with [`Error::Damaged`] at the first record that is not exactly what was written, so
/// `each` has then seen everything that can be trusted and nothing else.
pub fn replay(ledger: &(impl Ledger + ?Sized), mut each: impl FnMut(JournalRecord)) -> Result<u64, Error> {
    let mut previous = None;
    let mut count = 0;
    loop {
        let rows = ledger.journal_raw(count, CHUNK_ROWS)?;
        if rows.is_empty() {
            return Ok(count);
        }
        for stored in rows {
            each(journal::open(&stored, previous.as_ref())?);
            count = stored.seq;
            previous = Some(stored);
        }
    }
}
