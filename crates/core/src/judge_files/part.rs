//! Which part of a file decides. A part is reduced to facts, and two versions of a file decide alike
//! when their facts are the same; a fact with a `+` in front may be added, but not be taken away.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::makefile::Makefile;

/// Reads TOML; `None` when it is not valid. The core has no parser of its own.
pub type TomlReader = fn(&str) -> Option<Value>;

/// The deciding part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Part {
    #[default]
    Whole,
    /// The recipes of targets of a makefile.
    Make { targets: Vec<String> },
    /// Scripts of a package.json, by name.
    Scripts { names: Vec<String> },
    /// Keys of a JSON object.
    Json { keys: Vec<String> },
    /// Tables of a TOML document, as dotted names.
    Toml { tables: Vec<String> },
    /// Sections of an INI file.
    Ini { sections: Vec<String> },
    /// What a Cargo.toml says about tests, and what takes the place of dependencies.
    Cargo,
    /// Replacements and the toolchain of a go.mod.
    GoMod,
    /// Commands of a CMakeLists.txt that concern tests.
    Cmake,
    /// A build script without its dependencies.
    Gradle,
    /// A pom.xml without its dependencies.
    Maven,
    /// Whether compiled Python is taken without a look at its source.
    Bytecode,
    /// Test runners in a package.json or a lock of npm that do not come from the registry.
    Packages,
    /// Lines that contain one of the words, without blanks. A word that ends with `=` is an
    /// assignment, no comparison; `^` stands for the beginning of a key or a statement, `(…)` for
    /// any parameters.
    Lines { words: Vec<String> },
}

impl Part {
    /// Whether two versions of a file differ in this part; `None` is a file that is not there.
    pub(super) fn differs(&self, before: Option<&str>, after: Option<&str>, toml: TomlReader) -> bool {
        if *self == Part::Whole {
            return before != after;
        }
        let facts = |text: Option<&str>| text.map_or_else(Vec::new, |text| self.facts(text, toml));
        let (old, new) = (facts(before), facts(after));
        old.iter().any(|fact| !new.contains(fact))
            || new.iter().any(|fact| !fact.starts_with('+') && !old.contains(fact))
    }

    fn facts(&self, text: &str, toml: TomlReader) -> Vec<String> {
        match self {
            Part::Whole => vec![text.to_owned()],
            Part::Make { targets } => Makefile::parse(text).facts(targets),
            Part::Scripts { names } => scripts(text, names),
            Part::Json { keys } => match serde_json::from_str::<Value>(text) {
                Ok(value) => keys.iter().filter_map(|key| Some(format!("{key}: {}", value.get(key)?))).collect(),
                Err(_) => unreadable(),
            },
            Part::Toml { tables } => match toml(text) {
                Some(value) => tables.iter().filter_map(|t| Some(format!("{t}: {}", at(&value, t)?))).collect(),
                None => unreadable(),
            },
            Part::Ini { sections } => ini(text, sections),
            Part::Cargo => toml(text).map_or_else(unreadable, |value| cargo(&value)),
            Part::GoMod => go_mod(text),
            Part::Cmake => cmake(text),
            Part::Gradle => vec![without_blocks(text, "dependencies")],
            Part::Maven => vec![without_elements(text, &["dependencies", "dependencyManagement"])],
            Part::Bytecode => bytecode(text),
            Part::Packages => packages(text),
            Part::Lines { words } => lines(text, words),
        }
    }
}

/// The only fact about a file that is not what its name says.
fn unreadable() -> Vec<String> {
    vec!["unreadable".to_owned()]
}

fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

fn scripts(text: &str, names: &[String]) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return unreadable() };
    let one = |name: &String| Some(format!("{name}: {}", value.get("scripts")?.get(name)?));
    names.iter().filter_map(one).collect()
}

fn ini(text: &str, sections: &[String]) -> Vec<String> {
    let (mut inside, mut facts) = (false, Vec::new());
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(name) = line.trim().strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            // `[testenv:py3]` belongs to `testenv`.
            inside = sections.iter().any(|s| s == name || name.split_once(':').is_some_and(|(kind, _)| kind == s));
        }
        if inside && !line.is_empty() && !line.starts_with(['#', ';']) {
            facts.push(line.to_owned());
        }
    }
    // The order of lines matters in values of several lines.
    if facts.is_empty() { facts } else { vec![facts.join("\n")] }
}

/// Keys of a Cargo.toml that decide which tests run and how.
const CARGO_TABLES: &[&str] = &[
    "patch",
    "replace",
    "lib.test",
    "lib.harness",
    "lib.doctest",
    "lib.path",
    "package.autotests",
    "package.workspace",
    "profile.test",
    "profile.dev.debug-assertions",
    "profile.dev.overflow-checks",
    "profile.dev.panic",
    "workspace.exclude",
    "workspace.default-members",
];

fn cargo(value: &Value) -> Vec<String> {
    let mut facts: Vec<String> = CARGO_TABLES.iter().filter_map(|t| Some(format!("{t}: {}", at(value, t)?))).collect();
    let tables = |key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |table: &Value| table.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    for test in tables("test") {
        facts.push(format!("{}test: {test}", if is_plain_test(&test) { "+" } else { "" }));
    }
    for (kind, table) in
        ["bin", "example", "bench"].iter().flat_map(|kind| tables(kind).into_iter().map(move |t| (kind, t)))
    {
        let keys = ["test", "harness"].iter().filter_map(|key| Some(format!("{key}={}", table.get(key)?)));
        facts.extend(keys.map(|key| format!("{kind} {}: {key}", name(&table))));
    }
    let members = at(value, "workspace.members").and_then(Value::as_array);
    facts.extend(members.into_iter().flatten().map(|member| format!("+member {member}")));
    let tested = at(value, "dev-dependencies").and_then(Value::as_object);
    for (dependency, from) in tested.into_iter().flatten() {
        // A new version is ordinary work; another place of origin is not.
        let origins = ["path", "git", "registry", "package"].iter().filter_map(|key| Some((key, from.get(key)?)));
        facts.extend(origins.map(|(key, origin)| format!("dev-dependency {dependency}: {key}={origin}")));
    }
    facts
}

/// A test of its own name in the usual place, which takes no other's place and is run.
fn is_plain_test(test: &Value) -> bool {
    let name = test.get("name").and_then(Value::as_str).unwrap_or_default();
    let usual = |path: &str| path == format!("tests/{name}.rs") || path == format!("tests/{name}/main.rs");
    let off = |key: &str| test.get(key) == Some(&Value::Bool(false));
    test.get("path").and_then(Value::as_str).is_none_or(usual)
        && !off("harness")
        && !off("test")
        && test.get("required-features").is_none()
}

fn go_mod(text: &str) -> Vec<String> {
    let (mut block, mut facts) = ("", Vec::new());
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
        let first = line.split_whitespace().next().unwrap_or_default();
        if first == ")" {
            block = "";
        }
        let kind = if block.is_empty() { first } else { block };
        if ["replace", "toolchain", "go", "exclude"].contains(&kind) && !line.ends_with('(') {
            facts.push(format!("{kind} {}", line.trim_start_matches(kind).trim()));
        }
        if line.ends_with('(') {
            block = first;
        }
    }
    facts
}

/// Commands of cmake that make a test or change how one counts; new tests are welcome.
const CMAKE_TESTS: &[&str] = &["add_test", "gtest_discover_tests", "catch_discover_tests", "doctest_discover_tests"];
const CMAKE_SETTINGS: &[&str] =
    &["set_tests_properties", "set_property", "enable_testing", "include", "add_subdirectory", "function", "macro"];

fn cmake(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().map(|line| line.split('#').next().unwrap_or_default()).collect();
    let code = code.join(" ");
    let mut facts = Vec::new();
    let mut rest = code.as_str();
    while let Some(open) = rest.find('(') {
        let name = rest[..open].split(|c: char| c.is_whitespace() || c == ')').rfind(|w| !w.is_empty());
        let close = closing(&rest[open..], '(', ')').map_or(rest.len(), |at| open + at);
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let arguments = rest[open..close].trim_start_matches('(').split_whitespace().collect::<Vec<_>>().join(" ");
        let concerns = !["set_property", "include"].contains(&name.as_str())
            || arguments.contains("TEST")
            || arguments.contains("CTest");
        if CMAKE_TESTS.contains(&name.as_str()) {
            facts.push(format!("+{name}({arguments})"));
        } else if CMAKE_SETTINGS.contains(&name.as_str()) && concerns {
            let free = if name == "add_subdirectory" { "+" } else { "" };
            facts.push(format!("{free}{name}({arguments})"));
        }
        rest = rest.get(close + 1..).unwrap_or_default();
    }
    facts
}

/// Where the bracket that opens `text` is closed.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0_u32;
    text.char_indices().find_map(|(at, c)| {
        if c == open {
            depth += 1;
        } else if c == close {
            depth = depth.saturating_sub(1);
            return (depth == 0).then_some(at);
        }
        None
    })
}

/// The text without blocks `name { … }`, blank lines and the project's version.
fn without_blocks(text: &str, name: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let after = &rest[at + name.len()..];
        let word = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '.' || c == '_');
        let open = after.find('{').filter(|open| word && after[..*open].trim().is_empty());
        if let Some(open) = open {
            out.push_str(&rest[..at]);
            let end = closing(&after[open..], '{', '}').map_or(after.len(), |end| open + end + 1);
            rest = &after[end..];
        } else {
            out.push_str(&rest[..at + name.len()]);
            rest = after;
        }
    }
    out.push_str(rest);
    let is_version = |line: &str| line.starts_with("version") && !line.contains([';', '{', '(']);
    let kept = out.lines().map(str::trim).filter(|line| !line.is_empty() && !is_version(line));
    kept.collect::<Vec<_>>().join("\n")
}

/// The text without some elements, blank lines and version numbers.
fn without_elements(text: &str, names: &[&str]) -> String {
    let mut text = text.to_owned();
    for name in names {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let mut from = 0;
        while let Some(at) = text[from..].find(&open).map(|at| from + at) {
            // What a plugin depends on is part of the runner.
            let plugin = text[..at].rfind("<plugin>").is_some_and(|p| !text[p..at].contains("</plugin>"));
            let end = text[at..].find(&close).map_or(text.len(), |end| at + end + close.len());
            if plugin {
                from = end;
            } else {
                text.replace_range(at..end, "");
                from = at;
            }
        }
    }
    let kept = text.lines().map(str::trim).filter(|line| !line.is_empty());
    kept.collect::<Vec<_>>().join("\n")
}

fn lines(text: &str, words: &[String]) -> Vec<String> {
    let mut facts = Vec::new();
    for line in text.lines() {
        let dense: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        if words.iter().any(|word| holds(&dense, word)) {
            facts.push(dense);
        }
    }
    facts
}

fn holds(dense: &str, word: &str) -> bool {
    let (plain, begins) = word.strip_prefix('^').map_or((word, false), |plain| (plain, true));
    let (plain, defines) = plain.strip_suffix("(…){").map_or((plain, false), |name| (name, true));
    // `const { toBe: x } = …` takes a value, and defines none.
    if begins && plain.ends_with(':') && dense.contains("}=") {
        return false;
    }
    dense.match_indices(plain).any(|(at, _)| {
        let rest = &dense[at + plain.len()..];
        let inside = begins && dense[..at].chars().next_back().is_some_and(|before| !"{,;(".contains(before));
        let compares = word.ends_with('=') && rest.starts_with(['=', '>']);
        let calls =
            defines && !(rest.starts_with('(') && rest[closing(rest, '(', ')').unwrap_or(0)..].starts_with("){"));
        !(inside || compares || calls)
    })
}

/// The header of compiled Python: four bytes of version, which end with a line break, then flags.
/// A timestamp or a hash of the source (0 and 3) is compared with it; all else is not.
fn bytecode(text: &str) -> Vec<String> {
    let flags = text.split_once('\n').and_then(|(_, rest)| rest.chars().next());
    if matches!(flags, Some('\0' | '\u{3}')) { Vec::new() } else { vec![format!("unchecked: {text}")] }
}

/// Packages that run tests or are their assertions.
const TESTERS: &[&str] = &[
    "jest",
    "expect",
    "vitest",
    "vite",
    "mocha",
    "chai",
    "ava",
    "tap",
    "tape",
    "assert",
    "power-assert",
    "react-scripts",
    "ts-jest",
    "babel-jest",
    "jasmine",
];
const TESTER_SCOPES: &[&str] = &["@jest/", "@vitest/", "@tapjs/", "@playwright/", "@testing-library/"];

/// Where npm takes a package from, if not from the registry.
const ORIGINS: &[&str] = &["file:", "link:", "portal:", "workspace:", "npm:", "git", "http:", "./", "../", "/", "~/"];

fn packages(text: &str) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return unreadable() };
    let mut facts = Vec::new();
    origins(&value, "", &mut facts);
    facts
}

/// Goes through all objects: dependencies, overrides and a lock's packages are nested differently.
fn origins(value: &Value, under: &str, facts: &mut Vec<String>) {
    for (key, inner) in value.as_object().into_iter().flatten() {
        let name = key.rsplit("node_modules/").next().unwrap_or(key);
        let tests = TESTERS.contains(&name) || TESTER_SCOPES.iter().any(|scope| name.starts_with(scope));
        let from = inner.as_str().or_else(|| inner.get("resolved")?.as_str());
        let elsewhere = from.is_some_and(|from| ORIGINS.iter().any(|origin| from.starts_with(origin)));
        let linked = inner.get("link").is_some();
        if tests && (elsewhere || linked) && !under.ends_with("/scripts") {
            facts.push(format!("{under}/{key}: {inner}"));
        }
        origins(inner, &format!("{under}/{key}"), facts);
    }
}
