//! Whether the files of a turn are unchanged since git last inspected them. Saves a `git status`
//! after a turn that did nothing. Only equality is ever concluded from here; anything that is not
//! provably the same is left to git.
//!
//! A fingerprint is a hash over each entry of the folder, but for the agent's `.git`, with inode,
//! size, mode and both times. That is what git's own index trusts, and more: a change time cannot
//! be set back. All else that `git status` depends on is in everloop's own git folder and does not
//! change. A fingerprint is taken *before* git runs, so that any change meanwhile invalidates it.
//! An entry that changed a moment ago could change again within the same tick of the file system's
//! clock and look the same; with such an entry there is no fingerprint.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// Beyond this many entries git, which skips ignored folders, is as fast.
const MOST_ENTRIES: u32 = 1_000;

/// Two ticks of the slowest clock with which Linux stamps files (100 Hz).
pub(super) const TICK: Duration = Duration::from_millis(20);

/// Some file systems keep whole seconds only, the oldest of them every other one.
const COARSE_TICK: Duration = Duration::from_secs(2);

/// A fingerprint of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

/// Why there is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsealed {
    /// Something changed only a moment ago; this is temporary.
    New,
    /// There are too many entries, or only git can interpret them.
    Beyond,
}

/// Takes a fingerprint of the files in `tree`.
pub(super) fn take(tree: &Path) -> Result<Fingerprint, Unsealed> {
    let (now, mut left, mut hash) = (SystemTime::now(), MOST_ENTRIES, Sha256::new());
    let mut open = vec![tree.to_owned()];
    while let Some(path) = open.pop() {
        left = left.checked_sub(1).ok_or(Unsealed::Beyond)?;
        hash.update(path.as_os_str().as_bytes());
        hash.update([0]);
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            Err(_) => return Err(Unsealed::Beyond),
        };
        describe(&mut hash, &meta);
        if meta.is_dir() {
            let mut below = entries(&path).map_err(|_| Unsealed::Beyond)?;
            let is_git = |path: &PathBuf| path.file_name() == Some(OsStr::new(".git"));
            if path == tree {
                below.retain(|path| !is_git(path));
            } else if below.iter().any(is_git) {
                // A repository inside of this one: git reads its state from elsewhere.
                return Err(Unsealed::Beyond);
            }
            open.extend(below);
        } else if !changed_before(&meta, Some(now)) {
            return Err(Unsealed::New);
        }
    }
    Ok(Fingerprint(hash.finalize().into()))
}

fn describe(hash: &mut Sha256, meta: &Metadata) {
    // The times of a folder change with what is in it; its entries are hashed themselves.
    let (bytes, times) = if meta.is_dir() {
        (0, [0; 4])
    } else {
        (meta.len(), [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()])
    };
    for number in [meta.dev(), meta.ino(), meta.mode().into(), bytes] {
        hash.update(number.to_le_bytes());
    }
    for time in times {
        hash.update(time.to_le_bytes());
    }
}

/// The entries of a folder, in a fixed order.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Whether an entry last changed before `then`, and not within the same tick.
pub(super) fn changed_before(meta: &Metadata, then: Option<SystemTime>) -> bool {
    // Times before 1970 are a clock error, and long ago.
    let changed = tick_after(meta.ctime().max(0).unsigned_abs(), meta.ctime_nsec().unsigned_abs());
    then.is_some_and(|then| changed < then)
}

/// Upper bound of the time of a change that is stamped so.
pub(super) fn tick_after(seconds: u64, nanos: u64) -> SystemTime {
    let tick = if nanos == 0 { COARSE_TICK } else { TICK };
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanos) + tick
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Instant;

    use super::*;

    /// Fingerprints until one can be taken.
    fn settled(dir: &Path) -> Fingerprint {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match take(dir) {
                Ok(fingerprint) => return fingerprint,
                Err(Unsealed::New) if Instant::now() < end => std::thread::yield_now(),
                Err(why) => panic!("{why:?}"),
            }
        }
    }

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub/deep")).unwrap();
        for name in ["a.txt", "sub/deep/b.txt"] {
            fs::write(dir.path().join(name), "one\n").unwrap();
        }
        symlink("a.txt", dir.path().join("link")).unwrap();
        dir
    }

    /// Writes another text of the same length, with the times of the old one.
    fn forge(path: &Path, text: &str) {
        let modified = fs::metadata(path).unwrap().modified().unwrap();
        fs::write(path, text).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    }

    #[test]
    fn every_change_shows_and_the_agents_own_git_does_not() {
        let dir = folder();
        let at = |name: &str| dir.path().join(name);
        let mut seen = vec![settled(dir.path())];
        assert_eq!(settled(dir.path()), seen[0]);
        fs::create_dir_all(at(".git/refs")).unwrap();
        fs::write(at(".git/index"), "x").unwrap();
        assert_eq!(settled(dir.path()), seen[0]);
        let changes: [&dyn Fn(); 7] = [
            &|| forge(&at("a.txt"), "two\n"),
            &|| fs::set_permissions(at("a.txt"), Permissions::from_mode(0o755)).unwrap(),
            &|| fs::write(at("sub/new"), "").unwrap(),
            &|| fs::rename(at("sub/new"), at("sub/other")).unwrap(),
            &|| fs::remove_file(at("sub/deep/b.txt")).unwrap(),
            &|| fs::remove_file(at("link")).and_then(|()| symlink("b.txt", at("link"))).unwrap(),
            &|| fs::create_dir(at("empty")).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            change();
            let now = settled(dir.path());
            assert!(!seen.contains(&now), "change {number} does not show");
            seen.push(now);
        }
    }

    #[test]
    fn an_edit_in_the_tick_of_the_seal_breaks_it() {
        let dir = folder();
        let path = dir.path().join("a.txt");
        for _ in 0..200 {
            let begun = Instant::now();
            fs::write(&path, "one\n").unwrap();
            let before = take(dir.path());
            assert!(before == Err(Unsealed::New) || begun.elapsed() >= TICK, "a fingerprint within a tick");
            forge(&path, "two\n");
            assert!(before.is_err() || take(dir.path()) != before, "the two look the same");
        }
    }

    #[test]
    fn what_only_git_can_tell_is_left_to_git() {
        let dir = folder();
        fs::create_dir_all(dir.path().join("sub/.git")).unwrap();
        assert_eq!(take(dir.path()), Err(Unsealed::Beyond));
        fs::remove_dir(dir.path().join("sub/.git")).unwrap();
        for number in 0..MOST_ENTRIES {
            symlink("x", dir.path().join(format!("{number}.log"))).unwrap();
        }
        settled_beyond(dir.path());
    }

    fn settled_beyond(dir: &Path) {
        let end = Instant::now() + Duration::from_secs(20);
        while take(dir) != Err(Unsealed::Beyond) {
            assert!(Instant::now() < end, "too many entries have a fingerprint");
        }
    }
}
