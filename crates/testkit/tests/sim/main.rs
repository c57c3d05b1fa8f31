//! The simulation: crashed at every step, by thousands of seeds, in a storm of faults, and with
//! mistakes planted on purpose.
//!
//! What has no end by itself ends after `SIM_SECONDS` (see `everloop_testkit::budget`); more is
//! simulated by `just soak`.

mod exhaustive;
mod fleet;
mod mesh;
mod planted;
mod seeds;
mod storm;

use std::sync::atomic::{AtomicUsize, Ordering};

use everloop_testkit::sim::run::RunReport;

/// Runs `each` for all of `items` on all cores; `each` must not depend on the state of its thread.
fn in_parallel<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(item);
                }
            });
        }
    });
}

/// A line about what was simulated, with what is needed to simulate it again.
#[expect(clippy::print_stderr, reason = "what was simulated is worth a line")]
fn note(line: &str) {
    eprintln!("{line}");
}

/// Fails with what is needed to see it again.
#[track_caller]
fn must_be_clean(what: &str, report: &RunReport) {
    if let Some(violation) = &report.violation {
        let (name, text) = (violation.invariant, &violation.text);
        panic!("{what}: {name}: {text}\n{}", report.tail.join("\n"));
    }
}
