//! Colours, or none. Colour never carries a meaning of its own: every mark is also a character or a
//! word.

use std::io::IsTerminal;

/// Paints text, or leaves it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSink {
    Terminal,
    Other,
}

impl TextSink {
    /// The kind of a stream of this process.
    pub fn of(stream: &impl IsTerminal) -> Self {
        if stream.is_terminal() { TextSink::Terminal } else { TextSink::Other }
    }
}

impl Paint {
    /// Whether a stream gets colours: `NO_COLOR` and `CLICOLOR=0` forbid, `CLICOLOR_FORCE` demands,
    /// a terminal decides.
    pub fn wanted(sink: TextSink, var: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let forbidden = set("NO_COLOR").is_some() || set("CLICOLOR").is_some_and(|v| v == "0");
        let forced = set("CLICOLOR_FORCE").is_some_and(|v| v != "0");
        let able = sink == TextSink::Terminal && set("TERM").is_none_or(|term| term != "dumb");
        if !forbidden && (forced || able) { Paint::On } else { Paint::Off }
    }

    fn sgr(self, code: &str, text: &str) -> String {
        match self {
            Paint::On if !text.is_empty() => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Paint::On | Paint::Off => text.to_owned(),
        }
    }

    /// For what passed.
    pub fn good(self, text: &str) -> String {
        self.sgr("32", text)
    }

    /// For what failed.
    pub fn bad(self, text: &str) -> String {
        self.sgr("31", text)
    }

    /// For what needs attention.
    pub fn warn(self, text: &str) -> String {
        self.sgr("33", text)
    }

    /// Bold, for headings.
    pub fn strong(self, text: &str) -> String {
        self.sgr("1", text)
    }

    /// For what is less important.
    pub fn faint(self, text: &str) -> String {
        self.sgr("2", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides_about_colours() {
        let paint = |sink, vars: &[(&str, &str)]| {
            let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            Paint::wanted(sink, var)
        };
        assert_eq!(paint(TextSink::Terminal, &[]), Paint::On);
        assert_eq!(paint(TextSink::Other, &[]), Paint::Off);
        assert_eq!(paint(TextSink::Terminal, &[("NO_COLOR", "1")]), Paint::Off);
        assert_eq!(paint(TextSink::Terminal, &[("NO_COLOR", "")]), Paint::On);
        assert_eq!(paint(TextSink::Terminal, &[("CLICOLOR", "0")]), Paint::Off);
        assert_eq!(paint(TextSink::Other, &[("CLICOLOR_FORCE", "1")]), Paint::On);
        assert_eq!(paint(TextSink::Other, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), Paint::Off);
        assert_eq!(paint(TextSink::Terminal, &[("TERM", "dumb")]), Paint::Off);
        assert_eq!(Paint::Off.good("x"), "x");
    }
}
