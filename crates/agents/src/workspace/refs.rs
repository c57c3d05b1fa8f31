//! Names of the refs that a loop owns, and quick reads and writes of one. All are under
//! `refs/everloop/<loop>/`, none under `refs/heads/`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use everloop_core::ids::{Fence, LoopId, TaskId};

/// What the names of all of them begin with.
pub const OURS: &str = "refs/everloop/";

/// The line that the next turn starts from.
pub fn work(owner: &LoopId) -> String {
    format!("refs/everloop/{}/work", part(owner.as_str()))
}

/// The target of a loop that found no branch checked out.
pub fn result(owner: &LoopId) -> String {
    format!("refs/everloop/{}/result", part(owner.as_str()))
}

/// Where the loop began; determines which files existed then.
pub fn start(owner: &LoopId) -> String {
    format!("refs/everloop/{}/start", part(owner.as_str()))
}

/// The work of one attempt, for ever.
pub fn pin(owner: &LoopId, task: &TaskId, fence: Fence) -> String {
    format!("refs/everloop/{}/{}/{fence}", part(owner.as_str()), task_part(task))
}

/// The same work merged with a target that had moved.
pub fn merged(owner: &LoopId, task: &TaskId, commit: &str) -> String {
    format!("refs/everloop/{}/{}/merged-{}", part(owner.as_str()), task_part(task), part(commit))
}

/// Content of the file of the ref `name`, if it has one: it takes precedence over all else, so an
/// unmoved ref is detected without a git call. Refs that are packed, or kept in tables, have none.
pub fn loose(common: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(common.join(name)).ok()?.trim_end().to_owned())
}

/// Writes the file of the ref `name`, one of [`OURS`], as git does: under its lock, by a rename.
/// `false` when git has to do it: refs that are kept in tables, a folder that is not there or not
/// ours, a lock of another process.
pub fn write(common: &Path, name: &str, commit: &str) -> bool {
    let (path, lock) = (common.join(name), common.join(format!("{name}.lock")));
    let Some(folder) = path.parent() else { return false };
    if !name.starts_with(OURS) || common.join("reftable").exists() {
        return false;
    }
    // Only the folder of a task: those above were made by git, with the modes of the repository.
    if !folder.is_dir() && fs::create_dir(folder).is_err() {
        return false;
    }
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&lock) else { return false };
    let written = file.write_all(format!("{commit}\n").as_bytes());
    // As git does: after a power cut an empty file would be a broken ref.
    let written = written.and_then(|()| file.sync_all()).and_then(|()| fs::rename(&lock, &path));
    if written.is_err() {
        // Best effort: git reports a lock that stays.
        fs::remove_file(&lock).ok();
    }
    written.is_ok()
}

/// The same for a ref that must not be there yet.
pub fn create(common: &Path, name: &str, commit: &str) -> bool {
    let packed = fs::read(common.join("packed-refs")).unwrap_or_default();
    let is_packed = memchr::memmem::find(&packed, format!(" {name}\n").as_bytes()).is_some();
    !is_packed && fs::symlink_metadata(common.join(name)).is_err() && write(common, name, commit)
}

/// A task may be called `work`, but its ref must not collide with the loop's own.
fn task_part(task: &TaskId) -> String {
    match task.as_str() {
        own @ ("work" | "result" | "start") => format!("task-{own}"),
        other => part(other),
    }
}

/// Text as one component of a ref name. Ids that everloop generates stay as they are; external
/// tasks may be called anything.
fn part(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(byte)),
            _ => write!(out, "={byte:02x}").expect("a string takes everything"),
        }
    }
    if out.is_empty() { "=".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ref_is_written_only_where_git_would_write_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let common = dir.path();
        let (owner, task) = (LoopId::new("k3f9"), TaskId::new("k3f9-1"));
        let (pin, id) = (pin(&owner, &task, Fence(2)), "d5c14f03ea70a07b04740ca74bb323c47ef78b8a");
        assert!(!create(common, &pin, id), "git makes the loop's folder");
        fs::create_dir_all(common.join("refs/everloop/k3f9")).unwrap();
        assert!(create(common, &pin, id));
        assert_eq!(loose(common, &pin).as_deref(), Some(id));
        assert!(!create(common, &pin, id), "it is there");
        assert!(!write(common, "refs/heads/main", id), "a person's ref");
        fs::write(common.join("packed-refs"), format!("# pack-refs\n{id} {}\n", work(&owner))).unwrap();
        assert!(!create(common, &work(&owner), id), "it is packed");
        assert!(write(common, &work(&owner), id));
        fs::write(common.join(format!("{pin}.lock")), "").unwrap();
        assert!(!write(common, &pin, id), "another process holds its lock");
        assert!(common.join(format!("{pin}.lock")).exists());
        fs::create_dir(common.join("reftable")).unwrap();
        assert!(!write(common, &work(&owner), id), "refs are in tables");
    }

    #[test]
    fn names_are_safe_and_plain_ids_stay_readable() {
        let owner = LoopId::new("k3f9");
        assert_eq!(pin(&owner, &TaskId::new("k3f9-1"), Fence(2)), "refs/everloop/k3f9/k3f9-1/2");
        assert_eq!(pin(&owner, &TaskId::new("../a b.lock"), Fence(1)), "refs/everloop/k3f9/=2e=2e=2fa=20b=2elock/1");
        assert_eq!(pin(&owner, &TaskId::new("work"), Fence(1)), "refs/everloop/k3f9/task-work/1");
    }
}
