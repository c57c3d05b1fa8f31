//! Zones of personas, from the machine's database of zones.

use everloop_core::rhythm::calendar::{Calendar, Civil, WallTime, cron};
use everloop_core::time::Time;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// The zones that this machine knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Zones;

const MINUTE_MS: i64 = 60_000;

/// What a clock without a zone shows, as a date.
fn date(civil: Civil) -> Option<DateTime> {
    let at = Timestamp::from_second(civil.0.checked_mul(60)?).ok()?;
    Some(Offset::UTC.to_datetime(at))
}

/// The moment at which a clock with this offset shows a time.
fn with_offset(civil: Civil, offset: Offset) -> Time {
    Time(civil.0 * MINUTE_MS - i64::from(offset.seconds()) * 1000)
}

impl Calendar for Zones {
    fn civil(&self, zone: &str, at: Time) -> Option<Civil> {
        let zone = TimeZone::get(zone).ok()?;
        let offset = zone.to_offset(Timestamp::from_millisecond(at.0).ok()?);
        Some(Civil((at.0 + i64::from(offset.seconds()) * 1000).div_euclid(MINUTE_MS)))
    }

    fn moments(&self, zone: &str, civil: Civil) -> Option<WallTime> {
        let zone = TimeZone::get(zone).ok()?;
        Some(match zone.to_ambiguous_timestamp(date(civil)?).offset() {
            AmbiguousOffset::Unambiguous { offset } => WallTime::Once(with_offset(civil, offset)),
            AmbiguousOffset::Fold { before, after } => {
                WallTime::Twice { first: with_offset(civil, before), second: with_offset(civil, after) }
            }
            AmbiguousOffset::Gap { before, .. } => {
                // By the old offset the time comes after the change over which clocks are put forward.
                let after = Timestamp::from_millisecond(with_offset(civil, before).0 + 1).ok()?;
                let change = zone.preceding(after).next()?;
                WallTime::Skipped { resumes: Time(change.timestamp().as_millisecond()) }
            }
        })
    }

    fn next_cron(&self, expression: &str, after: Civil) -> Option<Civil> {
        cron::next_match(expression, after)
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::rhythm::calendar::{next_cron, next_daily};

    use super::*;

    fn at(text: &str) -> Time {
        Time(text.parse::<Timestamp>().expect("a time").as_millisecond())
    }

    #[test]
    fn a_daily_wake_is_neither_skipped_nor_doubled() {
        for (zone, after, expected) in [
            ("Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
            ("Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
            ("America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z"),
            ("UTC", "2026-03-28T12:00:00Z", "2026-03-29T02:30:00Z"),
        ] {
            assert_eq!(next_daily(&Zones, zone, 150, at(after)), Some(at(expected)), "{zone} {after}");
            assert_eq!(next_cron(&Zones, zone, "30 2 * * *", at(after)), Some(at(expected)), "{zone} {after}");
        }
        assert_eq!(Zones.civil("Mars/Olympus", Time(0)), None);
    }
}
