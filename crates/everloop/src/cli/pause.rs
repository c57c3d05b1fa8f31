//! `everloop pause`: start no further turn until `resume`.

use everloop_core::action::Command;

use super::{Session, send};
use crate::error::{Code, Failure};

/// A running turn goes on to its end; nothing new starts after it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Loop id or name [default: the one in this folder]
    id: Option<String>,
    /// Why, for `why` and the journal
    #[arg(long, default_value = "")]
    reason: String,
}

pub fn pause(args: Args, session: &mut Session) -> Result<Code, Failure> {
    let (state, taker) = send::send(session, args.id.as_deref(), &Command::Pause { reason: args.reason })?;
    send::tell(session, &state.id, "pauses after the running turn, if any", taker)?;
    Ok(Code::Ok)
}
