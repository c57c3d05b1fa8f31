//! Rules about the tree itself that the compiler and clippy do not check. Each test first shows on
//! a bad sample that its rule can fail, then applies it to the tree. The rules are those of
//! CONTRIBUTING.md.

mod architecture;
mod modules;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bench compares the store with bare SQLite and PostgreSQL, and `tamper` changes a ledger behind
/// it, so these files outside the store may use them.
const SQL_FLOOR: &[&str] = &[
    "crates/testkit/src/tamper.rs",
    "crates/testkit/src/bin/everloop-bench/journal.rs",
    "crates/testkit/src/bin/everloop-bench/hub/postgres.rs",
    "crates/testkit/src/bin/everloop-bench/hub/sqlite.rs",
    "crates/testkit/src/bin/everloop-bench/hub/wake.rs",
    "crates/testkit/src/bin/everloop-bench/personas/floor.rs",
];

pub struct Source {
    /// From the root of the repository, with `/`.
    pub path: String,
    pub text: String,
    /// The text with comments, strings and characters blanked out; lines stay where they are.
    pub code: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let code = if is_rust(path) { code_of(text) } else { String::new() };
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    fn is_rust(&self) -> bool {
        is_rust(&self.path)
    }

    pub fn at(&self, line_index: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, line_index + 1)
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == "rs")
}

/// The violations in these files, one line each.
pub type Rule = fn(&[Source]) -> Vec<String>;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the package lies two folders below the root of the repository")
}

/// Every text file that git knows or would add.
fn tree() -> Vec<Source> {
    let root = root();
    let listed = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .expect("git is needed to know which files belong to the tree");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("file names in the tree are plain text");
    let read = |name: &str| Some((name.to_owned(), std::fs::read(root.join(name)).ok()?));
    let files: Vec<Source> = names
        .split('\0')
        .filter(|name| !name.is_empty())
        // A file that is listed but not there was just deleted, or is a submodule; a NUL means that
        // it is no text.
        .filter_map(read)
        .filter(|(_, bytes)| !bytes.contains(&0))
        .map(|(name, bytes)| Source::new(&name, &String::from_utf8_lossy(&bytes)))
        .collect();
    assert!(files.len() > 50, "only {} files found: the rules would check nothing", files.len());
    files
}

#[track_caller]
pub fn the_tree_obeys(rule: Rule, what_to_do: &str) {
    let found = rule(&tree());
    assert!(found.is_empty(), "\n{}\n\nwhat to do: {what_to_do}\n", found.join("\n"));
}

#[track_caller]
fn refused(rule: Rule, path: &str, text: &str) {
    assert!(!rule(&[Source::new(path, text)]).is_empty(), "the rule does not see what is wrong with this:\n{text}");
}

#[track_caller]
fn accepted(rule: Rule, path: &str, text: &str) {
    let found = rule(&[Source::new(path, text)]);
    assert!(found.is_empty(), "the rule refuses what is right:\n{text}\n{}", found.join("\n"));
}

const SAMPLE: &str = "crates/core/src/sample.rs";

// -------------------------------------------------------------------------- size and shape

fn too_long(files: &[Source]) -> Vec<String> {
    let long = |f: &&Source| f.is_rust() && f.text.lines().count() > 800;
    files.iter().filter(long).map(|f| format!("{}: {} lines", f.path, f.text.lines().count())).collect()
}

#[test]
fn no_rust_file_is_longer_than_800_lines() {
    refused(too_long, SAMPLE, &"x\n".repeat(801));
    accepted(too_long, SAMPLE, &"x\n".repeat(800));
    the_tree_obeys(too_long, "split the file by idea: `foo.rs` keeps the outline, parts move into `foo/`");
}

fn no_introduction(files: &[Source]) -> Vec<String> {
    let bare = |f: &&Source| f.is_rust() && !f.text.starts_with("//! ");
    files.iter().filter(bare).map(|f| f.at(0, "does not begin with `//! `")).collect()
}

#[test]
fn every_rust_file_says_what_it_owns() {
    refused(no_introduction, SAMPLE, "use std::fmt;\n\n//! Late.\n");
    refused(no_introduction, SAMPLE, "// A plain comment.\n");
    accepted(no_introduction, SAMPLE, "//! Owns nothing.\n");
    the_tree_obeys(no_introduction, "begin the file with a `//!` sentence: what it owns and what it does not");
}

fn bad_names(files: &[Source]) -> Vec<String> {
    const DRAWERS: &[&str] = &["util", "utils", "common", "helper", "helpers", "types", "misc", "manager"];
    let bad = |f: &&Source| {
        let path = Path::new(&f.path);
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        f.is_rust() && (stem == "mod" || DRAWERS.contains(&stem))
    };
    files.iter().filter(bad).map(|f| f.path.clone()).collect()
}

#[test]
fn no_mod_rs_and_no_drawers() {
    for name in ["mod.rs", "utils.rs", "common.rs", "helpers.rs", "types.rs"] {
        refused(bad_names, &format!("crates/core/src/guard/{name}"), "//! Odds and ends.\n");
    }
    accepted(bad_names, "crates/core/src/guard/permit.rs", "//! Permits.\n");
    the_tree_obeys(bad_names, "name the file after its idea; instead of `foo/mod.rs` write `foo.rs`");
}

// ----------------------------------------------------------------- what the code may contain

fn unfinished(files: &[Source]) -> Vec<String> {
    find_in_code(files, &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"])
}

#[test]
fn nothing_unfinished_is_left() {
    refused(unfinished, SAMPLE, "fn f() { todo!() }");
    refused(unfinished, SAMPLE, "fn f() { unimplemented!(\"later\") }");
    refused(unfinished, SAMPLE, "fn f() { dbg!(1); }");
    refused(unfinished, SAMPLE, "#[test]\n#[ignore = \"slow\"]\nfn f() {}");
    accepted(unfinished, SAMPLE, "// todo!() in a comment\nconst A: &str = \"dbg!(\";");
    the_tree_obeys(unfinished, "finish it or take it out; a slow test is named `long_…` instead of being ignored");
}

fn prints(files: &[Source]) -> Vec<String> {
    let may_print = |path: &str| {
        path.starts_with("crates/everloop/src/ui")
            || path.contains("/src/bin/")
            || path.contains("/tests/")
            || path.contains("/examples/")
            || path.ends_with("/build.rs")
    };
    let silent: Vec<&Source> = files.iter().filter(|f| !may_print(&f.path)).collect();
    let mut found = Vec::new();
    for needle in ["print!(", "println!("] {
        for file in &silent {
            for (i, line) in file.code.lines().enumerate().filter(|(_, l)| l.contains(needle)) {
                found.push(file.at(i, line.trim()));
            }
        }
    }
    found
}

#[test]
fn only_ui_and_tools_print() {
    refused(prints, "crates/store/src/sqlite.rs", "fn f() { println!(\"x\"); }");
    refused(prints, "crates/everloop/src/main.rs", "fn f() { eprint!(\"x\"); }");
    accepted(prints, "crates/everloop/src/ui/table.rs", "fn f() { println!(\"x\"); }");
    accepted(prints, "crates/testkit/src/bin/everloop-sim.rs", "fn f() { println!(\"x\"); }");
    accepted(prints, "crates/store/src/sqlite.rs", "/// Like `println!(…)`.\nfn f() {}");
    the_tree_obeys(prints, "answer a value and let `ui` print it; for logs use `tracing`");
}

/// `allow` instead of `expect`, and `expect` without a reason: an exception has to end when its
/// cause ends.
fn silent_exceptions(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        for (start, _) in file.code.match_indices("#[").chain(file.code.match_indices("#![")) {
            let attribute = &file.code[start..file.code[start..].find(']').map_or(file.code.len(), |end| start + end)];
            let line_index = file.code[..start].matches('\n').count();
            let inner = attribute.trim_start_matches(['#', '!', '[']).trim_start();
            let switch = |word: &str| inner.starts_with(word) || inner.starts_with("cfg_attr") && inner.contains(word);
            if switch("allow(") || switch("warn(") {
                found.push(file.at(line_index, "`allow` or `warn` instead of `expect`"));
            }
            if switch("expect(") && !inner.contains("reason") {
                found.push(file.at(line_index, "`expect` without a reason"));
            }
        }
    }
    found
}

#[test]
fn exceptions_from_lints_are_expected_and_have_a_reason() {
    refused(silent_exceptions, SAMPLE, "#[allow(clippy::too_many_lines)]\nfn f() {}");
    refused(silent_exceptions, SAMPLE, "#![allow(dead_code)]");
    refused(silent_exceptions, SAMPLE, "#[cfg_attr(test, allow(dead_code))]\nfn f() {}");
    refused(silent_exceptions, SAMPLE, "#[expect(\n    clippy::too_many_lines\n)]\nfn f() {}");
    accepted(
        silent_exceptions,
        SAMPLE,
        "#[expect(\n    clippy::too_many_lines,\n    reason = \"a table\"\n)]\nfn f() {}",
    );
    accepted(silent_exceptions, SAMPLE, "fn f() { Some(1).expect(\"one is there\"); }");
    the_tree_obeys(silent_exceptions, "write `#[expect(lint, reason = \"…\")]`, or better: make the lint happy");
}

/// Machine paths are put together here so that this file does not contain them.
fn machine_paths(files: &[Source]) -> Vec<String> {
    const HOMES: &[&str] = &[concat!("/ho", "me/"), concat!("/Us", "ers/")];
    const OTHERS: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ro", "ot/.cargo")];
    let mut found = Vec::new();
    for file in files {
        for (i, line) in file.text.lines().enumerate() {
            let starts = |at: usize| {
                line[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && !"}>)_-.*$".contains(c))
            };
            let other = OTHERS.iter().flat_map(|n| line.match_indices(n)).any(|(at, _)| starts(at));
            let home = HOMES.iter().flat_map(|n| line.match_indices(n)).any(|(at, n)| {
                let user: String = line[at + n.len()..].chars().take_while(|c| c.is_alphanumeric()).collect();
                // `me` is the agreed user of samples.
                starts(at) && !user.is_empty() && user != "me"
            });
            if other || home {
                found.push(file.at(i, line.trim()));
            }
        }
    }
    found
}

#[test]
fn no_path_of_somebodys_machine() {
    for path in
        [concat!("/ro", "ot/x"), concat!("/ho", "me/ann/x"), concat!("/wo", "rk/main"), concat!("/Us", "ers/ann/x")]
    {
        refused(machine_paths, "README.md", &format!("Look into {path}."));
        refused(machine_paths, SAMPLE, &format!("const A: &str = \"{path}\";"));
    }
    accepted(machine_paths, "README.md", concat!("/ho", "me/me/project, <state>/wo", "rk/k3f9, $HOME/.local"));
    the_tree_obeys(machine_paths, "use a relative path, a temporary folder, or the sample user `me`");
}

fn unsafe_code(files: &[Source]) -> Vec<String> {
    let outside = files.iter().filter(|f| f.is_rust() && !f.path.starts_with("crates/agents/"));
    let is_word = |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
    outside
        .flat_map(|f| f.code.lines().enumerate().filter(|(_, l)| is_word(l)).map(|(i, l)| f.at(i, l.trim())))
        .collect()
}

#[test]
fn only_the_agents_crate_has_unsafe_code() {
    refused(unsafe_code, SAMPLE, "fn f() { unsafe { g() } }");
    refused(unsafe_code, SAMPLE, "unsafe impl Send for A {}");
    accepted(unsafe_code, SAMPLE, "// unsafe is not here\n#![deny(unsafe_code)]");
    accepted(unsafe_code, "crates/agents/src/job/shim.rs", "fn f() { unsafe { g() } }");
    the_tree_obeys(
        unsafe_code,
        "what happens between fork and exec belongs to crates/agents; everything else has a safe way",
    );
}

// --------------------------------------------------------------------- which crate may use which

fn sql_outside(files: &[Source]) -> Vec<String> {
    const STATEMENTS: &[&str] = &[
        concat!("INSERT", " INTO "),
        concat!("CREATE", " TABLE "),
        concat!("DELETE", " FROM "),
        concat!("PRAG", "MA "),
    ];
    let mut found = Vec::new();
    for file in files
        .iter()
        .filter(|f| f.is_rust() && !f.path.starts_with("crates/store/") && !SQL_FLOOR.contains(&f.path.as_str()))
    {
        for (i, (text, code)) in file.text.lines().zip(file.code.lines()).enumerate() {
            if code.contains("rusqlite")
                || code.contains("tokio_postgres")
                || STATEMENTS.iter().any(|s| text.contains(s))
            {
                found.push(file.at(i, text.trim()));
            }
        }
    }
    found
}

#[test]
fn only_the_store_speaks_sql() {
    refused(sql_outside, "crates/everloop/src/cli/logs.rs", "use rusqlite::Connection;");
    refused(sql_outside, "crates/everloop/src/cli/logs.rs", concat!("const A: &str = \"PRAG", "MA journal_mode\";"));
    refused(sql_outside, "crates/agents/src/git.rs", concat!("const A: &str = \"INSERT", " INTO journal\";"));
    accepted(sql_outside, "crates/store/src/sqlite.rs", "use rusqlite::Connection;");
    the_tree_obeys(sql_outside, "give `Ledger` an operation or a read for it");
}

/// The names under `tables` of a manifest.
fn dependencies(manifest: &toml::Table, tables: &[&str]) -> BTreeSet<String> {
    let table = |name: &&str| manifest.get(*name).and_then(toml::Value::as_table);
    tables.iter().filter_map(table).flat_map(|t| t.keys().cloned()).collect()
}

fn wrong_edges(files: &[Source]) -> Vec<String> {
    const ALL: &[&str] = &["dependencies", "build-dependencies", "dev-dependencies"];
    let mut found = Vec::new();
    for file in files.iter().filter(|f| f.path.starts_with("crates/") && f.path.ends_with("/Cargo.toml")) {
        let manifest: toml::Table = file.text.parse().expect("cargo read this manifest already");
        if manifest.contains_key("target") {
            found.push(format!("{}: dependencies per target are not looked at by this rule", file.path));
        }
        let krate = file.path.split('/').nth(1).unwrap_or_default();
        let (below, above) = match krate {
            "core" => (&[][..], &[][..]),
            // The tests of these two need servers and waits.
            "store" | "agents" => (&["everloop-core"][..], &["everloop-testkit"][..]),
            "engine" => (&["everloop-core", "everloop-store", "everloop-agents"][..], &["everloop-testkit"][..]),
            "everloop" => (
                &["everloop-core", "everloop-store", "everloop-agents", "everloop-engine"][..],
                &["everloop-testkit"][..],
            ),
            "testkit" => (&["everloop-core", "everloop-store", "everloop-agents"][..], &[][..]),
            _ => {
                found.push(format!("{}: a seventh crate needs a reason and a line in this rule", file.path));
                continue;
            }
        };
        let knows = |tables: &[&str], allowed: &[&[&str]]| -> Vec<String> {
            let ours = dependencies(&manifest, tables).into_iter().filter(|d| d.starts_with("everloop"));
            ours.filter(|d| !allowed.iter().any(|a| a.contains(&d.as_str()))).collect()
        };
        let mut wrong = knows(&["dependencies", "build-dependencies"], &[below]);
        wrong.extend(knows(&["dev-dependencies"], &[below, above]));
        if krate == "core" {
            const PURE: &[&str] = &["serde", "serde_json", "crc32fast", "thiserror"];
            let normal = dependencies(&manifest, &["dependencies", "build-dependencies"]);
            wrong.extend(normal.into_iter().filter(|d| !PURE.contains(&d.as_str())));
        }
        if krate == "engine" {
            const FACES: &[&str] = &["clap", "axum", "hyper", "rmcp", "askama", "ratatui"];
            wrong.extend(dependencies(&manifest, ALL).into_iter().filter(|d| FACES.contains(&d.as_str())));
        }
        // The testkit has it for the floor of the bench, see SQL_FLOOR.
        if krate != "store" && krate != "testkit" {
            wrong.extend(dependencies(&manifest, ALL).into_iter().filter(|d| d == "rusqlite" || d == "tokio-postgres"));
        }
        found.extend(wrong.into_iter().map(|d| format!("{}: must not depend on `{d}`", file.path)));
    }
    found
}

#[test]
fn crates_know_only_those_below_them() {
    let bad = [
        ("core", "[dependencies]\ntokio = \"1\""),
        ("core", "[dependencies]\neverloop-store.workspace = true"),
        ("store", "[dependencies]\neverloop-agents.workspace = true"),
        ("agents", "[dev-dependencies]\neverloop-store.workspace = true"),
        ("agents", "[dependencies]\nrusqlite = \"0.41\""),
        ("engine", "[dependencies]\nclap = \"4\""),
        ("engine", "[dependencies]\neverloop.workspace = true"),
        ("everloop", "[dependencies]\ntokio-postgres = \"0.7\""),
        ("store", "[dependencies]\neverloop-testkit.workspace = true"),
        ("everloop", "[dependencies]\neverloop-testkit.workspace = true"),
        ("everloop", "[target.'cfg(unix)'.dependencies]\nrusqlite = \"0.41\""),
        ("common", "[dependencies]"),
    ];
    for (krate, text) in bad {
        refused(wrong_edges, &format!("crates/{krate}/Cargo.toml"), text);
    }
    accepted(
        wrong_edges,
        "crates/core/Cargo.toml",
        "[dependencies]\nserde = \"1\"\n[dev-dependencies]\nproptest = \"1\"",
    );
    accepted(wrong_edges, "crates/everloop/Cargo.toml", "[dev-dependencies]\neverloop-testkit.workspace = true");
    the_tree_obeys(
        wrong_edges,
        "put the code into the crate that has the dependencies it needs; pass data, not crates, across",
    );
}

fn weaker_lints(files: &[Source]) -> Vec<String> {
    let parse = |f: &Source| f.text.parse::<toml::Table>().expect("this file was read by cargo or clippy already");
    let clippy_of = |t: &toml::Table, at: &[&str]| {
        let mut value = toml::Value::Table(t.clone());
        for key in at {
            value = value.get(key)?.clone();
        }
        Some(value)
    };
    let workspace = files.iter().find(|f| f.path == "Cargo.toml").map(parse).unwrap_or_default();
    let wanted = clippy_of(&workspace, &["workspace", "lints", "clippy"]);
    let mut found = Vec::new();
    for lint in ["too_many_lines", "too_many_arguments"] {
        if wanted.as_ref().is_some_and(|w| w.get(lint).is_some()) {
            found.push(format!("Cargo.toml: `{lint}` is not to be weakened"));
        }
    }
    // What the bench builds of others is no part of the workspace.
    let is_ours = |f: &&Source| f.path.starts_with("crates/") && !f.path.starts_with("crates/testkit/peers/");
    for file in files.iter().filter(is_ours).filter(|f| f.path.ends_with("/Cargo.toml")) {
        let manifest = parse(file);
        let inherits = clippy_of(&manifest, &["lints", "workspace"]) == Some(toml::Value::Boolean(true));
        // The agents crate spells them out, because it needs `unsafe`; its clippy part must not
        // drift.
        if !inherits && (wanted.is_none() || clippy_of(&manifest, &["lints", "clippy"]) != wanted) {
            found.push(format!("{}: its lints are not those of the workspace", file.path));
        }
    }
    for file in files.iter().filter(|f| f.path.ends_with("clippy.toml")) {
        let limit = |key: &str| parse(file).get(key).and_then(toml::Value::as_integer);
        if limit("too-many-lines-threshold") != Some(70) || limit("too-many-arguments-threshold") != Some(5) {
            found.push(format!("{}: functions have at most 70 lines and 5 parameters", file.path));
        }
    }
    found
}

#[test]
fn no_crate_weakens_the_lints() {
    refused(weaker_lints, "crates/core/Cargo.toml", "[package]\nname = \"everloop-core\"");
    refused(weaker_lints, "crates/agents/Cargo.toml", "[lints.clippy]\npedantic = \"allow\"");
    refused(weaker_lints, "Cargo.toml", "[workspace.lints.clippy]\ntoo_many_lines = \"allow\"");
    refused(weaker_lints, "clippy.toml", "too-many-lines-threshold = 200\ntoo-many-arguments-threshold = 5");
    accepted(weaker_lints, "crates/core/Cargo.toml", "[lints]\nworkspace = true");
    the_tree_obeys(weaker_lints, "set `[lints] workspace = true`; a lint is changed for all crates or for none");
}

// -------------------------------------------------------------------- verbs and documents

/// The verbs of `cli.rs`, as they are typed.
fn verbs(cli: &Source) -> Vec<String> {
    let body = cli.code.split_once("enum Verb {").map_or("", |(_, rest)| rest);
    let body = body.split_once("\n}").map_or(body, |(inside, _)| inside);
    let names =
        body.lines().filter_map(|l| l.strip_prefix("    ")).filter(|l| l.starts_with(|c: char| c.is_ascii_uppercase()));
    names.map(|l| kebab(l.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default())).collect()
}

fn kebab(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn homeless_verbs(files: &[Source]) -> Vec<String> {
    const CLI: &str = "crates/everloop/src/cli.rs";
    let Some(cli) = files.iter().find(|f| f.path == CLI) else { return vec![format!("{CLI} is not there")] };
    let verbs = verbs(cli);
    let mut found = Vec::new();
    if verbs.is_empty() {
        found.push(format!("{CLI}: no `enum Verb` was found"));
    }
    for verb in verbs {
        let path = format!("crates/everloop/src/cli/{}.rs", verb.replace('-', "_"));
        if !files.iter().any(|f| f.path == path) {
            found.push(format!("`everloop {verb}`: {path} is not there"));
        }
        // The reference is generated and names every verb.
        let mut pages = files.iter().filter(|f| f.path.starts_with("docs/") && f.path != "docs/commands.md");
        let named = [format!("everloop {verb}"), format!("`{verb}`"), format!("`{verb} ")];
        if !pages.any(|page| named.iter().any(|n| page.text.contains(n))) {
            found.push(format!("`everloop {verb}`: no page of docs names it"));
        }
    }
    found
}

#[test]
fn every_verb_has_its_file_and_is_documented() {
    let cli = "enum Verb {\n    /// Runs.\n    Run(Box<run::Args>),\n    /// Explains.\n    Why(why::Args),\n}\n";
    let tree = |page: &str, files: &[&str]| {
        let mut all = vec![Source::new("crates/everloop/src/cli.rs", cli), Source::new("docs/loops.md", page)];
        all.extend(files.iter().map(|name| Source::new(&format!("crates/everloop/src/cli/{name}.rs"), "//! It.\n")));
        homeless_verbs(&all)
    };
    assert_eq!(tree("`everloop run` and `why`", &["run", "why"]), Vec::<String>::new());
    assert_eq!(tree("`everloop run` and `why`", &["run"]).len(), 1);
    assert_eq!(tree("`everloop run`", &["run", "why"]).len(), 1);
    assert_eq!(tree("", &[]).len(), 4);
    assert_eq!(kebab("SelfTest"), "self-test");
    refused(homeless_verbs, "crates/everloop/src/cli.rs", "enum Words {}");
    the_tree_obeys(homeless_verbs, "a verb is `cli/<verb>.rs` and is named on a page of docs/");
}

fn untested_verbs(files: &[Source]) -> Vec<String> {
    const TESTS: &str = "crates/everloop/tests/it";
    let Some(cli) = files.iter().find(|f| f.path == "crates/everloop/src/cli.rs") else {
        return vec!["the verbs were not found".to_owned()];
    };
    let text_of = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| f.code.as_str());
    let main = text_of(&format!("{TESTS}/main.rs"));
    let mut found = Vec::new();
    for verb in verbs(cli) {
        let module = verb.replace('-', "_");
        let path = format!("{TESTS}/{module}.rs");
        if !text_of(&path).contains("#[test]") {
            found.push(format!("`everloop {verb}`: {path} has no test"));
        } else if !main.lines().any(|line| line == format!("mod {module};")) {
            found.push(format!("`everloop {verb}`: {path} is not a module of {TESTS}/main.rs"));
        }
    }
    found
}

#[test]
fn every_verb_has_a_test_of_its_own() {
    let cli =
        Source::new("crates/everloop/src/cli.rs", "enum Verb {\n    Run(run::Args),\n    SelfTest(a::Args),\n}\n");
    let tree = |main: &str, tested: &[(&str, &str)]| {
        let mut all = vec![Source::new(&cli.path, &cli.text), Source::new("crates/everloop/tests/it/main.rs", main)];
        all.extend(tested.iter().map(|(n, text)| Source::new(&format!("crates/everloop/tests/it/{n}.rs"), text)));
        untested_verbs(&all)
    };
    let (all, test) = ("mod run;\nmod self_test;\n", "#[test]\nfn it_runs() {}\n");
    assert_eq!(tree(all, &[("run", test), ("self_test", test)]), Vec::<String>::new());
    assert_eq!(tree(all, &[("run", test)]).len(), 1, "a file is missing");
    assert_eq!(tree(all, &[("run", test), ("self_test", "//! Later.\n")]).len(), 1, "a file is empty");
    assert_eq!(tree("mod run;\n", &[("run", test), ("self_test", test)]).len(), 1, "a file is not compiled");
    refused(untested_verbs, "README.md", "");
    the_tree_obeys(untested_verbs, "show in tests/it/<verb>.rs what a user sees of the verb");
}

fn missing_documents(files: &[Source]) -> Vec<String> {
    const WANTED: &[&str] = &[
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "AGENTS.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/README.md",
        "docs/getting-started.md",
        "docs/config.md",
        "docs/commands.md",
        "docs/demo.svg",
    ];
    let there: BTreeSet<&str> = files.iter().map(|f| f.path.as_str()).collect();
    WANTED.iter().filter(|w| !there.contains(*w)).map(|w| format!("{w} is not there")).collect()
}

#[test]
fn the_documents_are_there() {
    refused(missing_documents, "README.md", "# everloop\n");
    the_tree_obeys(missing_documents, "write it; CONTRIBUTING.md describes each");
}

fn long_architecture(files: &[Source]) -> Vec<String> {
    let long = |f: &&Source| f.path == "ARCHITECTURE.md" && f.text.lines().count() >= 260;
    files.iter().filter(long).map(|f| format!("{}: {} lines", f.path, f.text.lines().count())).collect()
}

#[test]
fn the_architecture_is_read_in_one_sitting() {
    refused(long_architecture, "ARCHITECTURE.md", &"x\n".repeat(260));
    accepted(long_architecture, "ARCHITECTURE.md", &"x\n".repeat(259));
    the_tree_obeys(long_architecture, "keep ARCHITECTURE.md under 260 lines: details belong next to the code");
}

fn silent_changelog(files: &[Source]) -> Vec<String> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let current = |line: &str| {
        line.starts_with("## ") && (line.to_ascii_lowercase().contains("unreleased") || line.contains(VERSION))
    };
    let silent = |f: &&Source| f.path == "CHANGELOG.md" && !f.text.lines().any(current);
    files.iter().filter(silent).map(|f| format!("{}: neither `## Unreleased` nor `## {VERSION}`", f.path)).collect()
}

#[test]
fn the_changelog_knows_the_present() {
    refused(silent_changelog, "CHANGELOG.md", "# Changes\n\n## 0.0.1\n");
    accepted(silent_changelog, "CHANGELOG.md", "# Changes\n\n## Unreleased\n");
    accepted(
        silent_changelog,
        "CHANGELOG.md",
        concat!("# Changes\n\n## ", env!("CARGO_PKG_VERSION"), " (2026-01-01)\n"),
    );
    the_tree_obeys(silent_changelog, "add a section `## Unreleased` with what users will notice");
}

fn heavy_lockfile(files: &[Source]) -> Vec<String> {
    let packages = |f: &Source| f.text.lines().filter(|l| *l == "[[package]]").count();
    let heavy = |f: &&Source| f.path == "Cargo.lock" && packages(f) >= 500;
    files.iter().filter(heavy).map(|f| format!("{}: {} packages", f.path, packages(f))).collect()
}

#[test]
fn fewer_than_500_packages_are_locked() {
    refused(heavy_lockfile, "Cargo.lock", &"[[package]]\n".repeat(500));
    accepted(heavy_lockfile, "Cargo.lock", &"[[package]]\n".repeat(499));
    the_tree_obeys(
        heavy_lockfile,
        "a dependency needs a sentence in its commit; look for a lighter one or for its features",
    );
}

// ---------------------------------------------------------------------- reading Rust roughly

fn find_in_code(files: &[Source], needles: &[&str]) -> Vec<String> {
    let hit = |line: &str| needles.iter().any(|n| line.contains(n));
    let lines =
        |f: &Source| f.code.lines().enumerate().filter(|(_, l)| hit(l)).map(|(i, l)| f.at(i, l.trim())).collect();
    files.iter().flat_map(|f| -> Vec<String> { lines(f) }).collect()
}

/// Blanks out comments, strings and characters. Enough of a lexer for the rules above, not more.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        if let Some(end) = opaque_end(bytes, at) {
            out.extend(bytes[at..end].iter().map(|b| if *b == b'\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(if bytes[at].is_ascii() { char::from(bytes[at]) } else { '·' });
            at += 1;
        }
    }
    out
}

/// Where the comment, string or character that begins at `at` ends; `None` when none begins there.
fn opaque_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let find = |needle: &[u8], from: usize| {
        let found = rest.get(from..)?.windows(needle.len()).position(|w| w == needle);
        found.map(|i| at + from + i + needle.len())
    };
    let word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => Some(find(b"\n", 2).map_or(bytes.len(), |end| end - 1)),
        [b'/', b'*', ..] => Some(find(b"*/", 2).unwrap_or(bytes.len())),
        [b'"', ..] => Some(at + quoted_len(rest)),
        [b'\'', b'\\', _, ..] => find(b"'", 3),
        [b'\'', first, ..] => {
            let width = match *first {
                0..=0x7f => 1,
                0xe0..=0xef => 3,
                0xf0.. => 4,
                _ => 2,
            };
            (rest.get(1 + width) == Some(&b'\'')).then_some(at + width + 2)
        }
        [b'r', b'"' | b'#', ..] if !word_before || matches!(bytes[at - 1], b'b' | b'c') => {
            let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            (rest.get(1 + hashes) == Some(&b'"')).then(|| find(&close, hashes + 2).unwrap_or(bytes.len()))
        }
        _ => None,
    }
}

fn quoted_len(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

#[test]
fn comments_strings_and_characters_are_not_code() {
    let text = "a /* x\n*/ b // x\nc \"x \\\" x\" d r#\"x \" x\"# e 'x' f '\\'' g &'a h '\\u{78}' i b\"x\" 'ü' r#type";
    let code = code_of(text);
    assert!(!code.contains('x'), "{code}");
    assert_eq!(code.lines().count(), text.lines().count());
    for word in ["a", "b", "c", "d", "e", "f", "g", "&'a", "h", "i", "r#type"] {
        assert!(code.split_whitespace().any(|w| w == word), "`{word}` is lost: {code}");
    }
}
