//! The content of files before `init` changed them, kept in the state folder: only so can they be
//! restored to the byte, also where an empty object or a missing line end was. Without the record,
//! or after another change, our entries are recognised by their content and removed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use everloop_core::hex::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::FileChange;
use crate::state_folder::StateFolder;

/// Version of the record.
const VERSION: u32 = 1;

/// Original content of one project's files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Originals {
    version: u32,
    /// By path from the project's folder.
    files: BTreeMap<String, Original>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Original {
    /// `None`: the file did not exist.
    before: Option<String>,
    /// Hash of the content that we wrote.
    after: String,
}

impl Originals {
    /// Loads a project's record; empty when nothing was recorded.
    pub fn load(home: &StateFolder, root: &Path) -> io::Result<Self> {
        match std::fs::read_to_string(place(home, root)) {
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::other),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e),
        }
    }

    /// Records the original of a change. A file that was changed before keeps its first original.
    pub fn add(&mut self, change: &FileChange, root: &Path) {
        let Some(after) = &change.after else { return };
        let name = name(&change.path, root);
        let known = self.files.get(&name).filter(|old| Some(&old.after) == change.before.as_deref().map(hash).as_ref());
        let before = known.map_or_else(|| change.before.clone(), |old| old.before.clone());
        self.files.insert(name, Original { before, after: hash(after) });
    }

    /// Saves the record. Before the files are changed: a record too many does no harm.
    pub fn save(&self, home: &StateFolder, root: &Path) -> io::Result<()> {
        let path = place(home, root);
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        let text = serde_json::to_string(&Self { version: VERSION, files: self.files.clone() })?;
        std::fs::write(path, text)
    }

    /// Removes the project's record.
    pub fn forget(home: &StateFolder, root: &Path) -> io::Result<()> {
        match std::fs::remove_file(place(home, root)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// The changes that restore files that were not changed since.
    pub fn undo(&self, root: &Path) -> io::Result<Vec<FileChange>> {
        let mut changes = Vec::new();
        for (name, original) in &self.files {
            let mut change = FileChange::of(root.join(name))?;
            if change.before.as_deref().map(hash).as_ref() == Some(&original.after) {
                change.after.clone_from(&original.before);
                changes.push(change);
            }
        }
        Ok(changes)
    }

    /// The original content of a file, if it existed.
    pub fn of(&self, path: &Path, root: &Path) -> Option<String> {
        self.files.get(&name(path, root))?.before.clone()
    }

    /// The recorded files.
    pub fn paths(&self, root: &Path) -> Vec<PathBuf> {
        self.files.keys().map(|name| root.join(name)).collect()
    }
}

fn name(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn place(home: &StateFolder, root: &Path) -> PathBuf {
    home.root().join("installs").join(format!("{}.json", hash(&root.display().to_string())))
}

fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..16])
}
