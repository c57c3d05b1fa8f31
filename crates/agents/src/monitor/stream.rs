//! A file to which lines are appended. The cursor is the end of the last whole line, and the inode:
//! a file that was rotated or truncated is read from its beginning.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use everloop_core::watch::{MonitorCursor, WatchedContent};

use super::tail;

/// Of more than this only the end is read.
const MOST_BYTES: u64 = 1 << 20;

pub(super) fn look(path: &Path, seen: Option<&MonitorCursor>) -> Result<WatchedContent, String> {
    let cannot = |e: io::Error| format!("`{}` cannot be read: {e}", path.display());
    // A pipe without a writer must not block the probe.
    let opened = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let mut file = match opened {
        Ok(file) => file,
        // It may be created later: everything in it is new then.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok(WatchedContent {
                cursor: "0:0".to_owned(),
                summary: "it is gone".to_owned(),
                text: "It is gone.".to_owned(),
            });
        }
        Err(e) => return Err(cannot(e)),
    };
    let meta = file.metadata().map_err(cannot)?;
    if !meta.is_file() {
        return Err(format!("`{}` is not a regular file", path.display()));
    }
    let from = match seen {
        // What was there before the first probe is not new.
        None => meta.len(),
        Some(seen) => position(&seen.cursor, &meta),
    };
    let skipped = meta.len().saturating_sub(from).saturating_sub(MOST_BYTES);
    let (lines, read) = whole_lines(&mut file, from + skipped).map_err(cannot)?;
    let cursor = format!("{}:{}", meta.ino(), from + skipped + read);
    let count = lines.lines().count();
    let summary = format!("{count} new lines: {}", lines.lines().last().unwrap_or_default());
    let more = if skipped > 0 { format!("({skipped} bytes before were left out)\n") } else { String::new() };
    Ok(WatchedContent {
        cursor,
        summary,
        text: format!("{count} new lines in {}:\n{more}{}", path.display(), tail(&lines)),
    })
}

/// Where to continue. Another file under the same name, or one that became shorter, is read from
/// its beginning.
fn position(cursor: &str, meta: &std::fs::Metadata) -> u64 {
    let known = cursor.split_once(':').and_then(|(ino, at)| Some((ino.parse::<u64>().ok()?, at.parse::<u64>().ok()?)));
    known.filter(|(ino, at)| *ino == meta.ino() && *at <= meta.len()).map_or(0, |(_, at)| at)
}

/// The whole lines from there on, and their length. A line that is still being written is left for
/// the next probe.
fn whole_lines(file: &mut File, from: u64) -> io::Result<(String, u64)> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    // A line longer than the maximum would never be whole.
    let whole = if whole == 0 && bytes.len() as u64 == MOST_BYTES { bytes.len() } else { whole };
    Ok((String::from_utf8_lossy(&bytes[..whole]).into_owned(), whole as u64))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use everloop_core::time::Time;

    use super::*;

    fn next(path: &Path, from: &WatchedContent) -> WatchedContent {
        let seen = MonitorCursor { cursor: from.cursor.clone(), at: Time(0), task: None };
        look(path, Some(&seen)).expect("it can be read")
    }

    fn add(path: &Path, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("it can be written");
        file.write_all(text.as_bytes()).expect("it can be written");
    }

    #[test]
    fn only_whole_new_lines_are_told_and_each_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("app.log");
        add(&path, "old\n");
        let first = look(&path, None).expect("it can be read");
        assert_eq!(next(&path, &first).cursor, first.cursor);
        add(&path, "half");
        assert_eq!(next(&path, &first).cursor, first.cursor, "a line that is being written is none yet");
        add(&path, " and whole\nmore\n");
        let second = next(&path, &first);
        assert!(second.text.ends_with("half and whole\nmore\n") && !second.text.contains("old"), "{second:?}");
        assert_eq!(second.summary, "2 new lines: more");
        assert_eq!(next(&path, &second).cursor, second.cursor);
    }

    #[test]
    fn a_rotated_or_missing_file_is_read_from_its_beginning() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("app.log");
        let none = look(&path, None).expect("it may come");
        add(&path, "first\n");
        let there = next(&path, &none);
        assert!(there.text.contains("first"), "{there:?}");
        std::fs::rename(&path, dir.path().join("app.log.1")).expect("it is there");
        add(&path, "after\n");
        let rotated = next(&path, &there);
        assert!(rotated.text.contains("after") && !rotated.text.contains("first"), "{rotated:?}");
        std::fs::write(&path, "cut\n").expect("it can be written");
        assert!(next(&path, &rotated).text.contains("cut"));
    }

    #[test]
    fn a_flood_is_told_by_its_end_and_a_pipe_is_no_stream() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("app.log");
        let none = look(&path, None).expect("it may come");
        add(&path, &"line\n".repeat(MOST_BYTES as usize));
        add(&path, "the end\n");
        let flood = next(&path, &none);
        assert!(flood.text.len() < 10_000 && flood.text.ends_with("the end\n") && flood.text.contains("were left out"));
        assert_eq!(next(&path, &flood).cursor, flood.cursor);
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("it can be made");
        assert!(look(&pipe, None).expect_err("it has no lines").contains("is not a regular file"));
    }
}
