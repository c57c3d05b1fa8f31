//! `everloop stop`: ends a loop after its turn, or now. It stays resumable.

use everloop_core::action::LoopCommand;
use everloop_engine::error::{Code, Failure};

use super::VerbSession;
use super::message::send;
use super::which::which;

/// Ends a loop; `everloop resume` continues it later. Finished work is kept.
#[derive(Debug, clap::Args)]
pub struct StopArgs {
    /// Loop id or name [default: the one in this folder]
    id: Option<String>,
    /// Stop the running agent too, instead of waiting for the end of its turn
    #[arg(long)]
    now: bool,
}

pub fn stop(args: StopArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    session.for_a_person("stop a loop")?;
    let id = which(session, args.id)?;
    let (state, taker) = send::send(session, id.as_deref(), &LoopCommand::Stop { now: args.now })?;
    let what = if args.now { "stops now" } else { "stops after the running turn, if any" };
    send::tell(session, &state.id, what, taker)?;
    Ok(Code::Ok)
}
