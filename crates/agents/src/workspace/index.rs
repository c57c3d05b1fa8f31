//! Reads and writes git's index: which files it describes, how they looked when they were written,
//! and which trees they make up. The index of everloop itself, and the agent's one as data of no
//! trust, which is only read.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use super::fingerprint::tick_after;
pub(super) use tree_cache::{CachedTree, Making};

mod tree_cache;

/// Entries of an agent's index that are looked at.
const MOST_ENTRIES: usize = 1_000_000;

/// Size of an entry before the object's name.
const STAT_BYTES: usize = 40;

/// Bytes before the first entry.
const HEAD_BYTES: usize = 12;

/// The extension with the trees.
const TREES: &[u8; 4] = b"TREE";

/// A file that the index describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub path: &'a [u8],
    pub mode: u32,
    /// The name of its object.
    pub id: &'a [u8],
    /// Change and modification: seconds and nanoseconds.
    times: [u32; 4],
    device: u32,
    inode: u32,
    owner: [u32; 2],
    bytes: u32,
    flags: u16,
}

/// Not looked at, part of a conflict, or with more flags behind the path.
const UNUSUAL_FLAGS: u16 = 0xf000;

/// The flags hold the length of a path up to this.
const LONGEST_PATH: usize = 0x0fff;

/// The lower bits of a number: the index has no room for more.
fn low(number: i64) -> u32 {
    (number & 0xffff_ffff) as u32
}

fn times_of(meta: &Metadata) -> [u32; 4] {
    [meta.ctime(), meta.ctime_nsec(), meta.mtime(), meta.mtime_nsec()].map(low)
}

impl<'a> Entry<'a> {
    /// The file or link with this metadata, whose content is the object `id`.
    pub fn new(path: &'a [u8], id: &'a [u8], meta: &Metadata) -> Self {
        let mode = match (meta.is_symlink(), meta.mode() & 0o100 != 0) {
            (true, _) => 0o120_000,
            (false, true) => 0o100_755,
            (false, false) => 0o100_644,
        };
        Self {
            path,
            mode,
            id,
            times: times_of(meta),
            device: meta.dev() as u32,
            inode: meta.ino() as u32,
            owner: [meta.uid(), meta.gid()],
            bytes: meta.len() as u32,
            flags: path.len().min(LONGEST_PATH) as u16,
        }
    }

    /// The same content.
    pub fn is_same(&self, other: &Entry<'_>) -> bool {
        self.mode == other.mode && self.id == other.id
    }

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
        let kind = match self.mode & 0o170_000 {
            0o120_000 => meta.is_symlink(),
            _ => meta.is_file() && (meta.mode() & 0o100 != 0) == (self.mode & 0o100 != 0),
        };
        kind && self.times == times_of(meta)
            && self.inode == meta.ino() as u32
            && self.owner == [meta.uid(), meta.gid()]
            && self.bytes == meta.len() as u32
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let [owner, group] = self.owner;
        let numbers = [self.device, self.inode, self.mode, owner, group, self.bytes];
        for number in self.times.into_iter().chain(numbers) {
            out.extend(number.to_be_bytes());
        }
        out.extend(self.id);
        out.extend(self.flags.to_be_bytes());
        out.extend(self.path);
        // One to eight zeros up to a multiple of eight.
        let length = out.len() - start;
        out.resize(start + length / 8 * 8 + 8, 0);
    }
}

/// The entries of an index in format 2 or 3; `None` when it is another one, or damaged.
pub(super) fn entries(bytes: &[u8], id_bytes: usize) -> Option<Vec<Entry<'_>>> {
    Some(read(bytes, id_bytes)?.0)
}

/// Entries and trees of an index of everloop; `None` when it is in another format, damaged, or holds
/// anything else that has a meaning.
pub(super) fn whole(bytes: &[u8], id_bytes: usize) -> Option<(Vec<Entry<'_>>, CachedTree<'_>)> {
    let (entries, mut at) = read(bytes, id_bytes)?;
    let (end, mut trees) = (bytes.len().checked_sub(id_bytes)?, CachedTree::default());
    while at < end {
        let (kind, size) = (bytes.get(at..at + 4)?, number(bytes, at + 4)? as usize);
        let content = bytes.get(at + 8..at + 8 + size)?;
        match kind {
            _ if kind == TREES => trees = CachedTree::read(content, id_bytes)?,
            // What begins with a capital letter can be left out.
            _ if kind[0].is_ascii_uppercase() => {}
            _ => return None,
        }
        at += 8 + size;
    }
    (entries.iter().all(Entry::is_plain)).then_some((entries, trees))
}

/// The tree that an index of everloop holds, if it says so.
pub(super) fn tree_of(path: &Path, id_bytes: usize) -> Option<String> {
    whole(&fs::read(path).ok()?, id_bytes)?.1.id()
}

/// An index with these entries, which are in order, and their trees. Its checksum is left out, as
/// everloop's git does.
pub(super) fn write(entries: &[Entry<'_>], trees: &CachedTree<'_>, id_bytes: usize) -> Vec<u8> {
    let room: usize = entries.iter().map(|entry| STAT_BYTES + id_bytes + entry.path.len() + 10).sum();
    let mut out = Vec::with_capacity(HEAD_BYTES + room + room / 8);
    out.extend(b"DIRC");
    for number in [2, entries.len() as u32] {
        out.extend(number.to_be_bytes());
    }
    for entry in entries {
        entry.write(&mut out);
    }
    let mut cached = Vec::new();
    trees.write(&mut cached);
    out.extend(TREES);
    out.extend((cached.len() as u32).to_be_bytes());
    out.extend(cached);
    out.resize(out.len() + id_bytes, 0);
    out
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The entries, and where they end.
fn read(bytes: &[u8], id_bytes: usize) -> Option<(Vec<Entry<'_>>, usize)> {
    let (version, count) = (number(bytes, 4)?, number(bytes, 8)? as usize);
    if !bytes.starts_with(b"DIRC") || ![2, 3].contains(&version) || count > MOST_ENTRIES {
        return None;
    }
    let mut found = Vec::with_capacity(count.min(bytes.len() / (STAT_BYTES + id_bytes)));
    let mut at = HEAD_BYTES;
    for _ in 0..count {
        let field = |index: usize| number(bytes, at + 4 * index);
        let flags_at = at + STAT_BYTES + id_bytes;
        let flags = u16::from_be_bytes(bytes.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let extended = if version == 3 && flags & 0x4000 != 0 { 2 } else { 0 };
        let path_at = flags_at + 2 + extended;
        let path_end = path_at + memchr::memchr(0, bytes.get(path_at..)?)?;
        found.push(Entry {
            path: &bytes[path_at..path_end],
            mode: field(6)?,
            id: &bytes[at + STAT_BYTES..flags_at],
            times: [field(0)?, field(1)?, field(2)?, field(3)?],
            device: field(4)?,
            inode: field(5)?,
            owner: [field(7)?, field(8)?],
            bytes: field(9)?,
            flags,
        });
        at += (path_end - at) / 8 * 8 + 8;
    }
    Some((found, at))
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
            assert_eq!(whole(bytes, 20), None, "{bytes:?}");
        }
        assert_eq!(entries(b"DIRC\0\0\0\x02\0\0\0\0", 20), Some(Vec::new()));
    }

    #[test]
    fn what_is_written_is_read_and_unknown_parts_are_refused() {
        let meta = std::fs::metadata("Cargo.toml").expect("tests run in the folder of the crate");
        let id = [7; 20];
        let paths = [&b"a"[..], b"a/long/path", &[b'x'; 5000]];
        let listed = paths.map(|path| Entry::new(path, &id, &meta));
        let bytes = write(&listed, &CachedTree::default(), 20);
        assert_eq!(whole(&bytes, 20), Some((listed.to_vec(), CachedTree::default())));
        assert!(listed[0].matches(&meta));
        let with = |part: &[u8]| [&bytes[..bytes.len() - 20], part, &[0; 20]].concat();
        assert!(whole(&with(b"REUC\0\0\0\x01x"), 20).is_some());
        assert_eq!(whole(&with(b"link\0\0\0\x01x"), 20), None);
        assert_eq!(whole(&with(b"REUC\0\0\0\xffx"), 20), None);
    }
}
