//! `everloop wake`: makes a waiting loop check again now.

use everloop_core::action::LoopCommand;

use super::{Invocation, send};
use crate::error::{Code, Failure};

/// Ends a timed pause and makes the loop decide again; the guard's gaps, caps and cooldowns stay.
#[derive(Debug, clap::Args)]
pub struct WakeArgs {
    /// Loop id or name [default: the one in this folder]
    id: Option<String>,
}

pub fn wake(args: &WakeArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let home = session.home()?;
    if !home.is_owned() {
        return Err(Failure::away("there is no supervisor to wake").hint("everloop up"));
    }
    let (state, taker) = send::send(session, args.id.as_deref(), &LoopCommand::Wake)?;
    send::tell(session, &state.id, "checks again now", taker)?;
    Ok(Code::Ok)
}
