//! Points in time as everloop stores them: UTC milliseconds. The clock itself is read at the edges
//! only.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time, UTC, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// How long after `earlier` this is; zero when the clock went backwards.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, rhs: Duration) -> Time {
        Time(self.0.saturating_add(i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, rhs: Duration) -> Time {
        Time(self.0.saturating_sub(i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// Durations on disk are whole milliseconds.
pub mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a duration as milliseconds.
    pub fn serialize<S: Serializer>(value: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// Reads milliseconds as a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        u64::deserialize(d).map(Duration::from_millis)
    }
}

/// Optional durations on disk.
pub mod opt_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes an optional duration as milliseconds or null.
    pub fn serialize<S: Serializer>(value: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        value.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)).serialize(s)
    }

    /// Reads milliseconds or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_millis))
    }
}

/// A duration for people: `90s`, `15m`, `2h 5m`, `3d`.
pub fn human(d: Duration) -> String {
    let ms = d.as_millis();
    let s = d.as_secs();
    match s {
        0 if ms > 0 => format!("{ms}ms"),
        0..=119 => format!("{s}s"),
        120..=3599 if s.is_multiple_of(60) => format!("{}m", s / 60),
        120..=3599 => format!("{}m {}s", s / 60, s % 60),
        3600..=172_799 if (s / 60).is_multiple_of(60) => format!("{}h", s / 3600),
        3600..=172_799 => format!("{}h {}m", s / 3600, (s / 60) % 60),
        _ if (s / 3600).is_multiple_of(24) => format!("{}d", s / 86_400),
        _ => format!("{}d {}h", s / 86_400, (s / 3600) % 24),
    }
}

/// Reads `90s`, `15m`, `2h`, `1d`, `500ms` or a sum of these (`1h 30m`); a bare number is refused
/// except `0`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().map_err(|_| bad_duration(text))?;
        rest = rest[digits..].trim_start();
        let unit = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let millis = match &rest[..unit] {
            "ms" => 1,
            "s" | "sec" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad_duration(text)),
        };
        rest = rest[unit..].trim_start();
        let part = number.checked_mul(millis).ok_or_else(|| bad_duration(text))?;
        total = total.checked_add(Duration::from_millis(part)).ok_or_else(|| bad_duration(text))?;
    }
    if total.is_zero() && !text.starts_with('0') {
        return Err(bad_duration(text));
    }
    Ok(total)
}

fn bad_duration(text: &str) -> String {
    format!("`{text}` is not a duration; write it like `90s`, `15m`, `2h` or `1h 30m`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print() {
        for (text, ms) in
            [("90s", 90_000), ("15m", 900_000), ("1h 30m", 5_400_000), ("0", 0), ("0s", 0), ("500ms", 500)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "x", "5 parsecs", "-3s", "99999999999999999999d", "18446744073709551615h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(human(Duration::from_secs(7500)), "2h 5m");
        assert_eq!(human(Duration::from_millis(40)), "40ms");
    }

    #[test]
    fn a_clock_that_went_backwards_gives_zero() {
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
    }
}
