//! Every statement of these pages names the tests that show it. The lists are in `backed/`, a line for
//! each statement:
//!
//! ```text
//! first words of the statement => file::test, file::another_test
//! first words of the statement => - limit
//! ```
//!
//! A statement that claims nothing which a test could show has a dash and one of `REASONS`. Lines
//! that begin with `#` are comments.

mod names;
mod statements;

use std::collections::BTreeSet;

use crate::tidy::{Source, the_tree_obeys};
use statements::statements;

/// The pages, or a section of one, and their lists.
const PAGES: &[(&str, &str)] = &[
    ("README.md", "readme.txt"),
    ("docs/README.md", "docs.txt"),
    ("docs/agents-and-accounts.md", "agents-and-accounts.txt"),
    ("docs/board-and-messages.md", "board-and-messages.txt"),
    ("docs/dashboard.md", "dashboard.txt"),
    ("docs/getting-started.md", "getting-started.txt"),
    ("docs/guard.md", "guard.txt"),
    ("docs/loops-and-checks.md", "loops-and-checks.txt"),
    ("docs/recovery.md", "recovery.txt"),
    ("docs/report.md", "report.txt"),
    ("docs/research.md", "research.txt"),
    ("docs/rhythm.md", "rhythm.txt"),
    ("docs/security.md", "security.txt"),
    ("ARCHITECTURE.md", "architecture.txt"),
    ("docs/config.md", "config.txt"),
    ("docs/first-hour.md", "first-hour.txt"),
    ("docs/how-it-works.md", "how-it-works.txt"),
    ("docs/mesh.md", "mesh.txt"),
    ("docs/monitors.md", "monitors.txt"),
    ("docs/sessions.md", "sessions.txt"),
    ("docs/telemetry.md", "telemetry.txt"),
    ("docs/tickets.md", "tickets.txt"),
    ("docs/troubleshooting.md", "troubleshooting.txt"),
];

/// Pages whose tables a test makes from the declarations of keys: `schema` keeps them current, and
/// `config::every_key_reaches_the_loop` uses the keys. Their prose is listed. `docs/commands.md` is
/// made whole from the command line, so it has no list.
const GENERATED_TABLES: &[&str] = &["docs/config.md"];

/// Why a statement has no test: it introduces what follows, advises, leads to another page, names a
/// limit of what is promised, is about how the project is built, or gives the reason for a choice.
const REASONS: &[&str] = &["intro", "advice", "link", "limit", "build", "design"];

fn list_path(name: &str) -> String {
    format!("crates/everloop/tests/it/backed/{name}")
}

struct Entry<'a> {
    /// Where it stands, for messages.
    line: usize,
    beginning: &'a str,
    tests: &'a str,
}

/// The entries of a list, and its lines that are none.
fn entries(list: &str) -> (Vec<Entry<'_>>, Vec<usize>) {
    let (mut found, mut broken) = (Vec::new(), Vec::new());
    for (line, text) in list.lines().enumerate().filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
        match text.split_once(" => ") {
            Some((beginning, tests)) => found.push(Entry { line, beginning: beginning.trim(), tests: tests.trim() }),
            None => broken.push(line),
        }
    }
    (found, broken)
}

/// What is wrong with the right side of an entry.
fn wrong_tests(tests: &str, known: &BTreeSet<String>) -> Option<String> {
    if let Some(reason) = tests.strip_prefix('-') {
        let reason = reason.trim();
        return (!REASONS.contains(&reason)).then(|| format!("`{reason}` is none of {}", REASONS.join(", ")));
    }
    let missing: Vec<&str> = tests.split(',').map(str::trim).filter(|test| !known.contains(*test)).collect();
    (!missing.is_empty()).then(|| format!("no such test: {}", missing.join(", ")))
}

/// A page, or the part of it from `## SECTION` to the next heading of this level.
fn part(page: &Source, section: Option<&str>) -> Source {
    if GENERATED_TABLES.contains(&page.path.as_str()) {
        let prose: Vec<&str> = page.text.lines().filter(|line| !line.starts_with('|')).collect();
        return Source::new(&page.path, &prose.join("\n"));
    }
    let Some(section) = section else { return Source::new(&page.path, &page.text) };
    let rest = page.text.split_once(&format!("\n## {section}\n")).map_or("", |(_, rest)| rest);
    Source::new(&page.path, rest.split_once("\n## ").map_or(rest, |(inside, _)| inside))
}

/// Compares a page with its list.
fn compare(page: &Source, list: &Source, known: &BTreeSet<String>) -> Vec<String> {
    let (entries, broken) = entries(&list.text);
    let mut found: Vec<String> = broken.iter().map(|line| list.at(*line, "there is no ` => `")).collect();
    let all = statements(&page.text);
    for entry in &entries {
        match all.iter().filter(|statement| statement.starts_with(entry.beginning)).count() {
            0 => found.push(list.at(entry.line, &format!("not in {}: {}", page.path, entry.beginning))),
            1 => {}
            _ => found.push(list.at(entry.line, &format!("more than one statement begins so: {}", entry.beginning))),
        }
        found.extend(wrong_tests(entry.tests, known).map(|what| list.at(entry.line, &what)));
    }
    for statement in &all {
        match entries.iter().filter(|entry| statement.starts_with(entry.beginning)).count() {
            0 => found.push(format!("{}: no test is named for: {statement}", page.path)),
            1 => {}
            _ => found.push(format!("{}: listed more than once: {statement}", page.path)),
        }
    }
    found
}

fn unbacked(files: &[Source]) -> Vec<String> {
    let known = names::known(files);
    let file = |path: &str| files.iter().find(|file| file.path == path);
    let mut found = Vec::new();
    for (page, list) in PAGES {
        let path = list_path(list);
        let (page, section) = page.split_once('#').map_or((*page, None), |(page, section)| (page, Some(section)));
        match (file(page), file(&path)) {
            (Some(page), Some(list)) => found.extend(compare(&part(page, section), list, &known)),
            (page_there, _) => found.push(format!("{} is not there", page_there.map_or(page, |_| path.as_str()))),
        }
    }
    found
}

#[test]
fn statements_without_tests_are_found() {
    let test = Source::new("crates/everloop/tests/it/stop.rs", "#[test]\nfn it_stops() {}\n");
    let known = names::known(&[test]);
    let compare = |page: &str, list: &str| {
        compare(&Source::new("docs/a.md", page), &Source::new("crates/x.txt", list), &known).join("\n")
    };
    let page = "It stops at\nonce. It is small.\n";
    let whole = "# A comment.\nIt stops => stop::it_stops\nIt is small. => - limit\n";
    assert_eq!(compare(page, whole), "");
    let added = compare(&format!("{page}\n- It flies.\n"), whole);
    assert_eq!(added, "docs/a.md: no test is named for: It flies.");
    assert!(compare("It stops at once.\n", whole).contains("x.txt:3: not in docs/a.md: It is small."));
    assert!(compare(page, &whole.replace("it_stops", "it_halts")).contains("no such test: stop::it_halts"));
    assert!(compare(page, &whole.replace("stop::", "run::")).contains("no such test: run::it_stops"));
    assert!(compare(page, &whole.replace("limit", "later")).contains("`later` is none of"));
    assert!(compare(page, &whole.replace("It is small. =>", "It is small. ->")).contains("there is no ` => `"));
    assert!(compare(page, &format!("{whole}It => - intro\n")).contains("more than one statement begins so: It"));
    assert!(compare(page, &format!("{whole}It is => - intro\n")).contains("listed more than once: It is small."));
    assert_eq!(unbacked(&[Source::new("README.md", page)]).len(), PAGES.len());
    let sections = Source::new("docs/a.md", "# A\n\n## One\n\nIt stops.\n\n## Two\n\nIt flies.\n");
    assert_eq!(statements(&part(&sections, Some("One")).text), ["It stops."]);
    assert_eq!(statements(&part(&sections, Some("Two")).text), ["It flies."]);
    let generated = Source::new("docs/config.md", "It stops.\n\n| key | use |\n|---|---|\n| a | b |\n\nIt flies.\n");
    assert_eq!(statements(&part(&generated, None).text), ["It stops.", "It flies."]);
}

#[test]
fn every_statement_of_these_pages_names_its_tests() {
    the_tree_obeys(
        unbacked,
        "name the tests that show the statement in its list in crates/everloop/tests/it/backed (backed.rs describes the \
         lines), after reading them; write the test where there is none, or take the statement out",
    );
}
