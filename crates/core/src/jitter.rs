//! Randomness from seeds that the shell hands in, so that the same seed gives the same decisions.

use std::time::Duration;

/// A number in `0..=u64::MAX` that depends on nothing but its arguments (splitmix64).
pub fn mix(seed: u64, salt: u64) -> u64 {
    let mut z = seed.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A duration between `low` and `high`, both included.
pub fn between(low: Duration, high: Duration, seed: u64) -> Duration {
    let span = u64::try_from(high.saturating_sub(low).as_millis()).unwrap_or(u64::MAX);
    if span == 0 {
        return low;
    }
    low + Duration::from_millis(mix(seed, 1) % (span + 1))
}

/// `first × 2^n`, never above `cap`.
pub fn doubled(first: Duration, n: u32, cap: Duration) -> Duration {
    first.checked_mul(1u32.checked_shl(n.min(30)).unwrap_or(u32::MAX)).map_or(cap, |d| d.min(cap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_between_its_bounds_and_repeats() {
        let (low, high) = (Duration::from_secs(1), Duration::from_secs(9));
        for seed in 0..1000 {
            let d = between(low, high, seed);
            assert!(d >= low && d <= high);
            assert_eq!(d, between(low, high, seed));
        }
        assert_eq!(doubled(low, 2, high), Duration::from_secs(4));
        assert_eq!(doubled(low, 40, high), high);
    }
}
