//! What tells the programs of commands apart: their paths, not their file names.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::naming;

/// Hexadecimal digits of the digest; enough for the programs of one person.
const DIGITS: usize = 8;

/// The file name of the program and a digest of the paths that it runs: the program and, among its
/// arguments, the scripts that exist. A command that names no file of its own (`sh -c …`) is
/// distinguished by the folder that it works in.
pub(super) fn identity(argv: &[String], dir: &Path) -> String {
    let Some((program, words)) = argv.split_first() else { return String::new() };
    let mut paths: Vec<PathBuf> = vec![found(program, dir)];
    let scripts: Vec<PathBuf> = words.iter().map(|word| dir.join(word)).filter(|path| path.is_file()).collect();
    if scripts.is_empty() && !words.is_empty() {
        paths.push(dir.to_owned());
    }
    paths.extend(scripts);
    let mut digest = Sha256::new();
    for path in &paths {
        digest.update(path.canonicalize().unwrap_or_else(|_| path.clone()).as_os_str().as_encoded_bytes());
        digest.update([0]);
    }
    let digits = everloop_core::hex::hex(&digest.finalize()[..DIGITS / 2]);
    format!("{}-{digits}", naming::file_name(program))
}

/// A name without a folder is searched for in `PATH`, as the system does it.
fn found(program: &str, dir: &Path) -> PathBuf {
    if program.contains('/') {
        return dir.join(program);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| PathBuf::from(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn programs_are_told_apart_by_their_paths() {
        let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        for dir in [&one, &two] {
            std::fs::write(dir.path().join("agent.sh"), "exit 1").expect("the folder is ours");
        }
        let of = |words: &[&str], dir: &tempfile::TempDir| identity(&argv(words), dir.path());
        assert!(of(&["./agent.sh"], &one).starts_with("agent.sh-"));
        for words in [&["./agent.sh"][..], &["sh", "agent.sh"], &["sh", "-c", "exit 1"]] {
            assert_ne!(of(words, &one), of(words, &two), "{words:?}");
            assert_eq!(of(words, &one), of(words, &one), "{words:?}");
        }
        let whole = one.path().join("agent.sh").display().to_string();
        assert_eq!(of(&["./agent.sh"], &one), of(&[&whole], &two), "one program under two names");
        assert_eq!(of(&["sh"], &one), of(&["sh"], &two), "a program of the system is the same everywhere");
    }
}
