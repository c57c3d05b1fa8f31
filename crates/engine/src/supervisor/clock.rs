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
        Self { wall: clock::machine_now(), boot: clock::machine_boottime() }
    }

    /// Program time: what loops record and wait in.
    pub fn now(&self) -> Time {
        clock::program().program(self.machine_now())
    }

    /// Machine time: what the hub's clock is compared with.
    pub fn machine_now(&self) -> Time {
        self.wall + clock::machine_boottime().saturating_sub(self.boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_wall_clock_moves_nothing() {
        let right = Clock::new();
        // As if the wall clock had been set forward by an hour since.
        let early = Clock { wall: right.wall - Duration::from_secs(3600), boot: right.boot };
        let (one, other) = (right.machine_now(), early.machine_now());
        assert!(one.since(other) <= Duration::from_secs(3600) && one.since(other) > Duration::from_secs(3590));
        let slept = Clock { wall: right.wall, boot: right.boot.saturating_sub(Duration::from_secs(1)) };
        assert!(slept.machine_now().since(one) >= Duration::from_secs(1), "time since boot counts");
    }
}
