//! The output of a check, cut for people and reduced to what stays the same when the same error
//! occurs again.

use std::collections::BTreeSet;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Shown to people and to the next turn; more would bury the goal.
const SHOWN_BYTES: usize = 4 << 10;
/// Of these, for the beginning: the first error is there, the sum of all at the end.
const HEAD_BYTES: usize = 1536;

/// The beginning and the end of the output in whole lines, as far as they fit.
pub(super) fn both_ends(text: &str) -> String {
    let text = text.trim_end();
    if text.len() <= SHOWN_BYTES {
        return text.to_owned();
    }
    let head = text[..boundary(text, HEAD_BYTES)].rsplit_once('\n').map_or("", |(lines, _)| lines);
    let room = SHOWN_BYTES - head.len() - LEFT_OUT_BYTES;
    let cut = &text[boundary(text, text.len() - room + CHAR_BYTES)..];
    // A single line that does not fit is shown from its middle.
    let whole = cut.split_once('\n').map_or(cut, |(_, rest)| rest);
    let tail = if whole.is_empty() { cut } else { whole };
    let left_out = text[head.len()..text.len() - tail.len()].lines().filter(|line| !line.is_empty()).count();
    let mark = format!("… ({left_out} lines left out) …");
    if head.is_empty() { format!("{mark}\n{tail}") } else { format!("{head}\n{mark}\n{tail}") }
}

/// Room for the line between both ends.
const LEFT_OUT_BYTES: usize = 64;
/// A character has at most four bytes, so the boundary before a place is less than this away.
const CHAR_BYTES: usize = 3;

/// The last boundary between characters at or before a place.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

/// The last line that is not blank.
pub(super) fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

/// A fingerprint of an error: equal when only numbers, addresses, times, the folder or the order of
/// lines differ.
pub(super) fn fingerprint(text: &str, cwd: &Path) -> u64 {
    let cwd = cwd.to_string_lossy();
    let text = if cwd.len() > 1 { text.replace(&*cwd, ".") } else { text.to_owned() };
    let lines: BTreeSet<String> = text.lines().map(normal).filter(|line| !line.is_empty()).collect();
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line.as_bytes());
        hash.update(b"\n");
    }
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Removes from a line what differs between two runs.
fn normal(line: &str) -> String {
    let mut out = String::new();
    for word in line.split_whitespace() {
        out.push_str(&normal_word(word));
        out.push(' ');
    }
    out.truncate(out.trim_end().len());
    out
}

/// Replaces numbers, also hexadecimal ones, with `#`, together with a following unit of time:
/// `980ms` and `1.2s` are the same.
fn normal_word(word: &str) -> String {
    const UNITS: &[&str] = &["ns", "us", "µs", "ms", "s", "m", "h", "sec", "secs", "seconds", "min"];
    let mut out = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        if !first.is_ascii_alphanumeric() {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != 'µ').unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        let unit = run.trim_start_matches(|c: char| c.is_ascii_digit());
        if run.starts_with(|c: char| c.is_ascii_digit()) && (unit.is_empty() || UNITS.contains(&unit)) || is_hex(run) {
            // `1.25` and `3` are one number each.
            if out.ends_with("#.") {
                out.pop();
            } else {
                out.push('#');
            }
        } else {
            out.extend(run.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }));
        }
        rest = after;
    }
    out
}

/// Matches addresses, hashes and ids.
fn is_hex(run: &str) -> bool {
    const SHORTEST: usize = 7;
    let digits = run.strip_prefix("0x").unwrap_or(run);
    (digits.len() >= SHORTEST || digits.len() < run.len())
        && digits.chars().all(|c| c.is_ascii_hexdigit())
        && digits.contains(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u64 {
        fingerprint(text, Path::new("/tmp/verify"))
    }

    #[test]
    fn the_same_error_again_has_the_same_fingerprint() {
        let first = "test b ... ok\ntest a ... FAILED\npanicked at /tmp/verify/src/a.rs:12:5\nfinished in 980ms";
        let again = "test a ... FAILED\ntest b ... ok\npanicked at ./src/a.rs:340:17\nfinished in 1.20s\n";
        assert_eq!(of(first), of(again));
        assert_eq!(of("at 0x7ffe12ab id 9fceb02d0ae5"), of("at 0xdead0001 id 123456789abc"));
        assert_ne!(of("expected foo"), of("expected bar"));
        assert_ne!(of("test a FAILED"), of("test b FAILED"));
    }

    #[test]
    fn both_ends_are_whole_lines_and_bounded() {
        let text = (0..2000).map(|n| format!("line {n} ü")).collect::<Vec<_>>().join("\n");
        let shown = both_ends(&text);
        assert!(shown.len() <= SHOWN_BYTES && shown.starts_with("line 0 ü\n") && shown.ends_with("line 1999 ü"));
        let lines: Vec<&str> = shown.lines().collect();
        let left_out: usize =
            lines.iter().find_map(|l| l.strip_prefix("… (")?.split(' ').next()?.parse().ok()).unwrap();
        assert_eq!(left_out + lines.len() - 1, 2000, "{shown}");
        let long = both_ends(&"é".repeat(5000));
        assert!(long.len() <= SHOWN_BYTES && long.ends_with("éé"), "{}", long.len());
        assert_eq!(both_ends("a\n\n"), "a");
        assert_eq!(last_line("a\n b \n\n"), Some("b"));
    }
}
