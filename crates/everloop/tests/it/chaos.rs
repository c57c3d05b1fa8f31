//! A real mesh under faults: nodes in networks of their own, a hub behind proxies, kills,
//! partitions. A minute of what `just chaos` does for half an hour.

use std::path::PathBuf;
use std::time::Duration;

use everloop_testkit::chaos::{self, ChaosOptions};
use everloop_testkit::offline::offline;
use tempfile::TempDir;

/// Leases are a fifth as long as in production, and so are the faults.
const TIME_SCALE: u32 = 5;

fn options(root: &TempDir, length: Duration) -> ChaosOptions {
    let everloop = PathBuf::from(env!("CARGO_BIN_EXE_everloop"));
    ChaosOptions {
        everloop,
        dir: root.path().to_owned(),
        seed: 4,
        length,
        tasks: 0,
        checks: 10,
        time_scale: TIME_SCALE,
        tell,
    }
}

#[expect(clippy::print_stdout, reason = "a test has no other way to show what it measured")]
fn tell(line: &str) {
    println!("{line}");
}

#[test]
fn long_a_mesh_in_bad_weather_loses_nothing_and_counts_nothing_twice() {
    offline(|| {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        let report = chaos::run(&options(&root, Duration::from_secs(60)));
        tell(&report.to_string());
        assert!(report.violations().is_empty(), "{report}");
        let faults: u32 = report.faults.iter().map(|(_, times)| times).sum();
        assert!(
            faults >= 8 && report.faults.len() >= 4 && report.proof.landed >= 20,
            "there were faults, and there was work: {report}"
        );
    });
}

#[test]
fn long_a_hub_that_goes_and_comes_back_costs_nothing() {
    offline(|| {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        // Longer than the lease of a task: no node may be punished for what the hub did. Enough
        // work that no node is idle before all have begun.
        let options = ChaosOptions { checks: 20, ..options(&root, Duration::from_secs(25)) };
        let report = chaos::outage::run(&options);
        tell(&report.to_string());
        assert!(report.violations().is_empty(), "{report}");
    });
}
