//! The cost of a supervisor while its loop sleeps: memory, CPU, writes, starts.

use std::path::Path;
use std::time::{Duration, SystemTime};

use everloop_store::OpenMode;

use crate::measure::usage;
use crate::report::{BenchRow, heading, mb, remark};
use crate::scene::{Project, STAMPS, Scene, Supervised, wait_until};
use crate::{Options, Result};

/// After this the first turn's caches are settled.
const SETTLE: Duration = Duration::from_secs(2);

pub fn run(options: &Options) -> Result<()> {
    let minute = options.length.pick(Duration::from_secs(60), Duration::from_secs(10));
    heading(&format!("idle: a supervisor with a loop in a long gap, over {} s", minute.as_secs()));
    let scene = Scene::new(options, Project::Plain)?;
    let stamps = scene.path(STAMPS);
    let agent = scene.agent(&format!("__stamp '{}'", stamps.display()));
    let supervised = Supervised::start(&scene)?;
    scene.finish(&["run", "x", "--check", "false", "--agent-cmd", &agent, "--min-gap", "1h", "--detach"], 0)?;
    wait_until("the first turn to end", || Ok(scene.only_loop()?.phase == "waiting" && starts(&stamps) == 1))?;
    std::thread::sleep(SETTLE);

    let ledger = scene.ledger(OpenMode::ReadOnly)?;
    let files = footprint(&scene.state());
    let version = ledger.data_version()?;
    let before = usage(supervised.pid())?;
    std::thread::sleep(minute);
    let after = usage(supervised.pid())?;

    // Anonymous memory is what the process costs: the kernel can drop all else and read it again
    // from the binary.
    BenchRow::new("anonymous memory", mb(after.anon_kb)).goal("<= 8 MB", after.anon_kb * 1024 <= 8_000_000).print();
    BenchRow::new("resident memory (RSS)", mb(after.rss_kb)).print();
    let (dirty, pss, peak) = (mb(after.private_dirty_kb), mb(after.pss_kb), mb(after.peak_rss_kb));
    remark(&format!("written to (Private_Dirty) {dirty}, fair share (Pss) {pss}, peak of RSS {peak}"));
    let cpu = after.cpu.saturating_sub(before.cpu);
    // A shorter measurement is scaled up, so that the goal means the same.
    let cpu = cpu.mul_f64(60.0 / minute.as_secs_f64());
    let met = cpu <= Duration::from_millis(20);
    BenchRow::new("CPU per 60 s", format!("{:.5} s", cpu.as_secs_f64())).goal("<= 0.02 s", met).print();
    remark(&format!("woke {} times", after.naps - before.naps));
    let commits = u64::from(ledger.data_version()? != version);
    let changed = u64::from(footprint(&scene.state()) != files);
    let quiet = commits + changed == 0;
    let wrote = if quiet { "none" } else { "some" };
    BenchRow::new("writes to the ledger", wrote).goal("none", quiet).print();
    remark(&format!("write calls of any kind: {}", after.write_calls - before.write_calls));
    let extra = starts(&stamps) - 1;
    BenchRow::new("agent starts", extra.to_string()).goal("0", extra == 0).print();
    remark("peers: sloop 9 MB and 0.02 s, ralph-tui 66 MB, claudeloop 77, ralphy 99, Bernstein 615 MB and 6.2 s");
    Ok(())
}

fn starts(stamps: &Path) -> usize {
    std::fs::read_to_string(stamps).map_or(0, |text| text.lines().count())
}

/// Size and time of the database's files.
fn footprint(state: &Path) -> Vec<(u64, Option<SystemTime>)> {
    let meta = |name: &str| std::fs::metadata(state.join(name)).ok();
    let of = |m: std::fs::Metadata| (m.len(), m.modified().ok());
    ["ledger.db", "ledger.db-wal"].into_iter().filter_map(meta).map(of).collect()
}
