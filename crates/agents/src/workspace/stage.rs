//! Takes the files of a turn into everloop's index and makes their tree, without git. Whatever needs
//! more than content and mode (attributes, filters, submodules, a file in the place of a folder, a
//! name that git might refuse, very large files) is left to git.

use std::collections::BTreeMap;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use super::gather::Gathered;
use super::index::{self, CachedTree, Entry, Making};
use super::objects::{Objects, raw_id};
use super::{WorkspaceError, files};
use crate::git;

/// Content that is read into memory; more is streamed by git.
const MOST_BYTES: u64 = 8 << 20;

/// Files that give others a meaning.
const ATTRIBUTES: &[u8] = b".gitattributes";
const MODULES: &[u8] = b".gitmodules";

/// Where files are taken from, and into which index.
#[derive(Clone, Debug)]
pub(super) struct Staging {
    pub tree: PathBuf,
    pub index: PathBuf,
    /// Where the index of before is kept.
    pub before: PathBuf,
    pub objects: Objects,
    pub id_bytes: usize,
}

/// A file that was read: its path, its object, and its metadata.
struct Taken<'a> {
    path: &'a [u8],
    id: Vec<u8>,
    meta: Metadata,
}

impl Staging {
    /// The tree with what was gathered; `None` when only git can make it. Then the index is as it was.
    pub fn run(&self, gathered: &Gathered) -> Result<Option<String>, WorkspaceError> {
        let bytes = fs::read(&self.index).map_err(WorkspaceError::files("read", &self.index))?;
        let Some((entries, trees)) = index::whole(&bytes, self.id_bytes) else { return Ok(None) };
        if entries.iter().any(|entry| has_name(entry.path, ATTRIBUTES)) {
            return Ok(None);
        }
        let taken = self.take(gathered, &entries).map_err(WorkspaceError::files("read", &self.tree))?;
        let Some(taken) = taken else { return Ok(None) };
        let mut changes: BTreeMap<&[u8], Option<Entry<'_>>> = git::records(&gathered.gone).map(|p| (p, None)).collect();
        changes.extend(taken.iter().map(|file| (file.path, Some(Entry::new(file.path, &file.id, &file.meta)))));
        let merged = merge(&entries, &changes);
        if !changes.keys().all(|path| is_alone(path, &merged)) {
            return Ok(None);
        }
        let changed = changes.keys().flat_map(|path| folders(path)).collect();
        let making = Making { objects: &self.objects, changed: &changed };
        let trees = trees.make(&merged, &making).map_err(WorkspaceError::files("write", &self.tree))?;
        self.save(&merged, &trees)?;
        Ok(trees.id())
    }

    /// Reads what is there and writes its objects; `None` when something is not for this module.
    fn take<'a>(&self, gathered: &'a Gathered, entries: &[Entry<'_>]) -> io::Result<Option<Vec<Taken<'a>>>> {
        let (mut taken, mut left) = (Vec::new(), MOST_BYTES);
        for path in git::records(&gathered.there) {
            let known = entries.binary_search_by(|entry| entry.path.cmp(path)).is_ok();
            if !(known || is_usual(path)) || has_name(path, ATTRIBUTES) || has_name(path, MODULES) {
                return Ok(None);
            }
            let Some((content, meta)) = read(&self.tree.join(git::path_from(path)), left)? else { return Ok(None) };
            left = left.saturating_sub(content.len() as u64);
            let id = self.objects.put("blob", &content)?;
            let id = raw_id(&id).ok_or_else(|| io::Error::other("an object without a name"))?;
            taken.push(Taken { path, id, meta });
        }
        Ok(Some(taken))
    }

    /// Writes the index; the one of before stays beside it. A crash leaves one of the two.
    fn save(&self, entries: &[Entry<'_>], trees: &CachedTree<'_>) -> Result<(), WorkspaceError> {
        files::remove(&self.before).map_err(WorkspaceError::files("remove", &self.before))?;
        fs::hard_link(&self.index, &self.before).map_err(WorkspaceError::files("keep", &self.index))?;
        replace(&self.index, &index::write(entries, trees, self.id_bytes))
    }
}

/// Writes an index beside the old one and puts it in its place.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), WorkspaceError> {
    let new = path.with_extension("new");
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, path)).map_err(WorkspaceError::files("write", path))
}

/// The content of a file or a link, if it is not longer than `most`; `None` also for anything else.
fn read(path: &Path, most: u64) -> io::Result<Option<(Vec<u8>, Metadata)>> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_symlink() {
        return Ok(Some((fs::read_link(path)?.as_os_str().as_bytes().to_vec(), meta)));
    }
    if !meta.is_file() || meta.len() > most {
        return Ok(None);
    }
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    let meta = file.metadata()?;
    let mut content = Vec::with_capacity(meta.len() as usize);
    file.take(most + 1).read_to_end(&mut content)?;
    Ok((meta.is_file() && content.len() as u64 == meta.len()).then_some((content, meta)))
}

/// The entries with the changes, in order.
fn merge<'a>(entries: &[Entry<'a>], changes: &BTreeMap<&'a [u8], Option<Entry<'a>>>) -> Vec<Entry<'a>> {
    let mut merged = Vec::with_capacity(entries.len() + changes.len());
    let mut at = 0;
    for (path, change) in changes {
        let before = at + entries[at..].partition_point(|entry| entry.path < *path);
        merged.extend(&entries[at..before]);
        at = before + usize::from(entries.get(before).is_some_and(|entry| entry.path == *path));
        merged.extend(change);
    }
    merged.extend(&entries[at..]);
    merged
}

/// Whether a path is either a file or a folder in `entries`, and all above it are folders.
fn is_alone(path: &[u8], entries: &[Entry<'_>]) -> bool {
    let is_file = |path: &[u8]| entries.binary_search_by(|entry| entry.path.cmp(path)).is_ok();
    let inside = [path, b"/"].concat();
    let next = entries.partition_point(|entry| entry.path < &inside[..]);
    let is_folder = entries.get(next).is_some_and(|entry| entry.path.starts_with(&inside));
    !(is_file(path) && is_folder) && folders(path).all(|folder| folder.is_empty() || !is_file(folder))
}

/// All folders above a path; the root is empty.
fn folders(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b'/', path).map(|end| &path[..end]);
    ends.chain([&b""[..]])
}

fn has_name(path: &[u8], name: &[u8]) -> bool {
    path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with(b"/"))
}

/// A new path that every system takes for what it is; git looks closer at others.
fn is_usual(path: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=,@ ".contains(byte);
    let part = |part: &[u8]| {
        let lower = part.to_ascii_lowercase();
        !part.is_empty() && part != b"." && part != b".." && !lower.starts_with(b".git") && !lower.starts_with(b"git~")
    };
    path.iter().all(plain) && path.split(|byte| *byte == b'/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_names_are_left_to_git() {
        for path in [&b"a"[..], b"src/main.rs", b"a b/c-d_e+f=g,h@i.txt", b".config/x", b"x.git"] {
            assert!(is_usual(path), "{path:?}");
        }
        let odd: [&[u8]; 9] =
            [b".git/x", b"a/.GIT", b"git~1", b".gitmodules", b"a\\b", b"a//b", b"../a", b"\xc3\xa9", b"a:b"];
        for path in odd {
            assert!(!is_usual(path), "{path:?}");
        }
        assert!(has_name(b"a/.gitattributes", ATTRIBUTES) && has_name(b".gitattributes", ATTRIBUTES));
        assert!(!has_name(b"x.gitattributes", ATTRIBUTES));
    }

    #[test]
    fn a_file_in_the_place_of_a_folder_is_left_to_git() {
        let meta = fs::metadata("Cargo.toml").expect("tests run in the folder of the crate");
        let all = |paths: &[&'static str]| -> Vec<Entry<'static>> {
            paths.iter().map(|path| Entry::new(path.as_bytes(), &[0; 20], &meta)).collect()
        };
        let entries = all(&["a", "a-b", "a/c", "d/e"]);
        assert!(!is_alone(b"a", &entries) && !is_alone(b"a/c", &entries) && !is_alone(b"a-b/x", &all(&["a-b"])));
        assert!(is_alone(b"a-b", &entries) && is_alone(b"d/e", &entries) && is_alone(b"gone", &entries));
        assert_eq!(folders(b"a/b/c").collect::<Vec<_>>(), [&b"a"[..], b"a/b", b""]);
    }
}
