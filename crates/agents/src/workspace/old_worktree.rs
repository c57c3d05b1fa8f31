//! Worktrees that everloop kept in the person's repository before loops had clones of their own.
//! They are taken over at the next turn: the folder of a turn stays, git's record of it goes.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{WorkspaceError, files};
use crate::git;

/// Removes the worktrees of the loop in `root` from the repository, with the folder of the checks;
/// the folder of a turn stays.
pub(super) async fn remove(root: &Path, common: &Path) -> Result<(), WorkspaceError> {
    let records = common.join("worktrees");
    let ours = [root.join("turn"), root.join("verify")];
    let points_to = |record: &Path| -> Option<PathBuf> {
        let text = fs::read(record.join("gitdir")).ok()?;
        let folder = git::path_from(text.trim_ascii_end()).parent()?.to_owned();
        ours.contains(&folder).then_some(folder)
    };
    let Ok(entries) = fs::read_dir(&records) else { return Ok(()) };
    let mut any = false;
    for record in entries.flatten().map(|entry| entry.path()) {
        if points_to(&record).is_some() {
            files::remove_apart(&record).await?;
            any = true;
        }
    }
    if !any {
        return Ok(());
    }
    files::remove_apart(&root.join("verify")).await?;
    // git does the same when its last worktree is removed; others may still exist.
    match fs::remove_dir(&records) {
        Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
            Err(WorkspaceError::files("remove", &records)(e))
        }
        _ => Ok(()),
    }
}
