//! `everloop guard`: shows the guard's state; holds everything, releases a hold.

use everloop_core::guard::Scope;
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::guard::{self as service, HoldRequest, ReleaseRequest};
use serde_json::json;

use super::VerbSession;
use crate::ui::quantities::moment;

mod quarantine;
mod view;

const HELP: &str = "Examples:
  everloop guard status
  everloop guard hold --reason \"the API key leaks\" --for 2h
  everloop guard release account:default/claude --reason \"new key is in place\"
  everloop guard quarantine

Scopes: `all`, `loop:ID`, `account:NAME`, `node:NAME`.";

/// Every start of a turn needs the guard's permit. Shows its state, and lets a person hold or
/// release scopes.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct GuardArgs {
    /// What to do with the guard
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `guard`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show every scope: freezes, cooldowns, waits, starts, spending; exits with 5 when something
    /// is frozen
    Status,
    /// Block starts in a scope; running turns go on to their end
    Hold {
        /// `all`, `loop:ID`, `account:NAME` or `node:NAME`
        #[arg(default_value = "all", value_parser = parse_scope)]
        scope: Scope,
        /// The reason, for `why` and the journal
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Release it automatically after this time
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        time: Option<std::time::Duration>,
    },
    /// End a freeze, or a delay that an agent requested, and reset the reflexes
    Release {
        /// Scope to release [default: all that are frozen]
        #[arg(value_parser = parse_scope)]
        scope: Option<Scope>,
        /// What was done about the cause, for the journal
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// List, add or lift quarantines of nodes, accounts, agents, panes and task kinds
    Quarantine(quarantine::QuarantineArgs),
}

fn parse_scope(text: &str) -> Result<Scope, String> {
    Scope::try_from(text.to_owned())
}

pub fn guard(args: GuardArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::Status => view::status(session),
        What::Hold { scope, reason, time } => hold(HoldRequest { scope, reason, time }, session),
        What::Release { scope, reason } => release(ReleaseRequest { scope, reason }, session),
        What::Quarantine(args) => quarantine::quarantine(args, session),
    }
}

fn hold(request: HoldRequest, session: &VerbSession) -> Result<Code, Failure> {
    let (scope, freeze) = service::hold(session, request)?;
    let look = session.ui.look(freeze.since);
    let until = freeze.until.map_or_else(
        || format!("until `everloop guard release {scope} --reason TEXT`"),
        |at| format!("until {}", moment(at, look.now, &look.zone)),
    );
    let said = format!("{scope} is held {until}; running turns go on to their end");
    session.ui.answer(&[said], &json!({ "scope": scope, "freeze": freeze }))?;
    Ok(Code::Ok)
}

fn release(request: ReleaseRequest, session: &VerbSession) -> Result<Code, Failure> {
    let released = service::release(session, request)?;
    let names: Vec<String> = released.iter().map(ToString::to_string).collect();
    session.ui.answer(&[format!("released {}", names.join(", "))], &json!({ "released": names }))?;
    Ok(Code::Ok)
}
