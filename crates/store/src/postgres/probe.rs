//! The properties of a hub, for `everloop mesh hub check`. Measures them; never trusts the address.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::connection::{HubConnection, Statement};
use super::open;
use super::url::Url;
use super::{HubIdentity, columns, rights};
use crate::Error;

/// Measured round trips; the shortest is the latency, the rest is other load.
const SAMPLES: u32 = 5;
/// Times that two connections read their backend's id in turn. A pooler that gives every
/// transaction any backend shows at the first or second time.
const TURNS: u32 = 4;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// As the server reports it, for example `15.14`.
    pub server_version: String,
    /// As a number, for example 150014.
    pub server_number: u32,
    /// The server's text encoding; everloop needs `UTF8`.
    pub encoding: String,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Whether every transaction may be served by another backend.
    pub pooled: bool,
    /// Whether the server only allows reads.
    pub read_only: bool,
    /// The hub in the database; `None` when there is none.
    pub hub: Option<HubIdentity>,
    /// The shortest measured round trip.
    pub round_trip: Duration,
    /// How far the hub's clock is ahead of ours, in milliseconds.
    pub clock_offset_ms: i64,
    /// Rights that a login of its kind lacks; empty without a hub in the database.
    pub lacking: Vec<String>,
}

/// Measures a hub.
pub(super) async fn look(line: &HubConnection, url: &Url) -> Result<Findings, Error> {
    let about = Statement::new(
        "read the server's version",
        "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::bigint AS number,
                current_setting('server_encoding') AS encoding,
                current_setting('default_transaction_read_only') = 'on' OR pg_is_in_recovery() AS read_only",
    );
    let rows = line.read(about).await?;
    let row = rows.first().ok_or_else(|| silent("the server"))?;
    let (round_trip, clock_offset_ms) = clock(line).await?;
    let hub = open::look(line).await?;
    let lacking = match &hub {
        Some(hub) => rights::lacking(line, hub.rights).await?,
        None => Vec::new(),
    };
    let pooled = is_pooled(line, url).await?;
    let read = || -> Result<Findings, tokio_postgres::Error> {
        Ok(Findings {
            server_version: row.try_get("version")?,
            server_number: row.try_get::<_, i64>("number")? as u32,
            encoding: row.try_get("encoding")?,
            encrypted: line.encrypted,
            pooled,
            read_only: row.try_get("read_only")?,
            hub,
            round_trip,
            clock_offset_ms,
            lacking,
        })
    };
    read().map_err(columns::shape("the server's settings"))
}

fn silent(what: &str) -> Error {
    Error::Unreadable { what: what.to_owned(), why: "the reply is empty".to_owned() }
}

/// The shortest round trip, and the hub's clock at its middle.
async fn clock(line: &HubConnection) -> Result<(Duration, i64), Error> {
    let mut best = (Duration::MAX, 0);
    for _ in 0..SAMPLES {
        let sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
        let (wall, start) = (SystemTime::now(), Instant::now());
        let rows = line.read(Statement::new("read the hub's clock", sql)).await?;
        let took = start.elapsed();
        let hub: i64 = rows.first().map_or(Ok(0), |row| row.try_get("now")).map_err(columns::shape("the clock"))?;
        let ours = (wall + took / 2).duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        if took < best.0 {
            best = (took, hub - ours);
        }
    }
    Ok(best)
}

/// Two open connections to a server have two backends, always the same two. Everything else is a
/// pooler that gives a backend to a transaction.
async fn is_pooled(line: &HubConnection, url: &Url) -> Result<bool, Error> {
    let other = HubConnection::connect(url).await?;
    let mut seen: Vec<[i32; 2]> = Vec::new();
    for _ in 0..TURNS {
        seen.push([backend(line).await?, backend(&other).await?]);
    }
    Ok(seen.iter().any(|[ours, others]| ours == others) || seen.iter().any(|pair| *pair != seen[0]))
}

async fn backend(line: &HubConnection) -> Result<i32, Error> {
    let rows = line.read(Statement::new("read the backend's id", "SELECT pg_backend_pid() AS pid")).await?;
    rows.first().map_or(Ok(0), |row| row.try_get("pid")).map_err(columns::shape("a backend"))
}
