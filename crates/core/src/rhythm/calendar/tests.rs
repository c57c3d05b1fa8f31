//! DST in both directions in three zones, with times of 2026; cron and missed intervals.

use super::*;
use crate::rhythm::tests_support::{at, minutes, zones};

#[test]
fn a_daily_wake_is_neither_skipped_nor_doubled() {
    let calendar = zones();
    // zone, minute of the day, day before the change, the moments of three days (UTC).
    for (zone, minute, before, expected) in [
        // Berlin, 29 March: 02:30 does not exist; clocks go on at 01:00 UTC.
        ("Europe/Berlin", 150, at(3, 27, 12, 0), [at(3, 28, 1, 30), at(3, 29, 1, 0), at(3, 30, 0, 30)]),
        // Berlin, 25 October: 02:30 exists at 00:30 and 01:30 UTC.
        ("Europe/Berlin", 150, at(10, 23, 12, 0), [at(10, 24, 0, 30), at(10, 25, 0, 30), at(10, 26, 1, 30)]),
        // New York, 8 March: 02:30 does not exist; clocks go on at 07:00 UTC.
        ("America/New_York", 150, at(3, 6, 12, 0), [at(3, 7, 7, 30), at(3, 8, 7, 0), at(3, 9, 6, 30)]),
        // New York, 1 November: 01:30 exists at 05:30 and 06:30 UTC.
        ("America/New_York", 90, at(10, 30, 12, 0), [at(10, 31, 5, 30), at(11, 1, 5, 30), at(11, 2, 6, 30)]),
        // Lord Howe, 4 October (local): half an hour forward at 02:00; 02:15 does not exist.
        ("Australia/Lord_Howe", 135, at(10, 2, 0, 0), [at(10, 2, 15, 45), at(10, 3, 15, 30), at(10, 4, 15, 15)]),
        // Lord Howe, 5 April (local): half an hour back at 02:00; 01:45 exists twice.
        ("Australia/Lord_Howe", 105, at(4, 2, 20, 0), [at(4, 3, 14, 45), at(4, 4, 14, 45), at(4, 5, 15, 15)]),
    ] {
        let expression = format!("{} {} * * *", minute % 60, minute / 60);
        let (mut daily, mut cron) = (before, before);
        for wanted in expected {
            daily = next_daily(&calendar, zone, minute, daily).expect("there is a next day");
            cron = next_cron(&calendar, zone, &expression, cron).expect("there is a next day");
            assert_eq!((daily, cron), (wanted, wanted), "{zone} {expression}");
        }
    }
}

#[test]
fn a_wake_in_the_repeated_hour_does_not_repeat_a_daily_one() {
    let calendar = zones();
    // 02:10 in Berlin for the second time: 02:30 was an hour ago.
    let second = at(10, 25, 1, 10);
    assert_eq!(next_cron(&calendar, "Europe/Berlin", "30 2 * * *", second), Some(at(10, 26, 1, 30)));
    assert_eq!(next_daily(&calendar, "Europe/Berlin", 150, second), Some(at(10, 26, 1, 30)));
}

#[test]
fn short_intervals_go_on_in_the_repeated_hour() {
    let calendar = zones();
    for (expression, start, step, times) in [
        ("*/15 * * * *", at(10, 25, 0, 0), 15, 12),
        ("30 * * * *", at(10, 24, 23, 30), 60, 5),
        ("*/15 * * * *", at(3, 29, 0, 0), 15, 12),
        ("*/20 0-4 * * *", at(10, 24, 23, 0), 20, 9),
    ] {
        let mut last = start;
        for _ in 0..times {
            let next = next_cron(&calendar, "Europe/Berlin", expression, last).expect("there is a next one");
            assert_eq!(next, last + minutes(step), "{expression} after {last:?}");
            last = next;
        }
    }
}

#[test]
fn a_step_over_a_night_with_a_change_keeps_its_hour() {
    let calendar = zones();
    let next = next_cron(&calendar, "Europe/Berlin", "*/15 9-18 * * *", at(10, 24, 16, 45));
    assert_eq!(next, Some(at(10, 25, 8, 0)), "09:00 in winter");
}

#[test]
fn missed_intervals_are_one_wake() {
    let calendar = zones();
    let due = |last, now| cron_due(&calendar, "UTC", "*/15 * * * *", (last, now)).expect("it is known");
    let noon = at(6, 1, 12, 0);
    assert_eq!(due(noon, noon + minutes(5)), CronDue { at: noon + minutes(15), missed: 0 });
    assert_eq!(due(noon, noon + minutes(15)), CronDue { at: noon + minutes(15), missed: 1 });
    let late = noon + minutes(61);
    assert_eq!(due(noon, late), CronDue { at: late, missed: 4 });
    assert_eq!(due(late, late), CronDue { at: noon + minutes(75), missed: 0 }, "then it goes on as usual");
    let much_later = noon + minutes(60 * 24 * 300);
    assert_eq!(due(noon, much_later), CronDue { at: much_later, missed: 100 });
    // The clock went back: the next one counts from now.
    assert_eq!(due(noon + minutes(600), noon), CronDue { at: noon + minutes(15), missed: 0 });
}

#[test]
fn ranges_of_the_day() {
    let night = DayRange { from: 22 * 60, to: 7 * 60 };
    for (minute, inside) in [(22 * 60, true), (0, true), (419, true), (420, false), (12 * 60, false)] {
        assert_eq!(night.contains(minute), inside, "{minute}");
    }
    assert!(!DayRange { from: 5, to: 5 }.contains(5));
    let calendar = zones();
    assert_eq!(night.ends(&calendar, "Europe/Berlin", at(6, 1, 21, 0)), Some(at(6, 2, 5, 0)));
    assert_eq!(night.ends(&calendar, "Europe/Berlin", at(6, 1, 10, 0)), None);
    assert_eq!(night.ends(&calendar, "Nowhere", at(6, 1, 21, 0)), None);
    assert_eq!(night.shown(), "22:00 to 07:00");
}

#[test]
fn minutes_of_a_day_are_read() {
    for (text, expected) in [
        ("09:00", Some(540)),
        ("9:05", Some(545)),
        ("23:59", Some(1439)),
        ("24:00", None),
        ("9", None),
        ("9:5", None),
        ("+9:00", None),
        ("", None),
        ("09:60", None),
    ] {
        assert_eq!(parse_minute(text), expected, "{text}");
    }
}
