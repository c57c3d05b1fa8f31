//! Changes to a ledger behind everloop's back, as a program without its key can make them.

use std::path::Path;

use everloop_core::journal::{Stored, reseal};
use everloop_store::{Ledger, OpenMode, Sqlite};

/// Replaces a text in the journal and in the states of loops, and makes all checksums fit again.
pub fn forge(ledger: &Path, from: &str, to: &str) {
    let rows = Sqlite::open(ledger, OpenMode::ReadOnly).expect("a ledger").journal_raw(0, usize::MAX).expect("rows");
    let conn = rusqlite::Connection::open(ledger).expect("a ledger");
    let mut sum = 0;
    for row in rows {
        let forged = reseal(&Stored { body: row.body.replace(from, to), ..row.clone() }, row.seq, sum);
        sum = forged.sum;
        let change = (forged.seq as i64, &forged.body, forged.sum);
        conn.execute("UPDATE journal SET body = ?2, sum = ?3 WHERE seq = ?1", change).expect("a row of a journal");
    }
    conn.execute("UPDATE loops SET state = replace(state, ?1, ?2)", (from, to)).expect("states are text");
}

/// Replaces a text in the states of loops only.
pub fn rewrite_states(ledger: &Path, from: &str, to: &str) {
    let conn = rusqlite::Connection::open(ledger).expect("a ledger");
    conn.execute("UPDATE loops SET state = replace(state, ?1, ?2)", (from, to)).expect("states are text");
}

/// Removes the newest record of the journal.
pub fn remove_last_record(ledger: &Path) {
    let conn = rusqlite::Connection::open(ledger).expect("a ledger");
    conn.execute("DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)", ()).expect("a row of a journal");
}
