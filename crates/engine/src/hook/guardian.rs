//! The memory guardian: files that a session may not lose. Keeps a good copy of each in the state
//! folder, refuses tool calls that would gut one, and restores what was lost by other ways.
//!
//! The content at the start of a session or at a person's prompt is good: a person may change
//! everything. The agent may add to it, and take away a share. A copy is written beside and
//! renamed, so that it is whole or the old one.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use everloop_agents::protect::Globs;
use everloop_core::hex::hex;
use everloop_core::hook::{SessionAct, Shrink};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::payload::Payload;
use super::session_folder::SessionFolder;
use crate::state_folder::write_whole;

/// A larger file is not guarded: copying it would cost time in every hook.
const MAX_BYTES: u64 = 4 << 20;
/// Entries read per glob.
const MOST_ENTRIES: usize = 2_000;

/// Guards the files of a project.
pub struct Guardian<'a> {
    root: &'a Path,
    patterns: &'a [String],
    globs: Globs,
    shrink: Shrink,
    copies: PathBuf,
}

impl<'a> Guardian<'a> {
    /// For a place; `None` when it guards nothing.
    pub fn of(place: &'a SessionFolder, copies: &Path) -> Option<Self> {
        let patterns = place.hook.guarded.as_slice();
        let globs = Globs::new(patterns).ok().filter(|_| !patterns.is_empty())?;
        let root = place.root.as_path();
        // A folder per project, so that no project gets another one's copies.
        let copies = copies.join(name_of(root));
        Some(Self { root, patterns, globs, shrink: place.hook.shrink, copies })
    }

    /// Why this tool call would lose too much of a guarded file.
    pub fn refuses(&self, payload: &Payload) -> Option<String> {
        let path = payload.target()?;
        let inside = path.strip_prefix(self.root).ok()?;
        if !self.globs.protects(inside) {
            return None;
        }
        let text = fs::read_to_string(&path).ok()?;
        let (before, after) = (text.len() as u64, size_after(payload, &text)?);
        self.shrink.is_too_much(before, Some(after)).then(|| {
            format!(
                "`{}` is guarded: it would shrink from {before} to {after} bytes, and may lose at most {} % at once. \
                 Add to it, or take out smaller parts.",
                inside.display(),
                self.shrink.percent
            )
        })
    }

    /// Takes the current content as good.
    pub fn accept(&self) -> io::Result<()> {
        for path in self.present() {
            self.copy(&path)?;
        }
        Ok(())
    }

    /// Restores what was lost since; what has grown or was trimmed is the new good copy.
    pub fn restore(&self) -> io::Result<Vec<SessionAct>> {
        let mut restored = Vec::new();
        let mut paths = self.present();
        paths.extend(self.known()?);
        paths.sort();
        paths.dedup();
        for path in paths {
            let Ok(good) = fs::read(self.copy_of(&path)) else {
                self.copy(&path)?;
                continue;
            };
            let now = fs::read(&path).ok();
            if !self.shrink.is_too_much(good.len() as u64, now.as_ref().map(|bytes| bytes.len() as u64)) {
                if now.as_ref() != Some(&good) {
                    self.copy(&path)?;
                }
                continue;
            }
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            write_whole(&path, &good, 0o644)?;
            let shown = path.strip_prefix(self.root).unwrap_or(&path).display().to_string();
            restored.push(SessionAct::Restored { path: shown, left_bytes: now.map(|bytes| bytes.len() as u64) });
        }
        Ok(restored)
    }

    /// Guarded files that exist.
    fn present(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for pattern in self.patterns.iter().filter(|p| !p.starts_with('!')) {
            let plain: PathBuf = Path::new(pattern)
                .components()
                .take_while(|c| !is_glob(c.as_os_str().to_string_lossy().as_ref()))
                .collect();
            let mut open = vec![self.root.join(plain)];
            let mut left = MOST_ENTRIES;
            while let (Some(path), true) = (open.pop(), left > 0) {
                left -= 1;
                let Ok(meta) = fs::symlink_metadata(&path) else { continue };
                let inside = path.strip_prefix(self.root).unwrap_or(&path);
                if meta.is_dir() && path.file_name().is_none_or(|name| name != ".git") {
                    open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
                } else if meta.is_file() && meta.len() <= MAX_BYTES && self.globs.protects(inside) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// Files with a copy that are still guarded.
    fn known(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.copies) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let paths = names.filter(|name| !name.starts_with('.')).filter_map(|name| path_named(&name));
        Ok(paths.filter(|inside| self.globs.protects(inside)).map(|inside| self.root.join(inside)).collect())
    }

    fn copy_of(&self, path: &Path) -> PathBuf {
        self.copies.join(name_for(path.strip_prefix(self.root).unwrap_or(path)))
    }

    fn copy(&self, path: &Path) -> io::Result<()> {
        let bytes = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            bytes => bytes?,
        };
        let copy = self.copy_of(path);
        if fs::read(&copy).is_ok_and(|good| good == bytes) {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.copies)?;
        write_whole(&copy, &bytes, 0o600)
    }
}

fn is_glob(part: &str) -> bool {
    part.contains(['*', '?', '[', '{'])
}

/// The size that a file will have after the tool call; `None` when that cannot be known.
fn size_after(payload: &Payload, text: &str) -> Option<u64> {
    if let Some(content) = payload.input("content").and_then(Value::as_str) {
        return Some(content.len() as u64);
    }
    let one = |edit: &dyn Fn(&str) -> Option<Value>, text: &str| -> Option<String> {
        let (old, new) = (edit("old_string")?, edit("new_string")?);
        let all = edit("replace_all").and_then(|v| v.as_bool()).unwrap_or(false);
        let (old, new) = (old.as_str()?, new.as_str()?);
        Some(if all { text.replace(old, new) } else { text.replacen(old, new, 1) })
    };
    match payload.input("edits").and_then(Value::as_array) {
        None => one(&|field| payload.input(field).cloned(), text).map(|text| text.len() as u64),
        Some(edits) => {
            let mut text = text.to_owned();
            for edit in edits {
                text = one(&|field| edit.get(field).cloned(), &text)?;
            }
            Some(text.len() as u64)
        }
    }
}

/// A short name for a folder.
fn name_of(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    hex(&digest[..8])
}

/// A path as one file name: `%` and `/` are written out.
fn name_for(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%25").replace('/', "%2F")
}

/// The path of a file name; none that leads out of the project.
fn path_named(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(name.replace("%2F", "/").replace("%25", "%"));
    path.components().all(|c| matches!(c, std::path::Component::Normal(_))).then_some(path)
}
