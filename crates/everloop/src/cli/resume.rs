//! `everloop resume`: continues a paused, stopped or exhausted loop, with more of what it used up.

use std::time::Duration;

use everloop_core::raise::Raise;
use everloop_core::time::{Time, parse_duration};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::loops;

use super::VerbSession;
use super::message::send;
use super::which::which;
use crate::config::Deadline;

/// Continues where the loop is. A loop that used up a limit needs more of it; a limit that is not
/// named stays as it is.
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// Loop id or name [default: the one in this folder]
    id: Option<String>,
    /// Number of further turns
    #[arg(short = 'n', long = "max-turns", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
    /// Amount of further time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_time: Option<Duration>,
    /// A new deadline, like `2026-11-16T07:00`
    #[arg(long, value_name = "WHEN")]
    deadline: Option<String>,
    /// Number of further dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    max_usd: Option<u64>,
    /// Number of further tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// Number of further starts of an agent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_calls: Option<u64>,
}

pub fn resume(args: &ResumeArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let id = which(session, args.id.clone())?;
    let answer = loops::resume(session, id.as_deref(), &raise(args, session.now())?)?;
    send::show(session, &answer)?;
    Ok(Code::Ok)
}

fn dollars(text: &str) -> Result<u64, String> {
    let amount = text.parse::<f64>().ok().filter(|usd| (1e-6..1e9).contains(usd));
    amount
        .map(|usd| (usd * 1e6).round() as u64)
        .ok_or_else(|| "it is an amount of dollars, like `5` or `2.50`".to_owned())
}

fn raise(args: &ResumeArgs, now: Time) -> Result<Raise, Failure> {
    let deadline = args.deadline.clone().map(|text| Deadline(Some(text)).time(&jiff::tz::TimeZone::system()));
    let deadline = deadline.transpose().map_err(Failure::usage)?.flatten();
    if deadline.is_some_and(|at| at <= now) {
        return Err(Failure::usage("the deadline is in the past").hint("give a later one"));
    }
    Ok(Raise {
        turns: args.turns,
        time: args.max_time,
        deadline,
        calls: args.max_calls,
        tokens: args.max_tokens,
        microusd: args.max_usd,
    })
}
