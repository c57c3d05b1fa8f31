//! `everloop resume`: continues a paused, stopped or exhausted loop, with more of what it used up.

use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::event::LoopEnd;
use everloop_core::raise::{Raise, RunLimits};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::{Time, parse_duration};
use everloop_engine::error::{Code, Failure};
use everloop_engine::quantities::{ceiling, flag_of, used_up};
use everloop_engine::services::loops::find_one;

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
    session.for_a_person("resume a loop")?;
    let home = session.home()?;
    let ledger = session.writer(&home)?;
    let id = which(session, args.id.clone())?;
    let (row, state) = find_one(session, &ledger, id.as_deref())?;
    drop(ledger);
    let limits = new_limits(&state, &raise(args, session.now())?, session.now())?;
    let (bounds, budget) = match limits.clone() {
        Some(limits) => (Some(limits.bounds), Some(limits.budget)),
        None => (None, None),
    };
    let (_, taker) = send::send(session, Some(row.id.as_str()), &LoopCommand::Resume { bounds, budget })?;
    let what = match limits {
        Some(limits) => format!("goes on; at most {}", ceiling(&state, &limits, session.now())),
        None => "goes on".to_owned(),
    };
    send::tell(session, &row.id, &what, taker)?;
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

/// The limits from now on; `None` leaves all of them. Limits that would end the loop at once are
/// refused.
fn new_limits(state: &LoopState, raise: &Raise, now: Time) -> Result<Option<RunLimits>, Failure> {
    if let Phase::Ended { ending: LoopEnd::Reached, .. } = &state.phase {
        return Err(Failure::usage(format!("loop `{}` has reached its goal", state.id))
            .hint("start a new one with `everloop run`"));
    }
    let limits = raise.limits(state, now);
    if let Some(bound) = limits.still_ended(state).or_else(|| limits.used_up(state, now)) {
        return Err(Failure::usage(format!("loop `{}`: its {}", state.id, used_up(bound))).hint(format!(
            "give it more: everloop resume {} {}",
            state.id,
            flag_of(bound)
        )));
    }
    Ok((!raise.is_empty()).then_some(limits))
}
