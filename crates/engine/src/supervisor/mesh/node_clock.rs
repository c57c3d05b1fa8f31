//! The two times of a node. Its own waits and everything on its machine are counted in program
//! time, like all of everloop; the hub has a clock of its own, which is compared with machine time.
//! Both are the same, except in tests.

use std::sync::Arc;
use std::time::Duration;

use everloop_agents::clock::{self, ScaledClock};
use everloop_core::time::Time;

use crate::supervisor::clock::Clock;

/// The clock of a node.
#[derive(Clone)]
pub(super) struct NodeClock {
    clock: Arc<Clock>,
    scaled: ScaledClock,
}

impl NodeClock {
    /// As fast as the program.
    pub fn new() -> Self {
        Self { clock: Arc::new(Clock::new()), scaled: clock::program() }
    }

    /// The current program time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Machine time, for comparing with the hub.
    pub fn wall(&self) -> Time {
        self.clock.machine_now()
    }

    /// How many times faster than machine time program time passes.
    pub fn scale(&self) -> u32 {
        self.scaled.scale()
    }

    /// How long a period of program time is for the machine and for the hub.
    pub fn real(&self, period: Duration) -> Duration {
        self.scaled.machine_period(period)
    }

    /// Machine time at this program time.
    pub fn wall_at(&self, program: Time) -> Time {
        self.scaled.machine(program)
    }

    /// Program time at this machine time.
    pub fn own_at(&self, wall: Time) -> Time {
        self.scaled.program(wall)
    }
}
