//! What loops did in the last day: bars for turns and sleeps, a lane for each loop.

use std::time::Duration;

use everloop_core::morning::{LoopReport, MorningFold};
use everloop_core::picture::timeline::{Lane, Timeline};
use everloop_core::time::Time;
use everloop_store::Ledger;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::{ledger, line, states};
use crate::error::Failure;
use crate::services::{ServiceContext, journal};

/// The period that is drawn.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Records that are read at most, the latest.
const RECORDS: u64 = 4_000;
/// Records read at once.
const CHUNK: usize = 500;

/// The lanes of a day.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineView {
    pub from: Time,
    pub to: Time,
    pub loops: Vec<LoopReport>,
    /// Whether the day has more records than are read.
    pub cut: bool,
}

/// Reads the last day, or the end of it where much happened.
pub fn timeline(context: &ServiceContext) -> Result<TimelineView, Failure> {
    let to = context.now();
    let mut view = TimelineView { from: to - DAY, to, loops: Vec::new(), cut: false };
    let Some(ledger) = ledger(context)? else { return Ok(view) };
    let last = ledger.last_seq()?;
    let first = journal::before(&ledger, view.from, last)?;
    let mut after = first.max(last.saturating_sub(RECORDS));
    view.cut = after > first;
    let mut fold = None;
    loop {
        let records = ledger.journal(after, None, CHUNK)?;
        let Some(end) = records.last() else { break };
        after = end.seq;
        if view.cut && fold.is_none() {
            view.from = records.first().map_or(view.from, |record| record.at);
        }
        let fold = fold.get_or_insert_with(|| MorningFold::new(view.from, to));
        for record in &records {
            fold.take(record);
        }
    }
    let Some(mut fold) = fold else { return Ok(view) };
    for state in states(&ledger)?.0 {
        if fold.is_active(&state.id) {
            let mut part = fold.finish(&state, String::new());
            part.name = line(&part.name);
            view.loops.push(part);
        }
    }
    Ok(view)
}

impl TimelineView {
    /// The lanes as a drawing.
    pub fn svg(&self) -> String {
        let lanes = self.loops.iter().map(|part| Lane { name: &part.name, bars: &part.bars }).collect();
        let first = self.loops.iter().filter_map(|part| part.bars.first()).map(|bar| bar.from).min();
        let from = first.unwrap_or(self.from).max(self.from);
        let at = jiff::Timestamp::from_millisecond(self.to.0);
        let utc_offset = at.map_or(0, |at| i64::from(TimeZone::system().to_offset(at).seconds()));
        let to = self.to.max(from + Duration::from_secs(1));
        Timeline { title: "Turns and sleeps", from, to, lanes, utc_offset }.svg()
    }
}
