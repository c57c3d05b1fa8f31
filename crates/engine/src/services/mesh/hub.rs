//! The database that the nodes of a mesh share: its address, and whether it can be used.

use std::path::PathBuf;

use everloop_core::mesh::rights::Rights;
use everloop_store::Postgres;
use everloop_store::postgres::{FORMAT, Findings, Url};
use serde::Serialize;

use crate::error::Failure;

/// The oldest server version that is tested.
const OLDEST_SERVER: u32 = 130_000;
/// A larger clock difference makes times in logs hard to compare; leases count by the hub's clock
/// alone.
const CLOCK_OFF_MS: i64 = 2_000;

/// Where the address of a hub is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubSource {
    /// A variable of the environment.
    Env(String),
    /// The first line of a file.
    File(PathBuf),
}

/// Reads the address where the configuration names its place. It may hold a password: it goes
/// nowhere but into the connection and a private file.
pub fn read_address(source: Option<HubSource>) -> Result<String, Failure> {
    let text = match source {
        None => {
            return Err(Failure::config("the address of the hub is not set")
                .hint("set EVERLOOP_HUB_URL, or `url_env` or `url_file` in `[hub]` of everloop.toml"));
        }
        Some(HubSource::Env(name)) => std::env::var(&name).map_err(|_| {
            Failure::config(format!("`[hub]` names the variable `{name}`, which is not set"))
                .hint(format!("set {name}"))
        })?,
        Some(HubSource::File(path)) => {
            let cannot = format!("cannot read the address of the hub from `{}`", path.display());
            std::fs::read_to_string(&path).map_err(|e| Failure::config(cannot).because(&e))?
        }
    };
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HubLevel {
    Ok,
    Warn,
    Fail,
}

/// One checked item of a hub.
#[derive(Clone, Debug, Serialize)]
pub struct HubFinding {
    pub what: &'static str,
    pub level: HubLevel,
    /// Text that is not trusted.
    pub text: String,
    /// The remedy of a problem.
    pub hint: Option<&'static str>,
}

impl HubFinding {
    fn new(what: &'static str, text: String, problem: Option<(HubLevel, &'static str)>) -> Self {
        let (level, hint) = problem.map_or((HubLevel::Ok, None), |(level, hint)| (level, Some(hint)));
        Self { what, level, text, hint }
    }
}

/// The state of a hub.
#[derive(Clone, Debug, Serialize)]
pub struct HubCheck {
    /// Whether it can be used.
    pub ok: bool,
    /// Without its password.
    pub url: String,
    pub server_version: String,
    pub door: Option<&'static str>,
    pub pooled: bool,
    pub encrypted: bool,
    pub verified: bool,
    /// Its id, if there is one in the database.
    pub hub: Option<String>,
    pub format: Option<u32>,
    pub rights: Option<Rights>,
    pub round_trip_ms: f64,
    /// How far its clock is ahead of this machine's.
    pub clock_offset_ms: i64,
    /// Rights that the login lacks.
    pub lacking: Vec<String>,
    pub findings: Vec<HubFinding>,
}

/// Looks at a hub; changes nothing.
pub fn check(url: &Url) -> Result<HubCheck, Failure> {
    let found = Postgres::probe(url)?;
    let findings = judge(url, &found);
    Ok(HubCheck {
        ok: !findings.iter().any(|finding| finding.level == HubLevel::Fail),
        url: url.to_string(),
        door: url.door().words(),
        pooled: found.pooled,
        encrypted: found.encrypted,
        verified: url.is_verified(),
        hub: found.hub.as_ref().map(|hub| hub.id.clone()),
        format: found.hub.as_ref().map(|hub| hub.format),
        rights: found.hub.as_ref().map(|hub| hub.rights),
        round_trip_ms: found.round_trip.as_secs_f64() * 1e3,
        clock_offset_ms: found.clock_offset_ms,
        server_version: found.server_version,
        lacking: found.lacking,
        findings,
    })
}

/// A hub whose format is the current one.
#[derive(Clone, Debug, Serialize)]
pub struct MigratedHub {
    /// The format that was found.
    pub from: u32,
    pub format: u32,
    /// Without its password.
    pub url: String,
}

/// Migrates an older hub to the current format.
pub fn migrate(url: &Url) -> Result<MigratedHub, Failure> {
    Ok(MigratedHub { from: Postgres::migrate(url)?, format: FORMAT, url: url.to_string() })
}

/// A hub that can be joined.
#[derive(Clone, Debug, Serialize)]
pub struct CreatedHub {
    pub hub: String,
    pub format: u32,
    /// Without its password.
    pub url: String,
}

/// Creates the tables of a hub if there are none.
pub fn create(url: &Url) -> Result<CreatedHub, Failure> {
    let made = Postgres::init(url)?;
    Ok(CreatedHub { hub: made.id, format: made.format, url: url.to_string() })
}

fn judge(url: &Url, found: &Findings) -> Vec<HubFinding> {
    let finding = HubFinding::new;
    let fail = |wrong: bool, hint: &'static str| wrong.then_some((HubLevel::Fail, hint));
    let warn = |wrong: bool, hint: &'static str| wrong.then_some((HubLevel::Warn, hint));
    let mut all = vec![finding("address", url.to_string(), None)];
    let old = fail(found.server_number < OLDEST_SERVER, "use PostgreSQL 13 or newer");
    all.push(finding("server", format!("PostgreSQL {}", found.server_version), old));
    let encoding = fail(found.encoding != "UTF8", "create the database again with the encoding UTF8");
    all.push(finding("texts", found.encoding.clone(), encoding));
    all.push(finding("door", door(url, found), None));
    all.push(encryption(url, found));
    if found.read_only {
        all.push(finding("writing", "read-only".to_owned(), fail(true, "use the address of the primary server")));
    }
    all.push(match &found.hub {
        None => finding("hub", "missing".to_owned(), fail(true, "everloop mesh hub init")),
        Some(hub) => {
            let newer = fail(hub.format > FORMAT, "use the everloop that created it, or a newer one");
            let bad = newer.or_else(|| fail(hub.format < FORMAT, "everloop mesh hub migrate"));
            finding("hub", format!("`{}`, format {} of {FORMAT}", hub.id, hub.format), bad)
        }
    });
    if let Some(hub) = &found.hub {
        let (enough, hint) = match hub.rights {
            Rights::Leader => ("all that a node needs", "grant what is missing: everloop mesh hub init --print-sql"),
            Rights::Worker => (
                "all that a worker needs; it cannot lead, nor make, change or stop loops",
                "grant what is missing: everloop mesh hub init --print-sql --worker (without --worker for one that leads)",
            ),
        };
        let text = if found.lacking.is_empty() { enough.to_owned() } else { found.lacking.join(", ") };
        all.push(finding("rights", text, fail(!found.lacking.is_empty(), hint)));
    }
    all.push(finding("round trip", format!("{:.1} ms", found.round_trip.as_secs_f64() * 1e3), None));
    let off = warn(found.clock_offset_ms.abs() > CLOCK_OFF_MS, "set this machine's clock; leases count by the hub's");
    all.push(finding("clock", format!("the hub's clock is {} ms ahead of this one", found.clock_offset_ms), off));
    all
}

fn door(url: &Url, found: &Findings) -> String {
    let seen = if found.pooled {
        "a pooler in transaction mode: every transaction may use another backend, which everloop supports"
    } else {
        "direct, or a pooler that keeps sessions"
    };
    match url.door().words() {
        Some(words) => format!("{words}; seen: {seen}"),
        None => seen.to_owned(),
    }
}

fn encryption(url: &Url, found: &Findings) -> HubFinding {
    let (text, bad) = match (found.encrypted, url.is_verified(), url.is_local()) {
        (true, true, _) => ("TLS, the server's identity is verified", None),
        (true, false, true) => ("TLS", None),
        (true, false, false) => ("TLS, but the server's identity is not verified", Some("add `sslmode=verify-full`")),
        (false, _, true) => ("none, on this machine", None),
        (false, _, false) => ("none: traffic can be read and changed on the way", Some("add `sslmode=verify-full`")),
    };
    HubFinding::new("encryption", text.to_owned(), bad.map(|hint| (HubLevel::Warn, hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_before_postgresql_13_are_refused() {
        let failures = |server_number| {
            let found = Findings {
                server_version: "x".to_owned(),
                server_number,
                encoding: "UTF8".to_owned(),
                encrypted: false,
                pooled: false,
                read_only: false,
                hub: None,
                round_trip: std::time::Duration::ZERO,
                clock_offset_ms: 0,
                lacking: Vec::new(),
            };
            let url = Url::parse("postgres://me@127.0.0.1/x").expect("a plain address");
            let failed = judge(&url, &found).into_iter().filter(|f| f.level == HubLevel::Fail);
            failed.map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert_eq!(failures(129_999), ["server", "hub"]);
        assert_eq!(failures(130_000), ["hub"]);
    }
}
