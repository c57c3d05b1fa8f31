//! The key of a job: supervisor and shim sign with it what they write about the job, and the
//! command does not have it.
//!
//! It is derived from a secret of the state folder (the key of the ledger, which isolated commands
//! cannot read) and the job's place in it, so that the next supervisor has it too. Without a ledger
//! above the job the secret is this process's own: no other process verifies such a job.
//!
//! The marks by which processes of a job are found are derived from it as well: they name neither
//! the key nor the folder.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use everloop_core::hex::hex;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::files;

/// The file with the secret, in the state folder.
const SECRET: &str = "ledger.key";
/// Folders of jobs are at most so far below the state folder (`checks/LOOP/0-0`).
const DEPTH: usize = 4;
/// The file is far smaller.
const SECRET_MAX_BYTES: u64 = 64 << 10;
/// Bits of a job, and of its state folder, in the number that marks processes.
const TAG_BITS: u32 = 31;

/// Signs the lines of one job.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct JobKey([u8; 32]);

impl std::fmt::Debug for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobKey")
    }
}

impl JobKey {
    /// The key of the job in this folder, which has to exist.
    pub(super) fn of(dir: &Path) -> io::Result<Self> {
        let dir = dir.canonicalize()?;
        Ok(derive(&Secret::above(&dir)?, &dir))
    }

    /// As it was handed over.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let digits = text.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> =
            digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect();
        Some(Self(bytes?.try_into().ok()?))
    }

    /// To be handed over, by memory alone.
    pub(super) fn to_text(&self) -> String {
        hex(&self.0)
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> String {
        hex(&mac(&self.0, &[b"line", bytes]))
    }

    pub(super) fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        // Compared in constant time: the caller of this may be timed by a command.
        let wanted = self.sign(bytes);
        wanted.len() == signature.len() && wanted.bytes().zip(signature).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

/// The mark of the job in this folder: the value of [`super::JOB_VAR`].
pub(super) fn mark(dir: &Path) -> io::Result<String> {
    let dir = dir.canonicalize()?;
    let secret = Secret::above(&dir)?;
    let (state, job) = (mac(&secret.bytes, &[b"state"]), mac(&derive(&secret, &dir).0, &[b"mark"]));
    Ok(format!("{}-{}", hex(&state[..8]), hex(&job[..8])))
}

/// The beginning of the marks of all jobs in a state folder.
pub(super) fn state_mark(root: &Path) -> io::Result<String> {
    let state = mac(&Secret::above(&root.canonicalize()?.join("jobs"))?.bytes, &[b"state"]);
    Ok(format!("{}-", hex(&state[..8])))
}

/// A mark as a number, with a part for the state folder and one for the job.
pub(super) fn number(mark: &str) -> Option<u64> {
    let (state, job) = mark.split_once('-')?;
    let tag = |digits: &str| Some(u64::from_str_radix(digits, 16).ok()? >> (u64::BITS - TAG_BITS));
    Some(tag(state)? << TAG_BITS | tag(job)?)
}

/// Whether a number is one of a state folder, which is given by the beginning of its marks.
pub(super) fn is_of_state(mine: u64, state_mark: &str) -> bool {
    number(&format!("{state_mark}0")).is_some_and(|state| state >> TAG_BITS == mine >> TAG_BITS)
}

fn derive(secret: &Secret, dir: &Path) -> JobKey {
    let place = dir.strip_prefix(&secret.root).unwrap_or(dir);
    JobKey(mac(&secret.bytes, &[b"job", place.as_os_str().as_encoded_bytes()]))
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(b"everloop job\0");
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// What keys are derived from.
struct Secret {
    bytes: Vec<u8>,
    /// The folder that it is in.
    root: PathBuf,
}

impl Secret {
    /// The one of the nearest ledger above a folder; without one, that of this process.
    fn above(dir: &Path) -> io::Result<Self> {
        for root in dir.ancestors().skip(1).take(DEPTH) {
            let Ok(file) = files::read(&root.join(SECRET)) else { continue };
            let mut bytes = Vec::new();
            file.take(SECRET_MAX_BYTES).read_to_end(&mut bytes)?;
            return Ok(Self { bytes, root: root.to_owned() });
        }
        Ok(Self { bytes: own()?.to_vec(), root: PathBuf::new() })
    }
}

fn own() -> io::Result<[u8; 32]> {
    static OWN: OnceLock<[u8; 32]> = OnceLock::new();
    if let Some(secret) = OWN.get() {
        return Ok(*secret);
    }
    let mut drawn = [0; 32];
    getrandom::fill(&mut drawn).map_err(io::Error::other)?;
    Ok(*OWN.get_or_init(|| drawn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_key_belongs_to_a_folder_and_a_ledger() {
        let root = tempfile::tempdir().unwrap();
        let job = |name: &str| {
            let dir = root.path().join(name);
            fs::create_dir_all(&dir).unwrap();
            dir
        };
        let (one, two) = (job("turns/k-1.1"), job("checks/k/0-0"));
        let own = JobKey::of(&one).unwrap();
        assert_eq!(JobKey::of(&one).unwrap(), own, "a process knows its own");
        fs::write(root.path().join(SECRET), "secret").unwrap();
        let (first, second) = (JobKey::of(&one).unwrap(), JobKey::of(&two).unwrap());
        assert!(first != own && first != second);
        assert_eq!(JobKey::from_text(&first.to_text()), Some(first.clone()));
        assert!(first.verifies(b"line", first.sign(b"line").as_bytes()));
        assert!(!second.verifies(b"line", first.sign(b"line").as_bytes()));
        assert!(!first.verifies(b"line", b""));
        for wrong in ["", "ab", "zz", &"é".repeat(32)] {
            assert_eq!(JobKey::from_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn marks_name_no_folder() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(SECRET), "secret").unwrap();
        let (one, two) = (root.path().join("turns/k-1.1"), root.path().join("turns/k-1.2"));
        fs::create_dir_all(&one).unwrap();
        fs::create_dir_all(&two).unwrap();
        let (first, second) = (mark(&one).unwrap(), mark(&two).unwrap());
        assert!(first != second && number(&first) != number(&second));
        assert!(!first.contains('/') && !first.contains("k-1"));
        let state = state_mark(root.path()).unwrap();
        for mark in [first, second] {
            assert!(mark.starts_with(&state) && is_of_state(number(&mark).unwrap(), &state), "{mark}");
        }
        assert!(!is_of_state(number("00-00").unwrap(), &state));
        assert_eq!(number("no mark"), None);
    }
}
