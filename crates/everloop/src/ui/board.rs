//! The scoreboard: each check, its verdict, its time, and what changed.

use everloop_core::scoreboard::{CheckResult, Scoreboard, Verdict};

use super::paint::Paint;
use super::quantities::took;
use super::text::{clean, fit, pad, width};

/// A name longer than this is cut.
const NAME_MAX_CELLS: usize = 32;

/// The sign of a verdict: `✓` pass, `✗` fail, `~` flaky, `!` broken, `?` suspicious.
pub fn mark(verdict: &Verdict, paint: Paint) -> String {
    match verdict {
        Verdict::Pass => paint.good("✓"),
        Verdict::Fail => paint.bad("✗"),
        Verdict::Flaky { .. } => paint.warn("~"),
        Verdict::Broken { .. } => paint.warn("!"),
        Verdict::Suspicious { .. } => paint.warn("?"),
    }
}

/// A line per check. With a `baseline`, differences from it are marked.
pub fn scoreboard(board: &Scoreboard, baseline: Option<&Scoreboard>, paint: Paint) -> Vec<String> {
    let names: Vec<String> = board.0.iter().map(|row| fit(&clean(&row.name), NAME_MAX_CELLS)).collect();
    let column = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let line = |(row, name): (&CheckResult, String)| {
        let time = if row.millis == 0 { String::new() } else { took(row.millis) };
        let words = match &row.verdict {
            Verdict::Pass | Verdict::Fail => String::new(),
            other @ (Verdict::Flaky { .. } | Verdict::Broken { .. } | Verdict::Suspicious { .. }) => {
                clean(&other.to_string())
            }
        };
        let before = baseline.and_then(|b| b.0.iter().find(|old| old.name == row.name));
        let change = before.map_or(String::new(), |old| change(&old.verdict, &row.verdict, paint));
        let rest: Vec<String> = [words, change].into_iter().filter(|part| !part.is_empty()).collect();
        let line = format!("{} {}  {time:>7}  {}", mark(&row.verdict, paint), pad(&name, column), rest.join(", "));
        line.trim_end().to_owned()
    };
    board.0.iter().zip(names).map(line).collect()
}

fn change(before: &Verdict, now: &Verdict, paint: Paint) -> String {
    match (before.passes(), now.passes()) {
        (false, true) => paint.good("new: did not pass before"),
        (true, false) => paint.bad("lost: passed before"),
        (true, true) | (false, false) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::quantities::score;
    use super::*;
    use everloop_testkit::sample::board;

    #[test]
    fn a_board_says_what_changed() {
        let before = board(&[("unit", Verdict::Fail), ("lint", Verdict::Pass), ("e2e", Verdict::Fail)]);
        let now = board(&[
            ("unit", Verdict::Pass),
            ("lint", Verdict::Fail),
            ("e2e", Verdict::Flaky { passes: 2, runs: 3 }),
            ("docs\u{1b}[2J", Verdict::Broken { why: "timed out\nafter 10m".to_owned() }),
        ]);
        insta::assert_snapshot!(scoreboard(&now, Some(&before), Paint::Off).join("\n"), @r"
        ✓ unit     1.2s  new: did not pass before
        ✗ lint     1.2s  lost: passed before
        ~ e2e      1.2s  flaky (2 of 3), new: did not pass before
        ! docs     1.2s  broken (timed out after 10m)
        ");
        assert_eq!(score(&now), "2 of 4 checks pass");
    }
}
