//! The trees that an index knows: for each folder the name of its tree object, as long as nothing
//! in it has changed. With it a new tree is made from the folders of what changed alone.

use std::collections::HashSet;
use std::io;

use super::super::objects::{Objects, raw_id};
use super::Entry;

/// Folders in folders; git itself refuses to go much deeper.
const MOST_DEPTH: usize = 2048;

/// A folder of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct CachedTree<'a> {
    name: &'a [u8],
    /// How many entries it covers, and its object; `None` when it has to be made again.
    made: Option<(usize, Vec<u8>)>,
    below: Vec<CachedTree<'a>>,
}

/// Where a tree is made, and which folders have changed: by their paths, without a slash at the end.
pub(in super::super) struct Making<'a> {
    pub objects: &'a Objects,
    pub changed: &'a HashSet<&'a [u8]>,
}

impl<'a> CachedTree<'a> {
    /// The object of the folder, in hexadecimal digits.
    pub fn id(&self) -> Option<String> {
        self.made.as_ref().map(|(_, id)| everloop_core::hex::hex(id))
    }

    pub(super) fn read(bytes: &'a [u8], id_bytes: usize) -> Option<Self> {
        let (tree, rest) = Self::read_at(bytes, (id_bytes, 0))?;
        rest.is_empty().then_some(tree)
    }

    fn read_at(bytes: &'a [u8], (id_bytes, depth): (usize, usize)) -> Option<(Self, &'a [u8])> {
        let (name, rest) = cut(bytes, 0)?;
        let (count, rest) = cut(rest, b' ')?;
        let (folders, mut rest) = cut(rest, b'\n')?;
        let (count, folders) = (digits(count)?, usize::try_from(digits(folders)?).ok()?);
        if depth > MOST_DEPTH || folders > rest.len() {
            return None;
        }
        let mut made = None;
        if let Ok(count) = usize::try_from(count) {
            made = Some((count, rest.get(..id_bytes)?.to_vec()));
            rest = &rest[id_bytes..];
        }
        let mut below = Vec::with_capacity(folders);
        for _ in 0..folders {
            let (tree, after) = Self::read_at(rest, (id_bytes, depth + 1))?;
            below.push(tree);
            rest = after;
        }
        Some((Self { name, made, below }, rest))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.name);
        out.push(0);
        let count = self.made.as_ref().map_or_else(|| "-1".to_owned(), |(count, _)| count.to_string());
        out.extend(format!("{count} {}\n", self.below.len()).bytes());
        if let Some((_, id)) = &self.made {
            out.extend(id);
        }
        for tree in &self.below {
            tree.write(out);
        }
    }

    /// The trees of `entries`, all of them made. What is known of a folder without changes is used as
    /// it is.
    pub fn make(&self, entries: &[Entry<'a>], making: &Making<'_>) -> io::Result<Self> {
        self.make_folder(&[], entries, making)
    }

    /// The tree of the folder `path`, which ends with a slash unless it is the root. `entries` are
    /// exactly those below it.
    fn make_folder(&self, path: &'a [u8], entries: &[Entry<'a>], making: &Making<'_>) -> io::Result<Self> {
        let (mut content, mut below, mut at) = (Vec::new(), Vec::new(), 0);
        while let Some(entry) = entries.get(at) {
            let rest = &entry.path[path.len()..];
            let Some(slash) = memchr::memchr(b'/', rest) else {
                put(&mut content, &format!("{:o}", entry.mode), (rest, entry.id));
                at += 1;
                continue;
            };
            let folder = &entry.path[..=path.len() + slash];
            let known = self.below.iter().find(|tree| tree.name == &rest[..slash]);
            let unchanged = known.and_then(|known| known.unchanged(folder, &entries[at..], making));
            let tree = if let Some(tree) = unchanged {
                tree
            } else {
                let end = entries[at..].partition_point(|entry| entry.path.starts_with(folder));
                let made = known.unwrap_or(&Self::default()).make_folder(folder, &entries[at..at + end], making)?;
                Self { name: &rest[..slash], ..made }
            };
            let Some((count, id)) = &tree.made else { return Err(io::Error::other("a tree was not made")) };
            put(&mut content, "40000", (&rest[..slash], id));
            at += count;
            below.push(tree);
        }
        let id = making.objects.put("tree", &content)?;
        let id = raw_id(&id).ok_or_else(|| io::Error::other("an object without a name"))?;
        Ok(Self { name: &[], made: Some((entries.len(), id)), below })
    }

    /// This tree, if it still is that of `folder`, whose entries `entries` begin with.
    fn unchanged(&self, folder: &[u8], entries: &[Entry<'_>], making: &Making<'_>) -> Option<Self> {
        let (count, _) = self.made.as_ref().filter(|_| !making.changed.contains(&folder[..folder.len() - 1]))?;
        let last = entries.get(count.checked_sub(1)?)?;
        let ends = entries.get(*count).is_none_or(|next| !next.path.starts_with(folder));
        (last.path.starts_with(folder) && ends).then(|| self.clone())
    }
}

fn put(content: &mut Vec<u8>, mode: &str, (name, id): (&[u8], &[u8])) {
    content.extend(mode.bytes());
    content.push(b' ');
    content.extend(name);
    content.push(0);
    content.extend(id);
}

/// What is before the first byte `at`, and what is behind it.
fn cut(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(at, bytes)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn digits(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
