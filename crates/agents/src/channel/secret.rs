//! Secrets of channels: named by a variable or a file, looked up for one attempt.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use everloop_core::outbound::{Refusal, Undelivered};

use crate::redact::{self, redact};

/// A token is a line; a file with a longer one is no token.
const VALUE_CAP: u64 = 16 << 10;

/// Where a secret is found. Never the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// In this variable of the process.
    Env(String),
    /// In the first line of this file, which only its owner can read.
    File(PathBuf),
    /// In the first line of this file, whatever its mode is.
    OpenFile(PathBuf),
}

impl SecretSource {
    /// The value; no error shows it.
    pub(crate) fn value(&self) -> Result<String, Undelivered> {
        let found = match self {
            SecretSource::Env(name) => std::env::var(name)
                .ok()
                .filter(|value| !value.trim().is_empty())
                .ok_or_else(|| format!("the variable `{name}` is not set where everloop was started")),
            SecretSource::File(path) | SecretSource::OpenFile(path) => {
                let forbidden = if matches!(self, SecretSource::File(_)) { 0o077 } else { 0 };
                first_line(path, forbidden).map_err(|why| format!("`{}` cannot be used: {why}", path.display()))
            }
        };
        let value = found.map_err(|why| Undelivered::refused(why, Refusal::Access))?;
        let value = value.trim();
        if value.chars().any(char::is_control) {
            let why = format!("{} holds more than one line of text", self.place());
            return Err(Undelivered::refused(why, Refusal::Access));
        }
        Ok(value.to_owned())
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        match self {
            SecretSource::Env(name) => format!("the variable `{name}`"),
            SecretSource::File(path) | SecretSource::OpenFile(path) => format!("the file `{}`", path.display()),
        }
    }
}

/// Refuses a file with one of the `forbidden` bits in its mode.
fn first_line(path: &PathBuf, forbidden: u32) -> Result<String, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let mode = file.metadata().map_err(|e| e.to_string())?.permissions().mode();
    if mode & forbidden != 0 {
        return Err(format!("others can read it (mode {:o}); hint: chmod 600", mode & 0o777));
    }
    let mut line = String::new();
    BufReader::new(file.take(VALUE_CAP)).read_line(&mut line).map_err(|e| e.to_string())?;
    if line.trim().is_empty() { Err("its first line is empty".to_owned()) } else { Ok(line) }
}

/// Takes secrets out of the text of a failure; servers may repeat them.
pub(super) fn without(values: &[impl AsRef<str>], mut failure: Undelivered) -> Undelivered {
    let secrets: Vec<redact::Secret> = values
        .iter()
        .map(|value| redact::Secret { name: "secret".to_owned(), value: value.as_ref().as_bytes().to_vec() })
        .collect();
    failure.why = String::from_utf8_lossy(&redact(&secrets, failure.why.as_bytes())).into_owned();
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_no_secret() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        std::fs::write(&path, "abc-123\nrest\n").expect("it can be written");
        let mode = |bits| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits)).expect("it is ours");
        mode(0o644);
        let refused = SecretSource::File(path.clone()).value().expect_err("others can read it");
        assert!(refused.why.contains("chmod 600") && !refused.why.contains("abc"), "{}", refused.why);
        assert_eq!(SecretSource::OpenFile(path.clone()).value().expect("any mode will do"), "abc-123");
        mode(0o600);
        assert_eq!(SecretSource::File(path).value().expect("it is private"), "abc-123");
        assert!(SecretSource::Env("NOT_SET_ANYWHERE_AT_ALL".to_owned()).value().is_err());
        let failure = Undelivered::away("GET /botabc-123/x");
        assert_eq!(without(&["abc-123"], failure).why, "GET /bot[redacted:secret]/x");
    }
}
