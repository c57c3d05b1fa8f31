//! Values for the tests of research.

use std::collections::BTreeMap;
use std::time::Duration;

use super::row::{Row, Status};
use super::sample::{Measured, Sample};
use super::state::{ExperimentStep, ResearchState};
use super::{Direction, KeepRule, MAX_LINES, MetricSpec, ResearchSpec};
use crate::ids::TaskId;
use crate::spec::CheckSpec;
use crate::test_evidence::Proof;
use crate::time::Time;

pub fn metric() -> MetricSpec {
    let check = CheckSpec {
        name: "metric".to_owned(),
        run: "./bench.sh".to_owned(),
        timeout: Duration::from_secs(600),
        weight: 1,
        pin: String::new(),
        proof: Proof::default(),
        parallel: false,
    };
    let direction = Direction::Lower;
    MetricSpec { check, direction, name: None, json_path: None, min: None, max: None, exclusive: false }
}

pub fn research() -> ResearchSpec {
    ResearchSpec {
        metric: metric(),
        scope: Vec::new(),
        goal_value: None,
        rule: KeepRule::Race,
        simplicity: true,
        patience: None,
        plan: Vec::new(),
        max_lines: MAX_LINES,
        results: None,
    }
}

pub fn row(number: u32, status: Status, value: Option<f64>) -> Row {
    Row {
        number,
        commit: Some("abc".to_owned()),
        base: None,
        value,
        delta: None,
        samples: value.into_iter().collect(),
        guard: Some(true),
        status,
        description: format!("change {number}"),
        why: String::new(),
        task: TaskId::new(format!("t{number}")),
        millis: 1500,
        agent: "script".to_owned(),
        microusd: 0,
        others: BTreeMap::new(),
        fixes: 0,
        plan: None,
        hash: None,
        luck: 0.0,
        at: Time(0),
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
