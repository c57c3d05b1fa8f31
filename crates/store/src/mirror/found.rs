//! Reads a mirror. Every file is accepted or refused by name; nothing is repaired, and nothing is
//! guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use everloop_core::event::Event;
use everloop_core::guard::{Scope, Versioned};
use everloop_core::ids::NodeId;
use everloop_core::journal::{self, Stored};
use everloop_core::op::{LateResult, TaskRow};
use everloop_core::time::Time;
use serde_json::Value;

use super::change::{self, MirrorChange};
use super::follow::{doc_row, files_below, loop_row};
use super::page::{self, Page};
use super::{MirrorError, Rows, line, name_of};
use crate::rows::Leader;

/// A part of the mirror that cannot be restored, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// A file, or a missing range of records.
    pub what: String,
    /// The reason for the refusal.
    pub why: String,
}

/// Content of a mirror.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MirrorContents {
    /// Id of the mirror: drawn at random, or the id of the hub.
    pub of: String,
    /// What can be restored.
    pub rows: Rows,
    /// What cannot be restored.
    pub lost: Vec<Lost>,
    /// Whether the journal starts at its beginning and has no gap.
    pub journal_is_whole: bool,
}

/// Reads the mirror in this folder and changes nothing there.
pub fn found(root: &Path) -> Result<MirrorContents, MirrorError> {
    let mut reading = Reading::new(root);
    let mut pages: BTreeMap<String, Page> = BTreeMap::new();
    for path in reading.paths() {
        match reading.read(&path).map(|bytes| page::open(&bytes)) {
            Some(Ok(page)) => drop(pages.insert(path, page)),
            Some(Err(why)) => reading.refuse(&path, &why),
            None => {}
        }
    }
    let none = pages.is_empty() && files_below(root, "log").is_empty();
    if none {
        return Err(MirrorError::None { path: root.display().to_string() });
    }
    let about = pages.remove("mirror.json").filter(|page| page.kind == "mirror");
    let of = if let Some(page) = &about {
        page.of.clone()
    } else {
        let mut all = pages.values().map(|page| &page.of);
        let first = all.next().cloned().unwrap_or_default();
        if all.any(|of| *of != first) {
            return Err(MirrorError::Mixed { path: root.display().to_string() });
        }
        first
    };
    for (path, page) in pages {
        if page.of == of {
            reading.take(&path, page);
        } else {
            reading.refuse(&path, "it belongs to another mirror");
        }
    }
    reading.journal(about.as_ref().map(|page| &page.row));
    reading.about(about.map(|page| page.row));
    reading.found.of = of;
    Ok(reading.found)
}

struct Reading<'a> {
    root: &'a Path,
    /// Remaining changes of an interrupted pass, by path.
    pending: BTreeMap<String, MirrorChange>,
    /// Folder in which each task was found.
    tasks: BTreeMap<String, String>,
    found: MirrorContents,
}

impl<'a> Reading<'a> {
    fn new(root: &'a Path) -> Self {
        let pending = change::pending(root).map(|(_, changes)| changes).unwrap_or_default();
        let pending = pending.into_iter().map(|change| (change.path().to_owned(), change)).collect();
        Self { root, pending, tasks: BTreeMap::new(), found: MirrorContents::default() }
    }

    /// All files that should be pages.
    fn paths(&self) -> BTreeSet<String> {
        let top = ["mirror.json", "scoreboard.json", "tickets.json", "messages.json"];
        let mut all: BTreeSet<String> = top.into_iter().map(str::to_owned).collect();
        for folder in ["loops", "queue", "docs", "guards"] {
            all.extend(files_below(self.root, folder));
        }
        all.extend(self.pending.keys().filter(|path| !path.starts_with("log/")).cloned());
        // Left behind by a writer that was killed.
        all.retain(|path| Path::new(path).extension().is_none_or(|end| end != "new"));
        all
    }

    /// A file as it is, or as it would be if the last pass had not been interrupted.
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let there = || fs::read(self.root.join(path)).ok();
        match self.pending.get(path) {
            None => there(),
            Some(MirrorChange::Put { text, .. }) => Some(text.clone().into_bytes()),
            Some(MirrorChange::Remove { .. }) => None,
            Some(MirrorChange::Append { at, text, .. }) => {
                let mut bytes = there().unwrap_or_default();
                bytes.truncate(usize::try_from(*at).unwrap_or(usize::MAX));
                bytes.extend_from_slice(text.as_bytes());
                Some(bytes)
            }
        }
    }

    fn refuse(&mut self, what: &str, why: &str) {
        self.found.lost.push(Lost { what: what.to_owned(), why: why.to_owned() });
    }

    /// Accepts an intact page if its content matches its name.
    fn take(&mut self, path: &str, page: Page) {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let name = file.strip_suffix(".json").unwrap_or_default();
        let Page { kind, row, .. } = page;
        let taken = match (folder, kind.as_str()) {
            ("loops", "loop") => self.take_loop(name, &row),
            ("queue/pending" | "queue/claimed" | "queue/completed", "task") => self.take_task(path, name, row),
            ("guards", "guard") => self.take_guard(name, row),
            ("", "tickets") if name == "tickets" => {
                serde_json::from_value(row).ok().map(|list| self.found.rows.tickets = list)
            }
            ("", "messages") if name == "messages" => {
                serde_json::from_value(row).ok().map(|list| self.found.rows.messages = list)
            }
            // Derived from the loops, for people only.
            ("", "scoreboard") if name == "scoreboard" => Some(()),
            (_, "doc") => self.take_doc((folder, name), &row),
            _ => None,
        };
        if taken.is_none() {
            self.refuse(path, "its content does not match its name");
        }
    }

    fn take_loop(&mut self, name: &str, row: &Value) -> Option<()> {
        let row = loop_row(row).filter(|row| name_of(row.id.as_str()) == name)?;
        self.found.rows.loops.push(row);
        Some(())
    }

    fn take_doc(&mut self, (folder, name): (&str, &str), row: &Value) -> Option<()> {
        let (kind, doc) = doc_row(row)?;
        if folder != format!("docs/{}", name_of(&kind)) || name_of(&doc.key) != name {
            return None;
        }
        self.found.rows.docs.push((kind, doc));
        Some(())
    }

    fn take_guard(&mut self, name: &str, mut row: Value) -> Option<()> {
        let scope = row["scope"].as_str().filter(|scope| name_of(scope) == name)?;
        let scope = Scope::try_from(scope.to_owned()).ok()?;
        let state = serde_json::from_value(row["state"].take()).ok()?;
        self.found.rows.guards.insert(scope, Versioned { version: row["version"].as_u64()?, state });
        Some(())
    }

    /// A task stands in one folder. Two copies mean manipulation, and then both are refused.
    fn take_task(&mut self, path: &str, name: &str, mut row: Value) -> Option<()> {
        let task: TaskRow = serde_json::from_value(row["task"].take()).ok()?;
        let late_results: Vec<LateResult> = serde_json::from_value(row["shelf"].take()).ok()?;
        let id = task.task.id.clone();
        if name_of(id.as_str()) != name || late_results.iter().any(|late| late.task != id) {
            return None;
        }
        if let Some(other) = self.tasks.insert(id.to_string(), path.to_owned()) {
            self.found.rows.tasks.retain(|task| task.task.id != id);
            self.found.rows.late_results.retain(|late| late.task != id);
            self.refuse(&other, &format!("`{path}` contains the same task"));
            self.refuse(path, &format!("`{other}` contains the same task"));
            return Some(());
        }
        self.found.rows.tasks.push(task);
        self.found.rows.late_results.extend(late_results);
        Some(())
    }

    /// Reads the records in order, each checked by itself and against the one before.
    fn journal(&mut self, about: Option<&Value>) {
        let mut records: BTreeMap<u64, Option<(Stored, u32)>> = BTreeMap::new();
        let mut paths: BTreeSet<String> = files_below(self.root, "log").into_iter().collect();
        paths.extend(self.pending.keys().filter(|path| path.starts_with("log/")).cloned());
        for path in paths {
            let text = self.read(&path).unwrap_or_default();
            let mut bad: Vec<usize> = Vec::new();
            for (number, raw) in text.split(|byte| *byte == b'\n').enumerate().filter(|(_, raw)| !raw.is_empty()) {
                match std::str::from_utf8(raw).ok().and_then(line::read) {
                    // Equal duplicates count once; two that differ under one number are both
                    // dropped.
                    Some(read) => {
                        let kept = records.entry(read.0.seq).or_insert_with(|| Some(read.clone()));
                        *kept = kept.take().filter(|other| *other == read);
                    }
                    None => bad.push(number + 1),
                }
            }
            if let Some(first) = bad.first() {
                self.refuse(&path, &format!("{} of its lines are damaged, the first of them line {first}", bad.len()));
            }
        }
        let end = about.map(|row| (row["seq"].as_u64().unwrap_or(0), row["sum"].as_u64().unwrap_or(0) as u32));
        self.chain(records.into_values().flatten(), end);
    }

    fn chain(&mut self, records: impl Iterator<Item = (Stored, u32)>, end: Option<(u64, u32)>) {
        let (mut seq, mut sum) = (0, 0);
        let mut whole = true;
        for (stored, previous_sum) in records {
            if end.is_some_and(|(last, _)| stored.seq > last) {
                whole = false;
                self.refuse(&format!("journal after record {seq}"), "it lies after the end that `mirror.json` names");
                break;
            }
            if stored.seq != seq + 1 || previous_sum != sum {
                whole = false;
                self.refuse(&format!("journal records {} to {}", seq + 1, stored.seq - 1), "they are in no log file");
            }
            (seq, sum) = (stored.seq, stored.sum);
            self.found.rows.journal.push(stored);
        }
        if end.is_some_and(|(last, last_sum)| last > seq || last == seq && last_sum != sum) {
            whole = false;
            let last = end.map_or(0, |(last, _)| last);
            self.refuse(&format!("journal records {} to {last}", seq + 1), "they are in no log file");
        }
        self.found.journal_is_whole = whole && end.is_some();
    }

    fn about(&mut self, about: Option<Value>) {
        let Some(row) = about else {
            // An existing file was refused already.
            if !self.found.lost.iter().any(|lost| lost.what == "mirror.json") {
                self.refuse("mirror.json", "it is missing, so other losses cannot be detected");
            }
            return;
        };
        if row["whole"] != true {
            self.refuse("the mirror", "it was being written for the first time, and not all of it is there");
        }
        let leader = &row["leader"];
        self.found.rows.leader = leader["node"].as_str().zip(leader["epoch"].as_u64()).map(|(node, term)| Leader {
            node: NodeId::new(node),
            term,
            until: Time(leader["until"].as_i64().unwrap_or(0)),
        });
    }
}

impl MirrorContents {
    /// The journal as a ledger can hold it: numbered from the beginning, with a note wherever
    /// records are missing. A complete journal stays as it is.
    pub fn mended_journal(&self, now: Time) -> Vec<Stored> {
        if self.journal_is_whole {
            return self.rows.journal.clone();
        }
        let mut mended: Vec<Stored> = Vec::new();
        let mut last = 0;
        for stored in &self.rows.journal {
            let missing = stored.seq - last - 1;
            if missing > 0 {
                let text = format!("{missing} records of the journal were lost here with the ledger");
                let (seq, sum) = end_of(&mended);
                mended.push(journal::encode(seq + 1, stored.at, None, &Event::Note { text }, sum));
            }
            let (seq, sum) = end_of(&mended);
            mended.push(journal::reseal(stored, seq + 1, sum));
            last = stored.seq;
        }
        let (seq, sum) = end_of(&mended);
        let text = "the journal after this record may have been lost with the ledger".to_owned();
        mended.push(journal::encode(seq + 1, now, None, &Event::Note { text }, sum));
        mended
    }
}

fn end_of(journal: &[Stored]) -> (u64, u32) {
    journal.last().map_or((0, 0), |stored| (stored.seq, stored.sum))
}
