//! Turns a command's output into text that is safe to show: no control characters, no terminal
//! sequences.

/// An unfinished sequence longer than this is treated as text.
const LONGEST_SEQUENCE: usize = 256;

/// Bytes that are tested together.
const BLOCK: usize = 32;

/// Lossy UTF-8 without control characters (except line feed and tab), terminal sequences and
/// direction marks.
pub fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    loop {
        // Nearly all text is harmless from beginning to end: it is copied at once.
        let harmless;
        (harmless, rest) = rest.split_at(harmless_bytes(rest));
        out.push_str(harmless);
        let Some(c) = rest.chars().next() else { return out };
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\u{1b}' => after_sequence(after),
            '\r' if after.starts_with('\n') => after,
            // A progress line that overwrites itself becomes several lines.
            '\r' => {
                out.push('\n');
                after
            }
            '\n' | '\t' => {
                out.push(c);
                after
            }
            c if c.is_control() || turns_text(c) => after,
            c => {
                out.push(c);
                after
            }
        };
    }
}

/// How many leading bytes can be copied without testing each character. Ends at a character
/// boundary.
fn harmless_bytes(text: &str) -> usize {
    // Without a branch per byte, so that the compiler can vectorise it.
    let calm = |block: &&[u8]| !block.iter().fold(false, |found, b| found | may_matter(*b));
    let blocks = text.as_bytes().chunks_exact(BLOCK).take_while(calm).count() * BLOCK;
    let rest = &text.as_bytes()[blocks..];
    blocks + rest.iter().position(|b| may_matter(*b)).unwrap_or(rest.len())
}

/// Whether a byte begins a character that is removed or changed. Besides ASCII's control characters
/// these are some behind `0xc2` (C1) and `0xe2` (direction marks); no such byte occurs inside of a
/// character.
fn may_matter(byte: u8) -> bool {
    (byte < b' ' && byte != b'\n' && byte != b'\t') || matches!(byte, 0x7f | 0xc2 | 0xe2)
}

/// Marks that change the reading direction of text.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// The text after the sequence that an escape character began.
fn after_sequence(rest: &str) -> &str {
    let mut chars = rest.char_indices();
    match chars.next() {
        Some((_, '[')) => match chars.take(LONGEST_SEQUENCE).find(|(_, c)| !(' '..='?').contains(c)) {
            Some((i, c)) if ('@'..='~').contains(&c) => &rest[i + 1..],
            Some((i, _)) => &rest[i..],
            None => &rest[1..],
        },
        // Titles, links, device strings: up to BEL or the string terminator, on the same line.
        Some((_, ']' | 'P' | '^' | '_' | 'X')) => {
            match chars.take(LONGEST_SEQUENCE).find(|(_, c)| matches!(c, '\u{7}' | '\u{1b}' | '\n')) {
                Some((i, '\u{1b}')) => rest[i + 1..].strip_prefix('\\').unwrap_or(&rest[i..]),
                Some((i, '\u{7}')) => &rest[i + 1..],
                Some((i, _)) => &rest[i..],
                None => &rest[1..],
            }
        }
        Some((_, c)) if c.is_ascii() && !c.is_ascii_control() => &rest[1..],
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_terminal_gets_through() {
        for (raw, shown) in [
            ("\x1b[31mred\x1b[0m\n", "red\n"),
            ("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc"),
            ("10%\r20%\r\nend\0\x08\t.", "10%\n20%\nend\t."),
            ("\x1b]0;never ends\nnext", "\nnext"),
            ("\u{9b}31m\u{202e}abc", "31mabc"),
            ("\x1b", ""),
            ("\x1b\x1b[1mx", "x"),
        ] {
            assert_eq!(plain(raw.as_bytes()), shown, "{raw:?}");
        }
        assert_eq!(plain(b"ok \xff\xfe"), "ok \u{fffd}\u{fffd}");
        let long = format!("\x1b]{}", "x".repeat(1000));
        assert!(plain(long.as_bytes()).len() > 900);
    }

    /// Harmless text is copied in blocks; other characters are found at every position of a block.
    #[test]
    fn it_does_not_matter_where_a_character_stands() {
        let odd = ["\x1b[31m", "\0", "\x7f", "\u{9b}", "\u{202e}", "\u{200f}", "\u{2066}", "\r"];
        let usual = ["é", "“", "\u{2028}", "語", "🦀", "\n", "\t", " ", "~", "\u{a0}", "\u{200b}"];
        for before in 0..70 {
            let dots = ".".repeat(before);
            for c in odd {
                let shown = if c == "\r" { "\n" } else { "" };
                assert_eq!(plain(format!("{dots}{c}x{c}").as_bytes()), format!("{dots}{shown}x{shown}"), "{c:?}");
            }
            for c in usual {
                let text = format!("{dots}{c}{c}.");
                assert_eq!(plain(text.as_bytes()), text);
            }
        }
    }
}
