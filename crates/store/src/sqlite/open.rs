//! Opens the file, configures the connection, and migrates old formats.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::sql;
use crate::{Durability, Error, durability};

/// One script per format, oldest first. A shipped one is never edited.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/sqlite/0001_init.sql"),
    include_str!("../../migrations/sqlite/0002_docs.sql"),
    include_str!("../../migrations/sqlite/0003_chain.sql"),
    include_str!("../../migrations/sqlite/0004_streams.sql"),
    include_str!("../../migrations/sqlite/0005_sleepers.sql"),
];

/// The newest supported ledger format, kept in the file's `user_version`.
pub const FORMAT: u32 = MIGRATIONS.len() as u32;

/// How long to wait for another process: far above any batch of everloop, below what a person takes
/// for a hang.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// More than the distinct statements of this crate, so that each is compiled once.
const STATEMENTS_KEPT: usize = 64;

/// WAL, and by [`crate::durability`] a full sync per commit: a reply means that the batch is on
/// disk. The page cache is 1 MiB, because the supervisor must stay small and its working set is a
/// few rows. A WAL that grew under a long read is cut back to 4 MiB.
const WRITER_SETTINGS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA cache_size = -1024;
    PRAGMA journal_size_limit = 4194304;
";

const READER_SETTINGS: &str = "
    PRAGMA query_only = ON;
    PRAGMA cache_size = -1024;
";

/// Opens the file for writing, creates it when it is missing, migrates it when it is old.
pub(super) fn writer(path: &Path) -> Result<Connection, Error> {
    make_private_file(path)?;
    let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Before anything is written: the file of a newer everloop stays untouched.
    refuse_newer(path, format_of(&conn).map_err(cannot_open(path))?)?;
    conn.execute_batch(WRITER_SETTINGS).map_err(cannot_open(path))?;
    let sync = match durability() {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", sync).map_err(cannot_open(path))?;
    migrate(&mut conn, path)?;
    Ok(conn)
}

/// Opens the file for reading; never creates or migrates it.
pub(super) fn reader(path: &Path) -> Result<Connection, Error> {
    // Checks the folder, not the file: opening and closing it here could drop locks of this
    // process.
    if !path.exists() {
        return Err(Error::Missing { path: path.to_owned() });
    }
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.execute_batch(READER_SETTINGS).map_err(cannot_open(path))?;
    let found = format_of(&conn).map_err(cannot_open(path))?;
    refuse_newer(path, found)?;
    match found {
        0 => Err(Error::Missing { path: path.to_owned() }),
        found if found < FORMAT => Err(Error::Older { path: path.to_owned(), found, known: FORMAT }),
        _ => Ok(conn),
    }
}

/// A ledger without a file.
pub(super) fn in_memory() -> Result<Connection, Error> {
    let path = Path::new(":memory:");
    let mut conn = Connection::open_in_memory().map_err(cannot_open(path))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    migrate(&mut conn, path)?;
    Ok(conn)
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, Error> {
    // NO_MUTEX: one thread at a time owns `Sqlite`, which the borrow checker guarantees.
    let conn =
        Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(cannot_open(path))?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(cannot_open(path))?;
    // Plans never depend on the values of one call; otherwise statements would be compiled again,
    // several in every turn.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(cannot_open(path))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    Ok(conn)
}

/// Creates an empty file that only its owner can read. SQLite gives the WAL the same mode, and
/// syncs the folder when it creates the WAL in it, which covers this file's name too. An existing
/// file is not opened.
fn make_private_file(path: &Path) -> Result<(), Error> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(Error::Open { path: path.to_owned(), source: e.into() }),
    }
}

/// Runs the missing migrations in one transaction. The format is read again inside, since another
/// process may have been first.
fn migrate(conn: &mut Connection, path: &Path) -> Result<(), Error> {
    if format_of(conn).map_err(cannot_open(path))? == FORMAT {
        return Ok(());
    }
    let doing = "bring the ledger up to date";
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql(doing))?;
    let found = format_of(&tx).map_err(sql(doing))?;
    refuse_newer(path, found)?;
    for script in &MIGRATIONS[found as usize..] {
        tx.execute_batch(script).map_err(sql(doing))?;
    }
    tx.pragma_update(None, "user_version", FORMAT).map_err(sql(doing))?;
    tx.commit().map_err(sql(doing))
}

fn format_of(conn: &Connection) -> Result<u32, rusqlite::Error> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn refuse_newer(path: &Path, found: u32) -> Result<(), Error> {
    if found > FORMAT {
        return Err(Error::Newer { path: path.to_owned(), found, known: FORMAT });
    }
    Ok(())
}

fn cannot_open(path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    move |source| Error::Open { path: path.to_owned(), source: source.into() }
}
