//! The boards of projects as files: written when the journal has moved on, and their inbox folders
//! emptied. Idempotent; a failure here is logged once and disturbs no loop.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use everloop_agents::git::Git;
use everloop_store::Ledger;

use super::{Supervisor, Until};
use crate::board::{board_folder, file, intents};
use crate::error::Failure;
use crate::projects::{OutboundSpec, ProjectFile, Projects};

#[derive(Default)]
pub(super) struct Boards {
    /// The journal's end when the files were written.
    seq: Option<u64>,
    /// The board files of projects.
    places: BTreeMap<PathBuf, Place>,
    /// Complaints that were logged, so that each is logged once.
    told: BTreeSet<String>,
}

struct Place {
    /// The file that was in force.
    file: Option<ProjectFile>,
    outside: OutboundSpec,
}

impl Supervisor {
    /// Applies intents and writes what changed. Without a project that wants it this costs next to
    /// nothing.
    pub(super) async fn keep_boards(&mut self) {
        if self.until == Until::Idle {
            return;
        }
        if let Err(failure) = self.try_boards().await {
            self.boards.tell(&failure);
        }
    }

    async fn try_boards(&mut self) -> Result<(), Failure> {
        let wanted = self.wanted();
        let files: BTreeSet<PathBuf> = wanted.iter().filter_map(|(_, outside)| outside.board.clone()).collect();
        for file in &files {
            let round = intents::take(&mut self.ledger, &board_folder::inbox(file), self.clock.now())?;
            if round.rejected > 0 {
                tracing::warn!(count = round.rejected, file = %file.display(), "intents in the inbox folder were rejected");
            }
        }
        let seq = self.ledger.last_seq()?;
        let moved = self.boards.seq != Some(seq);
        if !moved {
            return Ok(());
        }
        self.outbound.stale = true;
        let mut boards = BTreeMap::new();
        for (dir, outside) in &wanted {
            if let Some(path) = &outside.board {
                boards.insert(path.clone(), file::render(&file::tasks_of(&self.ledger, dir)?));
            }
        }
        for (path, text) in &boards {
            // A change to a file that git tracks would keep every turn's work from landing in that
            // checkout.
            if file::says(path, text) || self.boards.is_tracked(path).await {
                continue;
            }
            file::put(path, text)?;
        }
        self.boards.seq = Some(seq);
        Ok(())
    }

    /// What the projects of all loops want.
    pub(super) fn wanted(&mut self) -> Vec<(PathBuf, OutboundSpec)> {
        self.folders().into_iter().map(|dir| (dir.clone(), self.outbound_of(&dir))).collect()
    }

    /// What the configuration that is in force in `dir` publishes.
    pub(super) fn outbound_of(&mut self, dir: &Path) -> OutboundSpec {
        let file = self.configuration.in_force(&*self.projects, dir);
        self.boards.find(&*self.projects, dir, file)
    }
}

impl Boards {
    /// What a project wants; its configuration is read again when another one is in force.
    fn find(&mut self, projects: &dyn Projects, dir: &Path, file: Option<ProjectFile>) -> OutboundSpec {
        let known = self.places.get(dir).filter(|place| place.file == file);
        if let Some(place) = known {
            return place.outside.clone();
        }
        let outside = projects.outbound(file.as_ref()).unwrap_or_else(|failure| {
            self.tell(&failure);
            OutboundSpec::default()
        });
        self.places.insert(dir.to_owned(), Place { file, outside: outside.clone() });
        // A new place is written to at once.
        self.seq = None;
        outside
    }

    /// Whether git tracks the file; then a person writes and commits it.
    async fn is_tracked(&mut self, path: &Path) -> bool {
        let (folder, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        if !folder.is_dir() {
            return false;
        }
        let args = ["ls-files", "--error-unmatch", "--"].map(OsStr::new);
        let tracked = Git::operators(folder).run(&[&args[..], &[name]].concat()).await.is_ok_and(|out| out.code == 0);
        if tracked {
            let why = format!(
                "git tracks `{}`: `everloop task board write` writes it when you want to commit it",
                path.display()
            );
            self.tell(&Failure::failed(why));
        }
        tracked
    }

    fn tell(&mut self, failure: &Failure) {
        if self.told.insert(failure.message.clone()) {
            tracing::warn!(error = failure.message, causes = failure.causes.join(": "), "cannot write the board");
        }
    }
}
