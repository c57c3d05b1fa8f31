//! Outputs that real runners printed (`fixtures`, versions in `crates/testkit/test-runners.sh`): of
//! passing, failing, skipped and deleted tests, and of processes that the code under test ended.

use super::*;

/// An output by its name, with or without its counts.
macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../fixtures/", $name, ".txt"))
    };
    ($name:literal, $ran:literal, $skipped:literal, $failed:literal) => {
        ($name, recorded!($name), counts($ran, $skipped, $failed))
    };
}

#[test]
fn counts_are_those_of_the_runners() {
    let rows = [
        recorded!("pytest-pass", 4, 0, 0),
        recorded!("pytest-fail", 4, 0, 3),
        recorded!("pytest-skip", 2, 2, 0),
        recorded!("pytest-fewer", 3, 0, 0),
        recorded!("pytest-quiet-pass", 4, 0, 0),
        recorded!("pytest-quiet-fail", 4, 0, 3),
        recorded!("pytest-quiet-skip", 2, 2, 0),
        recorded!("pytest-quiet-fewer", 3, 0, 0),
        recorded!("pytest-verbose-pass", 4, 0, 0),
        recorded!("unittest-pass", 4, 0, 0),
        recorded!("unittest-fail", 4, 0, 3),
        recorded!("unittest-skip", 2, 2, 0),
        recorded!("unittest-fewer", 3, 0, 0),
        recorded!("unittest-verbose-pass", 4, 0, 0),
        recorded!("unittest-verbose-fail", 4, 0, 3),
        recorded!("unittest-verbose-skip", 2, 2, 0),
        recorded!("unittest-verbose-fewer", 3, 0, 0),
        recorded!("pytest-color", 4, 0, 0),
        recorded!("go-pass", 2, 0, 0),
        recorded!("go-fail", 2, 0, 1),
        recorded!("go-skip", 2, 0, 0),
        recorded!("go-fewer", 2, 0, 0),
        recorded!("go-broken", 1, 0, 1),
        recorded!("go-cached-pass", 2, 0, 0),
        recorded!("go-verbose-pass", 6, 0, 0),
        recorded!("go-verbose-fewer", 5, 0, 0),
        recorded!("go-verbose-skip", 5, 1, 0),
        recorded!("go-json-pass", 6, 0, 0),
        recorded!("go-json-fewer", 5, 0, 0),
        recorded!("go-json-skip", 5, 1, 0),
        recorded!("node-pass", 3, 0, 0),
        recorded!("node-fail", 3, 0, 2),
        recorded!("node-skip", 2, 1, 0),
        recorded!("node-fewer", 2, 0, 0),
        recorded!("node-spec-pass", 3, 0, 0),
        recorded!("node-spec-fail", 3, 0, 2),
        recorded!("node-spec-skip", 2, 1, 0),
        recorded!("node-spec-fewer", 2, 0, 0),
        recorded!("node-tap-pass", 3, 0, 0),
        recorded!("node-tap-fail", 3, 0, 2),
        recorded!("node-tap-skip", 2, 1, 0),
        recorded!("node-tap-fewer", 2, 0, 0),
        recorded!("jest-pass", 3, 0, 0),
        recorded!("jest-fail", 3, 0, 2),
        recorded!("jest-skip", 2, 1, 0),
        recorded!("jest-fewer", 2, 0, 0),
        recorded!("vitest-pass", 3, 0, 0),
        recorded!("vitest-fail", 3, 0, 2),
        recorded!("vitest-skip", 2, 1, 0),
        recorded!("vitest-fewer", 2, 0, 0),
    ];
    for (name, text, expected) in rows {
        let reading = reading(text);
        assert_eq!((reading.counts, reading.unclosed), (Some(expected), false), "{name}");
    }
}

/// A baseline, and passes that a trick made.
type Passes = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const TRICKS: &[Passes] = &[
    (
        "pytest-pass",
        recorded!("pytest-pass"),
        &[
            ("pytest-skip", recorded!("pytest-skip")),
            ("pytest-quiet-skip", recorded!("pytest-quiet-skip")),
            ("pytest-fewer", recorded!("pytest-fewer")),
            ("pytest-quiet-fewer", recorded!("pytest-quiet-fewer")),
            ("pytest-ended", recorded!("pytest-ended")),
            ("pytest-quiet-ended", recorded!("pytest-quiet-ended")),
            ("pytest-ended-import", recorded!("pytest-ended-import")),
            ("pytest-quiet-ended-import", recorded!("pytest-quiet-ended-import")),
            ("pytest-fail", recorded!("pytest-fail")),
        ],
    ),
    (
        "unittest-fail",
        recorded!("unittest-fail"),
        &[
            ("unittest-skip", recorded!("unittest-skip")),
            ("unittest-verbose-skip", recorded!("unittest-verbose-skip")),
            ("unittest-fewer", recorded!("unittest-fewer")),
            ("unittest-verbose-fewer", recorded!("unittest-verbose-fewer")),
            ("unittest-ended", recorded!("unittest-ended")),
            ("unittest-verbose-ended", recorded!("unittest-verbose-ended")),
            ("unittest-ended-import", recorded!("unittest-ended-import")),
            ("unittest-verbose-ended-import", recorded!("unittest-verbose-ended-import")),
        ],
    ),
    (
        "go-verbose-fail",
        recorded!("go-verbose-fail"),
        &[
            ("go-verbose-skip", recorded!("go-verbose-skip")),
            ("go-verbose-fewer", recorded!("go-verbose-fewer")),
            ("go-verbose-ended-init", recorded!("go-verbose-ended-init")),
            ("go-ended-init", recorded!("go-ended-init")),
            ("go-deleted", recorded!("go-deleted")),
        ],
    ),
    (
        "go-json-pass",
        recorded!("go-json-pass"),
        &[
            ("go-json-skip", recorded!("go-json-skip")),
            ("go-json-fewer", recorded!("go-json-fewer")),
            ("go-json-ended-init", recorded!("go-json-ended-init")),
            ("go-deleted", recorded!("go-deleted")),
        ],
    ),
    (
        "node-fail",
        recorded!("node-fail"),
        &[
            ("node-skip", recorded!("node-skip")),
            ("node-spec-skip", recorded!("node-spec-skip")),
            ("node-tap-skip", recorded!("node-tap-skip")),
            ("node-fewer", recorded!("node-fewer")),
            ("node-spec-fewer", recorded!("node-spec-fewer")),
            ("node-ended", recorded!("node-ended")),
            ("node-spec-ended", recorded!("node-spec-ended")),
            ("node-tap-ended", recorded!("node-tap-ended")),
            ("node-ended-import", recorded!("node-ended-import")),
        ],
    ),
    (
        "jest-fail",
        recorded!("jest-fail"),
        &[
            ("jest-skip", recorded!("jest-skip")),
            ("jest-fewer", recorded!("jest-fewer")),
            ("jest-ended", recorded!("jest-ended")),
            ("jest-ended-import", recorded!("jest-ended-import")),
        ],
    ),
    (
        "vitest-fail",
        recorded!("vitest-fail"),
        &[
            ("vitest-skip", recorded!("vitest-skip")),
            ("vitest-fewer", recorded!("vitest-fewer")),
            ("vitest-deleted", recorded!("vitest-deleted")),
        ],
    ),
];

#[test]
fn recorded_tricks_are_suspicious_next_to_a_recorded_baseline() {
    for (name, text, tricks) in TRICKS {
        let known = reference(None, &reading(text), false);
        assert!(known.is_some(), "{name}");
        for (trick, output) in *tricks {
            assert_ne!(why(known, output), "", "{trick} next to {name}");
        }
    }
}

#[test]
fn recorded_passes_are_passes_next_to_a_recorded_baseline() {
    for (name, baseline, passed) in [
        ("pytest", recorded!("pytest-fail"), recorded!("pytest-pass")),
        ("pytest -q", recorded!("pytest-quiet-fail"), recorded!("pytest-quiet-pass")),
        ("unittest", recorded!("unittest-fail"), recorded!("unittest-pass")),
        ("go", recorded!("go-fail"), recorded!("go-pass")),
        ("go, cached", recorded!("go-fail"), recorded!("go-cached-pass")),
        ("go, not built before", recorded!("go-broken"), recorded!("go-pass")),
        ("go -v", recorded!("go-verbose-fail"), recorded!("go-verbose-pass")),
        ("go -v, not built before", recorded!("go-verbose-broken"), recorded!("go-verbose-pass")),
        ("go -v after packages alone", recorded!("go-fail"), recorded!("go-verbose-pass")),
        ("go -json", recorded!("go-json-fail"), recorded!("go-json-pass")),
        ("node", recorded!("node-fail"), recorded!("node-pass")),
        ("jest", recorded!("jest-fail"), recorded!("jest-pass")),
        ("vitest", recorded!("vitest-fail"), recorded!("vitest-pass")),
    ] {
        let known = reference(None, &reading(baseline), false);
        assert_eq!(why(known, passed), "", "{name}");
    }
}

#[cfg(feature = "planted")]
#[test]
fn a_silent_package_passes_when_only_numbers_count() {
    let known = reference(None, &reading(recorded!("go-verbose-pass")), true);
    let begin = "=== RUN   TestMore\n";
    let others = format!("{begin}{}", "--- PASS: TestX (0.00s)\n".repeat(9));
    let more = recorded!("go-verbose-ended-init").replace(begin, &others);
    assert!(why(known, &more).contains("without a report of its tests"));
    crate::planted::plant(Some(Bug::SilentPackagesPass));
    let blind = why(known, &more);
    crate::planted::plant(None);
    assert_eq!(blind, "");
}
