//! What the session in a pane has used, by the transcript that its program writes.
//!
//! The transcript belongs to the account's folder and is written beside an agent: only regular files
//! below that folder are read, through no link, in bounded pieces, and a line that is no record is
//! skipped.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use everloop_core::stream::Usage;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use serde_json::Value;

use super::pane::{Pane, PaneProgram};
use super::{TmuxServer, session};
use crate::agent::{Lines, OutputLine, claude_usage, codex_usage};

/// Read at once; the rest follows at the next call.
const PIECE_BYTES: u64 = 8 << 20;
/// A longer session is not summed up for a list.
const WHOLE_BYTES: u64 = 256 << 20;
/// An answer arrives as one record per part; parts of more answers than this never mix.
const ANSWERS: usize = 64;
/// Folders and files that are examined.
const ENTRIES: usize = 10_000;
/// The first record of a rollout holds the instructions, too.
const HEAD_BYTES: u64 = 1 << 20;
/// The newest sessions of codex that are examined.
const ROLLOUTS: usize = 20;

/// A transcript that is being read.
pub(super) struct SessionUsage {
    kind: PaneProgram,
    /// The path below the account's folder.
    path: PathBuf,
    file: File,
    lines: Lines,
    tally: Tally,
}

/// What was counted so far.
#[derive(Debug, Default)]
struct Tally {
    /// Usage of each of the last answers, as far as it is known.
    answers: VecDeque<(String, Usage)>,
    /// The sum that the program itself keeps.
    in_all: Usage,
    fresh: Usage,
}

impl SessionUsage {
    /// The transcript of a pane's session, from its beginning.
    pub(super) fn find(pane: &Pane) -> Option<Self> {
        let (root, path) = match pane.kind {
            PaneProgram::Claude => claude_path(pane)?,
            PaneProgram::Codex => codex_path(pane)?,
            PaneProgram::Plain => return None,
        };
        let file = open_below(&root, &path)?;
        Some(Self { kind: pane.kind, path, file, lines: Lines::default(), tally: Tally::default() })
    }

    /// Whether it is still the transcript of the pane's session.
    fn is_of(&self, pane: &Pane) -> bool {
        match pane.kind {
            PaneProgram::Claude => claude_path(pane).is_none_or(|(_, path)| path == self.path),
            // A session that is resumed or new is another file, found when the first one is silent.
            PaneProgram::Codex | PaneProgram::Plain => true,
        }
    }

    /// Reads the next piece; returns the bytes read and what it adds.
    fn advance(&mut self) -> io::Result<(u64, Usage)> {
        let Self { kind, file, lines, tally, .. } = self;
        let mut bytes = Vec::new();
        let read = file.take(PIECE_BYTES).read_to_end(&mut bytes)?;
        lines.feed(&bytes, |line| {
            if let OutputLine::Whole(line) = line
                && let Ok(record) = serde_json::from_slice::<Value>(line)
            {
                tally.take(*kind, &record);
            }
        });
        Ok((read as u64, std::mem::take(&mut tally.fresh)))
    }

    /// Reads what is there, within bounds; returns what it adds.
    pub(super) fn catch_up(&mut self) -> io::Result<Usage> {
        let mut sum = Usage::default();
        let mut total = 0;
        loop {
            let (read, more) = self.advance()?;
            sum = sum.plus(more);
            total += read;
            if read < PIECE_BYTES || total >= WHOLE_BYTES {
                return Ok(sum);
            }
        }
    }
}

impl Tally {
    fn take(&mut self, kind: PaneProgram, record: &Value) {
        match kind {
            PaneProgram::Claude if record["type"] == "assistant" => self.answer(&record["message"]),
            PaneProgram::Codex if record["payload"]["type"] == "token_count" => {
                let in_all = codex_usage(&record["payload"]["info"]["total_token_usage"]);
                self.fresh = self.fresh.plus(in_all.since(self.in_all));
                self.in_all = most(self.in_all, in_all);
            }
            _ => {}
        }
    }

    /// Every part of an answer has its usage so far: the largest counts, once.
    fn answer(&mut self, message: &Value) {
        let (Some(id), true) = (message["id"].as_str(), message["usage"].is_object()) else { return };
        let usage = claude_usage(&message["usage"]);
        if let Some((_, known)) = self.answers.iter_mut().find(|(answer, _)| answer == id) {
            self.fresh = self.fresh.plus(usage.since(*known));
            *known = most(*known, usage);
            return;
        }
        self.answers.push_back((id.chars().take(200).collect(), usage));
        if self.answers.len() > ANSWERS {
            self.answers.pop_front();
        }
        self.fresh = self.fresh.plus(usage);
    }
}

fn most(a: Usage, b: Usage) -> Usage {
    a.plus(b.since(a))
}

/// Counts what a session uses from now on.
pub(super) struct UsageMeter {
    /// `None` until the program has written a transcript.
    session: Option<SessionUsage>,
}

impl UsageMeter {
    pub(super) fn new(pane: &Pane) -> Self {
        let mut session = SessionUsage::find(pane);
        // What was used before is counted already. An unreadable file is tried again later.
        session.as_mut().and_then(|session| session.catch_up().ok());
        Self { session }
    }

    /// What was used since the last call.
    pub(super) fn read(&mut self, pane: &Pane) -> Usage {
        if !self.session.as_ref().is_some_and(|session| session.is_of(pane)) {
            self.session = SessionUsage::find(pane);
        }
        self.session.as_mut().and_then(|session| session.catch_up().ok()).unwrap_or_default()
    }
}

impl TmuxServer {
    /// What the session in a pane has used in all; `None` when its program writes no transcript.
    pub fn used(&self, pane: &Pane) -> Option<Usage> {
        SessionUsage::find(pane)?.catch_up().ok()
    }
}

/// `projects/<folder>/<session>.jsonl` below claude's folder.
fn claude_path(pane: &Pane) -> Option<(PathBuf, PathBuf)> {
    let id = session::find(pane)?.id.filter(|id| is_plain(id))?;
    let root = session::folder(pane.process.pid)?;
    let name = format!("{id}.jsonl");
    let projects = names_below(&root, Path::new("projects"));
    let paths = projects.into_iter().map(|project| Path::new("projects").join(project).join(&name));
    paths.into_iter().find(|path| open_below(&root, path).is_some()).map(|path| (root, path))
}

/// `sessions/2026/11/15/rollout-….jsonl` below codex' folder: the newest one of the pane's folder.
fn codex_path(pane: &Pane) -> Option<(PathBuf, PathBuf)> {
    let pid = pane.process.pid;
    let var = |name: &str| session::variable(pid, name).map(PathBuf::from);
    let root = var("CODEX_HOME").or_else(|| Some(var("HOME")?.join(".codex")))?;
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let mut paths = vec![PathBuf::from("sessions")];
    // Years, months, days, files: of each the newest come first.
    for _ in 0..4 {
        let below =
            |path: &PathBuf| names_below(&root, path).into_iter().map(|name| path.join(name)).collect::<Vec<_>>();
        paths = paths.iter().flat_map(below).take(ROLLOUTS).collect();
    }
    paths.into_iter().find(|path| works_in(&root, path, &cwd)).map(|path| (root, path))
}

fn works_in(root: &Path, path: &Path, cwd: &Path) -> bool {
    let is_rollout = path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("rollout-"));
    let Some(file) = open_below(root, path).filter(|_| is_rollout) else { return false };
    let mut head = Vec::new();
    if file.take(HEAD_BYTES).read_to_end(&mut head).is_err() {
        return false;
    }
    let first = head.split(|b| *b == b'\n').next().unwrap_or_default();
    let meta: Value = serde_json::from_slice(first).unwrap_or_default();
    meta["payload"]["cwd"].as_str().is_some_and(|dir| Path::new(dir) == cwd)
}

/// An id that is a file name and nothing else.
fn is_plain(id: &str) -> bool {
    (8..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The folder at a path below `root`, through no link.
fn folder_below(root: &Path, path: &Path) -> Option<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut here = open(root, flags, Mode::empty()).ok()?;
    for part in path {
        here = openat(&here, part, flags | OFlag::O_NOFOLLOW, Mode::empty()).ok()?;
    }
    Some(here)
}

/// The regular file at a path below `root`, through no link.
fn open_below(root: &Path, path: &Path) -> Option<File> {
    let folder = folder_below(root, path.parent()?)?;
    // A pipe must not be waited for.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(&folder, path.file_name()?, flags, Mode::empty()).ok()?);
    file.metadata().ok().filter(std::fs::Metadata::is_file).map(|_| file)
}

/// The names in a folder below `root`, the last ones first.
fn names_below(root: &Path, path: &Path) -> Vec<OsString> {
    let Some(folder) = folder_below(root, path) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd())) else { return Vec::new() };
    let mut names: Vec<OsString> = entries.take(ENTRIES).flatten().map(|entry| entry.file_name()).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn sum(kind: PaneProgram, lines: &[&str]) -> u64 {
        let mut tally = Tally::default();
        for line in lines {
            tally.take(kind, &serde_json::from_str(line).unwrap_or_default());
        }
        tally.fresh.tokens()
    }

    #[test]
    fn each_answer_counts_once() {
        let part = |id: &str, output: u64| {
            format!(
                r#"{{"type":"assistant","message":{{"id":"{id}","usage":{{"input_tokens":10,"output_tokens":{output},
                "cache_read_input_tokens":100,"cache_creation_input_tokens":0}}}}}}"#
            )
        };
        let (a1, a2, b) = (part("a", 1), part("a", 5), part("b", 2));
        let junk = r#"{"type":"assistant","message":{"id":7,"usage":[]}}"#;
        let user = r#"{"type":"user","message":{"id":"c","usage":{"input_tokens":1000}}}"#;
        assert_eq!(sum(PaneProgram::Claude, &[&a1, &a2, junk, &b, user, &a2, "no record"]), 115 + 112);
    }

    #[test]
    fn the_sum_of_codex_counts_as_far_as_it_grows() {
        let total = |input: u64| {
            format!(
                r#"{{"type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":
                {{"input_tokens":{input},"cached_input_tokens":0,"output_tokens":1}}}}}}}}"#
            )
        };
        let (first, second) = (total(10), total(30));
        assert_eq!(sum(PaneProgram::Codex, &[&first, &second, &second, &first]), 31);
    }

    #[test]
    fn links_and_other_files_are_not_read() {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let root = dir.path();
        std::fs::create_dir_all(root.join("projects/real")).expect("the folder is ours");
        std::fs::write(root.join("outside.jsonl"), "x").expect("the folder is ours");
        std::fs::write(root.join("projects/real/a.jsonl"), "x").expect("the folder is ours");
        symlink(root.join("outside.jsonl"), root.join("projects/real/b.jsonl")).expect("a link can be made");
        symlink(root.join("projects/real"), root.join("projects/link")).expect("a link can be made");
        nix::unistd::mkfifo(&root.join("projects/real/pipe.jsonl"), Mode::S_IRWXU).expect("a pipe can be made");
        let opens = |path: &str| open_below(root, Path::new(path)).is_some();
        assert!(opens("projects/real/a.jsonl"));
        for path in ["projects/real/b.jsonl", "projects/link/a.jsonl", "projects/real/pipe.jsonl", "projects/real"] {
            assert!(!opens(path), "{path}");
        }
        for (id, plain) in [("0b6f0c1e-8a34", true), ("../../etc", false), ("a/b/c/d/e/f", false), ("", false)] {
            assert_eq!(is_plain(id), plain, "{id}");
        }
    }
}
