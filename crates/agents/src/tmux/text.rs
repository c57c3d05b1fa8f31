//! What may be typed: text without control characters. A control character in a terminal is a key,
//! and some keys end programs, leave the bracketed paste, or answer dialogs.

use std::collections::BTreeMap;

/// Text that presses no keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SafeText {
    kept: String,
    stripped: BTreeMap<char, u64>,
    replaced: u64,
}

impl SafeText {
    /// Removes C0, DEL and C1 control characters but line feeds and tabs; invalid UTF-8 becomes
    /// U+FFFD. Both are counted, because a change to the text must not be silent.
    pub fn clean(bytes: &[u8]) -> Self {
        let mut clean = Self::default();
        clean.kept.reserve(bytes.len());
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() && c != '\n' && c != '\t' {
                    *clean.stripped.entry(c).or_default() += 1;
                } else {
                    clean.kept.push(c);
                }
            }
            if !chunk.invalid().is_empty() {
                clean.kept.push(char::REPLACEMENT_CHARACTER);
                clean.replaced += 1;
            }
        }
        clean
    }

    pub fn as_str(&self) -> &str {
        &self.kept
    }

    /// Which control characters were removed, and how often.
    pub fn stripped(&self) -> &BTreeMap<char, u64> {
        &self.stripped
    }

    /// How many pieces were invalid UTF-8.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// One sentence about the changes; `None` when there are none.
    pub fn changes(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.stripped.is_empty() {
            let which: Vec<String> =
                self.stripped.iter().map(|(c, n)| format!("U+{:04X} {n}×", u32::from(*c))).collect();
            parts.push(format!("control characters were removed: {}", which.join(", ")));
        }
        if self.replaced > 0 {
            parts.push(format!("{} pieces of invalid UTF-8 were replaced by U+FFFD", self.replaced));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_out_and_counted() {
        for (dirty, safe, changes) in [
            (&b"plain \xc3\xa9\t\n"[..], "plain é\t\n", None),
            (b"a\x03b\x1b[201~c\x1bd", "ab[201~cd", Some("control characters were removed: U+0003 1×, U+001B 2×")),
            (b"a\r\nb\x7f", "a\nb", Some("control characters were removed: U+000D 1×, U+007F 1×")),
            (b"a\xc2\x9b201~", "a201~", Some("control characters were removed: U+009B 1×")),
            (
                b"\x9b\xffx\xe2\x82",
                "\u{fffd}\u{fffd}x\u{fffd}",
                Some("3 pieces of invalid UTF-8 were replaced by U+FFFD"),
            ),
            (b"", "", None),
        ] {
            let text = SafeText::clean(dirty);
            assert_eq!(text.as_str(), safe, "{dirty:?}");
            assert_eq!(text.changes().as_deref(), changes, "{dirty:?}");
        }
    }
}
