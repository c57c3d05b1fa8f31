//! What the work of a loop changes: from where the loop began to the last work that was kept.

use std::path::Path;

use everloop_agents::workspace::{ChangeKind, FileDiff, WorkDiff, WorkspaceError};
use everloop_core::event::Integrated;
use everloop_core::ids::LoopId;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::LoopState;
use serde::Serialize;

use super::runtime::block_on;
use super::{ServiceContext, no_loops};
use crate::error::Failure;

/// How much of the change is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffDetail {
    /// The changed files and their counts.
    Files,
    /// The patch too.
    Patch,
}

/// What a loop's work changes.
#[derive(Clone, Debug, Serialize)]
pub struct DiffAnswer {
    #[serde(rename = "loop")]
    pub id: LoopId,
    pub name: String,
    /// The commit that the loop began at; `None` before its first check.
    pub base: Option<String>,
    /// The last work that was kept; the base when there is none.
    pub head: Option<String>,
    pub files: Vec<ChangedFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
}

/// A file that the work changes.
#[derive(Clone, Debug, Serialize)]
pub struct ChangedFile {
    /// Relative to the root of the repository; bytes that are not UTF-8 are replaced.
    pub path: String,
    pub kind: ChangeKind,
    /// Added lines; `None` for a binary file.
    pub added: Option<u64>,
    /// Removed lines; `None` for a binary file.
    pub removed: Option<u64>,
}

impl From<FileDiff> for ChangedFile {
    fn from(FileDiff { change, added, removed }: FileDiff) -> Self {
        Self { path: change.path.to_string_lossy().into_owned(), kind: change.kind, added, removed }
    }
}

/// Compares the kept work of a loop with the start of the loop; without a word the loop of this
/// folder. A turn that runs counts when its work is kept.
pub fn diff(context: &ServiceContext, word: Option<&str>, detail: DiffDetail) -> Result<DiffAnswer, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Err(no_loops()) };
    let (_, state) = context.find_loop(&ledger, word)?;
    if state.spec.workspace.mode == WorkspaceMode::InPlace {
        return Err(Failure::usage(format!("loop `{}` works in place, so no start is kept to compare with", state.id))
            .hint(format!("the counts of its turns: everloop show {}", state.id)));
    }
    block_on(compare(&state, detail))?.map_err(|e| {
        Failure::failed(format!("cannot compare the work of loop `{}` with its start", state.id))
            .because(&e)
            .hint(format!("the refs of its work: everloop show {}", state.id))
    })
}

async fn compare(state: &LoopState, detail: DiffDetail) -> Result<DiffAnswer, WorkspaceError> {
    let (id, name) = (state.id.clone(), state.name.clone());
    let dir = Path::new(&state.spec.workspace.dir);
    let start = state.spec.workspace.origin.as_ref().map(|origin| origin.start.as_str());
    let Some(work) = WorkDiff::open(dir, &id, (start, kept(state))).await? else {
        return Ok(DiffAnswer { id, name, base: None, head: None, files: Vec::new(), patch: None });
    };
    let files = work.files().await?.into_iter().map(ChangedFile::from).collect();
    let patch = match detail {
        DiffDetail::Files => None,
        DiffDetail::Patch => Some(work.patch().await?),
    };
    Ok(DiffAnswer { id, name, base: Some(work.base), head: Some(work.head), files, patch })
}

/// The last work that was kept: as it landed, or as the next turn starts from it.
pub(super) fn kept(state: &LoopState) -> Option<&str> {
    let last = state.progress.kept.last()?;
    match &last.integrated {
        Some(Integrated::Landed { commit } | Integrated::Aside { commit, .. }) => Some(commit),
        Some(Integrated::InPlace) | None => last.commit.as_deref(),
    }
}
