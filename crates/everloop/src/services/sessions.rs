//! Sessions that everloop did not start, as the ledger knows them.

use std::time::Duration;

use everloop_core::hook::{HookSession as Record, SESSION, SESSION_VERSION};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};

use crate::error::Failure;

/// A session that was silent for longer is taken for gone.
pub const SHOWN: Duration = Duration::from_secs(24 * 3600);

/// A record as it is stored; a newer everloop's is not guessed at.
pub fn read_record(body: &str) -> Result<Record, Failure> {
    let record: Record = serde_json::from_str(body)
        .map_err(|e| Failure::failed("the record of a session cannot be read").because(&e))?;
    if record.session_version > SESSION_VERSION {
        return Err(Failure::failed("a newer everloop wrote the record of this session"));
    }
    Ok(record)
}

/// The session that a word means: its id, or the beginning of one.
pub fn find(ledger: &Sqlite, word: &str) -> Result<Option<(String, Record)>, Failure> {
    if let Some(row) = ledger.doc(SESSION, word)? {
        return Ok(Some((row.key, read_record(&row.body)?)));
    }
    let mut begun = ledger.docs(SESSION)?.into_iter().filter(|row| row.key.starts_with(word));
    match (begun.next(), begun.next()) {
        (Some(row), None) => Ok(Some((row.key, read_record(&row.body)?))),
        (None, _) => Ok(None),
        (Some(one), Some(other)) => Err(Failure::usage(format!("`{word}` fits several sessions"))
            .hint(format!("there are: {}, {}", one.key, other.key))),
    }
}

/// Sessions that work on a loop now.
pub fn of(ledger: &Sqlite, state: &LoopState, now: Time) -> Result<Vec<(String, Record)>, Failure> {
    let mut found = Vec::new();
    for row in ledger.docs(SESSION)? {
        // Most are another loop's, or long gone; one that cannot be read hides no other.
        let Ok(record) = read_record(&row.body) else { continue };
        let here = record.owner.as_ref() == Some(&state.id);
        if here && !record.ended && now.since(record.seen_at) < SHOWN {
            found.push((row.key, record));
        }
    }
    Ok(found)
}
