//! Rules about words: line lengths of documents, the glossary of ARCHITECTURE.md, and the prose of
//! comments.

use std::path::Path;
use std::process::Command;

use super::{Source, accepted, refused, root, the_tree_obeys};

/// Columns of a line of prose.
const MAX_COLUMNS: usize = 100;
/// The README fits on a few screens.
const README_LINES: usize = 120;
/// References that are generated from code.
const GENERATED: &[&str] = &["docs/config.md", "docs/commands.md"];
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md"];

fn is_page(path: &str) -> bool {
    path.starts_with("docs/") && Path::new(path).extension().is_some_and(|e| e == "md")
}

/// Lines of prose that are too wide. Tables and blocks of code cannot be broken.
fn wide_prose(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    let wanted = |f: &&Source| DOCUMENTS.contains(&f.path.as_str()) || is_page(&f.path);
    for file in files.iter().filter(wanted).filter(|f| !GENERATED.contains(&f.path.as_str())) {
        let mut code = false;
        for (i, line) in file.text.lines().enumerate() {
            let fence = line.trim_start().starts_with("```");
            code ^= fence;
            if !code && !fence && !line.starts_with('|') && line.chars().count() > MAX_COLUMNS {
                found.push(file.at(i, line.trim()));
            }
        }
        if file.path == "README.md" && file.text.lines().count() > README_LINES {
            found.push(format!("{}: {} lines", file.path, file.text.lines().count()));
        }
    }
    found
}

#[test]
fn documents_have_100_columns_and_the_readme_120_lines() {
    let wide = format!("{}\n", "word ".repeat(21));
    refused(wide_prose, "README.md", &wide);
    refused(wide_prose, "docs/mesh.md", &format!("```sh\nx\n```\n{wide}"));
    refused(wide_prose, "README.md", &"x\n".repeat(121));
    accepted(wide_prose, "README.md", &"x\n".repeat(120));
    accepted(wide_prose, "docs/mesh.md", &format!("| {wide}```sh\n{wide}```\n{}\n", "x".repeat(100)));
    accepted(wide_prose, "docs/config.md", &wide);
    the_tree_obeys(wide_prose, "break the line; details belong on a page of docs/");
}

/// Words that the glossary replaced, and their replacement. Only words without an ordinary meaning
/// in this code are listed, so that a hit is always a mistake.
const OLD_WORDS: &[(&str, &str)] = &[
    (concat!("pur", "se"), "budget"),
    (concat!("lo", "an"), "reservation"),
    (concat!("lo", "ans"), "reservations"),
    (concat!("depo", "sed"), "not the leader"),
    (concat!("erra", "nd"), "ActionRun"),
    (concat!("erra", "nds"), "ActionRun"),
    (concat!("unhe", "ard"), "undelivered"),
    (concat!("ha", "ste"), "ScaledClock"),
    (concat!("shel", "ved"), "kept as a late result"),
    (concat!("gla", "nce"), "snapshot"),
    (concat!("cro", "wd"), "correlated stalls"),
    (concat!("cr", "ew"), "candidates"),
    (concat!("kno", "ck"), "wake"),
    (concat!("kno", "cks"), "wakes"),
    (concat!("lam", "ent"), "fail_step"),
    (concat!("is_", "shy"), "eligibility"),
    (concat!("is_", "shut"), "eligibility"),
    (concat!("supervisor of", " the mesh"), "leader"),
    (concat!("turn_", "wall"), "turn_timeout"),
    (concat!("turn_", "silence"), "turn_idle_timeout"),
];
/// Beginnings of old names of keys.
const OLD_BEGINNINGS: &[(&str, &str)] =
    &[(concat!("fro", "sty_"), "cooldown_"), (concat!("wil", "ly_"), "freeze_"), (concat!("pur", "se_"), "budget_")];

/// Files that hold old names on purpose: to refuse them with the new one.
const HOLDS_OLD_NAMES: &[&str] = &["crates/everloop/src/config/renamed.rs"];

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a word stands in a lower-case line, not as a part of a longer one.
fn stands_in(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word_char) && !after.is_some_and(is_word_char)
    })
}

/// Names on disk and wire stay readable, so attributes of serde may hold old words.
fn old_words(files: &[Source]) -> Vec<String> {
    let looked_at = |f: &&Source| {
        let rust = f.is_rust() && f.path.starts_with("crates/");
        let prose = f.path == "README.md" || f.path == "ARCHITECTURE.md" || is_page(&f.path);
        let excepted = HOLDS_OLD_NAMES.contains(&f.path.as_str());
        (rust || prose) && !excepted
    };
    let mut found = Vec::new();
    for file in files.iter().filter(looked_at) {
        for (i, line) in file.text.lines().enumerate().filter(|(_, line)| !line.contains("serde(")) {
            let line = line.to_lowercase();
            let words = OLD_WORDS.iter().filter(|(old, _)| stands_in(&line, old));
            let begins = |old: &str| line.match_indices(old).any(|(at, _)| !line[..at].ends_with(is_word_char));
            let beginnings = OLD_BEGINNINGS.iter().filter(|(old, _)| begins(old));
            found.extend(words.chain(beginnings).map(|(old, new)| file.at(i, &format!("`{old}` is `{new}` now"))));
        }
    }
    found
}

#[test]
fn words_that_the_glossary_replaced_do_not_come_back() {
    for (old, _) in OLD_WORDS {
        refused(old_words, "crates/core/src/sample.rs", &format!("/// The {old} of a loop.\n"));
        refused(old_words, "docs/mesh.md", &format!("{}.\n", old.to_uppercase()));
        accepted(old_words, "crates/core/src/sample.rs", &format!("fn x{old}y() {{}}\n"));
        accepted(old_words, "crates/core/src/sample.rs", &format!("#[serde(rename = \"{old}\")]\n"));
    }
    for (old, _) in OLD_BEGINNINGS {
        refused(old_words, "crates/core/src/sample.rs", &format!("let x = spec.{old}cap;\n"));
    }
    the_tree_obeys(old_words, "use the word of the glossary in ARCHITECTURE.md");
}

/// Sentences that people could not understand, and what was wrong with them.
const OLD_SENTENCES: &[(&str, &str)] = &[
    (concat!("counts as not yet", " on"), "a check that did not run says why"),
    (concat!("charged: ", "{"), "bookkeeping of quarantine is said in words"),
    (concat!("found the turn", " gone"), "say that the supervisor came back and what it found"),
    (concat!("the limit on ", "{"), "a deadline passes; `used_up` has the words"),
    (concat!("failures in", " a row)"), "one failure is no row; `count` has the words"),
    (concat!("frozen by a ", "person ("), "once is enough"),
    (concat!("broken (not ", "run yet)"), "a check that did not run is not broken"),
    (concat!("Aside", "    "), "kept work is listed once"),
    (concat!("the configuration ", "has {"), "name the file"),
    (concat!("cannot ", "protect"), "say what cannot be done, and why"),
];

fn old_sentences(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|f| f.is_rust() && f.path.contains("/src/")) {
        let said = |line: &str| line.contains('"') && !line.trim_start().starts_with("//");
        for (i, line) in file.text.lines().enumerate().filter(|(_, line)| said(line)) {
            let old = OLD_SENTENCES.iter().filter(|(old, _)| line.contains(old));
            found.extend(old.map(|(old, why)| file.at(i, &format!("`{old}`: {why}"))));
        }
    }
    found
}

#[test]
fn sentences_that_nobody_understood_do_not_come_back() {
    for (old, _) in OLD_SENTENCES {
        refused(old_sentences, "crates/core/src/why.rs", &format!("let x = \"{old}\";\n"));
        accepted(old_sentences, "crates/core/src/why.rs", &format!("// {old}\n"));
    }
    the_tree_obeys(old_sentences, "say it so that a newcomer understands it");
}

/// Components described as people, per 1,000 words of comments.
const MAX_PERSON_RATE: &str = "2";
/// Percent of the public types that share their name with another one.
const MAX_SHARED: &str = "15";
/// Doc comments of two words or fewer.
const MAX_TRIVIAL: &str = "0";

/// Runs `scripts/prose` with limits; its answer and whether it passed.
fn prose(args: &[&str]) -> (String, bool) {
    let out = Command::new("python3").arg(root().join("scripts/prose")).args(args).output();
    let out = out.expect("python3 is there: ./test needs it");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    (text, out.status.success())
}

#[test]
fn comments_describe_components_in_plain_technical_english() {
    let (text, passed) = prose(&["--max-shared", "0", "--max-rate", "0"]);
    assert!(!passed && text.contains("over the limit"), "the script does not see what is over a limit:\n{text}");
    let (text, passed) =
        prose(&["--max-rate", MAX_PERSON_RATE, "--max-shared", MAX_SHARED, "--max-trivial", MAX_TRIVIAL]);
    assert!(passed, "\n{text}\nwhat to do: `scripts/prose --list` shows the places\n");
}
