//! What a turn must not change to count: tests, CI, and the files that a check itself consists of.
//! Owns the globs and the rules of judge files, and the pin that detects a changed check.

mod command;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use everloop_core::hex::hex;
use everloop_core::judge_files::{self, Concern, Files, JudgeFile, JudgeFiles, Versions};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use sha2::{Digest, Sha256};

/// An invalid glob.
#[derive(Debug, thiserror::Error)]
#[error("`{glob}` is not a glob: {why}")]
pub struct GlobError {
    glob: String,
    why: String,
}

/// Globs for protected files.
#[derive(Clone, Debug)]
pub struct Globs {
    set: GlobSet,
    except: GlobSet,
    below: PathBuf,
    /// Rules of what decides the checks, from the root.
    rules: Vec<JudgeFile>,
}

impl Globs {
    /// From the configured globs. The name of a folder stands for everything in it; `!glob` is an
    /// exception.
    pub fn new(globs: &[String]) -> Result<Self, GlobError> {
        let (mut set, mut except) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for glob in globs {
            let wrong = |e: globset::Error| GlobError { glob: glob.clone(), why: e.kind().to_string() };
            let (plain, builder) = match glob.strip_prefix('!') {
                Some(rest) => (rest, &mut except),
                None => (glob.as_str(), &mut set),
            };
            let plain = plain.trim_end_matches('/').trim_start_matches("./");
            for glob in [plain.to_owned(), format!("{plain}/**")] {
                builder.add(GlobBuilder::new(&glob).literal_separator(true).build().map_err(wrong)?);
            }
        }
        let built = |set: GlobSetBuilder| {
            set.build().map_err(|e| GlobError { glob: globs.join(", "), why: e.kind().to_string() })
        };
        Ok(Self { set: built(set)?, except: built(except)?, below: PathBuf::new(), rules: Vec::new() })
    }

    /// For a loop in a folder below the root of its repository: globs apply relative to both.
    #[must_use]
    pub fn below(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.below);
        self
    }

    /// Together with what decides the checks.
    #[must_use]
    pub fn judging(mut self, judge: &JudgeFiles) -> Self {
        self.rules = judge.rules();
        self
    }

    /// Whether a path (relative to the root) is protected.
    pub fn protects(&self, path: &Path) -> bool {
        self.matches(&self.set, path) && !self.matches(&self.except, path)
    }

    fn matches(&self, set: &GlobSet, path: &Path) -> bool {
        let inner = if self.below.as_os_str().is_empty() { None } else { path.strip_prefix(&self.below).ok() };
        set.is_match(path) || inner.is_some_and(|p| set.is_match(p))
    }

    /// What a path is to globs and rules, before its content is known.
    pub(crate) fn concern(&self, path: &Path, existed: bool) -> Concern {
        if self.matches(&self.except, path) {
            return Concern::Free;
        }
        if existed && self.protects(path) {
            return Concern::Whole;
        }
        judge_files::concern(&self.rules, &path.to_string_lossy(), existed)
    }

    /// Whether a copy of an existing file is kept where there is no git: not of those that only
    /// their lines can make decide, which is every source.
    pub(crate) fn keeps(&self, path: &Path) -> bool {
        self.protects(path)
            || !self.matches(&self.except, path)
                && path.to_str().is_some_and(|path| judge_files::is_configuration(&self.rules, path))
    }

    /// Whether two versions of a file that concerns in part differ in that part.
    pub(crate) fn decides(&self, path: &Path, versions: Versions<'_>) -> bool {
        judge_files::decides(&self.rules, &path.to_string_lossy(), versions, read_toml)
    }
}

fn read_toml(text: &str) -> Option<serde_json::Value> {
    toml::from_str(text).ok()
}

/// Larger files are no scripts and no configuration of a check.
const JUDGE_FILE_MAX_BYTES: u64 = 1 << 20;

/// A clean checkout.
struct Checkout<'a>(&'a Path);

impl Files for Checkout<'_> {
    fn text(&self, path: &str) -> Option<String> {
        let path = self.0.join(path);
        let small = path.symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= JUDGE_FILE_MAX_BYTES);
        if small { std::fs::read_to_string(path).ok() } else { None }
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(folder)).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let mut names: Vec<String> = files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// What decides check commands. `root` is a clean checkout of the repository (or the folder without
/// git), `below` the folder in it where the commands run.
pub fn judge_files<'a>(runs: impl IntoIterator<Item = &'a str>, root: &Path, below: &Path) -> JudgeFiles {
    let mut all = JudgeFiles::default();
    for run in runs {
        all.extend(judge_files::judge_files(run, &below.to_string_lossy(), &Checkout(root)));
    }
    all
}

/// Globs for the files that check commands run. `root` is a clean checkout of the repository (or
/// the folder without git), `below` the folder in it where the commands run.
pub fn files_of_checks<'a>(runs: impl IntoIterator<Item = &'a str>, root: &Path, below: &Path) -> Vec<String> {
    let mut globs = Vec::new();
    for run in runs {
        for file in command::files_run(run, &root.join(below)) {
            if let Some(inside) = lexical(&below.join(file)) {
                globs.push(globset::escape(&inside.to_string_lossy()));
            }
        }
    }
    globs.sort();
    globs.dedup();
    globs
}

/// The path without `.` and `..`; `None` when it leaves the root.
fn lexical(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            Component::ParentDir if out.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

/// Pins a check: a hash of the command and of the files that it runs and that are in `cwd` now.
/// Files that the command builds later are not part of it, so the pin is taken in a clean checkout.
pub fn pin(run: &str, cwd: &Path) -> io::Result<String> {
    let candidates = command::candidates(run, cwd);
    let there: Vec<usize> =
        (0..candidates.len()).filter(|&i| command::is_text_file(&cwd.join(&candidates[i]))).collect();
    let files: Vec<&PathBuf> = there.iter().map(|&i| &candidates[i]).collect();
    let numbers: Vec<String> = there.iter().map(usize::to_string).collect();
    Ok(format!("{}:{}", hash(run, cwd, &files)?, numbers.join(".")))
}

/// Whether a check is still the pinned one; if not, why. An empty pin always holds.
pub fn pin_holds(pin: &str, run: &str, cwd: &Path) -> Result<(), String> {
    if pin.is_empty() {
        return Ok(());
    }
    let candidates = command::candidates(run, cwd);
    let (wanted, numbers) = pin.split_once(':').unwrap_or((pin, ""));
    let files: Option<Vec<&PathBuf>> =
        numbers.split('.').filter(|n| !n.is_empty()).map(|n| candidates.get(n.parse::<usize>().ok()?)).collect();
    let files = files.ok_or("the command is not the one that was pinned")?;
    let names: Vec<String> = files.iter().map(|f| format!("`{}`", f.display())).collect();
    if let Some(gone) = files.iter().find(|f| !cwd.join(f).is_file()) {
        return Err(format!("`{}`, which it runs, is gone", gone.display()));
    }
    match hash(run, cwd, &files) {
        Ok(now) if now == wanted => Ok(()),
        Ok(_) if names.is_empty() => Err("the command is not the one that was pinned".to_owned()),
        Ok(_) => Err(format!("what it runs was changed since the loop was made: {}", names.join(", "))),
        Err(error) => Err(format!("what it runs cannot be read: {error}")),
    }
}

fn hash(run: &str, cwd: &Path, files: &[&PathBuf]) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash.update(b"everloop check 1\0");
    hash.update(run.as_bytes());
    for file in files {
        hash.update(b"\0");
        hash.update(file.as_os_str().as_encoded_bytes());
        hash.update(b"\0");
        hash.update(hash_file(&cwd.join(file))?);
    }
    Ok(hex(&hash.finalize()))
}

/// SHA-256 of a file's content.
pub(crate) fn hash_file(path: &Path) -> io::Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hash.finalize().into());
        }
        hash.update(&buffer[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(list: &[&str]) -> Globs {
        Globs::new(&list.iter().map(|&g| g.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn existing_tests_are_protected_and_new_ones_are_not() {
        let globs = globs(&["tests/**", "**/*_test.*", "**/__tests__/**"]);
        for path in ["tests/a.rs", "src/deep/x_test.go", "web/__tests__/b.js"] {
            assert_eq!(globs.concern(Path::new(path), true), Concern::Whole, "{path}");
            assert_eq!(globs.concern(Path::new(path), false), Concern::Free, "{path}");
        }
        assert_eq!(globs.concern(Path::new("src/tests.rs"), true), Concern::Free);
    }

    #[test]
    fn what_decides_a_check_counts_unless_it_is_an_exception() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Cargo.toml"), "[package]\nname = \"x\"\n").unwrap();
        let judge = judge_files(["cargo test"], dir.path(), Path::new(""));
        let globs = globs(&["tests/**", "!.cargo/**"]).judging(&judge);
        assert_eq!(globs.concern(Path::new("rust-toolchain"), false), Concern::Whole);
        assert_eq!(globs.concern(Path::new(".cargo/config.toml"), false), Concern::Free);
        let manifest = Path::new("Cargo.toml");
        assert_eq!(globs.concern(manifest, true), Concern::InPart);
        let decides = |after: &str| {
            let before = Some("[package]\nname = \"x\"\n");
            globs.decides(manifest, Versions { existed: true, before, after: Some(after) })
        };
        assert!(!decides("[package]\nname = \"x\"\n[dependencies]\nserde = \"1\"\n"));
        assert!(decides("lib = { test = false }\n[package]\nname = \"x\"\n"));
        assert!(decides("[package]\nname = \"x\"\n\"autotests\" = false\n"));
    }

    #[test]
    fn globs_hold_from_the_root_and_from_the_folder_below_it() {
        let globs = globs(&["tests/", "everloop.toml"]).below(Path::new("sub"));
        for path in ["tests/a", "sub/tests/a/b", "sub/everloop.toml"] {
            assert!(globs.protects(Path::new(path)), "{path}");
        }
        assert!(!globs.protects(Path::new("other/tests/a")));
        assert!(Globs::new(&["a[".to_owned()]).unwrap_err().to_string().starts_with("`a[` is not a glob"));
    }

    #[test]
    fn an_exception_is_not_protected() {
        let globs = globs(&["tests/**", "!tests/data/**"]);
        assert!(globs.protects(Path::new("tests/a.rs")) && !globs.protects(Path::new("tests/data/x.json")));
    }

    #[test]
    fn a_pin_sees_changed_and_missing_files_but_not_later_builds() {
        let dir = tempfile::tempdir().unwrap();
        let (cwd, run) = (dir.path(), "make app && ./build/app | sh check.sh");
        std::fs::write(cwd.join("check.sh"), "exit 1\n").unwrap();
        let taken = pin(run, cwd).unwrap();
        std::fs::create_dir(cwd.join("build")).unwrap();
        std::fs::write(cwd.join("build/app"), "#!/bin/sh\n").unwrap();
        assert_eq!(pin_holds(&taken, run, cwd), Ok(()));
        assert!(pin_holds(&taken, "make app", cwd).is_err());
        std::fs::write(cwd.join("check.sh"), "exit 0\n").unwrap();
        assert!(pin_holds(&taken, run, cwd).unwrap_err().contains("`check.sh`"));
        std::fs::remove_file(cwd.join("check.sh")).unwrap();
        assert!(pin_holds(&taken, run, cwd).unwrap_err().ends_with("is gone"));
        assert_eq!(pin_holds("", run, cwd), Ok(()));
    }

    #[test]
    fn the_files_that_checks_run_become_globs_from_the_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sub")).unwrap();
        for file in ["verify[1].py", "sub/run.sh", "sub/notes.txt"] {
            std::fs::write(dir.path().join(file), "text\n").unwrap();
        }
        let runs = ["python3 '../verify[1].py'", "./run.sh", "grep -q done notes.txt"];
        let globs = files_of_checks(runs, dir.path(), Path::new("sub"));
        let set = Globs::new(&globs).unwrap();
        assert!(set.protects(Path::new("verify[1].py")) && set.protects(Path::new("sub/run.sh")));
        assert!(!set.protects(Path::new("sub/notes.txt")), "what a check reads is the work itself");
    }
}
