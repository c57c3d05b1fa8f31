//! The shell tool: a command in its own process group, with a time limit and capped output. At the
//! limit all its descendants are killed: this process adopts orphans, so the tree below it is
//! complete.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use super::{MOST_OUTPUT, ToolOutcome, middle_out};
use crate::job::plain;
use crate::process;

/// Most commands need seconds; a longer limit is an argument of the call.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The longest limit of a call; longer work has to be split.
const LONGEST: Duration = Duration::from_secs(600);
/// Time to read output that is still in the pipe after the command ended; a background process may
/// hold it open for ever.
const DRAIN: Duration = Duration::from_millis(200);
/// Poll interval for the end of a command without output.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);
/// A process that SIGKILL does not end hangs in the kernel.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Where a command runs.
pub(super) struct ShellFolder<'a> {
    pub(super) dir: &'a Path,
    /// The variable that is removed from its environment.
    pub(super) hidden: Option<&'a str>,
}

/// The limit that a call requests, within the bounds.
pub(in super::super) fn timeout(input: &Value) -> Duration {
    let asked = input.get("timeout_seconds").and_then(Value::as_u64).map(Duration::from_secs);
    asked.unwrap_or(TIMEOUT).clamp(Duration::from_secs(1), LONGEST)
}

/// Runs a command to its end or to its limit.
pub(super) fn run(place: &ShellFolder<'_>, command: &str, limit: Duration) -> ToolOutcome {
    let before = below();
    let started = start(place, command);
    let (mut child, output) = match started {
        Ok(started) => started,
        Err(e) => return ToolOutcome { text: format!("error: cannot start the shell: {e}"), ok: false },
    };
    let mut kept = Kept::default();
    let status = wait(&mut child, &output, &mut kept, Instant::now() + limit);
    if status.is_none() {
        kill(&mut child, &before);
    }
    drain(&output, &mut kept);
    reap();
    let text = middle_out(&plain(&kept.bytes()));
    let end = match status {
        Some(status) if status.success() => return ToolOutcome { text: filled(text), ok: true },
        Some(status) => described(status),
        None => format!("[stopped after {} s; everything it started was killed]", limit.as_secs()),
    };
    ToolOutcome { text: format!("{text}\n{end}"), ok: false }
}

fn filled(text: String) -> String {
    if text.trim().is_empty() { "[no output]".to_owned() } else { text }
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("[exit code {code}]"),
        (None, signal) => format!("[ended by signal {}]", signal.unwrap_or_default()),
    }
}

fn start(place: &ShellFolder<'_>, command: &str) -> std::io::Result<(Child, Receiver<Vec<u8>>)> {
    let (reader, writer) = std::io::pipe()?;
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(place.dir).process_group(0);
    shell.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    if let Some(name) = place.hidden {
        shell.env_remove(name);
    }
    let child = shell.spawn()?;
    // Closes this process's copies of the writing end, so that the pipe can end.
    drop(shell);
    Ok((child, pump(reader)))
}

/// Reads in a separate thread, because no single call waits for output and exit. The thread ends
/// with the pipe or the process.
fn pump(mut reader: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(16);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(n @ 1..) = reader.read(&mut buffer) {
            if sender.send(buffer[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Waits for the end of the command; `None` at the limit.
fn wait(child: &mut Child, output: &Receiver<Vec<u8>>, kept: &mut Kept, end: Instant) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        match output.recv_timeout(RECHECK_INTERVAL) {
            Ok(piece) => kept.add(&piece),
            Err(RecvTimeoutError::Timeout) => {}
            // The command closed its output and still runs.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(RECHECK_INTERVAL),
        }
    }
}

fn drain(output: &Receiver<Vec<u8>>, kept: &mut Kept) {
    let end = Instant::now() + DRAIN;
    while let Ok(piece) = output.recv_timeout(end.saturating_duration_since(Instant::now())) {
        kept.add(&piece);
    }
}

/// All processes below this one, by pid and start time.
fn below() -> BTreeSet<(i32, u64)> {
    let us = std::process::id() as i32;
    process::descendants(us).into_iter().map(|s| (s.pid, s.start_ticks)).collect()
}

/// Kills the group, then every process below this one that was not there before, until none is
/// left.
fn kill(child: &mut Child, before: &BTreeSet<(i32, u64)>) {
    // An error means that the group is already gone.
    killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL).ok();
    let end = Instant::now() + GIVE_UP;
    let mut waited = false;
    loop {
        waited = waited || matches!(child.try_wait(), Ok(Some(_)) | Err(_));
        if waited {
            // Not earlier: the standard library collects the status of its own child.
            reap();
        }
        let us = std::process::id() as i32;
        let left: Vec<_> = process::descendants(us)
            .into_iter()
            .filter(|s| s.is_alive() && !before.contains(&(s.pid, s.start_ticks)))
            .collect();
        if waited && left.is_empty() || Instant::now() >= end {
            return;
        }
        for stat in left {
            stat.identity().signal(Signal::SIGKILL).ok();
        }
        std::thread::sleep(RECHECK_INTERVAL);
    }
}

/// Collects adopted orphans that ended.
fn reap() {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// The beginning and the end of the output.
#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    lost: u64,
}

impl Kept {
    fn add(&mut self, piece: &[u8]) {
        let room = (MOST_OUTPUT / 2).saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..room]);
        self.tail.extend(&piece[room..]);
        let over = self.tail.len().saturating_sub(MOST_OUTPUT / 2);
        self.tail.drain(..over);
        self.lost += over as u64;
    }

    fn bytes(&self) -> Vec<u8> {
        let mut all = self.head.clone();
        if self.lost > 0 {
            all.extend_from_slice(format!("\n[… {} bytes left out …]\n", self.lost).as_bytes());
        }
        all.extend(&self.tail);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_keep_their_ends() {
        let mut kept = Kept::default();
        for n in 0..100_000 {
            kept.add(format!("line {n}\n").as_bytes());
        }
        let text = String::from_utf8(kept.bytes()).unwrap();
        assert!(text.starts_with("line 0\n") && text.ends_with("line 99999\n") && text.contains("bytes left out"));
        assert!(text.len() < MOST_OUTPUT + 100);
    }

    #[test]
    fn a_limit_is_within_ours() {
        let asked = |n: i64| timeout(&serde_json::json!({"timeout_seconds": n}));
        assert_eq!((asked(5), asked(0), asked(1 << 40)), (Duration::from_secs(5), Duration::from_secs(1), LONGEST));
        assert_eq!((asked(-1), timeout(&Value::Null)), (TIMEOUT, TIMEOUT));
    }
}
