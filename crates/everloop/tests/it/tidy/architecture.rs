//! ARCHITECTURE.md names what is there: every name in code type stands in the tree, every module in
//! its crate, and a public type name at most twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Source, the_tree_obeys};

/// Names in code type, outside of blocks.
fn spans(page: &str) -> Vec<&str> {
    let blocks = page.split("```").step_by(2);
    blocks.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()))
}

fn is_lower(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b"_-".contains(&b))
}

/// A path such as `guard/permit.rs`; a ref of git is none.
fn is_path(span: &str) -> bool {
    span.contains('/') && !span.starts_with("refs/") && span.split('/').all(|part| is_lower(&part.replace('.', "_")))
}

/// Whether a path such as `core::mesh::keys` is a module, or a function of one.
fn has_module(files: &[&Source], path: &str) -> bool {
    let parts: Vec<&str> = path.split("::").filter(|part| is_lower(part)).collect();
    let [first, inside @ ..] = &parts[..] else { return true };
    let Some(last) = inside.last() else { return true };
    let below: Vec<&&Source> = files.iter().filter(|file| file.path.contains(&format!("/{first}"))).collect();
    let module = format!("/{}", inside.join("/"));
    below.iter().any(|file| {
        file.path.contains(&format!("{module}.rs"))
            || file.path.contains(&format!("{module}/"))
            || file.code.contains(&format!("fn {last}("))
    })
}

/// Modules that the row of a crate names and the crate does not have.
fn missing_modules<'a>(files: &[&Source], row: &'a str) -> Vec<&'a str> {
    let mut names = spans(row).into_iter();
    let Some(krate) = names.next().filter(|_| row.starts_with("| `")) else { return Vec::new() };
    let src = format!("crates/{krate}/src/");
    if !files.iter().any(|file| file.path.starts_with(&src)) {
        return Vec::new();
    }
    let has = |name: &str| {
        let places = ["", "bin/"].map(|folder| format!("{src}{folder}{name}"));
        places.iter().any(|place| {
            files.iter().any(|f| f.path == format!("{place}.rs") || f.path.starts_with(&format!("{place}/")))
        })
    };
    names.filter(|name| is_lower(name) && !has(name)).collect()
}

fn unknown_names(files: &[Source]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else { return Vec::new() };
    // The samples of this rule are no part of the tree that it examines.
    let is_page = |path: &str| Path::new(path).extension().is_some_and(|e| e == "md");
    let is_sample = |file: &&Source| is_page(&file.path) || file.path.contains("/tests/it/tidy/");
    let tree: Vec<&Source> = files.iter().filter(|file| !is_sample(file)).collect();
    let known: BTreeSet<&str> = tree.iter().flat_map(|file| words(&file.path).chain(words(&file.text))).collect();
    let mut found = Vec::new();
    for span in spans(&page.text) {
        let unknown = words(span).any(|word| !known.contains(word));
        let no_path = is_path(span) && !tree.iter().any(|file| file.path.contains(span.trim_end_matches('/')));
        if unknown || no_path || !has_module(&tree, span) {
            found.push(format!("{}: `{span}` is not in the tree", page.path));
        }
    }
    for row in page.text.lines() {
        found.extend(missing_modules(&tree, row).iter().map(|name| format!("no module `{name}`: {row:.20}")));
    }
    found
}

#[test]
fn names_in_the_architecture_are_in_the_tree() {
    let tree = |page: &str| {
        unknown_names(&[
            Source::new("ARCHITECTURE.md", page),
            Source::new("crates/core/src/mesh/keys.rs", "pub struct Seal;\nfn sign() {}\n"),
            Source::new("crates/core/src/mesh.rs", "mod keys;\n"),
        ])
    };
    let right = "`Seal`, `core::mesh::keys`, `mesh/keys.rs`, `keys::sign`\n```text\n`gone`\n```\n| `core` | `mesh` |\n";
    assert_eq!(tree(right), Vec::<String>::new());
    for wrong in ["`Seals`", "`core::keys::mesh`", "`keys/mesh.rs`", "`mesh/sign`", "| `core` | `keys` |"] {
        assert_eq!(tree(wrong).len(), 1, "{wrong}");
    }
    the_tree_obeys(unknown_names, "name what is there: ARCHITECTURE.md moves with the code");
}

fn names_of_many_types(files: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/")) {
        for line in file.code.lines().filter_map(|line| line.trim().strip_prefix("pub ")) {
            let (kind, rest) = line.split_once(' ').unwrap_or_default();
            // A macro names its types itself.
            if ["struct", "enum", "trait", "type"].contains(&kind) && !rest.starts_with('$') {
                places.entry(words(rest).next().unwrap_or_default()).or_default().push(&file.path);
            }
        }
    }
    let many = places.iter().filter(|(_, places)| places.len() > 2);
    many.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect()
}

#[test]
fn a_public_type_name_stands_at_most_twice() {
    let tree = |n: usize| {
        let file = |i| Source::new(&format!("crates/core/src/{i}.rs"), "pub struct Seal<'a>(&'a str);\n");
        names_of_many_types(&(0..n).map(file).collect::<Vec<_>>()).len()
    };
    assert_eq!((tree(2), tree(3)), (0, 1));
    the_tree_obeys(names_of_many_types, "name the type after what distinguishes it");
}
