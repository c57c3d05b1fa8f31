//! Finds a line that is nothing but `<BACKOFF 90s>` in a stream, however it is cut into chunks. The
//! meaning of the delay is not decided here.

use std::time::Duration;

use everloop_core::marker;

/// A longer line is not a marker.
const LONGEST_LINE: usize = 128;

/// Searches for one word in one stream.
#[derive(Debug)]
pub(super) struct Scanner {
    word: String,
    /// The line that has not ended, up to one byte more than a marker can have.
    line: Vec<u8>,
}

impl Scanner {
    /// `BACKOFF` matches `<BACKOFF …>`.
    pub(super) fn new(word: &str) -> Self {
        Self { word: word.to_owned(), line: Vec::new() }
    }

    /// The delay of the last marker whose line ended in this chunk.
    pub(super) fn push(&mut self, piece: &[u8]) -> Option<Duration> {
        let Some(end) = memchr::memrchr(b'\n', piece) else {
            self.keep(piece);
            return None;
        };
        let (whole, rest) = (&piece[..end], &piece[end + 1..]);
        let (first, others) = match memchr::memchr(b'\n', whole) {
            Some(at) => (&whole[..at], Some(&whole[at + 1..])),
            None => (whole, None),
        };
        let begun = if self.line.is_empty() {
            self.delay(first)
        } else {
            self.keep(first);
            self.delay(&self.line)
        };
        // From the end: the last one counts.
        let last = others.and_then(|lines| lines.rsplit(|b| *b == b'\n').find_map(|line| self.delay(line)));
        self.line.clear();
        self.keep(rest);
        last.or(begun)
    }

    /// The delay of a last line without a line break.
    pub(super) fn finish(&mut self) -> Option<Duration> {
        let delay = self.delay(&self.line);
        self.line.clear();
        delay
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = (LONGEST_LINE + 1).saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn delay(&self, line: &[u8]) -> Option<Duration> {
        // Most lines are something else, and floods must stay cheap.
        if line.len() > LONGEST_LINE || memchr::memchr(b'<', line).is_none() {
            return None;
        }
        marker::delay(&self.word, std::str::from_utf8(line).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(pieces: &[&[u8]]) -> Option<u64> {
        let mut scanner = Scanner::new("BACKOFF");
        let pushed = pieces.iter().filter_map(|p| scanner.push(p)).last();
        scanner.finish().or(pushed).map(|d| d.as_secs())
    }

    #[test]
    fn a_marker_is_found_wherever_it_is_cut() {
        let text = b"noise\n<BACKOFF 90s>\nmore\n  <BACKOFF 2m 5s> \r\nand\n<BACKOFF soon>\nx <BACKOFF 1s>\n<BACKOFF 1";
        for a in 0..text.len() {
            assert_eq!(last(&[&text[..a], &text[a..]]), Some(125), "cut at {a}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(last(&single), Some(125));
    }

    #[test]
    fn a_marker_counts_once_and_needs_no_line_break_at_the_end() {
        let mut scanner = Scanner::new("BACKOFF");
        assert_eq!(scanner.push(b"<BACKOFF 90s>"), None);
        assert!(scanner.finish().is_some());
        assert!(scanner.push(b"<BACKOFF 90s>\n").is_some());
        assert_eq!(scanner.push(b"x"), None);
        assert_eq!(scanner.push(&[b'x'; 100]), None);
        assert_eq!(scanner.finish(), None);
    }

    #[test]
    fn a_marker_inside_of_a_line_is_none() {
        let long = format!("{}<BACKOFF 1s>\n", " ".repeat(LONGEST_LINE));
        for text in
            [long.as_str(), "print <BACKOFF 1s>\n", "<BACKOFF 1s> and stop\n", "<BACKOFF \0>\n", "{\"<BACKOFF 1s>\"}"]
        {
            assert_eq!(last(&[text.as_bytes()]), None, "{text}");
        }
    }
}
