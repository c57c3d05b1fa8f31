//! Writes SVG and HTML: elements, coordinates, and the texts in them, which are data.

use std::fmt::{Arguments, Write as _};

/// Adds a text.
pub fn put(out: &mut String, text: Arguments<'_>) {
    out.write_fmt(text).expect("a string takes everything");
}

/// Adds a text and ends the line.
pub fn put_line(out: &mut String, text: Arguments<'_>) {
    put(out, text);
    out.push('\n');
}

/// Adds a path of a class, on a line of its own.
pub fn put_path(out: &mut String, class: &str, path: &str) {
    put_line(out, format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
}

/// Adds a text that begins, ends or has its middle at a point.
pub fn put_text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let (x, y, text) = (pixel(x), pixel(y), escape(text));
    put_line(out, format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"));
}

/// A line that goes on at its height until the next value begins.
pub fn step_line(steps: &[(f64, f64)], height: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (x, value) in steps {
        let (across, up) = if path.is_empty() { ('M', ' ') } else { ('H', 'V') };
        put(&mut path, format_args!("{across}{}{up}{}", pixel(*x), pixel(height(*value))));
    }
    path
}

/// A coordinate with one digit after the point.
pub fn pixel(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// A value with five significant digits.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let exponent = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if !(-4.0..9.0).contains(&exponent) {
        let text = format!("{value:.4e}");
        return text.split_once('e').map_or(text.clone(), |(digits, power)| format!("{}e{power}", trimmed(digits)));
    }
    let digits = (4.0 - exponent).max(0.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { trimmed(&text) } else { text }
}

/// Columns of a letter in a terminal; too many rather than too few.
pub fn columns(letter: char) -> usize {
    if matches!(letter, '\0'..='\u{10ff}' | '\u{2010}'..='\u{25ff}') { 1 } else { 2 }
}

/// A text as one line without control characters, cut to so many columns.
pub fn fit(text: &str, most: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line: String = words.collect::<Vec<_>>().join(" ").chars().filter(|c| !is_invisible(*c)).collect();
    if line.chars().map(columns).sum::<usize>() <= most {
        return line;
    }
    let mut used = 1;
    let kept = line.chars().take_while(|letter| {
        used += columns(*letter);
        used <= most
    });
    let kept: String = kept.collect();
    if most == 0 { String::new() } else { format!("{}…", kept.trim_end()) }
}

/// Characters that are not seen, of which some turn a line around, and those that XML cannot hold.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(letter, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A text as content or attribute of HTML and SVG. Characters that XML cannot hold, and those that
/// turn a line around, are replaced.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            _ if letter.is_control() || is_invisible(letter) => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, text) in [(0.0, "0"), (100.0, "100"), (1234.56, "1234.6"), (1e12, "1e12"), (-2.5e-7, "-2.5e-7")] {
            assert_eq!(figure(value), text);
        }
    }
}
