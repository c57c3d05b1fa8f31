//! Deliberate mistakes: each is found by an invariant, else the tests are wrong.

use everloop_core::planted::{self, ALL, Bug};
use everloop_testkit::sim::fault::{EVERY, Plan};
use everloop_testkit::sim::run::{Report, run};
use everloop_testkit::sim::scenario::{Scenario, known, random, storm};

#[test]
fn table() {
    for bug in ALL {
        planted::plant(Some(*bug));
        let mut found = Vec::new();
        for s in known().iter().chain([&storm()]) {
            let r = run(s, Plan::Calm, 0);
            if let Some(v) = r.violation { found.push(format!("{}: {}", s.name, v.invariant)); }
        }
        if found.is_empty() {
            'o: for s in known().iter() {
                let steps = run(s, Plan::Calm, 0).steps;
                for step in 1..=steps { for f in EVERY {
                    let r = run(s, Plan::At(vec![(step, f)]), 0);
                    if let Some(v) = r.violation { found.push(format!("{} {step} {f:?}: {} {}", s.name, v.invariant, v.text)); break 'o; }
                } }
            }
        }
        if found.is_empty() {
            for seed in 0..500 {
                let r = run(&random(seed), Plan::Weather { one_in: 20 + seed % 100, most: 12 }, seed);
                if let Some(v) = r.violation { found.push(format!("seed {seed}: {} {}", v.invariant, v.text)); break; }
            }
        }
        eprintln!("{bug:?}: {found:?}");
    }
    planted::plant(None);
}
