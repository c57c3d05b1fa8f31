//! `everloop take`: brings the work of a loop to the person.

use everloop_agents::workspace::TakenWork;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::take::{TakeAnswer, TakeLoopRequest, take as bring};

use super::VerbSession;
use crate::ui::events::short;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop take                     # the loop in this folder
  everloop take k3f9
  everloop take k3f9 --branch idea  # onto a new branch; nothing else moves

The work goes onto the loop's branch, or onto the commit that is checked out where there was no branch: forward, or by a
merge if both have commits of their own. Work on top of uncommitted changes (--include-dirty) is applied to the files and
stays uncommitted. Nothing of yours is reset, cleaned, stashed or overwritten; what is in the way is named, with the
command that makes room.";

/// Brings the work of a loop to your branch: what waits aside, and what did not land by itself.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct TakeArgs {
    /// Loop id or name [default: the loop in this folder]
    id: Option<String>,
    /// Make this branch with the work, and leave everything else as it is
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
}

pub fn take(args: TakeArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let answer = bring(session, &TakeLoopRequest { word: args.id, branch: args.branch })?;
    session.ui.said(&words(&answer), &answer)?;
    Ok(Code::Ok)
}

pub(super) fn words(answer: &TakeAnswer) -> String {
    let TakeAnswer { id, commit, taken } = answer;
    let work = short(commit);
    match taken {
        TakenWork::Contained { place } => format!("loop {id}: {work} is in {} already", clean(place)),
        TakenWork::Forwarded { place, .. } => format!("loop {id}: {} is at {work} now", clean(place)),
        TakenWork::Merged { place, commit } => format!(
            "loop {id}: {work} is merged into {} as {}; the checks did not run on the merge: everloop check {id}",
            clean(place),
            short(commit)
        ),
        TakenWork::Applied { folder, files } => format!(
            "loop {id}: {files} files in {} are changed, uncommitted beside your own changes; see them: git diff",
            clean(&folder.display().to_string())
        ),
        TakenWork::Branched { name } => {
            format!("loop {id}: the branch {0} holds {work}; merge it when you like: git merge {0}", clean(name))
        }
    }
}
