//! Many nodes around one hub, on this thread alone: the elapsed time is time of one core.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use everloop_testkit::planted::TABLE;
use everloop_testkit::sim::fault::FaultPlan;
use everloop_testkit::sim::mesh::faults::{EVERY, MeshFault};
use everloop_testkit::sim::mesh::{Setup, Sum, days, random, run as simulate, run_with, small};
use nix::time::{ClockId, clock_gettime};

/// Sizes in turn, unless one is given.
const SIZES: [u64; 6] = [5, 3, 8, 5, 20, 50];
/// One mesh in this many has faults for hours; the others are watched for days.
const STORM_ONE_IN: u64 = 4;

/// Options of the mesh.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    /// Number of nodes.
    pub nodes: Option<u64>,
    /// Ends after this many minutes of CPU time.
    pub minutes: Option<u64>,
    /// Every two faults at every two places of a small mesh.
    pub pairs: bool,
}

/// CPU time of this process.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Runs these seeds.
#[expect(clippy::print_stdout, reason = "this binary talks to a terminal")]
pub fn run(seeds: Range<u64>, wanted: Wanted) -> ExitCode {
    let mut sum = Sum::default();
    let runs: Box<dyn Iterator<Item = (Setup, u64, FaultPlan<MeshFault>)>> =
        if wanted.pairs { Box::new(pairs()) } else { Box::new(seeds.map(|seed| drawn(seed, wanted.nodes))) };
    for (setup, seed, plan) in runs {
        let what = if matches!(plan, FaultPlan::At(_)) { format!(", {plan:?}") } else { String::new() };
        let report = run_with(&setup, seed, plan);
        sum.add(&setup, &report);
        if let Some(violation) = &report.violation {
            println!("{}", report.tail.join("\n"));
            println!("VIOLATION seed {seed}{what} {setup:?}: {}: {}", violation.invariant, violation.text);
            break;
        }
        if wanted.minutes.is_some_and(|minutes| cpu().as_secs() >= minutes * 60) {
            break;
        }
    }
    let secs = cpu().as_secs_f64().max(0.001);
    let an_hour = |years: f64| years / secs * 3600.0;
    println!("{sum}");
    println!(
        "{secs:.1} s of a core: {:.0} years and {:.0} node-years per CPU-hour",
        an_hour(sum.years()),
        an_hour(sum.node_years())
    );
    ExitCode::from(u8::from(sum.violations > 0))
}

fn drawn(seed: u64, nodes: Option<u64>) -> (Setup, u64, FaultPlan<MeshFault>) {
    let storm = seed.is_multiple_of(STORM_ONE_IN);
    let size = nodes.unwrap_or(SIZES[(seed % 6) as usize]);
    let setup = if storm { random(seed) } else { days(seed, size) };
    let chance = setup.chance();
    (Setup { nodes: nodes.unwrap_or(setup.nodes), ..setup }, seed, chance)
}

fn pairs() -> impl Iterator<Item = (Setup, u64, FaultPlan<MeshFault>)> {
    let places = simulate(&small(), 0).points;
    let faults = || EVERY.into_iter();
    let first = (1..=places).flat_map(move |place| faults().map(move |fault| (place, fault)));
    let both = first.flat_map(move |one| {
        let second = (one.0 + 1..=places).flat_map(move |place| faults().map(move |fault| (place, fault)));
        second.map(move |two| vec![one, two])
    });
    both.map(|faults| (small(), 0, FaultPlan::At(faults)))
}

/// Plants each bug and prints how it was found.
#[expect(clippy::print_stdout, reason = "this binary talks to a terminal")]
pub fn planted() -> ExitCode {
    let mut missed = 0;
    for row in TABLE {
        let before = cpu();
        let found = row.find();
        let secs = cpu().saturating_sub(before).as_secs_f64();
        if let Some(place) = found {
            println!("{secs:>7.2} s  {:?}: {} ({place}): {}", row.bug, row.caught_by, row.mistake);
        } else {
            missed += 1;
            println!("{secs:>7.2} s  {:?}: NOT FOUND: {}", row.bug, row.mistake);
        }
    }
    println!("{} mistakes, {missed} not found", TABLE.len());
    ExitCode::from(u8::from(missed > 0))
}
