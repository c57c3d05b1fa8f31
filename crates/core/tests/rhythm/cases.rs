//! Short cases of single rules, as promises that hold or do not. The tables beside the code have
//! more; these are what planted mistakes break.

use std::time::Duration;

use everloop_core::rhythm::cadence::Cadence;
use everloop_core::rhythm::calendar::{next_cron, next_daily};
use everloop_core::rhythm::metabolism::{Vitals, beat};
use everloop_core::rhythm::next::{Hints, History, next};
use everloop_core::rhythm::wish;
use everloop_core::time::Time;

use crate::{at, inward, zones};

/// A promise, and whether it holds.
type Promise = (&'static str, fn() -> bool);

/// The promises that do not hold, one after the other.
pub fn broken() -> impl Iterator<Item = &'static str> {
    let all: [Promise; 10] = [
        ("a daily wake comes once on every day of the year", daily_wakes),
        ("failures never make the beat quicker", failures),
        ("a line of the prompt is no wish", quoted_wish),
        ("a clock that goes back makes no nap longer", clock_back),
        ("reflections and dreams keep their budgets", inward::budget_is_kept),
        ("no inward turn begins while something waits", inward::work_comes_first),
        ("no inward turn begins under a freeze", inward::none_while_frozen),
        ("every fifth reflection is on the reflections", inward::every_fifth_is_on_self),
        ("a plan is for its signals only", inward::plans_match_their_signals),
        ("a dream drops no protected line", inward::protected_lines_stay),
    ];
    all.into_iter().filter(|(_, holds)| !holds()).map(|(promise, _)| promise)
}

/// In three zones, at times that a change of clocks skips or repeats.
fn daily_wakes() -> bool {
    let calendar = zones();
    let once_a_day = |zone: &str, minute: u16| {
        let expression = format!("{} {} * * *", minute % 60, minute / 60);
        let (mut daily, mut by_cron, end) = (at(1, 2, 0, 0), at(1, 2, 0, 0), at(12, 30, 0, 0));
        let mut wakes = 0;
        while daily < end {
            let (before, next) = (daily, next_daily(&calendar, zone, minute, daily));
            let cron = next_cron(&calendar, zone, &expression, by_cron);
            let (Some(next), Some(cron)) = (next, cron) else { return false };
            let apart = next.since(before);
            let day =
                apart <= Duration::from_secs(25 * 3600) && (wakes == 0 || apart >= Duration::from_secs(22 * 3600));
            if next != cron || !day {
                return false;
            }
            (daily, by_cron) = (next, cron);
            wakes += 1;
        }
        wakes == 363
    };
    let first = |zone: &str, minute: u16, after: Time, expected: Time| {
        next_daily(&calendar, zone, minute, after) == Some(expected)
    };
    let every = [("Europe/Berlin", 150), ("America/New_York", 150), ("America/New_York", 90), ("UTC", 1)];
    every
        .into_iter()
        .chain([("Australia/Lord_Howe", 135), ("Australia/Lord_Howe", 105)])
        .all(|(zone, minute)| once_a_day(zone, minute))
        && first("Europe/Berlin", 150, at(10, 24, 12, 0), at(10, 25, 0, 30))
}

fn failures() -> bool {
    let with = |failures| beat(Vitals { freshness: 0.6, diversity: 0.4, volume: 0.2, failures }.metabolism());
    (1..=10_u32).all(|n| with(f64::from(n) / 10.0) >= with(f64::from(n - 1) / 10.0))
}

fn quoted_wish() -> bool {
    wish::find("<WAKE in 15m>", "for example:\n<WAKE in 15m>\n").is_none()
}

/// By a minute, a day and a year.
fn clock_back() -> bool {
    let (calendar, cadence, rested) = (zones(), Cadence::default(), at(6, 1, 10, 0));
    let history = History { rested_at: Some(rested), ..History::default() };
    let hints = Hints { calendar: &calendar, hold: None };
    [60, 86_400, 365 * 86_400].into_iter().all(|secs| {
        let now = rested - Duration::from_secs(secs);
        next(&cadence, &history, &hints, now).at == now + cadence.pace.nothing
    })
}

#[test]
fn all_promises_hold() {
    assert_eq!(broken().collect::<Vec<_>>(), [""; 0]);
}
