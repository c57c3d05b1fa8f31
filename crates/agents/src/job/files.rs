//! How files of a job are opened. A command may run as this user without isolation and put a named
//! pipe, a link or a device in the place of a log: opening it must neither wait nor lead elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use everloop_core::planted::{self, Bug};
use nix::libc;
use nix::unistd::geteuid;

/// Opens a file for reading.
pub(super) fn read(path: &Path) -> io::Result<File> {
    open(OpenOptions::new().read(true), path)
}

/// Opens a file for reading and appending; it is created if it is missing.
pub(super) fn append(path: &Path) -> io::Result<File> {
    open(OpenOptions::new().read(true).append(true).create(true).mode(0o600), path)
}

/// Makes an empty file that only this user can read. What is in its place, if it is not such a file
/// itself, is removed; a link is removed, not what it leads to.
pub fn create_private(path: &Path) -> io::Result<File> {
    let file = match open(OpenOptions::new().write(true).create(true).mode(0o600), path) {
        Err(e) if is_strange(&e) => {
            fs::remove_file(path)?;
            open(OpenOptions::new().write(true).create_new(true).mode(0o600), path)?
        }
        other => other?,
    };
    // Not by the call that opens it: a file that is not ours must not be emptied.
    file.set_len(0)?;
    Ok(file)
}

/// The size of a file; `None` when it is missing or not one of ours.
pub(super) fn size(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().filter(is_ours).map(|meta| meta.len())
}

/// Whether an error means that something else is in the place of a file.
pub(super) fn is_strange(error: &io::Error) -> bool {
    // A link (ELOOP), a pipe without a reader or a socket (ENXIO), a folder.
    let codes = [libc::ELOOP, libc::ENXIO, libc::EISDIR, libc::ENODEV];
    error.raw_os_error().is_some_and(|code| codes.contains(&code)) || error.kind() == io::ErrorKind::InvalidData
}

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    if planted::is(Bug::FollowsStrangeLogs) {
        return options.open(path);
    }
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if is_ours(&file.metadata()?) {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a plain file of this user"))
}

/// A plain file of this user under one name: a second name could be a file of the person.
fn is_ours(meta: &fs::Metadata) -> bool {
    meta.is_file() && meta.uid() == geteuid().as_raw() && meta.nlink() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_but_a_plain_file_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("precious"), "kept").unwrap();
        symlink(path("precious"), path("link")).unwrap();
        fs::hard_link(path("precious"), path("second")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(path("folder")).unwrap();
        for name in ["link", "second", "pipe", "folder"] {
            assert!(read(&path(name)).is_err_and(|e| is_strange(&e)), "{name}");
            assert!(append(&path(name)).is_err_and(|e| is_strange(&e)), "{name}");
            assert_eq!(size(&path(name)), None, "{name}");
        }
        for name in ["link", "second", "pipe"] {
            create_private(&path(name)).unwrap().write_all(b"new").unwrap();
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "new");
        }
        assert_eq!(fs::read_to_string(path("precious")).unwrap(), "kept");
        create_private(&path("link")).unwrap();
        assert_eq!(size(&path("link")), Some(0), "a file of ours is emptied");
        assert!(read(&path("missing")).is_err_and(|e| !is_strange(&e)));
    }
}
