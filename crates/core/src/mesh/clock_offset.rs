//! How far the hub's clock is ahead of a node's, learned from calls: the hub read its clock at some
//! moment between the request and the answer, so each call gives two bounds. Those of a slow call
//! are wide and of little use.

use crate::time::Time;

/// By how many milliseconds the hub's clock is ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset(i64);

impl ClockOffset {
    /// The hub's clock showed `hub` between `sent` and `received`, both by the node's clock. What
    /// fits these bounds stays; anything else becomes their middle.
    pub fn learn(&mut self, hub: Time, sent: Time, received: Time) {
        let (least, most) = (hub.0 - received.0.max(sent.0), hub.0 - sent.0);
        if !(least..=most).contains(&self.0) {
            self.0 = least + (most - least) / 2;
        }
    }

    /// By how many milliseconds the hub's clock is ahead of the node's.
    pub fn ahead_ms(self) -> i64 {
        self.0
    }

    /// The hub's time at a time of the node's clock.
    pub fn at_hub(self, wall: Time) -> Time {
        Time(wall.0 + self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(calls: &[(i64, i64, i64)]) -> i64 {
        let mut offset = ClockOffset::default();
        for (hub, sent, received) in calls {
            offset.learn(Time(*hub), Time(*sent), Time(*received));
        }
        offset.0
    }

    #[test]
    fn a_slow_call_does_not_move_the_hubs_clock() {
        assert_eq!(learned(&[(6_000, 0, 7_000)]), 0, "clocks that agree stay so, wherever the call was slow");
        assert_eq!(learned(&[(60_001, 0, 2)]), 60_000, "the middle of a quick call");
        assert_eq!(learned(&[(60_001, 0, 2), (166_500, 100_000, 107_000)]), 60_000, "and a slow one says no more");
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        assert_eq!(learned(&[(60_001, 0, 2), (1_001, 1_000, 1_002)]), 0);
        assert_eq!(learned(&[(60_001, 0, 2), (1_000, 1_000, 8_000)]), -3_500, "roughly, after a slow call");
        assert_eq!(learned(&[(50, 100, 90)]), -50, "a clock that was set back meanwhile");
    }
}
