//! Runs a scenario under a plan of faults and reports.

use std::collections::BTreeMap;
use std::time::Duration;

use everloop_core::event::LoopEnd;
use everloop_core::ids::LoopId;

use super::fault::FaultPlan;
use super::git::Tree;
use super::scenario::Scenario;
use super::world::{Violation, World};

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The invariant that does not hold, if one does not.
    pub violation: Option<Violation>,
    /// Steps at which something could have gone wrong.
    pub steps: u64,
    pub faults: u32,
    /// Supervisors that died.
    pub crashes: u32,
    pub time: Duration,
    /// The longest time in which a loop that was free to go on wrote nothing.
    pub longest_stall: Duration,
    /// Hash over everything that happened.
    pub trace_hash: u64,
    /// The end of the trace, in words.
    pub tail: Vec<String>,
    pub endings: BTreeMap<LoopId, LoopEnd>,
    /// What the operator has in the end.
    pub results: BTreeMap<LoopId, Tree>,
    pub starts: usize,
    /// Open tickets, by key.
    pub tickets: Vec<String>,
    /// How often each of [`MARKS`](super::check::MARKS) was met.
    pub marks: BTreeMap<&'static str, u64>,
}

pub fn run(scenario: &Scenario, plan: FaultPlan, seed: u64) -> RunReport {
    let mut world = World::new(scenario, plan, seed);
    let mut violation = world.run().err();
    if violation.is_none() {
        violation = wrong_ending(scenario, &world);
    }
    world.report(violation)
}

fn wrong_ending(scenario: &Scenario, world: &World) -> Option<Violation> {
    let wanted = scenario.ends?;
    let (id, invariants) = world.watch.loops.iter().find(|(_, w)| w.fold.phase.label() != wanted)?;
    let text = format!("loop {id} ended {}, it should be {wanted}", invariants.fold.phase.label());
    Some(Violation { invariant: "ending", text })
}

impl World {
    fn report(self, violation: Option<Violation>) -> RunReport {
        use everloop_store::{Ledger as _, Tickets};
        let loops = &self.watch.loops;
        let open = self.ledger.model().tickets(Tickets::Open).unwrap_or_default();
        RunReport {
            violation,
            steps: self.faults.steps,
            faults: self.faults.met,
            crashes: self.watch.crashes,
            time: Duration::from_millis(self.now_ms),
            longest_stall: Duration::from_millis(self.watch.longest_stall_ms),
            trace_hash: self.trace.hash,
            tail: self.trace.tail(),
            endings: loops.iter().filter_map(|(id, w)| Some((id.clone(), w.ended.clone()?))).collect(),
            results: self.sites.iter().map(|(id, s)| (id.clone(), s.result())).collect(),
            starts: loops.values().map(|w| w.starts.len()).sum(),
            tickets: open.into_iter().map(|t| t.key).collect(),
            marks: self.watch.marks.clone(),
        }
    }
}
