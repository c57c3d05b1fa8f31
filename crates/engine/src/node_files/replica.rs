//! The file in which a node keeps the last known state of the hub, so that a machine can continue
//! offline after a restart.

use std::path::PathBuf;

use everloop_core::mesh::offline::Replica;

use crate::state_folder::{StateFolder, write_whole};

/// What the file holds; nothing when it cannot be read.
pub(crate) fn read(home: &StateFolder) -> Replica {
    let text = std::fs::read(path(home)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Writes it, whole or not at all.
pub(crate) fn write(home: &StateFolder, replica: &Replica) -> std::io::Result<()> {
    let text = serde_json::to_vec(replica).expect("a replica is plain data and always has a JSON form");
    write_whole(&path(home), &text, 0o600)
}

fn path(home: &StateFolder) -> PathBuf {
    home.mesh().join("replica.json")
}
