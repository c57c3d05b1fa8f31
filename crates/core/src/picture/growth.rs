//! A sum over time as a stepped line, with its limit. Without rules of its own: the classes are
//! styled by the page.

#![expect(missing_docs, reason = "fields are named after what they hold")]

use super::scale::{ValueRange, ticks};
use super::svg::{escape, figure, pixel, put_line, put_path, put_text, step_line};
use crate::time::Time;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 32.0;

/// A sum that only grows.
#[derive(Clone, Copy, Debug)]
pub struct Growth<'a> {
    pub title: &'a str,
    /// Milliseconds and the sum from then on.
    pub points: &'a [(f64, f64)],
    /// Beginning and end of the period.
    pub ends: (Time, Time),
    /// What it should stay below.
    pub limit: Option<f64>,
}

impl Growth<'_> {
    /// When the sum reaches its limit, if it goes on like this.
    pub fn crosses_at(&self) -> Option<Time> {
        let (limit, (first, last)) = (self.limit?, self.points.first().zip(self.points.last())?);
        let (span, grown) = (last.0 - first.0, last.1 - first.1);
        let ahead = (limit - last.1) / grown * span;
        (span > 0.0 && grown > 0.0 && ahead > 0.0 && ahead.is_finite()).then_some(Time((last.0 + ahead) as i64))
    }

    /// The finding in a sentence; `stamp` prints a point in time.
    pub fn describe(&self, stamp: &dyn Fn(Time) -> String) -> String {
        let sum = figure(self.points.last().map_or(0.0, |(_, sum)| *sum));
        match (self.limit, self.crosses_at()) {
            (None, _) => format!("{sum} in all."),
            (Some(limit), None) => format!("{sum} of {}.", figure(limit)),
            (Some(limit), Some(at)) => format!("{sum} of {}; at this rate used up at {}.", figure(limit), stamp(at)),
        }
    }

    /// The line as a drawing; empty without a point.
    pub fn svg(&self, stamp: &dyn Fn(Time) -> String) -> String {
        let Some(last) = self.points.last() else { return String::new() };
        let range = ValueRange { low: 0.0, high: last.1.max(self.limit.unwrap_or(0.0)) }.widened();
        let range = ValueRange { low: 0.0, ..range };
        let (from, to) = (self.ends.0.0 as f64, self.ends.1.0 as f64);
        let x = |at: f64| LEFT + (WIDTH - LEFT - RIGHT) * ((at - from) / (to - from).max(1.0)).clamp(0.0, 1.0);
        let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * range.share(value);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"growth\" role=\"img\" \
             aria-labelledby=\"growth-title growth-desc\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\">\n<title id=\"growth-title\">{}</title>\n<desc id=\"growth-desc\">{}</desc>\n",
            escape(self.title),
            escape(&self.describe(stamp)),
        );
        for (value, label) in ticks(range, 4) {
            put_path(&mut out, "grid", &format!("M{LEFT} {}H{}", pixel(y(value)), pixel(WIDTH - RIGHT)));
            put_text(&mut out, LEFT - 8.0, y(value) + 4.0, "end", &label);
        }
        if let Some(limit) = self.limit {
            put_path(&mut out, "limit", &format!("M{LEFT} {}H{}", pixel(y(limit)), pixel(WIDTH - RIGHT)));
        }
        let begin = self.points.first().map(|(at, _)| (x(*at), 0.0));
        let steps: Vec<(f64, f64)> = begin
            .into_iter()
            .chain(self.points.iter().map(|(at, sum)| (x(*at), *sum)))
            .chain([(x(to), last.1)])
            .collect();
        put_path(&mut out, "sum", &step_line(&steps, y));
        put_text(&mut out, LEFT, HEIGHT - 10.0, "start", &stamp(self.ends.0));
        put_text(&mut out, WIDTH - RIGHT, HEIGHT - 10.0, "end", &stamp(self.ends.1));
        put_line(&mut out, format_args!("</svg>"));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_projected_from_the_rate_so_far() {
        let points = [(0.0, 1.0), (1000.0, 2.0)];
        let growth = Growth { title: "Dollars", points: &points, ends: (Time(0), Time(2000)), limit: Some(4.0) };
        assert_eq!(growth.crosses_at(), Some(Time(3000)));
        let stamp = |at: Time| at.0.to_string();
        assert_eq!(growth.describe(&stamp), "2 of 4; at this rate used up at 3000.");
        assert!(growth.svg(&stamp).contains("class=\"limit\""));
        let without = Growth { limit: None, points: &[], ..growth };
        assert_eq!((without.svg(&stamp), without.crosses_at()), (String::new(), None));
    }
}
