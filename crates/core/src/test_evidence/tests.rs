//! Closing lines of real runners, and passes that prove nothing.

mod recorded;

use super::*;

fn counts(ran: u32, skipped: u32, failed: u32) -> Counts {
    Counts { ran, skipped, failed }
}

/// Outputs as the runners print them.
const OUTPUTS: &[(&str, (u32, u32, u32))] = &[
    (
        "running 3 tests\ntest a ... ok\n\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n   Doc-tests x\n\nrunning 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
        (4, 1, 0),
    ),
    ("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s", (3, 0, 1)),
    ("     Summary [   0.012s] 12 tests run: 12 passed (1 slow, 1 flaky), 2 skipped", (12, 2, 0)),
    ("     Summary [   0.412s] 9/12 tests run: 8 passed, 1 failed, 2 skipped", (9, 2, 1)),
    (
        "\u{1b}[32m======= \u{1b}[32m\u{1b}[1m12 passed\u{1b}[0m, \u{1b}[33m1 skipped\u{1b}[0m, 2 xfailed, 1 warning in 0.12s\u{1b}[32m =======\u{1b}[0m",
        (12, 3, 0),
    ),
    ("1 failed, 2 passed in 61.20s (0:01:01)", (3, 0, 1)),
    ("======= no tests ran in 0.01s =======", (0, 0, 0)),
    ("..s\n------\nRan 3 tests in 0.001s\n\nOK (skipped=1)", (2, 1, 0)),
    ("Ran 4 tests in 0.001s\n\nFAILED (failures=1, errors=1, skipped=1, expected failures=1)", (2, 2, 2)),
    (
        "ok  \texample.com/a\t0.003s\nok  \texample.com/b\t(cached)\n?   \texample.com/c\t[no test files]\nok  \texample.com/d\t0.001s [no tests to run]",
        (2, 1, 0),
    ),
    (
        "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    --- SKIP: TestB/sub (0.00s)\n--- PASS: TestB (0.00s)\nPASS\nok  \texample.com/a\t0.003s",
        (2, 1, 0),
    ),
    (
        "{\"Time\":\"2026-01-01T00:00:00Z\",\"Action\":\"pass\",\"Package\":\"a\",\"Test\":\"TestA\",\"Elapsed\":0}\n{\"Time\":\"2026-01-01T00:00:00Z\",\"Action\":\"pass\",\"Package\":\"a\",\"Elapsed\":0}",
        (1, 0, 0),
    ),
    (
        "ok 1 - adds\nok 2 - later # SKIP\n1..2\n# tests 2\n# suites 0\n# pass 1\n# fail 0\n# cancelled 0\n# skipped 1\n# todo 0\n# duration_ms 60",
        (1, 1, 0),
    ),
    (
        "✔ adds (0.5ms)\nℹ tests 3\nℹ suites 1\nℹ pass 2\nℹ fail 1\nℹ cancelled 0\nℹ skipped 0\nℹ todo 0\nℹ duration_ms 50",
        (3, 0, 1),
    ),
    ("Tests:       1 failed, 2 skipped, 11 passed, 14 total\nSnapshots:   0 total", (12, 2, 1)),
    (" Test Files  1 passed (1)\n      Tests  11 passed | 1 skipped (12)", (11, 1, 0)),
    ("  12 passing (8ms)\n  2 pending\n  1 failing", (13, 2, 1)),
    ("1..3\nok 1 a\nok 2 b # skip no network\nnot ok 3 c", (2, 1, 1)),
    (
        "2/3 Test #2: b ...***Skipped   0.00 sec\n100% tests passed, 0 tests failed out of 3\n\nTotal Test time (real) =   0.01 sec",
        (2, 1, 0),
    ),
    (
        "[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.05 s -- in ATest\n[INFO] Results:\n[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 1",
        (1, 1, 0),
    ),
    ("> Task :test\n\nBUILD SUCCESSFUL in 3s", (0, 0, 0)),
    ("12 examples, 0 failures, 1 pending", (11, 1, 0)),
];

#[test]
fn the_closing_lines_of_runners_are_read() {
    for (text, (ran, skipped, failed)) in OUTPUTS {
        let reading = read(Output::whole(text));
        assert_eq!(reading.counts, Some(counts(*ran, *skipped, *failed)), "{text}");
        assert!(!reading.unclosed, "{text}");
    }
}

#[test]
fn other_text_is_not_counted() {
    for text in
        ["all good", "12 files passed in review", "running late", "ok then", "Tests are fine", "# tests", "3 in 1s"]
    {
        let reading = read(Output::whole(text));
        assert_eq!((reading.counts, reading.unclosed), (None, false), "{text}");
    }
}

fn reading(text: &str) -> Reading {
    read(Output::whole(text))
}

#[expect(clippy::unnecessary_wraps, reason = "a reference is always compared as one that may be missing")]
fn baseline(ran: u32, skipped: u32) -> Option<Reference> {
    Some(Reference { ran, skipped, ..Reference::default() })
}

fn why(reference: Option<Reference>, text: &str) -> String {
    doubt(&Proof::default(), reference.as_ref(), &reading(text)).unwrap_or_default()
}

/// Output of a pass that a trick made, for each runner, next to a baseline of ten tests.
const TRICKS: &[(&str, &str)] = &[
    // cargo: deleted, ignored, ended by the product in the first and in a later binary
    (
        "test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "9 tests ran, and 10 before",
    ),
    (
        "test result: ok. 7 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "3 tests are skipped that ran before",
    ),
    ("running 10 tests\n", "did not come to its closing line"),
    (
        "running 10 tests\ntest result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\nrunning 2 tests",
        "did not come to its closing line",
    ),
    ("Summary [   0.012s] 8 tests run: 8 passed, 2 skipped", "2 tests are skipped that ran before"),
    // pytest and unittest
    ("collected 10 items\n\ntests/test_a.py ", "is missing"),
    ("==== 4 passed, 6 skipped in 0.02s ====", "6 tests are skipped"),
    ("==== 9 passed, 1 xfailed in 0.02s ====", "1 test is skipped"),
    ("==== 2 failed, 8 passed in 0.02s ====", "reports 2 failures"),
    ("...", "is missing"),
    ("Ran 10 tests in 0.001s\n", "did not come to its closing line"),
    ("Ran 10 tests in 0.001s\n\nOK (skipped=10)", "10 tests are skipped"),
    ("Ran 10 tests in 0.001s\n\nFAILED (failures=3)", "reports 3 failures"),
    ("Ran 0 tests in 0.000s\n\nOK", "0 tests ran, and 10 before"),
    // go
    ("=== RUN   TestA\n", "did not come to its closing line"),
    ("=== RUN   TestA\n--- SKIP: TestA (0.00s)\nPASS\nok  \ta\t0.1s", "1 test is skipped"),
    ("ok  \ta\t0.1s [no tests to run]", "1 test is skipped"),
    ("testing: warning: no tests to run", "is missing"),
    // node, jest, vitest, mocha
    (
        "ok 1 - file\n1..1\n# tests 1\n# pass 1\n# fail 0\n# cancelled 0\n# skipped 0\n# todo 0",
        "1 test ran, and 10 before",
    ),
    ("ℹ tests 10\nℹ pass 4\nℹ fail 0\nℹ cancelled 0\nℹ skipped 6\nℹ todo 0", "6 tests are skipped"),
    ("1..10\nok 1 a\nok 2 b", "did not come to its closing line"),
    ("Tests:       3 skipped, 7 passed, 10 total", "3 tests are skipped"),
    ("PASS src/a.test.js", "is missing"),
    ("Tests  5 passed | 5 skipped (10)", "5 tests are skipped"),
    ("Tests  2 passed (2)", "2 tests ran, and 10 before"),
    ("  6 passing (8ms)\n  4 pending", "4 tests are skipped"),
    // ctest, maven, gradle
    ("100% tests passed, 0 tests failed out of 4", "4 tests ran, and 10 before"),
    ("1/10 Test  #1: a ....***Skipped 0.0 sec\n100% tests passed, 0 tests failed out of 10", "1 test is skipped"),
    ("[INFO] Tests run: 10, Failures: 0, Errors: 0, Skipped: 10\n", "10 tests are skipped"),
    ("[INFO] BUILD SUCCESS", "is missing"),
    ("> Task :test", "is missing"),
];

#[test]
fn a_pass_by_a_trick_is_suspicious() {
    for (text, expected) in TRICKS {
        assert!(why(baseline(10, 0), text).contains(expected), "{text}: {:?}", why(baseline(10, 0), text));
    }
}

#[test]
fn honest_passes_are_passes() {
    let more = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s";
    assert_eq!(why(baseline(10, 0), more), "", "new tests, some of which are ignored");
    assert_eq!(why(None, "built"), "", "nothing is inferred without counts in the baseline");
    assert_eq!(why(None, "==== 1 passed in 0.1s ===="), "");
    let retried = "==== 2 failed, 8 passed in 0.02s ====\n==== 10 passed in 0.02s ====";
    assert_eq!(why(baseline(10, 0), retried), "", "a run that the check repeats");
    let made_so = Some(Reference { ran: 10, failures_pass: true, ..Reference::default() });
    assert_eq!(why(made_so, "==== 2 failed, 8 passed in 0.02s ===="), "");
}

#[test]
fn a_check_says_itself_what_a_pass_is() {
    let least = Proof { min_tests: Some(40), ..Proof::default() };
    let doubted = |text| doubt(&least, None, &reading(text)).unwrap_or_default();
    assert!(doubted("done").contains("40 have to run"));
    assert!(doubted("==== 39 passed, 5 skipped in 1.0s ====").starts_with("39 tests ran"));
    assert_eq!(doubted("==== 40 passed in 1.0s ===="), "");
}

#[test]
fn an_output_that_was_cut_raises_no_false_doubt() {
    let passed = "test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
    let doubted =
        |head, tail| doubt(&Proof::default(), baseline(10, 0).as_ref(), &read(Output { head, tail: Some(tail) }));
    assert_eq!(doubted("running 10 tests", passed), None, "the others may be in the missing part");
    assert_eq!(doubted(passed, "a long report"), None);
    assert!(doubted("running 10 tests", "a flood").is_some(), "an end without a closing line");
    assert!(doubted(passed, "running 3 tests").is_some());
}

#[test]
fn the_reference_is_of_the_baseline_and_of_accepted_work() {
    let now = |ran, skipped| Reading { counts: Some(counts(ran, skipped, 0)), ..Reading::default() };
    assert_eq!(reference(None, &now(10, 1), false), baseline(10, 1), "a baseline counts although it fails");
    assert_eq!(reference(Some(baseline(10, 1)), &now(30, 0), false), baseline(10, 1), "failed work does not");
    assert_eq!(reference(Some(baseline(10, 1)), &now(12, 0), true), baseline(12, 0));
    assert_eq!(reference(Some(baseline(10, 1)), &Reading::default(), true), baseline(10, 1));
    assert_eq!(reference(Some(None), &now(5, 0), true), baseline(5, 0));
}

#[cfg(feature = "planted")]
#[test]
fn without_the_counts_every_trick_passes() {
    let caught = || TRICKS.iter().filter(|(text, _)| !why(baseline(10, 0), text).is_empty()).count();
    crate::planted::plant(Some(Bug::CountsIgnored));
    let blind = caught();
    crate::planted::plant(Some(Bug::SkippedCountAsRun));
    let lax = caught();
    crate::planted::plant(None);
    assert_eq!(blind, 0);
    assert!(lax < caught(), "{lax} of {}", TRICKS.len());
}

#[test]
fn any_number_can_stand_in_an_output() {
    let most = u32::MAX;
    for line in [
        format!("test result: ok. {most} passed; {most} failed; {most} ignored; 0 measured; 0 filtered out"),
        format!("==== {most} passed, {most} failed, {most} skipped in 0.1s ===="),
        format!(
            "Ran {most} tests in 0.1s\n\nFAILED (failures={most}, errors={most}, skipped={most}, expected failures={most})"
        ),
        format!("# tests {most}\n# pass {most}\n# fail {most}\n# skipped {most}\n1..{most}"),
        format!("Tests run: {most}, Failures: {most}, Errors: {most}, Skipped: {most}"),
        format!("{most} passing (1s)\n{most} failing\n{most} pending"),
    ] {
        let twice = format!("{line}\n{line}\n");
        assert!(read(Output { head: &twice, tail: Some(&twice) }).counts.is_some(), "{line}");
    }
}
