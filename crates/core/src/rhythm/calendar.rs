//! Wall clocks, cron and DST. The facts come through the trait [`Calendar`]; the rules are here:
//!
//! - A time of day that does not exist on a day (clocks go forward) is taken at the moment when
//!   clocks go on; one that exists twice (clocks go back) is taken the first time. So a daily wake
//!   is neither skipped nor doubled.
//! - A cron expression is evaluated on wall clocks without a zone, and the result is mapped to a
//!   moment by the rule above. Where its hours are no fixed list, steps of up to an hour are
//!   elapsed time, so `*/15 * * * *` goes on in the hour that exists twice.

pub mod cron;
mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::planted::{self, Bug};
use crate::time::Time;

pub use table::TableCalendar;

/// Minutes of a day.
pub const DAY_MINUTES: i64 = 1440;
/// Steps up to this one are elapsed time, see above. No change of clocks is larger.
const ELAPSED_MAX_MINUTES: i64 = 60;
/// Most missed intervals that are counted: the number is only shown.
const MISSED_COUNTED: u32 = 100;

/// What a wall clock of a zone shows, in minutes since the beginning of 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Civil(pub i64);

impl Civil {
    /// The day, counted from the first one of 1970.
    pub fn day(self) -> i64 {
        self.0.div_euclid(DAY_MINUTES)
    }

    /// The minute of the day.
    pub fn minute(self) -> u16 {
        self.0.rem_euclid(DAY_MINUTES) as u16
    }

    /// This minute of that day.
    pub fn of(day: i64, minute: u16) -> Self {
        Self(day.saturating_mul(DAY_MINUTES).saturating_add(i64::from(minute)))
    }
}

/// The moments at which the clocks of a zone show a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WallTime {
    Once(Time),
    /// Clocks are put forward over it; they go on at this moment.
    Skipped {
        resumes: Time,
    },
    /// Clocks are put back over it.
    Twice {
        first: Time,
        second: Time,
    },
}

/// Facts about zones and cron expressions. `None` for a zone or an expression that is not known.
pub trait Calendar: std::fmt::Debug {
    /// What the clocks of a zone show.
    fn civil(&self, zone: &str, at: Time) -> Option<Civil>;

    /// When the clocks of a zone show a time.
    fn moments(&self, zone: &str, civil: Civil) -> Option<WallTime>;

    /// The first time after `after` that matches the expression (five fields), without any zone.
    fn next_cron(&self, expression: &str, after: Civil) -> Option<Civil>;
}

/// The one moment of a time on wall clocks.
fn moment(calendar: &dyn Calendar, zone: &str, civil: Civil) -> Option<Time> {
    match calendar.moments(zone, civil)? {
        WallTime::Once(at) => Some(at),
        WallTime::Skipped { .. } if planted::is(Bug::RhythmDstSkips) => None,
        WallTime::Skipped { resumes } => Some(resumes),
        WallTime::Twice { second, .. } if planted::is(Bug::RhythmDstDoubles) => Some(second),
        WallTime::Twice { first, .. } => Some(first),
    }
}

/// The next moment after `after` that is this minute of a day.
pub fn next_daily(calendar: &dyn Calendar, zone: &str, minute: u16, after: Time) -> Option<Time> {
    let today = calendar.civil(zone, after)?.day();
    // A moment of yesterday can be after `after` where clocks were put forward over midnight.
    let mut days = (today - 1..=today + 2).filter_map(|day| moment(calendar, zone, Civil::of(day, minute)));
    days.find(|at| *at > after)
}

/// The morning of the next day on the zone's clocks.
pub fn tomorrow(calendar: &dyn Calendar, zone: &str, minute: u16, after: Time) -> Option<Time> {
    let day = calendar.civil(zone, after)?.day() + 1;
    moment(calendar, zone, Civil::of(day, minute)).filter(|at| *at > after)
}

/// Whether the hours of an expression are a fixed list: then each of its times is one wake a day.
fn has_fixed_hours(expression: &str) -> bool {
    let hours = expression.split_whitespace().nth(1).unwrap_or_default();
    !hours.is_empty() && hours.chars().all(|c| c.is_ascii_digit() || c == ',')
}

/// The next moment after `after` that matches a cron expression in a zone.
pub fn next_cron(calendar: &dyn Calendar, zone: &str, expression: &str, after: Time) -> Option<Time> {
    /// Times that can lie before `after` although they come later on the clocks: those of an hour
    /// that exists twice, minute by minute.
    const LOOKED_AT: u32 = 200;
    let here = calendar.civil(zone, after)?;
    let mut civil = calendar.next_cron(expression, here)?;
    if !has_fixed_hours(expression)
        && let Some(at) = elapsed(calendar, zone, expression, (here, civil, after))
    {
        return Some(at);
    }
    for _ in 0..LOOKED_AT {
        match moment(calendar, zone, civil) {
            Some(at) if at > after => return Some(at),
            Some(_) | None => civil = calendar.next_cron(expression, civil)?,
        }
    }
    None
}

/// The moment of a short step by elapsed time, if the clocks then show a time that matches.
fn elapsed(
    calendar: &dyn Calendar,
    zone: &str,
    expression: &str,
    (here, civil, after): (Civil, Civil, Time),
) -> Option<Time> {
    let step = civil.0 - here.0;
    if step > ELAPSED_MAX_MINUTES {
        return None;
    }
    let whole = Time(after.0.div_euclid(60_000) * 60_000);
    let at = whole + Duration::from_secs(step.unsigned_abs() * 60);
    let shown = calendar.civil(zone, at)?;
    (calendar.next_cron(expression, Civil(shown.0 - 1)) == Some(shown) && at > after).then_some(at)
}

/// A wake by cron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CronDue {
    pub at: Time,
    /// Times that passed since the last wake; they are one wake together. At most 100 are counted.
    pub missed: u32,
}

/// When a persona that was awake at `last` is due by a cron expression. What was missed while the
/// machine was off is one wake, now.
pub fn cron_due(calendar: &dyn Calendar, zone: &str, expression: &str, (last, now): (Time, Time)) -> Option<CronDue> {
    let mut at = next_cron(calendar, zone, expression, last.min(now))?;
    if planted::is(Bug::RhythmMissedWakesPileUp) {
        return Some(CronDue { at, missed: 0 });
    }
    let mut missed = 0;
    while at <= now && missed < MISSED_COUNTED {
        missed += 1;
        match next_cron(calendar, zone, expression, at) {
            Some(later) => at = later,
            None => break,
        }
    }
    Some(CronDue { at: if missed > 0 { now } else { at }, missed })
}

/// Hours in which nothing but what is urgent wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRange {
    /// First minute of the day.
    pub from: u16,
    /// The minute that is no longer in it; smaller than `from` for a range over midnight.
    pub to: u16,
}

impl DayRange {
    /// Whether a minute of the day is in it. A range from a time to itself is empty.
    pub fn contains(self, minute: u16) -> bool {
        if self.from <= self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }

    /// The moment when the range that `at` is in ends; `None` outside of it.
    pub fn ends(self, calendar: &dyn Calendar, zone: &str, at: Time) -> Option<Time> {
        let minute = calendar.civil(zone, at)?.minute();
        if self.contains(minute) { next_daily(calendar, zone, self.to, at) } else { None }
    }

    /// Both times as `22:00 to 07:00`.
    pub fn shown(self) -> String {
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        format!("{} to {}", clock(self.from), clock(self.to))
    }
}

/// Reads `09:00` or `9:00` as a minute of the day.
pub fn parse_minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |part: &str, most: u16| {
        let digits = (1..=2).contains(&part.len()) && part.chars().all(|c| c.is_ascii_digit());
        part.parse::<u16>().ok().filter(|n| digits && *n <= most)
    };
    if minute.len() != 2 {
        return None;
    }
    Some(number(hour, 23)? * 60 + number(minute, 59)?)
}

#[cfg(test)]
mod tests;
