//! An isolation as a set of rules of the kernel. Names may be listed everywhere, because tools look
//! upwards from their folder; contents are read only in open trees.

use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, Scope,
};

use super::Confined;
use super::grants::Grants;
use super::means::{LANDLOCK_LEAST, landlock_abi};

/// The newest interface that this was tried with; an older kernel enforces what it knows.
const KNOWN: ABI = ABI::V7;

/// The rules; entered by a call on the descriptor.
pub(super) fn rules(of: Confined<'_>) -> Result<OwnedFd, String> {
    let abi = landlock_abi();
    if abi < LANDLOCK_LEAST {
        return Err(format!("this kernel has no Landlock of version {LANDLOCK_LEAST} or newer (it has {abi})"));
    }
    let grants = Grants::of(of.isolation, of.tmp);
    let made = build(&grants).map_err(|e| format!("cannot make the rules of Landlock: {e}"))?;
    Option::<OwnedFd>::from(made).ok_or_else(|| "the kernel took no rules of Landlock".to_owned())
}

fn build(grants: &Grants) -> Result<RulesetCreated, RulesetError> {
    let all = AccessFs::from_all(KNOWN);
    let read = AccessFs::from_read(KNOWN);
    // Devices are not made by commands: on a machine of root they would open every disk.
    let write = all & !(AccessFs::MakeBlock | AccessFs::MakeChar);
    let mut rules = Ruleset::default().handle_access(all)?.scope(Scope::from_all(KNOWN))?.create()?;
    rules = add(rules, Path::new("/"), AccessFs::ReadDir.into())?;
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

/// A path that went away, or that cannot be opened, is left closed.
fn add(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(fd) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
    if access.is_empty() { Ok(rules) } else { rules.add_rule(PathBeneath::new(fd, access)) }
}
