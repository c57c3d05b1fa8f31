//! `everloop guard`: shows the guard's state; holds everything, releases a hold.
//!
//! A person's hold and release are events like the guard's own; `hold` writes them.

use everloop_core::event::Event;
use everloop_core::guard::{Freeze, Scope};
use everloop_core::state::LoopState;
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::hold;
use everloop_engine::record::read_state;
use everloop_engine::state_folder::node_id;
use everloop_store::{Ledger, Sqlite};
use serde_json::json;

use super::VerbSession;
use super::message::send::person;
use crate::ui::quantities::moment;

mod view;

const HELP: &str = "Examples:
  everloop guard status
  everloop guard hold --reason \"the API key leaks\" --for 2h
  everloop guard release account:default --reason \"new key is in place\"

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
    /// End a freeze and reset the reflexes
    Release {
        /// Scope to release [default: all that are frozen]
        #[arg(value_parser = parse_scope)]
        scope: Option<Scope>,
        /// What was done about the cause, for the journal
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

fn parse_scope(text: &str) -> Result<Scope, String> {
    Scope::try_from(text.to_owned())
}

pub fn guard(args: GuardArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::Status => view::status(session),
        What::Hold { scope, reason, time } => {
            session.for_a_person("hold the guard")?;
            hold(scope, &reason, time, session)
        }
        What::Release { scope, reason } => {
            session.for_a_person("release the guard")?;
            release(scope, &reason, session)
        }
    }
}

fn loops(ledger: &Sqlite) -> Result<Vec<LoopState>, Failure> {
    ledger.loops()?.iter().map(read_state).collect()
}

fn hold(scope: Scope, reason: &str, time: Option<std::time::Duration>, session: &VerbSession) -> Result<Code, Failure> {
    let reason = reason_given(reason, "everloop guard hold --reason \"the API key leaks\"")?;
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let scope = known(scope, &ledger, session)?;
    let now = session.now();
    let freeze = Freeze::by_person(person(), &reason, now, time.map(|d| now + d));
    hold::write(&mut ledger, &scope, (&Event::Frozen { scope: scope.clone(), freeze: freeze.clone() }, now), &[])?;
    home.wake();
    let look = session.ui.look(now);
    let until = freeze.until.map_or_else(
        || format!("until `everloop guard release {scope} --reason TEXT`"),
        |at| format!("until {}", moment(at, now, &look.zone)),
    );
    let said = format!("{scope} is held {until}; running turns go on to their end");
    session.ui.answer(&[said], &json!({ "scope": scope, "freeze": freeze }))?;
    Ok(Code::Ok)
}

fn release(scope: Option<Scope>, reason: &str, session: &VerbSession) -> Result<Code, Failure> {
    let reason = reason_given(reason, "everloop guard release --reason \"the key was renewed\"")?;
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let frozen: Vec<Scope> =
        ledger.guards()?.into_iter().filter(|(_, v)| v.state.freeze.is_some()).map(|(scope, _)| scope).collect();
    let wanted = match scope {
        None if frozen.is_empty() => return Err(nothing_frozen()),
        None => frozen,
        Some(scope) => {
            let scope = resolve(scope, &ledger, session)?;
            if !frozen.contains(&scope) {
                return Err(not_frozen(&scope, &frozen));
            }
            vec![scope]
        }
    };
    let by = person();
    for scope in &wanted {
        hold::Release { by: &by, reason, now: session.now() }.write(&mut ledger, scope, &[])?;
    }
    home.wake();
    let names: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    session.ui.answer(&[format!("released {}", names.join(", "))], &json!({ "released": names }))?;
    Ok(Code::Ok)
}

fn reason_given<'a>(reason: &'a str, example: &str) -> Result<&'a str, Failure> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(Failure::usage("the reason is empty").hint(example));
    }
    Ok(reason)
}

/// A loop may be given by name or prefix, as everywhere else.
fn resolve(scope: Scope, ledger: &Sqlite, session: &VerbSession) -> Result<Scope, Failure> {
    match scope {
        Scope::Loop(word) => Ok(Scope::Loop(session.find_loop(ledger, Some(word.as_str()))?.0.id)),
        other => Ok(other),
    }
}

/// A hold on an unused name would have no effect and no message.
fn known(scope: Scope, ledger: &Sqlite, session: &VerbSession) -> Result<Scope, Failure> {
    let scope = resolve(scope, ledger, session)?;
    let loops = loops(ledger)?;
    let mut all: Vec<Scope> = vec![Scope::All, Scope::Node(node_id())];
    all.extend(loops.iter().map(|s| Scope::Account(s.spec.agent.account.clone())));
    all.extend(ledger.guards()?.into_keys());
    all.extend(loops.iter().filter(|s| !s.is_over()).map(|s| Scope::Loop(s.id.clone())));
    if matches!(scope, Scope::Loop(_)) || all.contains(&scope) {
        return Ok(scope);
    }
    all.sort();
    all.dedup();
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    Err(Failure::usage(format!("`{scope}` is not used by any loop")).hint(format!("there are: {}", names.join(", "))))
}

fn nothing_frozen() -> Failure {
    Failure::usage("nothing is frozen").hint("`everloop guard status` shows the guard's state")
}

fn not_frozen(scope: &Scope, frozen: &[Scope]) -> Failure {
    if frozen.is_empty() {
        return nothing_frozen();
    }
    let names: Vec<String> = frozen.iter().map(ToString::to_string).collect();
    Failure::usage(format!("`{scope}` is not frozen")).hint(format!("frozen are: {}", names.join(", ")))
}
