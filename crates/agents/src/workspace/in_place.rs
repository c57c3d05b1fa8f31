//! Turns that work in the person's folder itself, because there is no git or because it is
//! configured so. There is no rollback here, so the protected files, which must not change, are
//! copied before a turn and restored after it; the turn's versions of them, and new files that
//! would decide a check, are kept in a folder beside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use everloop_core::hex::hex;
use everloop_core::ids::TurnId;
use everloop_core::judge_files::{Concern, Versions};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::checkouts::{record_setup, setup_recorded};
use super::{Collected, WorkspaceError, files};
use crate::protect::{self, Globs};

/// Of a folder with more entries only a part is scanned; a turn that changes only the rest counts
/// as without change.
const MOST_ENTRIES: usize = 50_000;

/// Protected files are tests and scripts; more than this needs git.
const MOST_PROTECTED_MB: u64 = 256;

const NOTE_VERSION: u32 = 1;

/// The person's folder.
#[derive(Clone, Debug)]
pub(super) struct InPlace {
    dir: PathBuf,
    root: PathBuf,
    globs: Globs,
}

/// The folder before a turn, and the result of the turn.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u32,
    turn: TurnId,
    fingerprint: String,
    files: BTreeMap<String, Kept>,
    /// Files that were there and would count if they were new.
    #[serde(default)]
    there: BTreeSet<String>,
    collected: Option<Collected>,
}

/// A protected file as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
enum Kept {
    File { hash: String, mode: u32, modified_ns: u64, bytes: u64 },
    Link { to: PathBuf },
}

impl InPlace {
    /// Reads nothing yet.
    pub fn new(dir: &Path, root: &Path, globs: Globs) -> Result<Self, WorkspaceError> {
        let dir = dir.canonicalize().map_err(WorkspaceError::files("find the folder", dir))?;
        let root = root.canonicalize().map_err(WorkspaceError::files("find", root))?;
        Ok(Self { dir, root, globs })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the setup command has not yet run here.
    pub fn needs_setup(&self, command: &str) -> bool {
        !setup_recorded(&self.root.join("folder.setup"), command)
    }

    /// Records that the setup command ran.
    pub fn set_up(&self, command: &str) -> Result<(), WorkspaceError> {
        record_setup(&self.root.join("folder.setup"), command)
    }

    /// Copies the protected files and records the state of the folder. A second call for the same
    /// turn does nothing: the turn may have begun.
    pub fn prepare(&self, turn: &TurnId) -> Result<(), WorkspaceError> {
        let before = self.note()?;
        if before.as_ref().is_some_and(|note| note.turn == *turn) {
            return Ok(());
        }
        let known = before.map(|note| note.files).unwrap_or_default();
        files::make_private(&self.copies()).map_err(WorkspaceError::files("make", &self.copies()))?;
        let (mut kept, mut bytes) = (BTreeMap::new(), 0);
        let entries = walk(&self.dir, &self.root)?;
        for (path, meta) in &entries {
            let Some(name) = path.to_str().filter(|_| !meta.is_dir() && self.globs.keeps(path)) else { continue };
            bytes += meta.len();
            if bytes > MOST_PROTECTED_MB << 20 {
                return Err(WorkspaceError::TooMuchToProtect { dir: self.dir.clone(), limit_mb: MOST_PROTECTED_MB });
            }
            let file = self.keep(path, meta, known.get(name)).map_err(WorkspaceError::files("copy", path))?;
            kept.extend(file.map(|file| (name.to_owned(), file)));
        }
        let fingerprint = hash_entries(&entries);
        let turn = turn.clone();
        let there = self.countable(&entries);
        let note = Note { version: NOTE_VERSION, turn, fingerprint, files: kept, there, collected: None };
        let path = self.note_path();
        // Losing it in a power cut would let a turn keep a changed check script. Where nothing is
        // protected, the worst is that this one turn counts as failed, as with all other files of a
        // job; its changes stay in the folder.
        let written = if note.files.is_empty() {
            files::write_note(&path, &note)
        } else {
            files::write_note_durably(&path, &note)
        };
        written.map_err(WorkspaceError::files("write", &path))
    }

    /// Copies one file, named by its content, unless `known` shows that the copy exists.
    fn keep(&self, path: &Path, meta: &Metadata, known: Option<&Kept>) -> std::io::Result<Option<Kept>> {
        let full = self.dir.join(path);
        if meta.is_symlink() {
            return Ok(Some(Kept::Link { to: fs::read_link(full)? }));
        }
        if !meta.is_file() {
            return Ok(None);
        }
        let now = (meta.mode(), modified_ns(meta), meta.len());
        if let Some(Kept::File { hash, mode, modified_ns, bytes }) = known
            && (*mode, *modified_ns, *bytes) == now
            && self.copies().join(hash).exists()
        {
            return Ok(known.cloned());
        }
        let content = fs::read(&full)?;
        let hash = hex(&Sha256::digest(&content));
        let copy = self.copies().join(&hash);
        if !copy.exists() {
            files::write_whole(&copy, &content)?;
        }
        Ok(Some(Kept::File { hash, mode: now.0, modified_ns: now.1, bytes: now.2 }))
    }

    /// Determines whether the turn changed anything, and restores protected files. The result is
    /// written before anything is restored, so a crash in between changes neither.
    pub fn collect(&self, turn: &TurnId) -> Result<Collected, WorkspaceError> {
        let note = self.note()?.filter(|note| note.turn == *turn);
        let mut note = note.ok_or_else(|| WorkspaceError::Unprepared { turn: turn.clone() })?;
        let broken: Vec<String> =
            note.files.iter().filter(|(path, kept)| !self.is_still(path, kept)).map(|(path, _)| path.clone()).collect();
        let added = self.added(&note)?;
        let collected = match note.collected.take() {
            Some(collected) => collected,
            None => self.seen(&note, &broken, &added)?,
        };
        note.collected = Some(collected.clone());
        let path = self.note_path();
        let written = if broken.is_empty() && added.is_empty() {
            files::write_note(&path, &note)
        } else {
            files::write_note_durably(&path, &note)
        };
        written.map_err(WorkspaceError::files("write", &path))?;
        for path in &broken {
            self.put_back(path, &note.files[path], &self.backup_folder(turn))
                .map_err(WorkspaceError::files("put back", path.as_ref()))?;
        }
        for path in added.iter().map(Path::new) {
            let aside = self.backup_folder(turn).join(path.parent().unwrap_or(Path::new("")));
            files::set_aside(&self.dir.join(path), &aside).map_err(WorkspaceError::files("move", path))?;
        }
        Ok(collected)
    }

    /// Files of which a new one would count, by name.
    fn countable(&self, entries: &[(PathBuf, Metadata)]) -> BTreeSet<String> {
        let counts =
            |(path, meta): &&(PathBuf, Metadata)| !meta.is_dir() && self.globs.concern(path, false) != Concern::Free;
        entries.iter().filter(counts).filter_map(|(path, _)| path.to_str().map(str::to_owned)).collect()
    }

    /// New files that would decide a check.
    fn added(&self, note: &Note) -> Result<Vec<String>, WorkspaceError> {
        let now = self.countable(&walk(&self.dir, &self.root)?);
        let decides = |name: &&String| {
            let path = Path::new(name);
            let text = small_text(&self.dir.join(path));
            let by_text =
                |text: &String| self.globs.decides(path, Versions { existed: false, before: None, after: Some(text) });
            self.globs.concern(path, false) == Concern::Whole || text.as_ref().is_none_or(by_text)
        };
        let new = now.difference(&note.there).filter(|name| !note.files.contains_key(*name));
        Ok(new.filter(decides).cloned().collect())
    }

    /// The result of a turn after which the protected files `broken` differ and those in `added`
    /// would decide.
    fn seen(&self, note: &Note, broken: &[String], added: &[String]) -> Result<Collected, WorkspaceError> {
        let backup_folder = self.backup_folder(&note.turn);
        let restored =
            |path: &String| format!("`{path}` was put back; the turn's version is in `{}`", backup_folder.display());
        let moved = |path: &String| format!("`{path}` decides a check; it was moved to `{}`", backup_folder.display());
        Ok(Collected {
            changed: !broken.is_empty() || self.fingerprint()? != note.fingerprint,
            violations: broken.iter().chain(added).cloned().collect(),
            notes: broken.iter().map(restored).chain(added.iter().map(moved)).collect(),
            ..Collected::default()
        })
    }

    fn is_still(&self, path: &str, kept: &Kept) -> bool {
        let full = self.dir.join(path);
        let Ok(meta) = fs::symlink_metadata(&full) else { return false };
        match kept {
            Kept::Link { to } => fs::read_link(&full).is_ok_and(|now| now == *to),
            // The content is read: size and time can be forged.
            Kept::File { hash, mode, bytes, .. } => {
                let real = meta.is_file() && meta.mode() == *mode && self.folders_are_real(path);
                let same = || meta.len() == *bytes && protect::hash_file(&full).is_ok_and(|now| hex(&now) == *hash);
                real && (same() || self.decides_alike(Path::new(path), hash))
            }
        }
    }

    /// Whether a file that decides in part differs elsewhere only.
    fn decides_alike(&self, path: &Path, hash: &str) -> bool {
        let read = |file: PathBuf| fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if self.globs.concern(path, true) != Concern::InPart {
            return false;
        }
        let (Ok(before), Ok(after)) = (read(self.copies().join(hash)), read(self.dir.join(path))) else { return false };
        !self.globs.decides(path, Versions { existed: true, before: Some(&before), after: Some(&after) })
    }

    /// Whether no folder on the way to `path` was replaced by a link.
    fn folders_are_real(&self, path: &str) -> bool {
        let above = Path::new(path).ancestors().skip(1).filter(|p| !p.as_os_str().is_empty());
        above.into_iter().all(|p| fs::symlink_metadata(self.dir.join(p)).is_ok_and(|m| m.is_dir()))
    }

    fn put_back(&self, path: &str, kept: &Kept, backup_folder: &Path) -> std::io::Result<()> {
        let mut full = self.dir.clone();
        let parts: Vec<Component<'_>> = Path::new(path).components().collect();
        for (i, part) in parts.iter().enumerate() {
            full.push(part);
            let last = i + 1 == parts.len();
            if !last && fs::symlink_metadata(&full).is_ok_and(|m| m.is_dir()) {
                continue;
            }
            let relative = full.strip_prefix(&self.dir).unwrap_or(&full).parent().unwrap_or(Path::new(""));
            files::set_aside(&full, &backup_folder.join(relative))?;
            if !last {
                fs::create_dir(&full)?;
            }
        }
        match kept {
            Kept::Link { to } => symlink(to, &full),
            Kept::File { hash, mode, modified_ns, .. } => {
                fs::copy(self.copies().join(hash), &full)?;
                fs::set_permissions(&full, Permissions::from_mode(*mode))?;
                let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(*modified_ns);
                fs::File::open(&full)?.set_modified(modified)
            }
        }
    }

    fn fingerprint(&self) -> Result<String, WorkspaceError> {
        Ok(hash_entries(&walk(&self.dir, &self.root)?))
    }

    fn note(&self) -> Result<Option<Note>, WorkspaceError> {
        let path = self.note_path();
        files::read_note(&path).map_err(WorkspaceError::files("read", &path))
    }

    fn note_path(&self) -> PathBuf {
        self.root.join("folder.json")
    }

    fn copies(&self) -> PathBuf {
        self.root.join("protected")
    }

    fn backup_folder(&self, turn: &TurnId) -> PathBuf {
        self.root.join("shelf").join(turn.as_str().replace('/', "_"))
    }
}

/// A hash over names, sizes, times and modes in `dir`, to detect any change. Skips `.git`.
pub fn fingerprint(dir: &Path) -> Result<String, WorkspaceError> {
    Ok(hash_entries(&walk(dir, Path::new("\0"))?))
}

fn hash_entries(entries: &[(PathBuf, Metadata)]) -> String {
    let mut hash = Sha256::new();
    for (path, meta) in entries {
        hash.update(path.as_os_str().as_bytes());
        // The time of a folder changes with temporary files in it; its entries are hashed
        // themselves.
        let (bytes, modified) = if meta.is_dir() { (0, 0) } else { (meta.len(), modified_ns(meta)) };
        hash.update([0]);
        hash.update(bytes.to_le_bytes());
        hash.update(modified.to_le_bytes());
        hash.update(meta.mode().to_le_bytes());
    }
    hex(&hash.finalize())
}

fn modified_ns(meta: &Metadata) -> u64 {
    u64::try_from(meta.mtime()).unwrap_or(0).wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec() as u64)
}

/// Everything in `dir` in a fixed order, without git's folder and without `skip`. Links are not
/// followed, and entries that vanish meanwhile are skipped.
fn walk(dir: &Path, skip: &Path) -> Result<Vec<(PathBuf, Metadata)>, WorkspaceError> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let full = dir.join(&folder);
        let entries = match fs::read_dir(&full) {
            Ok(entries) => entries,
            Err(error) if folder.as_os_str().is_empty() => return Err(WorkspaceError::files("read", &full)(error)),
            Err(_) => continue,
        };
        let mut names: Vec<_> = entries.flatten().map(|e| e.file_name()).filter(|name| name != ".git").collect();
        names.sort();
        for name in names {
            let path = folder.join(name);
            let full = dir.join(&path);
            let Ok(meta) = fs::symlink_metadata(&full) else { continue };
            if full == skip {
                continue;
            }
            if meta.is_dir() {
                folders.push(path.clone());
            }
            found.push((path, meta));
            if found.len() >= MOST_ENTRIES {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// The text of a plain file of a usual size; `None` for anything else, which no person would write
/// there: a link, a pipe, or a file that is too large to look through.
fn small_text(path: &Path) -> Option<String> {
    const LARGEST_MB: u64 = 8;
    let meta = fs::symlink_metadata(path).ok()?;
    let usual = meta.is_file() && meta.len() <= LARGEST_MB << 20;
    usual.then(|| fs::read(path).ok())?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
