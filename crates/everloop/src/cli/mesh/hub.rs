//! `everloop mesh hub`: the database that the nodes of a mesh share. Creates, checks and migrates
//! it.

use everloop_core::mesh::rights::Rights;
use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::HubAddress;
use everloop_engine::services::mesh::hub::{self as service, HubLevel, MigratedHub, read_address};
use everloop_store::postgres::{Url, role_sql};
use serde_json::json;

use crate::cli::{VerbSession, config as config_verb};
use crate::config::ConfigError;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  EVERLOOP_HUB_URL='postgres://admin:…@db.example.com/loops?sslmode=verify-full' everloop mesh hub init
  everloop mesh hub init --print-sql | psql …
  everloop mesh hub init --print-sql --worker --role laptops | psql …
  everloop mesh hub check --json

The address is taken from --url, EVERLOOP_HUB_URL, or `[hub]` of everloop.toml (`url_env` or `url_file`), in this order.
Others on this machine can see --url in the list of processes.

`check` exits with 0 when the hub can be used, 6 when it is away, 7 when it refuses access, 1 for any other problem.";

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
    read_address(config.hub(&config_verb::this_moment(session)).map_err(ConfigError::from)?)
}

fn init(url: &Url, session: &VerbSession) -> Result<Code, Failure> {
    let made = service::create(url)?;
    let lines = [
        format!("the hub `{}` is ready at {} (format {})", made.hub, made.url, made.format),
        "nodes need fewer rights than this role: everloop mesh hub init --print-sql".to_owned(),
        "nodes that never lead need fewer still: everloop mesh hub init --print-sql --worker".to_owned(),
    ];
    session.ui.answer(&lines, &json!(made))?;
    Ok(Code::Ok)
}

fn migrate(url: &Url, session: &VerbSession) -> Result<Code, Failure> {
    let done = service::migrate(url)?;
    let MigratedHub { from, format, url } = &done;
    let said = if from == format {
        format!("the hub at {url} is up to date (format {format})")
    } else {
        format!("the hub at {url} went from format {from} to {format}")
    };
    session.ui.answer(&[said], &json!(done))?;
    Ok(Code::Ok)
}

fn check(url: &Url, session: &VerbSession) -> Result<Code, Failure> {
    let found = service::check(url)?;
    let paint = session.ui.paint();
    let mut lines = Vec::new();
    for finding in &found.findings {
        let mark = match finding.level {
            HubLevel::Ok => paint.good("ok   "),
            HubLevel::Warn => paint.warn("warn "),
            HubLevel::Fail => paint.bad("fail "),
        };
        lines.push(format!("{mark} {:<11} {}", finding.what, clean(&finding.text)));
        lines.extend(finding.hint.map(|hint| format!("                  hint: {hint}")));
    }
    session.ui.answer(&lines, &json!(found))?;
    Ok(if found.ok { Code::Ok } else { Code::Failed })
}
