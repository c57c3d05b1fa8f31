//! Waiting in tests: for something that happens, with a deadline, never for a time.
//!
//! What another process draws, writes or ends is there some time after it was caused. A test that
//! looks once is right on a calm machine and wrong on a busy one.

use std::time::{Duration, Instant};

/// Enough for anything on a busy machine with a slow disk; longer means that it hangs.
pub const DEADLINE: Duration = Duration::from_secs(150);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `holds`; panics with `what` when it does not within the time.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    wait_for(what, within, || holds().then_some(()));
}

/// Waits until `look` finds something; panics with `what` when it does not within the time.
#[track_caller]
pub fn wait_for<T>(what: &str, within: Duration, look: impl FnMut() -> Option<T>) -> T {
    try_wait_for(within, look).unwrap_or_else(|| panic!("not within {within:?}: {what}"))
}

/// Waits until `look` finds something; `None` when it does not within the time.
pub fn try_wait_for<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_later_is_waited_for() {
        let mut looks = 0;
        let found = wait_for("the third look", DEADLINE, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "not within 10ms: a wonder")]
    fn what_never_comes_is_named() {
        wait_until("a wonder", Duration::from_millis(10), || false);
    }

    #[test]
    fn the_last_look_is_after_the_deadline() {
        assert_eq!(try_wait_for(Duration::ZERO, || Some(1)), Some(1));
    }
}
