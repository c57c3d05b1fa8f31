//! Health of a running turn: slow, stuck or healthy, from signs of life and from the agent's
//! stream.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::correlated_stalls::Company;
use crate::phase::{Doing, Gaps, PhaseLiveness};
use crate::spec::GuardSpec;

/// Past a phase's soft limit, this long without any other sign of life means stuck.
const NO_EVIDENCE: Duration = Duration::from_secs(60);

/// A shorter announced wait is left to the CLI.
const LEFT_TO_CLI: Duration = Duration::from_secs(60);

/// Observation of a running turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    #[serde(with = "crate::time::millis")]
    pub running: Duration,
    /// Time since any sign of life: output, CPU, a new child.
    #[serde(with = "crate::time::millis")]
    pub silent: Duration,
    /// Lateness of the supervisor's own timer; time during which the node slept does not count
    /// against the agent.
    #[serde(with = "crate::time::millis")]
    pub timer_late: Duration,
    /// Summary of the stream, for an agent that has one.
    #[serde(rename = "pulse")]
    pub phase_liveness: Option<PhaseLiveness>,
    /// Whether other turns look stuck at the same time.
    pub company: Company,
}

/// Classification of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Signs of life, or not silent for long.
    Healthy,
    /// The agent waits for a person.
    Asking,
    /// Silent for too long.
    Stuck,
    /// The same steps repeat without end.
    Spinning,
    /// Tokens are used without a change in the workspace.
    NoDiff,
    /// The agent finished and its process does not end.
    Lingers,
    /// The CLI waits long for its vendor, and announced it.
    Announced,
    OverWall,
}

/// Classifies a sample by the loop's limits and by the usual gaps; every limit is extended by the
/// lateness of the supervisor's own timer.
pub fn health(sample: &Sample, spec: &GuardSpec, usual: &Gaps) -> Health {
    let stretch = sample.timer_late;
    if sample.running > spec.turn_timeout + stretch {
        return Health::OverWall;
    }
    let Some(phase_liveness) = &sample.phase_liveness else {
        let stuck = sample.silent > spec.turn_idle_timeout + stretch;
        return if stuck { Health::Stuck } else { Health::Healthy };
    };
    if phase_liveness.spinning {
        return Health::Spinning;
    }
    if spec.phases.no_diff.is_some_and(|most| phase_liveness.barren > most) {
        return Health::NoDiff;
    }
    let announced = Duration::from_millis(phase_liveness.allowed_ms.unwrap_or(0));
    if phase_liveness.doing == Doing::Retry && announced >= LEFT_TO_CLI {
        return Health::Announced;
    }
    let Some(limit) = usual.limit(phase_liveness, &spec.phases) else { return Health::Asking };
    let dead = sample.silent >= NO_EVIDENCE.min(limit.soft);
    if phase_liveness.quiet > limit.hard + stretch || phase_liveness.quiet > limit.soft + stretch && dead {
        return match phase_liveness.doing {
            Doing::AfterResult | Doing::Background => Health::Lingers,
            // Silence after an announced retry is that wait, of unknown length.
            Doing::Retry if phase_liveness.limited => Health::Announced,
            _ => Health::Stuck,
        };
    }
    Health::Healthy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn ask(sample: &Sample) -> Health {
        health(sample, &GuardSpec::default(), &Gaps::default())
    }

    #[test]
    fn a_machine_that_slept_does_not_blame_the_agent() {
        let sample = |running, silent, late| Sample {
            running: secs(running),
            silent: secs(silent),
            timer_late: secs(late),
            ..Sample::default()
        };
        assert_eq!(ask(&sample(9000, 8000, 8000)), Health::Healthy);
        assert_eq!(ask(&sample(700, 601, 0)), Health::Stuck);
        assert_eq!(ask(&sample(7201, 1, 0)), Health::OverWall);
    }

    #[test]
    fn a_quiet_tool_is_at_work_and_a_quiet_model_is_not() {
        let sample = |doing, quiet, silent| Sample {
            running: secs(quiet),
            silent: secs(silent),
            phase_liveness: Some(PhaseLiveness { doing, quiet: secs(quiet), ..PhaseLiveness::default() }),
            ..Sample::default()
        };
        assert_eq!(ask(&sample(Doing::Tool, 500, 500)), Health::Healthy);
        assert_eq!(ask(&sample(Doing::Model, 500, 5)), Health::Healthy, "slow, with signs of life");
        assert_eq!(ask(&sample(Doing::Model, 500, 61)), Health::Stuck);
        assert_eq!(ask(&sample(Doing::Model, 901, 5)), Health::Stuck, "past the hard limit");
        assert_eq!(ask(&sample(Doing::AfterResult, 11, 11)), Health::Lingers);
        assert_eq!(ask(&sample(Doing::Background, 899, 899)), Health::Healthy);
        assert_eq!(ask(&sample(Doing::Background, 901, 901)), Health::Lingers);
        assert_eq!(ask(&sample(Doing::Asking, 1, 1)), Health::Asking);
    }

    #[test]
    fn an_announced_wait_is_no_silence() {
        let sample = |allowed_ms, quiet, limited| Sample {
            running: secs(quiet),
            silent: secs(quiet),
            phase_liveness: Some(PhaseLiveness {
                doing: Doing::Retry,
                quiet: secs(quiet),
                allowed_ms,
                limited,
                ..PhaseLiveness::default()
            }),
            ..Sample::default()
        };
        assert_eq!(ask(&sample(Some(600_000), 1, true)), Health::Announced, "at once");
        assert_eq!(ask(&sample(Some(20_000), 19, true)), Health::Healthy, "the CLI does it by itself");
        assert_eq!(ask(&sample(Some(0), 61, true)), Health::Announced, "of unknown length");
        assert_eq!(ask(&sample(Some(0), 61, false)), Health::Stuck, "no vendor is behind it");
    }

    #[test]
    fn our_own_lateness_stretches_every_limit() {
        let late = |doing, quiet, late| Sample {
            running: secs(quiet),
            silent: secs(quiet),
            timer_late: secs(late),
            phase_liveness: Some(PhaseLiveness { doing, quiet: secs(quiet), ..PhaseLiveness::default() }),
            ..Sample::default()
        };
        for (doing, hard) in [(Doing::Starting, 120), (Doing::Model, 900), (Doing::Tool, 3600), (Doing::Subagent, 3600)]
        {
            assert_eq!(ask(&late(doing, hard + 1, 0)), Health::Stuck, "{doing:?}");
            assert_eq!(ask(&late(doing, hard + 1, hard)), Health::Healthy, "{doing:?}");
        }
        assert_eq!(ask(&late(Doing::AfterResult, 25, 60)), Health::Healthy);
        assert_eq!(ask(&late(Doing::Model, 7300, 7300)), Health::Healthy, "nor is its time up");
    }

    #[test]
    fn tokens_without_a_change_are_not_for_ever() {
        let sample = |barren| Sample {
            phase_liveness: Some(PhaseLiveness {
                doing: Doing::Model,
                barren: secs(barren),
                ..PhaseLiveness::default()
            }),
            ..Sample::default()
        };
        assert_eq!(ask(&sample(1800)), Health::Healthy);
        assert_eq!(ask(&sample(1801)), Health::NoDiff);
        let mut spec = GuardSpec::default();
        spec.phases.no_diff = None;
        assert_eq!(health(&sample(9000), &spec, &Gaps::default()), Health::Healthy, "the limit is off");
    }
}
