//! Text as a picture of a terminal: a static SVG without scripts, fonts or links.

use std::fmt::Write;

use super::text::{clean, fit};

/// Cells in a line of the picture; longer lines end in `…`.
const COLUMNS: usize = 110;
/// Pixels per cell and per line, for a monospace font of `FONT` pixels.
const CELL: f64 = 7.25;
const LINE: usize = 17;
const FONT: usize = 12;
/// Pixels around the text, and of the bar with the title.
const MARGIN: usize = 14;
const BAR: usize = 28;

const STYLE: &str = "text{font-family:ui-monospace,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre}\
.t{fill:#8b949e;text-anchor:middle}.n{fill:#79c0ff}.g{fill:#7ee787}.w{fill:#e3b341}.b{fill:#ff7b72}";

/// Words that give a line its class; the first that occurs decides.
const CLASSES: [(&str, &str); 6] =
    [("demo:", "n"), ("refused", "b"), ("regressed", "b"), ("reached", "g"), ("progress", "g"), ("waits", "w")];

/// A picture of a terminal with these lines.
pub fn terminal(title: &str, lines: &[String]) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number of pixels")]
    let width = (COLUMNS as f64 * CELL) as usize + 2 * MARGIN;
    let height = BAR + 2 * MARGIN + lines.len() * LINE;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
height=\"{height}\" font-size=\"{FONT}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n\
<text class=\"t\" x=\"{}\" y=\"18\">{}</text>\n",
        escaped(title),
        width / 2,
        escaped(title)
    );
    for (number, line) in lines.iter().enumerate() {
        let y = BAR + MARGIN + number * LINE;
        let line = fit(&clean(line), COLUMNS);
        let class = CLASSES.iter().find(|(word, _)| line.contains(word));
        let class = class.map_or(String::new(), |(_, class)| format!(" class=\"{class}\""));
        writeln!(text, "<text{class} x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(&line))
            .expect("writing to a string cannot fail");
    }
    text + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_long_lines_end() {
        let lines = ["<script>&\u{1b}[2J".to_owned(), "x".repeat(300), "demo: hello".to_owned()];
        let picture = terminal("a & b", &lines);
        assert!(picture.contains("&lt;script&gt;&amp;") && !picture.contains("<script>"), "{picture}");
        assert!(!picture.contains('\u{1b}') && picture.contains("<title>a &amp; b</title>"), "{picture}");
        assert!(picture.contains("<text class=\"n\"") && picture.contains("demo: hello"), "{picture}");
        assert!(picture.lines().all(|line| !line.starts_with("<text") || line.chars().count() < 200), "{picture}");
    }
}
