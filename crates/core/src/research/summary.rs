//! A research run in a few lines.

use super::row::{Status, short};
use super::state::ResearchState;
use super::{Direction, ResearchSpec};

/// One line after so many experiments.
const LINE_EVERY: u32 = 5;

/// Whether the status line is due after this experiment.
pub fn is_line_due(number: u32) -> bool {
    number > 0 && number.is_multiple_of(LINE_EVERY)
}

/// The state in one line.
pub fn status_line(spec: &ResearchSpec, state: &ResearchState) -> String {
    let kept = state.keep_count();
    format!(
        "experiment {}: best {} (baseline {}, {}), {kept} kept, {} since the last keep",
        state.number,
        short(state.champion.value()),
        short(state.baseline),
        change(state.champion.value(), state.baseline, spec.metric.direction),
        state.since_keep(),
    )
}

/// How much better a value is than the baseline, in percent.
pub fn change(value: f64, baseline: f64, direction: Direction) -> String {
    if baseline == 0.0 {
        return format!("{:+}", value - baseline);
    }
    let percent = 100.0 * direction.gain(value, baseline) / baseline.abs();
    format!("{percent:.1} % better").replace("-0.0 %", "0.0 %")
}

/// The summary at the end of a run; `bound` is the number of experiments that it could have.
pub fn summary(spec: &ResearchSpec, state: &ResearchState, bound: Option<u32>) -> String {
    let most = bound.map_or_else(|| state.number.to_string(), |n| n.to_string());
    let best = state.keeps.last().map_or("", |keep| keep.description.as_str());
    let crashes = state.count(Status::Crash) + state.count(Status::Timeout) + state.count(Status::MetricError);
    let others = state.count(Status::NoOp) + state.count(Status::Refused) + state.count(Status::Repeat);
    let (from, to) = (short(state.baseline), short(state.champion.value()));
    let gain = change(state.champion.value(), state.baseline, spec.metric.direction);
    let frontier = match state.count(Status::Frontier) {
        0 => String::new(),
        n => format!(" | Frontier: {n}"),
    };
    let commit = state.champion.commit.as_deref().unwrap_or("-");
    let commit: String = commit.chars().take(12).collect();
    format!(
        "=== Autoresearch Complete ({}/{most} iterations) ===\n\
         Baseline: {from} -> Final: {to} ({gain})\n\
         Keeps: {} | Discards: {} | Crashes: {crashes} | Without a measurement: {others}{frontier}\n\
         Best: iteration {} ({commit}): {best}\n\
         Estimated false keeps: {:.1}\n",
        state.number,
        state.keep_count(),
        state.count(Status::Discard),
        state.champion.number,
        state.false_keeps,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::state::ExperimentStep;
    use crate::research::tests_support::{research, row, state};

    #[test]
    fn the_summary_has_the_known_form() {
        let (spec, mut state) = (research(), state());
        for row in [row(1, Status::Keep, Some(8.0)), row(2, Status::Crash, None), row(3, Status::Discard, Some(9.0))] {
            state.apply(&ExperimentStep::Decided { row: Box::new(row) }, spec.metric.direction);
        }
        let text = summary(&spec, &state, Some(5));
        assert!(text.starts_with("=== Autoresearch Complete (3/5 iterations) ===\n"), "{text}");
        assert!(text.contains("Baseline: 10 -> Final: 8 (20.0 % better)"), "{text}");
        assert!(text.contains("Keeps: 1 | Discards: 1 | Crashes: 1"), "{text}");
        assert!(
            status_line(&spec, &state).contains("experiment 3: best 8 (baseline 10, 20.0 % better), 1 kept, 2 since")
        );
        assert!(is_line_due(5) && !is_line_due(6) && !is_line_due(0));
    }
}
