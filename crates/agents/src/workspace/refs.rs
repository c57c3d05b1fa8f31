//! Names of the refs that a loop owns, and a quick read of one. All are under
//! `refs/everloop/<loop>/`, none under `refs/heads/`.

use std::fs;
use std::path::Path;

use everloop_core::ids::{Fence, LoopId, TaskId};

/// What the names of all of them begin with.
pub const OURS: &str = "refs/everloop/";

/// What the names of a loop's refs begin with.
pub fn all(owner: &LoopId) -> String {
    format!("refs/everloop/{}/", part(owner.as_str()))
}

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
    fn names_are_safe_and_plain_ids_stay_readable() {
        let owner = LoopId::new("k3f9");
        assert_eq!(pin(&owner, &TaskId::new("k3f9-1"), Fence(2)), "refs/everloop/k3f9/k3f9-1/2");
        assert_eq!(pin(&owner, &TaskId::new("../a b.lock"), Fence(1)), "refs/everloop/k3f9/=2e=2e=2fa=20b=2elock/1");
        assert_eq!(pin(&owner, &TaskId::new("work"), Fence(1)), "refs/everloop/k3f9/task-work/1");
    }
}
