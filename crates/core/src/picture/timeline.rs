//! Bars over time, a lane for each loop: what it did and when it slept. SVG for pages and pictures,
//! Unicode text for terminals.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use serde::Serialize;

use super::svg::{escape, fit, pixel, put, put_line, put_path, put_text};
use crate::time::{Time, human};

const WIDTH: f64 = 960.0;
/// Room for the names of lanes, and around the plot.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 40.0;
const LANE: f64 = 30.0;
const BAR: f64 = 16.0;
/// More lanes are no picture; those with the most bars come first.
const MAX_LANES: usize = 16;
/// Up to so many bars of a lane have a tooltip; more are one path.
const MAX_TOOLTIPS: usize = 60;
const NAME_COLUMNS: usize = 24;
const TITLE_COLUMNS: usize = 90;
/// Widths that are still seen.
const LEAST_WIDTH: f64 = 2.0;
/// Labels of the axis.
const TICKS: i64 = 8;
const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// Round distances between labels, in minutes.
const STEPS: [i64; 12] = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];

/// Its rules, for pages that may not have them in the drawing.
pub const STYLE: &str = "\
.everloop-timeline{font:13px system-ui,sans-serif;max-width:100%;height:auto}\
.everloop-timeline text{fill:#1f2328}.everloop-timeline .heading{font-size:16px;font-weight:600}\
.everloop-timeline .paper{fill:#fff}.everloop-timeline .grid{stroke:#d8dee4;fill:none}\
.everloop-timeline .kept{fill:#1a7f37}.everloop-timeline .tried{fill:#54aeff}\
.everloop-timeline .refused{fill:#bc4c00}.everloop-timeline .failed{fill:#cf222e}\
.everloop-timeline .working{fill:#8250df}.everloop-timeline .asleep{fill:#d1d9e0}\
@media (prefers-color-scheme:dark){.everloop-timeline text{fill:#e6edf3}.everloop-timeline .paper{fill:#0d1117}\
.everloop-timeline .grid{stroke:#2a313c}.everloop-timeline .kept{fill:#3fb950}\
.everloop-timeline .tried{fill:#388bfd}.everloop-timeline .refused{fill:#f0883e}\
.everloop-timeline .failed{fill:#ff7b72}.everloop-timeline .working{fill:#bc8cff}\
.everloop-timeline .asleep{fill:#3d444d}}\
@media screen and (max-width:50rem){.everloop-timeline{min-width:50rem}}";

/// What a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BarKind {
    /// Nothing was allowed to start.
    Asleep,
    /// A turn whose work goes on without a further check passing, or that changed nothing.
    Tried,
    /// A turn whose work was not used.
    Refused,
    /// A turn that did not come to its end.
    Failed,
    /// A turn with progress.
    Kept,
    /// A turn that is not over.
    Working,
}

impl BarKind {
    /// All of them, in the order in which they are drawn over each other.
    pub const ALL: [BarKind; 6] =
        [BarKind::Asleep, BarKind::Tried, BarKind::Refused, BarKind::Failed, BarKind::Kept, BarKind::Working];

    /// Its word in legends and its class.
    pub fn label(self) -> &'static str {
        match self {
            BarKind::Asleep => "asleep",
            BarKind::Tried => "tried",
            BarKind::Refused => "refused",
            BarKind::Failed => "failed",
            BarKind::Kept => "kept",
            BarKind::Working => "working",
        }
    }

    /// Its letter in a terminal, where colour is not needed to tell them apart.
    fn letter(self) -> char {
        match self {
            BarKind::Asleep => '·',
            BarKind::Tried => '▒',
            BarKind::Refused => 'r',
            BarKind::Failed => '×',
            BarKind::Kept => '█',
            BarKind::Working => '▶',
        }
    }
}

/// A period of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bar {
    pub kind: BarKind,
    pub from: Time,
    pub to: Time,
    /// What it was, for a tooltip.
    pub label: String,
}

/// The bars of one loop.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    pub name: &'a str,
    pub bars: &'a [Bar],
}

/// Lanes over the same period.
#[derive(Clone, Debug)]
pub struct Timeline<'a> {
    pub title: &'a str,
    pub from: Time,
    pub to: Time,
    pub lanes: Vec<Lane<'a>>,
    /// The reader's zone, for the labels of the axis.
    pub utc_offset: i64,
}

impl Timeline<'_> {
    /// The lanes that are drawn.
    fn shown(&self) -> Vec<Lane<'_>> {
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        order.sort_by_key(|n| std::cmp::Reverse(self.lanes[*n].bars.len()));
        order.truncate(MAX_LANES);
        order.sort_unstable();
        order.into_iter().map(|n| self.lanes[n]).collect()
    }

    /// Where a time lies between the ends: 0 to 1.
    fn share(&self, at: Time) -> f64 {
        let span = (self.to.0 - self.from.0).max(1);
        ((at.0 - self.from.0) as f64 / span as f64).clamp(0.0, 1.0)
    }

    fn x(&self, at: Time) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * self.share(at)
    }

    /// Round times in the reader's zone, with their labels.
    fn ticks(&self) -> Vec<(Time, String)> {
        let (from, to) = (self.from.0, self.to.0.max(self.from.0 + 1));
        let wanted = (to - from) / TICKS;
        let step = STEPS.iter().map(|minutes| minutes * MINUTE_MS).find(|step| *step >= wanted);
        let step = step.unwrap_or((wanted / DAY_MS + 1) * DAY_MS);
        let shift = self.utc_offset * 1000;
        let first = (from + shift).div_euclid(step) + i64::from((from + shift).rem_euclid(step) > 0);
        let times = (first..).map(|n| n * step).take_while(|local| local - shift <= to).take(2 * TICKS as usize);
        times.map(|local| (Time(local - shift), label(local, step))).collect()
    }

    /// The picture in words.
    fn describe(&self) -> String {
        let mut text = format!("{} from left to right", human(self.to.since(self.from)));
        for lane in self.shown() {
            put(&mut text, format_args!("; {}:", fit(lane.name, NAME_COLUMNS)));
            for kind in BarKind::ALL {
                let count = lane.bars.iter().filter(|bar| bar.kind == kind).count();
                if count > 0 {
                    put(&mut text, format_args!(" {} {count}×", kind.label()));
                }
            }
        }
        text.push('.');
        text
    }

    /// The lanes as a drawing.
    pub fn svg(&self) -> String {
        let lanes = self.shown();
        let height = TOP + LANE * lanes.len().max(1) as f64 + BOTTOM;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"everloop-timeline\" role=\"img\" \
             aria-labelledby=\"timeline-title timeline-desc\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\">\n<title id=\"timeline-title\">{0}</title>\n<desc id=\"timeline-desc\">{1}</desc>\n\
             <style>{STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"heading\" x=\"16\" y=\"26\">{0}</text>\n",
            escape(&fit(self.title, TITLE_COLUMNS)),
            escape(&self.describe()),
        );
        self.write_legend(&mut out);
        let bottom = height - BOTTOM;
        for (at, label) in self.ticks() {
            let x = self.x(at);
            put_path(&mut out, "grid", &format!("M{} {TOP}V{}", pixel(x), pixel(bottom)));
            put_text(&mut out, x, bottom + 20.0, "middle", &label);
        }
        for (nth, lane) in lanes.iter().enumerate() {
            self.write_lane(&mut out, *lane, TOP + LANE * nth as f64);
        }
        out.push_str("</svg>\n");
        out
    }

    fn write_legend(&self, out: &mut String) {
        let mut x = 16.0;
        for kind in BarKind::ALL {
            if self.lanes.iter().any(|lane| lane.bars.iter().any(|bar| bar.kind == kind)) {
                put_path(out, kind.label(), &format!("M{} 42h14v12h-14z", pixel(x)));
                put_text(out, x + 20.0, 53.0, "start", kind.label());
                x += 96.0;
            }
        }
    }

    fn write_lane(&self, out: &mut String, lane: Lane<'_>, top: f64) {
        put_text(out, 16.0, top + LANE / 2.0 + 4.5, "start", &fit(lane.name, NAME_COLUMNS));
        let y = top + (LANE - BAR) / 2.0;
        let shape = |bar: &Bar| {
            let (from, to) = (self.x(bar.from), self.x(bar.to));
            let width = (to - from).max(LEAST_WIDTH);
            (from, format!("M{} {}h{}v{BAR}h-{}z", pixel(from), pixel(y), pixel(width), pixel(width)))
        };
        for kind in BarKind::ALL {
            let bars: Vec<&Bar> = lane.bars.iter().filter(|bar| bar.kind == kind).collect();
            if bars.len() <= MAX_TOOLTIPS {
                for bar in bars {
                    let text = escape(&fit(&bar.label, TITLE_COLUMNS));
                    let (class, path) = (kind.label(), shape(bar).1);
                    put_line(out, format_args!("<path class=\"{class}\" d=\"{path}\"><title>{text}</title></path>"));
                }
                continue;
            }
            // Bars in the same pixel are one.
            let (mut path, mut last) = (String::new(), f64::MIN);
            for bar in bars {
                let (from, part) = shape(bar);
                if from >= last + 1.0 || self.x(bar.to) > last + 1.0 {
                    path.push_str(&part);
                    last = self.x(bar.to).max(from);
                }
            }
            put_path(out, kind.label(), &path);
        }
    }

    /// The lanes as text of at most this width.
    pub fn terminal(&self, width: usize) -> String {
        let lanes = self.shown();
        let names = lanes.iter().map(|lane| fit(lane.name, NAME_COLUMNS)).collect::<Vec<_>>();
        let gutter = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) + 1;
        if width < gutter + 20 {
            return String::new();
        }
        let cells = width - gutter;
        let column = |at: Time| (self.share(at) * (cells - 1) as f64).round() as usize;
        let mut out = String::new();
        for (lane, name) in lanes.iter().zip(&names) {
            let mut line = vec![' '; cells];
            for kind in BarKind::ALL {
                for bar in lane.bars.iter().filter(|bar| bar.kind == kind) {
                    line[column(bar.from)..=column(bar.to)].fill(kind.letter());
                }
            }
            let line: String = line.into_iter().collect();
            put_line(&mut out, format_args!("{name:gutter$}{}", line.trim_end()));
        }
        put_line(&mut out, format_args!("{:gutter$}{}", "", self.terminal_axis(cells).trim_end()));
        let used = |kind: &BarKind| self.lanes.iter().any(|lane| lane.bars.iter().any(|bar| bar.kind == *kind));
        let legend: Vec<String> =
            BarKind::ALL.into_iter().filter(used).map(|kind| format!("{} {}", kind.letter(), kind.label())).collect();
        put_line(&mut out, format_args!("{:gutter$}{}", "", legend.join("  ")));
        out
    }

    /// Labels that do not touch each other.
    fn terminal_axis(&self, cells: usize) -> String {
        let mut line = String::new();
        for (at, label) in self.ticks() {
            let column = (self.share(at) * (cells - 1) as f64).round() as usize;
            let used = line.chars().count();
            if (used == 0 || column > used + 1) && column + label.chars().count() <= cells {
                line.push_str(&" ".repeat(column - used));
                line.push_str(&label);
            }
        }
        line
    }
}

/// `21:00`, or the day of the month and its time when a day or more lies between labels.
fn label(local: i64, step: i64) -> String {
    let minutes = local.rem_euclid(DAY_MS) / MINUTE_MS;
    if step < DAY_MS {
        return format!("{:02}:{:02}", minutes / 60, minutes % 60);
    }
    let (_, month, day) = civil(local.div_euclid(DAY_MS));
    format!("{month:02}-{day:02}")
}

/// Year, month and day of a number of days since 1970, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let part = (5 * of_year + 2) / 153;
    let month = if part < 10 { part + 3 } else { part - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * part + 2) / 5 + 1)
}

/// How long the bars of a kind are together.
pub fn total(bars: &[Bar], kind: BarKind) -> Duration {
    bars.iter().filter(|bar| bar.kind == kind).map(|bar| bar.to.since(bar.from)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 60 * MINUTE_MS;

    fn bar(kind: BarKind, from: i64, to: i64) -> Bar {
        Bar { kind, from: Time(from), to: Time(to), label: format!("{} <b>", kind.label()) }
    }

    #[test]
    fn bars_stand_at_their_times_and_texts_stay_texts() {
        let bars = [bar(BarKind::Asleep, 0, 4 * HOUR), bar(BarKind::Kept, 4 * HOUR, 8 * HOUR)];
        let lanes = vec![Lane { name: "a & b", bars: &bars }];
        let line = Timeline { title: "night", from: Time(0), to: Time(8 * HOUR), lanes, utc_offset: 3600 };
        let svg = line.svg();
        assert!(svg.contains("a &amp; b") && svg.contains("kept &lt;b&gt;") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains("M190 79h373v16"), "asleep for the first half: {svg}");
        let text = line.terminal(60);
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("a & b ···") && first.ends_with('█'), "{text}");
        assert_eq!(first.matches('█').count(), 27, "{text}");
        assert_eq!(total(&bars, BarKind::Asleep), Duration::from_secs(4 * 3600));
    }

    #[test]
    fn labels_are_round_in_the_readers_zone() {
        let of = |from: i64, to: i64, utc_offset: i64| {
            let line = Timeline { title: "", from: Time(from), to: Time(to), lanes: Vec::new(), utc_offset };
            line.ticks().into_iter().map(|(at, label)| (at.0, label)).collect::<Vec<_>>()
        };
        assert_eq!(of(0, 8 * HOUR, 0)[1], (HOUR, "01:00".to_owned()));
        let india = of(0, 24 * HOUR, 19_800);
        assert_eq!(india[0], (HOUR / 2, "06:00".to_owned()));
        assert_eq!(of(0, 20 * DAY_MS, 0)[1].1, "01-04");
        assert_eq!(of(5, 5, 0).len(), 0);
        assert_eq!(civil(20_775), (2026, 11, 18));
    }

    #[test]
    fn many_bars_and_lanes_stay_small() {
        let bars: Vec<Bar> = (0..20_000).map(|n| bar(BarKind::Tried, n * 10, n * 10 + 5)).collect();
        let lanes = (0..200).map(|_| Lane { name: "x", bars: &bars }).collect();
        let line = Timeline { title: "t", from: Time(0), to: Time(200_000), lanes, utc_offset: 0 };
        assert!(line.svg().len() < 250_000, "{}", line.svg().len());
    }
}
