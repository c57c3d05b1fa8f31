//! Files that match a glob: one appeared, changed or vanished. Sizes and times are read, never
//! contents.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use everloop_core::time::human;
use everloop_core::watch::{MonitorCursor, WatchedContent};

use super::{hash, written};
use crate::protect::Globs;

/// A glob that leads to more is too wide to be walked repeatedly.
const MOST_ENTRIES: usize = 50_000;
/// Names in the task's text.
const NAMES: usize = 100;
/// Names in the line of the journal.
const FEW: usize = 3;
/// Allowed difference between file times and this machine's clock.
const SKEW: Duration = Duration::from_secs(2);

pub(super) fn look(
    glob: &str,
    dir: &Path,
    seen: Option<&MonitorCursor>,
    within: Duration,
) -> Result<WatchedContent, String> {
    let mut walk = Walk { deadline: Instant::now() + within, within, entries: 0, found: Vec::new() };
    let (root, rest) = split(glob);
    let root = dir.join(root);
    if rest.as_os_str().is_empty() {
        match fs::symlink_metadata(&root) {
            Ok(meta) if meta.is_dir() => walk.below(&root, Path::new(""), &|_| true)?,
            Ok(meta) => walk.found.push((PathBuf::new(), meta)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("`{}` cannot be read: {e}", root.display())),
        }
    } else {
        let globs = Globs::new(&[rest.to_string_lossy().into_owned()]).map_err(|e| e.to_string())?;
        walk.below(&root, Path::new(""), &|path| globs.protects(path))?;
    }
    let mut found = walk.found;
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut marks = String::new();
    for (path, meta) in &found {
        use std::fmt::Write as _;
        let (name, size) = (path.display(), meta.len());
        writeln!(marks, "{name}\0{size}\0{}.{}\0{}", meta.mtime(), meta.mtime_nsec(), meta.ino())
            .expect("strings take everything");
    }
    let short = format!("{}:{}", found.len(), hash(marks.as_bytes()));
    let newest = found.iter().map(|(_, meta)| changed(meta)).max().unwrap_or_default();
    // An earlier version kept no time; the same files are no change.
    let is_known = seen.is_some_and(|seen| seen.cursor == short);
    let cursor = if is_known { short } else { format!("{short}:{newest}") };
    let (summary, text) = describe(&root, &found, seen);
    Ok(WatchedContent { cursor, summary, text })
}

/// The folder that is walked, and the glob below it.
fn split(glob: &str) -> (PathBuf, PathBuf) {
    let is_plain = |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']);
    let parts: Vec<Component<'_>> = Path::new(glob).components().collect();
    let plain = parts.iter().take_while(|part| is_plain(part)).count();
    (parts[..plain].iter().collect(), parts[plain..].iter().collect())
}

struct Walk {
    deadline: Instant,
    within: Duration,
    entries: usize,
    found: Vec<(PathBuf, Metadata)>,
}

impl Walk {
    /// Does not follow links, and skips git's own folder.
    fn below(&mut self, root: &Path, inside: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<(), String> {
        let folder = root.join(inside);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(format!("`{}` cannot be read: {e}", folder.display())),
        };
        for entry in entries {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(format!("there are more than {MOST_ENTRIES} files below `{}`", root.display()));
            }
            if Instant::now() > self.deadline {
                return Err(format!("it took longer than {}", human(self.within)));
            }
            let Ok(entry) = entry else { continue };
            let path = inside.join(entry.file_name());
            // The file was removed since the listing.
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() && entry.file_name() != ".git" {
                self.below(root, &path, wanted)?;
            } else if !meta.is_dir() && wanted(&path) {
                self.found.push((path, meta));
            }
        }
        Ok(())
    }
}

/// When the file system last changed a file's entry, in nanoseconds. Unlike the time of writing it
/// also moves when an older file is moved here, and no program sets it.
fn changed(meta: &Metadata) -> i128 {
    i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec())
}

/// Which files were written since, and whether there are fewer.
fn describe(root: &Path, found: &[(PathBuf, Metadata)], seen: Option<&MonitorCursor>) -> (String, String) {
    let Some(seen) = seen else { return (String::new(), String::new()) };
    let before: usize = seen.cursor.split(':').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    // What was reported once is at most as new as the newest file then.
    let reported: Option<i128> = seen.cursor.split(':').nth(2).and_then(|n| n.parse().ok());
    let is_new = |meta: &Metadata| match reported {
        Some(newest) => changed(meta) > newest,
        None => written(meta).is_none_or(|at| at + SKEW >= seen.at),
    };
    let name = |path: &Path| if path.as_os_str().is_empty() { root.to_owned() } else { root.join(path) };
    let names: Vec<String> =
        found.iter().filter(|(_, meta)| is_new(meta)).map(|(path, _)| name(path).display().to_string()).collect();
    let counts = format!("{} files match now, {before} did before", found.len());
    let few: Vec<&str> = names.iter().take(FEW).map(String::as_str).collect();
    let summary = if names.is_empty() { counts.clone() } else { format!("{counts}; written: {}", few.join(", ")) };
    let mut text = format!("{counts}.");
    if !names.is_empty() {
        let listed: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
        text = format!("{text} Written since the last look:\n{}", listed.join("\n"));
    }
    if names.len() > NAMES {
        text = format!("{text}\n… and {} more", names.len() - NAMES);
    }
    (summary, text)
}

#[cfg(test)]
mod tests {
    use everloop_core::time::Time;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);

    fn cursor(glob: &str, dir: &Path) -> String {
        look(glob, dir, None, WITHIN).expect("it can be looked at").cursor
    }

    #[test]
    fn what_appears_changes_or_goes_is_seen_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("in/deep/.git")).expect("folders can be made");
        let empty = cursor("in/**/*.txt", dir.path());
        assert_eq!(empty, cursor("in/**/*.txt", dir.path()), "the same twice");
        fs::write(at("in/deep/a.txt"), "a").expect("it can be written");
        let one = cursor("in/**/*.txt", dir.path());
        fs::write(at("in/deep/a.txt"), "ab").expect("it can be written");
        let changed = cursor("in/**/*.txt", dir.path());
        fs::write(at("in/deep/b.md"), "other").expect("it can be written");
        fs::write(at("in/deep/.git/c.txt"), "git's").expect("it can be written");
        assert_eq!(changed, cursor("in/**/*.txt", dir.path()), "others do not match");
        fs::remove_file(at("in/deep/a.txt")).expect("it was there");
        let gone = cursor("in/**/*.txt", dir.path());
        assert!(one != empty && changed != one && gone == empty, "{empty} {one} {changed} {gone}");
        assert_ne!(cursor("in", dir.path()), cursor("in/deep/b.md", dir.path()), "a folder stands for all in it");
        assert_eq!(cursor("nowhere/*.txt", dir.path()), empty, "what is not there yet may come");
    }

    #[test]
    fn the_task_names_what_was_written() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("new.txt"), "").expect("it can be written");
        let seen = MonitorCursor { cursor: "4:x".to_owned(), at: Time(0), task: None };
        let found = look("*.txt", dir.path(), Some(&seen), WITHIN).expect("it can be looked at");
        assert!(
            found.text.contains("new.txt") && found.summary.contains("1 files match now, 4 did before"),
            "{found:?}"
        );
        let later = MonitorCursor { at: Time(i64::MAX / 2), ..seen };
        let found = look("*.txt", dir.path(), Some(&later), WITHIN).expect("it can be looked at");
        assert!(!found.text.contains("new.txt"), "{found:?}");
    }

    #[test]
    fn each_change_is_reported_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str| fs::write(dir.path().join(name), "x").expect("it can be written");
        let at = |found: WatchedContent| MonitorCursor { cursor: found.cursor, at: Time(0), task: None };
        let see = |seen: &MonitorCursor| look("*.txt", dir.path(), Some(seen), WITHIN).expect("it can be looked at");
        write("a.txt");
        let first = at(look("*.txt", dir.path(), None, WITHIN).expect("it can be looked at"));
        // The clock of a file system moves in steps.
        let at_now = |name: &str| changed(&fs::metadata(dir.path().join(name)).expect("it is there"));
        write("b.txt");
        while at_now("b.txt") <= at_now("a.txt") {
            write("b.txt");
        }
        let found = see(&first);
        assert!(found.text.contains("b.txt") && !found.text.contains("a.txt"), "{found:?}");
        let second = at(found);
        assert_eq!(see(&second).cursor, second.cursor, "nothing is new");
        let old = MonitorCursor { cursor: second.cursor.rsplit_once(':').unwrap().0.to_owned(), ..second };
        assert_eq!(see(&old).cursor, old.cursor, "a cursor of an earlier version");
    }

    #[test]
    fn a_walk_has_an_end() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("a"), "").expect("it can be written");
        assert!(look("*", dir.path(), None, Duration::ZERO).expect_err("no time").contains("took longer"));
        assert!(look("[", dir.path(), None, WITHIN).is_err());
    }
}
