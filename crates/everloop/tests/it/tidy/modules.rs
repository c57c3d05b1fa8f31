//! No import cycle between the top-level modules of `engine` and of `everloop`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, the_tree_obeys};

/// Which top-level modules each top-level module of a crate imports by a `crate::` path.
fn imports(files: &[Source], krate: &str) -> BTreeMap<String, BTreeSet<String>> {
    let src = format!("crates/{krate}/src/");
    let inside = files.iter().filter(|file| file.is_rust());
    let parts = inside.filter_map(|file| Some((file.path.strip_prefix(&src)?, &file.code)));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, code) in parts {
        let top = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        // The root names every module; it is not one itself.
        if top != "lib" && top != "main" {
            found.entry(top.to_owned()).or_default().extend(named(code).into_iter().filter(|name| name != top));
        }
    }
    found
}

/// The first segment behind every `crate::`, in plain paths and in `crate::{a, b::c}`.
fn named(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, start) in code.match_indices("crate::") {
        // `everloop_testkit_crate::` would be another path.
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{') {
            None => names.extend(first_word(rest)),
            Some(group) => names.extend(members(group)),
        }
    }
    names
}

fn first_word(text: &str) -> Option<String> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// The first segments of the members of a group, up to its closing brace.
fn members(group: &str) -> Vec<String> {
    let (mut depth, mut start, mut found) = (0_u32, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                found.extend(first_word(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Everything that `from` reaches.
fn reached<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(next) = todo.pop() {
        for to in graph.get(next).into_iter().flatten() {
            if seen.insert(to.as_str()) {
                todo.push(to);
            }
        }
    }
    seen
}

fn cycles(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for krate in ["engine", "everloop"] {
        let graph = imports(files, krate);
        let looped: Vec<&str> =
            graph.keys().map(String::as_str).filter(|name| reached(&graph, name).contains(name)).collect();
        if !looped.is_empty() {
            found.push(format!("crates/{krate}: these modules import each other in a circle: {}", looped.join(", ")));
        }
    }
    found
}

#[test]
fn top_level_modules_import_each_other_in_one_direction() {
    let sample = |first: &str, second: &str| {
        cycles(&[
            Source::new("crates/engine/src/lib.rs", "pub mod board;\npub mod tickets;\nuse crate::board::Board;"),
            Source::new("crates/engine/src/board/file.rs", first),
            Source::new("crates/engine/src/tickets.rs", second),
        ])
    };
    assert_eq!(sample("use crate::tickets::open;", "use crate::error::Failure;"), Vec::<String>::new());
    assert_eq!(sample("use crate::tickets::open;", "// crate::board in a comment"), Vec::<String>::new());
    assert_eq!(sample("use crate::tickets::open;", "use crate::board::file;").len(), 1);
    assert_eq!(sample("use crate::{error, tickets::{self, open}};", "fn f() { crate::board::g() }").len(), 1);
    the_tree_obeys(cycles, "move what both need into a module below them");
}
