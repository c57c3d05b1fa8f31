//! What many runs amount to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{MeshReport, Setup};

const YEAR_SECS: f64 = 365.25 * 86_400.0;

/// What many runs amount to.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// The number of runs.
    pub runs: u64,
    /// Runs in which an invariant did not hold.
    pub violations: u64,
    secs: f64,
    node_secs: f64,
    /// Steps of nodes.
    pub steps: u64,
    /// Things that went wrong, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Tasks that landed.
    pub landed: u64,
    /// Results that came too late.
    pub late_result: u64,
    /// Times that a node became leader.
    pub epochs: u64,
    /// Tasks that no loop looked after and that were set right, and silences that were reported.
    pub reconciled: (u64, u64),
    /// The longest of all.
    pub longest_stall: Duration,
    /// The most of all.
    pub herd: f64,
    /// All traces as one number, whatever order they came in.
    pub trace: u64,
}

impl Sum {
    /// Adds a run.
    pub fn add(&mut self, setup: &Setup, report: &MeshReport) {
        self.runs += 1;
        self.violations += u64::from(report.violation.is_some());
        self.secs += report.time.as_secs_f64();
        self.node_secs += report.time.as_secs_f64() * setup.nodes as f64;
        self.steps += report.steps;
        for (kind, times) in &report.faults {
            *self.faults.entry(kind).or_default() += times;
        }
        self.landed += report.landed;
        self.late_result += report.late_result;
        self.epochs += report.epochs;
        self.reconciled.0 += report.reconciled.0;
        self.reconciled.1 += report.reconciled.1;
        self.longest_stall = self.longest_stall.max(report.longest_stall);
        self.herd = self.herd.max(report.herd);
        self.trace = self.trace.wrapping_add(report.trace_hash);
    }

    /// The simulated time in years.
    pub fn years(&self) -> f64 {
        self.secs / YEAR_SECS
    }

    /// The same, times the machines.
    pub fn node_years(&self) -> f64 {
        self.node_secs / YEAR_SECS
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, times) in &self.faults {
            writeln!(f, "{times:>9} {kind}")?;
        }
        let faults: u64 = self.faults.values().sum();
        write!(
            f,
            "{} meshes: {:.2} years simulated, {:.2} node-years, {} steps, {faults} faults of {} kinds, {} violations, \
             {} landed, {} too late, {} supervisors, {} tasks set right, {} silences, longest stall {:.1} s, at most {:.1} calls a second and node when the \
             hub is back, trace {:016x}",
            self.runs,
            self.years(),
            self.node_years(),
            self.steps,
            self.faults.len(),
            self.violations,
            self.landed,
            self.late_result,
            self.epochs,
            self.reconciled.0,
            self.reconciled.1,
            self.longest_stall.as_secs_f64(),
            self.herd,
            self.trace
        )
    }
}
