//! The trace of a run: a hash over all of it, and its end in words.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// Lines that are kept for a report.
const TAIL: usize = 60;

/// Everything that happened, as one number, with the last lines in words.
#[derive(Clone, Debug)]
pub struct Trace {
    pub hash: u64,
    tail: VecDeque<String>,
}

impl Default for Trace {
    fn default() -> Self {
        // FNV-1a: short, and the same on every machine.
        Self { hash: 0xcbf2_9ce4_8422_2325, tail: VecDeque::with_capacity(TAIL) }
    }
}

impl Trace {
    pub fn say(&mut self, at_ms: u64, what: &str, detail: &str) {
        self.mix(&at_ms.to_le_bytes());
        self.mix(what.as_bytes());
        self.mix(detail.as_bytes());
        let mut line = if self.tail.len() == TAIL { self.tail.pop_front().unwrap_or_default() } else { String::new() };
        line.clear();
        let (secs, ms) = (at_ms / 1000, at_ms % 1000);
        write!(line, "{secs:>7}.{ms:03} {what} {detail}").expect("a String takes every text");
        self.tail.push_back(line);
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }
}
