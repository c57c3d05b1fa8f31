//! A second source of a turn's usage: the telemetry of its CLI. [`TelemetrySum`] sums up what
//! arrived, [`settle`] decides what counts.
//!
//! The stream is the first source. It is silent about a turn that was cut off, and it may be wrong;
//! the charge must never be too small.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::stream::Usage;

/// Maximum number of series of one turn: five counters for each model and kind of request, and some
/// room.
const SERIES_MOST: usize = 1_000;
/// Maximum number of requests of one turn that are recognised when repeated; a turn of two hours
/// has some hundreds.
const REQUESTS_MOST: usize = 20_000;
/// Both sources agree when they differ by no more than one part in this many.
const TOLERANCE: u64 = 10;

/// Source of a turn's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The agent's stream.
    #[default]
    Stream,
    /// At least one figure comes from telemetry, because the stream reported nothing or less.
    Telemetry,
}

impl UsageSource {
    /// Whether this is the default, which records from before the field existed omit.
    pub fn is_stream(&self) -> bool {
        *self == UsageSource::Stream
    }
}

/// Usage of a turn by both sources, and the source that counts. The greater one counts where they
/// differ.
pub fn settle(stream: Usage, heard: Option<Usage>) -> (Usage, UsageSource) {
    let Some(heard) = heard else { return (stream, UsageSource::Stream) };
    let tokens = exceeds(heard.tokens(), stream.tokens());
    let money = match (heard.microusd, stream.microusd) {
        (Some(heard), Some(stream)) => exceeds(heard, stream),
        (heard, None) => heard.is_some(),
        (None, Some(_)) => false,
    };
    let used = Usage {
        microusd: if money { heard.microusd } else { stream.microusd },
        ..(if tokens { heard } else { stream })
    };
    (used, if tokens || money { UsageSource::Telemetry } else { UsageSource::Stream })
}

fn exceeds(heard: u64, stream: u64) -> bool {
    heard > stream.saturating_add(stream / TOLERANCE)
}

/// Quantity of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of `Usage`")]
pub enum Counter {
    Input,
    Output,
    CacheRead,
    CacheWrite,
    Microusd,
}

/// Meaning of the values of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporality {
    /// The increase since the last value.
    Delta,
    /// The total since the series began.
    Cumulative,
}

/// One value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The counted quantity.
    pub counter: Counter,
    /// Hash of everything else that distinguishes series.
    pub series: u64,
    /// Delta or cumulative value.
    pub temporality: Temporality,
    /// When the series began; a restarted program begins again. Only compared, so the unit does not
    /// matter.
    pub began: u64,
    /// When the value was taken.
    pub at: u64,
    /// Tokens, or millionths of a dollar.
    pub value: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Series {
    at: u64,
    sum: u64,
}

/// Telemetry of one turn so far.
#[derive(Clone, Debug, Default)]
pub struct TelemetrySum {
    series: BTreeMap<(Counter, u64, u64), Series>,
    requests: Usage,
    answered: u64,
    seen: BTreeSet<u64>,
    errors: u64,
    unknown: u64,
}

impl TelemetrySum {
    /// Adds a value; one that was sent twice counts once.
    pub fn point(&mut self, point: &Point) {
        let began = match point.temporality {
            Temporality::Delta => 0,
            Temporality::Cumulative => point.began,
        };
        let key = (point.counter, point.series, began);
        if self.series.len() >= SERIES_MOST && !self.series.contains_key(&key) {
            self.unknown += 1;
            return;
        }
        let series = self.series.entry(key).or_default();
        if point.at <= series.at {
            return;
        }
        series.at = point.at;
        series.sum = match point.temporality {
            Temporality::Delta => series.sum.saturating_add(point.value),
            Temporality::Cumulative => series.sum.max(point.value),
        };
    }

    /// Adds a successful request; `id` recognises its repetition.
    pub fn request(&mut self, id: u64, used: Usage) {
        if self.seen.len() >= REQUESTS_MOST || self.seen.insert(id) {
            self.answered += 1;
            self.requests = self.requests.plus(used);
        }
    }

    /// Counts a failed request.
    pub fn error(&mut self) {
        self.errors += 1;
    }

    /// Counts an unknown record.
    pub fn unknown(&mut self) {
        self.unknown += 1;
    }

    /// Number of successful requests.
    pub fn requests(&self) -> u64 {
        self.answered
    }

    /// Number of failed requests.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Number of unknown records.
    pub fn unknowns(&self) -> u64 {
        self.unknown
    }

    /// Usage as far as it arrived. Counters and requests report the same usage; the greater one is
    /// used.
    pub fn used(&self) -> Option<Usage> {
        let mut counted = Usage::default();
        for ((counter, _, _), series) in &self.series {
            let field = match counter {
                Counter::Input => &mut counted.input,
                Counter::Output => &mut counted.output,
                Counter::CacheRead => &mut counted.cache_read,
                Counter::CacheWrite => &mut counted.cache_write,
                Counter::Microusd => counted.microusd.get_or_insert(0),
            };
            *field = field.saturating_add(series.sum);
        }
        let further = if counted.tokens() >= self.requests.tokens() { counted } else { self.requests };
        let used = Usage { microusd: counted.microusd.max(self.requests.microusd), ..further };
        (used != Usage::default()).then_some(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(input: u64, microusd: Option<u64>) -> Usage {
        Usage { input, microusd, ..Usage::default() }
    }

    #[test]
    fn telemetry_fills_what_the_stream_left_out() {
        assert_eq!(settle(tokens(0, None), None), (tokens(0, None), UsageSource::Stream));
        assert_eq!(settle(tokens(0, None), Some(tokens(90, Some(7)))), (tokens(90, Some(7)), UsageSource::Telemetry));
        // A turn that was cut off reports its tokens in part, and no money.
        assert_eq!(settle(tokens(80, None), Some(tokens(90, Some(7)))), (tokens(90, Some(7)), UsageSource::Telemetry));
        assert_eq!(
            settle(tokens(100, None), Some(tokens(100, Some(7)))),
            (tokens(100, Some(7)), UsageSource::Telemetry)
        );
    }

    #[test]
    fn the_greater_of_two_that_differ_counts() {
        let stream = tokens(1000, Some(500));
        assert_eq!(settle(stream, Some(tokens(1100, Some(550)))), (stream, UsageSource::Stream), "within a tenth");
        assert_eq!(settle(stream, Some(tokens(1101, Some(550)))).0, tokens(1101, Some(500)));
        assert_eq!(settle(stream, Some(tokens(1000, Some(551)))), (tokens(1000, Some(551)), UsageSource::Telemetry));
        // An agent can send any telemetry: too small figures change nothing.
        assert_eq!(settle(stream, Some(tokens(1, Some(1)))), (stream, UsageSource::Stream));
        assert_eq!(settle(stream, Some(tokens(u64::MAX, None))).0, tokens(u64::MAX, Some(500)));
    }

    fn point(temporality: Temporality, began: u64, at: u64, value: u64) -> Point {
        Point { counter: Counter::Input, series: 1, temporality, began, at, value }
    }

    #[test]
    fn deltas_add_up_and_repetitions_do_not() {
        let mut heard = TelemetrySum::default();
        assert_eq!(heard.used(), None);
        for (began, at, value) in [(0, 10, 5), (10, 20, 7), (10, 20, 7)] {
            heard.point(&point(Temporality::Delta, began, at, value));
        }
        heard.point(&Point { counter: Counter::Microusd, ..point(Temporality::Delta, 0, 10, 3) });
        heard.point(&Point { series: 2, ..point(Temporality::Delta, 0, 10, 100) });
        assert_eq!(heard.used(), Some(tokens(112, Some(3))));
    }

    #[test]
    fn of_cumulative_values_the_last_counts_for_each_beginning() {
        let mut heard = TelemetrySum::default();
        for (began, at, value) in [(1, 10, 5), (1, 20, 12), (1, 15, 9), (30, 40, 4)] {
            heard.point(&point(Temporality::Cumulative, began, at, value));
        }
        assert_eq!(heard.used(), Some(tokens(16, None)));
    }

    #[test]
    fn requests_and_counters_are_not_added_to_each_other() {
        let mut heard = TelemetrySum::default();
        heard.request(1, tokens(10, Some(100)));
        heard.request(2, tokens(20, Some(200)));
        heard.request(2, tokens(20, Some(200)));
        heard.point(&point(Temporality::Delta, 0, 10, 10));
        assert_eq!(heard.used(), Some(tokens(30, Some(300))), "the requests came further");
        heard.point(&point(Temporality::Delta, 10, 20, 90));
        assert_eq!(heard.used(), Some(tokens(100, Some(300))), "the counters did");
    }

    #[test]
    fn a_flood_of_series_is_capped() {
        let mut heard = TelemetrySum::default();
        for series in 0..2 * SERIES_MOST as u64 {
            heard.point(&Point { series, ..point(Temporality::Delta, 0, 10, 1) });
        }
        assert_eq!(heard.used(), Some(tokens(SERIES_MOST as u64, None)));
        assert_eq!(heard.unknowns(), SERIES_MOST as u64);
    }
}
