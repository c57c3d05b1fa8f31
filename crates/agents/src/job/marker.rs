//! Finds `<BACKOFF 90s>` in a stream, also when it is split over chunks. The meaning of the delay
//! is not decided here.

use std::time::Duration;

use everloop_core::time::parse_duration;
use memchr::memmem::Finder;

/// Longer texts between the word and the closing bracket are not durations.
const LONGEST_TEXT: usize = 32;

/// Searches for one word in one stream.
#[derive(Debug)]
pub(super) struct Scanner {
    opening: Finder<'static>,
    /// The end of the previous chunk; a marker may have begun there.
    before: Vec<u8>,
}

impl Scanner {
    /// `BACKOFF` matches `<BACKOFF …>`.
    pub(super) fn new(word: &str) -> Self {
        Self { opening: Finder::new(format!("<{word} ").as_bytes()).into_owned(), before: Vec::new() }
    }

    /// The delay of the last marker that ended in this chunk.
    pub(super) fn push(&mut self, piece: &[u8]) -> Option<Duration> {
        let reach = self.opening.needle().len() + LONGEST_TEXT;
        let old = self.before.len();
        self.before.extend_from_slice(&piece[..piece.len().min(reach)]);
        // Markers that ended before this chunk were already reported.
        let border = self.last_in(&self.before, old);
        let inside = self.last_in(piece, 0);
        if piece.len() >= reach {
            self.before.clear();
            self.before.extend_from_slice(&piece[piece.len() - reach..]);
        } else {
            self.before.drain(..self.before.len().saturating_sub(reach));
        }
        inside.or(border)
    }

    fn last_in(&self, bytes: &[u8], ends_after: usize) -> Option<Duration> {
        self.opening
            .find_iter(bytes)
            .filter_map(|at| {
                let text = &bytes[at + self.opening.needle().len()..];
                let text = &text[..text.len().min(LONGEST_TEXT + 1)];
                let close = memchr::memchr(b'>', text)?;
                let end = at + self.opening.needle().len() + close + 1;
                (end > ends_after).then(|| parse_duration(std::str::from_utf8(&text[..close]).ok()?).ok())?
            })
            .last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(pieces: &[&[u8]]) -> Option<u64> {
        let mut scanner = Scanner::new("BACKOFF");
        pieces.iter().filter_map(|p| scanner.push(p)).last().map(|d| d.as_secs())
    }

    #[test]
    fn a_marker_is_found_wherever_it_is_cut() {
        let text = b"noise <BACKOFF 90s> more <BACKOFF 2m 5s> and <BACKOFF soon> <BACKOFF 1";
        for a in 0..text.len() {
            assert_eq!(last(&[&text[..a], &text[a..]]), Some(125), "cut at {a}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(last(&single), Some(125));
    }

    #[test]
    fn a_marker_is_told_once() {
        let mut scanner = Scanner::new("BACKOFF");
        assert!(scanner.push(b"<BACKOFF 90s>").is_some());
        assert_eq!(scanner.push(b"x"), None);
        assert_eq!(scanner.push(&[b'x'; 100]), None);
    }

    #[test]
    fn nonsense_is_no_marker() {
        let long = format!("<BACKOFF {}1s>", "0".repeat(40));
        for text in [long.as_str(), "<BACKOFF>", "<BACKOFF -1s>", "<backoff 1s>", "BACKOFF 1s", "<BACKOFF \0>"] {
            assert_eq!(last(&[text.as_bytes()]), None, "{text}");
        }
    }
}
