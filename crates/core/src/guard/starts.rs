//! Counts of turn starts over 24 hours, in constant space.
//!
//! Counting is by buckets that overlap the window, so a window is never undercounted: a cap may
//! bite up to one bucket early, never late.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Minute buckets for the last hour, hour buckets for the last day, and single starts of the last
/// minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    /// Starts of the last minute, oldest first; capped, see [`Starts::add`].
    recent: Vec<Time>,
    /// (minute since 1970, starts), oldest first.
    minutes: Vec<(i64, u32)>,
    /// (hour since 1970, starts), oldest first.
    hours: Vec<(i64, u32)>,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;
/// More starts a minute than this are only counted in buckets: enough for every sensible per-minute
/// cap.
const RECENT_CAP: usize = 64;

impl Starts {
    /// Counts a start.
    pub fn add(&mut self, at: Time) {
        self.recent.retain(|t| at.0 - t.0 < MINUTE_MS);
        if self.recent.len() == RECENT_CAP {
            self.recent.remove(0);
        }
        self.recent.push(at);
        bump(&mut self.minutes, at.0.div_euclid(MINUTE_MS), 61);
        bump(&mut self.hours, at.0.div_euclid(HOUR_MS), 25);
    }

    /// Starts in the window that ends at `now`.
    pub fn within(&self, window: Duration, now: Time) -> u32 {
        let from = (now - window).0;
        let sum = |rows: &[(i64, u32)], unit: i64| -> u32 {
            rows.iter().filter(|(slot, _)| (slot + 1) * unit > from && slot * unit <= now.0).map(|(_, n)| n).sum()
        };
        if window.as_millis() <= MINUTE_MS as u128 {
            self.recent.iter().filter(|t| t.0 > from).count() as u32
        } else if window.as_millis() <= HOUR_MS as u128 {
            sum(&self.minutes, MINUTE_MS)
        } else {
            sum(&self.hours, HOUR_MS)
        }
    }

    /// When a window that is full at `now` will have room again.
    pub fn room_at(&self, window: Duration, cap: u32, now: Time) -> Time {
        let rows: Vec<(Time, u32)> = if window.as_millis() <= MINUTE_MS as u128 {
            self.recent.iter().map(|t| (*t, 1)).collect()
        } else if window.as_millis() <= HOUR_MS as u128 {
            self.minutes.iter().map(|(m, n)| (Time((m + 1) * MINUTE_MS), *n)).collect()
        } else {
            self.hours.iter().map(|(h, n)| (Time((h + 1) * HOUR_MS), *n)).collect()
        };
        let mut left = self.within(window, now);
        for (at, n) in rows {
            if at + window <= now {
                continue;
            }
            left = left.saturating_sub(n);
            if left < cap {
                return at + window;
            }
        }
        now + window
    }
}

fn bump(rows: &mut Vec<(i64, u32)>, slot: i64, keep: usize) {
    match rows.last_mut() {
        Some((last, n)) if *last == slot => *n += 1,
        _ => rows.push((slot, 1)),
    }
    if rows.len() > keep {
        rows.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::mix;

    #[test]
    fn no_window_ever_holds_more_than_its_cap() {
        for (window, cap) in [(60, 4), (3600, 20), (86_400, 100)] {
            let window = Duration::from_secs(window);
            let mut starts = Starts::default();
            let mut all: Vec<Time> = Vec::new();
            let mut now = Time(1_000_000_000_000);
            for step in 0..3000 {
                now = now + Duration::from_millis(mix(step, 3) % 120_000);
                if starts.within(window, now) < cap {
                    starts.add(now);
                    all.push(now);
                } else {
                    let room = starts.room_at(window, cap, now);
                    assert!(room > now);
                    assert!(starts.within(window, room) < cap, "room_at is exact");
                }
                let seen = all.iter().filter(|t| **t > now - window).count();
                assert!(seen <= cap as usize);
            }
            assert!(all.len() > cap as usize, "the cap lets later starts through");
        }
    }
}
