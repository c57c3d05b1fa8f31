//! A signature of a folder's files, so that checks are not run twice on the same ones. It trusts
//! what git's index trusts: inode, size, mode and both times. Beyond a bound there is no signature,
//! and the checks are run.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use everloop_core::hex::hex;
use sha2::{Digest, Sha256};

/// As many entries can be read in the time that a hook may take.
const MOST_ENTRIES: u32 = 20_000;

/// The signature; `None` when there are too many entries, or one cannot be read.
pub fn signature(dir: &Path) -> Option<String> {
    let (mut hash, mut left) = (Sha256::new(), MOST_ENTRIES);
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        let mut entries = fs::read_dir(&folder).ok()?.collect::<Result<Vec<_>, _>>().ok()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            left = left.checked_sub(1)?;
            let meta = entry.metadata().ok()?;
            // Of git's own files only what is checked out matters, and that is read itself.
            if meta.is_dir() && entry.file_name() == ".git" {
                continue;
            }
            hash.update(entry.path().as_os_str().as_bytes());
            hash.update([0]);
            let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
            if meta.is_dir() {
                open.push(entry.path());
            } else {
                for number in [meta.ino(), meta.len(), meta.mode().into()] {
                    hash.update(number.to_le_bytes());
                }
                for time in times {
                    hash.update(time.to_le_bytes());
                }
            }
        }
    }
    Some(hex(&hash.finalize()[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_seen_and_the_same_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let sign = || signature(dir.path()).unwrap();
        fs::create_dir_all(dir.path().join("a/.git")).unwrap();
        let empty = sign();
        fs::write(dir.path().join("a/x"), "1").unwrap();
        let one = sign();
        assert_ne!(one, empty);
        assert_eq!(one, sign());
        fs::write(dir.path().join("a/.git/index"), "git's own").unwrap();
        assert_eq!(one, sign());
        fs::rename(dir.path().join("a/x"), dir.path().join("a/y")).unwrap();
        assert_ne!(one, sign());
        assert_eq!(signature(&dir.path().join("nowhere")), None);
    }
}
