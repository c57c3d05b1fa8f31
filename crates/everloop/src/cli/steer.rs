//! `everloop steer`: adds an instruction to the next turn's prompt.

use everloop_core::action::LoopCommand;
use everloop_engine::error::{Code, Failure};

use super::VerbSession;
use super::message::send;

/// The next turn's prompt holds the message, once.
#[derive(Debug, clap::Args)]
pub struct SteerArgs {
    /// Text of the instruction
    message: String,
    /// Loop id or name [default: the one in this folder]
    #[arg(long = "loop", value_name = "ID")]
    id: Option<String>,
}

pub fn steer(args: SteerArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    if args.message.trim().is_empty() {
        return Err(Failure::usage("the message is empty").hint("everloop steer \"look at the parser first\""));
    }
    let command = LoopCommand::Steer { message: args.message, trust: session.caller.trust() };
    let (state, taker) = send::send(session, args.id.as_deref(), &command)?;
    send::tell(session, &state.id, "the next turn will read the message", taker)?;
    Ok(Code::Ok)
}
