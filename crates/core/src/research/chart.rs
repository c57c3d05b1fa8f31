//! The chart of a research run: SVG for pages, Unicode text for terminals. It draws rows, decides
//! nothing, and caps and escapes the texts in rows, which are data.

use std::collections::BTreeSet;

use super::Direction;
use super::row::{Row, Status};
use crate::picture::scale::{ValueRange, positions, ticks};
use crate::picture::svg::{escape, figure, fit, pixel, put, put_line, put_path, put_text, step_line};

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
/// Its rules, for pages that may not have them in the drawing.
pub const STYLE: &str = "\
.everloop-chart{font:12px system-ui,sans-serif;max-width:100%;height:auto}\
.everloop-chart text{fill:#1f2328}.everloop-chart .heading{font-size:16px;font-weight:600}\
.everloop-chart path,.everloop-chart line{fill:none;stroke-linecap:round}\
.everloop-chart .paper{fill:#fff}.everloop-chart .grid{stroke:#d8dee4}.everloop-chart .axis{stroke:#59636e}\
.everloop-chart .band{fill:#1a7f37;fill-opacity:.13}.everloop-chart .best{stroke:#1a7f37;stroke-width:2}\
.everloop-chart .baseline{stroke:#59636e;stroke-width:1.5;stroke-dasharray:7 5}\
.everloop-chart .goal{stroke:#8250df;stroke-width:2;stroke-dasharray:.1 5}\
.everloop-chart .keep{stroke:#1a7f37;stroke-width:10}\
.everloop-chart .simpler{stroke:#0969da;stroke-width:8;stroke-linecap:square}\
.everloop-chart .frontier{stroke:#bf8700;stroke-width:8}\
.everloop-chart .discard{stroke:#6e7781;stroke-width:6}.everloop-chart .start{stroke:#1f2328;stroke-width:8}\
.everloop-chart .clipped{fill:#6e7781}.everloop-chart .failed{stroke:#cf222e;stroke-width:1.5}\
@media (prefers-color-scheme:dark){.everloop-chart text{fill:#e6edf3}.everloop-chart .paper{fill:#0d1117}\
.everloop-chart .grid{stroke:#2a313c}.everloop-chart .axis,.everloop-chart .baseline{stroke:#9198a1}\
.everloop-chart .band{fill:#3fb950;fill-opacity:.18}.everloop-chart .best,.everloop-chart .keep{stroke:#3fb950}\
.everloop-chart .goal{stroke:#bc8cff}.everloop-chart .simpler{stroke:#58a6ff}\
.everloop-chart .frontier{stroke:#d29922}.everloop-chart .discard{stroke:#6e7681}.everloop-chart .clipped{fill:#6e7681}\
.everloop-chart .start{stroke:#e6edf3}.everloop-chart .failed{stroke:#ff7b72}}\
@media screen and (max-width:50rem){.everloop-chart{min-width:50rem}}";

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

/// How an experiment is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Start,
    Keep,
    Simpler,
    Frontier,
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
    range: ValueRange,
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
    fn range(&self) -> ValueRange {
        let mut values: Vec<f64> = self.rows.iter().filter_map(placed).collect();
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first().copied(), values.last().copied()) else {
            return ValueRange { low: 0.0, high: 1.0 };
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
        let range = ValueRange { low: low.min(high), high: high.max(low) }.widened();
        self.with_goal(range)
    }

    /// A goal that is far away would flatten everything else.
    fn with_goal(&self, range: ValueRange) -> ValueRange {
        let span = range.high - range.low;
        match self.goal() {
            Some(goal) if goal >= range.low - span && goal <= range.high + span => {
                ValueRange { low: range.low.min(goal), high: range.high.max(goal) }
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
        if self.count(Mark::Frontier) > 0 {
            put(&mut text, format_args!(" On the frontier: {}.", self.count(Mark::Frontier)));
        }
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
            ("frontier", draw(Mark::Frontier, others, &dot)),
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
                (Mark::Discard | Mark::Frontier, Some(value)) if value > plot.range.high => Mark::Above,
                (Mark::Discard | Mark::Frontier, Some(value)) if value < plot.range.low => Mark::Below,
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
        let frontier = Some(self.count(Mark::Frontier)).filter(|count| *count > 0);
        entries.extend(frontier.map(|count| ("frontier", dot, format!("frontier {count}"))));
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
        let mut kept = format!("● kept {}, ◆ simpler {}", self.count(Mark::Keep), self.count(Mark::Simpler));
        if self.count(Mark::Frontier) > 0 {
            put(&mut kept, format_args!(", ◇ frontier {}", self.count(Mark::Frontier)));
        }
        format!("{ends}{kept}, · discarded {}, × no value {}", self.count(Mark::Discard), self.count(Mark::Failed))
    }

    /// The plot in cells: what is drawn later covers what was there.
    fn grid(&self, range: ValueRange, width: usize, height: usize) -> Vec<Vec<char>> {
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
                Mark::Frontier => '◇',
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
    let has = leads(row) || matches!(row.status, Status::Discard | Status::Frontier);
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
        Status::Frontier => Mark::Frontier,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::svg::columns;
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
        assert_eq!(chart.range(), ValueRange { low: 5.0, high: 11.0 });
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
}
