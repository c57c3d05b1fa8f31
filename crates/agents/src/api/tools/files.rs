//! The file tools: read, write, edit. `confined` opens the files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use memchr::memmem;

use super::confined::{For, Root};
use super::{Trouble, middle_out};

/// Default number of lines shown.
const LINES: u64 = 2_000;
/// Bytes of a file that can be read; bigger files are data.
const LONGEST_READ: u64 = 32 << 20;
/// Bound of a file that is edited in memory.
const LONGEST_EDIT: u64 = 8 << 20;
/// Names of a folder that are listed.
const MOST_NAMES: usize = 1_000;

/// Lines of a file from `offset` (counted from 1), or the names in a folder.
pub(super) fn read(root: &Root, path: &str, range: (Option<u64>, Option<u64>)) -> Result<String, Trouble> {
    let file = root.file(path, For::Reading)?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return list(&file);
    }
    let bytes = content(&file, LONGEST_READ)?;
    let text = String::from_utf8_lossy(&bytes);
    let first = usize::try_from(range.0.unwrap_or(1).max(1)).unwrap_or(usize::MAX);
    let most = usize::try_from(range.1.unwrap_or(LINES)).unwrap_or(usize::MAX);
    let total = text.lines().count();
    let shown: Vec<&str> = text.split_inclusive('\n').skip(first - 1).take(most).collect();
    if shown.is_empty() {
        return Ok(format!("[no lines there: the file has {total}]"));
    }
    let last = first - 1 + shown.len();
    let mut out = middle_out(&shown.concat());
    if first > 1 || last < total {
        out.push_str(&format_range(first, last, total));
    }
    Ok(out)
}

fn format_range(first: usize, last: usize, total: usize) -> String {
    format!("\n[lines {first} to {last} of {total}]")
}

fn list(dir: &File) -> Result<String, Trouble> {
    // Through the open descriptor: the path may lead to another folder by now.
    let here = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let entries = std::fs::read_dir(Path::new(&here)).map_err(|e| format!("cannot read the folder: {e}"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .take(MOST_NAMES + 1)
        .map(|entry| {
            let slash = if entry.file_type().is_ok_and(|t| t.is_dir()) { "/" } else { "" };
            format!("{}{slash}", entry.file_name().to_string_lossy())
        })
        .collect();
    let more = names.len() > MOST_NAMES;
    names.truncate(MOST_NAMES);
    names.sort();
    if more {
        names.push("[…]".to_owned());
    }
    Ok(if names.is_empty() { "[the folder is empty]".to_owned() } else { names.join("\n") })
}

/// Creates or replaces a file.
pub(super) fn write(root: &Root, path: &str, content: &str) -> Result<String, Trouble> {
    let file = root.file(path, For::Making)?;
    replace(file, content.as_bytes())?;
    Ok(format!("wrote {} bytes", content.len()))
}

/// Replaces the only occurrence of `old`.
pub(super) fn edit(root: &Root, path: &str, change: (&str, &str)) -> Result<String, Trouble> {
    let (old, new) = change;
    if old.is_empty() {
        return Err("`old` is empty: name the passage, or use `write` for a new file".to_owned());
    }
    if old == new {
        return Err("`old` and `new` are the same".to_owned());
    }
    let file = root.file(path, For::Changing)?;
    let bytes = content(&file, LONGEST_EDIT)?;
    if bytes.len() as u64 == LONGEST_EDIT {
        return Err("the file is too big for `edit`".to_owned());
    }
    let found: Vec<usize> = memmem::find_iter(&bytes, old.as_bytes()).collect();
    let [at] = found.as_slice() else {
        return Err(match found.len() {
            0 => "`old` does not stand in the file; read it again and copy the passage exactly".to_owned(),
            n => format!("`old` stands in the file {n} times; add lines around it until it is unique"),
        });
    };
    let rest = &bytes[at + old.len()..];
    replace(file, &[&bytes[..*at], new.as_bytes(), rest].concat())?;
    Ok("edited".to_owned())
}

fn content(file: &File, most: u64) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(|e| format!("cannot read the file: {e}"))?;
    Ok(bytes)
}

/// Written in place, so that the file keeps its mode, and truncated at the end: an interruption
/// leaves the new beginning and the old end. No commit is made of that, because an interrupted turn
/// does not count.
fn replace(mut file: File, bytes: &[u8]) -> Result<(), Trouble> {
    let written = file
        .seek(SeekFrom::Start(0))
        .and_then(|_| file.write_all(bytes))
        .and_then(|()| file.set_len(bytes.len() as u64));
    written.map_err(|e| format!("cannot write the file: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Place {
        _home: tempfile::TempDir,
        dir: std::path::PathBuf,
        root: Root,
    }

    fn place() -> Place {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("inside");
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::create_dir_all(dir.join(".git")).unwrap();
        fs::write(dir.join(".git/config"), "git").unwrap();
        fs::write(dir.join("sub/a"), "one\ntwo\nthree\n").unwrap();
        fs::write(home.path().join("outside"), "secret").unwrap();
        symlink("sub/a", dir.join("inner")).unwrap();
        symlink(dir.join("sub"), dir.join("absolute")).unwrap();
        symlink("../outside", dir.join("escape")).unwrap();
        symlink("..", dir.join("up")).unwrap();
        symlink(".git", dir.join("plain")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        let root = Root::open(&dir).unwrap();
        Place { _home: home, dir, root }
    }

    #[test]
    fn what_is_inside_is_read() {
        let p = place();
        let whole = "one\ntwo\nthree\n";
        let absolute = p.dir.canonicalize().unwrap().join("sub/a");
        for path in ["sub/a", "./sub/../sub/a", "inner", "absolute/a", "sub/../inner", absolute.to_str().unwrap()] {
            assert_eq!(read(&p.root, path, (None, None)).unwrap(), whole, "{path}");
        }
        assert_eq!(read(&p.root, "inner", (Some(2), Some(1))).unwrap(), "two\n\n[lines 2 to 2 of 3]");
        assert_eq!(read(&p.root, "inner", (Some(9), None)).unwrap(), "[no lines there: the file has 3]");
        assert_eq!(read(&p.root, "sub", (None, None)).unwrap(), "a");
        assert!(read(&p.root, ".", (None, None)).unwrap().contains("sub/"));
    }

    #[test]
    fn nothing_outside_is_reached() {
        let p = place();
        let outside = p.dir.join("../outside");
        let (passwd, outside) = ("/etc/passwd", outside.to_str().unwrap());
        let paths = [
            "../outside",
            "sub/../../outside",
            "escape",
            "up/outside",
            "up/inside/../outside",
            passwd,
            outside,
            "..",
            "",
        ];
        for path in paths {
            assert!(path.is_empty() || read(&p.root, path, (None, None)).is_err(), "{path}");
            assert!(write(&p.root, path, "x").is_err(), "{path}");
            assert!(edit(&p.root, path, ("secret", "x")).is_err(), "{path}");
        }
        for path in [".git", ".git/config", "plain/config", "sub/../.GIT/config", ".git/hooks/new", "loop", "a\0b"] {
            assert!(read(&p.root, path, (None, None)).is_err(), "{path}");
            assert!(write(&p.root, path, "x").is_err(), "{path}");
        }
        assert_eq!(fs::read(p.dir.join("../outside")).unwrap(), b"secret");
        assert_eq!(fs::read(p.dir.join(".git/config")).unwrap(), b"git");
    }

    #[test]
    fn pipes_and_hard_links_are_left_alone() {
        let p = place();
        nix::unistd::mkfifo(&p.dir.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::hard_link(p.dir.join("../outside"), p.dir.join("linked")).unwrap();
        assert!(read(&p.root, "pipe", (None, None)).is_err());
        assert!(write(&p.root, "pipe", "x").is_err());
        assert!(write(&p.root, "linked", "x").is_err());
        assert!(edit(&p.root, "linked", ("secret", "x")).is_err());
    }

    #[test]
    fn files_are_made_and_edited() {
        let p = place();
        write(&p.root, "new/deep/file", "a a b").unwrap();
        edit(&p.root, "new/deep/file", ("b", "")).unwrap();
        assert_eq!(fs::read(p.dir.join("new/deep/file")).unwrap(), b"a a ");
        assert!(edit(&p.root, "new/deep/file", ("a", "c")).unwrap_err().contains("2 times"));
        assert!(edit(&p.root, "new/deep/file", ("z", "c")).unwrap_err().contains("does not stand"));
        assert!(edit(&p.root, "new/deep/file", ("", "c")).is_err());
        assert!(edit(&p.root, "missing", ("a", "c")).is_err());
        write(&p.root, "inner", "x").unwrap();
        assert_eq!(fs::read(p.dir.join("sub/a")).unwrap(), b"x");
    }
}
