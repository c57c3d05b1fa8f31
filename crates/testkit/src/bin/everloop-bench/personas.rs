//! Personas that sleep: what one costs in memory, what all of them cost in silence, and how soon
//! one is awake under 50 signals a second, from ten of them to twenty thousand.

mod floor;
mod population;
mod signals;

use std::time::Duration;

use everloop_store::{Ledger, OpenMode};

use self::floor::Floor;
use self::signals::Storm;
use crate::measure::{Times, usage};
use crate::report::{BenchRow, heading, mb, ms, ratio, remark};
use crate::scene::{Project, Scene, Supervised, wait_long};
use crate::{Options, Result};

const COUNTS: [usize; 5] = [10, 100, 1_000, 5_000, 20_000];
const QUICK: [usize; 3] = [10, 1_000, 5_000];
/// The number that the goals are about.
const MANY: usize = 5_000;
const PER_SECOND: u32 = 50;

/// What one number of personas costs.
struct Curve {
    count: usize,
    anon_kb: u64,
    /// Share of a core in silence.
    silent: f64,
    /// Looks in that time, which find nothing.
    looks: u64,
    wakes: Times,
}

pub fn run(options: &Options) -> Result<()> {
    let window = options.length.pick(Duration::from_secs(60), Duration::from_secs(20));
    let storm = options.length.pick(Duration::from_secs(20), Duration::from_secs(6));
    let counts = options.length.pick(&COUNTS[..], &QUICK[..]);
    heading(&format!(
        "personas: mixed cadences; {} s of silence, then {PER_SECOND} signals/s for {} s",
        window.as_secs(),
        storm.as_secs()
    ));
    let mut all: Vec<Curve> = Vec::new();
    for count in counts {
        let curve = measure(options, *count, (window, storm))?;
        print(&curve, all.first());
        all.push(curve);
    }
    remark("memory is anonymous, after the silence; a wake is from before the signal's commit to the permit's request");
    remark("two turns run at once, so most of the woken wait for a slot; what they cost is in these times");
    Ok(())
}

fn print(curve: &Curve, first: Option<&Curve>) {
    let goal = |row: BenchRow, text: &str, met: bool| if curve.count == MANY { row.goal(text, met) } else { row };
    let count = curve.count;
    let memory = BenchRow::new(format!("{count} personas: memory"), mb(curve.anon_kb));
    goal(memory, "< 60 MB", curve.anon_kb * 1024 < 60_000_000).print();
    if let Some(first) = first {
        let grown = curve.anon_kb.saturating_sub(first.anon_kb) as f64 * 1024.0;
        let each = grown / (count - first.count) as f64;
        BenchRow::new(format!("{count} personas: memory of each"), format!("{each:.0} bytes")).print();
    }
    let share = format!("{:.2} % ({} looks)", curve.silent * 100.0, curve.looks);
    goal(BenchRow::new(format!("{count} personas: a core in silence"), share), "< 1 %", curve.silent < 0.01).print();
    let (p50, p99) = (curve.wakes.median(), curve.wakes.p99());
    let wakes = BenchRow::new(format!("{count} personas: wake"), format!("p50 {} p99 {}", ms(p50), ms(p99)));
    goal(wakes, "p99 <= 200 ms", p99 <= Duration::from_millis(200)).print();
}

fn measure(options: &Options, count: usize, (window, storm): (Duration, Duration)) -> Result<Curve> {
    let scene = Scene::new(options, Project::Plain)?;
    let ids = population::create(&scene, count)?;
    let supervised = Supervised::start(&scene)?;
    let ledger = scene.ledger(OpenMode::ReadOnly)?;
    settled(&supervised, count)?;
    let (before, from) = (usage(supervised.pid())?, ledger.last_seq()?);
    std::thread::sleep(window);
    let after = usage(supervised.pid())?;
    let looks = signals::looks(&ledger, from)?;
    let silent = after.cpu.saturating_sub(before.cpu).as_secs_f64() / window.as_secs_f64();
    let wakes = Storm { scene: &scene, ids: &ids, per_second: PER_SECOND, length: storm }.run()?;
    Ok(Curve { count, anon_kb: after.anon_kb, silent, looks, wakes })
}

/// Waits until the supervisor has picked all of them up, and its mirror and its audit are done: it
/// works for less than a tenth of a second in one.
fn settled(supervised: &Supervised, count: usize) -> Result<()> {
    let mut before = usage(supervised.pid())?.cpu;
    let mut quiet = 0;
    wait_long(&format!("{count} personas to sleep"), || {
        std::thread::sleep(Duration::from_secs(1));
        let now = usage(supervised.pid())?.cpu;
        let worked = now.saturating_sub(std::mem::replace(&mut before, now));
        quiet = if worked < Duration::from_millis(100) { quiet + 1 } else { 0 };
        Ok(quiet >= 3)
    })
}

/// The local command line: one persona, one signal after the other.
pub fn wake(options: &Options) -> Result<()> {
    let samples = options.length.pick(200, 30);
    heading(&format!("wake: {samples} signals to a persona that sleeps, each until the request for a permit"));
    let floor = Floor::new(options)?.times(samples)?;
    let scene = Scene::new(options, Project::Plain)?;
    let ids = population::create(&scene, 1)?;
    let _supervised = Supervised::start(&scene)?;
    let (name, by_row) = (population::name(0), signals::one_by_one(&scene, &ids, samples, None)?);
    let by_cli = signals::one_by_one(&scene, &ids, samples, Some(&name))?;
    for (what, times) in [("written by another process", by_row), ("everloop signal", by_cli)] {
        let (p50, p99) = (times.median(), times.p99());
        BenchRow::new(what, format!("p50 {} p99 {}", ms(p50), ms(p99)))
            .floor("bare SQLite and pipe, p99", &ms(floor.p99()), ratio(p99, floor.p99()))
            .goal("p99 <= 20 ms", p99 <= Duration::from_millis(20))
            .print();
    }
    remark("floor: the same row written with a full sync, a byte in a pipe, and the row taken with a full sync");
    Ok(())
}
