//! The inbox folder: intents that agents without another way leave as files. Each is treated as
//! untrusted input, takes effect once, and is removed from the folder; what cannot be done is moved
//! to `rejected/` with the reason beside it.
//!
//! Exactly once: an intent and the task that remembers it (kind `intent`, taken under its first
//! fence and finished in the same transaction) are one batch. A crash between the commit and the
//! removal of the file leaves the file; the next round finds that its task cannot be taken a first
//! time any more, so nothing of the batch happens, and removes the file.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::redact::without_secrets;
use everloop_core::event::Event;
use everloop_core::ids::{Fence, NodeId, TaskId};
use everloop_core::op::{Amendment, NewTask, Op, Refusal, TaskEnd, TaskRow, TaskState, Trust};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::OWN_KINDS;
use super::admit;
use crate::caller::Caller;
use crate::error::Failure;
use crate::mailbox;

/// The kind of the tasks that remember which intents took effect.
pub const KIND: &str = "intent";
/// A longer file is rejected.
const FILE_MAX_BYTES: u64 = 64 * 1024;
/// Files that are read in one round; the rest waits for the next.
const ROUND: usize = 200;
/// Lease of a task that was started through the folder.
const LEASE: Duration = Duration::from_secs(3600);
/// A file that is not complete JSON may still be in writing; after this time it is rejected.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// An intent in the form of its file.
#[derive(Debug, Deserialize)]
#[serde(tag = "intent", rename_all = "snake_case", deny_unknown_fields)]
enum Intent {
    /// Puts a task on the board.
    Add {
        title: String,
        #[serde(default)]
        prompt: String,
        #[serde(default = "usual_kind")]
        kind: String,
        #[serde(default)]
        priority: i32,
        #[serde(default)]
        after: Vec<String>,
        /// The task out of which this one came.
        parent: Option<String>,
        by: Option<String>,
        /// Anything that distinguishes this intent from another with the same words.
        #[serde(rename = "id")]
        _id: Option<String>,
    },
    /// Takes a task; the board then shows its fence.
    Start {
        task: String,
        by: Option<String>,
        #[serde(rename = "id")]
        _id: Option<String>,
    },
    /// Finishes a task that was started so.
    Done {
        task: String,
        fence: u64,
        #[serde(default)]
        result: String,
        by: Option<String>,
        #[serde(rename = "id")]
        _id: Option<String>,
    },
    /// Blocks a task that was started so until a person acts.
    Block {
        task: String,
        fence: u64,
        #[serde(default)]
        reason: String,
        by: Option<String>,
        #[serde(rename = "id")]
        _id: Option<String>,
    },
    /// Adds a comment to a task.
    Comment {
        task: String,
        text: String,
        by: Option<String>,
        #[serde(rename = "id")]
        _id: Option<String>,
    },
}

fn usual_kind() -> String {
    "task".to_owned()
}

/// The result of a round.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Intents that took effect.
    pub applied: u32,
    /// Files with an intent that had taken effect before.
    pub known: u32,
    /// Files that were moved away.
    pub rejected: u32,
}

/// Why an intent is not done now.
enum Not {
    /// It never will be.
    Ever(String),
    /// It was done before.
    Again,
    Yet,
}

impl From<Failure> for Not {
    fn from(failure: Failure) -> Self {
        Not::Ever(failure.render())
    }
}

/// Performs the intents in `folder`. A folder that is missing, or is a link, has nothing in it.
pub fn take(ledger: &mut impl Ledger, folder: &Path, now: Time) -> Result<Round, Failure> {
    let mut round = Round::default();
    if !fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir()) {
        return Ok(round);
    }
    let cannot = |e: std::io::Error| Failure::failed(format!("cannot read `{}`", folder.display())).because(&e);
    let mut names: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(cannot)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| !n.starts_with('.')))
        .collect();
    names.sort();
    for path in names.iter().take(ROUND) {
        match take_one(ledger, path, now) {
            Ok(()) => round.applied += 1,
            Err(Not::Again) => round.known += 1,
            Err(Not::Yet) => continue,
            Err(Not::Ever(why)) => {
                round.rejected += 1;
                reject(folder, path, &why)?;
                continue;
            }
        }
        if let Err(e) = fs::remove_file(path).or_else(gone) {
            let what = format!("cannot remove `{}` after its intent took effect", path.display());
            return Err(Failure::failed(what).because(&e));
        }
    }
    Ok(round)
}

fn take_one(ledger: &mut impl Ledger, path: &Path, now: Time) -> Result<(), Not> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (bytes, age) = read(path)?;
    let intent: Intent = match serde_json::from_slice(&bytes) {
        Ok(intent) => intent,
        Err(e) if e.is_eof() && age < WAIT_TIMEOUT => return Err(Not::Yet),
        Err(e) => {
            return Err(Not::Ever(format!(
                "error: not an intent: {e}\nhint: `everloop task board prompt` describes them"
            )));
        }
    };
    let digest = Sha256::digest([name.as_bytes(), b"\0", &bytes].concat());
    let mark = format!("{:016x}", digest.iter().take(8).fold(0_u64, |n, byte| n << 8 | u64::from(*byte)));
    if ledger.task(&TaskId::new(format!("{KIND}:{mark}"))).map_err(|e| later(&e))?.is_some() {
        return Err(Not::Again);
    }
    let mut batch = remember(&mark, &name, now);
    let (owner, ops, said) = wish(ledger, &intent, (&mark, now))?;
    batch.extend(ops);
    // A loop's own journal is part of its state; notes from outside go to everloop's own journal.
    let about = owner.map_or(String::new(), |id| format!(" (loop {id})"));
    batch.push(Op::Append { owner: None, events: vec![Event::Note { text: format!("inbox: {said}{about}") }] });
    match ledger.transact(now, &batch) {
        Ok(_) => Ok(()),
        // Another process was faster: its batch took the same mark.
        Err(Error::Refused(Refusal::WrongState { task, .. })) if task.as_str().starts_with(KIND) => Err(Not::Again),
        Err(Error::Refused(refusal)) => Err(Not::Ever(format!("error: {refusal}"))),
        Err(e) => Err(later(&e)),
    }
}

/// A ledger that is busy or full is no reason to reject anything.
fn later(error: &Error) -> Not {
    tracing::warn!(%error, "cannot apply the inbox folder now");
    Not::Yet
}

/// The file, if it is one, and the time since its last write.
fn read(path: &Path) -> Result<(Vec<u8>, Duration), Not> {
    let never = |why: &str| Not::Ever(format!("error: {why}"));
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Not::Yet),
        Err(e) => return Err(never(&format!("it cannot be opened: {e}"))),
    };
    let meta = file.metadata().map_err(|e| never(&e.to_string()))?;
    if !meta.is_file() {
        return Err(never("not a file"));
    }
    if meta.len() > FILE_MAX_BYTES {
        return Err(never(&format!("it is longer than {FILE_MAX_BYTES} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| never(&e.to_string()))?;
    let age = meta.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    Ok((bytes, age))
}

/// The operations that make a second batch for the same file impossible.
fn remember(mark: &str, name: &str, now: Time) -> Vec<Op> {
    let task = TaskId::new(format!("{KIND}:{mark}"));
    let title: String = format!("from the inbox: {name}").chars().filter(|c| !c.is_control()).take(200).collect();
    let new = new_task(task.clone(), KIND, title, now);
    vec![
        Op::Enqueue(new),
        Op::Take { task: task.clone(), fence: Fence(1), node: NodeId::new("inbox"), lease: LEASE },
        Op::Finish { task, fence: Fence(1), state: TaskEnd::Done, result: String::new() },
    ]
}

fn new_task(id: TaskId, kind: &str, title: String, now: Time) -> NewTask {
    NewTask {
        id,
        owner: None,
        kind: kind.to_owned(),
        title,
        prompt: String::new(),
        priority: 0,
        deps: Vec::new(),
        author: "inbox".to_owned(),
        trust: Trust::Agent,
        ready_at: now,
    }
}

type Wish = (Option<everloop_core::ids::LoopId>, Vec<Op>, String);

/// The operations of an intent, and its line in the journal.
fn wish(ledger: &impl Ledger, intent: &Intent, (mark, now): (&str, Time)) -> Result<Wish, Not> {
    match intent {
        Intent::Add { .. } => add(ledger, intent, mark, now),
        Intent::Start { task, by, .. } => {
            let row = known(ledger, task)?;
            let (id, node) = (row.task.id.clone(), holder(by.as_deref()));
            let said = format!("task {id} was started by {node}");
            let take = Op::Take { task: id, fence: row.fence.next(), node, lease: LEASE };
            Ok((row.task.owner, vec![take], said))
        }
        Intent::Done { task, fence, result, by, .. } => {
            let row = held(ledger, task, *fence, by.as_deref())?;
            let id = row.task.id.clone();
            let said = format!("task {id} was done: {result}");
            let result = result.clone();
            let finish = Op::Finish { task: id, fence: Fence(*fence), state: TaskEnd::Done, result };
            Ok((row.task.owner, vec![finish], said))
        }
        Intent::Block { task, fence, reason, by, .. } => {
            let row = held(ledger, task, *fence, by.as_deref())?;
            let id = || row.task.id.clone();
            let ops = vec![
                Op::Release { task: id(), fence: Fence(*fence), ready_at: now, failed: false },
                Op::Amend { task: id(), change: Amendment::Block },
            ];
            let said = format!("task {} was blocked: {reason}", id());
            Ok((row.task.owner.clone(), ops, said))
        }
        Intent::Comment { task, text, by, .. } => {
            let row = known(ledger, task)?;
            let text = mailbox::checked(text)?;
            let caller = Caller::Client(holder(by.as_deref()).to_string());
            let letter = mailbox::letter(ledger, mailbox::comments_of(&row.task.id), &text, &caller)?;
            let said = format!("{} commented on task {}: {text}", caller.name(), row.task.id);
            Ok((row.task.owner, vec![letter], said))
        }
    }
}

fn add(ledger: &impl Ledger, intent: &Intent, mark: &str, now: Time) -> Result<Wish, Not> {
    let Intent::Add { title, prompt, kind, priority, after, parent, by, .. } = intent else {
        return Err(Not::Ever("error: the intent adds nothing".to_owned()));
    };
    let never = |why: &str| Not::Ever(format!("error: {why}"));
    let title = without_secrets(title);
    let one_line: String = title.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(200).collect();
    if one_line.is_empty() {
        return Err(never("the title is empty"));
    }
    if kind.trim().is_empty() || OWN_KINDS.contains(&kind.as_str()) {
        return Err(never(&format!("`{kind}` cannot be a task's kind")));
    }
    // The loop is that of the parent task; an outside agent cannot hand work to another loop's
    // agent.
    let parent = parent.as_ref().map(|id| known(ledger, id)).transpose()?;
    let who = holder(by.as_deref());
    let task = NewTask {
        owner: parent.as_ref().and_then(|row| row.task.owner.clone()),
        prompt: without_secrets(prompt),
        priority: *priority,
        deps: after.iter().map(TaskId::new).collect(),
        author: parent.as_ref().map_or(who.to_string(), |row| format!("{who} for {}", row.task.id)),
        ..new_task(TaskId::new(format!("i{}", &mark[..10])), kind, one_line, now)
    };
    admit(ledger, &task)?;
    let said = format!("task {} was added by {}: {}", task.id, task.author, task.title);
    Ok((task.owner.clone(), vec![Op::Enqueue(task)], said))
}

fn known(ledger: &impl Ledger, id: &str) -> Result<TaskRow, Not> {
    let row = ledger.task(&TaskId::new(id)).map_err(|e| later(&e))?;
    let row = row.filter(|row| !OWN_KINDS.contains(&row.task.kind.as_str()));
    row.ok_or_else(|| Not::Ever(format!("error: there is no task `{}`", id.chars().take(80).collect::<String>())))
}

/// A task that was started through the folder by the same name. What a turn or a person holds
/// cannot be ended through the folder.
fn held(ledger: &impl Ledger, id: &str, fence: u64, by: Option<&str>) -> Result<TaskRow, Not> {
    let row = known(ledger, id)?;
    match &row.state {
        TaskState::Leased { node, .. } if row.fence == Fence(fence) && *node == holder(by) => Ok(row),
        state => Err(Not::Ever(format!(
            "error: task `{}` is {} under fence {}, and was not started by `{}` under fence {fence}",
            row.task.id,
            state.label(),
            row.fence,
            holder(by)
        ))),
    }
}

/// The holder's name for a task started through the folder.
fn holder(by: Option<&str>) -> NodeId {
    let name: String = by.unwrap_or("agent").chars().filter(|c| !c.is_control()).take(40).collect();
    NodeId::new(format!("inbox:{}", name.trim()))
}

/// Moves a file away and writes the reason beside it.
fn reject(folder: &Path, path: &Path, why: &str) -> Result<(), Failure> {
    let rejected = folder.join("rejected");
    let cannot = |e: &std::io::Error| Failure::failed(format!("cannot reject `{}`", path.display())).because(e);
    fs::create_dir_all(&rejected).map_err(|e| cannot(&e))?;
    if !fs::symlink_metadata(&rejected).is_ok_and(|meta| meta.is_dir()) {
        return Err(Failure::failed(format!("`{}` is not a folder", rejected.display())).hint("remove it"));
    }
    let name = path.file_name().unwrap_or_default();
    let reason = rejected.join(format!("{}.reason.txt", name.to_string_lossy()));
    super::file::put(&reason, &format!("{}\n", why.trim_end()))?;
    fs::rename(path, rejected.join(name)).or_else(gone).map_err(|e| cannot(&e))
}

/// Another process that read the same folder was faster.
fn gone(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests;
