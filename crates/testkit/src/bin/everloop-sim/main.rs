//! `everloop-sim`: runs seeds of the simulation and prints a report. Exit 1 when an invariant does
//! not hold.

mod mesh;

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use everloop_core::planted::{self, Bug};
use everloop_testkit::sim::fault::{Fault, FaultPlan};
use everloop_testkit::sim::run::{RunReport, run};
use everloop_testkit::sim::scenario::{Scenario, bad_account, known, random, storm};

const USAGE: &str = "\
usage: everloop-sim [--seeds N | --seeds A..B] [--scenario NAME] [--every-step] [--bug NAME] [--trace]
       everloop-sim --mesh [--seeds …] [--nodes N] [--minutes CPU-MINUTES] [--pairs] [--bug NAME]
       everloop-sim --planted";

struct Options {
    seeds: Range<u64>,
    scenario: Option<Scenario>,
    every_step: bool,
    bug: Option<Bug>,
    trace: bool,
    mesh: bool,
    planted: bool,
    /// Options of the mesh.
    wanted: mesh::Wanted,
}

#[derive(Default)]
struct Sum {
    runs: u64,
    steps: u64,
    faults: u64,
    crashes: u64,
    time: Duration,
    longest_stall: Duration,
    hash: u64,
    violations: u64,
    marks: BTreeMap<&'static str, u64>,
}

#[expect(clippy::print_stderr, clippy::print_stdout, reason = "this binary talks to a terminal")]
fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    planted::plant(options.bug);
    if options.planted {
        return mesh::planted();
    }
    if options.mesh {
        return mesh::run(options.seeds, options.wanted);
    }
    let began = Instant::now();
    let mut sum = Sum::default();
    for (what, report) in reports(&options) {
        sum.add(&report);
        if options.trace {
            println!("{}", report.tail.join("\n"));
        }
        if let Some(violation) = &report.violation {
            println!("{}", report.tail.join("\n"));
            println!("VIOLATION {what}: {}: {}", violation.invariant, violation.text);
            break;
        }
    }
    for (mark, times) in &sum.marks {
        println!("{times:>9} {mark}");
    }
    println!("{}", sum.describe(began.elapsed()));
    ExitCode::from(u8::from(sum.violations > 0))
}

fn reports(options: &Options) -> Box<dyn Iterator<Item = (String, RunReport)> + '_> {
    match &options.scenario {
        None => Box::new(options.seeds.clone().map(|seed| (format!("seed {seed}"), run_seed(seed)))),
        Some(scenario) if options.every_step => {
            let steps = run(scenario, FaultPlan::Calm, options.seeds.start).steps;
            let points = (1..=steps).flat_map(|s| everloop_testkit::sim::fault::EVERY.into_iter().map(move |f| (s, f)));
            Box::new(points.map(|(step, fault): (u64, Fault)| {
                let plan = FaultPlan::At(vec![(step, fault)]);
                (format!("{}, {fault:?} at step {step}", scenario.name), run(scenario, plan, options.seeds.start))
            }))
        }
        Some(scenario) => Box::new(
            options.seeds.clone().map(|s| (format!("{}, seed {s}", scenario.name), run(scenario, FaultPlan::Calm, s))),
        ),
    }
}

fn run_seed(seed: u64) -> RunReport {
    run(&random(seed), FaultPlan::Random { one_in: 20 + seed % 100, most: 12 }, seed)
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        seeds: 0..100,
        scenario: None,
        every_step: false,
        bug: None,
        trace: false,
        mesh: false,
        planted: false,
        wanted: mesh::Wanted::default(),
    };
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--every-step" => options.every_step = true,
            "--trace" => options.trace = true,
            "--mesh" => options.mesh = true,
            "--planted" => options.planted = true,
            "--pairs" => options.wanted.pairs = true,
            "--nodes" => options.wanted.nodes = Some(number(&args.next().ok_or("--nodes needs a number")?)?),
            "--minutes" => {
                options.wanted.minutes = Some(number(&args.next().ok_or("--minutes needs a number")?)?);
                options.seeds.end = u64::MAX;
            }
            "--seeds" => options.seeds = seeds(&args.next().ok_or("--seeds needs a number or a range")?)?,
            "--scenario" => {
                let name = args.next().ok_or("--scenario needs a name")?;
                let all = known().into_iter().chain([storm(), bad_account()]);
                let names = known().iter().map(|s| s.name.clone()).collect::<Vec<_>>().join("`, `");
                let found = all.into_iter().find(|s| s.name == name);
                options.scenario = Some(found.ok_or(format!("no such scenario; there are `{names}` and `storm`"))?);
            }
            "--bug" => {
                let name = args.next().ok_or("--bug needs a name")?;
                let found = planted::ALL.iter().chain(planted::MESH).find(|bug| format!("{bug:?}") == name);
                options.bug = Some(*found.ok_or(format!("no such bug; there are {:?}", planted::ALL))?);
            }
            other => return Err(format!("unknown argument `{other}`")),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|e| format!("`{text}`: {e}"))
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => Ok(0..number(text)?),
    }
}

impl Sum {
    fn add(&mut self, report: &RunReport) {
        self.runs += 1;
        self.steps += report.steps;
        self.faults += u64::from(report.faults);
        self.crashes += u64::from(report.crashes);
        self.time += report.time;
        self.longest_stall = self.longest_stall.max(report.longest_stall);
        self.hash = self.hash.rotate_left(1) ^ report.trace_hash;
        self.violations += u64::from(report.violation.is_some());
        for (mark, times) in &report.marks {
            *self.marks.entry(mark).or_default() += times;
        }
    }

    fn describe(&self, took: Duration) -> String {
        let days = self.time.as_secs_f64() / 86_400.0;
        let secs = took.as_secs_f64().max(0.001);
        format!(
            "{} runs in {secs:.1} s ({:.0} a second), {days:.1} days simulated, {} steps, {} faults, {} crashes, \
             longest stall {} s, trace {:016x}, {} violations",
            self.runs,
            self.runs as f64 / secs,
            self.steps,
            self.faults,
            self.crashes,
            self.longest_stall.as_secs(),
            self.hash,
            self.violations
        )
    }
}
