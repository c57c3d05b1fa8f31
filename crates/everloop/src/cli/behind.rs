//! Verbs typed inside of an isolated turn. The state folder cannot be opened there, so they are run
//! by the turn's shim, outside, with the rights of the turn.

use std::ffi::OsString;
use std::path::PathBuf;

use everloop_agents::job::turn_socket::{self, BEHIND, call};
use everloop_engine::error::{Code, Failure};

use super::{Cli, Verb};

/// Whether a turn may run this verb at all; what it may do with it is up to the verb.
fn is_for_turns(verb: Option<&Verb>) -> bool {
    matches!(
        verb,
        None | Some(
            Verb::Status(_)
                | Verb::Why(_)
                | Verb::Logs(_)
                | Verb::Show(_)
                | Verb::Diff(_)
                | Verb::Usage(_)
                | Verb::Pause(_)
                | Verb::Task(_)
                | Verb::Message(_)
                | Verb::Ticket(_)
                | Verb::Mcp(_)
        )
    )
}

/// Refuses every other verb to a process that runs for a turn, and every other state folder.
pub fn admit(cli: &Cli) -> Result<(), Failure> {
    if std::env::var_os(BEHIND).is_none() {
        return Ok(());
    }
    if is_for_turns(cli.verb.as_ref()) && cli.state_dir == turns_folder() {
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
