//! The cadence of a persona: its character, as data. Five profiles and `custom`; each is nothing
//! but numbers, and every number may be configured.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bucket::WakeAllowance;
use super::calendar::{Calendar, DayRange};
use crate::time::{Time, millis};

/// Least time between two looks that is accepted: a look reads sources and costs a write.
pub const SHORTEST_LEAST: Duration = Duration::from_secs(5);
/// Greatest time between two looks that is accepted; a persona that never looks is not there.
pub const LONGEST_MOST: Duration = Duration::from_secs(7 * 86_400);
/// Most windows of a day.
pub const WINDOWS_MAX: usize = 24;
/// Least and greatest factor of an empty wake, in percent.
const STRETCH_PERCENT: std::ops::RangeInclusive<u32> = 100..=1000;

/// The name of a set of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Short naps, quick snap back.
    Staccato,
    /// Long naps, up to a working day.
    Measured,
    /// By time of day.
    PhaseLinked,
    /// A fixed interval.
    Steady,
    /// The usual numbers, with more dreams than reflections in between.
    Interlaced,
    /// The usual numbers, changed at will.
    #[default]
    Custom,
}

impl Profile {
    /// All profiles that there are.
    pub const ALL: [Profile; 6] = [
        Profile::Staccato,
        Profile::Measured,
        Profile::PhaseLinked,
        Profile::Steady,
        Profile::Interlaced,
        Profile::Custom,
    ];

    /// The name as it is configured.
    pub fn as_str(self) -> &'static str {
        match self {
            Profile::Staccato => "staccato",
            Profile::Measured => "measured",
            Profile::PhaseLinked => "phase-linked",
            Profile::Steady => "steady",
            Profile::Interlaced => "interlaced",
            Profile::Custom => "custom",
        }
    }

    /// The profile of a name.
    pub fn named(name: &str) -> Result<Self, CadenceError> {
        Profile::ALL
            .into_iter()
            .find(|profile| profile.as_str() == name)
            .ok_or_else(|| CadenceError::Profile(name.to_owned()))
    }

    /// The numbers of the profile.
    pub fn cadence(self) -> Cadence {
        let usual = Cadence { profile: self, ..Cadence::usual() };
        match self {
            Profile::Custom => usual,
            Profile::Staccato => Cadence {
                shortest: seconds(30),
                longest: seconds(3600),
                pace: Pace { nothing: seconds(300), few: seconds(120), many: seconds(30) },
                reflect_every: 2,
                ..usual
            },
            Profile::Measured => Cadence {
                shortest: seconds(300),
                longest: seconds(8 * 3600),
                pace: Pace { nothing: seconds(2400), few: seconds(1200), many: seconds(300) },
                reflect_every: 8,
                ..usual
            },
            Profile::PhaseLinked => Cadence {
                windows: vec![
                    DayWindow { hours: DayRange { from: 9 * 60, to: 18 * 60 }, pace: Pace::USUAL },
                    DayWindow { hours: DayRange { from: 18 * 60, to: 23 * 60 }, pace: Pace::USUAL.slower(2) },
                    DayWindow { hours: DayRange { from: 23 * 60, to: 9 * 60 }, pace: Pace::USUAL.slower(6) },
                ],
                ..usual
            },
            Profile::Steady => Cadence { fixed: true, ..usual },
            Profile::Interlaced => Cadence { reflect_every: 6, dream_every: 4, ..usual },
        }
    }
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// How soon the next look is, by what the last one brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// After a look without work.
    #[serde(with = "millis")]
    pub nothing: Duration,
    /// After one or two tasks.
    #[serde(with = "millis")]
    pub few: Duration,
    /// After three or more tasks, or something urgent.
    #[serde(with = "millis")]
    pub many: Duration,
}

impl Pace {
    /// 20, 10 and 2 minutes.
    pub const USUAL: Pace = Pace { nothing: seconds(1200), few: seconds(600), many: seconds(120) };

    fn slower(self, times: u32) -> Self {
        Self { nothing: self.nothing * times, few: self.few * times, many: self.many * times }
    }
}

/// A part of the day with its own pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayWindow {
    pub hours: DayRange,
    pub pace: Pace,
}

/// The numbers by which a persona sleeps and wakes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cadence {
    pub profile: Profile,
    /// Least time from one look to the next, unless a signal wakes.
    #[serde(with = "millis")]
    pub shortest: Duration,
    /// Greatest time from one look to the next.
    #[serde(with = "millis")]
    pub longest: Duration,
    pub pace: Pace,
    /// Factor per empty look, in percent.
    pub stretch_percent: u32,
    /// The interval is always that of `pace.nothing`.
    pub fixed: bool,
    /// Whether the rate of signals counts.
    pub weighted: bool,
    /// Whether the metabolism counts.
    pub metabolic: bool,
    /// Parts of the day with their own pace; the first that fits counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<DayWindow>,
    /// The zone of windows, quiet hours, cron and wishes.
    pub zone: String,
    /// Five fields; takes the place of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Hours in which only high signals and people wake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<DayRange>,
    /// The minute of the day that `tomorrow` means.
    pub morning: u16,
    /// The wake budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakes: Option<WakeAllowance>,
    /// Empty looks in a row after which the persona is shown as parked.
    pub park_after: u32,
    /// Looks after which a reflection or a dream follows, if there is a budget for it.
    pub reflect_every: u32,
    pub dream_every: u32,
}

impl Default for Cadence {
    fn default() -> Self {
        Self::usual()
    }
}

impl Cadence {
    fn usual() -> Self {
        Self {
            profile: Profile::Custom,
            shortest: seconds(60),
            longest: seconds(4 * 3600),
            pace: Pace::USUAL,
            stretch_percent: 150,
            fixed: false,
            weighted: true,
            metabolic: false,
            windows: Vec::new(),
            zone: "UTC".to_owned(),
            cron: None,
            quiet: None,
            morning: 8 * 60,
            wakes: None,
            park_after: crate::rhythm::PARK_AFTER,
            reflect_every: 4,
            dream_every: 6,
        }
    }

    /// The part of the day at a moment, if one is configured for it.
    pub fn window(&self, calendar: &dyn Calendar, at: Time) -> Option<&DayWindow> {
        let minute = calendar.civil(&self.zone, at)?.minute();
        self.windows.iter().find(|window| window.hours.contains(minute))
    }

    /// Whether the numbers make sense together, and the calendar knows zone and expression.
    pub fn validate(&self, calendar: &dyn Calendar, now: Time) -> Result<(), CadenceError> {
        if self.shortest < SHORTEST_LEAST || self.longest > LONGEST_MOST || self.shortest > self.longest {
            return Err(CadenceError::Bounds);
        }
        if !STRETCH_PERCENT.contains(&self.stretch_percent) {
            return Err(CadenceError::Stretch(self.stretch_percent));
        }
        if self.windows.len() > WINDOWS_MAX {
            return Err(CadenceError::Windows(self.windows.len()));
        }
        let ranges = self.windows.iter().map(|window| window.hours).chain(self.quiet);
        let last = ranges.flat_map(|range| [range.from, range.to]).chain([self.morning]).max();
        if let Some(minute) = last.filter(|minute| *minute >= 1440) {
            return Err(CadenceError::Minute(minute));
        }
        if self.wakes.is_some_and(|wakes| !wakes.is_valid()) {
            return Err(CadenceError::Wakes);
        }
        let Some(here) = calendar.civil(&self.zone, now) else {
            return Err(CadenceError::Zone(self.zone.clone()));
        };
        match &self.cron {
            Some(cron) if calendar.next_cron(cron, here).is_none() => Err(CadenceError::Cron(cron.clone())),
            Some(_) | None => Ok(()),
        }
    }
}

/// Why a cadence is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CadenceError {
    #[error("`{0}` is no profile; hint: staccato, measured, phase-linked, steady, interlaced or custom")]
    Profile(String),
    #[error(
        "`shortest` and `longest` do not fit; hint: at least 5s, at most 7d, and `shortest` is not the greater one"
    )]
    Bounds,
    #[error("a factor of {0} percent per empty wake; hint: 100 to 1000")]
    Stretch(u32),
    #[error("{0} windows of a day; hint: at most {WINDOWS_MAX}")]
    Windows(usize),
    #[error("minute {0} is not in a day; hint: write times as 00:00 to 23:59")]
    Minute(u16),
    #[error("a wake budget of nothing; hint: write it like `4/h` or `20/day`")]
    Wakes,
    #[error("the zone `{0}` is not known; hint: a name like `Europe/Berlin` or `UTC`")]
    Zone(String),
    #[error("the cron expression `{0}` cannot be read or never matches; hint: five fields, like `*/15 9-18 * * 1-5`")]
    Cron(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::{at, zones};

    #[test]
    fn profiles_are_valid_and_have_their_names() {
        for profile in Profile::ALL {
            let cadence = profile.cadence();
            assert_eq!(cadence.validate(&zones(), at(1, 1, 0, 0)), Ok(()), "{profile:?}");
            assert_eq!((Profile::named(profile.as_str()), cadence.profile), (Ok(profile), profile));
            let stored = serde_json::to_string(&cadence).expect("numbers");
            assert_eq!(serde_json::from_str::<Cadence>(&stored).expect("the same"), cadence);
            assert!(stored.contains(&format!("\"{}\"", profile.as_str())), "{stored}");
        }
        assert!(Profile::named("allegro").is_err());
        assert_eq!(Profile::Staccato.cadence().shortest, seconds(30));
        assert_eq!(serde_json::from_str::<Cadence>("{}").expect("defaults"), Cadence::default());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |change: fn(&mut Cadence)| {
            let mut cadence = Cadence::default();
            change(&mut cadence);
            cadence.validate(&zones(), at(1, 1, 0, 0)).expect_err("it is refused").to_string()
        };
        for (change, has) in [
            ((|c| c.shortest = seconds(1)) as fn(&mut Cadence), "`shortest`"),
            (|c| c.longest = seconds(8 * 86_400), "`longest`"),
            (|c| c.longest = seconds(59), "`longest`"),
            (|c| c.stretch_percent = 50, "50 percent"),
            (|c| c.morning = 1440, "minute 1440"),
            (|c| c.quiet = Some(DayRange { from: 0, to: 2000 }), "minute 2000"),
            (|c| c.wakes = Some(WakeAllowance { wakes: 0, per: seconds(3600) }), "wake budget"),
            (|c| c.zone = "Mars/Olympus".to_owned(), "Mars/Olympus"),
            (|c| c.cron = Some("every day".to_owned()), "every day"),
            (|c| c.cron = Some("0 0 31 2 *".to_owned()), "never matches"),
        ] {
            let text = refused(change);
            assert!(text.contains(has) && text.contains("hint"), "{text}");
        }
    }

    #[test]
    fn the_first_window_that_fits_counts() {
        let cadence = Cadence { zone: "Europe/Berlin".to_owned(), ..Profile::PhaseLinked.cadence() };
        let pace = |hour| cadence.window(&zones(), at(1, 5, hour, 0)).map(|window| window.pace.nothing.as_secs() / 60);
        assert_eq!(
            (pace(8), pace(16), pace(17), pace(22), pace(7)),
            (Some(20), Some(20), Some(40), Some(120), Some(120))
        );
    }
}
