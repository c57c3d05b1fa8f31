//! `everloop wake`: makes a waiting loop check again now.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::loops;

use super::VerbSession;
use super::message::send;
use super::which::which;

/// Ends a timed pause and makes the loop decide again; the guard's gaps, caps and cooldowns stay.
#[derive(Debug, clap::Args)]
pub struct WakeArgs {
    /// Loop id or name [default: the one in this folder]
    id: Option<String>,
}

pub fn wake(args: WakeArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let id = which(session, args.id)?;
    send::show(session, &loops::wake(session, id.as_deref())?)?;
    Ok(Code::Ok)
}
