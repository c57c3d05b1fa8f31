//! The time of a node. Periods of the mesh are counted in it: in tests it runs faster than the clock on the wall, and with it
//! all leases, so that a minute of failing machines fits into seconds.

use std::sync::Arc;
use std::time::Duration;

use everloop_core::time::Time;

use crate::supervisor::clock::Clock;

/// How many times faster; all nodes of a mesh must agree. For tests only.
const HASTE: &str = "EVERLOOP_MESH_HASTE";
/// More would be shorter than a call to the hub.
const HASTE_MOST: u32 = 20;

/// A clock, and how fast it goes.
#[derive(Clone)]
pub(super) struct Pace {
    clock: Arc<Clock>,
    haste: u32,
}

impl Pace {
    /// As fast as the environment says.
    pub fn new() -> Self {
        let haste = std::env::var(HASTE).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        Self { clock: Arc::new(Clock::new()), haste: haste.clamp(1, HASTE_MOST) }
    }

    /// The node's time, in which everything that it waits for is counted.
    pub fn now(&self) -> Time {
        Time(self.wall().0.saturating_mul(i64::from(self.haste)))
    }

    /// Milliseconds since 1970, for records and for comparing with the hub.
    pub fn wall(&self) -> Time {
        self.clock.now()
    }

    /// How long a period of the node's time is on the wall and for the hub.
    pub fn real(&self, period: Duration) -> Duration {
        period / self.haste
    }

    /// How many times faster than the clock on the wall it goes.
    pub fn haste(&self) -> u32 {
        self.haste
    }
}
