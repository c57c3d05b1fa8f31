//! Writes a pass to disk. The whole pass is recorded first (`pending.json`: temporary name, fsync,
//! rename, fsync of the folder), then performed, then the record is removed.
//!
//! Crash windows: before the rename nothing has happened. After it `pending.json` holds all of the
//! pass, and the next writer performs it again; performing it twice has the same effect as once. So
//! readers that check `pending.json` first always see one moment of the ledger.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{MirrorError, files, page};

/// File that records a pass under way.
pub(super) const PENDING: &str = "pending.json";

/// One change of a pass; paths are below the mirror's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MirrorChange {
    /// The file has this text from now on.
    Put { path: String, text: String },
    /// The file continues with this text after its first `at` bytes.
    Append { path: String, at: u64, text: String },
    /// The file is removed.
    Remove { path: String },
}

impl MirrorChange {
    fn note(&self) -> Value {
        match self {
            MirrorChange::Put { path, text } => json!({ "put": path, "text": text }),
            MirrorChange::Append { path, at, text } => json!({ "append": path, "at": at, "text": text }),
            MirrorChange::Remove { path } => json!({ "remove": path }),
        }
    }

    fn noted(note: &Value) -> Option<Self> {
        let text = |name: &str| note[name].as_str().map(str::to_owned);
        let change = if let Some(path) = text("put") {
            MirrorChange::Put { path, text: text("text")? }
        } else if let Some(path) = text("append") {
            MirrorChange::Append { path, at: note["at"].as_u64()?, text: text("text")? }
        } else {
            MirrorChange::Remove { path: text("remove")? }
        };
        change.is_inside().then_some(change)
    }

    pub(super) fn path(&self) -> &str {
        match self {
            MirrorChange::Put { path, .. } | MirrorChange::Append { path, .. } | MirrorChange::Remove { path } => path,
        }
    }

    /// A manipulated record must not lead out of the folder.
    fn is_inside(&self) -> bool {
        Path::new(self.path()).components().all(|part| matches!(part, std::path::Component::Normal(_)))
    }

    /// Number of bytes to write.
    pub(super) fn weight(&self) -> usize {
        match self {
            MirrorChange::Put { text, .. } | MirrorChange::Append { text, .. } => text.len() + 64,
            MirrorChange::Remove { .. } => 64,
        }
    }
}

/// Performs a pass, whole or not at all.
pub(super) fn perform(root: &Path, of: &str, changes: &[MirrorChange]) -> Result<(), MirrorError> {
    let notes: Vec<Value> = changes.iter().map(MirrorChange::note).collect();
    let note =
        [MirrorChange::Put { path: PENDING.to_owned(), text: page::encode("pending", of, &Value::Array(notes)) }];
    apply(root, &note)?;
    apply(root, changes)?;
    apply(root, &[MirrorChange::Remove { path: PENDING.to_owned() }])
}

/// Remaining changes of an interrupted pass; none when there was none. An incomplete record was
/// never in force.
pub(super) fn pending(root: &Path) -> Option<(String, Vec<MirrorChange>)> {
    let page = page::open(&fs::read(root.join(PENDING)).ok()?).ok().filter(|page| page.kind == "pending")?;
    let changes = page.row.as_array()?.iter().map(MirrorChange::noted).collect::<Option<_>>()?;
    Some((page.of, changes))
}

/// Completes an interrupted pass.
pub(super) fn resume(root: &Path) -> Result<(), MirrorError> {
    if let Some((_, changes)) = pending(root) {
        apply(root, &changes)?;
    }
    apply(root, &[MirrorChange::Remove { path: PENDING.to_owned() }])
}

/// All files under temporary names and synced, then all names, then all folders: a sync is
/// expensive, so they are batched.
fn apply(root: &Path, changes: &[MirrorChange]) -> Result<(), MirrorError> {
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    for change in changes {
        let path = root.join(change.path());
        let folder = path.parent().unwrap_or(root).to_owned();
        if !matches!(change, MirrorChange::Remove { .. }) && !folders.contains(&folder) {
            make(&folder)?;
        }
        if let MirrorChange::Put { text, .. } = change {
            write_new(&path, text.as_bytes())?;
        }
        folders.insert(folder);
    }
    for change in changes {
        let path = root.join(change.path());
        #[cfg(test)]
        crash::here(&path)?;
        match change {
            MirrorChange::Put { .. } => fs::rename(temporary(&path), &path).map_err(files("write", &path))?,
            MirrorChange::Append { at, text, .. } => {
                append(&path, *at, text.as_bytes()).map_err(files("write", &path))?;
            }
            MirrorChange::Remove { .. } => match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(files("remove", &path)(e)),
                _ => {}
            },
        }
    }
    for folder in folders {
        match File::open(&folder).and_then(|folder| folder.sync_all()) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(files("sync", &folder)(e)),
            _ => {}
        }
    }
    Ok(())
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), MirrorError> {
    #[cfg(test)]
    crash::here(path)?;
    let new = temporary(path);
    let written = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        #[cfg(test)]
        crash::torn(&mut file, bytes)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    written().map_err(files("write", path))
}

fn append(path: &Path, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_len(at)?;
    file.seek(SeekFrom::Start(at))?;
    #[cfg(test)]
    crash::torn(&mut file, bytes)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Creates a private folder.
pub(super) fn make(folder: &Path) -> Result<(), MirrorError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(files("make", folder))
}

/// Writes a file that is not needed after a crash: whole or the one before, but not synced.
pub(super) fn put_lightly(path: &Path, text: &str) -> Result<(), MirrorError> {
    let new = temporary(path);
    let written = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    written().map_err(files("write", path))
}

/// Interrupts a pass at any of its steps, for tests.
#[cfg(test)]
pub(super) mod crash {
    use std::cell::Cell;
    use std::fs::File;
    use std::io::{Error as IoError, Write};
    use std::path::Path;

    use super::{MirrorError, files};

    thread_local! {
        static STEPS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// After this many steps everything fails on this thread; `None` for never.
    pub(in super::super) fn after(steps: Option<u32>) {
        STEPS_LEFT.set(steps);
    }

    fn is_now() -> bool {
        let left = STEPS_LEFT.get();
        STEPS_LEFT.set(left.map(|n| n.saturating_sub(1)));
        left == Some(0)
    }

    pub(super) fn here(path: &Path) -> Result<(), MirrorError> {
        if is_now() { Err(files("write", path)(IoError::other("the plug was pulled"))) } else { Ok(()) }
    }

    /// Writes only half of the bytes.
    pub(super) fn torn(file: &mut File, bytes: &[u8]) -> Result<(), IoError> {
        if is_now() {
            file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(IoError::other("the plug was pulled"));
        }
        Ok(())
    }
}
