//! The closing lines of test runners. Each is recognised by its form, whatever command it came from,
//! because runners stand behind make, scripts and wrappers. Sums over all of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Counts, Reading};

/// Reads all closing lines of a text.
pub(super) fn read(text: &str) -> Reading {
    let mut state = State::default();
    for line in text.lines() {
        state.line(plain(line).trim_end());
    }
    state.finish()
}

/// The counts of two runners, or of two parts of an output, in their order.
pub(super) fn sum(a: Counts, b: Counts) -> Counts {
    // Numbers of an output can be any.
    let (ran, skipped) = (a.ran.saturating_add(b.ran), a.skipped.saturating_add(b.skipped));
    Counts { ran, skipped, failed: b.failed }
}

/// The line without colours.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            out.push(c);
        }
    }
    out
}

#[derive(Default)]
struct State {
    counts: Option<Counts>,
    /// `running N tests` of cargo without its result.
    cargo_open: bool,
    /// `test session starts` of pytest without its closing line.
    pytest_open: bool,
    /// `Ran N tests` of unittest without its result.
    unittest: Option<u32>,
    /// Lines of node's summary, complete with `todo` or at the end.
    tap: Tap,
    go: Go,
    /// `N passing` of mocha.
    mocha: Option<Counts>,
    ctest_skipped: u32,
}

/// A stream or a summary of TAP.
#[derive(Default)]
struct Tap {
    /// `TAP version 13`.
    begun: bool,
    plan: Option<u32>,
    seen: Counts,
    summary: Option<Counts>,
}

/// Lines of `go test`.
#[derive(Default)]
struct Go {
    packages: Counts,
    tests: Counts,
    /// `-v` or `-json`: each test has a line of its own.
    verbose: bool,
    closed: bool,
    open: bool,
    /// The tests of the package that is about to close said `PASS`.
    said: bool,
    /// The same in `-json`, by package.
    said_in: BTreeSet<String>,
    silent: u32,
    unbuilt: u32,
}

impl State {
    fn add(&mut self, counts: Counts) {
        self.counts = Some(sum(self.counts.unwrap_or_default(), counts));
    }

    fn line(&mut self, line: &str) {
        let trimmed = line.trim();
        let one = [cargo, nextest, jest, vitest, surefire, rspec].iter().find_map(|reader| reader(trimmed));
        if let Some(counts) = one {
            self.cargo_open &= !trimmed.starts_with("test result:");
            return self.add(counts);
        }
        if let Some(counts) = pytest(trimmed) {
            self.pytest_open = false;
            return self.add(counts);
        }
        let framed = trimmed.trim_matches('=').trim();
        if framed.len() < trimmed.len() && framed == "test session starts" {
            self.pytest_open = true;
        } else if framed.contains(" collected in ") {
            self.pytest_open = false;
        }
        if let Some(rest) = trimmed.strip_prefix("running ") {
            self.cargo_open |= rest.strip_suffix(" tests").or(rest.strip_suffix(" test")).is_some_and(is_number);
        }
        if trimmed.starts_with("BUILD SUCCESSFUL in ") || trimmed.starts_with("BUILD FAILED in ") {
            return self.add(Counts::default());
        }
        self.unittest(trimmed);
        self.tap(line, trimmed);
        self.go(line);
        self.mocha(trimmed);
        self.ctest(trimmed);
    }

    fn unittest(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("Ran ") {
            let mut words = rest.split_whitespace();
            let number = words.next().and_then(|n| n.parse().ok());
            if words.next().is_some_and(|w| w.starts_with("test")) && words.next() == Some("in") {
                self.unittest = number;
            }
        } else if let Some(total) = self.unittest
            && (line.starts_with("OK") || line.starts_with("FAILED (") || line == "FAILED" || line == "NO TESTS RAN")
        {
            self.unittest = None;
            let value = |name: &str| after(line, &format!("{name}=")).unwrap_or(0);
            // `expected failures=1` also ends with `failures=1`.
            let expected = value("expected failures");
            let failed = after(&line.replace("expected failures", ""), "failures=").unwrap_or(0);
            let skipped = value("skipped").saturating_add(expected);
            let failed = failed.saturating_add(value("errors"));
            self.add(Counts { ran: total.saturating_sub(skipped), skipped, failed });
        }
    }

    fn tap(&mut self, line: &str, trimmed: &str) {
        let summary = trimmed.strip_prefix("# ").or_else(|| trimmed.strip_prefix("ℹ "));
        if let Some((name, number)) = summary.and_then(|s| s.split_once(' '))
            && let Ok(number) = number.trim().parse::<u32>()
        {
            if name == "tests" {
                if let Some(counts) = self.tap.summary.replace(Counts::default()) {
                    self.add(counts);
                }
                return;
            }
            let Some(counts) = self.tap.summary.as_mut() else { return };
            match name {
                "pass" => raise(&mut counts.ran, number),
                "fail" | "cancelled" => {
                    raise(&mut counts.ran, number);
                    raise(&mut counts.failed, number);
                }
                "skipped" | "todo" | "skip" => raise(&mut counts.skipped, number),
                _ => {}
            }
            return;
        }
        self.tap.begun |= line.starts_with("TAP version 1");
        if let Some(plan) = line.strip_prefix("1..").and_then(|n| n.split_whitespace().next()?.parse::<u32>().ok()) {
            self.tap.plan = Some(self.tap.plan.unwrap_or(0).saturating_add(plan));
        }
        let (failed, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
            (Some(rest), _) => (0, rest),
            (_, Some(rest)) => (1, rest),
            _ => return,
        };
        // `ok  	package	0.1s` is of go, and a number follows in TAP.
        if !rest.starts_with(|c: char| c.is_ascii_digit()) {
            return;
        }
        let directive = rest.rsplit_once('#').map(|(_, d)| d.trim().to_ascii_lowercase()).unwrap_or_default();
        let seen = &mut self.tap.seen;
        if directive.starts_with("skip") || directive.starts_with("todo") {
            seen.skipped += 1;
        } else {
            seen.ran += 1;
            seen.failed += failed;
        }
    }

    fn go(&mut self, line: &str) {
        let go = &mut self.go;
        if line.starts_with("{\"Time\"") || line.starts_with("{\"Action\"") {
            return self.go_json(line);
        }
        let trimmed = line.trim_start();
        if line.starts_with("=== RUN ") {
            (go.verbose, go.open) = (true, true);
        } else if trimmed.starts_with("--- PASS: ") {
            go.tests.ran += 1;
        } else if trimmed.starts_with("--- FAIL: ") {
            go.tests.ran += 1;
            go.tests.failed += 1;
        } else if trimmed.starts_with("--- SKIP: ") {
            go.tests.skipped += 1;
        } else if line == "PASS" || line == "FAIL" {
            (go.open, go.said) = (false, true);
        } else if line.starts_with("ok  \t") {
            go.closed = true;
            let idle = line.contains("[no tests to run]");
            go.silent += u32::from(!std::mem::take(&mut go.said));
            go.packages.skipped += u32::from(idle);
            go.packages.ran += u32::from(!idle);
        } else if line.starts_with("FAIL\t") {
            (go.closed, go.said) = (true, false);
            let unbuilt = line.ends_with(" failed]");
            go.unbuilt += u32::from(unbuilt);
            // What was not built did not run, and may have no tests.
            go.packages.ran += u32::from(!unbuilt);
            go.packages.failed += 1;
            go.tests.failed += u32::from(unbuilt);
        }
    }

    fn go_json(&mut self, line: &str) {
        let Ok(value) = serde_json::from_str::<Value>(line) else { return };
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let go = &mut self.go;
        go.verbose = true;
        match (text("Action"), text("Test").is_some()) {
            (Some("pass"), true) => go.tests.ran += 1,
            (Some("fail"), true) => {
                go.tests.ran += 1;
                go.tests.failed += 1;
            }
            (Some("skip"), true) => go.tests.skipped += 1,
            (Some("output"), false) if text("Output") == Some("PASS\n") => {
                go.said_in.extend(text("Package").map(str::to_owned));
            }
            (Some(end @ ("pass" | "fail")), false) => {
                go.closed = true;
                let said = text("Package").is_some_and(|package| go.said_in.remove(package));
                go.silent += u32::from(end == "pass" && !said);
            }
            _ => {}
        }
    }

    fn mocha(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let (Some(Ok(number)), Some(what)) = (words.next().map(str::parse::<u32>), words.next()) else { return };
        let rest = words.next();
        match (what, rest) {
            ("passing", Some(took)) if took.starts_with('(') => {
                if let Some(counts) = self.mocha.replace(Counts { ran: number, ..Counts::default() }) {
                    self.add(counts);
                }
            }
            ("pending", None) => self.mocha.iter_mut().for_each(|m| raise(&mut m.skipped, number)),
            ("failing", None) => self.mocha.iter_mut().for_each(|m| {
                raise(&mut m.ran, number);
                raise(&mut m.failed, number);
            }),
            _ => {}
        }
    }

    fn ctest(&mut self, line: &str) {
        if line.contains("tests passed, ") && line.contains(" tests failed out of ") {
            let failed = before(line, " tests failed").unwrap_or(0);
            let total = after(line, "out of ").unwrap_or(0);
            let skipped = std::mem::take(&mut self.ctest_skipped);
            self.add(Counts { ran: total.saturating_sub(skipped), skipped, failed });
        } else if line.contains(" Test ") && (line.contains("***Skipped") || line.contains("***Not Run (Disabled)")) {
            self.ctest_skipped += 1;
        }
    }

    fn finish(mut self) -> Reading {
        if let Some(counts) = self.tap.summary.take() {
            self.add(counts);
        } else if self.tap.plan.is_some() {
            let seen = self.tap.seen;
            self.add(seen);
        }
        if let Some(counts) = self.mocha.take() {
            self.add(counts);
        }
        if self.go.closed {
            let counts = if self.go.verbose { self.go.tests } else { self.go.packages };
            self.add(counts);
        }
        let planned = self.tap.plan.filter(|_| self.tap.seen != Counts::default());
        let short = planned.is_some_and(|plan| self.tap.seen.ran.saturating_add(self.tap.seen.skipped) < plan);
        let begun = self.tap.begun && self.tap.plan.is_none();
        let unclosed = self.cargo_open || self.pytest_open || self.unittest.is_some() || self.go.open || short || begun;
        let packages = self.go.closed && !self.go.verbose;
        // Without `-v` no package says anything.
        let silent = if self.go.verbose { self.go.silent } else { 0 };
        Reading { counts: self.counts, unclosed, cut: false, packages, silent, unbuilt: self.go.unbuilt }
    }
}

/// Adds a number of an output, which can be any.
fn raise(count: &mut u32, number: u32) {
    *count = count.saturating_add(number);
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The number right behind `mark`.
fn after(text: &str, mark: &str) -> Option<u32> {
    let rest = &text[text.find(mark)? + mark.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The number right before `mark`.
fn before(text: &str, mark: &str) -> Option<u32> {
    let rest = &text[..text.find(mark)?];
    let start = rest.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    rest[start..].parse().ok()
}

/// Sums `12 passed, 1 skipped` and the like; `None` when a part is something else.
fn parts(text: &str, separator: char) -> Option<Counts> {
    let mut counts = Counts::default();
    for part in text.split(separator) {
        let mut words = part.split_whitespace();
        let number: u32 = words.next()?.parse().ok()?;
        match words.next()?.trim_end_matches(',') {
            "passed" | "xpassed" => raise(&mut counts.ran, number),
            "failed" | "error" | "errors" | "timed" => {
                raise(&mut counts.ran, number);
                raise(&mut counts.failed, number);
            }
            "skipped" | "ignored" | "xfailed" | "todo" | "pending" => raise(&mut counts.skipped, number),
            "total" | "deselected" | "warning" | "warnings" | "measured" | "filtered" | "rerun" | "subtests"
            | "leaky" => {}
            _ => return None,
        }
    }
    Some(counts)
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s`
fn cargo(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let rest = rest.strip_prefix("ok. ").or_else(|| rest.strip_prefix("FAILED. "))?;
    parts(rest.split("; finished").next().unwrap_or(rest), ';')
}

/// `Summary [   0.012s] 12 tests run: 12 passed (1 slow), 1 skipped`
fn nextest(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("Summary [")?;
    let (_, rest) = rest.split_once(" run: ").filter(|(before, _)| before.contains(" test"))?;
    let mut plain = String::new();
    let mut depth = 0_u32;
    for c in rest.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    parts(&plain, ',')
}

/// `==== 12 passed, 1 skipped in 0.12s ====`, also without the frame.
fn pytest(line: &str) -> Option<Counts> {
    let (rest, took) = line.trim_matches('=').trim().rsplit_once(" in ")?;
    let seconds = took.split_whitespace().next()?.strip_suffix('s')?;
    if !seconds.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    if rest == "no tests ran" {
        return Some(Counts::default());
    }
    let counted = |word: &str| ["passed", "failed", "skipped", "error", "errors", "xfailed", "xpassed"].contains(&word);
    rest.split([' ', ',']).any(counted).then(|| parts(rest, ',')).flatten()
}

/// `Tests:       1 failed, 2 skipped, 11 passed, 14 total`
fn jest(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("Tests:")?.trim();
    rest.ends_with(" total").then(|| parts(rest, ',')).flatten()
}

/// `Tests  1 failed | 11 passed | 1 skipped (13)`
fn vitest(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("Tests ")?.trim();
    let (rest, total) = rest.rsplit_once(" (")?;
    total.strip_suffix(')').filter(|n| is_number(n))?;
    parts(rest, '|')
}

/// `[INFO] Tests run: 12, Failures: 0, Errors: 0, Skipped: 1`, the sum of a module.
fn surefire(line: &str) -> Option<Counts> {
    let at = line.find("Tests run: ").filter(|_| !line.contains("Time elapsed"))?;
    let line = &line[at..];
    let (total, skipped) = (after(line, "Tests run: ")?, after(line, "Skipped: ")?);
    let failed = after(line, "Failures: ")?.saturating_add(after(line, "Errors: ")?);
    Some(Counts { ran: total.saturating_sub(skipped), skipped, failed })
}

/// `12 examples, 0 failures, 1 pending`
fn rspec(line: &str) -> Option<Counts> {
    let (total, rest) = line.split_once(" example")?;
    let total: u32 = total.parse().ok()?;
    let failed = before(rest, " failure")?;
    let skipped = before(rest, " pending").unwrap_or(0);
    Some(Counts { ran: total.saturating_sub(skipped), skipped, failed })
}
