//! The claims of a node: one small file for each task that it took, written before the request goes
//! to the hub and removed when the hub has the report. A node that was killed finds them again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use everloop_core::mesh::work::Held;

use crate::state_folder::write_whole;

/// The folder of claim files.
pub(crate) struct ClaimStore(PathBuf);

impl ClaimStore {
    /// In this folder, which is made if it is not there.
    pub fn open(dir: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self(dir.to_owned()))
    }

    /// All of them, by name. What cannot be read is left out.
    pub fn all(&self) -> Vec<Held> {
        let mut paths: Vec<PathBuf> = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
        paths.sort();
        paths.iter().filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok()).collect()
    }

    /// Writes one, whole or not at all, also over a power cut.
    pub fn put(&self, held: &Held) -> std::io::Result<()> {
        write_whole(&self.path(held), &serde_json::to_vec(held)?, 0o600)?;
        File::open(&self.0)?.sync_all()
    }

    /// Removes the file of a claim.
    pub fn remove(&self, held: &Held) {
        if let Err(e) = fs::remove_file(self.path(held)) {
            tracing::warn!(task = %held.task, error = %e, "the claim of a task that is over cannot be removed");
        }
    }

    fn path(&self, held: &Held) -> PathBuf {
        // Ids of tasks are our own here, but a name must never lead out of the folder.
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
        self.0.join(format!("{}.json", held.key().chars().map(plain).collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::ids::{Fence, LoopId, TaskId};
    use everloop_core::mesh::work::Stage;

    use super::*;

    #[test]
    fn what_is_held_is_found_again_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let claims = ClaimStore::open(&dir.path().join("held")).unwrap();
        let held = |task: &str, fence| Held {
            task: TaskId::new(task),
            fence: Fence(fence),
            owner: LoopId::new("k3f9"),
            stage: Stage::Working,
            alone: false,
        };
        let (one, two) = (held("k3f9-1", 1), held("../k3f9-2", 3));
        claims.put(&one).unwrap();
        claims.put(&two).unwrap();
        claims.put(&one).unwrap();
        fs::write(dir.path().join("held/torn.json"), "{").unwrap();
        let found = ClaimStore::open(&dir.path().join("held")).unwrap().all();
        assert_eq!(found.len(), 2);
        assert!(found.contains(&one) && found.contains(&two));
        claims.remove(&two);
        assert_eq!(claims.all(), [one]);
    }
}
