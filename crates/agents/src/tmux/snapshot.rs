//! A snapshot of a pane, and whether it is still the recorded one. Taken immediately before every
//! write.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::call::TmuxCall;
use super::pane::{Pane, PaneOrigin, PaneProgram};
use super::server::gone;
use super::{PaneError, TmuxServer};
use crate::process::Identity;

/// The title comes last: the program sets it, and it may contain anything but a line break.
const FORMAT: &str = "#{pid}|#{pane_pid}|#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}|#{pane_in_mode}|\
#{pane_synchronized}|#{pane_input_off}|#{window_activity}|#{session_attached}|#{pane_title}";

/// tmux's record of a pane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PaneSnapshot {
    server_pid: i32,
    pane_pid: i32,
    pub(super) dead: bool,
    /// Exit code of a program that ended by itself.
    pub(super) status: Option<i32>,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
    /// The pane is scrolled back; keys go to tmux then.
    pub(super) in_mode: bool,
    synchronized: bool,
    input_off: bool,
    activity_s: u64,
    /// A person looks at its session.
    pub(super) attended: bool,
    pub(super) title: String,
}

impl PaneSnapshot {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.trim_end_matches('\n').splitn(11, '|').collect();
        let flag = |i: usize| fields.get(i).is_some_and(|f| *f == "1");
        Some(Self {
            server_pid: fields.first()?.parse().ok()?,
            pane_pid: fields.get(1)?.parse().ok()?,
            dead: flag(2),
            status: fields.get(3)?.parse().ok(),
            signal: fields.get(4)?.parse().ok(),
            in_mode: flag(5),
            synchronized: flag(6),
            input_off: flag(7),
            activity_s: fields.get(8)?.parse().unwrap_or(0),
            attended: fields.get(9).is_some_and(|clients| *clients != "0"),
            title: (*fields.get(10)?).to_owned(),
        })
    }

    /// How long nothing was printed, to the second.
    pub(super) fn silent_for(&self) -> Duration {
        let since = UNIX_EPOCH + Duration::from_secs(self.activity_s);
        // A clock that was set back makes it look fresh, and then it is polled again.
        SystemTime::now().duration_since(since).unwrap_or_default()
    }
}

impl TmuxServer {
    /// tmux's record of the pane; `None` when the server or the pane is gone, or its id belongs to
    /// another pane.
    pub(super) fn snapshot(&self, pane: &Pane) -> Result<Option<PaneSnapshot>, PaneError> {
        let args = ["display-message", "-p", "-t", pane.id(), FORMAT];
        let said = TmuxCall { socket: self.socket_of(pane), what: "look at a pane", args: &args, stdin: &[] }.run();
        let snapshot = match said {
            Ok(line) => PaneSnapshot::parse(&line),
            // No server, or no such pane.
            Err(PaneError::Refused { .. }) => None,
            Err(e) => return Err(e),
        };
        Ok(snapshot.filter(|g| g.server_pid == pane.server.pid && pane.server.is_alive()))
    }

    /// Verifies that it is the same pane with the same program in front, and that keys reach that
    /// program alone.
    pub(super) fn check(&self, pane: &Pane) -> Result<PaneSnapshot, PaneError> {
        let not_ours = |why| Err(PaneError::NotOurs { name: pane.name.to_string(), why });
        let Some(snapshot) = self.snapshot(pane)? else {
            return Err(gone(pane));
        };
        if snapshot.pane_pid != pane.process.pid {
            return not_ours("another process runs in it than the one that everloop knows");
        }
        if snapshot.dead {
            return Err(PaneError::Dead { name: pane.name.to_string() });
        }
        if !pane.process.is_alive() {
            return not_ours("its process is another one with the same number, or has ended");
        }
        if !in_front(pane) {
            return not_ours("another program has the terminal now");
        }
        if snapshot.synchronized {
            return not_ours("its window sends keys to all of its panes (`synchronize-panes`)");
        }
        if snapshot.input_off {
            return not_ours("its input is switched off (`select-pane -d`)");
        }
        if snapshot.in_mode && matches!(pane.origin, PaneOrigin::Adopted { .. }) {
            return not_ours("its history is being read (copy mode)");
        }
        Ok(snapshot)
    }
}

/// Whether the program that is typed to has the terminal; behind an ended agent there may be a
/// shell.
pub(super) fn in_front(pane: &Pane) -> bool {
    let front = foreground(pane.process.pid);
    match (&pane.origin, pane.kind) {
        (PaneOrigin::Adopted { foreground, .. }, _) => front == Some(foreground.pid) && foreground.is_alive(),
        (PaneOrigin::Started(_), PaneProgram::Claude | PaneProgram::Codex) => front == Some(pane.process.pid),
        // A shell that was started on purpose passes its terminal to its commands.
        (PaneOrigin::Started(_), PaneProgram::Plain) => true,
    }
}

/// The process group that has the terminal of this process.
pub(super) fn foreground(pid: i32) -> Option<i32> {
    let line = fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let close = line.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(5)?.parse().ok().filter(|group| *group > 0)
}

/// The leader of the group that has the terminal.
pub(super) fn foreground_process(pid: i32) -> Option<Identity> {
    Identity::of(foreground(pid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_with_separators_shifts_nothing() {
        let snapshot = PaneSnapshot::parse("10|20|1|7||0|0|1|1700000000|2|a|b|1\n").unwrap();
        assert_eq!((snapshot.server_pid, snapshot.pane_pid, snapshot.dead, snapshot.status), (10, 20, true, Some(7)));
        assert!(snapshot.input_off && !snapshot.synchronized && snapshot.attended);
        assert_eq!(snapshot.title, "a|b|1");
        assert_eq!(PaneSnapshot::parse("10||0|||0|0|0|||"), None, "a pane that is not there");
    }
}
