//! Slow, stuck or healthy, for agents without a stream: signs of life only.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What was seen of a running turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// How long it has been running.
    #[serde(with = "crate::time::millis")]
    pub running: Duration,
    /// Time since any sign of life: output, CPU, a new child.
    #[serde(with = "crate::time::millis")]
    pub silent: Duration,
    /// How late our own timer was; a machine that slept must not blame the agent.
    #[serde(with = "crate::time::millis")]
    pub timer_late: Duration,
}

/// What a sample says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Signs of life, or not silent for long.
    Healthy,
    /// Silent for too long.
    Stuck,
    /// Past its wall budget.
    OverWall,
}

/// Judges a sample. `silence` and `wall` are the loop's limits; both are stretched by how late our own timer is.
pub fn health(sample: &Sample, silence: Duration, wall: Duration) -> Health {
    let stretch = sample.timer_late;
    if sample.running > wall + stretch {
        Health::OverWall
    } else if sample.silent > silence + stretch {
        Health::Stuck
    } else {
        Health::Healthy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_slept_does_not_blame_the_agent() {
        let secs = Duration::from_secs;
        let asleep = Sample { running: secs(9000), silent: secs(8000), timer_late: secs(8000) };
        assert_eq!(health(&asleep, secs(600), secs(7200)), Health::Healthy);
        let silent = Sample { running: secs(700), silent: secs(601), timer_late: secs(0) };
        assert_eq!(health(&silent, secs(600), secs(7200)), Health::Stuck);
        let long = Sample { running: secs(7201), silent: secs(1), timer_late: secs(0) };
        assert_eq!(health(&long, secs(600), secs(7200)), Health::OverWall);
    }
}
