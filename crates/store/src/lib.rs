//! The part of everloop that remembers. Durable and atomic; ledgers decide nothing.
//!
//! - [`Ledger`] (here): the single interface, and its answers where [`everloop_core::op`] leaves
//!   them open
//! - [`model`]: in memory, for the simulation and as the reference of the others
//! - [`sqlite`]: one file on this node, the default
//! - [`postgres`]: the hub that many nodes share
//! - [`mirror`]: the ledger as plain files, and back
//! - [`replay`]: a walk over the whole journal that trusts nothing
//! - [`shell`]: read, decide, commit, then perform: the supervisor's steps over any ledger
//! - [`rows`]: row types and filters of reads
//! - [`error`]: the errors of all ledgers
//! - [`key_pair`]: the keys of nodes; `key_file`: files with secrets
//! - `task`, `leader`, `stream`: the rules that every ledger shares, pure
//!
//! All ledgers give the same answers to the same operations; `tests/it/story.rs` verifies it.

pub mod error;
mod key_file;
pub mod key_pair;
mod leader;
pub mod mirror;
pub mod model;
pub mod postgres;
pub mod replay;
pub mod rows;
pub mod shell;
pub mod sqlite;
mod stream;
mod task;

use everloop_core::guard::{Guards, Scope, Versioned};
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::journal::{JournalRecord, Stored};
use everloop_core::op::streams::StreamEntry;
use everloop_core::op::{LateResult, Message, Op, Reply, TaskRow, Ticket};
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;

pub use error::Error;
pub use model::Model;
pub use postgres::Postgres;
pub use rows::{
    DocRow, Leader, LoopMark, LoopRow, NewestLoop, NodeRow, Recipients, StateName, StreamRow, TaskEdit, TaskFilter,
    TaskOwner, Tickets,
};
pub use shell::LocalLedger;
pub use sqlite::{OpenMode, Sqlite};

/// When a commit is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before its reply.
    Full,
    /// Some time later: a power loss may take it back.
    Normal,
}

/// When the commits of a local ledger are on disk. SQLite is configured by this, and the simulated
/// disk does the same.
pub fn durability() -> Durability {
    if planted::is(Bug::CommitWithoutSync) { Durability::Normal } else { Durability::Full }
}

/// Storage of everloop. Synchronous: the supervisor calls it from the single task that owns it.
///
/// # Semantics of `transact`, beyond the documentation of [`Op`]
///
/// - **Batch.** Operations run in order and each sees the effects of those before it. The first
///   refusal undoes all of them, including the numbers they drew: ids, sequence numbers, versions
///   and fences of a refused batch are used again.
/// - **Time.** `now` is the caller's. A lease is over when `until <= now`; a task is due when
///   `ready_at <= now`.
/// - **`Enqueue`** answers `Made(false)` to a known id before any other check. Since dependencies
///   must exist already, the only possible cycle is a task that needs itself. Dependencies keep
///   their order and repeats.
/// - **Ready** means due and every dependency `Done`; a dependency that is `Dead` or `Blocked`
///   holds its dependants until a person retries it.
/// - **`Take`** names its task, so `ready_at` does not hold it back, dependencies do
///   (`WrongState`). It checks in this order: `Gone`, a state that is neither queued nor leased
///   (`WrongState`), a lease that is not over (`Fenced`, also for its own holder), the fence
///   (`Fenced`), dependencies.
/// - **`Renew`, `Finish`, `Release`** also work after the lease is over, as long as no other node
///   took the task: the fence alone identifies the holder.
/// - **`Shelve`** needs a known task (`Gone`); the same late result under the same fence is kept
///   once.
/// - **`Amend`**: `Block` needs `Queued`; `Retry` needs `Blocked`, `Dead` or `Leased`, makes the
///   task due now and drops failures and result; `Cancel` needs anything but `Done` and keeps the
///   result.
/// - **`Elect`**: the term starts at 1 and grows with every grant that is not the renewal of a live
///   lease.
/// - **`Lead`** checks node, term and lease at once; **`Resign`** by any other node changes
///   nothing.
/// - **`SaveGuard`, `SaveLoop`, `SaveDoc`**: a row that was never written has version 0. A conflict
///   names `guard SCOPE`, `loop ID` or `KIND KEY`.
/// - **`Consume`** refuses an id that is named twice, like an unknown one. Message ids are never
///   used again.
/// - **`Stream`**: the ids of a stream grow by one, without gaps, and are never used again; a key is
///   known as long as its entry is kept. A delivery from an unknown stream is empty and makes no
///   group; `Ack` and `Trim` of what is not there change nothing.
/// - **`OpenTicket`** leaves an open ticket of the same key as it is (`Made(false)`).
/// - **`Append`** of no events answers the last sequence number, 0 for an empty journal.
/// - Everything else answers [`Reply::Ok`].
pub trait Ledger: Send {
    /// Performs all of `ops` in one durable transaction, or none. One reply per operation.
    ///
    /// After [`Error::Unknown`] the outcome is unknown and has to be read back; after every other
    /// error no operation took effect.
    fn transact(&mut self, now: Time, ops: &[Op]) -> Result<Vec<Reply>, Error>;

    /// All loops by id. Never reads the journal.
    fn loops(&self) -> Result<Vec<LoopRow>, Error>;

    /// A loop by its id.
    fn get_loop(&self, id: &LoopId) -> Result<Option<LoopRow>, Error>;

    /// A task by its id.
    fn task(&self, id: &TaskId) -> Result<Option<TaskRow>, Error>;

    /// Tasks that match `filter`, newest first (then by id, largest first).
    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, Error>;

    /// Late results of a task, in the order in which they came.
    fn late_results(&self, task: &TaskId) -> Result<Vec<LateResult>, Error>;

    /// All nodes that ever sent a heartbeat, by id.
    fn nodes(&self) -> Result<Vec<NodeRow>, Error>;

    /// The last leader; the reader checks whether its lease is over.
    fn leader(&self) -> Result<Option<Leader>, Error>;

    /// Guard state of `scope`; version 0 and an empty state when it was never written.
    fn guard(&self, scope: &Scope) -> Result<Versioned, Error>;

    /// All guard states.
    fn guards(&self) -> Result<Guards, Error>;

    /// A document by kind and key.
    fn doc(&self, kind: &str, key: &str) -> Result<Option<DocRow>, Error>;

    /// All documents of a kind, by key.
    fn docs(&self, kind: &str) -> Result<Vec<DocRow>, Error>;

    /// The oldest `limit` messages for these recipients, oldest first.
    fn messages(&self, to: Recipients<'_>, limit: usize) -> Result<Vec<Message>, Error>;

    /// Tickets by id, oldest first.
    fn tickets(&self, which: Tickets) -> Result<Vec<Ticket>, Error>;

    /// All streams with their groups, by name.
    fn streams(&self) -> Result<Vec<StreamRow>, Error>;

    /// The first `limit` entries of a stream after this id.
    fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, Error>;

    /// The entry of a stream with this source and key.
    fn entry_with_key(&self, stream: &str, source: &str, key: &str) -> Result<Option<StreamEntry>, Error>;

    /// The first `limit` journal records after `after_seq`, of one loop or (`None`) of all.
    ///
    /// Every record is checked against the one before it in the journal, also when that one belongs
    /// to another loop. A damaged or missing record is [`Error::Damaged`]; nothing is skipped.
    fn journal(&self, after_seq: u64, owner: Option<&LoopId>, limit: usize) -> Result<Vec<JournalRecord>, Error>;

    /// The last `limit` journal records, oldest first; otherwise as [`Ledger::journal`].
    fn journal_tail(&self, owner: Option<&LoopId>, limit: usize) -> Result<Vec<JournalRecord>, Error>;

    /// The first `limit` journal rows after `after_seq` as they are stored, unchecked. See
    /// [`replay::replay`].
    fn journal_raw(&self, after_seq: u64, limit: usize) -> Result<Vec<Stored>, Error>;

    /// The sequence number of the last journal record; 0 when there is none.
    fn last_seq(&self) -> Result<u64, Error>;
}
