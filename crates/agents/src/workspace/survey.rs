//! What a person's checkout holds that a clone of its commit does not. Reads only.

use std::path::PathBuf;

use super::project_folder::Repository;
use super::{HeadState, WorkspaceError};
use crate::git::{self, Git, LONG_DEADLINE};

/// What turns and checks do not see of a checkout, as paths below its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Tracked files that differ from the commit.
    pub changed: Vec<PathBuf>,
    /// Files and folders that git does not know.
    pub untracked: Vec<PathBuf>,
    /// Files and folders that git ignores.
    pub ignored: Vec<PathBuf>,
    /// Folders of submodules, which are empty in a clone.
    pub submodules: Vec<PathBuf>,
    /// Whether there is no commit yet.
    pub unborn: bool,
}

/// Compares the checkout with its commit.
pub async fn survey(place: &Repository) -> Result<Survey, WorkspaceError> {
    let git = Git::operators(&place.root).within(LONG_DEADLINE);
    let options = ["--no-renames", "--ignore-submodules=dirty", "--untracked-files=normal", "--ignored=traditional"];
    let args: Vec<&str> = ["status", "--porcelain=v2", "-z"].into_iter().chain(options).collect();
    let out = git.bytes(&args).await?;
    let unborn = matches!(&place.head, HeadState::Branch { commit: None, .. });
    let mut found = Survey { unborn, submodules: submodules(&git).await?, ..Survey::default() };
    for record in git::records(&out) {
        // Before the path: 8 fields of a change, 10 of a conflict, 1 of a file without history.
        let (fields, list) = match record.first() {
            Some(b'1') => (8, &mut found.changed),
            Some(b'u') => (10, &mut found.changed),
            Some(b'?') => (1, &mut found.untracked),
            Some(b'!') => (1, &mut found.ignored),
            _ => continue,
        };
        list.extend(record.splitn(fields + 1, |byte| *byte == b' ').nth(fields).map(git::path_from));
    }
    Ok(found)
}

/// The folders that `.gitmodules` names.
async fn submodules(git: &Git) -> Result<Vec<PathBuf>, WorkspaceError> {
    let listed = git.run(&["config", "--file", ".gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$"]).await?;
    // Without the file, and without such a key, git exits with 1.
    if listed.code != 0 {
        return Ok(Vec::new());
    }
    let value = |record: &[u8]| Some(git::path_from(&record[record.iter().position(|byte| *byte == b'\n')? + 1..]));
    Ok(git::records(&listed.stdout).filter_map(value).collect())
}
