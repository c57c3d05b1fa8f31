//! The statements of a Markdown page.
//!
//! - A row of a table is one statement; its head is none.
//! - A paragraph or an item of a list is cut into sentences. A sentence ends at `.`, `?` or `!` (and
//!   what closes brackets or emphasis behind it), outside of code, in front of a blank and something
//!   that is no lower-case letter. A bold beginning such as `**Small.**` belongs to the sentence that
//!   follows.
//! - Headings, blocks of code, pictures and comments claim nothing.
//!
//! Line breaks count as blanks, so a page can be wrapped anew.

/// All statements, in their order.
pub fn statements(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for block in blocks(page) {
        match block {
            Block::Row(row) => found.push(row),
            Block::Prose(text) => found.extend(sentences(&text)),
        }
    }
    found
}

enum Block {
    Row(String),
    Prose(String),
}

fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut prose, mut code) = (Vec::new(), String::new(), false);
    let lines: Vec<&str> = page.lines().map(str::trim).collect();
    for (i, line) in lines.iter().enumerate() {
        let fence = line.starts_with("```");
        code ^= fence;
        let apart = fence || code || line.is_empty() || ["#", "<!--", "![", "|"].iter().any(|p| line.starts_with(p));
        let item = ["- ", "* "].iter().find_map(|mark| line.strip_prefix(mark)).or_else(|| numbered(line));
        if apart || item.is_some() {
            end(&mut found, &mut prose);
        }
        if line.starts_with('|') && !code && !is_rule(line) && !lines.get(i + 1).is_some_and(|next| is_rule(next)) {
            found.push(Block::Row(words(line).trim_matches(['|', ' ']).to_owned()));
        } else if !apart {
            prose.push(' ');
            prose.push_str(item.unwrap_or(line));
        }
    }
    end(&mut found, &mut prose);
    found
}

fn end(found: &mut Vec<Block>, prose: &mut String) {
    let text = words(&std::mem::take(prose));
    if !text.is_empty() {
        found.push(Block::Prose(text));
    }
}

/// The text of an item such as `2. Text`.
fn numbered(line: &str) -> Option<&str> {
    let (number, text) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

/// The line between the head and the rows of a table.
fn is_rule(line: &str) -> bool {
    line.contains("--") && line.bytes().all(|b| b"|-: ".contains(&b))
}

pub fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn sentences(text: &str) -> Vec<String> {
    let (mut found, mut start, mut code) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        code ^= c == '`';
        if c != ' ' || code || !ends_sentence(&text[start..at]) {
            continue;
        }
        if !text[at + 1..].starts_with(char::is_lowercase) {
            found.push(text[start..at].to_owned());
            start = at + 1;
        }
    }
    found.push(text[start..].to_owned());
    found
}

fn ends_sentence(text: &str) -> bool {
    let is_bold_beginning = text.starts_with("**") && text.ends_with(".**") && text.matches("**").count() == 2;
    !is_bold_beginning && text.trim_end_matches([')', '*', '"']).ends_with(['.', '?', '!'])
}

#[test]
fn a_page_is_cut_into_sentences_items_and_rows() {
    let page = "# Title. Of a page\n\nOne claim of\ntwo lines. See `a. B` and e.g. this (so.) Is it?\n\n\
        - **Bold.** With its\n  sentence. Another.\n- An item\n  1. Inside.\n\n```sh\nno claim. None.\n```\n\
        ![picture](x)\n<!-- run -->\n\n| head | of it |\n|---|---|\n| a. B | `c` |\n";
    let wanted = [
        "One claim of two lines.",
        "See `a. B` and e.g. this (so.)",
        "Is it?",
        "**Bold.** With its sentence.",
        "Another.",
        "An item",
        "Inside.",
        "a. B | `c`",
    ];
    assert_eq!(statements(page), wanted);
}
