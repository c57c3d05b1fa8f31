//! Filters from any text: parsing never panics, an error names a place in the text, and what is
//! shown of a filter is a filter with the same meaning.

use std::collections::BTreeMap;

use everloop_core::jitter::mix;
use everloop_core::rhythm::filter::{FilterError, RouteFilter};

use crate::budget;

/// Texts of one seed.
const BATCH: u64 = 1_000;
/// Texts that are tried however long it takes.
const LEAST: u64 = 1_000_000;

const PARTS: &[&str] = &[
    "status",
    "load",
    "a.b-c",
    "`odd name`",
    "`",
    "and",
    "or",
    "not",
    "(",
    ")",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "~",
    "=",
    "!",
    "&",
    "|",
    "\"RESTARTING\"",
    "'x'",
    "\"a\\\"b\\n\"",
    "'\\\\'",
    "\"",
    "'",
    "\\",
    "0",
    "1",
    "-3",
    "0.85",
    "1e3",
    "1e999",
    "-",
    "9007199254740993",
    "99999999999999999999",
    "-0.0",
    "ä",
    "€",
    "\n",
    "\t",
    " ",
    ",",
    "nan",
    "inf",
    "\u{0}",
    "*",
    "test-*",
    "'test-*'",
];

/// A text of random words; every fourth one is a filter that is valid.
fn text(seed: u64) -> String {
    if seed.is_multiple_of(4) {
        return valid(seed, 0);
    }
    let words = mix(seed, 0) % 16;
    let word = |n| PARTS[(mix(seed, n) % PARTS.len() as u64) as usize];
    let spaced = mix(seed, 99).is_multiple_of(2);
    (1..=words).map(|n| if spaced { format!("{} ", word(n)) } else { word(n).to_owned() }).collect()
}

fn valid(seed: u64, depth: u64) -> String {
    let part = |n: u64| valid(mix(seed, n), depth + 1);
    match mix(seed, 50) % 8 {
        0 if depth < 5 => format!("({})", part(1)),
        1 if depth < 5 => format!("not {}", part(1)),
        2 if depth < 5 => format!("not ({})", part(1)),
        3 if depth < 5 => format!("{} and {}", part(1), part(2)),
        4 if depth < 5 => format!("({}) or {} or {}", part(1), part(2), part(3)),
        _ => {
            let pick = |list: &[&'static str], salt| list[(mix(seed, salt) % list.len() as u64) as usize];
            let field = pick(&["status", "load", "n", "`odd name`", "gone"], 1);
            match mix(seed, 2) % 3 {
                0 => format!(
                    "{field} {} {}",
                    pick(&["==", "!=", "<", "<=", ">", ">="], 3),
                    pick(&["1", "-2.5", "1e3"], 4)
                ),
                1 => format!("{field} {} {}", pick(&["==", "!=", "<", ">"], 3), pick(&["'x'", "\"a\\\"\"", "\"\""], 4)),
                _ => format!("{field} ~ {}", pick(&["'*'", "\"a?c\"", "'x*'"], 4)),
            }
        }
    }
}

fn entry(seed: u64) -> BTreeMap<String, String> {
    let value = |salt| PARTS[(mix(seed, salt) % PARTS.len() as u64) as usize].to_owned();
    ["status", "load", "n", "odd name"]
        .into_iter()
        .zip(1000..)
        .map(|(name, salt)| (name.to_owned(), value(salt)))
        .collect()
}

fn try_one(seed: u64) -> bool {
    let text = text(seed);
    match text.parse::<RouteFilter>() {
        Ok(filter) => {
            let shown = filter.expression().to_string();
            let again: RouteFilter =
                shown.parse().unwrap_or_else(|e| panic!("seed {seed}: {text:?}, shown as {shown:?}: {e}"));
            assert_eq!(again.expression(), filter.expression(), "seed {seed}: {text:?}, shown as {shown:?}");
            assert_eq!(again.expression().to_string(), shown, "seed {seed}");
            assert_eq!(filter.passes(&entry(seed)), again.passes(&entry(seed)), "seed {seed}");
            true
        }
        Err(FilterError { line, column, problem, hint }) => {
            let lines: Vec<&str> = text.split('\n').collect();
            let long = lines.get(line.wrapping_sub(1)).map(|line| line.chars().count());
            assert!(
                long.is_some_and(|long| (1..=long + 1).contains(&column)),
                "seed {seed}: {text:?}: {line}:{column}"
            );
            assert!(!problem.is_empty() && !hint.is_empty(), "seed {seed}: {text:?}");
            assert!(!seed.is_multiple_of(4), "seed {seed}: {text:?} is a filter: {line}:{column} {problem}");
            false
        }
    }
}

#[test]
fn long_no_text_breaks_a_filter() {
    let mut read = 0;
    let seeds = budget::seeds(LEAST / BATCH, |seed| {
        read += (seed * BATCH..(seed + 1) * BATCH).filter(|case| try_one(*case)).count();
    });
    assert!(read as u64 > seeds * BATCH / 4, "only {read} of {} were filters", seeds * BATCH);
}
