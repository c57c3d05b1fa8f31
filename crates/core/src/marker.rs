//! The line by which an agent requests a pause: `<BACKOFF 90s>` and nothing else in it. The guard
//! decides what such a request means.
//!
//! Agents repeat their prompt, quote documents and print the output of tools, so a marker counts
//! only alone on a line, and not on a line that the prompt has too.

use std::time::Duration;

use crate::time::parse_duration;

/// The word of the marker.
pub const BACKOFF: &str = "BACKOFF";

/// The delay that a line requests with this word.
pub fn delay(word: &str, line: &str) -> Option<Duration> {
    let inside = line.trim().strip_prefix('<')?.strip_suffix('>')?;
    let text = inside.strip_prefix(word)?;
    text.starts_with(' ').then(|| parse_duration(text.trim()).ok())?
}

/// The delay that these words of an agent request; of several lines the last counts.
pub fn last(words: &str) -> Option<Duration> {
    words.lines().rev().find_map(|line| delay(BACKOFF, line))
}

/// Whether a line of the prompt is a marker with this delay.
pub fn quotes(prompt: &str, asked: Duration) -> bool {
    prompt.lines().any(|line| delay(BACKOFF, line) == Some(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_stands_alone_on_its_line() {
        for line in ["<BACKOFF 90s>", "  <BACKOFF 1m 30s>\r", "<BACKOFF  90s >"] {
            assert_eq!(delay(BACKOFF, line), Some(Duration::from_secs(90)), "{line:?}");
        }
        for line in [
            "print <BACKOFF 90s> and stop",
            "- <BACKOFF 90s>",
            "`<BACKOFF 90s>`",
            "<BACKOFF 90s> <BACKOFF 90s>",
            "<BACKOFF>",
            "<BACKOFF90s>",
            "<BACKOFF soon>",
            "<BACKOFF -1s>",
            "<backoff 90s>",
            "BACKOFF 90s",
        ] {
            assert_eq!(delay(BACKOFF, line), None, "{line:?}");
        }
    }

    #[test]
    fn the_last_one_counts_and_a_repeated_prompt_does_not() {
        let words = "later\n<BACKOFF 10m>\nor\n<BACKOFF 5m>\nbye";
        let asked = Duration::from_secs(300);
        assert_eq!(last(words), Some(asked));
        assert_eq!(last("no marker"), None);
        assert!(!quotes("stop with <BACKOFF 5m> alone", asked));
        assert!(!quotes("<BACKOFF 10m>", asked));
        assert!(quotes("a test prints\n  <BACKOFF 5m>\n", asked));
    }
}
