//! A mistake in a configuration, with its place. Owns how mistakes look, not what is a mistake.

use std::fmt;
use std::ops::Range;

use serde_json::{Value, json};

use crate::text;

/// A text that was read, to point into.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceText {
    /// How the file is called in messages.
    pub name: String,
    /// What it holds.
    pub text: String,
}

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpan {
    /// How the file is called.
    pub file: String,
    /// Counts from 1.
    pub line: usize,
    /// In characters; counts from 1.
    pub column: usize,
    /// The whole line, safe to print.
    pub excerpt: String,
    /// The part of it to point at, in terminal cells.
    pub caret: Range<usize>,
}

impl SourceText {
    /// Where a span of bytes begins. A span outside the text (end of file) points behind its last
    /// character.
    pub fn place(&self, span: &Range<usize>) -> SourceSpan {
        let start = floor_char(&self.text, span.start);
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        // A span over several lines is shown by its first.
        let end = floor_char(&self.text, span.end.clamp(start, line_end)).max(start);
        let cells = |part: &str| text::width(&text::clean(part));
        let from = cells(&self.text[line_start..start]);
        SourceSpan {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: self.text[line_start..start].chars().count() + 1,
            excerpt: text::clean(&self.text[line_start..line_end]),
            caret: from..from + cells(&self.text[start..end]).max(1),
        }
    }
}

impl SourceSpan {
    /// Shows the key of the line only: the value may be a secret that was put there by mistake.
    pub fn hide_value(&mut self) {
        if let Some((key, _)) = self.excerpt.split_once('=') {
            self.excerpt = format!("{key}= …");
        }
    }
}

fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// A lower-case fragment.
    pub message: String,
    /// Where, if it is in a file.
    pub place: Option<Box<SourceSpan>>,
    /// What to change.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A mistake that is not in a file.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None, hint: None }
    }

    /// Adds the place of the mistake.
    #[must_use]
    pub fn at(mut self, source: &SourceText, span: &Range<usize>) -> Self {
        self.place = Some(Box::new(source.place(span)));
        self
    }

    /// Adds what to change.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As text for a person, ending in a line break.
    pub fn render(&self) -> String {
        let mut lines = vec![format!("error: {}", self.message)];
        if let Some(place) = &self.place {
            let number = place.line.to_string();
            let margin = " ".repeat(number.len());
            let indent = " ".repeat(place.caret.start);
            lines.push(format!("{margin}--> {}:{}:{}", place.file, place.line, place.column));
            lines.push(format!("{margin} |"));
            lines.push(format!("{number} | {}", place.excerpt));
            lines.push(format!("{margin} | {indent}{}", "^".repeat(place.caret.len())));
        }
        if let Some(hint) = &self.hint {
            lines.push(format!("hint: {hint}"));
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// As data for a program.
    pub fn to_json(&self) -> Value {
        let place = self.place.as_ref();
        json!({
            "message": self.message,
            "file": place.map(|p| &p.file),
            "line": place.map(|p| p.line),
            "column": place.map(|p| p.column),
            "hint": self.hint,
        })
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub diagnostics: Vec<Diagnostic>,
}

impl ConfigError {
    /// `Ok` when there is nothing wrong.
    pub fn unless_empty(diagnostics: Vec<Diagnostic>) -> Result<(), Self> {
        if diagnostics.is_empty() { Ok(()) } else { Err(Self { diagnostics }) }
    }
}

impl From<Diagnostic> for ConfigError {
    fn from(one: Diagnostic) -> Self {
        Self { diagnostics: vec![one] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.diagnostics.iter().map(Diagnostic::render).collect();
        f.write_str(&all.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> SourceText {
        SourceText { name: "x.toml".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn the_caret_stands_under_wide_and_multibyte_text() {
        let source = source("a = 1\nü = \"漢字\" # x\n");
        let start = source.text.find('"').expect("there is a quote");
        let place = source.place(&(start..start + 8));
        assert_eq!((place.line, place.column), (2, 5));
        assert_eq!(place.caret, 4..10);
    }

    #[test]
    fn spans_at_and_behind_the_end_are_shown_too() {
        let source = source("a =");
        assert_eq!(source.place(&(3..3)).caret, 3..4);
        assert_eq!(source.place(&(99..120)).column, 4);
        assert_eq!(super::SourceText { name: String::new(), text: String::new() }.place(&(0..0)).line, 1);
    }

    #[test]
    fn a_span_over_several_lines_is_shown_by_its_first() {
        let place = source("x = [\n1,\n]").place(&(4..10));
        assert_eq!((place.line, place.caret), (1, 4..5));
    }

    #[test]
    fn control_characters_of_a_file_do_not_reach_the_terminal() {
        let text = source("a = \u{1b}]0;pwned\u{7} 1").place(&(0..1)).excerpt;
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text:?}");
    }
}
