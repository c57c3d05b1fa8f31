//! Which everloop.toml is in force in a folder: the text that a person accepted, kept in the ledger
//! with its hash, never the file as it is now. A file that changed by itself is a [`Difference`].
//!
//! The records are documents of the ledger and not files of the project: a turn may write the
//! project, and the state folder is closed to it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use everloop_core::event::Event;
use everloop_core::hex::hex;
use everloop_core::op::{Op, Refusal};
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, Sqlite, Tickets};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Failure;
use crate::projects::{ProjectFile, Projects};
use crate::record::read_state;
use crate::text::clean;

/// The kind of the documents, one per folder.
const DOCS: &str = "trust";
/// Format of such a document.
const FORMAT: u32 = 1;
/// A larger file is not a configuration and is not read.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// The hash that stands for a file which cannot be read.
const UNREADABLE: &str = "unreadable";
/// Digits of a hash in texts for people.
const SHOWN_DIGITS: usize = 12;
/// Commands in a line are cut here.
const LISTED_CHARS: usize = 240;
/// Another process may write the same record at the same time; more conflicts are not chance.
const MAX_CONFLICT_RETRIES: u32 = 8;

/// What a person accepted for a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// SHA-256 of the text, in hexadecimal digits.
    pub hash: String,
    /// The whole file.
    pub text: String,
    pub by: String,
    /// The verb: `run`, `init`, `config apply` or `trust`.
    pub via: String,
    pub at: Time,
}

impl Accepted {
    /// Whether a file with this hash is what was accepted.
    fn covers(&self, hash: &str) -> bool {
        self.hash == hash || planted::is(Bug::TrustsWithoutHash)
    }
}

/// The document of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TrustRecord {
    format: u32,
    /// `None` after it was revoked, or when only a report was written.
    accepted: Option<Accepted>,
    /// Hash of the file that a ticket was opened for; empty for a file that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reported: Option<String>,
}

/// How the file of a folder compares with what is in force there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is what a person accepted.
    Trusted,
    /// It is another text than the accepted one.
    Changed,
    /// No text of this folder was accepted, or it was revoked.
    Untrusted,
    /// The accepted file is not there any more.
    Gone,
}

/// A file that is not what is in force in its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The folder of the file.
    pub root: PathBuf,
    pub standing: Standing,
    /// Of the file; `None` when it is gone.
    pub hash: Option<String>,
}

impl Difference {
    /// What is there, what is in force, and the command that changes that. Contains nothing of the
    /// file itself, since an agent may have written it.
    pub fn describe(&self) -> String {
        let root = self.root.display();
        let hash = self.hash.as_deref().map(short).unwrap_or_default();
        match self.standing {
            Standing::Trusted => format!("everloop.toml in {root} is in force (sha256 {hash})"),
            Standing::Changed => format!(
                "everloop.toml in {root} changed (sha256 {hash}) and is not in force; what was accepted stays in \
                 force. If you want the change: everloop -C {root} config apply"
            ),
            Standing::Untrusted => format!(
                "everloop.toml in {root} (sha256 {hash}) was accepted by no person and is not in force. If you want \
                 it: everloop -C {root} config apply"
            ),
            Standing::Gone => format!(
                "everloop.toml in {root} is gone; what was accepted stays in force. To end that: everloop trust \
                 --revoke {root}"
            ),
        }
    }

    fn key(&self) -> String {
        format!("{}{}", ticket_prefix(&self.root), self.hash.as_deref().map_or("gone", short))
    }

    fn reported(&self) -> String {
        self.hash.clone().unwrap_or_default()
    }
}

/// The beginning of a hash, for people.
pub fn short(hash: &str) -> &str {
    hash.get(..SHOWN_DIGITS).unwrap_or(hash)
}

/// The hash of a file's content.
pub fn hash_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn ticket_prefix(root: &Path) -> String {
    format!("config:{}:", root.display())
}

/// A folder under the one name that it has without links, so that a link gives no second record.
pub fn canonical(dir: &Path) -> PathBuf {
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

/// What was accepted, for all folders: one read of the ledger.
#[derive(Clone, Debug, Default)]
pub struct TrustStore {
    records: BTreeMap<PathBuf, (u64, TrustRecord)>,
}

impl TrustStore {
    /// Reads the records of this ledger.
    pub fn read(ledger: &impl Ledger) -> Result<Self, Failure> {
        let mut records = BTreeMap::new();
        for row in ledger.docs(DOCS)? {
            let record = read_record(&row.key, &row.body)?;
            records.insert(PathBuf::from(&row.key), (row.version, record));
        }
        Ok(Self { records })
    }

    /// Folders with an accepted file.
    pub fn folders(&self) -> impl Iterator<Item = (&Path, &Accepted)> {
        self.records.iter().filter_map(|(root, (_, record))| Some((root.as_path(), record.accepted.as_ref()?)))
    }

    /// What a person accepted for exactly this folder.
    pub fn accepted(&self, root: &Path) -> Option<&Accepted> {
        self.get(&canonical(root))
    }

    fn get(&self, root: &Path) -> Option<&Accepted> {
        self.records.get(root)?.1.accepted.as_ref()
    }

    /// The file that is in force in `dir`: the accepted one of it or of the nearest folder above.
    pub fn in_force(&self, projects: &dyn Projects, dir: &Path) -> Option<ProjectFile> {
        if planted::is(Bug::ReloadsConfig) {
            return on_disk(projects, dir);
        }
        if self.records.is_empty() {
            return None;
        }
        let dir = canonical(dir);
        let (root, accepted) = dir.ancestors().find_map(|root| Some((root, self.get(root)?)))?;
        Some(ProjectFile { root: root.to_owned(), text: accepted.text.clone() })
    }

    /// How the file that is nearest to `dir` compares with what is in force there; `None` where
    /// there is neither.
    pub fn compare(&self, projects: &dyn Projects, dir: &Path, hashes: &mut FileHashes) -> Option<Difference> {
        let dir = canonical(dir);
        let accepted = dir.ancestors().find_map(|root| Some((root, self.get(root)?)));
        let file = projects.file(&dir);
        let place = file.as_deref().and_then(Path::parent);
        // A file above what was accepted does not replace it.
        if let Some((root, _)) = accepted.filter(|(root, _)| place.is_none_or(|place| !place.starts_with(root))) {
            return Some(Difference { root: root.to_owned(), standing: Standing::Gone, hash: None });
        }
        let (place, hash) = (place?, hashes.of(file.as_deref()?));
        let standing = match accepted.filter(|(root, _)| *root == place) {
            Some((_, accepted)) if accepted.covers(&hash) => Standing::Trusted,
            Some(_) => Standing::Changed,
            None => Standing::Untrusted,
        };
        Some(Difference { root: place.to_owned(), standing, hash: Some(hash) })
    }

    /// The differences in these folders, each once.
    pub fn differences<'a>(
        &self,
        projects: &dyn Projects,
        dirs: impl Iterator<Item = &'a Path>,
        hashes: &mut FileHashes,
    ) -> Vec<Difference> {
        let mut found: Vec<Difference> = Vec::new();
        for dir in dirs {
            let difference = self.compare(projects, dir, hashes).filter(|d| d.standing != Standing::Trusted);
            found.extend(difference.filter(|d| !found.contains(d)));
        }
        found
    }

    /// The operations that open a ticket about a difference; none when there was one for the same
    /// content.
    pub fn report(&self, difference: &Difference) -> Vec<Op> {
        let (version, record) = self.records.get(&difference.root).cloned().unwrap_or_default();
        if record.reported.as_ref() == Some(&difference.reported()) {
            return Vec::new();
        }
        let text = format!("{} (`everloop trust --help`)", difference.describe());
        let ticket = Op::OpenTicket { key: difference.key(), owner: None, text };
        let record = TrustRecord { reported: Some(difference.reported()), ..record };
        vec![ticket, save(&difference.root, version, record)]
    }
}

/// The file that is nearest to `dir`, as it is now.
pub fn on_disk(projects: &dyn Projects, dir: &Path) -> Option<ProjectFile> {
    let path = projects.file(&canonical(dir))?;
    let text = String::from_utf8(content(&path)?).ok()?;
    Some(ProjectFile { root: path.parent()?.to_owned(), text })
}

/// One line for the person at a folder, unless its file is in force.
pub fn notice(projects: &dyn Projects, found: &Difference) -> Option<String> {
    match found.standing {
        Standing::Trusted => None,
        Standing::Untrusted => Some(would_run(projects, found)),
        Standing::Changed | Standing::Gone => Some(found.describe()),
    }
}

/// A file that is not trusted: what it would run, and how to trust it.
fn would_run(projects: &dyn Projects, found: &Difference) -> String {
    let root = found.root.display();
    let text = on_disk(projects, &found.root).map(|file| file.text).unwrap_or_default();
    let mut runs = clean(&projects.commands(&text).join("; "));
    if let Some((cut, _)) = runs.char_indices().nth(LISTED_CHARS) {
        runs.truncate(cut);
        runs.push('…');
    }
    let would = if runs.is_empty() { String::new() } else { format!("; it would use: {runs}") };
    format!("everloop.toml in {root} is not trusted, nothing of it runs{would}. To trust it: everloop trust {root}")
}

/// A person's consent.
#[derive(Clone, Copy, Debug)]
pub struct Consent<'a> {
    pub by: &'a str,
    /// The verb that expresses it.
    pub via: &'a str,
    pub now: Time,
}

/// Puts a file in force in its folder, and closes tickets about it. Accepting the same text again
/// changes nothing.
pub fn accept(ledger: &mut Sqlite, file: &ProjectFile, consent: Consent<'_>) -> Result<String, Failure> {
    let (root, hash) = (canonical(&file.root), hash_of(file.text.as_bytes()));
    let Consent { by, via, now } = consent;
    write(ledger, &root, now, |record| {
        if record.accepted.as_ref().is_some_and(|accepted| accepted.hash == hash) {
            return None;
        }
        let dir = root.display().to_string();
        let event = Event::ConfigAccepted { dir, hash: hash.clone(), by: by.to_owned(), via: via.to_owned() };
        let accepted =
            Accepted { hash: hash.clone(), text: file.text.clone(), by: by.to_owned(), via: via.to_owned(), at: now };
        Some((TrustRecord { accepted: Some(accepted), ..TrustRecord::default() }, event))
    })?;
    Ok(hash)
}

/// Takes back what was accepted for a folder; returns whether there was anything. The file as it is
/// now gets no ticket: the person knows it.
pub fn revoke(
    ledger: &mut Sqlite,
    projects: &dyn Projects,
    root: &Path,
    consent: Consent<'_>,
) -> Result<bool, Failure> {
    let root = canonical(root);
    let now_there = projects.file(&root).filter(|file| file.parent() == Some(&root));
    let reported = Some(now_there.map(|file| hash_file(&file)).unwrap_or_default());
    write(ledger, &root, consent.now, |record| {
        record.accepted.as_ref()?;
        let event = Event::ConfigRevoked { dir: root.display().to_string(), by: consent.by.to_owned() };
        Some((TrustRecord { accepted: None, reported: reported.clone(), ..TrustRecord::default() }, event))
    })
}

/// Whether agents have worked in a folder since `accepted`: then a change of its file may be
/// theirs.
pub fn worked_since(ledger: &impl Ledger, root: &Path, accepted: Option<&Accepted>) -> Result<bool, Failure> {
    let (root, since) = (canonical(root), accepted.map_or(Time::default(), |accepted| accepted.at));
    for row in ledger.loops()? {
        let state = read_state(&row)?;
        let here = || canonical(Path::new(&state.spec.workspace.dir)).starts_with(&root);
        if state.task.started > 0 && state.updated_at > since && here() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes the record that `change` makes of the stored one, its event, and the end of tickets about
/// the folder. `None` leaves everything as it is.
fn write(
    ledger: &mut Sqlite,
    root: &Path,
    now: Time,
    change: impl Fn(&TrustRecord) -> Option<(TrustRecord, Event)>,
) -> Result<bool, Failure> {
    let key = root.display().to_string();
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (version, record) = match ledger.doc(DOCS, &key)? {
            Some(row) => (row.version, read_record(&key, &row.body)?),
            None => (0, TrustRecord::default()),
        };
        let changed = change(&record);
        let is_changed = changed.is_some();
        let mut ops: Vec<Op> = Vec::new();
        if let Some((record, event)) = changed {
            ops.push(save(root, version, record));
            ops.push(Op::Append { owner: None, events: vec![event] });
        }
        let prefix = ticket_prefix(root);
        let open = ledger.tickets(Tickets::Open)?.into_iter().filter(|ticket| ticket.key.starts_with(&prefix));
        ops.extend(open.map(|ticket| Op::CloseTicket { key: ticket.key, answer: "decided by a person".to_owned() }));
        if ops.is_empty() {
            return Ok(is_changed);
        }
        match ledger.transact(now, &ops) {
            Err(Error::Refused(Refusal::Conflict { .. })) => {}
            other => return other.map(|_| is_changed).map_err(Into::into),
        }
    }
    Err(Failure::failed(format!("gave up after {MAX_CONFLICT_RETRIES} write conflicts on the trust in `{key}`")))
}

fn save(root: &Path, version: u64, record: TrustRecord) -> Op {
    let record = TrustRecord { format: FORMAT, ..record };
    let body = serde_json::to_string(&record).expect("a record is plain data and always has a JSON form");
    Op::SaveDoc { kind: DOCS.to_owned(), key: root.display().to_string(), version, body }
}

fn read_record(key: &str, body: &str) -> Result<TrustRecord, Failure> {
    let record: TrustRecord = serde_json::from_str(body)
        .map_err(|e| Failure::failed(format!("cannot read the record of trust in `{key}`")).because(&e))?;
    if record.format > FORMAT {
        return Err(Failure::failed(format!(
            "the record of trust in `{key}` is in a newer format ({})",
            record.format
        ))
        .hint("use the everloop that wrote it, or a newer one"));
    }
    Ok(record)
}

/// Hashes of files, each computed again when the file changed. The stamp has the time of the last
/// change of the inode, which no program can set.
#[derive(Debug, Default)]
pub struct FileHashes(BTreeMap<PathBuf, (Stamp, String)>);

/// Device, inode, size, and the seconds and nanoseconds of its last change.
type Stamp = (u64, u64, u64, i64, i64);

impl FileHashes {
    fn of(&mut self, path: &Path) -> String {
        let stamp_of = |meta: Metadata| (meta.dev(), meta.ino(), meta.len(), meta.ctime(), meta.ctime_nsec());
        let stamp = std::fs::metadata(path).map(stamp_of).unwrap_or_default();
        if let Some((_, hash)) = self.0.get(path).filter(|(known, _)| *known == stamp) {
            return hash.clone();
        }
        let hash = hash_file(path);
        self.0.insert(path.to_owned(), (stamp, hash.clone()));
        hash
    }
}

fn hash_file(path: &Path) -> String {
    content(path).map_or_else(|| UNREADABLE.to_owned(), |bytes| hash_of(&bytes))
}

/// The content of a regular file. An agent may put a named pipe in its place, which must not block.
fn content(path: &Path) -> Option<Vec<u8>> {
    let file: File = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= FILE_MAX_BYTES).then_some(bytes)
}
