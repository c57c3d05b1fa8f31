//! The clocks of this machine. The only place where the runner reads them; decides nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everloop_core::time::Time;
use nix::time::{ClockId, clock_gettime};

/// The wall clock: UTC milliseconds. It can jump; use it for records, never for deadlines.
pub fn now() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(d) => Time(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
        Err(before) => Time(-i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX)),
    }
}

/// Time since boot, including suspend; leases and other external deadlines are counted with it.
pub fn boottime() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or_else(
        |_| Duration::ZERO,
        |t| Duration::new(u64::try_from(t.tv_sec()).unwrap_or(0), u32::try_from(t.tv_nsec()).unwrap_or(0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let (wall, boot) = (now(), boottime());
        assert!(wall > Time(1_700_000_000_000));
        assert!(boot > Duration::ZERO && boottime() >= boot);
    }
}
