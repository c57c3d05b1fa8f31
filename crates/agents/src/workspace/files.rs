//! Small operations on files that the workspace needs in more than one place: remove a path, move
//! it out of the way, write a note atomically.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WorkspaceError;

/// Runs `action`, which may take long, on a blocking thread.
pub(super) async fn apart<T: Send + 'static>(
    action: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    match tokio::task::spawn_blocking(action).await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Removes a file, link or folder, also one without write permission; a missing one is fine. Links
/// are not followed.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let gone_is_fine = |result: io::Result<()>| match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(meta) if !meta.is_dir() => gone_is_fine(fs::remove_file(path)),
        Ok(_) => fs::remove_dir_all(path).or_else(|_| {
            open_folders(path)?;
            gone_is_fine(fs::remove_dir_all(path))
        }),
    }
}

/// The same on a blocking thread: dependencies in a checkout can be a million files.
pub async fn remove_apart(path: &Path) -> Result<(), WorkspaceError> {
    let path = path.to_owned();
    apart(move || remove(&path).map_err(WorkspaceError::files("remove", &path))).await
}

/// Makes a folder and all folders below it writable again.
fn open_folders(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_folders(&entry.path())?;
        }
    }
    Ok(())
}

/// Creates a folder that is private to its owner.
pub(super) fn make_private(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Moves what is at `path`, if anything, into `folder` under a free name, and returns the new path.
pub(super) fn set_aside(path: &Path, folder: &Path) -> io::Result<Option<PathBuf>> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(None);
    }
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut place = folder.join(&name);
    for number in 1u32.. {
        if fs::symlink_metadata(&place).is_err() {
            break;
        }
        place = folder.join(format!("{name}.{number}"));
    }
    fs::rename(path, &place)?;
    Ok(Some(place))
}

/// Writes `value` to `path` atomically, also when this process is killed. A power cut may lose it.
pub(super) fn write_note(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let new = beside(path);
    fs::write(&new, serde_json::to_vec(value)?)?;
    // On ext4 a rename over an existing file waits for the disk. Between the two calls a reader
    // takes the new file.
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => fs::rename(&new, path),
    }
}

/// The same, durable across a power cut.
pub(super) fn write_note_durably(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_whole(path, &serde_json::to_vec(value)?)
}

/// Writes `bytes` to `path` atomically and durably.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path);
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Reads what [`write_note`] wrote; `None` when it is missing, or damaged by a power cut.
pub(super) fn read_note<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let found = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => fs::read(beside(path)),
        found => found,
    };
    match found {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
