//! A check in one line: `COMMAND`, or `NAME, TIME, parallel :: COMMAND`.

use everloop_core::time::parse_duration;

use super::keys::CheckKeys;
use super::value::{Flag, NonEmptyText, Span};

/// Between the settings of a check and its command. The spaces belong to it: `a::b` is a name of
/// a test.
const BETWEEN: &str = " :: ";
const PARALLEL: &str = "parallel";

/// Reads the line.
pub(super) fn read(text: &str) -> Result<CheckKeys, String> {
    let Some((about, run)) = text.split_once(BETWEEN) else {
        return Ok(CheckKeys { run: Some(NonEmptyText(text.to_owned())), ..CheckKeys::default() });
    };
    let (mut words, run) = (about.split(',').map(str::trim), run.trim());
    let name = words.next().unwrap_or_default();
    if name.is_empty() || run.is_empty() {
        return Err(format!("a name stands before `{}`, a command behind it", BETWEEN.trim()));
    }
    let (name, run) = (Some(NonEmptyText(name.to_owned())), Some(NonEmptyText(run.to_owned())));
    let mut check = CheckKeys { name, run, ..CheckKeys::default() };
    for word in words {
        match (word, parse_duration(word)) {
            (PARALLEL, _) => check.parallel = Some(Flag(true)),
            (_, Ok(time)) if !time.is_zero() => check.timeout = Some(Span(time)),
            _ => return Err(format!("`{word}` is neither a time nor `{PARALLEL}`")),
        }
    }
    Ok(check)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_a_time_and_parallel_stand_before_the_command() {
        let check = read("unit tests, 5m, parallel :: cargo test a::b").expect("it is well written");
        assert_eq!(check.name.map(|name| name.0).as_deref(), Some("unit tests"));
        assert_eq!(check.run.map(|run| run.0).as_deref(), Some("cargo test a::b"));
        assert_eq!(check.timeout.map(|time| time.0), Some(Duration::from_secs(300)));
        assert!(check.parallel.is_some_and(|flag| flag.0));
        let plain = read("cargo test a::b -- --nocapture, 5m").expect("a command");
        assert!(plain.name.is_none() && plain.timeout.is_none());
        for bad in [" :: cargo test", "unit ::  ", "unit, soon :: cargo test", "unit, 0s :: true"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
