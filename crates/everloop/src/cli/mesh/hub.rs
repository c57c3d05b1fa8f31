//! `everloop mesh hub`: the database that the nodes of a mesh share. Creates, checks and migrates
//! it.

use everloop_core::mesh::rights::Rights;
use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::HubAddress;
use everloop_store::Postgres;
use everloop_store::postgres::{FORMAT, Findings, Url, role_sql};
use serde_json::json;

use crate::cli::{VerbSession, config as config_verb};
use crate::config::{ConfigError, HubSource};
use crate::ui::text::clean;

const HELP: &str = "Examples:
  EVERLOOP_HUB_URL='postgres://admin:…@db.example.com/loops?sslmode=verify-full' everloop mesh hub init
  everloop mesh hub init --print-sql | psql …
  everloop mesh hub init --print-sql --worker --role laptops | psql …
  everloop mesh hub check --json

The address is taken from --url, EVERLOOP_HUB_URL, or `[hub]` of everloop.toml (`url_env` or `url_file`), in this order.
Others on this machine can see --url in the list of processes.

`check` exits with 0 when the hub can be used, 6 when it is away, 7 when it refuses access, 1 for any other problem.";

/// The oldest server version that is tested.
const OLDEST_SERVER: u32 = 130_000;
/// A larger clock difference makes times in logs hard to compare; leases count by the hub's clock
/// alone.
const CLOCK_OFF_MS: i64 = 2_000;

/// Works on the hub: the schema `everloop` of a PostgreSQL database.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct HubArgs {
    /// The address of the hub: postgres://USER:PASSWORD@HOST:PORT/DATABASE
    #[arg(long, global = true, env = "EVERLOOP_HUB_URL", value_name = "URL", hide_env_values = true)]
    url: Option<String>,

    /// Accept a hub beyond this machine although its identity is not verified
    #[arg(long, global = true)]
    insecure_hub: bool,

    /// What to do with the hub
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `hub`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Create the tables if there are none
    Init {
        /// Only print the SQL of a role with no more rights than a node needs
        #[arg(long)]
        print_sql: bool,
        /// The name of that role [default: everloop_node, or everloop_worker]
        #[arg(long, value_name = "NAME", requires = "print_sql")]
        role: Option<String>,
        /// Of a role for nodes that work on tasks and never lead
        #[arg(long, requires = "print_sql")]
        worker: bool,
    },
    /// Show the state of the hub and whether it can be used
    Check,
    /// Migrate an older hub to the current format
    Migrate,
}

pub fn hub(args: &HubArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match &args.what {
        What::Init { print_sql: true, role, worker } => {
            let (rights, usual) =
                if *worker { (Rights::Worker, "everloop_worker") } else { (Rights::Leader, "everloop_node") };
            let role = role.as_deref().unwrap_or(usual);
            let sql = role_sql(role, rights);
            let told = json!({ "role": role, "rights": rights, "sql": sql });
            session.ui.answer(std::slice::from_ref(&sql), &told)?;
            Ok(Code::Ok)
        }
        What::Init { print_sql: false, .. } => init(&address(args, session)?, session),
        What::Check => check(&address(args, session)?, session),
        What::Migrate => migrate(&address(args, session)?, session),
    }
}

/// The address, from the flag, the environment or the configuration.
fn address(args: &HubArgs, session: &VerbSession) -> Result<Url, Failure> {
    HubAddress { text: address_text(args.url.as_deref(), session)?, unverified: args.insecure_hub }.url()
}

/// The same as it was written. It may hold a password: it goes nowhere but into the connection and
/// a private file.
pub(super) fn address_text(url: Option<&str>, session: &VerbSession) -> Result<String, Failure> {
    if let Some(url) = url {
        return Ok(url.trim().to_owned());
    }
    let config = config_verb::load(session)?;
    let source = config.hub(&config_verb::this_moment(session)).map_err(ConfigError::from)?;
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

fn init(url: &Url, session: &VerbSession) -> Result<Code, Failure> {
    let hub = Postgres::init(url)?;
    let lines = [
        format!("the hub `{}` is ready at {url} (format {})", hub.id, hub.format),
        "nodes need fewer rights than this role: everloop mesh hub init --print-sql".to_owned(),
        "nodes that never lead need fewer still: everloop mesh hub init --print-sql --worker".to_owned(),
    ];
    session.ui.answer(&lines, &json!({ "hub": hub.id, "format": hub.format, "url": url.to_string() }))?;
    Ok(Code::Ok)
}

fn migrate(url: &Url, session: &VerbSession) -> Result<Code, Failure> {
    let found = Postgres::migrate(url)?;
    let said = if found == FORMAT {
        format!("the hub at {url} is up to date (format {FORMAT})")
    } else {
        format!("the hub at {url} went from format {found} to {FORMAT}")
    };
    session.ui.answer(&[said], &json!({ "from": found, "format": FORMAT, "url": url.to_string() }))?;
    Ok(Code::Ok)
}

/// One line of the answer.
struct Finding {
    what: &'static str,
    text: String,
    /// The problem and its remedy.
    bad: Option<Bad>,
}

enum Bad {
    /// A warning with its remedy.
    Warning(String),
    /// A failure with its remedy.
    Failure(String),
}

fn check(url: &Url, session: &VerbSession) -> Result<Code, Failure> {
    let found = Postgres::probe(url)?;
    let findings = judge(url, &found);
    let failed = findings.iter().any(|f| matches!(f.bad, Some(Bad::Failure(_))));
    let told: Vec<_> = findings.iter().map(to_json).collect();
    let paint = session.ui.paint();
    let mut lines = Vec::new();
    for finding in &findings {
        let (mark, hint) = match &finding.bad {
            None => (paint.good("ok   "), None),
            Some(Bad::Warning(hint)) => (paint.warn("warn "), Some(hint)),
            Some(Bad::Failure(hint)) => (paint.bad("fail "), Some(hint)),
        };
        lines.push(format!("{mark} {:<11} {}", finding.what, clean(&finding.text)));
        lines.extend(hint.map(|hint| format!("                  hint: {hint}")));
    }
    let answer = json!({
        "ok": !failed,
        "url": url.to_string(),
        "server_version": found.server_version,
        "door": url.door().words(),
        "pooled": found.pooled,
        "encrypted": found.encrypted,
        "verified": url.is_verified(),
        "hub": found.hub.as_ref().map(|hub| &hub.id),
        "format": found.hub.as_ref().map(|hub| hub.format),
        "rights": found.hub.as_ref().map(|hub| hub.rights),
        "round_trip_ms": found.round_trip.as_secs_f64() * 1e3,
        "clock_offset_ms": found.clock_offset_ms,
        "lacking": found.lacking,
        "findings": told,
    });
    session.ui.answer(&lines, &answer)?;
    Ok(if failed { Code::Failed } else { Code::Ok })
}

fn to_json(finding: &Finding) -> serde_json::Value {
    let (level, hint) = match &finding.bad {
        None => ("ok", None),
        Some(Bad::Warning(hint)) => ("warn", Some(hint)),
        Some(Bad::Failure(hint)) => ("fail", Some(hint)),
    };
    json!({ "what": finding.what, "level": level, "text": finding.text, "hint": hint })
}

fn judge(url: &Url, found: &Findings) -> Vec<Finding> {
    let finding = |what, text: String, bad| Finding { what, text, bad };
    let fail = |wrong: bool, hint: &str| wrong.then(|| Bad::Failure(hint.to_owned()));
    let warn = |wrong: bool, hint: &str| wrong.then(|| Bad::Warning(hint.to_owned()));
    let mut all = vec![finding("address", url.to_string(), None)];
    let old = fail(found.server_number < OLDEST_SERVER, "use PostgreSQL 13 or newer");
    all.push(finding("server", format!("PostgreSQL {}", found.server_version), old));
    let encoding = fail(found.encoding != "UTF8", "create the database again with the encoding UTF8");
    all.push(finding("texts", found.encoding.clone(), encoding));
    all.push(finding("door", door(url, found), None));
    all.push(encryption(url, found));
    if found.read_only {
        let hint = "use the address of the primary server".to_owned();
        all.push(finding("writing", "read-only".to_owned(), Some(Bad::Failure(hint))));
    }
    all.push(match &found.hub {
        None => finding("hub", "missing".to_owned(), Some(Bad::Failure("everloop mesh hub init".to_owned()))),
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

fn encryption(url: &Url, found: &Findings) -> Finding {
    let (text, bad) = match (found.encrypted, url.is_verified(), url.is_local()) {
        (true, true, _) => ("TLS, the server's identity is verified", None),
        (true, false, true) => ("TLS", None),
        (true, false, false) => ("TLS, but the server's identity is not verified", Some("add `sslmode=verify-full`")),
        (false, _, true) => ("none, on this machine", None),
        (false, _, false) => ("none: traffic can be read and changed on the way", Some("add `sslmode=verify-full`")),
    };
    Finding { what: "encryption", text: text.to_owned(), bad: bad.map(|hint| Bad::Warning(hint.to_owned())) }
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
            let failed = judge(&url, &found).into_iter().filter(|f| matches!(f.bad, Some(Bad::Failure(_))));
            failed.map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert_eq!(failures(129_999), ["server", "hub"]);
        assert_eq!(failures(130_000), ["hub"]);
    }
}
