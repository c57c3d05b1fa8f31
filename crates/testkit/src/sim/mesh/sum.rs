//! What many runs amount to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{MeshReport, Setup};

const YEAR_SECS: f64 = 365.25 * 86_400.0;

/// What is counted in a run, and added up over many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub time: Duration,
    pub steps: u64,
    /// Things that went wrong, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Attempts at tasks that were begun, and tasks that landed.
    pub begun: u64,
    pub landed: u64,
    /// Results that came too late.
    pub late_result: u64,
    /// Times that a node became leader.
    pub epochs: u64,
    /// The most machines that were quarantined at once.
    pub most_out: u64,
    /// Tasks that no loop looked after and that were set right, and silences that were reported.
    pub reconciled: (u64, u64),
    /// The longest time for which a free task waited while a healthy node had nothing to do.
    pub longest_stall: Duration,
    /// The most calls that reached a hub in one second of the minute after it came back, for each
    /// node.
    pub herd: f64,
    /// All steps as one number; of many runs, whatever order they came in.
    pub trace_hash: u64,
}

/// What many runs amount to.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub runs: u64,
    /// Runs in which an invariant did not hold.
    pub violations: u64,
    /// The simulated time of all machines, in seconds.
    node_secs: f64,
    pub tally: Tally,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.time += other.time;
        self.steps += other.steps;
        for (kind, times) in &other.faults {
            *self.faults.entry(kind).or_default() += times;
        }
        self.begun += other.begun;
        self.landed += other.landed;
        self.late_result += other.late_result;
        self.epochs += other.epochs;
        self.most_out = self.most_out.max(other.most_out);
        self.reconciled.0 += other.reconciled.0;
        self.reconciled.1 += other.reconciled.1;
        self.longest_stall = self.longest_stall.max(other.longest_stall);
        self.herd = self.herd.max(other.herd);
        self.trace_hash = self.trace_hash.wrapping_add(other.trace_hash);
    }
}

impl Sum {
    pub fn add(&mut self, setup: &Setup, report: &MeshReport) {
        self.runs += 1;
        self.violations += u64::from(report.violation.is_some());
        self.node_secs += report.tally.time.as_secs_f64() * setup.nodes as f64;
        self.tally.add(&report.tally);
    }

    /// The simulated time in years.
    pub fn years(&self) -> f64 {
        self.tally.time.as_secs_f64() / YEAR_SECS
    }

    /// The same, times the machines.
    pub fn node_years(&self) -> f64 {
        self.node_secs / YEAR_SECS
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { steps, faults, landed, late_result, epochs, reconciled, longest_stall, herd, .. } = &self.tally;
        for (kind, times) in faults {
            writeln!(f, "{times:>9} {kind}")?;
        }
        let (runs, years, node_years) = (self.runs, self.years(), self.node_years());
        write!(
            f,
            "{runs} meshes: {years:.2} years simulated, {node_years:.2} node-years, {steps} steps, {} faults of {} kinds, \
             {} violations, {landed} landed, {late_result} too late, {epochs} supervisors, {} tasks set right, \
             {} silences, longest stall {:.1} s, at most {herd:.1} calls a second and node when the hub is back, \
             trace {:016x}",
            faults.values().sum::<u64>(),
            faults.len(),
            self.violations,
            reconciled.0,
            reconciled.1,
            longest_stall.as_secs_f64(),
            self.tally.trace_hash
        )
    }
}
