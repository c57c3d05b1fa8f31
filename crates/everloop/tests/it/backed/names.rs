//! The tests of the tree by their names, as a list writes them: `file::test`, where `file` is the file
//! or any folder between it and `tests` or `src`.

use std::collections::BTreeSet;

use crate::tidy::Source;

/// Every name by which a test can be listed.
pub fn known(files: &[Source]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let places = places(&file.path);
        for test in tests(file) {
            found.extend(places.iter().map(|place| format!("{place}::{test}")));
        }
    }
    found
}

/// `reach` and `attack` for `crates/everloop/tests/attack/reach.rs`.
fn places(path: &str) -> Vec<&str> {
    let below = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/')).map(|(_, inside)| inside);
    let inside = below.and_then(|b| b.strip_prefix("tests/").or_else(|| b.strip_prefix("src/")));
    inside.and_then(|path| path.strip_suffix(".rs")).map_or_else(Vec::new, |path| path.split('/').collect())
}

/// The names of the test functions of a file, and of its tests in tables: those of `processes` have
/// no harness.
fn tests(file: &Source) -> Vec<&str> {
    let mut found = functions(&file.code);
    if file.path.contains("/tests/processes/") {
        let rows = file.text.lines().filter_map(|line| line.trim().strip_prefix("(\"")?.split_once("\", "));
        found.extend(rows.filter_map(|(name, _)| name.rsplit("::").next()));
        found.extend(listed(&file.code));
    }
    found
}

/// Functions with an attribute `test` right above them, among other attributes.
fn functions(code: &str) -> Vec<&str> {
    let (mut found, mut is_test) = (Vec::new(), false);
    for line in code.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else {
            let name = line.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
            found.extend(name.filter(|_| is_test).map(|(name, _)| name));
            is_test = false;
        }
    }
    found
}

/// The arguments of `trials!(…)` or `trials![…]`.
fn listed(code: &str) -> impl Iterator<Item = &str> {
    let calls = code.split("trials!").skip(1).filter_map(|rest| rest.strip_prefix(['(', '[']));
    let arguments = calls.filter_map(|rest| rest.split_once([')', ']']));
    arguments.flat_map(|(names, _)| names.split(',').map(str::trim).filter(|name| !name.is_empty()))
}

#[test]
fn tests_are_known_by_file_and_folder() {
    let text = "#[test]\n#[expect(x, reason = \"y\")]\nfn one() {}\nfn helper() {}\n/// Said.\n#[tokio::test]\nasync fn two() {}\n\
        // #[test]\nfn three() {}\n";
    let names = known(&[Source::new("crates/everloop/tests/attack/reach.rs", text)]);
    assert_eq!(Vec::from_iter(names), ["attack::one", "attack::two", "reach::one", "reach::two"]);
    let text = "trials!(\n    four,\n);\ntrials![\n    five\n];\nconst CASES: &[Case] = &[\n    (\"part::six\", || wait(seven())),\n];\n";
    let names = known(&[Source::new("crates/agents/tests/processes/job.rs", text)]);
    assert_eq!(
        Vec::from_iter(names).join(" "),
        "job::five job::four job::six processes::five processes::four processes::six"
    );
    assert_eq!(known(&[Source::new("docs/fn.rs", "#[test]\nfn one() {}\n")]), BTreeSet::new());
}
