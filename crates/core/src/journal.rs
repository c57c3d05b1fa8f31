//! Journal records: numbered, chained, checksummed. A record with a wrong checksum is refused,
//! never guessed at.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use serde::{Deserialize, Serialize};

use crate::event::{EVENT_VERSION, Event};
use crate::ids::LoopId;
use crate::time::Time;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// Grows by one.
    pub seq: u64,
    pub at: Time,
    /// The loop; `None` for the guard and the supervisor.
    pub owner: Option<LoopId>,
    /// Format of `event`.
    pub version: u32,
    pub event: Event,
}

/// Damage of a journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A record's content does not fit its checksum.
    #[error("journal record {seq} is damaged (its checksum does not fit)")]
    Checksum { seq: u64 },
    /// A record is missing or out of order.
    #[error("journal record {expected} is missing (found {found})")]
    Gap {
        /// The number that should follow.
        expected: u64,
        /// The number that follows.
        found: u64,
    },
    /// A newer everloop wrote the record.
    #[error("journal record {seq} has format {version}, newer than this everloop understands ({EVENT_VERSION})")]
    Newer { seq: u64, version: u32 },
    /// A record without a signature among signed ones.
    #[error("journal record {seq} is not signed: something other than everloop wrote it")]
    Unsigned { seq: u64 },
    /// The signature does not fit the record and those before it.
    #[error("journal record {seq} or one before it was changed: the signature does not fit")]
    Forged { seq: u64 },
    /// Records after this one are missing.
    #[error(
        "the end of the journal was changed: record {seq} is the last one, and the signature of the end does not fit"
    )]
    CutOff { seq: u64 },
    /// The journal is signed, and the key is missing.
    #[error("the key of the journal (`ledger.key` in the state folder) is missing, so it cannot be verified")]
    NoKey,
    /// The checksum fits but the content cannot be read.
    #[error("journal record {seq} cannot be read: {why}")]
    Unreadable { seq: u64, why: String },
}

/// The stored form of a record: exactly these parts are covered by the checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Grows by one.
    pub seq: u64,
    pub at: Time,
    pub owner: Option<LoopId>,
    /// Format of `body`.
    pub version: u32,
    pub body: String,
    /// Covers all of the above and the checksum of the record before.
    pub sum: u32,
}

/// Makes the stored form of an event.
pub fn encode(seq: u64, at: Time, owner: Option<&LoopId>, event: &Event, previous_sum: u32) -> Stored {
    let body = serde_json::to_string(event).expect("events are plain data and always have a JSON form");
    let mut stored = Stored { seq, at, owner: owner.cloned(), version: EVENT_VERSION, body, sum: 0 };
    stored.sum = checksum(&stored, previous_sum);
    stored
}

/// Opens a stored record and refuses anything that is not exactly what was written after
/// `previous`.
pub fn open(stored: &Stored, previous: Option<&Stored>) -> Result<JournalRecord, Damage> {
    let seq = stored.seq;
    let expected = previous.map_or(1, |p| p.seq + 1);
    if seq != expected {
        return Err(Damage::Gap { expected, found: seq });
    }
    open_after(stored, previous.map_or(0, |p| p.sum))
}

/// Like [`open`], for a record that follows one with this checksum, whatever its number.
pub fn open_after(stored: &Stored, previous_sum: u32) -> Result<JournalRecord, Damage> {
    let seq = stored.seq;
    if checksum(stored, previous_sum) != stored.sum {
        return Err(Damage::Checksum { seq });
    }
    if stored.version > EVENT_VERSION {
        return Err(Damage::Newer { seq, version: stored.version });
    }
    let event = serde_json::from_str(&stored.body).map_err(|e| Damage::Unreadable { seq, why: e.to_string() })?;
    Ok(JournalRecord { seq, at: stored.at, owner: stored.owner.clone(), version: stored.version, event })
}

/// Moves a stored record to another place in a journal; its content stays the same.
#[must_use]
pub fn reseal(stored: &Stored, seq: u64, previous_sum: u32) -> Stored {
    let mut stored = Stored { seq, sum: 0, ..stored.clone() };
    stored.sum = checksum(&stored, previous_sum);
    stored
}

/// Checksum of other content that is kept in files.
pub fn sum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

fn checksum(stored: &Stored, previous_sum: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&previous_sum.to_le_bytes());
    hasher.update(&stored.seq.to_le_bytes());
    hasher.update(&stored.at.0.to_le_bytes());
    hasher.update(&stored.version.to_le_bytes());
    hasher.update(stored.owner.as_ref().map_or("", LoopId::as_str).as_bytes());
    hasher.update(&[0]);
    hasher.update(stored.body.as_bytes());
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> Event {
        Event::Note { text: text.to_owned() }
    }

    #[test]
    fn every_single_bit_flip_is_noticed() {
        let owner = LoopId::new("k3f9");
        let first = encode(1, Time(5), Some(&owner), &note("one"), 0);
        let second = encode(2, Time(6), Some(&owner), &note("two"), first.sum);
        assert!(open(&second, Some(&first)).is_ok());
        for byte in 0..second.body.len() {
            for bit in 0..7 {
                let mut bytes = second.body.clone().into_bytes();
                bytes[byte] ^= 1 << bit;
                let damaged = Stored { body: String::from_utf8(bytes).expect("ascii stays ascii"), ..second.clone() };
                assert_eq!(open(&damaged, Some(&first)), Err(Damage::Checksum { seq: 2 }));
            }
        }
    }

    #[test]
    fn missing_and_swapped_records_are_noticed() {
        let one = encode(1, Time(5), None, &note("one"), 0);
        let two = encode(2, Time(6), None, &note("two"), one.sum);
        let three = encode(3, Time(7), None, &note("three"), two.sum);
        assert_eq!(open(&three, Some(&one)), Err(Damage::Gap { expected: 2, found: 3 }));
        let swapped = Stored { seq: 2, ..three };
        assert_eq!(open(&swapped, Some(&one)), Err(Damage::Checksum { seq: 2 }));
    }
}
