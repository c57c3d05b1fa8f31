//! Reads git's index: which files it describes, and how they looked when git wrote them. The index
//! of everloop itself, and the agent's one as data of no trust.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use super::fingerprint::tick_after;

/// Entries of an agent's index that are looked at.
const MOST_ENTRIES: usize = 1_000_000;

/// Size of an entry before the object's name.
const STAT_BYTES: usize = 40;

/// A file that the index describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub path: &'a [u8],
    pub mode: u32,
    /// Change and modification: seconds and nanoseconds.
    times: [u32; 4],
    inode: u32,
    owner: [u32; 2],
    bytes: u32,
    flags: u16,
}

/// Not looked at, part of a conflict, or with more flags behind the path.
const UNUSUAL_FLAGS: u16 = 0xf000;

impl Entry<'_> {
    /// A submodule: a folder that is not looked into.
    pub fn is_link_to_commit(&self) -> bool {
        self.mode & 0o170_000 == 0o160_000
    }

    /// A file or a link without flags that change the meaning of its entry.
    pub fn is_plain(&self) -> bool {
        self.flags & UNUSUAL_FLAGS == 0 && !self.is_link_to_commit()
    }

    /// Whether git wrote the file before `then`, and not within the same tick of the clock.
    pub fn changed_before(&self, then: SystemTime) -> bool {
        tick_after(self.times[0].into(), self.times[1].into()) < then
    }

    /// Whether `meta` is that of the file which git wrote: the change time cannot be set back. Only
    /// the lower bits of large numbers are in the index.
    pub fn matches(&self, meta: &Metadata) -> bool {
        let low = |number: i64| (number & 0xffff_ffff) as u32;
        let now = [meta.ctime(), meta.ctime_nsec(), meta.mtime(), meta.mtime_nsec()].map(low);
        let kind = match self.mode & 0o170_000 {
            0o120_000 => meta.is_symlink(),
            _ => meta.is_file() && (meta.mode() & 0o100 != 0) == (self.mode & 0o100 != 0),
        };
        kind && self.times == now
            && self.inode == meta.ino() as u32
            && self.owner == [meta.uid(), meta.gid()]
            && self.bytes == meta.len() as u32
    }
}

/// The entries of an index in format 2 or 3; `None` when it is another one, or damaged.
pub(super) fn entries(bytes: &[u8], id_bytes: usize) -> Option<Vec<Entry<'_>>> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (version, count) = (number(4)?, number(8)? as usize);
    if !bytes.starts_with(b"DIRC") || ![2, 3].contains(&version) || count > MOST_ENTRIES {
        return None;
    }
    let mut found = Vec::with_capacity(count.min(bytes.len() / (STAT_BYTES + id_bytes)));
    let mut at = 12;
    for _ in 0..count {
        let field = |index: usize| number(at + 4 * index);
        let flags_at = at + STAT_BYTES + id_bytes;
        let flags = u16::from_be_bytes(bytes.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let extended = if version == 3 && flags & 0x4000 != 0 { 2 } else { 0 };
        let path_at = flags_at + 2 + extended;
        let path_end = path_at + memchr::memchr(0, bytes.get(path_at..)?)?;
        found.push(Entry {
            path: &bytes[path_at..path_end],
            mode: field(6)?,
            times: [field(0)?, field(1)?, field(2)?, field(3)?],
            inode: field(5)?,
            owner: [field(7)?, field(8)?],
            bytes: field(9)?,
            flags,
        });
        // One to eight zeros up to a multiple of eight.
        at += (path_end - at) / 8 * 8 + 8;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_no_index() {
        for bytes in [
            &b""[..],
            b"DIRC",
            b"DIRC\0\0\0\x02\0\0\0\x01",
            b"DIRC\0\0\0\x04\0\0\0\0",
            b"DIRC\0\0\0\x02\xff\xff\xff\xff",
        ] {
            assert_eq!(entries(bytes, 20), None, "{bytes:?}");
        }
        assert_eq!(entries(b"DIRC\0\0\0\x02\0\0\0\0", 20), Some(Vec::new()));
    }
}
