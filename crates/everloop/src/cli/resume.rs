//! `everloop resume`: continues a paused, stopped or exhausted loop.

use everloop_core::action::LoopCommand;
use everloop_core::event::LoopEnd;
use everloop_core::spec::Bounds;
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::quantities::used_up;

use super::VerbSession;
use super::message::send;

/// Continues where the loop is. A loop that used up its turns or time needs new ones: -n or
/// --max-time.
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// Loop id or name [default: the one in this folder]
    id: Option<String>,
    /// Number of further turns
    #[arg(short = 'n', long = "max-turns", value_name = "N")]
    turns: Option<u32>,
    /// Amount of further time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_time: Option<std::time::Duration>,
}

pub fn resume(args: &ResumeArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    session.for_a_person("resume a loop")?;
    let home = session.home()?;
    let ledger = session.writer(&home)?;
    let (row, state) = session.find_loop(&ledger, args.id.as_deref())?;
    drop(ledger);
    let bounds = new_bounds(&state, args)?;
    let (_, taker) = send::send(session, Some(row.id.as_str()), &LoopCommand::Resume { bounds })?;
    send::tell(session, &row.id, "goes on", taker)?;
    Ok(Code::Ok)
}

fn new_bounds(state: &LoopState, args: &ResumeArgs) -> Result<Option<Bounds>, Failure> {
    if let Phase::Ended { ending, .. } = &state.phase {
        let more = args.turns.is_some() || args.max_time.is_some();
        match ending {
            LoopEnd::Reached => {
                return Err(Failure::usage(format!("loop `{}` has reached its goal", state.id))
                    .hint("start a new one with `everloop run`"));
            }
            LoopEnd::Exhausted { bound } if !more => {
                return Err(Failure::usage(format!("loop `{}`: its {}", state.id, used_up(bound)))
                    .hint(format!("give it more: everloop resume {} -n 10", state.id)));
            }
            LoopEnd::Exhausted { .. } | LoopEnd::Stopped { .. } | LoopEnd::Failed { .. } => {}
        }
    }
    if args.turns.is_none() && args.max_time.is_none() {
        return Ok(None);
    }
    // Time counts from the resumption; a bound that is not named again is lifted, or it would end
    // the loop at once.
    Ok(Some(Bounds {
        max_turns: args.turns.map(|n| state.turns.saturating_add(n)),
        max_time: args.max_time,
        deadline: None,
    }))
}
