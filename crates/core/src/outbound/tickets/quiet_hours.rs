//! Quiet hours: `22:00-07:00`, in local time or with an offset of its own.

use std::fmt;

use crate::time::Time;

const DAY_MINUTES: i64 = 24 * 60;
const MINUTE_MS: i64 = 60_000;

/// A span of each day; it may go over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietHours {
    /// Minute of the day at which it begins.
    pub from: u32,
    /// Minute of the day at which it ends.
    pub to: u32,
    /// Minutes that its clock is ahead of UTC; `None`: local time.
    pub offset: Option<i32>,
}

impl QuietHours {
    /// Reads `22:00-07:00`, `22:00-07:00+02:00` or `22:00-07:00Z`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no span of a day; write it like `22:00-07:00` or `22:00-07:00+02:00`");
        let (from, rest) = text.trim().split_once('-').ok_or_else(bad)?;
        let cut = rest.find(['+', '-', 'Z', 'z']).unwrap_or(rest.len());
        let (to, zone) = rest.split_at(cut);
        let (from, to) = (minute(from).ok_or_else(bad)?, minute(to).ok_or_else(bad)?);
        let offset = match zone {
            "" => None,
            "Z" | "z" => Some(0),
            zone => {
                let minutes = minute(&zone[1..]).filter(|m| *m <= 14 * 60).ok_or_else(bad)?.cast_signed();
                Some(if zone.starts_with('-') { -minutes } else { minutes })
            }
        };
        if from == to {
            return Err(format!("`{text}` begins when it ends; give it a length"));
        }
        Ok(Self { from, to, offset })
    }

    /// End of the span that contains `at`; `None` outside of it.
    pub fn end(&self, at: Time, local_minutes: i32) -> Option<Time> {
        let offset = i64::from(self.offset.unwrap_or(local_minutes)) * MINUTE_MS;
        let here = at.0.saturating_add(offset);
        let minute = here.rem_euclid(DAY_MINUTES * MINUTE_MS) / MINUTE_MS;
        let (from, to) = (i64::from(self.from), i64::from(self.to));
        let inside = if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to };
        let left = (to - minute).rem_euclid(DAY_MINUTES);
        inside.then(|| Time(here - here.rem_euclid(MINUTE_MS) + left * MINUTE_MS - offset))
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |m: u32| format!("{:02}:{:02}", m / 60, m % 60);
        write!(f, "{}-{}", clock(self.from), clock(self.to))?;
        match self.offset {
            None => Ok(()),
            Some(0) => f.write_str("Z"),
            Some(m) => write!(f, "{}{}", if m < 0 { '-' } else { '+' }, clock(m.unsigned_abs())),
        }
    }
}

fn minute(text: &str) -> Option<u32> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str, below: u32| {
        let plain = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u32>().ok().filter(|n| plain && *n < below)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64, minutes: i64) -> Time {
        Time((hours * 60 + minutes) * MINUTE_MS + 12_345)
    }

    #[test]
    fn a_span_over_midnight_ends_in_the_morning() {
        let quiet = QuietHours::parse("22:00-07:00").expect("it is a span");
        assert_eq!(quiet.end(at(21, 59), 0), None);
        assert_eq!(quiet.end(at(22, 0), 0), Some(Time(31 * 60 * MINUTE_MS)));
        assert_eq!(quiet.end(at(3, 0), 0), Some(Time(7 * 60 * MINUTE_MS)));
        assert_eq!(quiet.end(at(7, 0), 0), None);
        assert_eq!(quiet.end(at(20, 30), 120), Some(Time(29 * 60 * MINUTE_MS)), "local time is two hours ahead");
        let own = QuietHours::parse("22:00-07:00-05:00").expect("it is a span");
        assert_eq!(own.end(at(4, 0), 120), Some(Time(12 * 60 * MINUTE_MS)), "an offset of its own goes before");
    }

    #[test]
    fn the_end_of_every_minute_lies_ahead_and_outside() {
        for text in ["22:00-07:00", "09:30-09:31", "00:00-23:59", "23:59-00:00+14:00", "12:00-11:59-09:30"] {
            let quiet = QuietHours::parse(text).expect(text);
            assert_eq!(quiet.to_string(), text);
            for minute in 0..2 * DAY_MINUTES {
                let now = at(0, minute);
                if let Some(end) = quiet.end(now, 60) {
                    assert!(end > now && end.since(now).as_secs() <= 24 * 3600, "{text} at minute {minute}");
                    assert_eq!(quiet.end(end, 60), None, "{text} at minute {minute}");
                }
            }
        }
        assert_eq!(QuietHours::parse("22:00-07:00Z").expect("UTC").offset, Some(0));
        for bad in
            ["", "22-7", "22:00", "24:00-07:00", "22:00-07:60", "22:00-22:00", "22:00-07:00+15:00", "+2:00-07:00"]
        {
            assert!(QuietHours::parse(bad).is_err(), "{bad}");
        }
    }
}
