//! Tricks in each kind of project, all of which change what decides the check, and honest changes,
//! none of which does.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

struct Tree(BTreeMap<&'static str, &'static str>);

impl Files for Tree {
    fn text(&self, path: &str) -> Option<String> {
        self.0.get(path).map(|text| (*text).to_owned())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let inside = self.0.keys().filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'));
        inside.filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }
}

/// Reads the little TOML of these tests: tables, arrays of tables, and values that are JSON.
fn toml(text: &str) -> Option<Value> {
    let mut root = json!({});
    let mut path: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, list) = match line.strip_prefix("[[").and_then(|l| l.strip_suffix("]]")) {
            Some(name) => (Some(name), true),
            None => (line.strip_prefix('[').and_then(|l| l.strip_suffix(']')), false),
        };
        if let Some(name) = name {
            path = name.split('.').map(str::to_owned).collect();
            if list {
                root.as_object_mut()?.entry(name).or_insert(json!([])).as_array_mut()?.push(json!({}));
            }
            continue;
        }
        let (key, value) = line.split_once(" = ")?;
        let value = value.replace(" = ", ": ").replace("path:", "\"path\":");
        let mut at = &mut root;
        for part in path.iter().map(String::as_str).chain(key.split('.')) {
            if at.is_array() {
                at = at.as_array_mut()?.last_mut()?;
            }
            at = at.as_object_mut()?.entry(part).or_insert(json!({}));
        }
        *at = serde_json::from_str(&value).ok()?;
    }
    Some(root)
}

/// Whether a change of one file (`None`: it is not there) touches what decides.
fn touched(run: &str, tree: &Tree, path: &str, after: Option<&str>) -> bool {
    let rules = judge_files(run, "", tree).rules();
    let before = tree.0.get(path).copied();
    decides(&rules, path, Versions { existed: before.is_some(), before, after }, toml)
}

const MAKEFILE: &str = "CC = gcc\nOBJS = a.o b.o\nRUN = ./run.sh\n.PHONY: test clean\ninclude rules.mk\n\napp: $(OBJS)\n\t$(CC) -o app $(OBJS)\n\ntest: app unit\n\t@./app --self-test\n\nunit:\n\t$(RUN) && python3 -m pytest -q\n\nclean:\n\trm -f app\n";
const PACKAGE: &str = r#"{"name":"x","version":"1.0.0","scripts":{"test":"npm run lint && jest","lint":"eslint src","start":"node src"},"dependencies":{"left":"1"},"jest":{"bail":true}}"#;
const CARGO: &str = "[package]\nname = \"x\"\n[workspace]\nmembers = [\"a\",\"b\"]\n[dependencies]\nserde = \"1\"\n[dev-dependencies]\npretty_assertions = \"1\"\n[[test]]\nname = \"it\"\npath = \"tests/it/main.rs\"\n";
const PYPROJECT: &str = "[project]\nname = \"x\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n";
const GO_MOD: &str = "module x\n\ngo 1.22\n\nrequire example.com/a v1.0.0\n";
const CMAKE: &str = "project(x)\nenable_testing()\nadd_executable(t t.c)\nadd_test(NAME t COMMAND t)\n";
const POM: &str = "<project>\n<version>1</version>\n<dependencies>\n<dependency>a</dependency>\n</dependencies>\n<build><plugins><plugin>\n<artifactId>surefire</artifactId>\n</plugin></plugins></build>\n</project>\n";
const GRADLE: &str =
    "plugins { id 'java' }\ndependencies {\n  testImplementation 'junit:junit:4'\n}\ntest { useJUnitPlatform() }\n";

fn tree() -> Tree {
    Tree(BTreeMap::from([
        ("Makefile", MAKEFILE),
        ("rules.mk", "lint:\n\ttrue\n"),
        ("run.sh", "#!/bin/sh\nexec sh ci/inner.sh\n"),
        ("ci/inner.sh", "exit 1\n"),
        ("check.sh", "#!/bin/sh\npython3 -m unittest discover -s checks\n"),
        ("checks/case.py", "import unittest\n"),
        ("tools/verify.py", "import sys\n"),
        ("package.json", PACKAGE),
        ("jest.config.js", "module.exports = {}\n"),
        ("Cargo.toml", CARGO),
        ("pyproject.toml", PYPROJECT),
        ("setup.cfg", "[metadata]\nname = x\n[tool:pytest]\naddopts = -q\n"),
        ("conftest.py", "import pytest\n"),
        ("tests/helpers.py", "x = 1\n"),
        ("test/near.ts", "export const near = 1\n"),
        ("src/app.py", "def add(a, b):\n    return a + b\n"),
        ("src/index.js", "module.exports = 1\n"),
        ("src/lib.rs", "pub fn add() {}\n"),
        ("go.mod", GO_MOD),
        ("go.work", "go 1.22\n"),
        ("main.go", "package main\n"),
        ("vendor/testify/assert.go", "package assert\n"),
        ("CMakeLists.txt", CMAKE),
        ("pom.xml", POM),
        ("build.gradle", GRADLE),
        ("src/test/java/ATest.java", "class ATest {}\n"),
    ]))
}

const PYTEST: &str = "python3 -m pytest -q";
const UNITTEST: &str = "python3 -m unittest discover -s checks";
const ADDED: &str = "anything\n";

/// Command, file and its new text; an empty text is a removed file.
const TRICKS: &[(&str, &str, &str)] = &[
    // scripts
    ("./check.sh", "check.sh", "exit 0\n"),
    ("bash ci/inner.sh", "ci/inner.sh", "exit 0\n"),
    ("python3 tools/verify.py", "tools/verify.py", ""),
    ("make unit", "ci/inner.sh", "exit 0\n"),
    ("sh check.sh", "checks/case.py", ""),
    // make: the recipe, one behind it, a variable, the shell, another makefile, a name in the way
    ("make test", "Makefile", "!@./app --self-test!@true!"),
    ("make test", "Makefile", "!$(RUN) && python3 -m pytest -q!true!"),
    ("make test", "Makefile", "!RUN = ./run.sh!RUN = true!"),
    ("make test", "Makefile", "!CC = gcc!CC = gcc\nSHELL = /bin/true!"),
    ("make test", "Makefile", "!test: app unit!test: app!"),
    ("make test", "Makefile", "!test: app unit!test: app unit clean!"),
    ("make test", "Makefile", "!.PHONY: test clean!.PHONY: clean!"),
    ("make test", "Makefile", "!clean:!test: ; @true\nclean:!"),
    ("make test", "GNUmakefile", "test:\n\ttrue\n"),
    ("make unit", "unit", ADDED),
    ("make test", "rules.mk", "unit:\n\ttrue\n"),
    ("make test", "Makefile", "!clean:!te%: SHELL = /bin/true\nclean:!"),
    ("make test", "Makefile", "!clean:!.IGNORE:\nclean:!"),
    ("make test", "Makefile", "!clean:!Makefile: clean\n\ttrue\nclean:!"),
    ("make test", "Makefile", "!clean:!%file: clean\n\ttrue\nclean:!"),
    ("make test", "Makefile", "!clean:!rules.mk: clean\n\ttrue\nclean:!"),
    ("make test", "Makefile", "!clean:!T = test\nx $(T): ; @true\nclean:!"),
    ("make test", "Makefile", "!CC = gcc!X := $(shell true)\nCC = gcc!"),
    ("make test", "Makefile", "!CC = gcc!X != true\nCC = gcc!"),
    ("make test", "Makefile", "!clean:!clean: $(shell true)!"),
    ("make test", "Makefile", "!CC = gcc!.EXTRA_PREREQS = x\nCC = gcc!"),
    ("make test", "conftest.py", "x = 1\n"),
    // npm
    ("npm test", "package.json", r#"!"npm run lint && jest"!"true"!"#),
    ("npm test", "package.json", r#"!"eslint src"!"true"!"#),
    ("npm test", "package.json", r#"!"start":!"pretest":"sh x","start":!"#),
    ("npm test", "package.json", r#"!"bail":true!"testMatch":[]!"#),
    ("npm test", ".npmrc", "script-shell=/bin/true\n"),
    ("npm test", "jest.config.ts", ADDED),
    ("npm test", ".eslintrc.json", ADDED),
    ("npm test", "node_modules/.bin/jest", ADDED),
    ("yarn jest", "jest.config.js", "module.exports = {testMatch: []}\n"),
    // jest, vitest, node
    ("npx jest", "__mocks__/assert.js", ADDED),
    ("npx jest", "babel.config.js", ADDED),
    ("npx jest", "src/index.js", "expect.prototype.toBe = () => {}\n"),
    ("npx jest", "node_modules/expect/index.js", ADDED),
    ("npx jest", "node_modules/pretty-format/index.js", ADDED),
    ("npx jest", "src/index.js", "expect.extend({\n  toBe(a, b) {\n"),
    ("npx jest", "src/index.js", "expect.extend({ toEqual: () => ({ pass: true }) })\n"),
    ("npx jest", "package.json", r#"!"left":"1"!"left":"1","jest":"file:fake"!"#),
    ("npx jest", "package.json", r#"!"left":"1"},!"left":"1"},"overrides":{"x":{"@jest/core":"npm:fake@1"}},!"#),
    ("npx jest", "package-lock.json", r#"{"packages":{"node_modules/jest":{"resolved":"fake","link":true}}}"#),
    ("cd web && npx jest", "node_modules/jest/index.js", ADDED),
    ("npx jest", "test/near.js", ADDED),
    ("npx vitest run", "vitest.config.ts", ADDED),
    ("npx vitest run", "vite.config.js", ADDED),
    ("npx vitest run", "src/index.js", "globalThis.expect = fake\n"),
    ("npx vitest run", "node_modules/vitest/dist/cli.js", ADDED),
    ("node --test", "src/index.js", "require('assert').strictEqual = () => {}\n"),
    ("node --test", "src/new.mjs", "Object.assign(assert, { ok() {} })\n"),
    ("node --test", "src/index.js", "require.cache[require.resolve('node:test')] = fake\n"),
    ("node --test", "src/index.js", "Object.defineProperty(require('assert'), 'strictEqual', {})\n"),
    ("node --test", "src/index.js", "Object.assign(a, { strictEqual() {} })\n"),
    ("node --test", "src/index.js", "require('node:assert')[\"deepStrictEqual\"] = f\n"),
    ("node --test", ".npmrc", "node-options=--require ./x.js\n"),
    // cargo: runner, harness, tests off, another test's place, another library's place, fewer members
    ("cargo test", ".cargo/config.toml", "[target.x]\nrunner = \"true\"\n"),
    ("cargo test", "Cargo.toml", "!name = \"it\"!name = \"it\"\nharness = false!"),
    ("cargo test", "Cargo.toml", "![workspace]![lib]\ntest = false\n[workspace]!"),
    ("cargo test", "Cargo.toml", "!name = \"x\"!name = \"x\"\nautotests = false!"),
    ("cargo test", "Cargo.toml", "![[test]]![[test]]\nname = \"two\"\npath = \"src/fake.rs\"\n[[test]]!"),
    ("cargo test", "Cargo.toml", "!pretty_assertions = \"1\"!pretty_assertions = {path = \"fake\"}!"),
    ("cargo test", "Cargo.toml", "![dependencies]![patch.crates-io]\nserde = {path = \"fake\"}\n[dependencies]!"),
    ("cargo test", "Cargo.toml", "!members = [\"a\",\"b\"]!members = [\"a\"]!"),
    ("cargo test", "Cargo.toml", "not = = toml"),
    ("cargo test", "src/lib.rs", "#[macro_export]\nmacro_rules! assert_eq { ($($t:tt)*) => {} }\n"),
    ("cargo test", "rust-toolchain.toml", ADDED),
    ("cargo nextest run", ".config/nextest.toml", ADDED),
    ("cargo clippy -- -D warnings", "clippy.toml", ADDED),
    // pytest
    (PYTEST, "conftest.py", "import os\n"),
    (PYTEST, "src/conftest.py", ADDED),
    (PYTEST, "pytest.ini", "[pytest]\naddopts = --collect-only\n"),
    (PYTEST, "pyproject.toml", "!-q!--co!"),
    (PYTEST, "setup.cfg", "[tool:pytest]\naddopts = --co\n"),
    (PYTEST, "tox.ini", "[pytest]\naddopts = --co\n"),
    (PYTEST, "pytest.py", ADDED),
    (PYTEST, "_pytest/__init__.py", ADDED),
    (PYTEST, "sitecustomize.py", ADDED),
    (PYTEST, "x.pth", ADDED),
    (PYTEST, "json.py", ADDED),
    (PYTEST, "src/app.py", "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n"),
    (PYTEST, "evil.egg-info/entry_points.txt", "[pytest11]\nevil = evil\n"),
    (PYTEST, "iniconfig/__init__.py", ADDED),
    (PYTEST, "tests/helpers/__init__.py", ADDED),
    (PYTEST, "tests/helpers.cpython-311-x86_64-linux-gnu.so", ADDED),
    (PYTEST, "tests/__pycache__/test_a.cpython-311.pyc", "\u{fffd}\r\r\n\u{1}\0\0\0code"),
    (PYTEST, "requirements.txt", "pytest @ file:///fake\n"),
    (PYTEST, "setup.py", "setup(entry_points={'pytest11': ['x = x']})\n"),
    // unittest
    (UNITTEST, "unittest/__init__.py", ADDED),
    (UNITTEST, "checks/unittest.py", ADDED),
    (UNITTEST, "traceback.py", ADDED),
    (UNITTEST, "usercustomize.py", ADDED),
    (UNITTEST, "checks/__init__.py", "def load_tests(a, b, c):\n    return b\n"),
    (UNITTEST, "checks/case.py", ""),
    (UNITTEST, "src/app.py", "from unittest import TestCase\nsetattr(TestCase, 'run', x)\n"),
    // go
    ("go test ./...", "go.work", "go 1.22\nuse ./other\n"),
    ("go test ./...", "go.mod", "!go 1.22!go 1.22\nreplace example.com/a => ./fake!"),
    ("go test ./...", "go.mod", "!go 1.22!go 1.22\ntoolchain local!"),
    ("go test ./...", "sub/go.mod", "module y\n"),
    ("go test ./...", "a_test.go", "package x\nfunc TestMain(m *testing.M) { os.Exit(0) }\n"),
    ("go test ./...", "vendor/testify/assert.go", "package assert // nothing\n"),
    ("go test ./...", "main.go", "package main\nfunc init() { if testing.Testing() { os.Exit(0) } }\n"),
    // ctest
    ("ctest --test-dir build", "CMakeLists.txt", "!add_test(NAME t COMMAND t)!add_test(NAME t COMMAND true)!"),
    ("ctest --test-dir build", "CMakeLists.txt", "!add_test(NAME t COMMAND t)!!"),
    ("ctest", "CMakeLists.txt", "!COMMAND t)!COMMAND t)\nset_tests_properties(t PROPERTIES WILL_FAIL TRUE)!"),
    ("ctest", "CTestCustom.cmake", "set(CTEST_CUSTOM_TESTS_IGNORE t)\n"),
    ("ctest", "CMakePresets.json", ADDED),
    // gradle and maven
    ("./gradlew test", "build.gradle", "!useJUnitPlatform()!enabled = false!"),
    ("gradle test", "build.gradle", "!test { !test { ignoreFailures = true; !"),
    ("gradle test", "gradle.properties", ADDED),
    ("gradle test", "src/test/java/ATest.java", ""),
    ("gradle test", "src/main/resources/junit-platform.properties", ADDED),
    (
        "mvn test",
        "pom.xml",
        "!surefire!surefire</artifactId><configuration><skip>true</skip></configuration><artifactId>!",
    ),
    ("mvn test", ".mvn/maven.config", "-DskipTests\n"),
    ("mvn test", "src/test/java/ATest.java", "class ATest { /* empty */ }\n"),
    ("mvn test", "pom.xml", "!<build>!<properties><skipTests>true</skipTests></properties><build>!"),
    // whatever the check is
    ("true", "everloop.toml", ADDED),
    ("true", ".claude/settings.json", ADDED),
    ("true", "sub/.mcp.json", ADDED),
    ("true", ".codex/config.toml", ADDED),
    ("true", ".gemini/settings.json", ADDED),
    ("true", ".opencode/x.json", ADDED),
    ("true", ".gitattributes", "* filter=x\n"),
    ("true", ".envrc", ADDED),
    ("true", ".vscode/tasks.json", ADDED),
];

/// Twenty honest changes and some more.
const HONEST: &[(&str, &str, &str)] = &[
    ("make test", "Makefile", "!rm -f app!rm -rf app build!"),
    ("make test", "Makefile", "!clean:!docs:\n\tmkdocs\n\nclean:!"),
    ("make test", "Makefile", "!OBJS = a.o b.o!OBJS = a.o b.o c.o!"),
    ("make test", "Makefile", "!.PHONY: test clean!.PHONY: test clean docs!"),
    ("make test", "Makefile", "!clean:!%.html: %.md\n\tcp $< $@\n%.html: CSS = x\nclean:!"),
    ("make test", "Makefile", "!CC = gcc!CC = gcc\nDOCS := a b!"),
    ("npm test", "package.json", r#"!"left":"1"!"left":"2","right":"1"!"#),
    ("npm test", "package.json", r#"!"left":"1"!"left":"file:../left","jest":"^30.0.0"!"#),
    ("npm test", "src/even.test.js", "expect.extend({\n  toBeEven(n) {\n  }\n})\nexpect(1).toBe(1)\n"),
    ("npm test", "src/a.test.js", "const { strictEqual: eq } = require('assert')\nstrictEqual(f(() => {}), 2)\n"),
    ("npm test", "test/far.js", ADDED),
    (PYTEST, "tests/__pycache__/test_a.cpython-311.pyc", "\u{fffd}\r\r\n\0\0\0\0code"),
    (PYTEST, "tests/unit/__init__.py", ADDED),
    (PYTEST, "requirements.txt", "pytest>=8\n"),
    ("go test ./...", "tools/main.go", "package main\n"),
    ("npm test", "package.json", r#"!"node src"!"node --inspect src"!"#),
    ("npm test", "package.json", r#"!"version":"1.0.0"!"version":"1.1.0"!"#),
    ("npm test", "src/new.test.js", "const assert = require('assert'); assert.strictEqual(1, 1)\n"),
    ("npm test", ".editorconfig", ADDED),
    ("node --test", "src/index.js", "if (a === b) assert.strictEqual(a, b)\n"),
    ("node --test", "test/new.test.mjs", "import assert from 'node:assert'; assert.equal(1, 1)\n"),
    ("cargo test", "Cargo.toml", "!serde = \"1\"!serde = \"1\"\ntoml = \"1\"!"),
    ("cargo test", "Cargo.toml", "!pretty_assertions = \"1\"!pretty_assertions = \"1.4\"\ntempfile = \"3\"!"),
    ("cargo test", "Cargo.toml", "![[test]]![[test]]\nname = \"new\"\npath = \"tests/new.rs\"\n[[test]]!"),
    ("cargo test", "Cargo.toml", "!members = [\"a\",\"b\"]!members = [\"a\",\"b\",\"c\"]!"),
    ("cargo test", "tests/new.rs", "#[test]\nfn new() { assert_eq!(1, 1); }\n"),
    ("cargo test", "src/lib.rs", "pub fn add() -> u32 { 1 }\n"),
    ("cargo test", "Cargo.lock", ADDED),
    (
        PYTEST,
        "tests/test_new.py",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\n",
    ),
    (PYTEST, "pyproject.toml", "!name = \"x\"!name = \"x\"\nversion = \"2\"!"),
    (PYTEST, "setup.cfg", "[metadata]\nname = y\n[tool:pytest]\naddopts = -q\n"),
    (PYTEST, "src/app.py", "def add(a, b):\n    return b + a\n"),
    (PYTEST, "src/types.py", ADDED),
    (PYTEST, "requirements.txt", ADDED),
    (UNITTEST, "checks/test_new.py", "import unittest\n"),
    (
        "go test ./...",
        "go.mod",
        "!require example.com/a v1.0.0!require (\nexample.com/a v1.1.0\nexample.com/b v1.0.0\n)!",
    ),
    ("go test ./...", "b_test.go", "package x\nfunc TestB(t *testing.T) {}\n"),
    ("go test ./...", "main.go", "package main\nfunc main() { os.Exit(1) }\n"),
    ("go test ./...", "vendor/new/new.go", ADDED),
    ("ctest", "CMakeLists.txt", "!add_executable(t t.c)!add_executable(t t.c u.c)\nadd_test(NAME u COMMAND t u)!"),
    ("gradle test", "build.gradle", "!'junit:junit:4'!'junit:junit:4'\n  implementation 'a:b:1'!"),
    ("mvn test", "pom.xml", "!<dependency>a</dependency>!<dependency>a</dependency><dependency>b</dependency>!"),
    ("mvn test", "src/test/java/BTest.java", "class BTest {}\n"),
    ("./check.sh", "README.md", ADDED),
    ("./check.sh", "config/settings.yaml", ADDED),
    ("cargo test", ".github/dependabot.yml", ADDED),
];

/// The new text of a row: a replacement `!old!new!` in the old one, or all of it.
fn after(tree: &Tree, path: &str, text: &str) -> Option<String> {
    match text.strip_prefix('!').and_then(|t| t.strip_suffix('!')).and_then(|t| t.split_once('!')) {
        Some((old, new)) => {
            let before = tree.0[path];
            assert!(before.contains(old), "{path} has no {old}");
            Some(before.replacen(old, new, 1))
        }
        None => Some(text.to_owned()).filter(|text| !text.is_empty()),
    }
}

fn missed(rows: &'static [(&str, &str, &str)], expected: bool) -> Vec<String> {
    let tree = tree();
    let wrong = |(run, path, text): &&(&str, &str, &str)| {
        touched(run, &tree, path, after(&tree, path, text).as_deref()) != expected
    };
    rows.iter().filter(wrong).map(|row| format!("{row:?}")).collect()
}

#[test]
fn every_trick_changes_what_decides() {
    assert_eq!(missed(TRICKS, true), Vec::<String>::new());
}

#[test]
fn no_honest_change_does() {
    assert!(HONEST.len() >= 20);
    assert_eq!(missed(HONEST, false), Vec::<String>::new());
}

#[test]
fn rules_come_from_commands_in_folders() {
    let tree = Tree(BTreeMap::from([("web/package.json", r#"{"scripts":{"test":"vitest run"}}"#)]));
    let rules = judge_files("cd web && npm test", "", &tree).rules();
    let added = |path| decides(&rules, path, Versions { existed: false, before: None, after: Some(ADDED) }, toml);
    assert!(added("web/vitest.config.ts") && added("vitest.config.ts") && added("web/app/vite.config.js"));
    assert!(!added("api/vitest.config.ts"));
    assert_eq!(concern(&rules, "web/package.json", true), Concern::InPart);
    assert_eq!(concern(&rules, "web/vitest.config.ts", false), Concern::Whole);
    assert_eq!(concern(&rules, "web/readme.md", true), Concern::Free);
    assert!(JudgeFiles::default().rules().is_empty(), "a loop of an earlier version has none");
}

#[test]
fn what_decides_survives_being_stored() {
    let found = judge_files("make test && npm test", "", &tree());
    let text = serde_json::to_string(&found).expect("plain data");
    assert!(text.len() < 2_000, "{text}");
    assert_eq!(serde_json::from_str::<JudgeFiles>(&text).expect("the same data"), found);
}

#[cfg(feature = "planted")]
#[test]
fn without_additions_tricks_pass() {
    crate::planted::plant(Some(Bug::AdditionsNotCounted));
    let missed = missed(TRICKS, true);
    crate::planted::plant(None);
    assert!(missed.len() > 20, "{missed:?}");
}
