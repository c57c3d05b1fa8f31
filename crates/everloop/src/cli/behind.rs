//! Verbs typed inside of a turn or a check. Where it is isolated, the state folder cannot be opened
//! there, so they are run by the turn's shim, outside, with the rights of the turn. Where it is
//! not, the process is recognised by its place below the shim, and has the same rights.

use std::ffi::OsString;
use std::path::PathBuf;

use everloop_agents::job::turn_socket::{self, BEHIND, call};
use everloop_engine::caller;
use everloop_engine::error::{Code, Failure};

use super::{Cli, Verb};

/// Whether a turn may run this verb at all; what it may do with it is up to the verb.
fn is_for_turns(verb: Option<&Verb>) -> bool {
    match verb {
        None
        | Some(
            Verb::Status(_)
            | Verb::Why(_)
            | Verb::Logs(_)
            | Verb::Show(_)
            | Verb::Diff(_)
            | Verb::Usage(_)
            | Verb::Pause(_)
            | Verb::Message(_)
            | Verb::Signal(_)
            | Verb::Mcp(_)
            | Verb::Handoff(_),
        ) => true,
        Some(Verb::Stream(args)) => args.is_for_turns(),
        Some(Verb::Task(args)) => !args.is_board(),
        Some(Verb::Ticket(args)) => !args.is_notifiers(),
        Some(_) => false,
    }
}

/// Whether a process inside of a turn runs this verb by itself: hooks of its CLI, and what neither
/// makes nor changes a loop.
fn is_harmless(verb: Option<&Verb>) -> bool {
    match verb {
        Some(Verb::Hook(_) | Verb::Check(_) | Verb::Prompt(_) | Verb::Config(_) | Verb::Generate(_)) => true,
        Some(Verb::Agents(args)) => args.is_list(),
        _ => false,
    }
}

/// Refuses every other verb to a process that runs for a turn, and every other state folder; also
/// to a process inside of a turn or check that uses the state folder of that turn.
pub fn admit(cli: &Cli) -> Result<(), Failure> {
    let verb = cli.verb.as_ref();
    let admitted = if std::env::var_os(BEHIND).is_some() {
        is_for_turns(verb) && cli.state_dir == turns_folder()
    } else {
        is_for_turns(verb) || is_harmless(verb) || caller::inside(cli.state_dir.as_deref()).is_none()
    };
    if admitted {
        return Ok(());
    }
    let hint = "request it from a person: everloop message send person \"TEXT\"";
    Err(Failure::usage("a turn may not do this").hint(hint))
}

/// Lets the shim of this turn run the verb; `None` when this process is to run it itself.
pub fn forward(cli: &Cli) -> Option<Result<Code, Failure>> {
    let socket = turn_socket::find()?;
    // Another state folder is none of the turn's business: a project may run an everloop of its own.
    let is_turns = turns_folder().is_none_or(|folder| cli.state_dir == Some(folder));
    if !is_for_turns(cli.verb.as_ref()) || !is_turns {
        return None;
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let failed = |e: std::io::Error| Failure::failed("cannot reach the shim of this turn").because(&e);
    Some(call(&socket, &dir, &args).map(Code::from_exit).map_err(failed))
}

fn turns_folder() -> Option<PathBuf> {
    std::env::var_os("EVERLOOP_STATE_DIR").map(PathBuf::from)
}
