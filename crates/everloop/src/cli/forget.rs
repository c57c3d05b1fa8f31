//! `everloop forget`: removes loops that are over, with all that they left.

use std::time::Duration;

use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::forget::{
    self as service, EndedLoop, ForgetPlan, ForgetRequest, SparedLoop, UntakenWork,
};

use super::VerbSession;
use crate::ui::quantities::relative;
use crate::ui::text::{clean, count};

const HELP: &str = "Examples:
  everloop forget k3f9
  everloop forget --older 30d       # all loops that ended more than 30 days ago
  everloop forget --ended --yes     # all that are over, without confirmation

A loop that is not over stays, and so does one whose work is on no branch of yours: `everloop take ID` brings it there.";

/// Removes loops that are over: their refs in the repository, their clones, checkouts, turns and
/// outputs, and their lines in `status`. Shows all of it first. The journal keeps its records.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct ForgetArgs {
    /// Loops by id or name
    #[arg(value_name = "LOOP", required_unless_present_any = ["older", "ended"], conflicts_with_all = ["older", "ended"])]
    loops: Vec<String>,
    /// All loops that ended longer ago than this
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    older: Option<Duration>,
    /// All loops that are over
    #[arg(long)]
    ended: bool,
    /// Also loops whose work is on no branch of yours; the work is lost
    #[arg(long)]
    force: bool,
    /// Remove without confirmation
    #[arg(short, long)]
    yes: bool,
}

pub fn forget(args: ForgetArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let untaken = if args.force { UntakenWork::Lose } else { UntakenWork::Keep };
    let request = ForgetRequest { words: args.loops, older: args.older, untaken };
    let plan = service::plan(session, &request)?;
    if plan.forgotten.is_empty() {
        return show(session, &plan, &["nothing to forget".to_owned()]);
    }
    let lines: Vec<String> = plan.forgotten.iter().map(|ended| line(ended, session)).collect();
    if !args.yes && !confirmed(session, &lines)? {
        session.ui.talk("nothing was removed");
        return Ok(Code::Ok);
    }
    let done = service::forget(session, plan)?;
    let lines: Vec<String> = done.forgotten.iter().map(|ended| format!("forgot {}", line(ended, session))).collect();
    show(session, &done, &lines)
}

fn confirmed(session: &VerbSession, lines: &[String]) -> Result<bool, Failure> {
    for line in lines {
        session.ui.talk(line);
    }
    if !session.ui.asks() {
        return Err(Failure::usage("without a terminal nothing is removed unless --yes is given")
            .hint("the same command with --yes removes what is listed above"));
    }
    session.ui.agrees(&format!("remove {}?", count(lines.len() as u64, "loop")))
}

fn show(session: &VerbSession, plan: &ForgetPlan, lines: &[String]) -> Result<Code, Failure> {
    let spared = |spared: &SparedLoop| clean(&format!("{} ({}) stays: {}", spared.id, spared.name, spared.why));
    let lines: Vec<String> = lines.iter().cloned().chain(plan.spared.iter().map(spared)).collect();
    session.ui.answer(&lines, plan)?;
    Ok(Code::Ok)
}

fn line(ended: &EndedLoop, session: &VerbSession) -> String {
    let EndedLoop { id, name, dir, ending, ended_at, refs, folders } = ended;
    let when = relative(*ended_at, session.now());
    let (refs, folders) = (count(refs.len() as u64, "ref"), count(folders.len() as u64, "folder"));
    clean(&format!("{id} ({name}) in {}, {ending} {when}: {refs}, {folders}", dir.display()))
}
