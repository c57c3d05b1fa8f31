//! The boards of projects as files: written when the journal has moved on, and their inbox folders emptied. Idempotent; what
//! goes wrong here is told once and disturbs no loop.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use everloop_agents::git::Git;
use everloop_core::ids::LoopId;
use everloop_store::Ledger;

use super::{Supervisor, Until};
use crate::board::{file, intents, place};
use crate::config::{self, PROJECT_FILE};
use crate::error::Failure;

/// What was seen last.
#[derive(Default)]
pub(super) struct Boards {
    /// The journal's end when the files were written.
    seq: Option<u64>,
    /// Where projects want theirs.
    places: BTreeMap<PathBuf, Place>,
    /// What was complained about, so that it is said once.
    told: BTreeSet<String>,
}

struct Place {
    /// When its configuration was last written.
    stamp: Option<SystemTime>,
    outside: config::Outside,
}

impl Supervisor {
    /// Takes wishes and writes what changed. Without a project that asks for it this costs a look at each everloop.toml.
    pub(super) async fn keep_boards(&mut self) {
        if self.until == Until::Idle {
            return;
        }
        if let Err(failure) = self.try_boards().await {
            self.boards.tell(&failure);
        }
    }

    async fn try_boards(&mut self) -> Result<(), Failure> {
        let dirs: BTreeSet<PathBuf> =
            self.slots.values().map(|slot| slot.state.spec.workspace.dir.clone().into()).collect();
        let wanted: Vec<(PathBuf, config::Outside)> =
            dirs.into_iter().map(|dir| (dir.clone(), self.boards.find(&dir))).collect();
        let files: BTreeSet<PathBuf> = wanted.iter().filter_map(|(_, outside)| outside.board.clone()).collect();
        let trackers: Vec<(PathBuf, Vec<String>)> =
            wanted.into_iter().map(|(dir, o)| (dir, o.tracker)).filter(|(_, argv)| !argv.is_empty()).collect();
        if files.is_empty() && trackers.is_empty() {
            return Ok(());
        }
        for file in &files {
            let round = intents::take(&mut self.ledger, &place::inbox(file), self.clock.now())?;
            if round.rejected > 0 {
                tracing::warn!(count = round.rejected, file = %file.display(), "wishes in the inbox folder were rejected");
            }
        }
        let seq = self.ledger.last_seq()?;
        if self.boards.seq == Some(seq) {
            return Ok(());
        }
        if !trackers.is_empty() {
            let slots = &self.slots;
            let dir_of = |id: &LoopId| slots.get(id).map(|slot| PathBuf::from(&slot.state.spec.workspace.dir));
            self.outside.tasks(&self.ledger, &trackers, dir_of)?;
        }
        let text = file::render(&file::tasks(&self.ledger)?);
        for path in &files {
            // A change to a file that git tracks would keep every turn's work from landing in that checkout.
            if file::says(path, &text) || self.boards.is_tracked(path).await {
                continue;
            }
            file::put(path, &text)?;
        }
        self.boards.seq = Some(seq);
        Ok(())
    }
}

impl Boards {
    /// What a project wants; its configuration is read again when it was written.
    pub(super) fn find(&mut self, dir: &Path) -> config::Outside {
        let stamp = std::fs::metadata(dir.join(PROJECT_FILE)).and_then(|meta| meta.modified()).ok();
        let known = self.places.get(dir).filter(|place| place.stamp == stamp);
        if let Some(place) = known {
            return place.outside.clone();
        }
        let outside = place::outside(dir).unwrap_or_else(|failure| {
            self.tell(&failure);
            config::Outside::default()
        });
        self.places.insert(dir.to_owned(), Place { stamp, outside: outside.clone() });
        // A new place is written to at once.
        self.seq = None;
        outside
    }

    /// Whether git keeps the file; then it is for a person to write and commit it.
    async fn is_tracked(&mut self, path: &Path) -> bool {
        let (folder, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        if !folder.is_dir() {
            return false;
        }
        let args = ["ls-files", "--error-unmatch", "--"].map(OsStr::new);
        let tracked = Git::operators(folder).run(&[&args[..], &[name]].concat()).await.is_ok_and(|out| out.code == 0);
        if tracked {
            let why =
                format!("git tracks `{}`: `everloop board write` writes it when you want to commit it", path.display());
            self.tell(&Failure::failed(why));
        }
        tracked
    }

    fn tell(&mut self, failure: &Failure) {
        if self.told.insert(failure.message.clone()) {
            tracing::warn!(error = failure.message, causes = failure.causes.join(": "), "the board is not written");
        }
    }
}
