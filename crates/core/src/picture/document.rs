//! A document for people that is written once and read as HTML, Markdown or plain text: headings,
//! facts, tables, lists and one kind of picture. All texts are data and are escaped by each form.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use super::page::{page, section};
use super::svg::{escape, fit, put, put_line};

/// Columns of one text; longer ones end in `…`.
const TEXT_COLUMNS: usize = 400;
/// Columns of the first cells of a table in plain text.
const CELL_COLUMNS: usize = 60;

/// A part of a section.
#[derive(Clone, Debug)]
pub enum Block {
    Text(String),
    /// Names and values.
    Facts(Vec<(&'static str, String)>),
    Table {
        head: Vec<&'static str>,
        rows: Vec<Vec<String>>,
    },
    List(Vec<String>),
    /// Commands to copy, with what they do.
    Commands(Vec<(String, String)>),
    /// A picture as SVG and as lines of text.
    Picture {
        svg: String,
        text: String,
    },
    /// A heading below that of the section.
    Heading(String),
}

/// A heading with what stands under it.
#[derive(Clone, Debug)]
pub struct Section {
    pub title: String,
    pub blocks: Vec<Block>,
}

/// Title, one sentence and sections.
#[derive(Clone, Debug)]
pub struct Document {
    pub title: String,
    pub lead: String,
    pub sections: Vec<Section>,
}

impl Document {
    /// One page without scripts and other files.
    pub fn html(&self) -> String {
        let title = html_text(&self.title);
        let mut body = format!("<h1>{title}</h1>\n<p>{}</p>\n", html_text(&self.lead));
        for part in &self.sections {
            let blocks: String = part.blocks.iter().map(html_block).collect();
            body.push_str(&section(&html_text(&part.title), &blocks));
        }
        page(&title, &body)
    }

    /// Markdown in which no text can become markup.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n{}\n", marked(&self.title), marked(&self.lead));
        for part in &self.sections {
            put_line(&mut out, format_args!("\n## {}", marked(&part.title)));
            for block in &part.blocks {
                out.push('\n');
                out.push_str(&markdown_block(block));
            }
        }
        out
    }

    /// Plain text of about this width; long texts are not broken.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n{}\n", fit(&self.title, TEXT_COLUMNS), fit(&self.lead, TEXT_COLUMNS));
        for part in &self.sections {
            put_line(&mut out, format_args!("\n{}", fit(&part.title, TEXT_COLUMNS).to_uppercase()));
            for block in &part.blocks {
                out.push_str(&text_block(block));
            }
        }
        out
    }
}

fn html_text(text: &str) -> String {
    escape(&fit(text, TEXT_COLUMNS))
}

fn html_block(block: &Block) -> String {
    match block {
        Block::Text(text) => format!("<p>{}</p>\n", html_text(text)),
        Block::Heading(text) => format!("<h3>{}</h3>\n", html_text(text)),
        Block::Facts(facts) => {
            let mut all = String::new();
            for (name, value) in facts {
                put_line(&mut all, format_args!("<dt>{name}</dt><dd>{}</dd>", html_text(value)));
            }
            format!("<dl>\n{all}</dl>\n")
        }
        Block::Table { head, rows } => {
            let head = head.join("<th scope=\"col\">");
            let mut body = String::new();
            for row in rows {
                let cells: Vec<String> = row.iter().map(|cell| html_text(cell)).collect();
                put_line(&mut body, format_args!("<tr><td>{}</tr>", cells.join("<td>")));
            }
            format!(
                "<div class=\"wide\">\n<table>\n<thead><tr><th scope=\"col\">{head}</tr></thead>\n<tbody>\n\
                 {body}</tbody>\n</table>\n</div>\n"
            )
        }
        Block::List(items) => {
            let items: Vec<String> = items.iter().map(|item| html_text(item)).collect();
            format!("<ul>\n<li>{}</li>\n</ul>\n", items.join("</li>\n<li>"))
        }
        Block::Commands(commands) => {
            let mut all = String::new();
            for (command, what) in commands {
                put_line(&mut all, format_args!("<li><code>{}</code> {}</li>", html_text(command), html_text(what)));
            }
            format!("<ul class=\"commands\">\n{all}</ul>\n")
        }
        Block::Picture { svg, .. } => {
            format!("<figure class=\"wide\" role=\"region\" aria-label=\"Picture\" tabindex=\"0\">\n{svg}</figure>\n")
        }
    }
}

/// A text that Markdown shows as it is.
fn marked(text: &str) -> String {
    let mut out = String::new();
    for letter in fit(text, TEXT_COLUMNS).chars() {
        if "\\`*_{}[]<>#|~!&@$".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    // At the beginning of a line these would begin a list or a rule.
    if out.starts_with(['-', '+', '=']) || out.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok()) {
        out.insert(0, '\u{200a}');
    }
    out
}

fn markdown_block(block: &Block) -> String {
    let mut out = String::new();
    match block {
        Block::Text(text) => put_line(&mut out, format_args!("{}", marked(text))),
        Block::Heading(text) => put_line(&mut out, format_args!("### {}", marked(text))),
        Block::Facts(facts) => {
            for (name, value) in facts {
                put_line(&mut out, format_args!("- **{name}:** {}", marked(value)));
            }
        }
        Block::Table { head, rows } => {
            put_line(&mut out, format_args!("| {} |", head.join(" | ")));
            put_line(&mut out, format_args!("|{}", "---|".repeat(head.len())));
            for row in rows {
                let cells: Vec<String> = row.iter().map(|cell| marked(cell)).collect();
                put_line(&mut out, format_args!("| {} |", cells.join(" | ")));
            }
        }
        Block::List(items) => {
            for item in items {
                put_line(&mut out, format_args!("- {}", marked(item)));
            }
        }
        Block::Commands(commands) => {
            for (command, what) in commands {
                put_line(
                    &mut out,
                    format_args!("- `{}` {}", fit(command, TEXT_COLUMNS).replace('`', "'"), marked(what)),
                );
            }
        }
        Block::Picture { text, .. } => {
            put(&mut out, format_args!("```text\n{}```\n", text.replace('`', "'")));
        }
    }
    out
}

fn text_block(block: &Block) -> String {
    let mut out = String::new();
    match block {
        Block::Text(text) => put_line(&mut out, format_args!("  {}", fit(text, TEXT_COLUMNS))),
        Block::Heading(text) => put_line(&mut out, format_args!("\n  {}", fit(text, TEXT_COLUMNS))),
        Block::Facts(facts) => {
            let wide = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
            for (name, value) in facts {
                put_line(&mut out, format_args!("  {name:wide$}  {}", fit(value, TEXT_COLUMNS)));
            }
        }
        Block::Table { head, rows } => {
            let cell = |text: &str| fit(text, CELL_COLUMNS);
            let mut lines: Vec<Vec<String>> = vec![head.iter().map(|name| name.to_uppercase()).collect()];
            lines.extend(rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()));
            let wide = |n: usize| lines.iter().filter_map(|line| line.get(n)).map(|cell| cell.chars().count()).max();
            let widths: Vec<usize> = (0..head.len()).map(|n| wide(n).unwrap_or(0)).collect();
            for line in &lines {
                let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, wide)| format!("{cell:wide$}")).collect();
                put_line(&mut out, format_args!("  {}", cells.join("  ").trim_end()));
            }
        }
        Block::List(items) => {
            for item in items {
                put_line(&mut out, format_args!("  - {}", fit(item, TEXT_COLUMNS)));
            }
        }
        Block::Commands(commands) => {
            let wide = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
            for (command, what) in commands {
                put_line(&mut out, format_args!("  {:wide$}  {}", fit(command, TEXT_COLUMNS), fit(what, TEXT_COLUMNS)));
            }
        }
        Block::Picture { text, .. } => {
            for line in text.lines() {
                put_line(&mut out, format_args!("  {line}"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "<script>x</script> | `rm` *b* [l](http://e) \u{1b}[2J\n# h";

    fn document() -> Document {
        let blocks = vec![
            Block::Heading(EVIL.to_owned()),
            Block::Text(EVIL.to_owned()),
            Block::Facts(vec![("Goal", EVIL.to_owned())]),
            Block::Table { head: vec!["A", "B"], rows: vec![vec![EVIL.to_owned(), "2".to_owned()]] },
            Block::List(vec![EVIL.to_owned()]),
            Block::Commands(vec![("everloop diff `x`".to_owned(), EVIL.to_owned())]),
            Block::Picture { svg: "<svg></svg>\n".to_owned(), text: "··█\n".to_owned() },
        ];
        let sections = vec![Section { title: EVIL.to_owned(), blocks }];
        Document { title: EVIL.to_owned(), lead: "1. first".to_owned(), sections }
    }

    #[test]
    fn texts_are_no_markup_in_any_form() {
        let (html, markdown, text) = (document().html(), document().markdown(), document().text());
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;") && html.contains("<svg></svg>"));
        for form in [&html, &markdown, &text] {
            assert!(!form.contains('\u{1b}') && form.contains("everloop diff"), "{form}");
        }
        assert!(!markdown.contains("<script>") && markdown.contains("\\<script\\>"), "{markdown}");
        assert!(!markdown.contains("[l](") && !markdown.contains("\n# h") && !markdown.contains("\n1. "), "{markdown}");
        assert_eq!(markdown.lines().filter(|line| line.starts_with("# ")).count(), 1);
        let row = markdown.lines().find(|line| line.contains("| 2 |")).unwrap_or_default();
        assert_eq!(row.replace("\\|", "").matches('|').count(), 3, "{row}");
        assert!(text.lines().any(|line| line == "  ··█"), "{text}");
    }
}
