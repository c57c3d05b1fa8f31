//! A ledger in PostgreSQL: the hub of a mesh, shared by many nodes.
//!
//! - `open` makes and migrates a hub; `probe` and `rights` are for `everloop mesh hub`
//! - `batch` writes: `draft` decides on locked rows, `write` brings them back, `single_statement`
//!   is the short way
//! - `streams` has streams; `read` reads; `maintenance` reads for the leader; `mirror` restores what was lost; `columns`
//!   knows the columns
//! - `connection` is one connection, `url` its address, `tls` its encryption
//! - `beat` sends heartbeats; `listener` receives hints
//!
//! Methods stand in the same order as in SQLite's.
//!
//! Every call is bounded: 3 s to connect, 5 s for a statement, 7 s in all; then the connection is
//! dropped and the next call makes a new one. Nothing is retried that may have happened.

mod batch;
mod beat;
mod columns;
mod connection;
mod draft;
mod listener;
mod maintenance;
mod mirror;
mod open;
mod probe;
mod read;
mod rights;
mod single_statement;
mod streams;
#[cfg(test)]
mod tests;
mod tls;
mod url;
mod write;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use everloop_core::guard::{Guards, Scope, Versioned};
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::journal::{JournalRecord, Stored};
use everloop_core::mesh::rights::Rights;
use everloop_core::op::streams::StreamEntry;
use everloop_core::op::{LateResult, Message, Op, Refusal, Reply, TaskRow, Ticket};
use everloop_core::time::Time;
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;
use tokio_postgres::Row;

use crate::rows::{DocRow, Leader, LoopRow, NodeRow, Recipients, StreamRow, TaskFilter, Tickets};
use crate::{Error, Ledger};
use connection::{CALL_WITHIN, HubConnection, Statement};

pub use beat::HeartbeatReply;
pub use listener::listen;
pub use open::FORMAT;
pub use probe::Findings;
pub use rights::role_sql;
pub use url::{Door, Url};

/// Which clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubClock {
    /// The caller's: for one machine, and for tests.
    Caller,
    /// The hub's, read once in every transaction; the caller's time is ignored, since the clocks of
    /// nodes may be wrong.
    Hub,
}

/// How a hub is opened.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Address of the database, with login and TLS settings.
    pub url: Url,
    /// The clock that leases and waits are measured by.
    pub clock: HubClock,
    /// Id of the expected hub; `None` accepts any.
    pub hub: Option<String>,
}

/// Which hub is in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubIdentity {
    /// Drawn when it was made; a restored copy has the same.
    pub id: String,
    /// Format version of its tables.
    pub format: u32,
    /// The last number of its journal.
    pub last_seq: u64,
    /// What this login may write.
    pub rights: Rights,
}

/// A ledger in PostgreSQL. One connection, made again when it breaks.
pub struct Postgres {
    waiter: Waiter,
    options: HubOptions,
    /// Which hub it was when it was opened.
    id: String,
    line: Mutex<Option<HubConnection>>,
    /// The highest journal number that was seen: a hub that knows less was set back.
    highest: AtomicU64,
    /// Whether the login of the last connection was a leader's.
    leads: AtomicBool,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("options", &self.options).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Connects and checks that it is the right hub, in a known format. Changes nothing.
    pub fn open(options: HubOptions) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let (line, hub) = waiter.wait(async || {
            let line = HubConnection::connect(&options.url).await?;
            let hub = within("open the hub", open::greet(&line, &options.url)).await?;
            Ok((line, hub))
        })?;
        right_hub(options.hub.as_deref(), &hub)?;
        let (highest, leads) = (AtomicU64::new(hub.last_seq), AtomicBool::new(hub.rights == Rights::Leader));
        Ok(Self { waiter, options, id: hub.id, line: Mutex::new(Some(line)), highest, leads })
    }

    /// Which hub it is.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What its login may write, as of the last connection.
    pub fn rights(&self) -> Rights {
        if self.leads.load(Ordering::Relaxed) { Rights::Leader } else { Rights::Worker }
    }

    /// Makes a hub in the database, if there is none.
    pub fn init(url: &Url) -> Result<HubIdentity, Error> {
        once(url, "make a hub", async |line| open::init(line, url).await)
    }

    /// Brings an older hub up to date. Returns the format that it had.
    pub fn migrate(url: &Url) -> Result<u32, Error> {
        once(url, "bring the hub up to date", async |line| open::migrate(line, url).await)
    }

    /// Measures and describes a hub.
    pub fn probe(url: &Url) -> Result<Findings, Error> {
        once(url, "look at the hub", async |line| probe::look(line, url).await)
    }

    /// Runs `work` on the connection, on a new one if the old one is gone. After a failure the
    /// connection is dropped, unless the failure is a reply of the hub: its state is not worth
    /// finding out.
    fn call<T: Send>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(&HubConnection) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.waiter.wait(async || {
            let held = self.line.lock().expect("no call panics while it holds the line").take();
            let line = match held {
                Some(line) if line.is_alive().await => line,
                _ => self.connect().await?,
            };
            line.begin_call();
            let outcome = match timeout(CALL_WITHIN, work(&line)).await {
                Ok(outcome) => outcome,
                Err(late) => Err(line.too_late(doing, late)),
            };
            if matches!(outcome, Ok(_) | Err(Error::Refused(_) | Error::Damaged(_))) {
                *self.line.lock().expect("no call panics while it holds the line") = Some(line.end_call());
            }
            outcome
        })
    }

    /// A new connection, to the same hub as before and not to an older copy of it.
    async fn connect(&self) -> Result<HubConnection, Error> {
        let line = HubConnection::connect(&self.options.url).await?;
        let hub = within("look at the hub", open::greet(&line, &self.options.url)).await?;
        right_hub(Some(&self.id), &hub)?;
        let seen = self.highest.load(Ordering::Relaxed);
        if hub.last_seq < seen {
            return Err(Error::SetBack { seen, found: hub.last_seq });
        }
        self.leads.store(hub.rights == Rights::Leader, Ordering::Relaxed);
        Ok(line)
    }

    /// Remembers how far the journal was.
    fn saw(&self, seq: u64) {
        self.highest.fetch_max(seq, Ordering::Relaxed);
    }

    fn rows(&self, statement: Statement) -> Result<Vec<Row>, Error> {
        self.call(statement.doing, async move |line| line.read(statement).await)
    }

    fn all<T>(&self, statement: Statement, read: fn(&Row) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        self.rows(statement)?.iter().map(read).collect()
    }

    fn one<T>(&self, statement: Statement, read: fn(&Row) -> Result<T, Error>) -> Result<Option<T>, Error> {
        self.rows(statement)?.first().map(read).transpose()
    }
}

impl Ledger for Postgres {
    fn transact(&mut self, now: Time, ops: &[Op]) -> Result<Vec<Reply>, Error> {
        let now = match self.options.clock {
            HubClock::Caller => Some(now),
            HubClock::Hub => None,
        };
        let replies = self.call("do a batch", async |line| {
            // The hub refuses it as well; here it is said in words.
            match ops.iter().find_map(|op| self.rights().refuses(op)) {
                Some(what) => Err(Refusal::Rights { what: what.to_owned() }.into()),
                None => batch::run(line, now, ops).await,
            }
        })?;
        for reply in &replies {
            if let Reply::Appended(seq) = reply {
                self.saw(*seq);
            }
        }
        Ok(replies)
    }

    fn loops(&self) -> Result<Vec<LoopRow>, Error> {
        self.all(read::loops(), columns::loop_row)
    }

    fn get_loop(&self, id: &LoopId) -> Result<Option<LoopRow>, Error> {
        self.one(read::get_loop(id), columns::loop_row)
    }

    fn task(&self, id: &TaskId) -> Result<Option<TaskRow>, Error> {
        self.one(read::task(id), columns::task)
    }

    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, Error> {
        let mut rows = self.all(read::tasks(filter), columns::task)?;
        rows.sort_by(|a, b| (b.created_at, &b.task.id).cmp(&(a.created_at, &a.task.id)));
        rows.truncate(filter.limit);
        Ok(rows)
    }

    fn late_results(&self, task: &TaskId) -> Result<Vec<LateResult>, Error> {
        self.all(read::late_results(task), columns::late_result)
    }

    fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        self.all(read::nodes(), columns::node)
    }

    fn leader(&self) -> Result<Option<Leader>, Error> {
        self.one(read::leader(), columns::leader)
    }

    fn guard(&self, scope: &Scope) -> Result<Versioned, Error> {
        let found = self.one(read::guard(&scope.to_string()), columns::guard)?;
        Ok(found.map(|(_, versioned)| versioned).unwrap_or_default())
    }

    fn guards(&self) -> Result<Guards, Error> {
        Ok(self.all(read::guards(), columns::guard)?.into_iter().collect())
    }

    fn doc(&self, kind: &str, key: &str) -> Result<Option<DocRow>, Error> {
        self.one(read::doc(kind, key), columns::doc)
    }

    fn docs(&self, kind: &str) -> Result<Vec<DocRow>, Error> {
        self.all(read::docs(kind), columns::doc)
    }

    fn messages(&self, to: Recipients<'_>, limit: usize) -> Result<Vec<Message>, Error> {
        self.all(read::messages(to, limit), columns::message)
    }

    fn tickets(&self, which: Tickets) -> Result<Vec<Ticket>, Error> {
        self.all(read::tickets(which), columns::ticket)
    }

    fn streams(&self) -> Result<Vec<StreamRow>, Error> {
        streams::stream_rows(&self.rows(streams::streams())?)
    }

    fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, Error> {
        self.all(streams::entries(stream, after, limit), streams::entry)
    }

    fn entry_with_key(&self, stream: &str, source: &str, key: &str) -> Result<Option<StreamEntry>, Error> {
        self.one(streams::with_key([stream, source, key]), streams::entry)
    }

    fn journal(&self, after_seq: u64, owner: Option<&LoopId>, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        self.all(read::journal(after_seq, owner, limit), columns::record)
    }

    fn journal_tail(&self, owner: Option<&LoopId>, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        self.rows(read::journal_tail(owner, limit))?.iter().rev().map(columns::record).collect()
    }

    fn journal_raw(&self, after_seq: u64, limit: usize) -> Result<Vec<Stored>, Error> {
        self.all(read::journal_raw(after_seq, limit), columns::stored)
    }

    fn last_seq(&self) -> Result<u64, Error> {
        let seq = self.one(read::last_seq(), columns::seq)?.unwrap_or(0);
        self.saw(seq);
        Ok(seq)
    }
}

/// One thread is enough for one connection; it runs only while a call waits. Unlike a plain
/// runtime, it can be dropped inside of another one without a panic.
struct Waiter(Option<Runtime>);

impl Waiter {
    fn new() -> Result<Self, Error> {
        let built = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        built
            .map(|runtime| Self(Some(runtime)))
            .map_err(|e| Error::Away { doing: "wait for the hub", source: e.into() })
    }

    /// Waits for `work`, also inside of another runtime: there it takes a thread of its own
    /// meanwhile.
    fn wait<T: Send>(&self, work: impl AsyncFnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        let runtime = self.0.as_ref().expect("it is there until it is dropped");
        if Handle::try_current().is_err() {
            return runtime.block_on(work());
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| runtime.block_on(work()));
            waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn within<T>(doing: &'static str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(CALL_WITHIN, work).await.map_err(|late| Error::Away { doing, source: late.into() })?
}

/// A connection for one question.
fn once<T: Send>(
    url: &Url,
    doing: &'static str,
    work: impl AsyncFnOnce(&HubConnection) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    Waiter::new()?.wait(async || {
        let line = HubConnection::connect(url).await?;
        within(doing, work(&line)).await
    })
}

fn right_hub(expected: Option<&str>, hub: &HubIdentity) -> Result<(), Error> {
    match expected {
        Some(expected) if expected != hub.id => {
            Err(Error::OtherHub { expected: expected.to_owned(), found: hub.id.clone() })
        }
        _ => Ok(()),
    }
}
