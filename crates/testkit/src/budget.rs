//! How much is simulated: as much as a given time allows, never a fixed number, so that the
//! duration of the tests does not grow with the features.
//!
//! `SIM_SECONDS` is the time of each test, `SIM_SEED` the first seed. Seeds are taken in order, so
//! a run is repeated by its first seed, and a failure by the seed in its message.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Enough for thousands of worlds, and seven such tests stay within two minutes.
const SIM_SECONDS: u64 = 10;

/// The time of a test, and its first seed.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    time: Duration,
    first: u64,
    least: u64,
}

impl Budget {
    /// The budget of the environment; `least` is done however long it takes.
    pub fn new(least: u64) -> Self {
        let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a whole number"));
        let time = Duration::from_secs(number("SIM_SECONDS").unwrap_or(SIM_SECONDS));
        Self { time, first: number("SIM_SEED").unwrap_or(0), least }
    }

    /// The time of a test that counts by itself.
    pub fn time(self) -> Duration {
        self.time
    }

    /// The first seed.
    pub fn first_seed(self) -> u64 {
        self.first
    }

    /// Does `each` for one seed after the other, on all cores, until the time is over; returns the
    /// seeds that were done.
    pub fn seeds(self, each: impl Fn(u64) + Sync) -> Range<u64> {
        let done = self.count(u64::MAX, |n| each(self.first + n));
        self.first..self.first + done
    }

    /// Does `each` for items from all over the list, on all cores, until the time is over or all
    /// are done; returns how many were.
    pub fn items<T: Sync>(self, items: &[T], each: impl Fn(&T) + Sync) -> usize {
        let len = items.len() as u64;
        let step = coprime_step(len);
        let done = self.count(len, |n| each(&items[((self.first + n) % len * step % len) as usize]));
        done as usize
    }

    fn count(self, most: u64, each: impl Fn(u64) + Sync) -> u64 {
        let (next, end) = (AtomicU64::new(0), Instant::now() + self.time);
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= most || n >= self.least && Instant::now() >= end {
                            next.fetch_sub(1, Ordering::Relaxed);
                            return;
                        }
                        each(n);
                    }
                });
            }
        });
        next.into_inner()
    }
}

/// A step that visits every item once and comes early to every part of the list.
fn coprime_step(len: u64) -> u64 {
    const fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    // The golden ratio spreads best.
    let near = (len as f64 * 0.618) as u64;
    (near.max(1)..=len.max(1)).find(|step| gcd(*step, len.max(1)) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    fn budget(millis: u64, least: u64) -> Budget {
        Budget { time: Duration::from_millis(millis), first: 40, least }
    }

    #[test]
    fn the_least_is_done_without_any_time_and_each_seed_once() {
        let seen = Mutex::new(Vec::new());
        let done = budget(0, 9).seeds(|seed| seen.lock().expect("no thread panics with it").push(seed));
        let mut seen = seen.into_inner().expect("no thread panics with it");
        seen.sort_unstable();
        assert_eq!((done.clone(), seen), (40..49, done.collect::<Vec<_>>()));
    }

    #[test]
    fn with_time_enough_every_item_is_done_once() {
        for len in [1_usize, 2, 3, 10, 97, 1000] {
            let items: Vec<usize> = (0..len).collect();
            let seen = Mutex::new(BTreeSet::new());
            let each = |item: &usize| assert!(seen.lock().expect("no thread panics with it").insert(*item));
            assert_eq!(budget(60_000, 0).items(&items, each), len);
        }
    }

    #[test]
    fn items_come_from_all_over_the_list() {
        let items: Vec<usize> = (0..1000).collect();
        let seen = Mutex::new(BTreeSet::new());
        budget(0, 10).items(&items, |item| {
            seen.lock().expect("no thread panics with it").insert(item / 250);
        });
        assert_eq!(seen.into_inner().expect("no thread panics with it").len(), 4, "every quarter is met");
    }
}
