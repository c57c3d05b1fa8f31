//! Text on a terminal: what may be printed at all, how wide it is, where it is cut.
//!
//! Agents, files and checks are not trusted: their text passes [`clean`] before it is printed.
//! After that the only escape sequences in a line are our own colours, which [`width`] and [`fit`]
//! know.

use unicode_width::UnicodeWidthChar;

/// One safe line: no control characters, no escape sequences, nothing that reorders or hides text.
pub fn clean(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            // The one-character forms of CSI and OSC; like the long ones they take their parameters
            // with them.
            '\u{9b}' => skip_csi(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut chars),
            '\n' | '\t' | '\r' | '\u{2028}' | '\u{2029}' => safe.push(' '),
            c if c.is_control() || hides(c) => {}
            c => safe.push(c),
        }
    }
    safe
}

/// Several safe lines; at most `max`, with a count of the rest.
pub fn clean_lines(text: &str, max: usize) -> Vec<String> {
    let all: Vec<&str> = text.lines().collect();
    let mut lines: Vec<String> = all.iter().take(max).map(|line| clean(line).trim_end().to_owned()).collect();
    if all.len() > max {
        lines.push(format!("… {} more lines", all.len() - max));
    }
    lines
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_string(chars);
        }
        // Two-character sequences; a control character is left to the caller.
        Some(c) if !c.is_control() => drop(chars.next()),
        _ => {}
    }
}

/// Parameters and intermediates up to the final byte; anything else ends a broken sequence and is
/// kept.
fn skip_csi(chars: &mut Chars<'_>) {
    while let Some(c) = chars.peek() {
        match c {
            ' '..='?' => drop(chars.next()),
            '@'..='~' => {
                chars.next();
                return;
            }
            _ => return,
        }
    }
}

/// Up to BEL or ST. An unfinished one ends with the line, so that it cannot swallow what follows.
fn skip_string(chars: &mut Chars<'_>) {
    while let Some(c) = chars.peek().copied() {
        if c == '\n' {
            return;
        }
        chars.next();
        if c == '\u{7}' || c == '\u{9c}' {
            return;
        }
        if c == '\u{1b}' {
            chars.next_if_eq(&'\\');
            return;
        }
    }
}

/// Marks that reorder text or cannot be seen.
fn hides(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Terminal cells of a line that holds no escape sequences but our colours.
pub fn width(line: &str) -> usize {
    let mut cells = 0;
    walk(line, |_, c| cells += c.map_or(0, |c| c.width().unwrap_or(0)));
    cells
}

/// The line, at most `cells` wide; a cut is shown by `…` and ends the colour.
pub fn fit(line: &str, cells: usize) -> String {
    if width(line) <= cells {
        return line.to_owned();
    }
    let room = cells.saturating_sub(1);
    let (mut used, mut end, mut coloured) = (0, 0, false);
    let mut open = true;
    walk(line, |at, c| {
        let next = c.map_or(0, |c| c.width().unwrap_or(0));
        open = open && used + next <= room;
        if open {
            used += next;
            coloured |= c.is_none();
            end = at;
        }
    });
    let mark = if cells == 0 { "" } else { "…" };
    format!("{}{mark}{}", &line[..end], if coloured { "\u{1b}[0m" } else { "" })
}

/// Calls `visit` with the end of each character (`Some`) or colour sequence (`None`).
fn walk(line: &str, mut visit: impl FnMut(usize, Option<char>)) {
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\u{1b}' {
            let end = chars.find(|(_, c)| c.is_ascii_alphabetic()).map_or(line.len(), |(at, _)| at + 1);
            visit(end, None);
        } else {
            visit(at + c.len_utf8(), Some(c));
        }
    }
}

/// The line, filled with spaces to `cells`.
pub fn pad(line: &str, cells: usize) -> String {
    format!("{line}{}", " ".repeat(cells.saturating_sub(width(line))))
}

/// `1 turn`, `2 turns`.
pub fn count(n: impl Into<u64>, one: &str) -> String {
    match n.into() {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}

/// `once`, `3 times`.
pub fn times(n: u32) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

/// The known word that was probably meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this, two words have no more in common than chance gives them.
    const ALIKE: f64 = 0.88;
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let word = plain(word);
    let slips = (word.chars().count() / 3).max(1);
    let scored = known.into_iter().map(|k| {
        let k_plain = plain(k);
        (strsim::osa_distance(&word, &k_plain), strsim::jaro_winkler(&word, &k_plain), k)
    });
    let alike = scored.filter(|(distance, likeness, _)| *distance <= slips || *likeness >= ALIKE);
    alike.min_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1))).map(|(_, _, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_hides_or_retitles_survives() {
        for (dirty, safe) in [
            ("plain ünï 漢字", "plain ünï 漢字"),
            ("a\u{1b}[31mred\u{1b}[0m", "ared"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\b", "alinkb"),
            ("a\u{9d}0;t\u{9c}b", "ab"),
            ("a\u{9b}2Jb", "ab"),
            ("a\u{1b}Pq\u{1b}\\b", "ab"),
            ("a\u{1b}]0;never closed\nnext", "a next"),
            ("rtl \u{202e}evil\u{2066}", "rtl evil"),
            ("a\rb\tc\nd", "a b c d"),
            ("nul\0bell\u{7}back\u{8}del\u{7f}", "nulbellbackdel"),
            ("a\u{1b}", "a"),
            ("\u{e0041}tag\u{feff}", "tag"),
        ] {
            assert_eq!(clean(dirty), safe, "{dirty:?}");
        }
    }

    #[test]
    fn cuts_count_cells_not_bytes_and_close_colours() {
        assert_eq!(fit("漢字漢字", 5), "漢字…");
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit("longer", 5), "long…");
        assert_eq!(fit("\u{1b}[32mgreen\u{1b}[0m", 5), "\u{1b}[32mgreen\u{1b}[0m");
        assert_eq!(fit("\u{1b}[32mgreener\u{1b}[0m", 5), "\u{1b}[32mgree…\u{1b}[0m");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(width("\u{1b}[1mab\u{1b}[0m"), 2);
    }

    #[test]
    fn fit_never_exceeds_the_width() {
        let lines = ["\u{1b}[31m漢x漢\u{1b}[0m yy", "ééééé", "", "a b c d e f"];
        for line in lines {
            for cells in 0..14 {
                assert!(width(&fit(line, cells)) <= cells, "{line:?} in {cells}");
            }
        }
    }
}
