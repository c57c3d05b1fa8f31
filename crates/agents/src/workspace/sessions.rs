//! The git processes of a workspace that answer many requests: objects, differences, refs and rules
//! about what is ignored. Each is started when it is needed first, see [`GitSession`].

use std::path::Path;

use super::Side;
use super::diff;
use super::own_git::OwnGit;
use crate::git::{Git, GitSession};

/// Sessions with everloop's own git folder, and one with the person's refs.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Content of objects.
    pub blobs: GitSession,
    /// Lists of what differs between trees.
    pub lists: GitSession,
    /// The same as patches.
    pub patches: GitSession,
    /// The person's refs.
    pub refs: GitSession,
    /// Which files of a turn are ignored. Outdated as soon as a file with rules changes.
    pub ignored: GitSession,
}

impl Sessions {
    pub fn new(own: &OwnGit, refs: &Git, turn: &Path) -> Self {
        let git = own.git();
        let over = git.clone().over(turn, &own.index(Side::Turn));
        Self {
            blobs: GitSession::new(git.clone(), &["cat-file", "--batch"]),
            lists: GitSession::new(git.clone(), &diff::many(&diff::LISTED)),
            patches: GitSession::new(git.clone(), &diff::many(&diff::PATCHED)),
            refs: GitSession::new(refs.clone(), &["update-ref", "--stdin"]),
            ignored: GitSession::new(over, &["check-ignore", "--stdin", "-z", "-v", "-n", "--no-index"]),
        }
    }
}
