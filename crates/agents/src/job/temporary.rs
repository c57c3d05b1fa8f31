//! The folder for the temporary files of one command: made by its shim, removed with it, or by the
//! supervisor after a shim that vanished.

use std::path::{Path, PathBuf};

/// Beginning of its name in the machine's folder for such files.
const PREFIX: &str = "everloop-";

/// Makes one, for this user alone.
pub(crate) fn make() -> Result<PathBuf, String> {
    let pattern = std::env::temp_dir().join(format!("{PREFIX}XXXXXX"));
    nix::unistd::mkdtemp(&pattern).map_err(|e| format!("cannot make `{}`: {e}", pattern.display()))
}

/// Removes one; nothing else is removed, whatever a record names. Best effort: what cannot be
/// removed stays in the machine's folder for such files.
pub(crate) fn remove(folder: &Path) {
    if is_temporary(folder) {
        std::fs::remove_dir_all(folder).ok();
    }
}

fn is_temporary(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    folder.parent() == Some(&std::env::temp_dir()) && name.is_some_and(|name| name.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_such_a_folder_is_removed() {
        let folder = make().unwrap();
        let other = tempfile::tempdir().unwrap();
        let inside = other.path().join("everloop-x");
        std::fs::create_dir(&inside).unwrap();
        for kept in [other.path(), &inside, &folder.join("../everloop-y/..")] {
            remove(kept);
        }
        assert!(inside.exists() && folder.exists());
        remove(&folder);
        assert!(!folder.exists());
    }
}
