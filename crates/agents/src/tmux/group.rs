//! Moves the tmux server out of the control group that starts it: a service manager that restarts
//! everloop kills everything in everloop's group, and the panes must outlive that. Where it is not
//! permitted the server stays where it is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::job;
use crate::process;

/// The group for tmux servers, beside the one that they leave.
const GROUP: &str = "everloop.panes";

/// Moves a process out of a group that ends as a whole.
pub(super) fn leave(pid: i32) {
    let Some((mount, group)) = mount_point().zip(group_of(pid)) else { return };
    let Some(outer) = outside(&group) else { return };
    let place = mount.join(outer.trim_start_matches('/')).join(GROUP);
    // Each step may be forbidden; then a restart of the service ends the panes, and `respawn`
    // restores them.
    fs::create_dir(&place).ok();
    fs::write(place.join("cgroup.procs"), pid.to_string()).ok();
}

/// The parent of the outermost service or job of everloop that contains this group.
fn outside(group: &str) -> Option<&str> {
    let mut start = 0;
    for part in group.split('/') {
        let ends_as_a_whole = part.starts_with("everloop-")
            || Path::new(part).extension().is_some_and(|e| e == "service") && !part.starts_with("user@");
        if ends_as_a_whole {
            return Some(group[..start].trim_end_matches('/'));
        }
        start += part.len() + 1;
    }
    None
}

fn group_of(pid: i32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = groups.lines().find_map(|l| l.strip_prefix("0::"))?;
    (!group.contains("..") && !group.ends_with(" (deleted)")).then(|| group.to_owned())
}

/// The mount point of cgroup v2 at its root; other layouts are not supported.
fn mount_point() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut words = left.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        (right.starts_with("cgroup2 ") && root == "/" && !point.contains('\\')).then(|| PathBuf::from(point))
    })
}

/// Whether this process runs inside a job. The job's shim kills all its descendants, also those in
/// a session of their own.
pub(super) fn inside_job() -> bool {
    let is_shim = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).nth(1) == Some(job::SHIM_ARG.as_bytes())
    };
    process::with_ancestors(std::process::id() as i32).iter().any(is_shim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_that_end_as_a_whole_are_left() {
        for (group, outer) in [
            ("/user.slice/user-1000.slice/session-3.scope", None),
            ("/system.slice/everloop.service", Some("/system.slice")),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/everloop.service/everloop-x",
                Some("/user.slice/user-1000.slice/user@1000.service/app.slice"),
            ),
            ("/everloop-k3f9", Some("")),
            ("/", None),
        ] {
            assert_eq!(outside(group), outer, "{group}");
        }
    }
}
