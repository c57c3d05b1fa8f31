//! The end of a limit as vendors write it in text: the last resort, where no field of a record has
//! it.
//!
//! A time that cannot be parsed is `None`. A wrong one would put a loop to sleep for nothing.

use std::time::Duration;

use everloop_core::time::Time;
use jiff::civil::{self, DateTime};
use jiff::tz::TimeZone;

/// The longest window of any vendor is a month; a later time is an error.
const FARTHEST: Duration = Duration::from_secs(31 * 86_400);

/// Written times are cut to the minute, so only the end of that minute is safe.
const MINUTE: Duration = Duration::from_secs(60);

/// Longer than every written time, shorter than the sentence after it.
const LOOK_AT: usize = 80;

/// Prefixes of a point in time.
const AT: &[&str] = &["resets at ", "resets ", "try again at ", "reset at ", "regain access on "];

/// Prefixes of a duration.
const IN: &[&str] = &["try again in ", "retry after ", "reset after ", "resets in ", "retry in ", "available in "];

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The time itself, if a limit can end then.
pub fn sane(at: Time, now: Time) -> Option<Time> {
    (at > now && at <= now + FARTHEST).then_some(at)
}

/// Seconds (or milliseconds, which some vendors use) since 1970.
pub fn term(number: u64, now: Time) -> Option<Time> {
    // Ten digits are seconds until the year 2286, thirteen are milliseconds.
    let millis = if number < 100_000_000_000 { number.checked_mul(1000)? } else { number };
    sane(Time(i64::try_from(millis).ok()?), now)
}

/// A duration in seconds, from now on.
pub fn after(seconds: f64, now: Time) -> Option<Time> {
    let wait = Duration::try_from_secs_f64(seconds).ok()?;
    sane(now + wait, now)
}

/// The time in a text. CLIs write times without a zone in their own; `None` when that is not known.
pub fn told(text: &str, now: Time, zone: Option<&TimeZone>) -> Option<Time> {
    let text = text.to_ascii_lowercase();
    let rest_after = |marks: &[&str]| {
        let found = marks.iter().filter_map(|m| text.find(m).map(|at| at + m.len())).min_by_key(|end| *end)?;
        Some(text[found..].chars().take(LOOK_AT).collect::<String>())
    };
    let bar = || text.rsplit_once('|').and_then(|(_, digits)| term(digits.trim().parse().ok()?, now));
    let point = || rest_after(AT).and_then(|rest| moment(&rest, now, zone));
    let length = || rest_after(IN).and_then(|rest| after(span(&rest)?, now));
    bar().or_else(point).or_else(length)
}

/// `8:52 pm`, `10am (asia/seoul)`, `nov 20th, 2026 10:19 am`, `oct 9 at 5pm`.
fn moment(text: &str, now: Time, local: Option<&TimeZone>) -> Option<Time> {
    if let Some(at) = full_date(text) {
        return sane(at, now);
    }
    let (text, zone) = match text.split_once('(') {
        // A bracket further on belongs to another sentence.
        Some((before, rest)) if before.len() < 30 => (before, named_zone(rest.split_once(')')?.0)?),
        _ => (text, local?.clone()),
    };
    let mut words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|w| !w.is_empty()).peekable();
    let today = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone()).datetime();
    let mut day = None;
    if let Some(month) = words.peek().and_then(|w| month(w)) {
        words.next();
        let number: i8 = words.next()?.trim_end_matches(|c: char| c.is_alphabetic()).parse().ok()?;
        let year = words.peek().and_then(|w| w.parse::<i16>().ok()).filter(|y| (2020..2200).contains(y));
        if year.is_some() {
            words.next();
        }
        day = Some((year, month, number));
    }
    if words.peek() == Some(&"at") {
        words.next();
    }
    let clock = clock(words.next()?, words.next().unwrap_or_default())?;
    let at = |d: DateTime| Some(Time(d.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond()) + MINUTE);
    let found = match day {
        Some((Some(year), month, day)) => at(civil::Date::new(year, month, day).ok()?.to_datetime(clock))?,
        Some((None, month, day)) => {
            let of_year = |year: i16| at(civil::Date::new(year, month, day).ok()?.to_datetime(clock));
            // A date without a year means the next year only around new year.
            of_year(today.year()).filter(|t| *t > now).or_else(|| of_year(today.year() + 1))?
        }
        None => {
            let first = at(today.date().to_datetime(clock))?;
            let just_over = first <= now && first + MINUTE > now;
            if just_over {
                return None;
            }
            if first > now { first } else { at(today.date().tomorrow().ok()?.to_datetime(clock))? }
        }
    };
    sane(found, now)
}

/// `2026-12-01 at 00:00 utc`; exact, unlike times that are cut to the minute.
fn full_date(text: &str) -> Option<Time> {
    let (day, rest) = text.split_once(" at ")?;
    let (clock, _) = rest.split_once(" utc")?;
    let at: jiff::Timestamp = format!("{day}T{clock}:00Z").parse().ok()?;
    Some(Time(at.as_millisecond()))
}

fn month(word: &str) -> Option<i8> {
    let index = MONTHS.iter().position(|m| word.starts_with(m) && word.chars().all(char::is_alphabetic))?;
    i8::try_from(index + 1).ok()
}

/// Reads `8:52` `pm.` or `8:51pm` or `20:52`; `5` alone is not a time.
fn clock(word: &str, next: &str) -> Option<civil::Time> {
    let word = word.trim_end_matches('.');
    let half_in = |w: &str| match w.trim_end_matches(['.', ';']) {
        "am" | "a.m" => Some(0),
        "pm" | "p.m" => Some(12),
        _ => None,
    };
    let digits = word.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(word.len());
    let (time, tail) = word.split_at(digits);
    let half = if tail.is_empty() { half_in(next) } else { Some(half_in(tail)?) };
    let (hour, minute) = match time.split_once(':') {
        Some((hour, minute)) => (hour.parse::<i8>().ok()?, minute.parse::<i8>().ok()?),
        None => (time.parse::<i8>().ok().filter(|_| half.is_some())?, 0),
    };
    let hour = match half {
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
        None => hour,
    };
    civil::Time::new(hour, minute, 0, 0).ok()
}

/// Names of this machine's zone database, in lower case; others are not guessed.
fn named_zone(name: &str) -> Option<TimeZone> {
    match name.trim() {
        "utc" | "gmt" | "etc/utc" => Some(TimeZone::UTC),
        name if name.len() < 64 => TimeZone::get(name).ok(),
        _ => None,
    }
}

/// The next midnight of a zone.
pub fn midnight(zone: &str, now: Time) -> Option<Time> {
    let zone = TimeZone::get(zone).ok()?;
    let today = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone()).date();
    let end = today.tomorrow().ok()?.to_zoned(zone).ok()?;
    sane(Time(end.timestamp().as_millisecond()), now)
}

/// A duration such as `599.99s` or `6m0s`, in seconds.
pub fn seconds(text: &str) -> Option<f64> {
    span(text).filter(|s| s.is_finite() && *s >= 0.0 && *s <= FARTHEST.as_secs_f64())
}

/// `4s`, `1.5s`, `6m0s`, `20 minutes`, `5 days 3 hours`, in seconds.
fn span(text: &str) -> Option<f64> {
    let mut total = None;
    let mut rest = text.trim_start();
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse::<f64>() else { break };
        let unit = rest[digits..].trim_start();
        let letters = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let seconds = match &unit[..letters] {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        total = Some(total.unwrap_or(0.0) + number * seconds);
        rest = unit[letters..].trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NOW is 2026-11-15 18:50:00 UTC.
    const NOW: Time = Time(1_794_768_600_000);

    fn utc(text: &str) -> Option<String> {
        in_zone(text, &TimeZone::UTC)
    }

    fn in_zone(text: &str, zone: &TimeZone) -> Option<String> {
        told(text, NOW, Some(zone)).map(|t| jiff::Timestamp::from_millisecond(t.0).unwrap().to_string())
    }

    #[test]
    fn points_in_time_as_vendors_write_them() {
        for (text, at) in [
            ("You've hit your 5-hour limit · resets 8:51pm (UTC)", "2026-11-15T20:52:00Z"),
            ("Weekly limit reached · resets 10am (Asia/Seoul) · /upgrade", "2026-11-16T01:01:00Z"),
            ("You've hit your limit · resets 11pm (America/New_York)", "2026-11-16T04:01:00Z"),
            ("You're out of extra usage · resets 11:30am (Europe/Berlin)", "2026-11-16T10:31:00Z"),
            ("5-hour limit reached ∙ resets 5am", "2026-11-16T05:01:00Z"),
            ("Claude AI usage limit reached|1794775911", "2026-11-15T20:51:51Z"),
            ("credits or try again at 8:52 PM.", "2026-11-15T20:53:00Z"),
            ("credits or try again at Nov 20th, 2026 10:19 AM.", "2026-11-20T10:20:00Z"),
            ("limit · resets Nov 20, 3pm (UTC)", "2026-11-20T15:01:00Z"),
            ("limit · resets Dec 1 at 12am", "2026-12-01T00:01:00Z"),
            ("try again at 12:16 PM.", "2026-11-16T12:17:00Z"),
            ("resets 20:52", "2026-11-15T20:53:00Z"),
            ("You will regain access on 2026-12-01 at 00:00 UTC.", "2026-12-01T00:00:00Z"),
        ] {
            assert_eq!(utc(text).as_deref(), Some(at), "{text}");
        }
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(in_zone("try again at 8:52 PM.", &berlin).unwrap(), "2026-11-15T19:53:00Z");
        assert_eq!(told("try again at 8:52 PM.", NOW, None), None);
    }

    #[test]
    fn lengths_of_time_as_vendors_write_them() {
        for (text, seconds) in [
            ("[API Error: fake 429\nSuggested retry after 600s.]", 600.0),
            ("Your quota will reset after 5s.", 5.0),
            ("Please try again in 1.5s.", 1.5),
            ("Please try again in 6m0s.", 360.0),
            ("try again in 5 days 3 hours 20 minutes.", 444_000.0),
            ("Please try again in 28ms. Visit", 0.028),
            ("resets in 2 hours and 5 minutes", 7500.0),
        ] {
            assert_eq!(told(text, NOW, None), after(seconds, NOW), "{text}");
            assert!(after(seconds, NOW).is_some());
        }
    }

    #[test]
    fn what_is_not_understood_is_no_time() {
        for text in [
            "resets 10am (Mars/Olympus)",
            "resets soon",
            "resets 5",
            "resets 25:99",
            "resets 13pm (UTC)",
            "try again at",
            "limit reached|12",
            "limit reached|99999999999999999999",
            "Claude AI usage limit reached|1749924000",
            "try again at Nov 20th, 2031 10:19 AM.",
            "try again at Feb 31st, 2027 10:19 AM.",
            "try again in 99 days",
            "try again in 1e9 s",
            "retry after",
            "resets 10am (",
            "You will regain access on 2026-13-01 at 00:00 UTC.",
            "You will regain access on 2027-12-01 at 00:00 UTC.",
            "You will regain access on the first of December",
        ] {
            assert_eq!(utc(text), None, "{text}");
        }
    }

    #[test]
    fn a_minute_that_is_just_over_is_not_tomorrow() {
        assert_eq!(utc("resets 6:50pm").as_deref(), Some("2026-11-15T18:51:00Z"));
        assert_eq!(utc("resets 6:49pm"), None);
        assert_eq!(utc("resets 6:40pm").as_deref(), Some("2026-11-16T18:41:00Z"));
    }
}
