//! `everloop pause`: starts no further turn until `resume`.

use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::time::{Time, human, parse_duration};

use super::{Invocation, send};
use crate::config::point_in_time;
use crate::error::{Code, Failure};

/// A running turn goes on to its end; nothing new starts after it.
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    /// Loop id or name [default: the one in this folder]
    id: Option<String>,
    /// The reason, for `why` and the journal
    #[arg(long, default_value = "")]
    reason: String,
    /// Resume automatically after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, conflicts_with = "until")]
    span: Option<Duration>,
    /// Resume automatically at this time, for example 2026-11-16T07:00
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// A longer pause by an agent needs a person.
const AGENT_MOST: Duration = Duration::from_secs(24 * 3600);

pub fn pause(args: PauseArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let until = end(&args, session)?;
    let (state, taker) = send::send(session, args.id.as_deref(), &LoopCommand::Pause { reason: args.reason, until })?;
    let what = match until {
        None => "pauses after the running turn, if any".to_owned(),
        Some(at) => format!("starts no turn for {}", human(at.since(session.now()))),
    };
    send::tell(session, &state.id, &what, taker)?;
    Ok(Code::Ok)
}

fn end(args: &PauseArgs, session: &Invocation) -> Result<Option<Time>, Failure> {
    let now = session.now();
    let until = match (&args.span, &args.until) {
        (Some(span), _) => Some(now + *span),
        (None, Some(text)) => point_in_time(text).map_err(|why| Failure::usage(why).hint("or use --for 10m"))?,
        (None, None) => None,
    };
    match until {
        Some(at) if at <= now => Err(Failure::usage("that time has passed").hint("everloop pause --for 10m")),
        None if !session.caller.is_person() => {
            Err(Failure::usage("an agent's pause needs an end").hint("set an end: everloop pause --for 10m"))
        }
        Some(at) if !session.caller.is_person() && at.since(now) > AGENT_MOST => {
            Err(Failure::usage("an agent may not pause a loop for more than a day")
                .hint("request it from a person: everloop send person \"TEXT\""))
        }
        _ => Ok(until),
    }
}
