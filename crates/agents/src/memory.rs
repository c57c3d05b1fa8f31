//! Gives memory back before a long sleep.
//!
//! The kernel maps a program's code in large pieces, so after a while nearly all of it counts as the memory of whoever
//! sleeps, used or not. Unmapped code costs a sleeper nothing; it comes back from the page cache, page by page, when it runs.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::ptr::NonNull;

use nix::sys::mman::{MmapAdvise, madvise};

/// Lets go of all code that is mapped from files. What runs next is mapped again at once.
pub fn give_back_code() {
    // Elsewhere than on Linux, or without /proc, nothing is given back and nothing is wrong.
    for range in code(&fs::read_to_string("/proc/self/maps").unwrap_or_default()) {
        let Some(start) = NonNull::new(range.start as *mut c_void) else { continue };
        #[expect(unsafe_code, reason = "advice about memory has no safe form")]
        // SAFETY: these pages are mapped from a file, and since they are executable nobody may write to them: each is equal
        // to its page in the file, from which the kernel takes it again when it is touched.
        let advised = unsafe { madvise(start, range.len(), MmapAdvise::MADV_DONTNEED) };
        // Locked pages stay; that is what whoever locked them wants.
        advised.ok();
    }
}

/// The pieces of a memory map that are code and come unchanged from a file.
fn code(maps: &str) -> Vec<Range<usize>> {
    let piece = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let kind = words.next()?;
        let path = words.nth(3)?;
        let plain = kind == "r-xp" && path.starts_with('/');
        plain.then_some(usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?)
    };
    maps.lines().filter_map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_from_files_is_let_go() {
        let maps = "\
55d0c0a00000-55d0c0b00000 r--p 00000000 fe:00 123  /usr/bin/everloop
55d0c0b00000-55d0c1300000 r-xp 00100000 fe:00 123  /usr/bin/everloop
55d0c1300000-55d0c1400000 rw-p 00900000 fe:00 123  /usr/bin/everloop
7f0000000000-7f0000001000 rwxp 00000000 fe:00 124  /usr/lib/odd.so
7f0000002000-7f0000003000 r-xp 00000000 00:00 0
7ffcaba00000-7ffcaba02000 r-xp 00000000 00:00 0    [vdso]
";
        assert_eq!(code(maps), vec![0x55d0_c0b0_0000..0x55d0_c130_0000]);
        assert!(code("").is_empty());
    }

    #[test]
    fn what_was_let_go_runs_on() {
        let resident = || {
            let statm = fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = resident();
        give_back_code();
        let after = resident();
        assert!(after < before, "{before} pages, then {after}");
    }
}
