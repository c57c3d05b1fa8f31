//! The clocks of this machine. Owns the only places where the runner reads them; decides nothing.
//!
//! Two kinds of time: *machine time* is what the clocks show; *program time* is what the program
//! records and waits in. They are the same, except in tests: `EVERLOOP_TIME_SCALE=20` lets program
//! time pass twenty times faster, so that a minute of waiting fits into three seconds. Intervals,
//! limits of turns and leases are program time. What bounds real work (a call of git, an answer
//! over the network, the end of a killed process) stays machine time.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everloop_core::time::Time;
use nix::time::{ClockId, clock_gettime};

/// The variable with the scale. All processes that share a ledger have to agree about it.
pub const TIME_SCALE: &str = "EVERLOOP_TIME_SCALE";
/// Beyond this a period of program time is shorter than the start of a process.
pub const MAX_TIME_SCALE: u32 = 100;
/// Whether this build scales time at all. A release does not: nothing that runs beside it, agents
/// included, can move its leases and waits by a variable.
pub const SCALES: bool = cfg!(debug_assertions);
/// Program time equals machine time at this moment (2026-01-01), so that all processes compute the
/// same.
const ORIGIN: Time = Time(1_767_225_600_000);

static PROGRAM: LazyLock<ScaledClock> = LazyLock::new(|| ScaledClock::from_environment().unwrap_or_default());

/// How program time relates to machine time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaledClock {
    scale: u32,
}

impl Default for ScaledClock {
    fn default() -> Self {
        Self { scale: 1 }
    }
}

impl ScaledClock {
    /// From the text of the variable: a whole number from 1 to [`MAX_TIME_SCALE`].
    pub fn parse(text: &str) -> Option<Self> {
        let scale = text.parse().ok().filter(|scale| (1..=MAX_TIME_SCALE).contains(scale))?;
        Some(Self { scale })
    }

    /// The scale that a build accepts from the variable: one that `scales`, or real time.
    fn accepted(text: &str, scales: bool) -> Option<Self> {
        Self::parse(text).filter(|clock| scales || clock.scale == 1)
    }

    /// Reads the scale from the environment. A value that is invalid, or not for this build, is
    /// returned as the error, so that it never counts as real time.
    pub fn from_environment() -> Result<Self, String> {
        match std::env::var(TIME_SCALE) {
            Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Ok(text) => Self::accepted(&text, SCALES).ok_or(text),
            Err(std::env::VarError::NotUnicode(text)) => Err(text.to_string_lossy().into_owned()),
        }
    }

    /// How many times faster program time passes.
    pub fn scale(self) -> u32 {
        self.scale
    }

    /// Program time at this machine time.
    pub fn program(self, machine: Time) -> Time {
        Time(ORIGIN.0 + (machine.0 - ORIGIN.0).saturating_mul(i64::from(self.scale)))
    }

    /// Machine time at this program time.
    pub fn machine(self, program: Time) -> Time {
        Time(ORIGIN.0 + (program.0 - ORIGIN.0) / i64::from(self.scale))
    }

    /// How long a period of program time takes on this machine.
    pub fn machine_period(self, period: Duration) -> Duration {
        period / self.scale
    }

    /// How much program time passes in a period of machine time.
    pub fn program_period(self, period: Duration) -> Duration {
        period.saturating_mul(self.scale)
    }
}

/// The clock of this process.
pub fn program() -> ScaledClock {
    *PROGRAM
}

/// The wall clock in program time: UTC milliseconds. It can jump; use it for records, never for
/// deadlines.
pub fn now() -> Time {
    program().program(machine_now())
}

/// The wall clock in machine time, for what other programs measured.
pub fn machine_now() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(d) => Time(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
        Err(before) => Time(-i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX)),
    }
}

/// Program time since boot, including suspend; leases and other commitments to other systems are
/// measured in it.
pub fn boottime() -> Duration {
    program().program_period(machine_boottime())
}

/// Machine time since boot, counting suspend.
pub fn machine_boottime() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or_else(
        |_| Duration::ZERO,
        |t| Duration::new(u64::try_from(t.tv_sec()).unwrap_or(0), u32::try_from(t.tv_nsec()).unwrap_or(0)),
    )
}

/// How long a period of program time takes on this machine: what to hand to a sleep.
pub fn machine_period(period: Duration) -> Duration {
    program().machine_period(period)
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

    #[test]
    fn a_scale_stretches_program_time_and_shrinks_waits() {
        let clock = ScaledClock::parse("20").expect("a plain number");
        let (one, two) = (Time(1_800_000_000_000), Time(1_800_000_003_000));
        assert_eq!(clock.program(two).since(clock.program(one)), Duration::from_secs(60));
        assert_eq!(clock.machine_period(Duration::from_secs(60)), Duration::from_secs(3));
        assert_eq!(clock.program_period(Duration::from_secs(3)), Duration::from_secs(60));
        assert_eq!(clock.machine(clock.program(one)), one);
        assert_eq!(ScaledClock::default().program(one), one, "without a scale both are the same");
    }

    #[test]
    fn only_whole_numbers_within_bounds_are_scales() {
        for text in ["", "0", "-1", "1.5", "101", "fast", "1e1"] {
            assert_eq!(ScaledClock::parse(text), None, "{text}");
        }
        assert_eq!(ScaledClock::parse("1"), Some(ScaledClock::default()));
    }

    #[test]
    fn a_release_keeps_real_time() {
        assert_eq!(ScaledClock::accepted("20", false), None);
        assert_eq!(ScaledClock::accepted("1", false), Some(ScaledClock::default()));
        assert_eq!(ScaledClock::accepted("20", true).map(ScaledClock::scale), Some(20));
    }
}
