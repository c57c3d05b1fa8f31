//! `everloop steer`: adds an instruction to the next turn's prompt.

use everloop_core::action::LoopCommand;
use everloop_engine::error::{Code, Failure};

use super::VerbSession;
use super::message::send;
use super::which::which;

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
    let id = which(session, args.id)?;
    let (state, taker) = send::send(session, id.as_deref(), &command)?;
    let what = if state.is_over() {
        format!("has ended; the message is kept, and `everloop resume {}` goes on with it", state.id)
    } else {
        "the next turn will read the message".to_owned()
    };
    send::tell(session, &state.id, &what, taker)?;
    Ok(Code::Ok)
}
