//! The only source of chance in simulations of all kinds.

use everloop_core::jitter::mix;

/// A stream of numbers that depends on nothing but its seed.
#[derive(Clone, Debug, Default)]
pub struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.drawn)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.draw() % n }
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

/// A number that depends on a text: so that a turn behaves alike in every run of a seed, whatever
/// crashed before it.
pub fn of_text(seed: u64, text: &str) -> u64 {
    of_bytes(seed, text.as_bytes())
}

/// The same of bytes.
pub fn of_bytes(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |acc, b| mix(acc, u64::from(*b)))
}
