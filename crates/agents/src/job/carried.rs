//! The variables of a command on their way to the shim: in memory of the kernel, behind a
//! descriptor. An environment could be read in `/proc` by every process of the user.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use everloop_core::planted;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::HIDE_PREFIX;
use super::key::JobKey;
use crate::isolation::SharedRules;

/// Number of the descriptor in the shim.
pub(super) const FD: RawFd = 3;

/// The key of the job, for the shim alone.
pub(super) const KEY_VAR: &str = "EVERLOOP_HIDE_JOB_KEY";

/// Number of the descriptor of shared rules, if there are any.
pub(super) const RULES_FD: RawFd = 5;

/// What the shared rules close, for the shim alone.
pub(super) const RULES_VAR: &str = "EVERLOOP_HIDE_SHARED_RULES";

/// Variables that the shim itself uses, or that identify its processes. None holds a secret.
const OPEN: &[&str] = &["PATH", "HOME", "TMPDIR", "USER", "LANG", "TZ", "XDG_CONFIG_HOME", "XDG_STATE_HOME"];

/// The marks of turns and jobs.
const OPEN_PREFIX: &[u8] = b"EVERLOOP_";

/// Whether a variable may also stand in the environment of the shim.
pub(super) fn is_open(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let mark = bytes.starts_with(OPEN_PREFIX) && !bytes.starts_with(HIDE_PREFIX.as_bytes());
    mark || OPEN.iter().any(|open| name == *open)
}

/// The variables in memory, ready to be read from the beginning.
pub(super) fn pack(variables: &[(OsString, OsString)]) -> io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    for (name, value) in variables {
        bytes.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
    }
    let mut file = File::from(memfd_create(c"variables", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads them in the shim; the descriptor is closed.
#[expect(unsafe_code, reason = "the descriptor is known by its number only")]
pub(super) fn unpack() -> io::Result<Vec<(OsString, OsString)>> {
    // SAFETY: only looked at; a number without a descriptor is an error of the call.
    nix::fcntl::fcntl(unsafe { BorrowedFd::borrow_raw(FD) }, nix::fcntl::FcntlArg::F_GETFD)?;
    // SAFETY: `start` put the descriptor there, and nothing else in this process owns it.
    let mut file = unsafe { File::from_raw_fd(FD) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let entries = bytes.split(|b| *b == 0).filter(|entry| !entry.is_empty());
    Ok(entries.filter_map(split).collect())
}

/// Makes the open variables the environment of this process, which was forked with another one.
#[expect(unsafe_code, reason = "the environment is the process's, and another thread could read it")]
pub(super) fn set_open(variables: &[(OsString, OsString)]) {
    let planted = |name: &OsStr| planted::POSSIBLE && name == planted::VARIABLE;
    for (name, _) in std::env::vars_os().filter(|(name, _)| !planted(name)) {
        // SAFETY: a shim has one thread.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in variables.iter().filter(|(name, _)| is_open(name)) {
        // SAFETY: as above; a name that is open is neither empty nor has it a sign of equality.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Takes the key out of the variables; `None` under a supervisor of the first version.
pub(super) fn take_key(variables: &mut Vec<(OsString, OsString)>) -> Option<JobKey> {
    let at = variables.iter().position(|(name, _)| name == KEY_VAR)?;
    JobKey::from_text(variables.swap_remove(at).1.to_str()?)
}

/// Takes the shared rules out of the variables, and the descriptor behind them.
#[expect(unsafe_code, reason = "the descriptor is known by its number only")]
pub(super) fn take_rules(variables: &mut Vec<(OsString, OsString)>) -> Option<SharedRules> {
    let at = variables.iter().position(|(name, _)| name == RULES_VAR)?;
    // SAFETY: with this variable `start` put the descriptor there, and nothing else in this process
    // owns it.
    let rules = unsafe { OwnedFd::from_raw_fd(RULES_FD) };
    Some(SharedRules::inherited(rules, &variables.swap_remove(at).1))
}

fn split(entry: &[u8]) -> Option<(OsString, OsString)> {
    let at = entry.iter().position(|b| *b == b'=')?;
    let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Some((text(&entry[..at]), text(&entry[at + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_open() {
        for name in ["OPENAI_API_KEY", "EVERLOOP_HIDE_KEY", "MY_TOKEN"] {
            assert!(!is_open(OsStr::new(name)), "{name}");
        }
        assert!(is_open(OsStr::new("PATH")) && is_open(OsStr::new("EVERLOOP_TURN")));
    }

    #[test]
    fn a_value_may_contain_anything_but_nul() {
        assert_eq!(split(b"A=b=c\n"), Some(("A".into(), "b=c\n".into())));
        assert_eq!(split(b"no sign"), None);
    }
}
