//! Splits a stream of bytes into lines, for any size of chunks. Holds at most one line, which is
//! capped.

/// The longest line that is parsed. The longest records carry a whole file in a tool's input or
/// output; nothing beyond this is needed for a report.
pub const LINE_CAP: usize = 1 << 20;

/// One line without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputLine<'a> {
    /// The complete line.
    Whole(&'a [u8]),
    /// It was longer than [`LINE_CAP`] and was dropped.
    TooLong,
}

/// State of the line that is being read.
#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// The buffer holds it so far.
    #[default]
    Kept,
    /// It is too long; the rest of it is dropped.
    Skipped,
    /// Its beginning is missing; the rest is dropped and it is not counted.
    Headless,
}

/// Splits chunks into lines.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
    state: State,
}

impl Lines {
    /// Takes a chunk and passes on the lines that it completes.
    pub fn feed(&mut self, mut bytes: &[u8], mut line: impl FnMut(OutputLine<'_>)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (piece, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial.is_empty() && self.state == State::Kept && piece.len() <= LINE_CAP {
                line(OutputLine::Whole(trimmed(piece)));
            } else {
                self.keep(piece);
                self.close(&mut line);
            }
            bytes = rest;
        }
        self.keep(bytes);
    }

    /// The stream is over: the last line needs no newline.
    pub fn finish(&mut self, mut line: impl FnMut(OutputLine<'_>)) {
        if !self.partial.is_empty() || self.state == State::Skipped {
            self.close(&mut line);
        }
        self.state = State::Kept;
    }

    /// Bytes are missing before the next chunk, which so begins in the middle of a line.
    pub fn gap(&mut self) {
        self.partial = Vec::new();
        self.state = State::Headless;
    }

    /// Bytes allocated for the incomplete line.
    pub fn held(&self) -> usize {
        self.partial.capacity()
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.state != State::Kept {
            return;
        }
        if self.partial.len() + piece.len() > LINE_CAP {
            self.partial = Vec::new();
            self.state = State::Skipped;
        } else {
            let needed = self.partial.len() + piece.len();
            if needed > self.partial.capacity() {
                // Doubled as vectors do, but never beyond the cap.
                let room = needed.max((2 * self.partial.capacity()).min(LINE_CAP));
                self.partial.reserve_exact(room - self.partial.len());
            }
            self.partial.extend_from_slice(piece);
        }
    }

    fn close(&mut self, line: &mut impl FnMut(OutputLine<'_>)) {
        match std::mem::take(&mut self.state) {
            State::Kept => line(OutputLine::Whole(trimmed(&self.partial))),
            State::Skipped => line(OutputLine::TooLong),
            State::Headless => {}
        }
        // A long line is an exception: its memory is freed.
        if self.partial.capacity() > LINE_CAP / 16 { self.partial = Vec::new() } else { self.partial.clear() }
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        let mut take = |l: OutputLine<'_>| {
            all.push(match l {
                OutputLine::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                OutputLine::TooLong => "TOO LONG".to_owned(),
            });
        };
        for piece in pieces {
            if *piece == b"GAP" { lines.gap() } else { lines.feed(piece, &mut take) }
        }
        lines.finish(&mut take);
        all
    }

    #[test]
    fn the_sizes_of_the_pieces_do_not_matter() {
        assert_eq!(cut(&[b"a\r\nb\n\nc"]), ["a", "b", "", "c"]);
        assert_eq!(cut(&[b"a\r", b"\nb", b"\n", b"\n", b"c"]), ["a", "b", "", "c"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_its_room_given_back() {
        let long = vec![b'x'; LINE_CAP + 1];
        assert_eq!(cut(&[&long, b"\nnext\n"]), ["TOO LONG", "next"]);
        assert_eq!(cut(&[&long]), ["TOO LONG"]);
        let mut lines = Lines::default();
        for _ in 0..10 {
            lines.feed(&long, |_| {});
            assert!(lines.held() <= LINE_CAP);
        }
    }

    #[test]
    fn what_a_gap_tore_apart_is_dropped() {
        assert_eq!(cut(&[b"a\nhalf", b"GAP", b"other half\nb\n"]), ["a", "b"]);
        assert_eq!(cut(&[b"half", b"GAP", b"other half"]), Vec::<String>::new());
    }
}
