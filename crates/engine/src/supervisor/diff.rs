//! Detects changes in the workspace of a running turn, at intervals and on a blocking thread. Does
//! not use git: an agent can write into the configuration of its clone, and git would run what
//! it finds there.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::clock;
use everloop_core::phase::Barren;
use everloop_core::time::Time;
use tokio::task::JoinHandle;

/// Entries of a workspace that are scanned; a larger one gives no result, and its turn is not
/// stopped.
const ENTRIES: usize = 100_000;
/// Scans within the time that is allowed without a change.
const LOOKS: u32 = 6;
/// The least and the most time between two scans.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Follows one workspace.
pub(super) struct Diff {
    dir: PathBuf,
    every: Duration,
    due: Time,
    barren: Barren,
    look: Option<JoinHandle<Option<u64>>>,
}

impl Diff {
    /// The workspace of a turn that may go on for `most` without changing it.
    pub fn new(dir: PathBuf, most: Duration) -> Self {
        let (every, now) = ((most / LOOKS).clamp(EVERY.0, EVERY.1), clock::now());
        Self { dir, every, due: now, barren: Barren::new(every, now), look: None }
    }

    /// The time in which the model only produced text; `said` counts its messages.
    pub async fn barren(&mut self, said: u64) -> Duration {
        let now = clock::now();
        if self.look.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(look) = self.look.take()
        {
            let sign = look.await.unwrap_or_default();
            self.barren.look(sign, said, now);
        }
        if self.look.is_none() && now >= self.due {
            self.due = now + self.every;
            let dir = self.dir.clone();
            self.look = Some(tokio::task::spawn_blocking(move || sign(&dir, ENTRIES)));
        }
        self.barren.total()
    }
}

/// A hash that changes when a file is written, created, moved or removed; `None` when there are more
/// than `most` of them.
fn sign(dir: &Path, most: usize) -> Option<u64> {
    let mut folders = VecDeque::from([dir.to_owned()]);
    let (mut sum, mut seen) = (0_u64, 0_usize);
    while let Some(folder) = folders.pop_front() {
        // A file that is removed during the scan gives another hash the next time.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > most {
                return None;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            sum = sum.wrapping_add(hash(&path, &metadata));
            if metadata.is_dir() && entry.file_name() != ".git" {
                folders.push_back(path);
            }
        }
    }
    Some(sum)
}

fn hash(path: &Path, metadata: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    // A folder's time moves with what is in it, also with what git writes beside the work.
    let written = metadata.is_file().then(|| (metadata.mtime(), metadata.mtime_nsec(), metadata.len()));
    (path, metadata.mode(), written).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_change_shows_and_reading_does_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::create_dir_all(at(".git/objects")).unwrap();
        fs::write(at("a/b/c"), "one").unwrap();
        let mut signs = vec![sign(dir.path(), ENTRIES).expect("it is small")];
        let mut changed = |what: &str| {
            let now = sign(dir.path(), ENTRIES).expect("it is small");
            assert!(!signs.contains(&now), "{what} does not show");
            signs.push(now);
        };
        fs::write(at("a/b/c"), "three").unwrap();
        changed("a longer text");
        let old = fs::metadata(at("a/b/c")).unwrap().modified().unwrap() - Duration::from_secs(9);
        fs::File::options().write(true).open(at("a/b/c")).unwrap().set_modified(old).unwrap();
        changed("another time");
        fs::write(at("d"), "").unwrap();
        changed("a new file");
        fs::rename(at("d"), at("e")).unwrap();
        changed("another name");
        fs::create_dir(at("f")).unwrap();
        changed("a new folder");
        let before = sign(dir.path(), ENTRIES);
        fs::read(at("a/b/c")).unwrap();
        fs::write(at(".git/objects/x"), "").unwrap();
        assert_eq!(sign(dir.path(), ENTRIES), before, "git's own files are not the work");
        assert!(sign(&at("nowhere"), ENTRIES).is_some());
    }

    #[test]
    fn a_workspace_of_too_many_files_is_not_examined() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["a", "b", "c"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert!(sign(dir.path(), 3).is_some() && sign(dir.path(), 2).is_none());
        assert_eq!(ENTRIES, 100_000, "as the guide says");
    }

    #[tokio::test]
    async fn talk_is_counted_while_nothing_changes() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut diff = Diff::new(dir.path().to_owned(), Duration::from_secs(3));
        let mut said = 0;
        // Scans come once a second; the first only records the initial state.
        let waited = async {
            while diff.barren(said).await < Duration::from_secs(1) {
                said += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waited).await.expect("it is counted");
        fs::write(dir.path().join("x"), "").unwrap();
        let forgiven = async {
            while diff.barren(said).await > Duration::ZERO {
                said += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), forgiven).await.expect("a change forgives");
    }
}
