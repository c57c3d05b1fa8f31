//! A section of a file between two marks. Everything outside of them stays as it is.

/// The first and the last line of a section.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    begin: &'static str,
    end: &'static str,
}

/// Marks of a section in Markdown: comments that are not rendered.
pub const MARKDOWN: Marks = Marks { begin: "<!-- everloop:begin -->", end: "<!-- everloop:end -->" };
/// Marks of a section in TOML.
pub const TOML: Marks = Marks { begin: "# everloop:begin", end: "# everloop:end" };

impl Marks {
    /// The text with the section in it: in its place if it was there, else at the end.
    pub fn put(self, text: Option<&str>, body: &str) -> String {
        let text = text.unwrap_or_default();
        let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let section = format!("{}\n{}\n{}", self.begin, body.trim(), self.end).replace('\n', eol);
        if let Some((start, end)) = self.place(text) {
            return format!("{}{section}{}", &text[..start], &text[end..]);
        }
        let gap = match text {
            "" => String::new(),
            text if text.ends_with('\n') => eol.to_owned(),
            _ => eol.repeat(2),
        };
        format!("{text}{gap}{section}{eol}")
    }

    /// The text without the section and the empty line before it; `None` when nothing else is in
    /// it.
    pub fn take(self, text: &str) -> Option<String> {
        let Some((start, end)) = self.place(text) else { return Some(text.to_owned()) };
        let after = &text[end..];
        let after = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n')).unwrap_or(after);
        let before = &text[..start];
        let gap = |eol: &str| before.strip_suffix(eol).filter(|rest| rest.ends_with('\n'));
        let before = gap("\r\n").or_else(|| gap("\n")).unwrap_or(before);
        let rest = format!("{before}{after}");
        (!rest.trim().is_empty()).then_some(rest)
    }

    /// Whether the text contains the section.
    pub fn are_in(self, text: &str) -> bool {
        self.place(text).is_some()
    }

    fn place(self, text: &str) -> Option<(usize, usize)> {
        let start = text.find(self.begin)?;
        let end = start + text[start..].find(self.end)? + self.end.len();
        Some((start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_put_in_once_and_taken_out_without_a_trace() {
        for text in ["# Mine\n", "# Mine\n\nmore\n\n", "a\r\nb\r\n", "\n"] {
            let with = MARKDOWN.put(Some(text), "be good");
            assert_eq!(MARKDOWN.put(Some(&with), "be good"), with, "twice is once");
            assert_eq!(MARKDOWN.take(&with).unwrap_or_else(|| text.to_owned()), text, "{with:?}");
            let other = MARKDOWN.put(Some(&with), "be better");
            assert!(other.contains("be better") && !other.contains("be good"));
        }
        assert_eq!(MARKDOWN.take(&MARKDOWN.put(None, "x")), None);
        assert!(MARKDOWN.put(Some("a\r\n"), "x").matches("\r\n").count() == 5);
    }

    #[test]
    fn what_others_write_around_it_stays() {
        let with = format!("{}after\n", MARKDOWN.put(Some("before"), "x"));
        assert_eq!(MARKDOWN.take(&with).as_deref(), Some("before\nafter\n"));
    }
}
