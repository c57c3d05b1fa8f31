//! Which files a shell command runs. Parses enough of the shell's grammar for commands that people
//! write as checks, and rather misses a file than takes one that the agent is meant to work on.
//!
//! `sh check.sh`, `./tests/run.sh`, `timeout 60 python3 tools/verify.py`, `pytest tests/test_a.py`
//! run files that belong to the check. `grep -q done notes.txt` and `test -f out.bin` only read the
//! result of the work: those stay editable.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use everloop_core::judge_files::{is_prefix, simple_commands};

/// Programs that run the file named by their first argument.
const INTERPRETERS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "fish", "python", "pypy", "node", "deno", "bun", "ruby", "perl", "php", "lua",
    "Rscript", "awk", "tclsh", "expect",
];

/// Programs that run every file in their arguments.
const RUNNERS: &[&str] = &[
    "pytest",
    "py.test",
    "jest",
    "vitest",
    "mocha",
    "ava",
    "bats",
    "prove",
    "rspec",
    "phpunit",
    "busted",
    "shellspec",
];

/// Deeper nesting of `sh -c` than this is not written by a person.
const DEEPEST: u32 = 4;

/// The files that `run` runs, as it names them, if they exist and are text.
pub(super) fn files_run(run: &str, cwd: &Path) -> Vec<PathBuf> {
    candidates(run, cwd).into_iter().filter(|f| is_text_file(&cwd.join(f))).collect()
}

/// The files that `run` would run, existing or not, in the order it names them.
pub(super) fn candidates(run: &str, cwd: &Path) -> Vec<PathBuf> {
    let mut found = Found { cwd, folder: PathBuf::new(), files: Vec::new() };
    found.script(run, DEEPEST);
    found.files
}

/// A text file. What a compiler builds is not part of a check, and changes with the work.
pub(super) fn is_text_file(path: &Path) -> bool {
    const LOOKED_AT_BYTES: u64 = 8 << 10;
    let mut start = Vec::new();
    path.is_file()
        && File::open(path).and_then(|f| f.take(LOOKED_AT_BYTES).read_to_end(&mut start)).is_ok()
        && !start.contains(&0)
}

struct Found<'a> {
    cwd: &'a Path,
    /// The folder after `cd`, relative to `cwd`.
    folder: PathBuf,
    files: Vec<PathBuf>,
}

impl Found<'_> {
    fn script(&mut self, text: &str, depth: u32) {
        for words in simple_commands(text) {
            self.simple(&words, depth);
        }
    }

    fn simple(&mut self, words: &[String], depth: u32) {
        let mut words = words.iter().map(String::as_str);
        let Some(program) = words.find(|word| !is_prefix(word)) else { return };
        let name = program.rsplit('/').next().unwrap_or(program);
        let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if program.contains('/') {
            self.add(program);
        }
        match name {
            "cd" => {
                if let Some(to) = words.next().filter(|to| self.cwd.join(&self.folder).join(to).is_dir()) {
                    self.folder.push(to);
                }
            }
            "." | "source" => words.take(1).for_each(|file| self.add(file)),
            _ if RUNNERS.contains(&name) => words.for_each(|word| self.add(word)),
            _ if INTERPRETERS.contains(&bare) => self.interpreter(words, depth),
            _ => {}
        }
    }

    fn interpreter<'w>(&mut self, mut arguments: impl Iterator<Item = &'w str>, depth: u32) {
        while let Some(argument) = arguments.next() {
            match argument {
                "-m" | "--test" => return arguments.for_each(|word| self.add(word)),
                "-e" | "--eval" => return,
                // `sh -c`, `bash -ec`: the next word is a script.
                flags if flags.starts_with('-') && !flags.starts_with("--") && flags.ends_with('c') => {
                    if let (Some(script), 1..) = (arguments.next(), depth) {
                        self.script(script, depth - 1);
                    }
                    return;
                }
                "run" | "test" => {}
                option if option.starts_with('-') => {}
                file => return self.add(file),
            }
        }
    }

    fn add(&mut self, word: &str) {
        // `tests/test_a.py::test_b` names a test inside of a file.
        let file = word.split("::").next().unwrap_or(word);
        let file = self.folder.join(file.strip_prefix("./").unwrap_or(file));
        // Absolute paths are outside of the repository, and so not under the agent's control.
        if !word.is_empty() && !word.starts_with('-') && file.is_relative() && !self.files.contains(&file) {
            self.files.push(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(run: &str) -> Vec<String> {
        let cwd = Path::new("/nowhere");
        candidates(run, cwd).iter().map(|f| f.display().to_string()).collect()
    }

    #[test]
    fn what_a_command_runs_is_found() {
        for (run, files) in [
            ("sh check.sh", &["check.sh"][..]),
            ("./tests/run.sh -v x.txt", &["tests/run.sh"]),
            ("timeout -k 5 60 python3.11 -u tools/verify.py out.json", &["tools/verify.py"]),
            ("RUST_LOG=debug env A=1 bash -eu 'my check.sh' 2>&1 >log.txt", &["my check.sh"]),
            ("cargo test && ! grep -q TODO src/lib.rs", &[]),
            ("python3 -m pytest tests/test_a.py::test_b -k c", &["pytest", "tests/test_a.py", "c"]),
            ("sh -c './a.sh; sh b.sh'", &["a.sh", "b.sh"]),
            ("if ./a; then ./b; fi # ./c", &["a", "b"]),
            ("test -f out.bin && diff -u a.txt b.txt", &[]),
            ("x=$(./gen.sh) && [ -n \"$x\" ]", &["gen.sh"]),
            ("/usr/local/bin/check .", &[]),
            ("node -e 'require(\"./x\")'", &[]),
        ] {
            assert_eq!(named(run), files, "{run}");
        }
    }
}
