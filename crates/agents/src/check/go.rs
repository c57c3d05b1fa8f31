//! `go test` names the tests that ran only with `-v`. Owns that flag for the checks that run it, and
//! leaves out of an output what it prints about tests that passed.

use std::path::{Path, PathBuf};

use crate::environment::Environment;

const FLAGS: &str = "GOFLAGS";

/// Lines of `-v` about tests that did not fail.
const CHATTER: &[&str] = &["=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME ", "--- PASS: "];

/// The environment with `-v` in the flags that go takes from it, besides those of the person.
pub(super) fn naming_tests(env: Environment) -> Environment {
    let flags = match env.get(FLAGS) {
        Some(flags) => flags.to_string_lossy().into_owned(),
        None => settings(&env).and_then(|path| set_in(&path)).unwrap_or_default(),
    };
    if flags.split_whitespace().any(|flag| ["v", "v=true"].contains(&flag.trim_start_matches('-'))) {
        return env;
    }
    let flags = format!("{flags} -v");
    env.with(FLAGS, flags.trim())
}

/// The file of `go env -w`, which a variable takes the place of.
fn settings(env: &Environment) -> Option<PathBuf> {
    let path = |name: &str| env.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    match env.get("GOENV") {
        Some(file) if file == "off" => None,
        Some(file) => Some(PathBuf::from(file)),
        None => Some(path("XDG_CONFIG_HOME").or_else(|| Some(path("HOME")?.join(".config")))?.join("go/env")),
    }
}

fn set_in(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().rev().find_map(|line| line.strip_prefix("GOFLAGS=").map(|flags| flags.trim().to_owned()))
}

/// An output without lines about tests of go that passed.
pub(super) fn without_passes(output: String) -> String {
    if !output.contains("=== RUN ") {
        return output;
    }
    let spared = |line: &&str| !CHATTER.iter().any(|begin| line.trim_start().starts_with(begin));
    output.split_inclusive('\n').filter(spared).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn flags(vars: &[(&str, &str)]) -> OsString {
        let vars = vars.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let names = ["GOENV", FLAGS].map(str::to_owned);
        let env = naming_tests(Environment::allowed(vars, &names));
        env.get(FLAGS).cloned().unwrap_or_default()
    }

    #[test]
    fn the_flags_of_the_person_stay() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_str().unwrap();
        assert_eq!(flags(&[("HOME", path)]), "-v");
        assert_eq!(flags(&[(FLAGS, "-mod=mod")]), "-mod=mod -v");
        assert_eq!(flags(&[(FLAGS, "-v -race")]), "-v -race");
        assert_eq!(flags(&[(FLAGS, "-vet=off")]), "-vet=off -v");
        std::fs::create_dir_all(home.path().join(".config/go")).unwrap();
        std::fs::write(home.path().join(".config/go/env"), "GOPROXY=off\nGOFLAGS=-tags=x\n").unwrap();
        assert_eq!(flags(&[("HOME", path)]), "-tags=x -v");
        assert_eq!(flags(&[("HOME", path), ("GOENV", "off")]), "-v");
    }

    #[test]
    fn failures_are_what_is_shown() {
        let output =
            "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    b_test.go:3: no\n--- FAIL: TestB\nFAIL\n";
        assert_eq!(without_passes(output.to_owned()), "    b_test.go:3: no\n--- FAIL: TestB\nFAIL\n");
        assert_eq!(without_passes("--- PASS: mine\n".to_owned()), "--- PASS: mine\n");
    }
}
