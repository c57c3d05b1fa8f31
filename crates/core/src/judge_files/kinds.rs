//! The kinds of checks as data: which files decide over each runner.
//!
//! A row is `WHEN FILE [PART [ARGUMENTS]]`. WHEN is `existing` (a file that was there may not change
//! or vanish), `added` (a new one counts) or `any` (both). FILE is looked for in the folder of the
//! check and below, and by its plain name in the folders above; with a leading `/` in the folder of
//! the check alone. Arguments are separated by `|`.

use super::derive::GO_TEST;
use super::{JudgeFile, Part, When, paths};

/// Files that configure agents, git, shells and editors: they run commands by being there.
pub(super) const ALWAYS: &str = "
any everloop.toml
any .claude/**
any .mcp.json
any .codex/**
any .gemini/**
any .opencode/**
any opencode.json
any .cargo/**
any .gitattributes
any .envrc
any .vscode/**
";

/// Makefiles that are preferred to another one.
pub(super) const MAKE: &str = "
added /GNUmakefile
added /makefile
added /Makefile
";

const PYTHON: &str = "
any sitecustomize.py
any usercustomize.py
any *.pth
any **/site-packages/**
any **/*.dist-info/**
any **/*.egg-info/entry_points.txt
any *.pyc bytecode
added **/unittest/**
added unittest.py
added *.py lines TestCase.assert|TestCase.run=|TestCase.fail|TestCase.__init__=|TestCase.__call__=|setattr(unittest|setattr(TestCase|sys.modules['unittest|sys.modules[\"unittest|defload_tests(|AssertionError=
existing *.py lines TestCase.assert|TestCase.run=|TestCase.fail|TestCase.__init__=|TestCase.__call__=|setattr(unittest|setattr(TestCase|sys.modules['unittest|sys.modules[\"unittest|defload_tests(|AssertionError=
";

const PYTEST: &str = "
any conftest.py
any pytest.ini
any .pytest.ini
any pytest.toml
any .pytest.toml
any tox.ini ini pytest
any setup.cfg ini tool:pytest|options.entry_points
any pyproject.toml toml tool.pytest|project.entry-points
any setup.py lines pytest11
any requirements*.txt lines pytest@|pluggy@|iniconfig@
added pytest.py
added **/pytest/**
added **/_pytest/**
added **/pluggy/**
added pluggy.py
any *.py lines pytest_plugins|import_pytest|from_pytest|setattr(pytest|pytest.fail=|pytest.raises=|pytest.main=|sys.modules['pytest|sys.modules[\"pytest|sys.modules['_pytest|sys.modules[\"_pytest
";

const TOX: &str = "
any tox.ini
any tox.toml
any pyproject.toml toml tool.tox
any setup.cfg ini tox
any noxfile.py
";

const CARGO: &str = "
any .cargo/**
any Cargo.toml cargo
any rust-toolchain
any rust-toolchain.toml
any .config/nextest.toml
any *.rs lines macro_rules!assert|macro_rules!debug_assert|test_runner(|custom_test_frameworks
";

const CLIPPY: &str = "
any clippy.toml
any .clippy.toml
any Cargo.toml toml lints|workspace.lints
";

const RUSTFMT: &str = "
any rustfmt.toml
any .rustfmt.toml
";

const GO: &str = "
any go.work
any go.mod go_mod
added */**/go.mod
any go.env
existing vendor/**
added *_test.go lines funcTestMain(
any *.go lines testing.Testing()|flag.Lookup(\"test.|\"-test.|\".test\"
";

/// What holds for every runner on node.
const NODE: &str = "
any .npmrc
any .yarnrc
any .yarnrc.yml
any .yarn/**
any .pnp.*
any pnpm-workspace.yaml
any node_modules/**
any package.json packages
any package-lock.json packages
";

/// JavaScript that puts something else in the place of the runner or of modules.
const JAVASCRIPT: &str = "assert.equal=|assert.ok=|assert.throws=|assert.rejects=|assert.match=|Object.assign(assert\
|defineProperty(assert|Object.assign(require('assert|Object.assign(require(\"assert|Object.assign(require('node:assert\
|Object.assign(require(\"node:assert|expect.prototype|$$jest-matchers|globalThis.expect=|global.expect=\
|globalThis.assert=|global.assert=|globalThis.test=|global.test=|globalThis.it=|global.it=|globalThis.describe=\
|global.describe=|require.cache[|Module._load|Module._resolveFilename|registerHooks(|process.exit=|process.reallyExit";

/// Assertions, which the same lines may not define anew.
const ASSERTIONS: &[&str] = &[
    "strictEqual",
    "notStrictEqual",
    "deepStrictEqual",
    "deepEqual",
    "toBe",
    "toEqual",
    "toStrictEqual",
    "toMatch",
    "toMatchObject",
    "toContain",
    "toHaveLength",
    "toHaveBeenCalled",
    "toHaveBeenCalledWith",
    "toThrow",
    "toMatchSnapshot",
];

/// Ways to define one: an assignment, a key or a method of an object, a name as text.
const DEFINITIONS: &[(&str, &str)] = &[(".", "="), ("^", ":"), ("^", "(…){"), ("'", "'"), ("\"", "\"")];

const SCRIPT_FILES: &[&str] = &["*.js", "*.mjs", "*.cjs", "*.ts", "*.mts", "*.cts", "*.jsx", "*.tsx"];

const JEST: &str = "
any jest.config.*
any jest.setup.*
any jest-setup.*
any setupTests.*
any .babelrc*
any babel.config.*
any package.json json jest|babel
added /__mocks__/**
";

const VITEST: &str = "
any vitest.config.*
any vitest.workspace.*
any vitest.setup.*
any vite.config.*
";

const MOCHA: &str = "
any .mocharc*
any .taprc
any ava.config.*
any package.json json mocha|ava|tap
any test/mocha.opts
";

const CTEST: &str = "
any CTestTestfile.cmake
any CTestCustom.cmake
any CTestConfig.cmake
any CMakePresets.json
any CMakeUserPresets.json
any CMakeLists.txt cmake
";

const GRADLE: &str = "
any build.gradle gradle
any build.gradle.kts gradle
any settings.gradle
any settings.gradle.kts
any init.gradle
any gradle.properties
any gradle/**
any gradlew
any gradlew.bat
any buildSrc/**
existing **/src/test/**
added **/junit-platform.properties
added **/META-INF/services/org.junit.**
";

const MAVEN: &str = "
any pom.xml maven
any .mvn/**
any mvnw
any mvnw.cmd
existing **/src/test/**
added **/junit-platform.properties
added **/META-INF/services/org.junit.**
";

/// Runners and linters by the program's name.
const KINDS: &[(&[&str], &[&str])] = &[
    (&["pytest", "py.test"], &[PYTHON, PYTEST]),
    (&["unittest", "nose2", "nose", "doctest", "trial"], &[PYTHON]),
    (&["tox", "nox"], &[PYTHON, PYTEST, TOX]),
    (&["cargo test", "cargo t", "cargo nextest", "cargo build", "cargo check", "cargo run", "cargo"], &[CARGO]),
    (&["cargo clippy"], &[CARGO, CLIPPY]),
    (&["cargo fmt", "rustfmt"], &[RUSTFMT]),
    (&["go", GO_TEST], &[GO]),
    (&["golangci-lint"], &[GO, "any .golangci.*"]),
    (&["npm", "pnpm", "yarn", "node", "tsx", "ts-node", "bun", "deno"], &[NODE]),
    (&["jest", "react-scripts"], &[NODE, JEST]),
    (&["vitest"], &[NODE, VITEST]),
    (&["mocha", "ava", "tap"], &[NODE, MOCHA]),
    (&["ctest", "cmake"], &[CTEST]),
    (&["gradle", "gradlew"], &[GRADLE]),
    (&["mvn", "mvnw"], &[MAVEN]),
    (
        &["eslint"],
        &["any .eslintrc*\nany eslint.config.*\nany .eslintignore\nany package.json json eslintConfig|eslintIgnore"],
    ),
    (&["tsc"], &["any tsconfig*.json"]),
    (&["prettier"], &["any .prettierrc*\nany prettier.config.*\nany .prettierignore"]),
    (&["ruff"], &["any ruff.toml\nany .ruff.toml\nany pyproject.toml toml tool.ruff"]),
    (&["mypy"], &["any mypy.ini\nany .mypy.ini\nany setup.cfg ini mypy\nany pyproject.toml toml tool.mypy"]),
    (&["flake8"], &["any .flake8\nany setup.cfg ini flake8\nany tox.ini ini flake8"]),
    (&["just"], &["any justfile\nany Justfile\nany .justfile"]),
    (&["rake", "rspec"], &["any Rakefile\nany .rspec\nany spec/spec_helper.rb"]),
];

/// Modules of Python's library that its runners import: one of the same name where the tests run
/// takes their place.
const LIBRARY: &str = "\
__future__ _bisect _blake2 _bz2 _collections_abc _compression _csv _datetime _decimal \
_distutils_hack _elementtree _hashlib _heapq _json _lzma _opcode _posixsubprocess _random \
_sha512 _sitebuiltins _socket _struct _uuid _weakrefset abc argparse array ast asyncio atexit \
attr base64 bdb binascii bisect bz2 calendar cmd code codecs codeop collections configparser \
contextlib copy copyreg csv dataclasses datetime decimal difflib dis doctest email encodings \
enum exceptiongroup faulthandler fcntl fnmatch functools genericpath gettext glob hashlib heapq \
html importlib iniconfig inspect io ipaddress json keyword linecache locale logging lzma math \
ntpath numbers opcode operator os packaging pathlib pdb platform pluggy posixpath pprint py \
pyexpat pygments queue quopri random re readline reprlib runpy select selectors shlex shutil \
signal site socket stat string struct subprocess sysconfig tempfile textwrap threading time \
token tokenize tomli tomllib traceback tracemalloc types typing unicodedata unittest urllib uuid \
warnings weakref xml zipfile zipimport zlib";

/// Folders, besides the check's own, from which Python's runners import.
const IMPORTED_FROM: &[&str] = &["", "tests", "test"];

/// The files that decide over a runner which works in `folder`.
pub(super) fn of(program: &str, folder: &str) -> Vec<JudgeFile> {
    let tables = KINDS.iter().filter(|(names, _)| names.contains(&program)).flat_map(|(_, tables)| *tables);
    let tables: Vec<&str> = tables.copied().collect();
    let mut found: Vec<JudgeFile> = tables.iter().flat_map(|table| rows(table, folder)).collect();
    if tables.contains(&PYTHON) {
        let places = IMPORTED_FROM.iter().filter_map(|place| paths::join(folder, place));
        for (place, name) in places.flat_map(|place| LIBRARY.split_whitespace().map(move |name| (place.clone(), name)))
        {
            let inside = |file: String| paths::join(&place, &file).map(|path| JudgeFile::new(&path, When::Added));
            found.extend([format!("{name}.py"), format!("{name}/__init__.py")].into_iter().filter_map(inside));
        }
    }
    if tables.contains(&NODE) {
        let defined = |&name: &&'static str| DEFINITIONS.iter().map(move |(begin, end)| format!("{begin}{name}{end}"));
        let words: Vec<String> = ASSERTIONS.iter().flat_map(defined).collect();
        let lines = SCRIPT_FILES.iter().map(|name| format!("any {name} lines {JAVASCRIPT}|{}", words.join("|")));
        found.extend(lines.flat_map(|line| rows(&line, folder)));
    }
    found
}

/// What would take the place of the existing file `name` in `place`, a folder of tests, for the tests
/// of a runner. Files that a runner loads by their path are left out.
pub(super) fn shadows(program: &str, place: &str, name: &str) -> Vec<JudgeFile> {
    let tables = KINDS.iter().filter(|(names, _)| names.contains(&program)).flat_map(|(_, tables)| *tables);
    let tables: Vec<&str> = tables.copied().collect();
    let Some((stem, ending)) = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) else { return Vec::new() };
    let others: &[&str] = match ending {
        "py" if tables.contains(&PYTHON) && !stem.starts_with("test_") && !stem.ends_with("_test") => {
            &["/__init__.py", ".*so"]
        }
        "ts" | "tsx" if tables.contains(&NODE) => &["", ".js", ".mjs", ".cjs", ".jsx"],
        "js" | "jsx" if tables.contains(&NODE) => &["", ".mjs"],
        _ => &[],
    };
    let run = [".test", ".spec", "__init__"].iter().any(|end| stem.ends_with(end));
    let beside = paths::literal(&format!("{place}/{stem}"));
    let others = others.iter().filter(|_| !run);
    others.map(|other| JudgeFile { path: format!("{beside}{other}"), when: When::Added, part: Part::Whole }).collect()
}

/// The rows of a table, for a check in `folder`.
pub(super) fn rows(table: &str, folder: &str) -> Vec<JudgeFile> {
    table.lines().filter(|line| !line.is_empty()).flat_map(|line| row(line, folder)).collect()
}

fn row(line: &str, folder: &str) -> Vec<JudgeFile> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default();
    let (when, name, kind, arguments) = (word(), word(), word(), word());
    let when = match when {
        "added" => When::Added,
        "existing" => When::Existing,
        _ => When::Any,
    };
    let part = part(kind, arguments.split('|').map(str::to_owned).collect());
    let here = paths::literal(folder);
    let under = |folder: &str, name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let mut patterns = Vec::new();
    if let Some(name) = name.strip_prefix('/') {
        patterns.push(under(&here, name));
    } else {
        let anywhere = if name.starts_with("**/") { name.to_owned() } else { format!("**/{name}") };
        patterns.push(under(&here, &anywhere));
        if !name.contains("**/") {
            patterns.extend(paths::above(folder).map(|above| under(&paths::literal(above), name)));
        }
    }
    patterns.into_iter().map(|path| JudgeFile { path, when, part: part.clone() }).collect()
}

fn part(kind: &str, arguments: Vec<String>) -> Part {
    match kind {
        "json" => Part::Json { keys: arguments },
        "toml" => Part::Toml { tables: arguments },
        "ini" => Part::Ini { sections: arguments },
        "lines" => Part::Lines { words: arguments },
        "cargo" => Part::Cargo,
        "go_mod" => Part::GoMod,
        "cmake" => Part::Cmake,
        "gradle" => Part::Gradle,
        "maven" => Part::Maven,
        "bytecode" => Part::Bytecode,
        "packages" => Part::Packages,
        _ => Part::Whole,
    }
}
