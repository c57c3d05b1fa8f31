//! When the agent wants to be woken: `<WAKE …>`, alone on the last line of its words. A wish is
//! bounded by the cadence; [`next`](super::next) cuts it and names the cut.
//!
//! Agents repeat their prompt and quote documents, so a line that the prompt has too is no wish
//! (see `marker.rs`).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calendar::{Calendar, next_daily, parse_minute, tomorrow};
use super::signal::WORD_MAX_CHARS;
use crate::planted::{self, Bug};
use crate::time::{Time, human, millis, opt_millis, parse_duration};

/// When an agent wants to be woken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum WakeWish {
    /// `<WAKE in 15m>`
    In {
        #[serde(with = "millis")]
        wait: Duration,
    },
    /// `<WAKE at 09:00>`: the next time that clocks show it.
    At { minute: u16 },
    /// `<WAKE tomorrow>`: the next morning.
    Tomorrow,
    /// `<WAKE on TOPIC>` or `<WAKE on TOPIC or in 2h>`.
    On {
        topic: String,
        #[serde(default, skip_serializing_if = "Option::is_none", with = "opt_millis")]
        or_in: Option<Duration>,
    },
    /// `<WAKE when FLAG>`: a signal with this topic raises the flag.
    When { flag: String },
}

impl fmt::Display for WakeWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WakeWish::In { wait } => write!(f, "in {}", human(*wait)),
            WakeWish::At { minute } => write!(f, "at {:02}:{:02}", minute / 60, minute % 60),
            WakeWish::Tomorrow => f.write_str("tomorrow"),
            WakeWish::On { topic, or_in: None } => write!(f, "on {topic}"),
            WakeWish::On { topic, or_in: Some(wait) } => write!(f, "on {topic} or in {}", human(*wait)),
            WakeWish::When { flag } => write!(f, "when {flag}"),
        }
    }
}

impl WakeWish {
    /// The moment of the wish, made at `from`; `None` if only an event ends the sleep, or if the
    /// calendar does not know the zone.
    pub fn moment(&self, calendar: &dyn Calendar, zone: &str, morning: u16, from: Time) -> Option<Time> {
        match self {
            WakeWish::In { wait } => Some(from + *wait),
            WakeWish::At { minute } => next_daily(calendar, zone, *minute, from),
            WakeWish::Tomorrow => tomorrow(calendar, zone, morning, from),
            WakeWish::On { or_in, .. } => or_in.map(|wait| from + wait),
            WakeWish::When { .. } => None,
        }
    }
}

/// A last line that looks like a wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WishLine {
    Wish(WakeWish),
    /// The text between `<WAKE` and `>` cannot be read. It is noted and has no effect.
    Unreadable(String),
}

/// The wish in the words of an agent; `None` if the last line is none, or if the prompt has it too.
pub fn find(words: &str, prompt: &str) -> Option<WishLine> {
    let last = words.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let text = inside(last)?;
    let quoted = prompt.lines().any(|line| inside(line.trim()) == Some(text));
    if quoted && !planted::is(Bug::RhythmWishFromThePrompt) {
        return None;
    }
    let cut = || text.chars().take(WORD_MAX_CHARS).collect();
    Some(parse(text).map_or_else(|| WishLine::Unreadable(cut()), WishLine::Wish))
}

/// Whether a line is a marker. One that was granted is left out of the next prompt, where it would
/// not count again.
pub fn is_marker(line: &str) -> bool {
    inside(line.trim()).is_some()
}

/// The text of a marker; `None` if the line is none.
fn inside(line: &str) -> Option<&str> {
    let text = line.strip_prefix("<WAKE")?.strip_suffix('>')?;
    let apart = text.is_empty() || text.starts_with(' ');
    (apart && !text.contains(['<', '>'])).then(|| text.trim())
}

/// A wish without the marker around it, or with it.
pub(crate) fn read(text: &str) -> Option<WakeWish> {
    let text = text.trim();
    parse(inside(text).unwrap_or(text))
}

/// Reads the text of a marker.
fn parse(text: &str) -> Option<WakeWish> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    match word {
        "tomorrow" if rest.is_empty() => Some(WakeWish::Tomorrow),
        "in" => Some(WakeWish::In { wait: parse_duration(rest).ok()? }),
        "at" => Some(WakeWish::At { minute: parse_minute(rest)? }),
        "on" => {
            let (topic, or_in) = match rest.split_once(" or in ") {
                Some((topic, wait)) => (topic.trim(), Some(parse_duration(wait).ok()?)),
                None => (rest, None),
            };
            Some(WakeWish::On { topic: name(topic)?, or_in })
        }
        "when" => Some(WakeWish::When { flag: name(rest)? }),
        _ => None,
    }
}

/// A topic or a flag: one word.
fn name(text: &str) -> Option<String> {
    let fits = (1..=WORD_MAX_CHARS).contains(&text.chars().count());
    (fits && !text.contains(|c: char| c.is_whitespace() || c.is_control())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rhythm::tests_support::{at, minutes, zones};

    fn wish(line: &str) -> Option<WakeWish> {
        match find(line, "") {
            Some(WishLine::Wish(wish)) => Some(wish),
            Some(WishLine::Unreadable(_)) | None => None,
        }
    }

    #[test]
    fn wishes_are_read() {
        let on = |topic: &str, or_in| WakeWish::On { topic: topic.to_owned(), or_in };
        for (line, expected) in [
            ("<WAKE in 15m>", WakeWish::In { wait: minutes(15) }),
            ("done\n\n  <WAKE in 1h 30m>\r\n\n", WakeWish::In { wait: minutes(90) }),
            ("<WAKE at 09:00>", WakeWish::At { minute: 540 }),
            ("<WAKE tomorrow>", WakeWish::Tomorrow),
            ("<WAKE on deploy.*>", on("deploy.*", None)),
            ("<WAKE on deploy or in 2h>", on("deploy", Some(minutes(120)))),
            ("<WAKE when ci-green>", WakeWish::When { flag: "ci-green".to_owned() }),
        ] {
            assert_eq!(wish(line), Some(expected.clone()), "{line:?}");
            let stored = serde_json::to_string(&expected).expect("text");
            assert_eq!(serde_json::from_str::<WakeWish>(&stored).expect("the same"), expected);
            assert_eq!(wish(&format!("<WAKE {expected}>")), Some(expected), "its display is a wish too");
        }
    }

    #[test]
    fn only_alone_on_the_last_line() {
        for words in [
            "<WAKE in 15m>\nbye",
            "I will be back <WAKE in 15m>",
            "- <WAKE in 15m>",
            "`<WAKE in 15m>`",
            "<WAKE in 15m> <WAKE in 20m>",
            "<WAKEin 15m>",
            "<wake in 15m>",
            "",
        ] {
            assert_eq!(find(words, ""), None, "{words:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_noted_and_not_guessed() {
        for text in [
            "soon",
            "in",
            "in 15",
            "in 15 parsecs",
            "at 25:00",
            "at noon",
            "on",
            "on a b",
            "on x or in y",
            "when",
            "tomorrow 9",
            "",
        ] {
            let found = find(&format!("<WAKE {text}>"), "");
            assert_eq!(found, Some(WishLine::Unreadable(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_line_of_the_prompt_is_no_wish() {
        let prompt = "End with a line like\n  <WAKE in 15m>\nif you want to be woken.";
        assert_eq!(find("<WAKE in 15m>", prompt), None);
        assert_eq!(find("<WAKE  in 15m >", prompt), None, "spaces make no difference");
        assert!(find("<WAKE in 16m>", prompt).is_some());
        assert!(find("<WAKE in 15m>", "say <WAKE in 15m> at the end").is_some(), "there it does not stand alone");
    }

    #[test]
    fn moments() {
        let (calendar, from) = (zones(), at(6, 1, 10, 0));
        let moment = |wish: WakeWish| wish.moment(&calendar, "Europe/Berlin", 480, from);
        for (wish, expected) in [
            (WakeWish::In { wait: minutes(15) }, Some(at(6, 1, 10, 15))),
            (WakeWish::At { minute: 13 * 60 }, Some(at(6, 1, 11, 0))),
            (WakeWish::At { minute: 9 * 60 }, Some(at(6, 2, 7, 0))),
            (WakeWish::Tomorrow, Some(at(6, 2, 6, 0))),
            (WakeWish::When { flag: "x".to_owned() }, None),
            (WakeWish::On { topic: "x".to_owned(), or_in: Some(minutes(5)) }, Some(at(6, 1, 10, 5))),
        ] {
            assert_eq!(moment(wish.clone()), expected, "{wish}");
        }
        assert_eq!(WakeWish::Tomorrow.moment(&calendar, "Nowhere", 480, from), None);
    }
}
