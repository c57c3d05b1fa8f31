//! `[research.NAME]`: experiments on a metric. Its keys are those of a loop, with checks as
//! guards, and those of the metric, which are declared here.

use std::path::Path;

use everloop_core::research::idea::strategies;
use everloop_core::research::import::PastIdeas;
use everloop_core::research::pareto;
use everloop_core::research::shared::WORKERS_MOST;
use everloop_core::research::{KeepRule, MAX_LINES, MetricSpec, ResearchSpec};
use everloop_engine::diagnostic::Diagnostic;
use everloop_engine::services::research::import::history;

use super::layer::{Layer, Origin};
use super::settings::section;
use super::value::{Count, DirectionKey, Flag, KeepRuleKey, List, NonEmptyText, Number, Span};

/// The file of the plan, if nothing else is configured.
pub const PLAN: &str = ".everloop/research-plan.md";

section! {
    /// What is measured, and when a change is kept. All keys of `[loop.NAME]` can stand beside them;
    /// `checks` are optional here: they are the guards, which must not break.
    pub struct ResearchKeys;

    /// The command that prints the metric: its last line that is a number, or `METRIC name=value`
    /// lines.
    metric: NonEmptyText;

    /// Which values are better: `lower` or `higher`.
    direction: DirectionKey;

    /// The `METRIC` line that decides; without it the first one.
    metric_name: NonEmptyText;

    /// Where the number is in a JSON output, as `results.0.mean`.
    json_path: NonEmptyText;

    /// Further `METRIC` lines that count, as `["size:lower"]`: a change that is not kept stays on the
    /// frontier if nothing there is as good in everything.
    pareto: List;

    /// Time limit of a measurement until a normal time is known. Without it: 10 minutes.
    metric_timeout: Span;

    /// Values below are an error of the metric.
    metric_min: Number;

    /// Values above are an error of the metric.
    metric_max: Number;

    /// The run ends at the first champion that is at least this good.
    goal_value: Number;

    /// Globs of files that experiments may change; without it all that nothing protects.
    scope: List;

    /// When a change is kept: `race`, `single`, `sigma2` or `exact`.
    rule: KeepRuleKey = "race";

    /// Whether small gains that need many lines are discarded, and shorter code at the same metric is
    /// kept.
    simplicity: Flag = true;

    /// The run ends after this many experiments in a row without a keep.
    patience: Count;

    /// The file with strategies to try, one per list item, relative to this file.
    plan: NonEmptyText = PLAN;

    /// A results table of another tool or an earlier run, relative to this file; the prompt lists its
    /// ideas as tried.
    history: NonEmptyText;

    /// Whether no other measurement runs on this machine at the same time. Without it: where the
    /// metric seems to be about time or memory.
    exclusive: Flag;

    /// Experiments at a time on this machine, each in a clone of its own; budgets are divided evenly.
    workers: Count = 1;

    /// Lines that an experiment may add and remove.
    max_lines: Count = i64::from(MAX_LINES);

    /// The file of the results, relative to this file; without it in the state folder.
    results: NonEmptyText;
}

/// The settings of a run, from the layer of its own keys.
pub(super) fn spec(name: &str, dir: &Path, values: &Layer, place: &Origin) -> Result<ResearchSpec, Vec<Diagnostic>> {
    let keys: ResearchKeys = values.typed().map_err(|wrong| vec![wrong])?;
    let lacks = |key: &str, example: &str| {
        place.blame(format!("research `{name}` has no `{key}`")).hint(format!("add `{key} = \"{example}\"`"))
    };
    let (run, direction) = match (&keys.metric, keys.direction) {
        (Some(run), Some(direction)) => (run.0.clone(), direction.0),
        (run, direction) => {
            let missing = [
                run.is_none().then(|| lacks("metric", "./bench.sh")),
                direction.is_none().then(|| lacks("direction", "lower")),
            ];
            return Err(missing.into_iter().flatten().collect());
        }
    };
    if let (Some(min), Some(max)) = (keys.metric_min, keys.metric_max)
        && min.0 > max.0
    {
        let wrong = values.origin("metric_max").blame("`metric_max` is below `metric_min`");
        return Err(vec![wrong.hint("raise `metric_max` or lower `metric_min`")]);
    }
    let mut metric = MetricSpec::new(run, direction);
    metric.check.timeout = keys.metric_timeout.map_or(metric.check.timeout, |span| span.0);
    metric.name = keys.metric_name.map(|text| text.0);
    let further = keys.pareto.map_or_else(Vec::new, |list| list.0);
    metric.pareto = pareto::read_all(&further, metric.name.as_deref())
        .map_err(|why| vec![values.origin("pareto").blame(why).hint("write it as `pareto = [\"size:lower\"]`")])?;
    metric.json_path = keys.json_path.map(|text| text.0);
    (metric.min, metric.max) = (keys.metric_min.map(|n| n.0), keys.metric_max.map(|n| n.0));
    metric.exclusive = keys.exclusive.map_or_else(|| metric.is_disturbed(), |flag| flag.0);
    let file = keys.plan.map_or_else(|| PLAN.to_owned(), |text| text.0);
    let plan = planned(&dir.join(file), values).map_err(|wrong| vec![wrong])?;
    let history = keys.history.map(|text| past_ideas(&dir.join(text.0), values)).transpose();
    Ok(ResearchSpec {
        history: history.map_err(|wrong| vec![wrong])?,
        scope: keys.scope.map_or_else(Vec::new, |list| list.0),
        goal_value: keys.goal_value.map(|n| n.0),
        rule: keys.rule.map_or_else(KeepRule::default, |rule| rule.0),
        simplicity: keys.simplicity.is_none_or(|flag| flag.0),
        patience: keys.patience.map(|n| n.0),
        plan,
        workers: keys.workers.map_or(1, |n| n.0.min(WORKERS_MOST)),
        max_lines: keys.max_lines.map_or(MAX_LINES, |n| n.0),
        results: keys.results.map(|text| dir.join(text.0).display().to_string()),
        ..ResearchSpec::new(metric)
    })
}

/// The strategies of a run's plan; none where the usual file is missing.
fn planned(path: &Path, values: &Layer) -> Result<Vec<String>, Diagnostic> {
    match plan(path) {
        Ok(Some(plan)) => Ok(plan),
        Ok(None) if !values.is_explicit("plan") => Ok(Vec::new()),
        Ok(None) => {
            let wrong = values.origin("plan").blame(format!("there is no plan `{}`", path.display()));
            Err(wrong.hint("`everloop init --research` writes a template"))
        }
        Err(why) => Err(values.origin("plan").blame(why)),
    }
}

/// The ideas of an earlier table.
fn past_ideas(path: &Path, values: &Layer) -> Result<PastIdeas, Diagnostic> {
    let found = history(path).map_err(|failure| {
        let message: Vec<String> = std::iter::once(failure.message).chain(failure.causes).collect();
        let wrong = values.origin("history").blame(message.join(": "));
        wrong.hint(failure.hint.unwrap_or_else(|| "everloop research import FILE".to_owned()))
    })?;
    Ok(found.ideas())
}

/// The strategies of a plan; `None` without the file.
pub fn plan(path: &Path) -> Result<Option<Vec<String>>, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(strategies(&text))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("cannot read the plan `{}`: {e}", path.display())),
    }
}
