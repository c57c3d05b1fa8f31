//! The supervisor's clock: wall time at its start, plus CLOCK_BOOTTIME since.
//!
//! So a step of the wall clock does not stretch or end a wait, and a suspended laptop's time still
//! passes.

use std::time::Duration;

use everloop_agents::clock;
use everloop_core::time::Time;

/// A clock that does not jump.
pub struct Clock {
    wall: Time,
    boot: Duration,
}

impl Clock {
    /// Starts at the wall clock's time.
    pub fn new() -> Self {
        Self { wall: clock::now(), boot: clock::boottime() }
    }

    /// The current time; it never goes back while the process lives.
    pub fn now(&self) -> Time {
        self.wall + clock::boottime().saturating_sub(self.boot)
    }
}
