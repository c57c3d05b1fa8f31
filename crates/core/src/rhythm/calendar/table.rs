//! A calendar from a table of offsets: for simulations, and where no database of zones is at hand.

use std::collections::BTreeMap;

use super::{Calendar, Civil, WallTime, cron};
use crate::time::Time;

/// Offsets of zones from UTC, each from a moment on.
#[derive(Clone, Debug, Default)]
pub struct TableCalendar {
    zones: BTreeMap<String, Vec<(Time, i64)>>,
}

impl TableCalendar {
    /// A calendar that knows `UTC`.
    pub fn new() -> Self {
        Self::default().with("UTC", 0, &[])
    }

    /// Adds a zone: the offset in minutes at first, and from each moment on.
    #[must_use]
    pub fn with(mut self, zone: &str, first: i64, changes: &[(Time, i64)]) -> Self {
        let mut offsets = vec![(Time(i64::MIN), first)];
        offsets.extend_from_slice(changes);
        self.zones.insert(zone.to_owned(), offsets);
        self
    }
}

fn minutes_of(at: Time) -> i64 {
    at.0.div_euclid(60_000)
}

impl Calendar for TableCalendar {
    fn civil(&self, zone: &str, at: Time) -> Option<Civil> {
        let offsets = self.zones.get(zone)?;
        let (_, offset) = offsets.iter().rev().find(|(from, _)| *from <= at)?;
        Some(Civil(minutes_of(at) + offset))
    }

    fn moments(&self, zone: &str, civil: Civil) -> Option<WallTime> {
        let offsets = self.zones.get(zone)?;
        let moment = |offset: i64| Time((civil.0 - offset) * 60_000);
        let mut found: Vec<Time> = Vec::new();
        for (n, (from, offset)) in offsets.iter().enumerate() {
            let at = moment(*offset);
            let until = offsets.get(n + 1).map_or(Time(i64::MAX), |(until, _)| *until);
            if at >= *from && at < until {
                found.push(at);
            }
        }
        match found[..] {
            [first, second, ..] => Some(WallTime::Twice { first, second }),
            [at] => Some(WallTime::Once(at)),
            [] => {
                // The change over which clocks are put forward.
                let mut changes = offsets.windows(2).map(|pair| (pair[0].1, pair[1].0));
                let over = changes.find(|(before, at)| *at <= moment(*before) && moment(*before) < *at + HALF_DAY);
                over.map(|(_, resumes)| WallTime::Skipped { resumes })
            }
        }
    }

    fn next_cron(&self, expression: &str, after: Civil) -> Option<Civil> {
        cron::next_match(expression, after)
    }
}

/// No change of clocks is larger.
const HALF_DAY: std::time::Duration = std::time::Duration::from_secs(12 * 3600);
