//! From a check's command to what decides it. Follows targets of make, scripts of package.json and
//! shell scripts, because the runner is often behind one of them.

use std::collections::BTreeSet;

use super::makefile::{self, Makefile};
use super::shell::{is_prefix, simple_commands};
use super::{JudgeFile, JudgeFiles, Part, Runner, When, kinds, paths};

/// The person's version of the files.
pub trait Files {
    /// The text of a file, by its path from the root of the repository; `None` when it is not there
    /// or is no text.
    fn text(&self, path: &str) -> Option<String>;

    /// The names of the files right in a folder; none when it is not there.
    fn names(&self, folder: &str) -> Vec<String>;
}

/// The runner of go, next to its other verbs.
pub(super) const GO_TEST: &str = "go test";

/// Deeper nesting of scripts than this is not written by a person.
const DEEPEST: u32 = 6;

/// Programs that run the file named by their first argument.
const INTERPRETERS: &[&str] = &["python", "pypy", "node", "deno", "bun", "tsx", "ruby", "perl", "php", "lua"];
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh"];

/// Words after which the program follows.
const WRAPPERS: &[&[&str]] = &[
    &["npx"],
    &["bunx"],
    &["pnpm", "exec"],
    &["pnpm", "dlx"],
    &["npm", "exec"],
    &["yarn", "exec"],
    &["uv", "run"],
    &["poetry", "run"],
    &["pipenv", "run"],
    &["pdm", "run"],
    &["hatch", "run"],
    &["bundle", "exec"],
    &["coverage", "run"],
    &["c8"],
    &["nyc"],
    &["cross-env"],
    &["sudo"],
    &["xargs"],
];

/// Folders and beginnings of names that say what a nested file is for. Others may be the product,
/// which a check runs, too.
const FOR_CHECKS: &[&str] =
    &["test", "check", "verify", "spec", "ci", ".ci", "scripts", "tools", "run_test", "run-test"];

/// Folders whose modules belong to the tests.
const TEST_FOLDERS: &[&str] = &["tests", "test", "__tests__", "spec"];

/// So many files of such a folder are looked at: what is found is kept with the loop.
const SHADOWED_MOST: usize = 400;

/// What decides the check `run`, which starts in `folder` (from the root of the repository).
pub fn judge_files(run: &str, folder: &str, files: &dyn Files) -> JudgeFiles {
    let mut deriver = Deriver { files, found: JudgeFiles::default(), seen: BTreeSet::new(), nested: Nested::No };
    deriver.script(run, folder, DEEPEST);
    deriver.shadows();
    // A check without a known runner has judges too: everloop.toml and the like.
    deriver.found.runners.push(Runner { program: "sh".to_owned(), folder: folder.to_owned() });
    let mut found = JudgeFiles::default();
    found.extend(deriver.found);
    found
}

/// Whether a command is the check itself or one inside of what it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nested {
    No,
    Yes,
}

struct Deriver<'a> {
    files: &'a dyn Files,
    found: JudgeFiles,
    /// Scripts and targets that were followed.
    seen: BTreeSet<String>,
    nested: Nested,
}

impl Deriver<'_> {
    fn script(&mut self, text: &str, folder: &str, depth: u32) {
        let mut folder = folder.to_owned();
        for words in simple_commands(&text.replace("\\\n", " ")) {
            let first = words.iter().position(|word| !is_prefix(word)).unwrap_or(words.len());
            let words: Vec<&str> = words[first..].iter().map(String::as_str).collect();
            match words.as_slice() {
                ["cd", to, ..] => folder = paths::join(&folder, to).unwrap_or(folder),
                words => self.command(words, &folder, depth),
            }
        }
    }

    fn inner(&mut self, text: &str, folder: &str, depth: u32) {
        let before = std::mem::replace(&mut self.nested, Nested::Yes);
        if depth > 0 {
            self.script(text, folder, depth - 1);
        }
        self.nested = before;
    }

    fn command(&mut self, words: &[&str], folder: &str, depth: u32) {
        let Some((&program, arguments)) = words.split_first() else { return };
        if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| words.starts_with(wrapper)) {
            self.runner(program, folder);
            let rest = &words[wrapper.len()..];
            // `coverage run -m pytest`, `xargs -n1 sh`.
            let rest = &rest[rest.iter().position(|word| !is_prefix(word)).unwrap_or(rest.len())..];
            return self.command(rest, folder, depth);
        }
        let name = program.rsplit('/').next().unwrap_or(program);
        let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if program.contains('/') {
            self.file(program, folder, depth);
        }
        match name {
            "make" | "gmake" => self.make(arguments, folder, depth),
            "npm" | "pnpm" | "yarn" => self.package_script(name, arguments, folder, depth),
            "cargo" => {
                let verb = arguments.iter().find(|word| !word.starts_with(['-', '+']));
                match verb.copied() {
                    Some("clippy") => self.runner("cargo clippy", folder),
                    Some("fmt") => self.runner("cargo fmt", folder),
                    _ => self.runner("cargo", folder),
                }
            }
            "go" => {
                let verb = arguments.iter().find(|word| !word.starts_with('-'));
                self.runner(if verb == Some(&"test") { GO_TEST } else { "go" }, folder);
            }
            "gradle" | "gradlew" | "mvn" | "mvnw" | "ctest" => self.runner(name, folder),
            "." | "source" => arguments.iter().take(1).for_each(|file| self.shell_file(file, folder, depth)),
            _ if SHELLS.contains(&bare) => self.shell(arguments, folder, depth),
            _ if INTERPRETERS.contains(&bare) => self.interpreter(bare, arguments, folder),
            _ => {
                self.runner(name, folder);
                self.plugins(arguments, folder);
            }
        }
    }

    fn runner(&mut self, program: &str, folder: &str) {
        let runner = Runner { program: program.to_owned(), folder: folder.to_owned() };
        if !kinds::of(program, "").is_empty() && !self.found.runners.contains(&runner) {
            self.found.runners.push(runner);
        }
    }

    fn judge(&mut self, path: &str, part: Part) {
        let file = JudgeFile { part, ..JudgeFile::new(path, When::Any) };
        if !self.found.files.contains(&file) {
            self.found.files.push(file);
        }
    }

    /// A file that is run.
    fn file(&mut self, word: &str, folder: &str, depth: u32) {
        if word.rsplit_once('.').is_some_and(|(_, ending)| ending == "sh") {
            return self.shell_file(word, folder, depth);
        }
        let Some(path) = paths::join(folder, word) else { return };
        let Some(text) = self.files.text(&path) else { return };
        let first = text.lines().next().unwrap_or_default();
        if first.starts_with("#!") && SHELLS.iter().any(|shell| first.trim_end().ends_with(shell)) {
            return self.shell_file(word, folder, depth);
        }
        self.program_file(word, folder);
    }

    /// A file that an interpreter runs. Inside of another script it may be the product.
    fn program_file(&mut self, word: &str, folder: &str) {
        let Some(path) = paths::join(folder, word) else { return };
        let for_checks = path.split('/').any(|part| FOR_CHECKS.iter().any(|begin| part.starts_with(begin)));
        if (self.nested == Nested::No || for_checks) && self.files.text(&path).is_some() {
            self.judge(&path, Part::Whole);
        }
    }

    fn shell_file(&mut self, word: &str, folder: &str, depth: u32) {
        let Some(path) = paths::join(folder, word) else { return };
        let Some(text) = self.files.text(&path) else { return };
        self.judge(&path, Part::Whole);
        if self.seen.insert(path) {
            self.inner(&text, folder, depth);
        }
    }

    fn shell(&mut self, arguments: &[&str], folder: &str, depth: u32) {
        let mut arguments = arguments.iter();
        while let Some(&argument) = arguments.next() {
            match argument {
                // `sh -c`, `bash -ec`: the next word is a script.
                flags if flags.starts_with('-') && !flags.starts_with("--") && flags.ends_with('c') => {
                    if let (Some(script), 1..) = (arguments.next(), depth) {
                        self.script(script, folder, depth - 1);
                    }
                    return;
                }
                option if option.starts_with('-') => {}
                file => return self.shell_file(file, folder, depth),
            }
        }
    }

    fn interpreter(&mut self, bare: &str, arguments: &[&str], folder: &str) {
        self.runner(bare, folder);
        let mut rest = arguments.iter();
        while let Some(&argument) = rest.next() {
            match argument {
                "-m" => {
                    let Some(module) = rest.next() else { return };
                    self.runner(module, folder);
                    self.discovered(rest.as_slice(), folder);
                    return self.plugins(rest.as_slice(), folder);
                }
                "--import" | "--require" | "-r" | "--loader" | "--experimental-loader" => {
                    if let Some(file) = rest.next() {
                        self.program_file(file, folder);
                    }
                }
                "-c" | "-e" | "--eval" => return,
                "run" | "test" => {}
                option if option.starts_with('-') => {}
                file => return self.program_file(file, folder),
            }
        }
    }

    /// Modules that a new file would take the place of for the tests, which import them by a name
    /// without an ending.
    fn shadows(&mut self) {
        for runner in self.found.runners.clone() {
            for place in TEST_FOLDERS.iter().filter_map(|place| paths::join(&runner.folder, place)) {
                let rules = self.files.names(&place).into_iter().take(SHADOWED_MOST);
                let rules = rules.flat_map(|name| kinds::shadows(&runner.program, &place, &name));
                self.found.files.extend(rules);
            }
        }
    }

    /// The folder of `unittest discover -s FOLDER`.
    fn discovered(&mut self, arguments: &[&str], folder: &str) {
        let after = |flag: &str| arguments.iter().position(|word| *word == flag).and_then(|at| arguments.get(at + 1));
        let start = after("-s").or_else(|| after("--start-directory"));
        if let Some(path) = start.and_then(|start| paths::join(folder, start)).filter(|path| !path.is_empty()) {
            let path = format!("{}/**", paths::literal(&path));
            self.found.files.push(JudgeFile { path, when: When::Existing, part: Part::Whole });
        }
    }

    /// Files of `-p PLUGIN`, `-c FILE`, `--config FILE` and of arguments that name a file.
    fn plugins(&mut self, arguments: &[&str], folder: &str) {
        for (at, word) in arguments.iter().enumerate() {
            let value = word.split_once('=').map_or(*word, |(_, value)| value);
            let plugin = at > 0 && arguments[at - 1] == "-p";
            let named = if plugin { format!("{}.py", value.replace('.', "/")) } else { value.to_owned() };
            // `tests/test_a.py::test_b` names a test inside of a file.
            let file = named.split("::").next().unwrap_or_default();
            let option = at > 0 && ["-c", "--config", "--rootdir", "--require", "-r"].contains(&arguments[at - 1]);
            if plugin || option || word.starts_with("--config=") || word.starts_with("--require=") {
                self.program_file(file, folder);
            }
        }
    }

    fn make(&mut self, arguments: &[&str], folder: &str, depth: u32) {
        let (mut folder, mut file, mut goals) = (folder.to_owned(), None, Vec::new());
        let mut rest = arguments.iter();
        while let Some(&argument) = rest.next() {
            match argument {
                "-C" | "--directory" => {
                    folder = rest.next().and_then(|to| paths::join(&folder, to)).unwrap_or(folder);
                }
                "-f" | "--file" | "--makefile" => file = rest.next().copied(),
                "-I" | "-j" | "-l" | "-o" => {}
                option if option.starts_with('-') || option.contains('=') => {}
                number if number.chars().all(|c| c.is_ascii_digit()) => {}
                goal => goals.push(goal.to_owned()),
            }
        }
        let candidates = file.map_or(makefile::NAMES.to_vec(), |file| vec![file]);
        let mut paths = candidates.iter().filter_map(|name| paths::join(&folder, name));
        let Some((path, text)) = paths.find_map(|path| self.files.text(&path).map(|text| (path, text))) else { return };
        self.found.files.extend(kinds::rows(kinds::MAKE, &folder));
        if self.seen.insert(format!("make {path} {goals:?}")) {
            self.targets(&[(path, text)], &folder, goals, depth);
        }
    }

    /// Follows targets through a makefile and what it includes.
    fn targets(&mut self, main: &[(String, String)], folder: &str, goals: Vec<String>, depth: u32) {
        let mut all: Vec<(String, String)> = main.to_vec();
        let includes: Vec<String> = all.iter().flat_map(|(_, text)| Makefile::parse(text).includes).collect();
        for path in includes.iter().filter_map(|name| paths::join(folder, name)) {
            all.extend(self.files.text(&path).map(|text| (path, text)));
        }
        let whole = Makefile::parse(&all.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n"));
        let goals = if goals.is_empty() { whole.first_goal().map(str::to_owned).into_iter().collect() } else { goals };
        let reached = whole.reached(&goals);
        let targets: Vec<String> = reached.iter().cloned().collect();
        for (path, _) in &all {
            self.judge(path, Part::Make { targets: targets.clone() });
        }
        // A file with the name of such a target makes it up to date.
        for goal in goals.iter().filter(|goal| !whole.is_phony(goal)) {
            let path = paths::join(folder, goal);
            self.found.files.extend(path.map(|path| JudgeFile::new(&path, When::Added)));
        }
        self.inner(&whole.recipes(&reached), folder, depth);
    }

    fn package_script(&mut self, tool: &str, arguments: &[&str], folder: &str, depth: u32) {
        const DEFAULTS: &[&str] = &["test", "start", "stop", "restart"];
        self.runner(tool, folder);
        let mut folder = folder.to_owned();
        let mut words = Vec::new();
        let mut rest = arguments.iter();
        while let Some(&argument) = rest.next() {
            match argument {
                "--prefix" | "-C" | "--dir" | "--cwd" => {
                    folder = rest.next().and_then(|to| paths::join(&folder, to)).unwrap_or(folder);
                }
                "--" => break,
                option if option.starts_with('-') => {}
                word => words.push(word),
            }
        }
        let script = match words.as_slice() {
            ["run" | "run-script", name, ..] => *name,
            ["t" | "tst", ..] if tool == "npm" => "test",
            [name, ..] if DEFAULTS.contains(name) || tool != "npm" => name,
            _ => return,
        };
        let Some(path) = paths::join(&folder, "package.json") else { return };
        let Some(text) = self.files.text(&path) else { return };
        if !self.seen.insert(format!("script {path} {script}")) {
            return;
        }
        let names = vec![script.to_owned(), format!("pre{script}"), format!("post{script}")];
        let package: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let body = |name: &str| package.get("scripts").and_then(|s| s.get(name)).and_then(|s| s.as_str());
        let bodies: Vec<String> = names.iter().filter_map(|name| body(name).map(str::to_owned)).collect();
        if bodies.is_empty() {
            // `yarn jest`: a program, not a script.
            let at = arguments.iter().position(|word| *word == script).unwrap_or(arguments.len());
            return self.command(&arguments[at..], &folder, depth.saturating_sub(1));
        }
        self.judge(&path, Part::Scripts { names });
        for body in &bodies {
            self.inner(body, &folder, depth);
        }
    }
}
