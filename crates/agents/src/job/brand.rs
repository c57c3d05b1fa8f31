//! A number that every process of a job inherits and cannot remove: its limit of file locks, which
//! Linux has not enforced since 2.4. Without privileges such a limit can be lowered further, never
//! lifted; a cleared environment and a session of its own change nothing about it.

use std::fs;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// Puts the number on this process and all that it starts.
pub(super) fn put(number: u64) {
    // Best effort: inside of another job the number of that one stays.
    setrlimit(Resource::RLIMIT_LOCKS, number, number).ok();
}

/// The number of this process.
pub(super) fn own() -> Option<u64> {
    getrlimit(Resource::RLIMIT_LOCKS).ok().map(|(_, hard)| hard).filter(|hard| *hard != RLIM_INFINITY)
}

/// The number of another process.
pub(super) fn of(pid: i32) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

fn parse(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_the_hard_limit() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max open files            1024                 4096                 files     \n\
            Max file locks            12                   34                   locks     \n";
        assert_eq!(parse(limits), Some(34));
        assert_eq!(parse("Max file locks            unlimited            unlimited            locks \n"), None);
        assert_eq!(of(std::process::id() as i32), own());
    }
}
