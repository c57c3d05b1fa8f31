//! Streams of the ledger: entries with growing ids, and groups that take each of them once. The
//! form of the rows and of their operations; what a group takes is decided by the ledgers.
//!
//! A stream exists from its first entry on. A name with a colon (`redis:deploys`) is the address of
//! a stream elsewhere: its entries are on their way out, and leave by the group that sends them.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{Time, millis};

/// Entries of a stream that are kept, unless its entries say otherwise: with those of the largest
/// size they are 320 MiB, with common ones a few.
pub const KEEP: u32 = 10_000;
/// Most entries of a group that wait for an acknowledgement: they are one row. A group with so many
/// gets no further ones until it acknowledges or their time is over.
pub const PENDING_MAX: usize = 1_000;

/// A named value of an entry.
pub type Field = (String, String);

/// An operation on a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "does", rename_all = "snake_case")]
pub enum StreamOp {
    /// Adds an entry, and drops the oldest ones beyond `keep`. Refused
    /// ([`Refusal::Repeated`](super::Refusal::Repeated)) when the stream has one with this source
    /// and key, so that what the batch does with an entry is done once.
    Add(NewStreamEntry),
    /// Takes entries for a group: first those that were taken and not acknowledged for `idle`, then
    /// new ones. A group begins with the oldest entry that is kept.
    Deliver(DeliverRequest),
    /// Acknowledges entries of a group; one that it does not hold has no effect.
    Ack { stream: String, group: String, ids: Vec<u64> },
    /// Drops all entries up to this id.
    Trim { stream: String, up_to: u64 },
}

/// An entry to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewStreamEntry {
    pub stream: String,
    /// Where it came in.
    pub source: String,
    /// Unique at its source; an entry without one is always added.
    pub key: Option<String>,
    /// In their order.
    pub fields: Vec<Field>,
    /// How many entries of the stream are kept, this one included; at least one.
    pub keep: u32,
}

/// Which entries a group takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliverRequest {
    pub stream: String,
    pub group: String,
    /// Which member of the group takes them.
    pub consumer: String,
    pub n: u32,
    #[serde(with = "millis")]
    pub idle: Duration,
}

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEntry {
    /// Grows by one with every entry of the stream, from 1.
    pub id: u64,
    pub at: Time,
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub fields: Vec<Field>,
}

/// Entries that a group took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// In the order of their ids.
    pub entries: Vec<StreamEntry>,
    /// How many entries were dropped since the last time that this group had not acknowledged: a gap.
    pub missed: u64,
}

/// Both ends of a stream. All ids in between are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnds {
    /// The last id that was given; 0 for none.
    pub last: u64,
    /// The last id that was dropped; 0 for none.
    pub trimmed: u64,
}

/// How far a group is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    /// The last id that was taken.
    pub cursor: u64,
    /// Taken and not acknowledged, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingEntry>,
}

/// An entry that was taken and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingEntry {
    pub id: u64,
    pub consumer: String,
    /// When it was taken the last time.
    pub at: Time,
    /// How often it was taken.
    pub times: u32,
}
