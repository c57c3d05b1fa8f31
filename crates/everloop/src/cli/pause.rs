//! `everloop pause`: starts no further turn until `resume`.

use std::time::Duration;

use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::loops::{PauseRequest, pause as pause_loop};

use super::VerbSession;
use super::message::send;
use super::which::which;
use crate::config::point_in_time;

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

pub fn pause(args: PauseArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let until = match (&args.span, &args.until) {
        (Some(span), _) => Some(session.now() + *span),
        (None, Some(text)) => point_in_time(text).map_err(|why| Failure::usage(why).hint("or use --for 10m"))?,
        (None, None) => None,
    };
    let request = PauseRequest { word: which(session, args.id)?, reason: args.reason, until };
    send::show(session, &pause_loop(session, request)?)?;
    Ok(Code::Ok)
}
