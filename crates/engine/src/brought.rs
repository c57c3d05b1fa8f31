//! The environment that a `run` brings along when another process supervises its loop. It passes
//! through a private file that the supervisor removes as soon as it has read it; from then on it is
//! in memory only. What is left on disk are names: a supervisor that was started again knows by them
//! what the loop lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

use everloop_agents::environment::{Environment, Outside};
use everloop_core::hex::hex;
use everloop_core::ids::LoopId;
use everloop_core::spec::LoopSpec;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::account;
use crate::error::Failure;
use crate::state_folder::{StateFolder, write_whole};

/// Leaves what the agents and checks of a loop may see of this process's environment.
pub fn leave(home: &StateFolder, id: &LoopId, spec: &LoopSpec) -> Result<(), Failure> {
    let names: Vec<String> = spec.agents().flat_map(account::names).collect();
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let variables: BTreeMap<String, String> =
        Environment::from_ours(&names).into_vars().into_iter().filter_map(text).collect();
    let set = names.into_iter().filter(|name| variables.contains_key(name)).collect();
    let needs = Needs { version: NEEDS_VERSION, names: set, path: variables.get("PATH").map(|path| digest(path)) };
    write(home, &home.needs(id), &needs)?;
    write(home, &home.brought(id), &variables)
}

fn write(home: &StateFolder, path: &Path, content: &impl Serialize) -> Result<(), Failure> {
    home.make(path.parent().unwrap_or(home.root()))?;
    let bytes = serde_json::to_vec(content).expect("texts have a JSON form");
    write_whole(path, &bytes, 0o600)
        .map_err(|e| Failure::failed(format!("cannot write `{}`", path.display())).because(&e))
}

/// Version of [`Needs`] on disk.
const NEEDS_VERSION: u32 = 1;

/// What a loop was started with, without values.
#[derive(Debug, Serialize, Deserialize)]
struct Needs {
    version: u32,
    /// Variables that the run had.
    names: BTreeSet<String>,
    /// Digest of its search path.
    path: Option<String>,
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// Variables that the loop was started with and that this environment lacks.
pub(super) fn missing(home: &StateFolder, id: &LoopId, ours: &Outside) -> Vec<String> {
    let Ok(bytes) = std::fs::read(home.needs(id)) else { return Vec::new() };
    let Ok(needs) = serde_json::from_slice::<Needs>(&bytes) else {
        tracing::warn!(%id, "cannot read what the loop was started with");
        return Vec::new();
    };
    let path = ours.get("PATH").and_then(|path| path.to_str()).map(digest);
    let other_path = needs.path.filter(|known| Some(known) != path.as_ref()).map(|_| "PATH".to_owned());
    let unset = needs.names.into_iter().filter(|name| name != "PATH" && ours.get(name).is_none());
    unset.chain(other_path).collect()
}

/// Takes what was left for a loop, if anything was.
pub(super) fn take(home: &StateFolder, id: &LoopId) -> Option<Outside> {
    let path = home.brought(id);
    let bytes = std::fs::read(&path).ok()?;
    remove(home, id);
    let variables: BTreeMap<String, String> = serde_json::from_slice(&bytes)
        .inspect_err(|error| tracing::warn!(%id, %error, "cannot read the environment that a run brought"))
        .ok()?;
    Some(variables.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect())
}

/// Removes what was left for a loop and not taken.
pub fn remove(home: &StateFolder, id: &LoopId) {
    remove_file(&home.brought(id));
}

/// Forgets what a loop was started with: the `run` supervises it itself, or it is over.
pub fn forget(home: &StateFolder, id: &LoopId) {
    remove(home, id);
    remove_file(&home.needs(id));
}

fn remove_file(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove what a run brought");
    }
}

#[cfg(test)]
mod tests {
    use everloop_testkit::sample;

    use super::*;

    #[test]
    fn what_is_brought_is_taken_once_and_leaves_no_file() {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let home = StateFolder::open(Some(dir.path())).expect("it is new");
        let id = LoopId::new("k3f9");
        leave(&home, &id, &sample::spec()).expect("the folder is writable");
        let brought = take(&home, &id).expect("it was left");
        assert_eq!(brought.get("PATH"), std::env::var_os("PATH").as_ref());
        assert_eq!(brought.get("CARGO_MANIFEST_DIR"), None, "only what commands may see");
        assert!(!home.brought(&id).exists());
        assert_eq!(take(&home, &id), None);
        let lacks = |variables: &[(&str, &str)]| {
            missing(&home, &id, &variables.iter().map(|(name, value)| (name.into(), value.into())).collect())
        };
        let path = std::env::var("PATH").expect("there is one");
        assert_eq!(lacks(&[("PATH", &path)]), [""; 0]);
        assert_eq!(lacks(&[("PATH", "/elsewhere")]), ["PATH"]);
        forget(&home, &id);
        assert_eq!(lacks(&[]), [""; 0]);
    }
}
