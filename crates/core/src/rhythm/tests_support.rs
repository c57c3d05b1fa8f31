//! Values for the tests of rhythm.

use std::time::Duration;

use super::calendar::TableCalendar;
use super::signal::{Signal, SignalClass};
use crate::time::Time;

/// A signal for `echo` with this id.
pub fn signal(id: &str, class: SignalClass) -> Signal {
    Signal {
        id: id.to_owned(),
        to: "echo".parse().expect("a name"),
        class,
        tags: [].into(),
        topic: String::new(),
        body: "something happened".to_owned(),
        from: "test".to_owned(),
        at: Time(0),
        source: "test".to_owned(),
        passed_by: None,
        reply_to: None,
    }
}

/// So many minutes.
pub fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

/// A moment of 2026, in UTC.
pub fn at(month: i64, day: i64, hour: i64, minute: i64) -> Time {
    const DAYS: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let days = 20_454 + DAYS[usize::try_from(month - 1).expect("a month")] + day - 1;
    Time(((days * 24 + hour) * 60 + minute) * 60_000)
}

/// Three zones with their changes of 2026.
pub fn zones() -> TableCalendar {
    TableCalendar::new()
        .with("Europe/Berlin", 60, &[(at(3, 29, 1, 0), 120), (at(10, 25, 1, 0), 60)])
        .with("America/New_York", -300, &[(at(3, 8, 7, 0), -240), (at(11, 1, 6, 0), -300)])
        .with("Australia/Lord_Howe", 660, &[(at(4, 4, 15, 0), 630), (at(10, 3, 15, 30), 660)])
}
