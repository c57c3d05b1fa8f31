//! Takes the work of a loop: brings it to the person's branch or folder at the person's word.

use std::path::Path;

use everloop_agents::workspace::{
    TakeRefusal, TakeRequest, TakenWork, WorkspaceError, start_of, take as bring, take_as_branch,
};
use everloop_core::action::LoopCommand;
use everloop_core::ids::LoopId;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::LoopState;
use serde::Serialize;

use super::runtime::block_on;
use super::{ServiceContext, diff, loops, no_loops};
use crate::error::Failure;

/// Take a loop's work.
#[derive(Clone, Debug, Default)]
pub struct TakeLoopRequest {
    /// Its id or name; without one the loop of the caller's folder.
    pub word: Option<String>,
    /// A new branch that is to hold the work, instead of the loop's own.
    pub branch: Option<String>,
}

/// Where the work is now.
#[derive(Clone, Debug, Serialize)]
pub struct TakeAnswer {
    #[serde(rename = "loop")]
    pub id: LoopId,
    /// The commit that holds the work.
    pub commit: String,
    #[serde(flatten)]
    pub taken: TakenWork,
}

/// Brings the last kept work of a loop to the person. What is in the way stays as it is, and is
/// named with the command that makes room.
pub fn take(context: &ServiceContext, request: &TakeLoopRequest) -> Result<TakeAnswer, Failure> {
    context.for_a_person("take the work of a loop")?;
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Err(no_loops()) };
    let (_, state) = context.find_loop(&ledger, request.word.as_deref())?;
    drop(ledger);
    let id = &state.id;
    target(&state)?;
    let Some(commit) = diff::kept(&state).map(str::to_owned) else {
        return Err(Failure::usage(format!("loop `{id}` has no work to take")).hint(format!("everloop why {id}")));
    };
    let work = ChosenWork { commit: &commit, holds: Some(&commit), verb: "take" };
    bring_work(context, &state, &work, request.branch.as_deref())
}

/// The ref that a loop lands on.
pub(super) fn target(state: &LoopState) -> Result<&str, Failure> {
    let id = &state.id;
    match &state.spec.workspace.mode {
        WorkspaceMode::Git { target } => Ok(target),
        WorkspaceMode::InPlace => {
            Err(Failure::usage(format!("loop `{id}` works in place: its work is in the folder already"))
                .hint(format!("see what it did: everloop show {id}")))
        }
    }
}

/// A commit that is brought to the person.
pub(super) struct ChosenWork<'a> {
    pub commit: &'a str,
    /// The commit of the loop whose work is all in it.
    pub holds: Option<&'a str>,
    /// The words after `everloop` that were typed, for hints.
    pub verb: &'a str,
}

/// Brings a commit of a loop to the person, and records that its work was taken.
pub(super) fn bring_work(
    context: &ServiceContext,
    state: &LoopState,
    work: &ChosenWork<'_>,
    branch: Option<&str>,
) -> Result<TakeAnswer, Failure> {
    let (id, target) = (state.id.clone(), target(state)?);
    let taken = block_on(attempt(state, target, work.commit, branch))?;
    let taken = taken.map_err(|e| Failure::failed(format!("cannot take the work of loop `{id}`")).because(&e))?;
    let taken = taken.map_err(|refusal| in_the_way(&id, work.verb, &refusal))?;
    if let Some(held) = work.holds.filter(|_| !matches!(taken, TakenWork::Branched { .. })) {
        loops::send(context, Some(id.as_str()), &LoopCommand::Taken { commit: held.to_owned() })?;
    }
    Ok(TakeAnswer { id, commit: work.commit.to_owned(), taken })
}

async fn attempt(
    state: &LoopState,
    target: &str,
    commit: &str,
    branch: Option<&str>,
) -> Result<Result<TakenWork, TakeRefusal>, WorkspaceError> {
    let dir = Path::new(&state.spec.workspace.dir);
    let start = match &state.spec.workspace.origin {
        _ if !state.spec.workspace.include_dirty => None,
        Some(origin) => Some(origin.start.clone()),
        None => start_of(dir, &state.id).await?,
    };
    let subject = format!("everloop: the work of loop {} ({})", state.id, state.name);
    let request =
        TakeRequest { dir, owner: &state.id, target, commit, dirty_start: start.as_deref(), subject: &subject };
    match branch {
        Some(name) => take_as_branch(&request, name).await,
        None => bring(&request).await,
    }
}

fn in_the_way(id: &LoopId, verb: &str, refusal: &TakeRefusal) -> Failure {
    let aside = format!("everloop {verb} {id} --branch NAME");
    let hint = match &refusal.first {
        Some(first) => format!("{first}; then: everloop {verb} {id}; or onto a branch of its own: {aside}"),
        None => format!("take it onto a branch of its own: {aside}"),
    };
    Failure::failed(format!("the work of loop `{id}` cannot be taken: {}", refusal.why)).hint(hint)
}
