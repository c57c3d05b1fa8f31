//! One connection to the hub: statements that need no session, sent together, within a deadline,
//! and what their failures mean.
//!
//! Nothing here outlives a transaction: no prepared statement has a name, no setting is made
//! outside of one, no lock is held by the session. So a pooler may give every transaction another
//! backend.

use std::borrow::Cow;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Connection, Row, Socket};

use super::columns::escaped;
use super::tls::Tls;
use super::url::Url;
use crate::Error;

/// A hub that does not take a connection in this time is away.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Everything about one call. Longer than the server's own limit per statement, so that its error
/// names the cause.
pub(super) const CALL_WITHIN: Duration = Duration::from_secs(7);
/// A connection that was idle this long is tested before it is used: poolers and restarts close
/// idle ones, and a batch that meets such an end would leave its outcome unknown.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// The server's limit per statement, as long as the transaction: far above the time of any
/// statement here, even on a slow disk.
pub(super) const BEGIN: &str = "begin; set local statement_timeout = 5000";
const BEGIN_READ: &str = "begin read only; set local statement_timeout = 5000";
/// `join_all` sends in order up to this many; a batch needs fewer, however long it is.
const MOST_AT_ONCE: usize = 30;

/// SQL with its parameters.
pub(super) struct Statement {
    pub(super) doing: &'static str,
    sql: Cow<'static, str>,
    params: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Statement {
    pub(super) fn new(doing: &'static str, sql: impl Into<Cow<'static, str>>) -> Self {
        Self { doing, sql: sql.into(), params: Vec::new() }
    }

    /// Returns the plan instead of the rows.
    #[cfg(test)]
    pub(super) fn explained(self) -> Self {
        Self { sql: format!("EXPLAIN {}", self.sql).into(), ..self }
    }

    fn param(mut self, value: impl ToSql + Sync + Send + 'static, kind: Type) -> Self {
        self.params.push((Box::new(value), kind));
        self
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.param(escaped(value).into_owned(), Type::TEXT)
    }

    pub(super) fn optional_text(self, value: Option<&str>) -> Self {
        self.param(value.map(|value| escaped(value).into_owned()), Type::TEXT)
    }

    pub(super) fn number(self, value: i64) -> Self {
        self.param(value, Type::INT8)
    }

    pub(super) fn optional_number(self, value: Option<i64>) -> Self {
        self.param(value, Type::INT8)
    }

    pub(super) fn texts<T: AsRef<str>>(self, values: impl IntoIterator<Item = T>) -> Self {
        let values: Vec<String> = values.into_iter().map(|v| escaped(v.as_ref()).into_owned()).collect();
        self.param(values, Type::TEXT_ARRAY)
    }

    /// Texts that are in the form of their column already.
    pub(super) fn verbatim(self, values: Vec<String>) -> Self {
        self.param(values, Type::TEXT_ARRAY)
    }

    pub(super) fn optional_texts<T: AsRef<str>>(self, values: impl IntoIterator<Item = Option<T>>) -> Self {
        let own = |v: Option<T>| v.map(|v| escaped(v.as_ref()).into_owned());
        self.param(values.into_iter().map(own).collect::<Vec<Option<String>>>(), Type::TEXT_ARRAY)
    }

    pub(super) fn numbers(self, values: impl IntoIterator<Item = i64>) -> Self {
        self.param(values.into_iter().collect::<Vec<i64>>(), Type::INT8_ARRAY)
    }

    pub(super) fn optional_numbers(self, values: impl IntoIterator<Item = Option<i64>>) -> Self {
        self.param(values.into_iter().collect::<Vec<Option<i64>>>(), Type::INT8_ARRAY)
    }
}

/// How a group of statements ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatementEnd {
    /// The transaction stays open.
    Open,
    /// It is undone.
    Undo,
    /// It is committed: from now on a broken connection leaves the outcome unknown.
    Commit,
}

/// A connection with its encryption and the state of the call.
pub(super) struct HubConnection {
    client: Client,
    driver: JoinHandle<()>,
    /// Whether it is encrypted.
    pub(super) encrypted: bool,
    /// Whether a commit was sent in this call.
    committing: Cell<bool>,
    rested: Instant,
}

impl Drop for HubConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl HubConnection {
    pub(super) async fn connect(url: &Url) -> Result<Self, Error> {
        let (client, connection, encrypted) = dial(url).await?;
        // The next call sees its end; here it concerns no caller.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { client, driver, encrypted, committing: Cell::new(false), rested: Instant::now() })
    }

    /// Whether another call can use it.
    pub(super) async fn is_alive(&self) -> bool {
        if self.client.is_closed() {
            return false;
        }
        if self.rested.elapsed() < LOOK_AFTER {
            return true;
        }
        matches!(timeout(CONNECT_WITHIN, self.client.check_connection()).await, Ok(Ok(())))
    }

    /// Marks the beginning of a call.
    pub(super) fn begin_call(&self) {
        self.committing.set(false);
    }

    /// Marks the end of a call.
    pub(super) fn end_call(mut self) -> Self {
        self.rested = Instant::now();
        self
    }

    /// What it means that the call took too long.
    pub(super) fn too_late(&self, doing: &'static str, late: tokio::time::error::Elapsed) -> Error {
        if self.committing.get() {
            Error::Unknown { doing, source: late.into() }
        } else {
            Error::Away { doing, source: late.into() }
        }
    }

    /// Sends `begin`, all of `statements` and the end at once, and waits for all replies: one round
    /// trip.
    pub(super) async fn send(
        &self,
        begin: Option<&'static str>,
        statements: &[Statement],
        end: StatementEnd,
    ) -> Result<Vec<Vec<Row>>, Error> {
        assert!(statements.len() + 2 <= MOST_AT_ONCE, "more statements than can be sent in order");
        if end == StatementEnd::Commit {
            self.committing.set(true);
        }
        let mut names = Vec::with_capacity(statements.len() + 2);
        let mut sent: Vec<Sent<'_>> = Vec::with_capacity(statements.len() + 2);
        if let Some(begin) = begin {
            names.push("begin a transaction");
            sent.push(self.plain(begin));
        }
        for statement in statements {
            names.push(statement.doing);
            sent.push(self.typed(statement));
        }
        match end {
            StatementEnd::Open => {}
            StatementEnd::Undo => {
                names.push("undo a transaction");
                sent.push(self.plain("rollback"));
            }
            StatementEnd::Commit => {
                names.push("commit a transaction");
                sent.push(self.plain("commit"));
            }
        }
        let mut rows = Vec::with_capacity(statements.len());
        for (answer, doing) in join_all(sent).await.into_iter().zip(names) {
            // The first failure is the cause of all others: from there on the transaction is
            // aborted.
            rows.push(answer.map_err(|e| failed(doing, e, end))?);
        }
        if begin.is_some() {
            rows.remove(0);
        }
        Ok(rows)
    }

    /// One statement that is a transaction by itself: one message there, one back. Only for changes
    /// that may also happen late, after the caller gave up: the server's own time limit is not set
    /// here.
    pub(super) async fn alone(&self, statement: &Statement) -> Result<Vec<Row>, Error> {
        self.committing.set(true);
        self.typed(statement).await.map_err(|e| failed(statement.doing, e, StatementEnd::Commit))
    }

    /// One read-only statement by itself: for small, frequent reads.
    pub(super) async fn ask(&self, statement: &Statement) -> Result<Vec<Row>, Error> {
        self.typed(statement).await.map_err(|e| failed(statement.doing, e, StatementEnd::Open))
    }

    /// Reads in a transaction of its own.
    pub(super) async fn read(&self, statement: Statement) -> Result<Vec<Row>, Error> {
        let doing = statement.doing;
        let sent: Vec<Sent<'_>> = vec![self.plain(BEGIN_READ), self.typed(&statement), self.plain("commit")];
        let mut answers = join_all(sent).await.into_iter();
        let mut next =
            || answers.next().expect("one answer for each").map_err(|e| failed(doing, e, StatementEnd::Open));
        next()?;
        next()
    }

    /// Undoes what was not committed.
    pub(super) async fn rollback(&self) -> Result<(), Error> {
        self.script("undo a transaction", "rollback").await
    }

    /// Several statements in one text, without parameters.
    pub(super) async fn script(&self, doing: &'static str, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await.map_err(|e| failed(doing, e, StatementEnd::Open))
    }

    fn plain<'a>(&'a self, sql: &'a str) -> Sent<'a> {
        Box::pin(async move { self.client.batch_execute(sql).await.map(|()| Vec::new()) })
    }

    fn typed<'a>(&'a self, statement: &'a Statement) -> Sent<'a> {
        Box::pin(async move {
            let params: Vec<(&(dyn ToSql + Sync), Type)> =
                statement.params.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
            self.client.query_typed(&statement.sql, &params).await
        })
    }
}

/// A new connection, which the caller has to drive, and whether it is encrypted.
pub(super) async fn dial(url: &Url) -> Result<(Client, Driven, bool), Error> {
    let doing = "connect";
    url.safe()?;
    let tls = Tls::new(&url.trust)?;
    let mut config = url.config.clone();
    config.application_name("everloop").connect_timeout(CONNECT_WITHIN);
    let connected = timeout(CONNECT_WITHIN, config.connect(tls.clone())).await;
    let connected = connected.map_err(|late| Error::Away { doing, source: late.into() })?;
    let (client, connection) = connected.map_err(|e| match e {
        e if is_unproven(&e) => Error::Denied { doing, source: Box::new(e) },
        e => failed(doing, e, StatementEnd::Open),
    })?;
    Ok((client, connection, tls.was_used()))
}

/// Whether the login failed on this side: no channel binding although the address requires it, or a
/// server that cannot prove that it knows the password. Another attempt meets the same. The library
/// has no code for it, only its message.
fn is_unproven(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_none() && error.to_string().starts_with("authentication error")
}

type Driven = Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>;

type Sent<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + 'a>>;

/// What a failure means. An error of a statement aborts its transaction: nothing happened. After an
/// error that ends the connection, the outcome of a commit that was sent before is unknown.
pub(super) fn failed(doing: &'static str, error: tokio_postgres::Error, end: StatementEnd) -> Error {
    let broken = |source: tokio_postgres::Error| match end {
        StatementEnd::Open | StatementEnd::Undo => Error::Away { doing, source: source.into() },
        StatementEnd::Commit => Error::Unknown { doing, source: source.into() },
    };
    let Some(said) = error.as_db_error() else {
        return match end {
            // Before anything was sent: bad settings, a failed TLS handshake, a name that does not
            // resolve.
            _ if error.is_closed() || std::error::Error::source(&error).is_some() => broken(error),
            _ => Error::Hub { doing, source: Box::new(error) },
        };
    };
    // A server that panics at the commit because its disk is full may have it in its log.
    if end == StatementEnd::Commit && is_over(said) {
        return broken(error);
    }
    let code = said.code();
    if *code == SqlState::DISK_FULL {
        return Error::Full { doing };
    }
    if [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE].contains(code) {
        return Error::Busy { doing };
    }
    if is_denial(code) {
        return Error::Denied { doing, source: Box::new(error) };
    }
    if is_over(said) { broken(error) } else { Error::Hub { doing, source: Box::new(error) } }
}

fn is_denial(code: &SqlState) -> bool {
    [
        SqlState::INVALID_PASSWORD,
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        SqlState::INVALID_CATALOG_NAME,
        SqlState::INSUFFICIENT_PRIVILEGE,
    ]
    .contains(code)
}

/// Whether the connection ended with this: shutdown, too many connections, a crash of the server.
fn is_over(said: &DbError) -> bool {
    // A pooler reports what is wrong behind it as an error of class 08.
    matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) || said.code().code().starts_with("08")
}

/// Whether nothing happened and the same may be tried again: another transaction was in the way.
pub(super) fn is_transient(error: &Error) -> bool {
    let Error::Hub { source, .. } = error else { return false };
    let again = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION];
    source.code().is_some_and(|code| again.contains(code))
}

/// Whether `everloop.finish` found a task that is not held under its fence; nothing happened then.
pub(super) fn is_not_held(error: &Error) -> bool {
    let Error::Hub { source, .. } = error else { return false };
    source.code().is_some_and(|code| code.code() == "EL001")
}

/// Whether the tables are not there.
pub(super) fn is_missing(error: &Error) -> bool {
    let Error::Hub { source, .. } = error else { return false };
    source.code().is_some_and(|code| [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code))
}
