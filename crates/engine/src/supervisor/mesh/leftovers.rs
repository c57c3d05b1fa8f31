//! Files that attempts leave behind: the folders of their loops, their refs in the clone, and the
//! clones themselves. What cannot be removed is tried again with the next look.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use everloop_agents::workspace::remove_refs;
use everloop_core::ids::LoopId;
use everloop_core::mesh::work::mesh_loop_of;
use everloop_core::time::Time;

use crate::state_folder::StateFolder;

/// Folders under `mesh` that hold clones have the id of their loop; these do not.
const HELD: &str = "held";

/// Removes the folders of a loop for a task and its refs in the clone.
pub(super) async fn remove_local(home: StateFolder, id: LoopId) {
    let id = &id;
    for folder in home.of_loop(id, &BTreeSet::new()) {
        remove(&folder);
    }
    if let Some(owner) = mesh_loop_of(id) {
        let repo = home.mesh().join(owner.as_str()).join("repo");
        if let Err(error) = remove_refs(&repo, id).await {
            tracing::debug!(%id, %error, "cannot remove the refs of a loop that is over");
        }
    }
}

/// Loops of the mesh with a clone here that nothing changed since `before`, in machine time.
pub(super) fn clones(home: &StateFolder, before: Time) -> Vec<LoopId> {
    let before = UNIX_EPOCH + Duration::from_millis(before.0.unsigned_abs());
    let old = |path: &Path| {
        let newest =
            ["repo/.git", "lead/.git", "."].iter().filter_map(|part| path.join(part).metadata().ok()?.modified().ok());
        newest.max().is_some_and(|at| at < before)
    };
    let entries = fs::read_dir(home.mesh()).into_iter().flatten().flatten();
    let clones = entries.filter(|entry| entry.path().is_dir() && entry.file_name() != HELD && old(&entry.path()));
    clones.filter_map(|entry| entry.file_name().to_str().map(LoopId::new)).collect()
}

/// Removes a clone and the leader's checkout beside it.
pub(super) fn remove_clone(home: &StateFolder, id: &LoopId) {
    remove(&home.mesh().join(id.as_str()));
    remove(&home.work(id));
}

fn remove(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "cannot remove what an attempt left behind");
        }
        _ => {}
    }
}
