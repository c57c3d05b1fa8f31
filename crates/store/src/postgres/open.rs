//! Makes a hub out of an empty database, brings an old one up to date, and refuses a wrong one.

use everloop_core::mesh::rights::Rights;

use super::connection::{BEGIN, HubConnection, Statement, StatementEnd, is_missing};
use super::url::Url;
use super::{HubIdentity, columns};
use crate::Error;

/// One script per format, oldest first. A shipped one is never edited.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_init.sql"),
    include_str!("../../migrations/postgres/0002_docs.sql"),
    include_str!("../../migrations/postgres/0003_functions.sql"),
    include_str!("../../migrations/postgres/0004_beat.sql"),
    include_str!("../../migrations/postgres/0005_keys.sql"),
    include_str!("../../migrations/postgres/0006_rights.sql"),
    include_str!("../../migrations/postgres/0007_done.sql"),
    include_str!("../../migrations/postgres/0008_streams.sql"),
];

/// The newest hub format known here, kept in `everloop.hub`.
pub const FORMAT: u32 = MIGRATIONS.len() as u32;

/// Two processes that make the same hub at once wait for each other; nothing else uses the number.
/// The lock ends with the transaction.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(7310583426113825107)";

/// The hub in the database; refuses one that this everloop cannot work with.
pub(super) async fn greet(line: &HubConnection, url: &Url) -> Result<HubIdentity, Error> {
    let hub = look(line).await?.ok_or_else(|| Error::Missing { path: url.to_string().into() })?;
    let (path, found, known) = (url.to_string().into(), hub.format, FORMAT);
    match found.cmp(&FORMAT) {
        std::cmp::Ordering::Less => Err(Error::Older { path, found, known }),
        std::cmp::Ordering::Equal => Ok(hub),
        std::cmp::Ordering::Greater => Err(Error::Newer { path, found, known }),
    }
}

/// `None` when there is no hub in the database.
pub(super) async fn look(line: &HubConnection) -> Result<Option<HubIdentity>, Error> {
    let statement = Statement::new(
        "look at the hub",
        "SELECT h.id, h.format, (SELECT value FROM everloop.heads WHERE name = 'journal') AS seq,
                has_table_privilege('everloop.leader', 'UPDATE') AS leads FROM everloop.hub h",
    );
    let rows = match line.read(statement).await {
        Ok(rows) => rows,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(row) = rows.first() else { return Ok(None) };
    let read = || -> Result<HubIdentity, tokio_postgres::Error> {
        let seq: Option<i64> = row.try_get("seq")?;
        Ok(HubIdentity {
            id: row.try_get("id")?,
            format: row.try_get::<_, i32>("format")? as u32,
            last_seq: seq.unwrap_or(0) as u64,
            rights: if row.try_get("leads")? { Rights::Leader } else { Rights::Worker },
        })
    };
    read().map(Some).map_err(columns::shape("the hub's row"))
}

/// Makes the tables if there are none. An older hub stays as it is: [`migrate`] changes it.
pub(super) async fn init(line: &HubConnection, url: &Url) -> Result<HubIdentity, Error> {
    if look(line).await?.is_none() {
        bring_forward(line, url, MIGRATIONS).await?;
    }
    greet(line, url).await
}

/// Brings an older hub up to date; changes nothing in a current one. Returns the format that it
/// had.
pub(super) async fn migrate(line: &HubConnection, url: &Url) -> Result<u32, Error> {
    let Some(hub) = look(line).await? else { return Err(Error::Missing { path: url.to_string().into() }) };
    bring_forward(line, url, MIGRATIONS).await?;
    Ok(hub.format)
}

/// Runs the missing scripts in one transaction. The format is read inside, since another process
/// may have been first.
pub(super) async fn bring_forward(line: &HubConnection, url: &Url, scripts: &[&str]) -> Result<(), Error> {
    let doing = "bring the hub up to date";
    let known = scripts.len() as u32;
    let lock = [Statement::new(doing, ONE_AT_A_TIME)];
    line.send(Some(BEGIN), &lock, StatementEnd::Open).await?;
    line.script(doing, "CREATE SCHEMA IF NOT EXISTS everloop").await?;
    let there = [Statement::new(doing, "SELECT to_regclass('everloop.hub') IS NOT NULL AS there")];
    let there = line.send(None, &there, StatementEnd::Open).await?;
    let there: bool =
        there[0].first().map_or(Ok(false), |row| row.try_get("there")).map_err(columns::shape("the hub"))?;
    let found = if there {
        let format = [Statement::new(doing, "SELECT format FROM everloop.hub")];
        let rows = line.send(None, &format, StatementEnd::Open).await?;
        let format = rows[0].first().map_or(Ok(0), |row| row.try_get::<_, i32>("format"));
        format.map_err(columns::shape("the hub's row"))? as u32
    } else {
        0
    };
    if found > known {
        line.rollback().await?;
        return Err(Error::Newer { path: url.to_string().into(), found, known });
    }
    for script in &scripts[found as usize..] {
        line.script(doing, script).await?;
    }
    let mark = Statement::new(
        doing,
        "INSERT INTO everloop.hub (single, id, format, made_at)
         VALUES (1, gen_random_uuid()::text, $1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
         ON CONFLICT (single) DO UPDATE SET format = excluded.format",
    );
    line.send(None, &[mark.number(i64::from(known))], StatementEnd::Commit).await?;
    Ok(())
}
