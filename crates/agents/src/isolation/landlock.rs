//! An isolation as a set of rules of the kernel. Names may be listed everywhere, because tools look
//! upwards from their folder; contents are read only in open trees.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use everloop_core::planted::{self, Bug};
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, Scope,
};
use nix::libc::{O_NOFOLLOW, O_PATH};

use super::Confined;
use super::grants::{Grants, RealPath, around_all};
use super::means::{LANDLOCK_LEAST, landlock_abi};

/// The newest interface that this was tried with; an older kernel enforces what it knows.
const KNOWN: ABI = ABI::V7;

/// The rules; entered by a call on the descriptor. Rules of others keep the paths in `closed` shut.
pub(super) fn rules(of: Confined<'_>, closed: &[PathBuf]) -> Result<OwnedFd, String> {
    let grants = Grants::of(of.isolation, of.tmp, closed);
    made(build(&grants))
}

/// Rules that only hide these paths, and leave all else to the rules that are entered after them.
pub(super) fn around(hidden: &[RealPath]) -> Result<OwnedFd, String> {
    let build = || {
        let all = AccessFs::from_all(KNOWN);
        let mut rules = Ruleset::default().handle_access(all)?.create()?;
        rules = add(rules, &root(), AccessFs::ReadDir.into())?;
        let devices = RealPath { path: PathBuf::from("/dev"), is_folder: true };
        for tree in around_all(hidden).iter().chain([&devices]) {
            rules = add(rules, tree, all)?;
        }
        Ok(rules)
    };
    made(build())
}

fn made(rules: Result<RulesetCreated, RulesetError>) -> Result<OwnedFd, String> {
    let abi = landlock_abi();
    if abi < LANDLOCK_LEAST {
        return Err(format!("this kernel has no Landlock of version {LANDLOCK_LEAST} or newer (it has {abi})"));
    }
    let rules = rules.map_err(|e| format!("cannot make the rules of Landlock: {e}"))?;
    Option::<OwnedFd>::from(rules).ok_or_else(|| "the kernel took no rules of Landlock".to_owned())
}

fn build(grants: &Grants) -> Result<RulesetCreated, RulesetError> {
    let all = AccessFs::from_all(KNOWN);
    let read = AccessFs::from_read(KNOWN);
    // Devices are not made by commands: on a machine of root they would open every disk.
    let makes =
        if planted::is(Bug::DevicesOpened) { BitFlags::EMPTY } else { AccessFs::MakeBlock | AccessFs::MakeChar };
    let write = all & !makes;
    let mut rules = Ruleset::default().handle_access(all)?;
    if !planted::is(Bug::SignalsUnscoped) {
        rules = rules.scope(Scope::from_all(KNOWN))?;
    }
    let mut rules = rules.create()?;
    rules = add(rules, &root(), AccessFs::ReadDir.into())?;
    for tree in &grants.read {
        rules = add(rules, tree, read)?;
    }
    for tree in &grants.write {
        rules = add(rules, tree, write)?;
    }
    for device in &grants.devices {
        rules = add(rules, device, write)?;
    }
    Ok(rules)
}

fn root() -> RealPath {
    RealPath { path: PathBuf::from("/"), is_folder: true }
}

/// A path that went away, or that cannot be opened, is left closed.
fn add(rules: RulesetCreated, tree: &RealPath, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let access = if tree.is_folder { access } else { access & AccessFs::from_file(KNOWN) };
    match handle(&tree.path) {
        Ok(fd) if !access.is_empty() => rules.add_rule(PathBeneath::new(fd, access)),
        _ => Ok(rules),
    }
}

/// A link that took the place of the path is not followed.
fn handle(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(O_PATH | O_NOFOLLOW).open(path)
}
