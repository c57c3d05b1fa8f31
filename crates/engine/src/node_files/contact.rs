//! When the hub last answered this node: a small file, written when the hub goes away, when the
//! node ends, and now and then while all is well. It gives the age of the node's copy of the hub,
//! also while no supervisor runs.

use std::path::PathBuf;

use everloop_core::time::Time;
use serde::{Deserialize, Serialize};

use crate::state_folder::{StateFolder, write_whole};

/// What is known of the line to the hub. Times are program time, as everywhere on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// The hub answered at this time, or later while `away_since` is empty.
    pub answered_at: Time,
    /// The hub does not answer since then.
    pub away_since: Option<Time>,
}

/// What the file holds; `None` when there is none that can be read.
pub(crate) fn read(home: &StateFolder) -> Option<Contact> {
    serde_json::from_slice(&std::fs::read(path(home)).ok()?).ok()
}

/// Writes it, whole or not at all.
pub(crate) fn write(home: &StateFolder, contact: &Contact) {
    let text = serde_json::to_vec(contact).expect("a contact is plain data and always has a JSON form");
    if let Err(error) = write_whole(&path(home), &text, 0o600) {
        tracing::warn!(%error, "cannot write when the hub last answered");
    }
}

fn path(home: &StateFolder) -> PathBuf {
    home.mesh().join("contact.json")
}
