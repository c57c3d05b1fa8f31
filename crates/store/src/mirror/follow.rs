//! Follows a ledger: finds what changed since the last pass and writes that, and nothing when
//! nothing changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use everloop_core::ids::LoopId;
use everloop_core::journal::sum;
use everloop_core::mesh::keys::unsealed;
use everloop_core::op::Ticket;
use serde_json::{Value, json};

use super::change::{self, MirrorChange};
use super::{COMPLETED_MOST, MirrorError, MirrorSource, files, line, name_of, page};
use crate::rows::{DocRow, LoopRow, Recipients, Tickets};

/// Journal records read at once, as in a replay.
const CHUNK_ROWS: usize = 512;
/// Upper bound of one pass in memory and in `pending.json`. Only the first pass over a big ledger
/// needs several.
const CHUNK_BYTES: usize = 4_000_000;
/// Maximum number of tickets and messages kept; enough for all open ones and recent history.
const LISTED: usize = 500;
/// Folders with a file for each row.
const FOLDERS: [&str; 6] = ["loops", "queue/pending", "queue/claimed", "queue/completed", "docs", "guards"];

/// Scoreboard entries; this crate does not interpret states.
#[derive(Clone, Copy)]
pub struct Scores {
    /// Entry of a loop.
    pub of_loop: fn(&LoopRow) -> Option<Value>,
    /// Entry of a document, if it is one of a loop.
    pub of_doc: fn(&str, &DocRow) -> Option<Value>,
}

/// Result of a pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Files that were written or removed.
    pub changed: usize,
    /// New location of files that were found here and belong to another ledger.
    pub kept_aside: Option<PathBuf>,
}

/// A mirror that is being written. One writer at a time: its folder belongs to the owner of the
/// state folder.
#[derive(Debug)]
pub struct Mirror {
    root: PathBuf,
    /// Id of the mirror; stands in every file.
    of: String,
    /// Required id, if there is one.
    named: Option<String>,
    /// Sequence number of the last mirrored record, and its checksum.
    seq: u64,
    sum: u32,
    late_results: u64,
    /// Marks of the files on disk, by path; empty before the first pass.
    known: BTreeMap<String, u64>,
    /// As text, which takes a tenth of the memory.
    scores: BTreeMap<String, Box<str>>,
    /// There are files that may belong to another ledger.
    foreign: bool,
    fresh: bool,
}

impl Mirror {
    /// The mirror in this folder, which is created if necessary. `of` is the required id of the
    /// mirror, if there is one.
    pub fn open(root: &Path, of: Option<&str>) -> Result<Self, MirrorError> {
        change::make(root)?;
        change::resume(root)?;
        let mut mirror = Self::new(root, of);
        match fs::read(root.join("mirror.json")).ok().and_then(|bytes| page::open(&bytes).ok()) {
            Some(page) => {
                mirror.foreign = of.is_some_and(|of| of != page.of);
                mirror.of = page.of;
                mirror.seq = page.row["seq"].as_u64().unwrap_or(0);
                mirror.sum = page.row["sum"].as_u64().unwrap_or(0) as u32;
            }
            // Without it the files cannot be attributed to a ledger.
            None => mirror.foreign = FOLDERS.iter().chain(&["log"]).any(|folder| root.join(folder).exists()),
        }
        Ok(mirror)
    }

    fn new(root: &Path, of: Option<&str>) -> Self {
        let drawn = || format!("{:016x}", RandomState::new().build_hasher().finish());
        Self {
            root: root.to_owned(),
            of: of.map_or_else(drawn, str::to_owned),
            named: of.map(str::to_owned),
            seq: 0,
            sum: 0,
            late_results: 0,
            known: BTreeMap::new(),
            scores: BTreeMap::new(),
            foreign: false,
            fresh: true,
        }
    }

    /// Brings the files up to date with the ledger. After an error the mirror has to be opened
    /// again.
    pub fn pass(&mut self, source: &dyn MirrorSource, scores: Scores) -> Result<Passed, MirrorError> {
        let mut passed = Passed::default();
        if self.fresh && (self.foreign || !self.is_of(source)?) {
            passed.kept_aside = Some(self.keep_aside()?);
        }
        let mut pass = Pass { mirror: self, changes: Vec::new(), weight: 0, done: 0, current: BTreeSet::new() };
        pass.loops(source, scores)?;
        pass.docs(source, scores)?;
        pass.tasks(source)?;
        pass.guards(source)?;
        pass.lists(source)?;
        pass.sweep();
        pass.scoreboard()?;
        pass.journal(source)?;
        passed.changed = pass.end(source)?;
        self.fresh = false;
        Ok(passed)
    }

    /// Writes a heartbeat. It is never restored, so it is not synced.
    pub fn beat(&self, beat: &Value) -> Result<(), MirrorError> {
        let text = serde_json::to_string_pretty(beat).expect("a value always has a JSON form");
        change::put_lightly(&self.root.join("supervisor.heartbeat"), &format!("{text}\n"))
    }

    /// Whether the ledger contains the last record of these files. A new ledger in the place of a
    /// lost one does not, and then these files are all that is left of the lost one.
    fn is_of(&self, source: &dyn MirrorSource) -> Result<bool, MirrorError> {
        let Some(before) = self.seq.checked_sub(1) else { return Ok(true) };
        let there = source.journal_raw(before, 1)?;
        Ok(there.first().is_some_and(|stored| stored.seq == self.seq && stored.sum == self.sum))
    }

    /// Moves everything out of the way and starts anew.
    fn keep_aside(&mut self) -> Result<PathBuf, MirrorError> {
        let name = self.root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = |n: u32| self.root.with_file_name(format!("{name}.kept-{n}"));
        let free =
            (1..u32::MAX).map(place).find(|path| !path.exists()).expect("there are fewer lost ledgers than numbers");
        fs::rename(&self.root, &free).map_err(files("move", &self.root))?;
        change::make(&self.root)?;
        *self = Self::new(&self.root.clone(), self.named.clone().as_deref());
        Ok(free)
    }
}

/// One pass of a mirror.
struct Pass<'a> {
    mirror: &'a mut Mirror,
    changes: Vec<MirrorChange>,
    weight: usize,
    done: usize,
    /// Paths of the present rows.
    current: BTreeSet<String>,
}

impl Pass<'_> {
    /// Whether a row has to be read; marks it as present in any case.
    fn is_new(&mut self, path: &str, mark: u64) -> bool {
        self.current.insert(path.to_owned());
        self.mirror.known.get(path) != Some(&mark)
    }

    fn put(&mut self, path: String, mark: u64, kind: &str, row: &Value) -> Result<(), MirrorError> {
        let text = page::encode(kind, &self.mirror.of, row);
        // After a restart most files are up to date already.
        let same =
            self.mirror.fresh && fs::read(self.mirror.root.join(&path)).is_ok_and(|bytes| bytes == text.as_bytes());
        self.mirror.known.insert(path.clone(), mark);
        if same { Ok(()) } else { self.push(MirrorChange::Put { path, text }) }
    }

    /// Changes beyond the size of one pass are written ahead; until the last part is written the
    /// mirror is marked as incomplete.
    fn push(&mut self, change: MirrorChange) -> Result<(), MirrorError> {
        self.weight += change.weight();
        self.changes.push(change);
        if self.weight > CHUNK_BYTES {
            let part = json!({ "whole": false, "seq": self.mirror.seq, "sum": self.mirror.sum });
            self.perform(&part)?;
        }
        Ok(())
    }

    fn perform(&mut self, about: &Value) -> Result<(), MirrorError> {
        let text = page::encode("mirror", &self.mirror.of, about);
        self.changes.push(MirrorChange::Put { path: "mirror.json".to_owned(), text });
        change::perform(&self.mirror.root, &self.mirror.of, &self.changes)?;
        self.done += self.changes.len();
        self.changes.clear();
        self.weight = 0;
        Ok(())
    }

    fn loops(&mut self, source: &dyn MirrorSource, scores: Scores) -> Result<(), MirrorError> {
        for (id, version) in source.loop_marks()? {
            let path = format!("loops/{}.json", name_of(id.as_str()));
            if !self.is_new(&path, version) {
                continue;
            }
            let Some(row) = source.get_loop(&id)? else { continue };
            self.score(&path, (scores.of_loop)(&row));
            self.put(path, version, "loop", &loop_value(&row))?;
        }
        Ok(())
    }

    /// Before the tasks: a document with a missing task would be waited for, a task with a missing
    /// document is found.
    fn docs(&mut self, source: &dyn MirrorSource, scores: Scores) -> Result<(), MirrorError> {
        for (kind, key, version) in source.doc_marks()? {
            let path = format!("docs/{}/{}.json", name_of(&kind), name_of(&key));
            if !self.is_new(&path, version) {
                continue;
            }
            let Some(row) = source.doc(&kind, &key)? else { continue };
            self.score(&path, (scores.of_doc)(&kind, &row));
            self.put(path, version, "doc", &doc_value(&kind, &row))?;
        }
        Ok(())
    }

    fn score(&mut self, path: &str, score: Option<Value>) {
        match score {
            Some(score) => drop(self.mirror.scores.insert(path.to_owned(), score.to_string().into())),
            None => drop(self.mirror.scores.remove(path)),
        }
    }

    fn tasks(&mut self, source: &dyn MirrorSource) -> Result<(), MirrorError> {
        let late = source.late_results_after(self.mirror.late_results)?;
        for task in source.task_marks(COMPLETED_MOST)? {
            let path = format!("queue/{}/{}.json", task.folder, name_of(task.id.as_str()));
            let is_new = self.is_new(&path, task.mark) || late.iter().any(|(_, id)| *id == task.id);
            if !is_new {
                continue;
            }
            let Some(row) = source.task(&task.id)? else { continue };
            let value = json!({ "task": row, "shelf": source.late_results(&task.id)? });
            self.put(path, task.mark, "task", &value)?;
        }
        self.mirror.late_results = late.last().map_or(self.mirror.late_results, |(number, _)| *number);
        Ok(())
    }

    fn guards(&mut self, source: &dyn MirrorSource) -> Result<(), MirrorError> {
        for (scope, guard) in source.guards()? {
            let path = format!("guards/{}.json", name_of(&scope.to_string()));
            if self.is_new(&path, guard.version) {
                let row = json!({ "scope": scope.to_string(), "version": guard.version, "state": guard.state });
                self.put(path, guard.version, "guard", &row)?;
            }
        }
        Ok(())
    }

    fn lists(&mut self, source: &dyn MirrorSource) -> Result<(), MirrorError> {
        let mut tickets: BTreeMap<u64, Ticket> = BTreeMap::new();
        for ticket in source.tickets(Tickets::Newest(LISTED))?.into_iter().chain(source.tickets(Tickets::Open)?) {
            tickets.insert(ticket.id, ticket);
        }
        let tickets: Vec<Ticket> = tickets.into_values().collect();
        self.list("tickets", &json!(tickets))?;
        self.list("messages", &json!(source.messages(Recipients::All, LISTED)?))
    }

    /// A small list in one file, removed when the list is empty.
    fn list(&mut self, kind: &str, rows: &Value) -> Result<(), MirrorError> {
        let path = format!("{kind}.json");
        let mark = u64::from(sum(rows.to_string().as_bytes()));
        let nothing = rows.as_array().is_some_and(Vec::is_empty) && !self.mirror.known.contains_key(&path);
        if (nothing && !self.mirror.fresh) || !self.is_new(&path, mark) {
            return Ok(());
        }
        self.put(path, mark, kind, rows)
    }

    /// Removes the files of rows that are gone or moved, after the new files are written.
    fn sweep(&mut self) {
        let mut there: BTreeSet<String> = self.mirror.known.keys().filter(|path| path.contains('/')).cloned().collect();
        if self.mirror.fresh {
            there.extend(FOLDERS.iter().flat_map(|folder| files_below(&self.mirror.root, folder)));
        }
        for path in there.into_iter().filter(|path| !self.current.contains(path)) {
            self.mirror.known.remove(&path);
            self.mirror.scores.remove(&path);
            self.changes.push(MirrorChange::Remove { path });
        }
    }

    fn scoreboard(&mut self) -> Result<(), MirrorError> {
        let scores = self.mirror.scores.values();
        let loops = scores.map(|text| serde_json::from_str(text).expect("it is the text of a value")).collect();
        let board = json!({ "loops": Value::Array(loops) });
        self.list("scoreboard", &board)
    }

    /// The position counts only when all lines are written: after a crash between two parts some
    /// lines stand twice, which has no effect.
    fn journal(&mut self, source: &dyn MirrorSource) -> Result<(), MirrorError> {
        let mut ends: BTreeMap<String, u64> = BTreeMap::new();
        loop {
            let rows = source.journal_raw(self.mirror.seq, CHUNK_ROWS)?;
            let Some(last) = rows.last() else { return Ok(()) };
            let mut texts: BTreeMap<String, String> = BTreeMap::new();
            let mut previous_sum = self.mirror.sum;
            for stored in &rows {
                texts.entry(line::file(stored.at)).or_default().push_str(&line::write(stored, previous_sum));
                previous_sum = stored.sum;
            }
            for (path, text) in texts {
                let at = match ends.get(&path) {
                    Some(end) => *end,
                    None => fs::metadata(self.mirror.root.join(&path)).map_or(0, |m| m.len()),
                };
                ends.insert(path.clone(), at + text.len() as u64);
                self.push(MirrorChange::Append { path, at, text })?;
            }
            (self.mirror.seq, self.mirror.sum) = (last.seq, last.sum);
        }
    }

    fn end(mut self, source: &dyn MirrorSource) -> Result<usize, MirrorError> {
        if self.changes.is_empty() && self.done == 0 {
            return Ok(0);
        }
        let leader = source.leader()?.map(|l| json!({ "node": l.node, "epoch": l.term, "until": l.until }));
        let about = json!({ "whole": true, "seq": self.mirror.seq, "sum": self.mirror.sum, "leader": leader });
        self.perform(&about)?;
        Ok(self.done)
    }
}

/// Paths of all files in a folder and its subfolders, relative to the mirror.
pub(super) fn files_below(root: &Path, folder: &str) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files_below(root, &path)),
            _ => all.push(path),
        }
    }
    all.sort();
    all
}

fn loop_value(row: &LoopRow) -> Value {
    let LoopRow { id, version, phase, updated_at, state } = row;
    json!({ "id": id, "version": version, "phase": phase, "updated_at": updated_at, "state": body_value(state) })
}

pub(super) fn loop_row(row: &Value) -> Option<LoopRow> {
    Some(LoopRow {
        id: LoopId::new(row["id"].as_str()?),
        version: row["version"].as_u64()?,
        phase: row["phase"].as_str()?.to_owned(),
        updated_at: everloop_core::time::Time(row["updated_at"].as_i64()?),
        state: body_text(&row["state"]),
    })
}

fn doc_value(kind: &str, row: &DocRow) -> Value {
    let DocRow { key, version, updated_at, body } = row;
    let mut value =
        json!({ "kind": kind, "key": key, "version": version, "updated_at": updated_at, "body": body_value(body) });
    if unsealed(body).is_some() {
        // A signature covers the exact text, which the readable form is not.
        value["exact"] = Value::String(body.clone());
    }
    value
}

pub(super) fn doc_row(row: &Value) -> Option<(String, DocRow)> {
    let doc = DocRow {
        key: row["key"].as_str()?.to_owned(),
        version: row["version"].as_u64()?,
        updated_at: everloop_core::time::Time(row["updated_at"].as_i64()?),
        body: row["exact"].as_str().map_or_else(|| body_text(&row["body"]), str::to_owned),
    };
    Some((row["kind"].as_str()?.to_owned(), doc))
}

/// JSON is embedded as such, so that people can read it; anything else as text.
fn body_value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

fn body_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
