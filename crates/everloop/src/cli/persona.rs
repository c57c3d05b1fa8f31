//! `everloop persona`: lists, shows, starts and stops personas.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::persona::{self as service, PersonaView};
use everloop_engine::services::signal;
use serde_json::json;

use super::VerbSession;
use super::message::send;
use super::run;
use crate::ui::persona::{lines, list_lines};

const HELP: &str = "Examples:
  everloop persona start echo     # [persona.echo] of everloop.toml, in the background
  everloop signal echo \"the deploy failed\"
  everloop persona show echo";

/// A persona is a loop without an end: it sleeps at no cost, and a signal, a message or a task wakes
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct PersonaArgs {
    /// What to do with personas
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `persona`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// List personas: state, mood, next look, and what waits
    List,
    /// Show a persona with every factor of its next look
    Show {
        /// Name or loop id of the persona
        name: String,
    },
    /// Start a persona of everloop.toml in the background, or continue it
    Start {
        /// Name of a `[persona.NAME]` in everloop.toml
        name: String,
        /// Start without confirmation, as `everloop run --yes`
        #[arg(short, long)]
        yes: bool,
    },
    /// Add a line to its memory, which every turn reads and no dream may drop
    Remember {
        /// Name or loop id of the persona
        name: String,
        /// One line, of at most 300 characters
        line: String,
    },
    /// End a persona after its turn, or now; `start` continues it
    Stop {
        /// Name or loop id of the persona
        name: String,
        /// Stop the running agent too, instead of waiting for the end of its turn
        #[arg(long)]
        now: bool,
    },
}

pub fn persona(args: PersonaArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        What::List => list(session),
        What::Show { name } => show(session, &name),
        What::Start { name, yes } => run::persona(session, &name, yes),
        What::Remember { name, line } => {
            send::show(session, &service::remember(session, &name, &line)?)?;
            Ok(Code::Ok)
        }
        What::Stop { name, now } => {
            send::show(session, &signal::stop(session, &name, now)?)?;
            Ok(Code::Ok)
        }
    }
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let found = service::list(session)?;
    let look = session.ui.look(session.now());
    session.ui.answer(&list_lines(&found, &look), &json!({ "personas": found }))?;
    Ok(Code::Ok)
}

fn show(session: &VerbSession, name: &str) -> Result<Code, Failure> {
    let found: PersonaView = service::show(session, name)?;
    let look = session.ui.look(session.now());
    session.ui.answer(&lines(&found, &look), &json!({ "persona": found }))?;
    Ok(Code::Ok)
}
