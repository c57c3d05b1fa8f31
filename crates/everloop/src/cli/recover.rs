//! `everloop recover`: rebuilds a lost ledger from the mirror, and a lost hub from a node's mirror.

use std::path::{Path, PathBuf};

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::recover::{self as service, RebuiltRows, RecoverAnswer, RecoverRequest};
use serde_json::json;

use super::VerbSession;
use crate::ui::text::{clean, count};

const HELP: &str = "Examples:
  everloop recover --dry-run
  everloop recover --from mirror
  everloop recover --from /mnt/backup/mirror
  everloop mesh hub init && everloop recover --hub

A readable ledger is never overwritten. Files of the mirror that are cut off, damaged, foreign or newer are refused by
name. The next `everloop up` looks for turns that were under way, as after any crash.
--hub also gives the new, empty hub of this node the loops, tasks and late results of the one that is gone, and its name, so
that the other nodes recognise it; restart them. Tasks that were held there are free, and what their holders still bring
is kept as a late result.";

/// Rebuilds the ledger of this state folder from the files of its mirror.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct RecoverArgs {
    /// `mirror` for this state folder's own, or the folder of another one
    #[arg(long, default_value = "mirror", value_name = "MIRROR")]
    from: PathBuf,
    /// Also rebuild the hub; the ledger of this machine may then exist
    #[arg(long)]
    hub: bool,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

pub fn recover(args: &RecoverArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let from = (args.from != Path::new("mirror")).then(|| args.from.clone());
    let request = RecoverRequest { from, hub: args.hub, dry_run: args.dry_run };
    let answer = service::recover(session, &request, &mut |line| session.ui.warn(line))?;
    session.ui.answer(&lines(&answer), &json!(answer))?;
    Ok(Code::Ok)
}

fn lines(answer: &RecoverAnswer) -> Vec<String> {
    let mut lines = Vec::new();
    match &answer.ledger {
        None => lines.push("the ledger of this machine is readable and stays as it is".to_owned()),
        Some(ledger) => {
            rebuilt(&ledger.rows, ("the ledger", answer.dry_run), &mut lines);
            for turn in &ledger.turns_set_aside {
                lines.push(format!("  turn {turn} began after the last write of the mirror; its folder is moved away"));
            }
        }
    }
    if let Some(hub) = &answer.hub {
        rebuilt(&hub.rows, ("the hub", answer.dry_run), &mut lines);
    }
    if !answer.dry_run {
        lines.push("go on: everloop up".to_owned());
    }
    lines
}

fn rebuilt(rows: &RebuiltRows, (what, dry_run): (&str, bool), lines: &mut Vec<String>) {
    let verb = if dry_run { "would get back" } else { "has" };
    lines.push(format!(
        "{what} {verb} {}, {} ({} open, {} over), {}, {}",
        count(rows.loops as u64, "loop"),
        count(rows.tasks as u64, "task"),
        rows.tasks_open,
        rows.tasks_over,
        count(rows.late_results as u64, "late result"),
        count(rows.journal as u64, "journal record"),
    ));
    for turn in &rows.turns_under_way {
        lines.push(format!("  turn {turn} was under way; the supervisor will look for it"));
    }
    for lost in &rows.lost {
        lines.push(format!("  not known: {}: {}", clean(&lost.what), clean(&lost.why)));
    }
}
