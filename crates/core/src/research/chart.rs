//! The chart of a research run: SVG for pages, Unicode text for terminals. It draws rows, decides
//! nothing, and caps and escapes the texts in rows, which are data.

use std::collections::BTreeSet;
use std::fmt::{Arguments, Write as _};

use super::Direction;
use super::row::{Row, Status};

/// Size of the drawing, with room for title, legend and labels around the plot.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 52.0;
const RIGHT: f64 = 20.0;
/// The strip under the plot for experiments without a value.
const STRIP: f64 = 18.0;
/// Average width of a letter in the labels.
const LETTER: f64 = 6.6;
/// Larger values are drawn as this one, so that no difference of two values is infinite.
const LARGEST: f64 = 1e300;
/// Up to so many keeps are elements with a tooltip of their own; more would be half of the file.
const MAX_TOOLTIPS: usize = 150;
/// Dots in different pixels: keeps, which are all drawn up to 10,000 rows, and the others.
const MAX_KEEP_DOTS: usize = 9_500;
const MAX_OTHER_DOTS: usize = 1_500;
/// Letters of texts from rows, and of title and metric, which share a line.
const TOOLTIP_LETTERS: usize = 40;
const TITLE_LETTERS: usize = 60;
const METRIC_LETTERS: usize = 40;

/// Both colour schemes by classes: renderers without media queries and variables use the light one.
const STYLE: &str = "\
.everloop-chart{font:12px system-ui,sans-serif;max-width:100%;height:auto}\
.everloop-chart text{fill:#1f2328}.everloop-chart .heading{font-size:16px;font-weight:600}\
.everloop-chart path,.everloop-chart line{fill:none;stroke-linecap:round}\
.everloop-chart .paper{fill:#fff}.everloop-chart .grid{stroke:#d8dee4}.everloop-chart .axis{stroke:#59636e}\
.everloop-chart .band{fill:#1a7f37;fill-opacity:.13}.everloop-chart .best{stroke:#1a7f37;stroke-width:2}\
.everloop-chart .baseline{stroke:#59636e;stroke-width:1.5;stroke-dasharray:7 5}\
.everloop-chart .goal{stroke:#8250df;stroke-width:2;stroke-dasharray:.1 5}\
.everloop-chart .keep{stroke:#1a7f37;stroke-width:10}\
.everloop-chart .simpler{stroke:#0969da;stroke-width:8;stroke-linecap:square}\
.everloop-chart .discard{stroke:#8c959f;stroke-width:5}.everloop-chart .start{stroke:#1f2328;stroke-width:8}\
.everloop-chart .clipped{fill:#8c959f}.everloop-chart .failed{stroke:#cf222e;stroke-width:1.5}\
@media (prefers-color-scheme:dark){.everloop-chart text{fill:#e6edf3}.everloop-chart .paper{fill:#0d1117}\
.everloop-chart .grid{stroke:#2a313c}.everloop-chart .axis,.everloop-chart .baseline{stroke:#9198a1}\
.everloop-chart .band{fill:#3fb950;fill-opacity:.18}.everloop-chart .best,.everloop-chart .keep{stroke:#3fb950}\
.everloop-chart .goal{stroke:#bc8cff}.everloop-chart .simpler{stroke:#58a6ff}\
.everloop-chart .discard{stroke:#6e7681}.everloop-chart .clipped{fill:#6e7681}\
.everloop-chart .start{stroke:#e6edf3}.everloop-chart .failed{stroke:#ff7b72}}";

/// All experiments of a run over their order.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'a> {
    pub title: &'a str,
    pub metric: &'a str,
    pub direction: Direction,
    pub rows: &'a [Row],
    /// Standard deviation of the metric's noise; 0 for an exact metric.
    pub sigma: f64,
    pub goal: Option<f64>,
}

/// The values between the lower and the upper edge of a plot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    /// A range that differs enough for a scale, around the same middle.
    fn widened(self) -> Self {
        let size = self.low.abs().max(self.high.abs());
        if self.high - self.low > size * 1e-12 && self.high - self.low > 1e-290 {
            return self;
        }
        let by = if size < 1e-250 { 1.0 } else { size * 0.05 };
        Self { low: self.low - by, high: self.high + by }
    }

    fn padded(self) -> Self {
        let by = (self.high - self.low) * 0.04;
        Self { low: self.low - by, high: self.high + by }
    }

    /// Where a value lies: 0 at the lower edge, 1 at the upper one.
    fn share(self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// How an experiment is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Start,
    Keep,
    Simpler,
    Discard,
    /// Its value is above or below the plot.
    Above,
    Below,
    /// It has no value.
    Failed,
}

/// The plot inside of the drawing.
struct Plot {
    left: f64,
    range: Range,
    last: usize,
}

impl Plot {
    fn x(&self, position: usize) -> f64 {
        let (from, to) = (self.left + 10.0, WIDTH - RIGHT - 10.0);
        if self.last == 0 { from } else { from + (to - from) * position as f64 / self.last as f64 }
    }

    fn y(&self, value: f64) -> f64 {
        let bottom = HEIGHT - BOTTOM - STRIP;
        bottom - (bottom - TOP) * self.range.share(value)
    }
}

impl Chart<'_> {
    /// The metric before the first experiment.
    pub fn baseline(&self) -> Option<f64> {
        self.rows.iter().find(|row| row.status == Status::Baseline).and_then(placed)
    }

    /// The best value of the baseline and all keeps.
    pub fn best(&self) -> Option<f64> {
        self.bests().last().map(|(_, value)| *value)
    }

    /// The positions of rows at which the best value changed, and the value from there on.
    fn bests(&self) -> Vec<(usize, f64)> {
        let mut bests: Vec<(usize, f64)> = Vec::new();
        for (position, row) in self.rows.iter().enumerate().filter(|(_, row)| leads(row)) {
            let Some(value) = placed(row) else { continue };
            if bests.last().is_none_or(|(_, best)| self.direction.gain(value, *best) > 0.0) {
                bests.push((position, value));
            }
        }
        bests
    }

    fn noise(&self) -> f64 {
        if self.sigma.is_finite() { self.sigma.clamp(0.0, LARGEST) } else { 0.0 }
    }

    fn goal(&self) -> Option<f64> {
        self.goal.filter(|goal| goal.is_finite()).map(|goal| goal.clamp(-LARGEST, LARGEST))
    }

    /// All champions with their noise, and the other values as far as they are not outliers.
    fn range(&self) -> Range {
        let mut values: Vec<f64> = self.rows.iter().filter_map(placed).collect();
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first().copied(), values.last().copied()) else {
            return Range { low: 0.0, high: 1.0 };
        };
        let at = |percent: usize| values[(values.len() - 1) * percent / 100];
        let champions: Vec<f64> = self.rows.iter().filter(|row| leads(row)).filter_map(placed).collect();
        let first = champions.iter().copied().reduce(f64::min).unwrap_or(at(25));
        let last = champions.iter().copied().reduce(f64::max).unwrap_or(at(75));
        let usual = ((at(75) - at(25)) * 3.0).max(last - first).max(self.noise() * 4.0);
        // Rare values count only when nothing else varies.
        let reach = [usual, at(95) - at(5), max - min].into_iter().find(|reach| *reach > 0.0).unwrap_or(0.0);
        // The edges are values that are there, so that no outlier leaves an empty half.
        let (floor, ceiling) = (at(25).min(first) - reach, at(75).max(last) + reach);
        let low = values.iter().copied().find(|value| *value >= floor).unwrap_or(min).min(first - self.noise());
        let high = values.iter().copied().rfind(|value| *value <= ceiling).unwrap_or(max).max(last + self.noise());
        let range = Range { low: low.min(high), high: high.max(low) }.widened();
        self.with_goal(range)
    }

    /// A goal that is far away would flatten everything else.
    fn with_goal(&self, range: Range) -> Range {
        let span = range.high - range.low;
        match self.goal() {
            Some(goal) if goal >= range.low - span && goal <= range.high + span => {
                Range { low: range.low.min(goal), high: range.high.max(goal) }
            }
            _ => range,
        }
    }

    fn count(&self, mark: Mark) -> usize {
        self.rows.iter().filter(|row| mark_of(row) == mark).count()
    }

    /// The chart as a drawing.
    pub fn svg(&self) -> String {
        let range = self.range().padded();
        let ticks = ticks(range, 6);
        let letters = ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
        let left = 22.0 + LETTER * letters as f64;
        let plot = Plot { left, range, last: self.rows.len().saturating_sub(1) };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"everloop-chart\" role=\"img\" \
             aria-labelledby=\"chart-title chart-desc\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\">\n<title id=\"chart-title\">{}</title>\n<desc id=\"chart-desc\">{}</desc>\n\
             <style>{STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
            escape(&fit(self.title, TITLE_LETTERS)),
            escape(&self.describe()),
        );
        self.write_axes(&mut out, &plot, &ticks);
        self.write_lines(&mut out, &plot);
        self.write_dots(&mut out, &plot);
        self.write_head(&mut out, &plot);
        out.push_str("</svg>\n");
        out
    }

    /// The chart in words.
    fn describe(&self) -> String {
        let tried = self.rows.iter().filter(|row| row.status != Status::Baseline).count();
        let mut text = format!(
            "{}, {} is better. Experiments: {tried}; kept {}, simpler {}, discarded {}, without a value {}.",
            fit(self.metric, METRIC_LETTERS),
            self.direction.label(),
            self.count(Mark::Keep),
            self.count(Mark::Simpler),
            self.count(Mark::Discard),
            self.count(Mark::Failed),
        );
        if let (Some(baseline), Some(best)) = (self.baseline(), self.best()) {
            put(&mut text, format_args!(" Baseline {}, best {}.", figure(baseline), figure(best)));
        }
        if self.rows.len() > MAX_OTHER_DOTS {
            text.push_str(" Of dots that overlap or are very many, a part is drawn.");
        }
        text
    }

    fn write_axes(&self, out: &mut String, plot: &Plot, ticks: &[(f64, String)]) {
        let (left, right, bottom) = (pixel(plot.left), pixel(WIDTH - RIGHT), pixel(HEIGHT - BOTTOM));
        for (value, label) in ticks {
            let y = plot.y(*value);
            put_path(out, "grid", &format!("M{left} {}H{right}", pixel(y)));
            put_text(out, plot.left - 8.0, y + 4.0, "end", label);
        }
        put_path(out, "axis", &format!("M{left} {}V{bottom}H{right}", pixel(TOP)));
        for position in positions(self.rows.len()) {
            let x = plot.x(position);
            put_path(out, "axis", &format!("M{} {bottom}v4", pixel(x)));
            put_text(out, x, HEIGHT - BOTTOM + 18.0, "middle", &self.rows[position].number.to_string());
        }
        put_text(out, f64::midpoint(plot.left, WIDTH - RIGHT), HEIGHT - 12.0, "middle", "experiment");
    }

    fn write_lines(&self, out: &mut String, plot: &Plot) {
        let (left, right) = (pixel(plot.left), pixel(WIDTH - RIGHT));
        let steps = self.steps(plot);
        let noise = self.noise();
        if noise > 0.0 && !steps.is_empty() {
            let mut path = step_line(&steps, |value| plot.y(value + noise));
            put(&mut path, format_args!("H{right}"));
            for (x, value) in steps.iter().rev() {
                put(&mut path, format_args!("V{}H{}", pixel(plot.y(value - noise)), pixel(*x)));
            }
            put_path(out, "band", &format!("{path}Z"));
        }
        let goal = self.goal().filter(|goal| plot.range.holds(*goal));
        for (class, value) in [("baseline", self.baseline()), ("goal", goal)] {
            if let Some(value) = value {
                put_path(out, class, &format!("M{left} {}H{right}", pixel(plot.y(value))));
            }
        }
        if !steps.is_empty() {
            put_path(out, "best", &format!("{}H{right}", step_line(&steps, |value| plot.y(value))));
        }
    }

    /// The changes of the best value that are at least a pixel apart, and the last one.
    fn steps(&self, plot: &Plot) -> Vec<(f64, f64)> {
        let bests = self.bests();
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for (nth, (position, value)) in bests.iter().enumerate() {
            let is_far = |last: &(f64, f64)| (plot.y(last.1) - plot.y(*value)).abs() >= 1.0;
            if nth + 1 == bests.len() || steps.last().is_none_or(is_far) {
                steps.push((plot.x(*position), *value));
            }
        }
        steps
    }

    fn write_dots(&self, out: &mut String, plot: &Plot) {
        let keeps = self.count(Mark::Keep) + self.count(Mark::Simpler);
        // Keeps may fill most of the file.
        let others = if keeps > MAX_OTHER_DOTS { MAX_OTHER_DOTS / 5 } else { MAX_OTHER_DOTS };
        let strip = HEIGHT - BOTTOM - STRIP / 2.0 - 3.0;
        let draw = |mark: Mark, most: usize, shape: &dyn Fn(f64, f64) -> String| -> String {
            let dots = self.dots(plot, mark);
            thinned(&dots, most).into_iter().map(|(_, x, y)| shape(x.round(), y.round())).collect()
        };
        let dot = |x: f64, y: f64| format!("M{x} {y}h.1");
        let failed = draw(Mark::Failed, others / 3, &|x, _| format!("M{} {strip}l6 6m0-6l-6 6", x - 3.0));
        let above = draw(Mark::Above, others / 5, &|x, _| format!("M{x} {TOP}l4 7h-8z"));
        let bottom = HEIGHT - BOTTOM - STRIP;
        let below = draw(Mark::Below, others / 5, &|x, _| format!("M{x} {bottom}l4-7h-8z"));
        let layers = [
            ("discard", draw(Mark::Discard, others, &dot)),
            ("clipped", above + &below),
            ("failed", failed),
            ("start", draw(Mark::Start, 1, &dot)),
        ];
        for (class, path) in layers.iter().filter(|(_, path)| !path.is_empty()) {
            put_path(out, class, path);
        }
        for (class, mark) in [("simpler", Mark::Simpler), ("keep", Mark::Keep)] {
            if keeps <= MAX_TOOLTIPS {
                self.write_tooltips(out, class, &self.dots(plot, mark));
            } else {
                put_path(out, class, &draw(mark, MAX_KEEP_DOTS, &dot));
            }
        }
    }

    fn write_tooltips(&self, out: &mut String, class: &str, dots: &[(usize, f64, f64)]) {
        for (position, x, y) in dots {
            let row = &self.rows[*position];
            let value = placed(row).map_or_else(String::new, figure);
            let text = escape(&fit(&row.description, TOOLTIP_LETTERS));
            let (number, x, y) = (row.number, pixel(*x), pixel(*y));
            let title = format!("<title>{number}: {value}, {text}</title>");
            put_line(out, format_args!("<path class=\"{class}\" d=\"M{x} {y}h.1\">{title}</path>"));
        }
    }

    /// Where the experiments with this mark are drawn.
    fn dots(&self, plot: &Plot, wanted: Mark) -> Vec<(usize, f64, f64)> {
        let mut dots = Vec::new();
        for (position, row) in self.rows.iter().enumerate() {
            let value = placed(row);
            let mark = match (mark_of(row), value) {
                (Mark::Discard, Some(value)) if value > plot.range.high => Mark::Above,
                (Mark::Discard, Some(value)) if value < plot.range.low => Mark::Below,
                (mark, _) => mark,
            };
            if mark == wanted {
                dots.push((position, plot.x(position), plot.y(value.unwrap_or(plot.range.low))));
            }
        }
        dots
    }

    fn write_head(&self, out: &mut String, plot: &Plot) {
        let title = escape(&fit(self.title, TITLE_LETTERS));
        put_line(out, format_args!("<text class=\"heading\" x=\"16\" y=\"26\">{title}</text>"));
        let metric = format!("{}, {} is better", fit(self.metric, METRIC_LETTERS), self.direction.label());
        put_text(out, WIDTH - RIGHT, 26.0, "end", &metric);
        let (mut x, mut y) = (18.0, 48.0);
        for (class, shape, label) in self.legend(plot) {
            let width = 40.0 + LETTER * label.chars().count() as f64;
            if x + width > WIDTH {
                (x, y) = (18.0, y + 18.0);
            }
            put_path(out, class, &format!("M{} {}{shape}", pixel(x), pixel(y)));
            put_text(out, x + 22.0, y + 4.0, "start", &label);
            x += width;
        }
    }

    /// Class, shape and text of the entries.
    fn legend(&self, plot: &Plot) -> Vec<(&'static str, &'static str, String)> {
        let dot = "m8 0h.1";
        let mut entries = vec![
            ("keep", dot, format!("kept {}", self.count(Mark::Keep))),
            ("simpler", dot, format!("simpler {}", self.count(Mark::Simpler))),
            ("discard", dot, format!("discarded {}", self.count(Mark::Discard))),
            ("failed", "m5-3l6 6m0-6l-6 6", format!("no value {}", self.count(Mark::Failed))),
        ];
        let line = "h16";
        entries.extend(self.best().map(|best| ("best", line, format!("best {}", figure(best)))));
        entries.extend(self.baseline().map(|value| ("baseline", line, format!("baseline {}", figure(value)))));
        if self.noise() > 0.0 {
            entries.push(("band", "m0-5h16v10h-16z", format!("noise ±{}", figure(self.noise()))));
        }
        if let Some(goal) = self.goal() {
            let place = if plot.range.holds(goal) { "" } else { " (outside)" };
            entries.push(("goal", line, format!("goal {}{place}", figure(goal))));
        }
        entries
    }

    /// The chart as text: at most `width` columns and `height` lines.
    pub fn terminal(&self, width: usize, height: usize) -> String {
        let range = self.range();
        let labels = [figure(range.high), figure(range.low)];
        let gutter = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let head = format!("{}: {}, {} is better", self.title, self.metric, self.direction.label());
        // Narrower or lower than this, steps and dots would run into each other.
        if width < gutter + 12 || height < 6 {
            return if height == 0 { String::new() } else { format!("{}\n", fit(&self.footer(), width)) };
        }
        let failed = self.count(Mark::Failed) > 0;
        let lines = height - 2 - usize::from(failed);
        let grid = self.grid(range, width - gutter - 2, lines);
        let mut out = format!("{}\n", fit(&head, width));
        for (nth, cells) in grid.iter().enumerate() {
            let label = if nth == 0 { labels[0].as_str() } else { "" };
            let label = if nth + 1 == lines { labels[1].as_str() } else { label };
            let cells: String = cells.iter().collect();
            put_line(&mut out, format_args!("{label:>gutter$} ┤{}", cells.trim_end()));
        }
        if failed {
            let mut cells = vec![' '; width - gutter - 2];
            for position in (0..self.rows.len()).filter(|position| mark_of(&self.rows[*position]) == Mark::Failed) {
                let size = cells.len();
                cells[column(position, self.rows.len(), size)] = '×';
            }
            let cells: String = cells.into_iter().collect();
            put_line(&mut out, format_args!("{:gutter$}  {}", "", cells.trim_end()));
        }
        put_line(&mut out, format_args!("{}", fit(&self.footer(), width)));
        out
    }

    /// Result and legend in one line; the result comes first because the end may be cut off.
    fn footer(&self) -> String {
        let ends = match (self.baseline(), self.best()) {
            (Some(baseline), Some(best)) => format!("{} → {}, ", figure(baseline), figure(best)),
            _ => String::new(),
        };
        let kept = format!("● kept {}, ◆ simpler {}", self.count(Mark::Keep), self.count(Mark::Simpler));
        format!("{ends}{kept}, · discarded {}, × no value {}", self.count(Mark::Discard), self.count(Mark::Failed))
    }

    /// The plot in cells: what is drawn later covers what was there.
    fn grid(&self, range: Range, width: usize, height: usize) -> Vec<Vec<char>> {
        let mut grid = vec![vec![' '; width]; height];
        let line = |value: f64| ((1.0 - range.share(value)) * (height - 1) as f64).round() as usize;
        if let Some(baseline) = self.baseline() {
            grid[line(baseline)].fill('╌');
        }
        if let Some(goal) = self.goal().filter(|goal| range.holds(*goal)) {
            grid[line(goal)].fill('┈');
        }
        let at = |position: usize| column(position, self.rows.len(), width);
        for (position, row) in self.rows.iter().enumerate().filter(|(_, row)| mark_of(row) == Mark::Discard) {
            let Some(value) = placed(row) else { continue };
            grid[line(value)][at(position)] = '·';
        }
        let mut bests: Vec<Option<usize>> = vec![None; width];
        for (position, value) in self.bests() {
            bests[at(position)..].fill(Some(line(value)));
        }
        write_steps(&mut grid, &bests);
        for (position, row) in self.rows.iter().enumerate() {
            let letter = match mark_of(row) {
                Mark::Keep => '●',
                Mark::Simpler => '◆',
                _ => continue,
            };
            let Some(value) = placed(row) else { continue };
            grid[line(value)][at(position)] = letter;
        }
        grid
    }
}

/// Draws the line of the best value per column, with corners where it changes.
fn write_steps(grid: &mut [Vec<char>], bests: &[Option<usize>]) {
    for (column, now) in bests.iter().enumerate() {
        let Some(now) = *now else { continue };
        let before = column.checked_sub(1).and_then(|column| bests[column]).unwrap_or(now);
        let (from, to) = (before.min(now), before.max(now));
        for cells in &mut grid[from..=to] {
            cells[column] = '│';
        }
        let (leaves, enters) = match now.cmp(&before) {
            std::cmp::Ordering::Equal => ('─', '─'),
            std::cmp::Ordering::Greater => ('┐', '└'),
            std::cmp::Ordering::Less => ('┘', '┌'),
        };
        grid[before][column] = leaves;
        grid[now][column] = enters;
    }
}

/// The column of a row, when all of them share this width.
fn column(position: usize, rows: usize, width: usize) -> usize {
    position * (width - 1) / rows.saturating_sub(1).max(1)
}

/// The value at which a row is drawn. Crashes have none, whatever they printed.
fn placed(row: &Row) -> Option<f64> {
    let has = leads(row) || row.status == Status::Discard;
    row.value.filter(|value| has && value.is_finite()).map(|value| value.clamp(-LARGEST, LARGEST))
}

/// Whether the row's value is that of a champion.
fn leads(row: &Row) -> bool {
    row.status == Status::Baseline || row.status.keeps()
}

fn mark_of(row: &Row) -> Mark {
    match row.status {
        _ if placed(row).is_none() => Mark::Failed,
        Status::Baseline => Mark::Start,
        Status::Keep => Mark::Keep,
        Status::Simpler => Mark::Simpler,
        Status::Discard => Mark::Discard,
        Status::Crash | Status::Timeout | Status::NoOp | Status::Refused | Status::Repeat | Status::MetricError => {
            Mark::Failed
        }
    }
}

/// At most so many of the dots: one per pixel, then evenly chosen.
fn thinned(dots: &[(usize, f64, f64)], most: usize) -> Vec<(usize, f64, f64)> {
    let mut pixels = BTreeSet::new();
    let apart: Vec<_> = dots.iter().filter(|(_, x, y)| pixels.insert((x.round() as i64, y.round() as i64))).collect();
    let count = apart.len().min(most);
    (0..count).map(|nth| *apart[nth * apart.len() / count]).collect()
}

/// Round values in a range with their labels, about `most` of them.
fn ticks(range: Range, most: u32) -> Vec<(f64, String)> {
    let raw = (range.high - range.low) / f64::from(most);
    let unit = 10f64.powi(raw.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0].map(|factor| factor * unit).into_iter().find(|step| *step >= raw).unwrap_or(10.0 * unit);
    let (first, last) = ((range.low / step).ceil() as i64, (range.high / step).floor() as i64);
    let label = |value: f64| {
        let exponent = |number: f64| number.abs().log10().floor();
        if value == 0.0 {
            return "0".to_owned();
        }
        if value.abs() >= 1e7 || step < 1e-5 {
            let digits = (exponent(value) - exponent(step)).clamp(0.0, 15.0) as usize;
            return format!("{value:.digits$e}");
        }
        let digits = (-exponent(step)).max(0.0) as usize;
        format!("{value:.digits$}")
    };
    (first..=last).take(most as usize + 2).map(|n| n as f64 * step).map(|value| (value, label(value))).collect()
}

/// The positions of rows that have a label: round ones, about eight.
fn positions(rows: usize) -> Vec<usize> {
    if rows < 2 {
        return (0..rows).collect();
    }
    let range = Range { low: 0.0, high: (rows - 1) as f64 };
    let whole = ticks(range, 8).into_iter().filter(|(value, _)| (value - value.round()).abs() < 1e-9);
    whole.map(|(value, _)| value.round() as usize).filter(|position| *position < rows).collect()
}

/// Adds a text.
pub(super) fn put(out: &mut String, text: Arguments<'_>) {
    out.write_fmt(text).expect("a string takes everything");
}

/// Adds a text and ends the line.
pub(super) fn put_line(out: &mut String, text: Arguments<'_>) {
    put(out, text);
    out.push('\n');
}

fn put_path(out: &mut String, class: &str, path: &str) {
    put_line(out, format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
}

fn put_text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let (x, y, text) = (pixel(x), pixel(y), escape(text));
    put_line(out, format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"));
}

/// A line that goes on at its height until the next value begins.
fn step_line(steps: &[(f64, f64)], height: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (x, value) in steps {
        let (across, up) = if path.is_empty() { ('M', ' ') } else { ('H', 'V') };
        put(&mut path, format_args!("{across}{}{up}{}", pixel(*x), pixel(height(*value))));
    }
    path
}

/// A coordinate with one digit after the point.
fn pixel(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// A value with five significant digits.
pub(super) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let exponent = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if !(-4.0..9.0).contains(&exponent) {
        let text = format!("{value:.4e}");
        return text.split_once('e').map_or(text.clone(), |(digits, power)| format!("{}e{power}", trimmed(digits)));
    }
    let digits = (4.0 - exponent).max(0.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { trimmed(&text) } else { text }
}

/// Columns of a letter in a terminal; too many rather than too few.
fn columns(letter: char) -> usize {
    if matches!(letter, '\0'..='\u{10ff}' | '\u{2010}'..='\u{25ff}') { 1 } else { 2 }
}

/// A text as one line without control characters, cut to so many columns.
pub(super) fn fit(text: &str, most: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line: String = words.collect::<Vec<_>>().join(" ").chars().filter(|c| !is_invisible(*c)).collect();
    if line.chars().map(columns).sum::<usize>() <= most {
        return line;
    }
    let mut used = 1;
    let kept = line.chars().take_while(|letter| {
        used += columns(*letter);
        used <= most
    });
    let kept: String = kept.collect();
    if most == 0 { String::new() } else { format!("{}…", kept.trim_end()) }
}

/// Characters that are not seen, of which some turn a line around, and those that XML cannot hold.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(letter, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A text as content or attribute of HTML and SVG. Characters that XML cannot hold, and those that
/// turn a line around, are replaced.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            _ if letter.is_control() || is_invisible(letter) => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::tests_support::row;

    fn chart(rows: &[Row]) -> Chart<'_> {
        Chart { title: "speed", metric: "seconds", direction: Direction::Lower, rows, sigma: 0.2, goal: Some(5.0) }
    }

    fn run(values: &[f64]) -> Vec<Row> {
        let status = |n: usize| if n == 0 { Status::Baseline } else { Status::Discard };
        (0..).zip(values).map(|(n, value)| row(n, status(n as usize), Some(*value))).collect()
    }

    fn usual() -> Vec<Row> {
        let mut rows = run(&[10.0, 9.0, 11.0, 9.2, 8.0, 8.1, 8.5, 7.0]);
        for (n, status) in [(1, Status::Keep), (4, Status::Keep), (5, Status::Simpler), (7, Status::Keep)] {
            rows[n].status = status;
        }
        rows.push(row(8, Status::Crash, None));
        rows
    }

    /// Many rows with few or only keeps, by a fixed sequence of numbers.
    fn many(count: u32, keep_every: u32) -> Vec<Row> {
        let mut seed = 7u64;
        let mut rows = vec![row(0, Status::Baseline, Some(100.0))];
        for n in 1..count {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let noise = (seed >> 33) as f64 / f64::from(u32::MAX) * 60.0;
            let status = if n.is_multiple_of(keep_every) { Status::Keep } else { Status::Discard };
            let mut next = row(n, status, Some(100.0 - 40.0 * f64::from(n) / f64::from(count) + noise));
            next.description = "\"".repeat(500);
            rows.push(next);
        }
        rows
    }

    fn assert_sound(chart: &Chart) {
        let (svg, text) = (chart.svg(), chart.terminal(60, 12));
        for bad in ["NaN", "inf", "None"] {
            assert!(!svg.contains(bad) && !text.contains(bad), "{bad} in {svg}{text}");
        }
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(text.lines().count() <= 12 && text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn the_drawing_has_dots_by_outcome_and_the_lines() {
        let svg = chart(&usual()).svg();
        assert_sound(&chart(&usual()));
        let classes = ["keep", "simpler", "discard", "failed", "best", "baseline", "band", "start", "goal"];
        let parts = ["role=\"img\"", "<title id", "<desc id", "prefers-color-scheme:dark"].map(str::to_owned);
        for part in classes.map(|class| format!("<path class=\"{class}\"")).iter().chain(&parts) {
            assert!(svg.contains(part), "{part}");
        }
        assert!(svg.contains("<title>4: 8, change 4</title>"), "{svg}");
        assert!(svg.contains("Baseline 10, best 7."), "{svg}");
    }

    #[test]
    fn the_best_value_follows_keeps_only_and_the_direction() {
        let mut rows = usual();
        rows[2].value = Some(1.0);
        let mut chart = chart(&rows);
        assert_eq!(chart.bests(), [(0, 10.0), (1, 9.0), (4, 8.0), (7, 7.0)]);
        assert_eq!((chart.baseline(), chart.best()), (Some(10.0), Some(7.0)));
        chart.direction = Direction::Higher;
        assert_eq!(chart.bests(), [(0, 10.0)]);
    }

    #[test]
    fn few_equal_and_impossible_values_are_drawn() {
        let extremes = [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, 0.0, -0.0, 1e12];
        let mut cases: Vec<Vec<f64>> = extremes.iter().map(|value| vec![*value]).collect();
        cases.extend([vec![], vec![3.0; 9], vec![0.0; 4], extremes.to_vec(), vec![1e15, 1e15 + 1.0], vec![1e-9, 2e-9]]);
        for values in cases {
            let rows = run(&values);
            for (sigma, goal) in [(0.0, None), (0.5, Some(0.0)), (f64::NAN, Some(f64::NAN)), (f64::MAX, Some(f64::MAX))]
            {
                assert_sound(&Chart { sigma, goal, ..chart(&rows) });
            }
        }
    }

    #[test]
    fn outliers_and_far_goals_do_not_flatten_the_rest() {
        let mut rows = usual();
        rows.push(row(9, Status::Discard, Some(1e9)));
        let chart = chart(&rows);
        assert_eq!(chart.range(), Range { low: 5.0, high: 11.0 });
        assert!(chart.svg().contains("<path class=\"clipped\""));
        assert_sound(&chart);
        let svg = Chart { goal: Some(-1e6), ..chart }.svg();
        assert!(svg.contains("goal -1000000 (outside)") && svg.matches("class=\"goal\"").count() == 1, "{svg}");
    }

    #[test]
    fn ten_thousand_rows_stay_small_and_equal() {
        for keep_every in [1, 2, 70, 20_000] {
            let rows = many(10_000, keep_every);
            let chart = chart(&rows);
            let svg = chart.svg();
            assert!(svg.len() <= 150_000, "{} bytes with a keep every {keep_every}", svg.len());
            assert_eq!(svg, chart.svg());
            assert_sound(&chart);
        }
        let rows = many(10_000, 70);
        assert_eq!(chart(&rows).svg().matches("<path class=\"keep\"").count(), 142 + 1);
    }

    #[test]
    fn hostile_texts_stay_texts() {
        let mut rows = usual();
        rows[1].description = "</title><script>alert('1')</script>\u{1b}[2J\u{202e}&".to_owned();
        let hostile = Chart { title: "<b>\u{0}", metric: "\"m\"\u{1b}[31m", ..chart(&rows) };
        let (svg, text) = (hostile.svg(), hostile.terminal(70, 10));
        assert!(!svg.contains("<script") && !svg.contains("<b>") && svg.contains("&lt;script&gt;"), "{svg}");
        assert!(!svg.contains(['\u{0}', '\u{1b}', '\u{202e}']) && !text.contains('\u{1b}'), "{text}");
        assert_eq!(escape("&<>\"'\u{1}"), "&amp;&lt;&gt;&quot;&#39;\u{fffd}");
    }

    #[test]
    fn the_text_has_steps_and_labels_and_fits() {
        let rows = usual();
        let text = chart(&rows).terminal(50, 12);
        assert!(text.contains('●') && text.contains('◆') && text.contains('·') && text.contains('×'), "{text}");
        assert!(text.contains('┐') && text.contains('─') && text.contains("10 → 7"), "{text}");
        for (width, height) in [(0, 0), (1, 1), (10, 3), (20, 5), (25, 6), (40, 40), (200, 8)] {
            let text = Chart { title: "漢字🙂", ..chart(&rows) }.terminal(width, height);
            let columns = |line: &str| line.chars().map(columns).sum::<usize>();
            assert!(text.lines().all(|line| columns(line) <= width), "{width} x {height}:\n{text}");
            assert!(text.lines().count() <= height);
        }
    }

    #[test]
    fn labels_are_round_and_figures_short() {
        let labels = |low, high| ticks(Range { low, high }, 5).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(-7.0, 12.0), ["-5", "0", "5", "10"]);
        assert_eq!(positions(101), [0, 20, 40, 60, 80, 100]);
        for (value, text) in [(0.0, "0"), (100.0, "100"), (1234.56, "1234.6"), (1e12, "1e12"), (-2.5e-7, "-2.5e-7")] {
            assert_eq!(figure(value), text);
        }
    }
}
