//! Values for the tests of research.

use std::collections::BTreeMap;

use super::row::{Row, Status};
use super::sample::{Measured, Sample};
use super::state::{ExperimentStep, ResearchState};
use super::{Direction, MetricSpec, ResearchSpec};
use crate::ids::{LoopId, TaskId};
use crate::time::Time;

/// A metric of which less is better.
pub fn metric() -> MetricSpec {
    MetricSpec::new("./bench.sh".to_owned(), Direction::Lower)
}

/// A run with that metric.
pub fn research() -> ResearchSpec {
    ResearchSpec::new(metric())
}

/// An experiment with one measurement.
pub fn row(number: u32, status: Status, value: Option<f64>) -> Row {
    Row {
        commit: Some("abc".to_owned()),
        value,
        samples: value.into_iter().collect(),
        guard: Some(true),
        description: format!("change {number}"),
        millis: 1500,
        agent: "script".to_owned(),
        ..Row::new(number, status, TaskId::of_loop(&LoopId::new("k3f9"), number), Time(0))
    }
}

fn began(values: &[f64]) -> ResearchState {
    let sample =
        |value: &f64| Sample { result: Measured::Value { value: *value, others: BTreeMap::new() }, millis: 10 };
    let samples = values.iter().map(sample).collect();
    let row = Row { commit: Some("start".to_owned()), ..row(0, Status::Baseline, Some(values[0])) };
    let mut state = ResearchState::default();
    state.apply(&ExperimentStep::Baseline { samples, row: Box::new(row) }, Direction::Lower);
    state
}

/// A run whose metric is always 10.
pub fn state() -> ResearchState {
    began(&[10.0, 10.0, 10.0])
}

/// A run whose metric varies around 10.
pub fn noisy_state() -> ResearchState {
    began(&[10.0, 10.4, 9.6, 10.2, 9.8])
}
