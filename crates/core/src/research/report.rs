//! The report of a research run: one HTML page without scripts and without other files, and what
//! became of the plan. All texts of rows, plans and diffs are data: they are capped and escaped
//! here.

use std::collections::BTreeMap;
use std::time::Duration;

use super::chart::Chart;
use super::pareto::{FrontierPoint, SecondaryMetric};
use super::row::{Row, Status};
use crate::picture::page::{capped, dollars, left_out, page, section};
use crate::picture::svg::{escape, figure, fit, put, put_line};
use crate::time::human;

/// The page with 1,000 rows can still be attached to a mail or an issue; the table takes what the
/// other parts leave.
const PAGE_BYTES: usize = 296_000;
/// What the parts beside chart and table may take; together with the largest chart they leave room
/// for the rows of all keeps.
const PLAN_BYTES: usize = 20_000;
const KEPT_BYTES: usize = 35_000;
const DIFFS_BYTES: usize = 40_000;
const FAILURES_BYTES: usize = 25_000;
const STEPS_BYTES: usize = 8_000;
const FRONTIER_BYTES: usize = 16_000;
/// A longer diff is read in the repository.
const DIFF_LINES: usize = 80;
const DIFF_COLUMNS: usize = 200;
/// Columns of a text in a cell, and of one that has a line of its own.
pub(super) const CELL_COLUMNS: usize = 90;
pub(super) const TEXT_COLUMNS: usize = 240;
/// Experiments that are listed by number, and descriptions that are examples.
const NUMBERS: usize = 15;
const EXAMPLES: usize = 3;

/// A research run for people.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    pub name: &'a str,
    pub goal: &'a str,
    pub chart: Chart<'a>,
    pub plan: &'a [String],
    /// Diffs of kept experiments by their number.
    pub diffs: &'a BTreeMap<u32, String>,
    /// Time in which limits allowed no turn.
    pub asleep_ms: u64,
    pub total_microusd: u64,
    /// Keeps that are probably luck.
    pub false_keeps: f64,
    pub next_steps: &'a [String],
    /// The frontier, and the further metrics that it is about.
    pub frontier: &'a [FrontierPoint],
    pub secondary: &'a [SecondaryMetric],
}

/// What became of a strategy of the plan, or of everything that was kept beside the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOutcome {
    /// The strategy, counted from 0; `None` for keeps that no strategy named.
    pub item: Option<u32>,
    pub strategy: String,
    /// Numbers of its experiments.
    pub tried: Vec<u32>,
    pub kept: Vec<u32>,
}

/// How a plan and its experiments compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reality {
    Worked,
    DidNotWork,
    NotTried,
    /// It worked without being planned.
    Surprised,
}

impl Reality {
    /// Words for the report.
    pub fn label(self) -> &'static str {
        match self {
            Reality::Worked => "worked",
            Reality::DidNotWork => "did not work",
            Reality::NotTried => "not tried",
            Reality::Surprised => "surprised",
        }
    }
}

impl PlanOutcome {
    /// What its experiments show.
    pub fn reality(&self) -> Reality {
        match (self.item, self.tried.is_empty(), self.kept.is_empty()) {
            (None, _, _) => Reality::Surprised,
            (Some(_), true, _) => Reality::NotTried,
            (Some(_), false, true) => Reality::DidNotWork,
            (Some(_), false, false) => Reality::Worked,
        }
    }
}

/// Every strategy of the plan with its experiments; last, if there are any, the keeps that no
/// strategy named.
pub fn plan_versus_reality(rows: &[Row], plan: &[String]) -> Vec<PlanOutcome> {
    let tried = || rows.iter().filter(|row| row.status != Status::Baseline);
    let outcome = |item: Option<u32>, strategy: &str, belongs: &dyn Fn(&Row) -> bool| {
        let all = || tried().filter(|row| belongs(row));
        let kept = all().filter(|row| row.status.keeps()).map(|row| row.number).collect();
        PlanOutcome { item, strategy: strategy.to_owned(), tried: all().map(|row| row.number).collect(), kept }
    };
    let planned = (0..).zip(plan).map(|(item, strategy)| outcome(Some(item), strategy, &|row| row.plan == Some(item)));
    let mut outcomes: Vec<PlanOutcome> = planned.collect();
    // A plan that became shorter leaves rows with items that are no longer there.
    let is_named = |row: &Row| row.plan.is_some_and(|item| (item as usize) < plan.len());
    let beside = outcome(None, "kept changes that no strategy named", &|row| row.status.keeps() && !is_named(row));
    if !beside.kept.is_empty() {
        outcomes.push(beside);
    }
    outcomes
}

impl Report<'_> {
    /// The page: complete in one file, at most 300 KB.
    pub fn html(&self) -> String {
        let name = escape(&fit(self.name, CELL_COLUMNS));
        let goal = escape(&fit(self.goal, 4 * TEXT_COLUMNS));
        let title = format!("Research: {name}");
        let start = format!("<h1>{title}</h1>\n<p>{goal}</p>\n{}{}", self.figure(), self.summary());
        let end = format!(
            "{}{}{}{}{}",
            self.plan_section(),
            self.kept_section(),
            self.frontier_section(),
            self.failures_section(),
            self.steps_section(),
        );
        let frame = page(&title, "").len();
        let table = self.table(PAGE_BYTES.saturating_sub(frame + start.len() + end.len()));
        page(&title, &format!("{start}{table}{end}"))
    }

    fn count(&self, statuses: &[Status]) -> usize {
        self.chart.rows.iter().filter(|row| statuses.contains(&row.status)).count()
    }

    fn summary(&self) -> String {
        let chart = &self.chart;
        let keeps = self.count(&[Status::Keep, Status::Simpler]);
        let shown = |value: Option<f64>| value.map_or_else(|| "not measured".to_owned(), figure);
        let metric = format!("{}, {} is better", fit(chart.metric, CELL_COLUMNS), chart.direction.label());
        let false_keeps =
            if self.false_keeps.is_finite() { format!("{:.1}", self.false_keeps) } else { "–".to_owned() };
        let per_keep = match u64::try_from(keeps) {
            Ok(keeps) if keeps > 0 => dollars(self.total_microusd / keeps),
            _ => "nothing was kept".to_owned(),
        };
        let mut entries = vec![
            ("Metric", metric),
            ("Baseline → best", format!("{} → {}", shown(chart.baseline()), shown(chart.best()))),
            ("Gain", self.gain()),
            ("Experiments", (chart.rows.len() - self.count(&[Status::Baseline])).to_string()),
            ("Kept", format!("{keeps}, of which {} as simpler", self.count(&[Status::Simpler]))),
            ("Discarded", self.count(&[Status::Discard]).to_string()),
            ("Crashed", self.count(&[Status::Crash, Status::Timeout, Status::MetricError]).to_string()),
            ("Not measured", self.count(&[Status::NoOp, Status::Refused, Status::Repeat]).to_string()),
            ("Estimated false keeps", false_keeps),
            ("Cost", dollars(self.total_microusd)),
            ("Cost per keep", per_keep),
            ("Time asleep", human(Duration::from_millis(self.asleep_ms))),
        ];
        if let Some(goal) = chart.goal.filter(|goal| goal.is_finite()) {
            let is_met = chart.best().is_some_and(|best| chart.direction.meets(best, goal));
            let reached = if is_met { "reached" } else { "not reached" };
            entries.insert(3, ("Goal", format!("{}, {reached}", figure(goal))));
        }
        if !self.secondary.is_empty() {
            entries.insert(5, ("On the frontier", self.count(&[Status::Frontier]).to_string()));
        }
        let mut list = String::new();
        for (what, text) in &entries {
            put_line(&mut list, format_args!("<dt>{what}</dt><dd>{}</dd>", escape(text)));
        }
        format!("<section>\n<h2>Summary</h2>\n<dl class=\"columns\">\n{list}</dl>\n</section>\n")
    }

    /// How much better the best value is than the baseline.
    fn gain(&self) -> String {
        let (Some(baseline), Some(best)) = (self.chart.baseline(), self.chart.best()) else { return "–".to_owned() };
        let gain = self.chart.direction.gain(best, baseline);
        let percent = 100.0 * (gain / baseline.abs());
        if percent.is_finite() { format!("{percent:.1} %") } else { figure(gain) }
    }

    fn figure(&self) -> String {
        format!(
            "<section>\n<h2>Chart</h2>\n<figure>\n<div class=\"wide\" role=\"region\" aria-label=\"Chart\" \
             tabindex=\"0\">\n{}</div>\n<figcaption>Every experiment by its outcome. The line is the best \
             value so far with its noise band; the dashed line is the baseline, a dotted one the goal. Triangles at an \
             edge are values outside of the chart; crosses have no value.</figcaption>\n</figure>\n</section>\n",
            self.chart.svg()
        )
    }

    /// The rows as a table. When not all of them have room, baseline and keeps come first, then the
    /// newest.
    fn table(&self, bytes: usize) -> String {
        let rows = self.chart.rows;
        let is_first = |row: &Row| row.status == Status::Baseline || row.status.keeps();
        let order = (0..rows.len()).filter(|n| is_first(&rows[*n]));
        let order = order.chain((0..rows.len()).rev().filter(|n| !is_first(&rows[*n])));
        let mut lines: BTreeMap<usize, String> = BTreeMap::new();
        // The frame of the table and the note.
        let mut used = 700;
        for position in order {
            let line = table_row(&rows[position]);
            used += line.len();
            if used > bytes {
                break;
            }
            lines.insert(position, line);
        }
        let note = left_out(rows.len() - lines.len(), "rows", "keeps and the newest rows are shown");
        let body: String = lines.into_values().collect();
        format!(
            "<section>\n<h2>All experiments</h2>\n<details>\n<summary>Table of {} rows</summary>\n{note}\
             <div class=\"wide\" role=\"region\" aria-label=\"All experiments\" tabindex=\"0\">\n<table>\n<thead><tr>\
             <th scope=\"col\">Experiment<th scope=\"col\">Outcome<th scope=\"col\">Metric<th scope=\"col\">Difference\
             <th scope=\"col\">Guards<th scope=\"col\">Commit<th scope=\"col\">Time<th scope=\"col\">Cost\
             <th scope=\"col\">Change</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n</details>\n\
             </section>\n",
            rows.len()
        )
    }

    fn plan_section(&self) -> String {
        let outcomes = plan_versus_reality(self.chart.rows, self.plan);
        if outcomes.is_empty() {
            return section("Plan versus reality", "<p>There was no plan, and nothing was kept.</p>\n");
        }
        let count = outcomes.len();
        let line = |outcome: PlanOutcome| {
            let kept =
                if outcome.kept.is_empty() { String::new() } else { format!(": kept {}", numbers(&outcome.kept)) };
            let tried = if outcome.tried.is_empty() { "–".to_owned() } else { numbers(&outcome.tried) };
            format!(
                "<tr><th scope=\"row\">{}<td>{tried}<td>{}{kept}</tr>\n",
                escape(&fit(&outcome.strategy, TEXT_COLUMNS)),
                outcome.reality().label(),
            )
        };
        let (body, shown) = capped(outcomes.into_iter().map(line), PLAN_BYTES);
        let note = left_out(count - shown, "strategies", "the plan file has all of them");
        let table = format!(
            "<div class=\"wide\">\n<table>\n<thead><tr><th scope=\"col\">Strategy<th scope=\"col\">Tried in experiments\
             <th scope=\"col\">Result</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n{note}"
        );
        section("Plan versus reality", &table)
    }

    fn kept_section(&self) -> String {
        let kept: Vec<&Row> = self.chart.rows.iter().filter(|row| row.status.keeps()).collect();
        if kept.is_empty() {
            return section("Kept changes", "<p>Nothing was kept.</p>\n");
        }
        let mut room = DIFFS_BYTES;
        let (heads, shown) = capped(kept.iter().map(|row| kept_head(row)), KEPT_BYTES);
        let mut body = String::with_capacity(heads.len() + DIFFS_BYTES);
        for row in &kept[..shown] {
            body.push_str(&kept_head(row));
            body.push_str(&self.diff(row.number, &mut room));
            body.push_str("</article>\n");
        }
        body.push_str(&left_out(kept.len() - shown, "kept changes", "the table has them"));
        section("Kept changes", &body)
    }

    fn frontier_section(&self) -> String {
        if self.secondary.is_empty() {
            return String::new();
        }
        let head = |metric: &SecondaryMetric| {
            format!("<th scope=\"col\">{} ({})", escape(&fit(&metric.name, CELL_COLUMNS)), metric.direction.label())
        };
        let line = |point: &FrontierPoint| {
            let value = |metric: &SecondaryMetric| point.secondary.get(&metric.name).copied().map(figure);
            let further = self.secondary.iter().map(|metric| format!("<td>{}", value(metric).unwrap_or_default()));
            format!(
                "<tr><th scope=\"row\">{}<td>{}{}<td>{}</tr>\n",
                point.number,
                figure(point.value),
                further.collect::<String>(),
                escape(&fit(&point.description, CELL_COLUMNS)),
            )
        };
        let (body, shown) = capped(self.frontier.iter().rev().map(line), FRONTIER_BYTES);
        let note = left_out(self.frontier.len() - shown, "members", "the newest ones are shown");
        let table = format!(
            "<p>None of these is at least as good as another one in everything.</p>\n<div class=\"wide\">\n<table>\n\
             <thead><tr><th scope=\"col\">Experiment<th scope=\"col\">Metric{}<th scope=\"col\">Change</tr></thead>\n\
             <tbody>\n{body}</tbody>\n</table>\n</div>\n{note}",
            self.secondary.iter().map(head).collect::<String>()
        );
        section("Frontier", &table)
    }

    /// The diff of an experiment, as long as there is room for diffs.
    fn diff(&self, number: u32, room: &mut usize) -> String {
        let command = format!("<code>everloop research diff {number}</code>");
        let Some(diff) = self.diffs.get(&number) else {
            return format!("<p class=\"note\">No diff was given; {command} shows it.</p>\n");
        };
        let total = diff.lines().count();
        let body: String = diff.lines().take(DIFF_LINES).map(diff_line).collect();
        if body.len() > *room {
            return format!("<p class=\"note\">The diff of {total} lines is left out; {command} shows it.</p>\n");
        }
        *room -= body.len();
        let rest = total.saturating_sub(DIFF_LINES);
        let note = left_out(rest, "lines", &format!("{command} shows them"));
        format!("<details>\n<summary>Diff of {total} lines</summary>\n<pre>{body}</pre>\n{note}</details>\n")
    }

    fn failures_section(&self) -> String {
        let groups = failures(self.chart.rows);
        if groups.is_empty() {
            return section("What did not work and why", "<p>Nothing was discarded.</p>\n");
        }
        let (body, shown) = capped(groups.iter().map(|group| failure_item(group)), FAILURES_BYTES);
        let note = left_out(groups.len() - shown, "reasons", "the most frequent ones are shown");
        section("What did not work and why", &format!("<ul>\n{body}</ul>\n{note}"))
    }

    fn steps_section(&self) -> String {
        if self.next_steps.is_empty() {
            return section("Next steps", "<p>There are none on record.</p>\n");
        }
        let item = |step: &String| format!("<li>{}</li>\n", escape(&fit(step, 2 * TEXT_COLUMNS)));
        let (body, shown) = capped(self.next_steps.iter().map(item), STEPS_BYTES);
        let note = left_out(self.next_steps.len() - shown, "steps", "they come after these");
        section("Next steps", &format!("<ol>\n{body}</ol>\n{note}"))
    }
}

/// End tags of cells are optional in HTML, and a fifth of the table.
fn table_row(row: &Row) -> String {
    let value = |value: Option<f64>| value.map_or_else(String::new, figure);
    let guard = match row.guard {
        Some(true) => "pass",
        Some(false) => "fail",
        None => "–",
    };
    format!(
        "<tr><th scope=\"row\">{}<td>{}<td>{}<td>{}<td>{guard}<td>{}<td>{}<td>{}<td>{}</tr>\n",
        row.number,
        row.status.label(),
        value(row.value),
        value(row.delta),
        commit(row),
        human(Duration::from_millis(row.millis)),
        dollars(row.microusd),
        escape(&fit(&row.description, CELL_COLUMNS)),
    )
}

/// The beginning of an article about a keep; a diff and the end tag follow.
fn kept_head(row: &Row) -> String {
    let mut facts = vec![row.status.label().to_owned()];
    facts.extend(row.value.map(|value| format!("value {}", figure(value))));
    facts.extend(row.delta.map(|delta| format!("difference {}", figure(delta))));
    facts.push(format!("commit {}", commit(row)));
    facts.push(dollars(row.microusd));
    let mut head = String::from("<article>\n");
    put_line(&mut head, format_args!("<h3>{}: {}</h3>", row.number, escape(&fit(&row.description, TEXT_COLUMNS))));
    put(&mut head, format_args!("<p>{}", facts.join(", ")));
    if !row.why.is_empty() {
        put(&mut head, format_args!("; {}", escape(&fit(&row.why, TEXT_COLUMNS))));
    }
    head.push_str("</p>\n");
    head
}

fn commit(row: &Row) -> String {
    let text = row.commit.as_deref().unwrap_or("–");
    escape(&text.chars().take(9).collect::<String>())
}

fn diff_line(line: &str) -> String {
    let shown: String = line.chars().take(DIFF_COLUMNS).collect();
    let cut = if shown.len() < line.len() { "…" } else { "" };
    let text = escape(&shown);
    match line.as_bytes().first() {
        Some(b'+') => format!("<ins>{text}{cut}</ins>\n"),
        Some(b'-') => format!("<del>{text}{cut}</del>\n"),
        _ => format!("{text}{cut}\n"),
    }
}

/// Experiments with the same outcome for the same reason, the largest group first.
fn failures(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: BTreeMap<(Status, String), Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.status != Status::Baseline && !row.status.succeeds()) {
        groups.entry((row.status, pattern(&row.why))).or_default().push(row);
    }
    let mut groups: Vec<Vec<&Row>> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// A reason without its numbers, so that equal reasons with different values are one.
fn pattern(why: &str) -> String {
    let mut out = String::new();
    for word in fit(why, TEXT_COLUMNS).split(' ').filter(|word| !word.is_empty()) {
        let is_number = word.contains(|c: char| c.is_ascii_digit()) && !word.contains(|c: char| c.is_alphabetic());
        out.push_str(if out.is_empty() { "" } else { " " });
        out.push_str(if is_number { "…" } else { word });
    }
    out
}

fn failure_item(group: &[&Row]) -> String {
    let Some(first) = group.first() else { return String::new() };
    let why = if group.len() == 1 { fit(&first.why, TEXT_COLUMNS) } else { pattern(&first.why) };
    let why = if why.is_empty() { "no reason on record".to_owned() } else { why };
    let all: Vec<u32> = group.iter().map(|row| row.number).collect();
    let examples = group.iter().take(EXAMPLES).map(|row| escape(&fit(&row.description, CELL_COLUMNS)));
    let examples = examples.collect::<Vec<_>>().join("; ");
    format!(
        "<li><strong>{}, {}×: {}</strong><br>Experiments {}. For example: {examples}</li>\n",
        first.status.label(),
        group.len(),
        escape(&why),
        numbers(&all),
    )
}

fn numbers(all: &[u32]) -> String {
    let first: Vec<String> = all.iter().take(NUMBERS).map(u32::to_string).collect();
    let rest = all.len() - first.len();
    let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    format!("{}{rest}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::Direction;
    use crate::research::tests_support::row;

    fn report<'a>(rows: &'a [Row], plan: &'a [String], diffs: &'a BTreeMap<u32, String>) -> Report<'a> {
        let direction = Direction::Lower;
        let chart = Chart { title: "speed", metric: "seconds", direction, rows, sigma: 0.1, goal: Some(6.0) };
        Report {
            name: "speed",
            goal: "make it fast",
            chart,
            plan,
            diffs,
            asleep_ms: 5_400_000,
            total_microusd: 3_000_000,
            false_keeps: 0.25,
            next_steps: &[],
            frontier: &[],
            secondary: &[],
        }
    }

    fn plan(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    /// Strategy 0 worked, 1 did not, 2 was not tried; experiment 4 was kept beside the plan.
    fn usual() -> Vec<Row> {
        let mut rows = vec![
            row(0, Status::Baseline, Some(10.0)),
            row(1, Status::Keep, Some(8.0)),
            row(2, Status::Discard, Some(9.0)),
            row(3, Status::Crash, None),
            row(4, Status::Keep, Some(7.0)),
            row(5, Status::Discard, Some(7.05)),
        ];
        (rows[1].plan, rows[2].plan, rows[3].plan) = (Some(0), Some(1), Some(1));
        rows[3].why = "IndexError".to_owned();
        rows
    }

    fn hostile(count: u32) -> Vec<Row> {
        let mut rows = vec![row(0, Status::Baseline, Some(1000.0))];
        for n in 1..count {
            let status = Status::ALL[1 + n as usize % 9];
            let mut next = row(n, status, Some(1000.0 - f64::from(n) / 2.0));
            next.description = "<script>\"'&".repeat(40);
            next.why = format!("{} \"' {}", "<b>".repeat(40), ["a", "b", "c"].repeat(n as usize % 7).join(""));
            next.commit = Some("\"><img src=x onerror=alert(1)>".to_owned());
            rows.push(next);
        }
        rows
    }

    #[test]
    fn the_plan_is_compared_with_what_happened() {
        let plan = plan(&["cache", "vectorise", "rewrite"]);
        let outcomes = plan_versus_reality(&usual(), &plan);
        let shown: Vec<_> =
            outcomes.iter().map(|o| (o.item, o.tried.as_slice(), o.kept.as_slice(), o.reality())).collect();
        assert_eq!(
            shown,
            [
                (Some(0), &[1][..], &[1][..], Reality::Worked),
                (Some(1), &[2, 3], &[], Reality::DidNotWork),
                (Some(2), &[], &[], Reality::NotTried),
                (None, &[4], &[4], Reality::Surprised),
            ]
        );
    }

    #[test]
    fn a_keep_of_an_item_that_left_the_plan_is_a_surprise() {
        let mut rows = usual();
        rows[1].plan = Some(9);
        assert_eq!(plan_versus_reality(&rows, &[])[0].kept, [1, 4]);
        assert_eq!(plan_versus_reality(&rows[..1], &[]), []);
        assert_eq!(plan_versus_reality(&[], &plan(&["x"]))[0].reality(), Reality::NotTried);
    }

    #[test]
    fn the_page_has_all_sections_and_the_summary() {
        let (rows, plan) = (usual(), plan(&["cache", "vectorise", "rewrite"]));
        let diffs = BTreeMap::from([(1, "--- a\n+++ b\n-old < 1\n+new\n same\n".to_owned())]);
        let steps = ["Try the untried strategy: rewrite".to_owned()];
        let html = Report { next_steps: &steps, ..report(&rows, &plan, &diffs) }.html();
        for part in [
            "<dd>10 → 7</dd>",
            "<dd>30.0 %</dd>",
            "<dd>6, not reached</dd>",
            "<dd>2, of which 0 as simpler</dd>",
            "<dt>Cost per keep</dt><dd>$1.50</dd>",
            "<dt>Time asleep</dt><dd>1h 30m</dd>",
            "<dt>Estimated false keeps</dt><dd>0.2</dd>",
            "<td>2, 3<td>did not work",
            "<td>4<td>surprised: kept 4",
            "<del>-old &lt; 1</del>\n<ins>+new</ins>\n same\n",
            "<strong>crash, 1×: IndexError</strong>",
            "<li>Try the untried strategy: rewrite</li>",
            "<figcaption>",
            "<details>",
            "prefers-color-scheme:dark",
        ] {
            assert!(html.contains(part), "{part} is not in\n{html}");
        }
        assert!(!html.contains("left out") && !html.contains("<script"), "{html}");
        let address = "http://www.w3.org/2000/svg";
        assert!(!html.replace(address, "").contains("http:") && !html.contains("https:"), "no other files");
    }

    #[test]
    fn the_frontier_is_a_table_with_all_values() {
        let (rows, none) = (usual(), BTreeMap::new());
        let metrics = [SecondaryMetric::read("<size>").unwrap()];
        let point = |number: u32| FrontierPoint {
            number,
            commit: None,
            value: 9.5,
            secondary: BTreeMap::from([("<size>".to_owned(), 41.0)]),
            description: "<script>".repeat(40),
        };
        let points: Vec<FrontierPoint> = (0..50).map(point).collect();
        let html = Report { frontier: &points, secondary: &metrics, ..report(&rows, &[], &none) }.html();
        assert!(html.contains("<th scope=\"col\">&lt;size&gt; (lower)"), "{html}");
        assert!(html.contains("<tr><th scope=\"row\">49<td>9.5<td>41<td>&lt;script&gt;"), "{html}");
        assert!(html.contains("<dt>On the frontier</dt><dd>0</dd>") && !html.contains("<script"), "{html}");
        assert!(!report(&rows, &[], &none).html().contains("<h2>Frontier</h2>"), "nothing but the metric counts");
    }

    #[test]
    fn hostile_texts_stay_texts() {
        let rows = hostile(60);
        let plan = plan(&["<img src=x>", "\"'"]);
        let diffs = BTreeMap::from([(1, "+</pre><script>alert(1)</script>\u{202e}\u{0}".to_owned())]);
        let next = ["<a href='x'>".to_owned()];
        let html =
            Report { name: "</title><i>", goal: "<u>", next_steps: &next, ..report(&rows, &plan, &diffs) }.html();
        for bad in ["<script", "<img", "<b>", "<i>", "<u>", "<a ", "\u{202e}", "\u{0}"] {
            assert!(!html.contains(bad), "{bad:?}");
        }
        assert!(html.contains("&lt;script&gt;&quot;&#39;&amp;"));
        assert_eq!(html.matches("<pre>").count(), html.matches("</pre>").count());
    }

    #[test]
    fn a_thousand_rows_stay_below_300_kilobytes_and_are_all_in_the_table() {
        let usual = |n: u32| {
            let status =
                [Status::Discard, Status::Discard, Status::Discard, Status::Keep, Status::Crash][n as usize % 5];
            let mut next = row(n, status, (status != Status::Crash).then(|| 900.0 - f64::from(n) / 3.0));
            next.description = "replace the inner loop with a table that is computed once".to_owned();
            next.commit = Some("0123456789abcdef".to_owned());
            next
        };
        let mut rows = vec![row(0, Status::Baseline, Some(1000.0))];
        rows.extend((1..1000).map(usual));
        let diffs = (1..1000).map(|n| (n, "+a line of code that was added\n".repeat(300))).collect();
        let html = report(&rows, &[], &diffs).html();
        assert!(html.len() <= 300_000, "{} bytes", html.len());
        assert!(!html.contains("rows left out") && html.contains("220 lines left out"), "{}", html.len());
        assert_eq!(html, report(&rows, &[], &diffs).html());
    }

    #[test]
    fn any_texts_stay_below_300_kilobytes_and_what_is_missing_is_named() {
        for count in [1_000, 10_000] {
            let rows = hostile(count);
            let plan: Vec<String> = (0..500).map(|_| "\"".repeat(500)).collect();
            let diffs = (1..count).map(|n| (n, "+'''\n".repeat(5_000))).collect();
            let html = Report { next_steps: &plan, ..report(&rows, &plan, &diffs) }.html();
            assert!(html.len() <= 300_000, "{} bytes", html.len());
            for part in ["rows left out", "strategies left out", "kept changes left out", "steps left out"] {
                assert!(html.contains(part), "{part}");
            }
        }
    }

    #[test]
    fn an_empty_run_and_impossible_numbers_make_a_page() {
        let none = BTreeMap::new();
        let empty = report(&[], &[], &none).html();
        assert!(empty.contains("Nothing was kept.") && empty.contains("not measured → not measured"), "{empty}");
        for value in [f64::NAN, f64::INFINITY, f64::MAX, 0.0, 5e-324] {
            let mut rows = vec![row(0, Status::Baseline, Some(value)), row(1, Status::Keep, Some(-value))];
            rows[1].delta = Some(value);
            let html = Report { false_keeps: value, ..report(&rows, &[], &none) }.html();
            assert!(!html.contains("NaN") && !html.contains(">inf") && !html.contains(" inf"), "{html}");
        }
    }

    #[test]
    fn equal_reasons_with_different_numbers_are_one_group() {
        let mut rows = usual();
        rows[2].why = "9 is not better than 8".to_owned();
        rows[5].why = "7.05 is not better than 7".to_owned();
        let groups = failures(&rows);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert!(failure_item(&groups[0]).contains("discard, 2×: … is not better than …"));
    }
}
