//! Signals as files: a file that appears in `signals/` of the state folder is sent to its persona
//! and removed. The folder is watched only while a persona is supervised.
//!
//! `PERSONA.ID` holds the body; `PERSONA.ID.json` holds an object with `body`, `class`, `tags` and
//! `topic`. A crash between sending and removing sends it again under the same id, which is taken
//! once. What cannot be sent is moved to `signals/refused`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use everloop_agents::folder_watch::{FolderNotice, FolderWatch};
use everloop_agents::redact::without_secrets;
use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::rhythm::signal::{BODY_MAX_BYTES, NAME_MAX_CHARS, Signal, SignalClass};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Ledger, LocalLedger, Sqlite};
use serde::Deserialize;

use super::{LiveLoop, Supervisor};
use crate::error::Failure;
use crate::record::read_state;

/// Files that are read at once, so that a flood of them does not hold up loops; the others follow.
const ROUND: usize = 200;
/// A JSON file may need more than its body: escapes and the other keys.
const FILE_MAX_BYTES: u64 = 4 * BODY_MAX_BYTES as u64;
/// The folder of files that cannot be sent.
const REFUSED: &str = "refused";

/// Which files of the folder are to be read.
#[derive(Debug, PartialEq, Eq)]
enum DueFiles {
    All,
    These(BTreeSet<OsString>),
}

/// The folder of signals as a supervisor sees it.
pub(super) struct SignalFiles {
    /// Absent without personas, and where the kernel gives no notices.
    watch: Option<FolderWatch>,
    due: DueFiles,
}

impl Default for SignalFiles {
    fn default() -> Self {
        Self { watch: None, due: DueFiles::All }
    }
}

impl SignalFiles {
    /// Waits until files are to be read; for ever without a watch. Safe to drop.
    pub(super) async fn arrived(&mut self) {
        let Some(watch) = &mut self.watch else { return std::future::pending().await };
        match (watch.next().await, &mut self.due) {
            (FolderNotice::Complete(names), DueFiles::These(due)) => due.extend(names),
            (FolderNotice::Complete(_), DueFiles::All) => {}
            (FolderNotice::Lost, due) => {
                *due = DueFiles::All;
                self.watch = None;
            }
        }
    }

    fn keep_watch(&mut self, dir: &Path) {
        if self.watch.is_some() {
            return;
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let watch = made.and_then(|()| FolderWatch::start(dir));
        // Without notices the look around of every half minute finds the files.
        let watch = watch.inspect_err(|e| tracing::debug!(error = %e, "cannot watch the folder of signals"));
        (self.watch, self.due) = (watch.ok(), DueFiles::All);
    }

    /// The files to be read now. Those that are being written begin with a dot or end with `.tmp`.
    fn take_due(&mut self, dir: &Path) -> Vec<PathBuf> {
        let nothing_more = DueFiles::These(BTreeSet::new());
        let names = match std::mem::replace(&mut self.due, nothing_more) {
            DueFiles::These(names) => names,
            DueFiles::All => {
                let entries = std::fs::read_dir(dir).into_iter().flatten();
                entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect()
            }
        };
        if self.watch.is_none() {
            self.due = DueFiles::All;
        }
        names.into_iter().map(|name| dir.join(name)).filter(|path| is_whole(path)).collect()
    }

    fn read_later(&mut self, paths: &[PathBuf]) {
        if let DueFiles::These(due) = &mut self.due {
            due.extend(paths.iter().filter_map(|path| Some(path.file_name()?.to_owned())));
        }
    }
}

fn is_whole(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("unreadable");
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    !name.starts_with('.') && path.extension().is_none_or(|end| end != "tmp") && is_file
}

/// The content of a JSON file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SignalFile {
    body: String,
    class: SignalClass,
    tags: BTreeSet<String>,
    topic: String,
}

impl Supervisor {
    /// Sends the signals of files to their personas.
    pub(super) fn read_signal_files(&mut self) -> Result<(), Failure> {
        let is_live = |slot: &LiveLoop| slot.state.is_persona() && !slot.state.is_over();
        if self.sleepers.is_empty() && !self.slots.values().any(is_live) {
            self.signal_files.watch = None;
            return Ok(());
        }
        let dir = self.home.signals();
        self.signal_files.keep_watch(&dir);
        let paths = self.signal_files.take_due(&dir);
        if paths.is_empty() {
            return Ok(());
        }
        let (read_now, later) = paths.split_at(paths.len().min(ROUND));
        for path in read_now {
            match read(path, &self.ledger, self.clock.now())? {
                Ok((id, signal)) => self.send_file(path, &id, signal)?,
                Err(why) => self.refuse_file(path, &why)?,
            }
        }
        if !later.is_empty() {
            self.signal_files.read_later(later);
            self.home.wake();
        }
        Ok(())
    }

    fn send_file(&mut self, path: &Path, id: &LoopId, signal: Signal) -> Result<(), Failure> {
        let command = LoopCommand::Signal { signal: Box::new(signal) };
        let body = serde_json::to_string(&command).expect("a command is plain data and always has a JSON form");
        let sent = Op::Signal { to: id.to_string(), by: "a file".to_owned(), body };
        self.ledger.transact(self.clock.now(), &[sent])?;
        if let Err(e) = std::fs::remove_file(path) {
            tracing::warn!(path = %path.display(), error = %e, "cannot remove the file of a signal");
        }
        Ok(())
    }

    fn refuse_file(&mut self, path: &Path, why: &str) -> Result<(), Failure> {
        let dir = self.home.signals().join(REFUSED);
        let name = path.file_name().unwrap_or_default();
        let moved = std::fs::create_dir_all(&dir).and_then(|()| std::fs::rename(path, dir.join(name)));
        if let Err(e) = moved {
            tracing::warn!(path = %path.display(), error = %e, "cannot move the file of a signal");
        }
        let text = format!("the signal in the file `{}` is refused: {why}", name.to_string_lossy().escape_debug());
        self.ledger.transact(self.clock.now(), &[Op::Append { owner: None, events: vec![Event::Note { text }] }])?;
        Ok(())
    }
}

/// What is wrong with the file is no failure of the supervisor.
fn read(path: &Path, ledger: &Sqlite, now: Time) -> Result<Result<(LoopId, Signal), String>, Failure> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Ok(Err("its name is no text".to_owned()));
    };
    let Some((state, id)) = recipient(name, ledger)? else {
        return Ok(Err("no persona has this name; hint: PERSONA.ID or PERSONA.ID.json".to_owned()));
    };
    Ok(content(path, id, &state.name, now).map(|signal| (state.id, signal)))
}

/// The persona that a file is for, and the id of the signal. A name may have dots, so the longest
/// one counts; of several personas the latest that is not over.
fn recipient<'a>(file: &'a str, ledger: &Sqlite) -> Result<Option<(LoopState, &'a str)>, Failure> {
    for (dot, _) in file.rmatch_indices('.').filter(|(dot, _)| *dot <= 4 * NAME_MAX_CHARS) {
        let named: Vec<LoopState> = ledger.named(&file[..dot])?.iter().map(read_state).collect::<Result<_, _>>()?;
        let personas = named.into_iter().filter(LoopState::is_persona);
        if let Some(state) = personas.max_by_key(|state| (!state.is_over(), state.created_at)) {
            return Ok(Some((state, &file[dot + 1..])));
        }
    }
    Ok(None)
}

fn content(path: &Path, id: &str, persona: &str, now: Time) -> Result<Signal, String> {
    let length = path.metadata().map_err(|e| e.to_string())?.len();
    if length > FILE_MAX_BYTES {
        return Err(format!("it has {length} bytes; hint: at most {BODY_MAX_BYTES} in its body"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let (id, SignalFile { body, class, tags, topic }) = match id.strip_suffix(".json") {
        Some(id) => (id, serde_json::from_str(&text).map_err(|e| e.to_string())?),
        None => (id, SignalFile { body: text, ..SignalFile::default() }),
    };
    let to = persona.parse().map_err(|e| format!("{e}"))?;
    // It is kept in the ledger and handed on to models.
    let body = without_secrets(&body);
    let (id, from, source) = (id.to_owned(), "a file".to_owned(), "file".to_owned());
    let signal = Signal { id, to, class, tags, topic, body, from, at: now, source, passed_by: None, reply_to: None };
    signal.validate().map_err(|e| e.to_string())?;
    Ok(signal)
}
