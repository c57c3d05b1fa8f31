//! A ledger in one SQLite file: WAL, every commit synced to disk. The default on one node.
//!
//! `sqlite/open.rs` opens and migrates, `sqlite/batch.rs` writes, `sqlite/read.rs` reads,
//! `sqlite/census.rs` reads what is known of sleeping loops, `sqlite/chain.rs` signs the journal and
//! verifies it, `sqlite/mirror.rs` supports the mirror and restores from it, `sqlite/streams.rs` has
//! streams, `sqlite/prune.rs` removes, `sqlite/columns.rs` maps the columns. Methods stand in the
//! same order as in
//! the model, so that both can be compared side by side.
//!
//! Crash windows: there is one commit per batch and SQLite syncs it before `transact` returns, so a
//! batch is on disk completely or not at all. A crash between the creation of the empty file and
//! the first migration leaves an empty file: the next writer migrates it, a reader gets
//! [`Error::Missing`].

mod batch;
mod census;
mod chain;
mod columns;
mod edit;
mod mirror;
mod open;
mod prune;
mod read;
mod streams;
#[cfg(test)]
mod tests;

use std::path::Path;

use everloop_core::guard::{Guards, Scope, Versioned};
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::journal::{JournalRecord, Stored};
use everloop_core::op::streams::StreamEntry;
use everloop_core::op::{LateResult, Message, Op, Reply, TaskRow, Ticket};
use everloop_core::time::Time;
use rusqlite::Connection;

use self::chain::ChainKey;
use crate::rows::{DocRow, Leader, LoopMark, LoopRow, NewestLoop, NodeRow, Recipients, StreamRow, TaskFilter, Tickets};
use crate::{Error, Ledger, LocalLedger};

pub use open::FORMAT;

/// Access to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Creates a missing file and migrates an old one.
    ReadWrite,
    /// Never changes a row; works while another process writes.
    ReadOnly,
}

/// A ledger in one SQLite file.
///
/// Open a file once per process: SQLite's locks belong to the process, and closing a second
/// descriptor of the same file by other means drops them.
#[derive(Debug)]
pub struct Sqlite {
    conn: Connection,
    key: Option<ChainKey>,
}

impl Sqlite {
    /// Opens the ledger at `path`. Runs no integrity checks, so that a reader starts at once.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, Error> {
        match mode {
            OpenMode::ReadWrite => {
                let conn = open::writer(path)?;
                let key = Some(ChainKey::read_or_draw(path, &conn)?);
                Ok(Self { conn, key })
            }
            OpenMode::ReadOnly => Ok(Self { conn: open::reader(path)?, key: ChainKey::read(path)? }),
        }
    }

    /// A ledger without a file, lost when it is dropped; the same SQL. For tests.
    pub fn in_memory() -> Result<Self, Error> {
        Ok(Self { conn: open::in_memory()?, key: None })
    }

    /// A number that changes when *another* connection has committed: a hint to read again, nothing
    /// more.
    pub fn data_version(&self) -> Result<u64, Error> {
        read::data_version(&self.conn)
    }

    /// The loops that are not over, without their states.
    pub fn open_loops(&self) -> Result<Vec<LoopMark>, Error> {
        census::open_loops(&self.conn)
    }

    /// The loops that ended last.
    pub fn ended_loops(&self, limit: usize) -> Result<Vec<LoopRow>, Error> {
        census::ended_loops(&self.conn, limit)
    }

    /// The loop that was made last.
    pub fn newest_loop(&self) -> Result<Option<NewestLoop>, Error> {
        census::newest_loop(&self.conn)
    }

    /// The loops made since `known` that are not over; `None` if that one was removed, and all have
    /// to be looked at.
    pub fn loops_since(&self, known: &NewestLoop) -> Result<Option<Vec<LoopMark>>, Error> {
        census::loops_since(&self.conn, known)
    }

    /// The loops with messages, also those that are over.
    pub fn addressed_loops(&self) -> Result<Vec<LoopId>, Error> {
        census::addressed_loops(&self.conn)
    }

    /// The loops with a task that is open and not their own, due or not.
    pub fn loops_with_work(&self) -> Result<Vec<LoopId>, Error> {
        census::loops_with_work(&self.conn)
    }

    /// Reads the whole file and returns the problems SQLite finds; empty for an intact file. Slow:
    /// for `doctor`.
    ///
    /// This covers pages and indexes. [`crate::replay::replay`] verifies the journal's content,
    /// [`Self::verify_chain`] that everloop wrote it.
    pub fn check_integrity(&self) -> Result<Vec<String>, Error> {
        read::check_integrity(&self.conn)
    }
}

impl LocalLedger for Sqlite {
    fn ready(&self, now: Time, owner: Option<&LoopId>, n: u32) -> Result<Vec<TaskRow>, Error> {
        read::ready(&self.conn, now, owner, n)
    }

    fn named(&self, name: &str) -> Result<Vec<LoopRow>, Error> {
        census::named(&self.conn, name)
    }
}

impl Ledger for Sqlite {
    fn transact(&mut self, now: Time, ops: &[Op]) -> Result<Vec<Reply>, Error> {
        batch::run(&mut self.conn, self.key.as_ref(), now, ops)
    }

    fn loops(&self) -> Result<Vec<LoopRow>, Error> {
        read::loops(&self.conn)
    }

    fn get_loop(&self, id: &LoopId) -> Result<Option<LoopRow>, Error> {
        read::get_loop(&self.conn, id)
    }

    fn task(&self, id: &TaskId) -> Result<Option<TaskRow>, Error> {
        read::task(&self.conn, id)
    }

    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, Error> {
        read::tasks(&self.conn, filter)
    }

    fn late_results(&self, task: &TaskId) -> Result<Vec<LateResult>, Error> {
        read::late_results(&self.conn, task)
    }

    fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        read::nodes(&self.conn)
    }

    fn leader(&self) -> Result<Option<Leader>, Error> {
        read::leader(&self.conn)
    }

    fn guard(&self, scope: &Scope) -> Result<Versioned, Error> {
        read::guard(&self.conn, scope)
    }

    fn guards(&self) -> Result<Guards, Error> {
        read::guards(&self.conn)
    }

    fn doc(&self, kind: &str, key: &str) -> Result<Option<DocRow>, Error> {
        read::doc(&self.conn, kind, key)
    }

    fn docs(&self, kind: &str) -> Result<Vec<DocRow>, Error> {
        read::docs(&self.conn, kind)
    }

    fn messages(&self, to: Recipients<'_>, limit: usize) -> Result<Vec<Message>, Error> {
        read::messages(&self.conn, to, limit)
    }

    fn tickets(&self, which: Tickets) -> Result<Vec<Ticket>, Error> {
        read::tickets(&self.conn, which)
    }

    fn streams(&self) -> Result<Vec<StreamRow>, Error> {
        streams::streams(&self.conn)
    }

    fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, Error> {
        streams::entries(&self.conn, stream, after, limit)
    }

    fn entry_with_key(&self, stream: &str, source: &str, key: &str) -> Result<Option<StreamEntry>, Error> {
        streams::entry_with_key(&self.conn, [stream, source, key])
    }

    fn journal(&self, after_seq: u64, owner: Option<&LoopId>, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        read::journal(&self.conn, after_seq, owner, limit)
    }

    fn journal_tail(&self, owner: Option<&LoopId>, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        read::journal_tail(&self.conn, owner, limit)
    }

    fn journal_raw(&self, after_seq: u64, limit: usize) -> Result<Vec<Stored>, Error> {
        read::journal_raw(&self.conn, after_seq, limit)
    }

    fn last_seq(&self) -> Result<u64, Error> {
        read::last_seq(&self.conn)
    }
}

/// Names what was tried; a full disk and a busy file have errors of their own because callers act
/// on them.
fn sql(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> Error {
    move |source| match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => Error::Full { doing },
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => Error::Busy { doing },
        _ => Error::Sql { doing, source },
    }
}
