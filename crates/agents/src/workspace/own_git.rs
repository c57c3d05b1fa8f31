//! The git folder of a loop: settings, indexes and a `HEAD` of everloop's own, in the state folder.
//! The objects are those of the person's repository. All calls over files that an agent or a check
//! can write go through here.

use std::fs;
use std::path::{Path, PathBuf};

use everloop_core::planted::{self, Bug};
use everloop_core::spec::Origin;

use super::project_folder::Repository;
use super::rules::Rules;
use super::{Side, WorkspaceError, files, locks};
use crate::git::{Git, LONG_DEADLINE};

/// A loop's git folder.
#[derive(Debug)]
pub(super) struct OwnGit {
    dir: PathBuf,
    pub rules: Rules,
    files: Vec<(PathBuf, String)>,
    git: Git,
}

impl OwnGit {
    /// Opens the git folder in `root`; creates it with the settings in force if it is missing. If
    /// the loop's first event names other settings, the folder is not used.
    pub async fn open(root: &Path, place: &Repository, origin: Option<&Origin>) -> Result<Self, WorkspaceError> {
        let dir = root.join("git");
        let note = dir.join("rules.json");
        let kept: Option<Rules> = files::read_note(&note).map_err(WorkspaceError::files("read", &note))?;
        let wanted = origin.map(|origin| origin.rules.as_str());
        let holds = |rules: &Rules| planted::is(Bug::BelievesItsFiles) || wanted.is_none_or(|w| rules.digest() == w);
        let rules = match kept.filter(holds) {
            Some(rules) => rules,
            None => Rules::take(place).await?,
        };
        if !holds(&rules) {
            return Err(WorkspaceError::RulesChanged { dir: place.root.clone() });
        }
        for folder in [dir.join("refs"), dir.join("info"), dir.join("objects")] {
            files::make_private(&folder).map_err(WorkspaceError::files("make", &folder))?;
        }
        files::write_note(&note, &rules).map_err(WorkspaceError::files("write", &note))?;
        let (files, git) = (rules.files(&dir), Git::own(&dir, &place.common));
        let own = Self { dir, rules, files, git };
        own.restore()?;
        if !own.dir.join("HEAD").exists() {
            own.set_head("ref: refs/heads/none")?;
        }
        Ok(own)
    }

    /// git without files: objects only.
    pub fn git(&self) -> &Git {
        &self.git
    }

    /// The index of one side.
    pub fn index(&self, side: Side) -> PathBuf {
        self.dir.join(match side {
            Side::Turn => "turn.index",
            Side::Verify => "verify.index",
        })
    }

    /// The index of a turn before its files were taken.
    pub fn index_before(&self) -> PathBuf {
        self.dir.join("turn.before.index")
    }

    /// git over the files in `tree`. The folder is as everloop wrote it: settings that changed
    /// since are written again, and locks of a dead git are removed.
    pub async fn over(&self, tree: &Path, side: Side) -> Result<Git, WorkspaceError> {
        self.restore()?;
        let index = self.index(side);
        locks::clear_stale(&index.with_extension("index.lock"), tree).await?;
        Ok(self.git.clone().over(tree, &index).within(LONG_DEADLINE))
    }

    /// Sets the commit that the files of a turn are compared with.
    pub fn set_head(&self, commit: &str) -> Result<(), WorkspaceError> {
        let path = self.dir.join("HEAD");
        let text = format!("{commit}\n");
        if fs::read(&path).is_ok_and(|now| now == text.as_bytes()) {
            return Ok(());
        }
        fs::write(&path, text).map_err(WorkspaceError::files("write", &path))
    }

    /// Removes what an unfinished merge leaves behind.
    pub fn forget_merge(&self) -> Result<(), WorkspaceError> {
        for name in ["MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "ORIG_HEAD"] {
            let path = self.dir.join(name);
            files::remove(&path).map_err(WorkspaceError::files("remove", &path))?;
        }
        Ok(())
    }

    /// Removes the folder.
    pub fn remove(&self) -> Result<(), WorkspaceError> {
        files::remove(&self.dir).map_err(WorkspaceError::files("remove", &self.dir))
    }

    fn restore(&self) -> Result<(), WorkspaceError> {
        if planted::is(Bug::BelievesItsFiles) {
            return Ok(());
        }
        for (path, text) in &self.files {
            if !fs::read(path).is_ok_and(|now| now == text.as_bytes()) {
                // A link in its place is replaced, not followed.
                files::remove(path).map_err(WorkspaceError::files("remove", path))?;
                fs::write(path, text).map_err(WorkspaceError::files("write", path))?;
            }
        }
        Ok(())
    }
}
