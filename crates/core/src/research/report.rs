//! The report of a research run: one HTML page without scripts and without other files, what became
//! of the plan, and what to do next. All texts of rows, plans and diffs are data: they are capped
//! and escaped here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::chart::{Chart, escape, figure, fit, put, put_line};
use super::idea::near;
use super::row::{Row, Status};
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
/// A longer diff is read in the repository.
const DIFF_LINES: usize = 80;
const DIFF_COLUMNS: usize = 200;
/// Columns of a text in a cell, and of one that has a line of its own.
const CELL_COLUMNS: usize = 90;
const TEXT_COLUMNS: usize = 240;
/// Experiments that are listed by number, and descriptions that are examples.
const NUMBERS: usize = 15;
const EXAMPLES: usize = 3;
/// More next steps than this are no priorities.
const MAX_STEPS: usize = 10;
/// Places among the next steps that untried strategies do not take.
const MISSES_RESERVED: usize = 3;
const CRASHES_RESERVED: usize = 2;

/// Nothing is loaded or run even if a text were not escaped.
const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
<meta name=\"color-scheme\" content=\"light dark\">\n";

const STYLE: &str = "\
:root{--ink:#1f2328;--paper:#fff;--faint:#59636e;--line:#d1d9e0;--soft:#f6f8fa;--added:#dafbe1;--removed:#ffebe9}\
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--faint:#9198a1;--line:#3d444d;\
--soft:#151b23;--added:#12361f;--removed:#4a1a1c}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;\
padding:0 1rem;overflow-wrap:anywhere}h1,h2,h3{line-height:1.25}h2{margin-top:2.5rem}figure{margin:1rem 0}\
figcaption,.note{color:var(--faint)}dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.5rem}\
dt{color:var(--faint)}dd{margin:0}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}\
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid var(--line)}\
pre{background:var(--soft);padding:.7rem;overflow-x:auto;font-size:.85rem}ins,del{text-decoration:none}\
ins{background:var(--added)}del{background:var(--removed)}summary{cursor:pointer}";

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

/// What to do next, the most promising first: untried strategies, near misses, crashes. At most
/// ten, of which some are near misses and crashes however long the plan is.
pub fn next_steps(rows: &[Row], plan: &[String], sigma: f64) -> Vec<String> {
    let untried = plan_versus_reality(rows, plan).into_iter().filter(|outcome| outcome.reality() == Reality::NotTried);
    let untried = untried.map(|outcome| format!("Try the untried strategy: {}", fit(&outcome.strategy, TEXT_COLUMNS)));
    let (misses, crashes) = (near_misses(rows, sigma), repairs(rows));
    let crashes_reserved = crashes.len().min(CRASHES_RESERVED);
    let reserved = misses.len().min(MISSES_RESERVED) + crashes_reserved;
    let mut steps: Vec<String> = untried.take(MAX_STEPS - reserved).collect();
    let left = MAX_STEPS - steps.len() - crashes_reserved;
    steps.extend(misses.into_iter().take(left));
    let left = MAX_STEPS - steps.len();
    steps.extend(crashes.into_iter().take(left));
    steps
}

/// Discards beside the best value, the closest first. The last keep is the best one, because a keep
/// is better than all before; so no direction is needed.
fn near_misses(rows: &[Row], sigma: f64) -> Vec<String> {
    let is_best = |row: &&Row| matches!(row.status, Status::Baseline | Status::Keep);
    let value_of = |row: &Row| row.value.filter(|value| value.is_finite());
    let Some(best) = rows.iter().rev().filter(is_best).find_map(value_of) else { return Vec::new() };
    let near = near(best, sigma);
    let is_open = |row: &&Row| row.status == Status::Discard && row.guard != Some(false);
    let mut misses: Vec<(f64, &Row)> =
        rows.iter().filter(is_open).filter_map(|row| Some(((value_of(row)? - best).abs(), row))).collect();
    misses.retain(|(distance, _)| *distance <= near);
    misses.sort_by(|(one, first), (other, second)| one.total_cmp(other).then(second.number.cmp(&first.number)));
    let step = |(distance, row): (f64, &Row)| {
        let (number, apart, best) = (row.number, figure(distance), figure(best));
        let change = fit(&row.description, TEXT_COLUMNS);
        format!("Refine or combine experiment {number}, which is {apart} away from the best value {best}: {change}")
    };
    misses.into_iter().map(step).collect()
}

/// Crashes of changes that were never measured, the newest first and every change once.
fn repairs(rows: &[Row]) -> Vec<String> {
    let measured = rows.iter().filter(|row| row.value.is_some());
    let mut seen: BTreeSet<&str> = measured.map(|row| row.description.as_str()).collect();
    let mut steps = Vec::new();
    for row in rows.iter().rev().filter(|row| matches!(row.status, Status::Crash | Status::Timeout)) {
        if !seen.insert(&row.description) {
            continue;
        }
        let why = if row.why.is_empty() { String::new() } else { format!(" ({})", fit(&row.why, CELL_COLUMNS)) };
        let verb = if row.status == Status::Timeout { "Speed up" } else { "Repair" };
        let change = fit(&row.description, TEXT_COLUMNS);
        steps.push(format!("{verb} experiment {}, which has no value{why}: {change}", row.number));
        if steps.len() == MAX_STEPS {
            break;
        }
    }
    steps
}

impl Report<'_> {
    /// The page: complete in one file, at most 300 KB.
    pub fn html(&self) -> String {
        let name = escape(&fit(self.name, CELL_COLUMNS));
        let goal = escape(&fit(self.goal, 4 * TEXT_COLUMNS));
        let start = format!(
            "{HEAD}<title>Research: {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>Research: {name}</h1>\n<p>{goal}</p>\n{}{}",
            self.summary(),
            self.figure(),
        );
        let end = format!(
            "{}{}{}{}</main>\n</body>\n</html>\n",
            self.plan_section(),
            self.kept_section(),
            self.failures_section(),
            self.steps_section(),
        );
        let table = self.table(PAGE_BYTES.saturating_sub(start.len() + end.len()));
        format!("{start}{table}{end}")
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
        let mut list = String::new();
        for (what, text) in &entries {
            put_line(&mut list, format_args!("<dt>{what}</dt><dd>{}</dd>", escape(text)));
        }
        format!("<section>\n<h2>Summary</h2>\n<dl>\n{list}</dl>\n</section>\n")
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
            "<section>\n<h2>Chart</h2>\n<figure>\n{}<figcaption>Every experiment by its outcome. The line is the best \
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
            "<table>\n<thead><tr><th scope=\"col\">Strategy<th scope=\"col\">Tried in experiments\
             <th scope=\"col\">Result</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n{note}"
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

fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n{body}</section>\n")
}

/// The first parts that fit together, and their number.
fn capped(parts: impl Iterator<Item = String>, bytes: usize) -> (String, usize) {
    let (mut out, mut shown) = (String::new(), 0);
    for part in parts {
        if out.len() + part.len() > bytes {
            break;
        }
        out.push_str(&part);
        shown += 1;
    }
    (out, shown)
}

/// A line about what the page does not show; empty when it shows everything.
fn left_out(count: usize, what: &str, instead: &str) -> String {
    if count == 0 { String::new() } else { format!("<p class=\"note\">{count} {what} left out; {instead}.</p>\n") }
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
        put(&mut head, format_args!(". {}", escape(&fit(&row.why, TEXT_COLUMNS))));
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
    for row in rows.iter().filter(|row| row.status != Status::Baseline && !row.status.keeps()) {
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

/// Dollars with cents; small amounts with more digits.
fn dollars(microusd: u64) -> String {
    let amount = microusd as f64 / 1e6;
    if microusd == 0 || microusd >= 100_000 { format!("${amount:.2}") } else { format!("${amount:.4}") }
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
    fn next_steps_are_untried_strategies_then_near_misses_then_crashes() {
        let steps = next_steps(&usual(), &plan(&["cache", "vectorise", "rewrite"]), 0.0);
        assert_eq!(
            steps,
            [
                "Try the untried strategy: rewrite",
                "Refine or combine experiment 5, which is 0.05 away from the best value 7: change 5",
                "Repair experiment 3, which has no value (IndexError): change 3",
            ]
        );
        assert_eq!(next_steps(&[], &[], 0.0), Vec::<String>::new());
    }

    #[test]
    fn near_misses_depend_on_noise_and_on_guards() {
        let mut rows = usual();
        rows[2].value = Some(7.5);
        assert!(!next_steps(&rows, &[], 0.0).iter().any(|step| step.contains("experiment 2")));
        assert!(next_steps(&rows, &[], 0.3)[1].contains("experiment 2"));
        rows[2].guard = Some(false);
        assert!(!next_steps(&rows, &[], 0.3).iter().any(|step| step.contains("experiment 2")));
        assert!(next_steps(&rows, &[], f64::NAN).iter().all(|step| !step.contains("NaN")));
    }

    #[test]
    fn a_long_plan_leaves_room_for_other_steps_and_a_repaired_crash_is_none() {
        let long: Vec<String> = (0..40).map(|n| format!("strategy {n}")).collect();
        let steps = next_steps(&usual(), &long, 0.0);
        assert_eq!(steps.len(), MAX_STEPS);
        assert!(steps[8].contains("experiment 5") && steps[9].contains("experiment 3"), "{steps:?}");
        let mut rows = usual();
        rows[4].description.clone_from(&usual()[3].description);
        assert!(!next_steps(&rows, &[], 0.0).iter().any(|step| step.contains("Repair")));
    }

    #[test]
    fn the_page_has_all_sections_and_the_summary() {
        let (rows, plan) = (usual(), plan(&["cache", "vectorise", "rewrite"]));
        let diffs = BTreeMap::from([(1, "--- a\n+++ b\n-old < 1\n+new\n same\n".to_owned())]);
        let steps = next_steps(&rows, &plan, 0.0);
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
