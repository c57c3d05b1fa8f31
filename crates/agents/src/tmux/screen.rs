//! The content of a pane. It is the text of an untrusted program: its wording never decides
//! anything.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::call::TmuxCall;
use super::pane::{Pane, PaneOrigin, PaneProgram};
use super::server::gone;
use super::snapshot::{PaneSnapshot, foreground, in_front};
use super::state::{PaneView, State, detect};
use super::{PaneError, TmuxServer, session};

/// A plain program that has printed nothing for this long waits for input. tmux counts in whole
/// seconds.
const PLAIN_SILENCE: Duration = Duration::from_secs(3);

/// How long tmux may take to notice the end of a program; one that closed its terminal and lives on
/// never ends.
const STATUS_LIMIT: Duration = Duration::from_secs(1);
/// Poll interval for the exit status.
const STATUS_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whether colours are part of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    Plain,
    /// With the sequences that set colours, and no others.
    Escaped,
}

/// What is to be captured.
#[derive(Clone, Copy, Debug)]
pub struct ScreenCapture {
    pub colours: Colours,
    /// Lines of history above the screen.
    pub history: u32,
}

impl TmuxServer {
    /// The content of the pane; also when its program has ended.
    pub fn read(&self, pane: &Pane, capture: ScreenCapture) -> Result<String, PaneError> {
        if self.snapshot(pane)?.is_none() {
            return Err(gone(pane));
        }
        let start = format!("-{}", capture.history);
        let mut args = vec!["capture-pane", "-p", "-t", pane.id()];
        if capture.history > 0 {
            args.extend(["-S", &start]);
        }
        if capture.colours == Colours::Escaped {
            args.push("-e");
        }
        let said = TmuxCall { socket: self.socket_of(pane), what: "read a pane", args: &args, stdin: &[] }.run()?;
        Ok(match capture.colours {
            Colours::Plain => said,
            Colours::Escaped => only_colours(&said),
        })
    }

    /// The visible screen, text only.
    pub(super) fn screen(&self, pane: &Pane) -> Result<String, PaneError> {
        self.read(pane, ScreenCapture { colours: Colours::Plain, history: 0 })
    }

    /// The visible state of a pane.
    pub fn see(&self, pane: &Pane) -> Result<(PaneView, State), PaneError> {
        let Some(snapshot) = self.snapshot(pane)? else {
            return Ok((PaneView::default(), State::Dead { status: None }));
        };
        let screen = match self.screen(pane) {
            // It vanished between the two calls.
            Err(PaneError::NotOurs { .. } | PaneError::Refused { .. }) => {
                return Ok((PaneView::default(), State::Dead { status: None }));
            }
            other => other?,
        };
        let session = match pane.kind {
            PaneProgram::Claude if !snapshot.dead => session::find(pane),
            PaneProgram::Claude | PaneProgram::Codex | PaneProgram::Plain => None,
        };
        let past_limit = pane.past_limit().map(str::to_owned);
        let sight = PaneView { title: snapshot.title.clone(), screen, session, past_limit };
        if snapshot.dead {
            return Ok((sight, State::Dead { status: self.exit_status(pane, snapshot)? }));
        }
        if matches!(pane.origin, PaneOrigin::Adopted { .. }) && !in_front(pane) {
            return Ok((sight, State::Dead { status: None }));
        }
        let state = match pane.kind {
            PaneProgram::Claude | PaneProgram::Codex => detect(pane.kind, &sight),
            PaneProgram::Plain if foreground(pane.process.pid) != Some(front(pane)) => State::Working,
            PaneProgram::Plain if snapshot.silent_for() < PLAIN_SILENCE => State::Working,
            PaneProgram::Plain => State::Idle,
        };
        Ok((sight, state))
    }

    /// Exit status of the program of a dead pane, as a shell counts it: 128 plus the signal. tmux
    /// notices the closed terminal before the end of the program, and sometimes (3.3a) it misses
    /// SIGCHLD: then the program stays a zombie until another child of the server ends. So SIGCHLD
    /// is sent to the private server once more.
    fn exit_status(&self, pane: &Pane, snapshot: PaneSnapshot) -> Result<Option<i32>, PaneError> {
        let end = Instant::now() + STATUS_LIMIT;
        let mut snapshot = Some(snapshot);
        while let Some(now) = snapshot {
            let status = now.status.or(now.signal.map(|s| 128 + s));
            if status.is_some() || !now.dead || Instant::now() >= end {
                return Ok(status);
            }
            if matches!(pane.origin, PaneOrigin::Started(_)) && !pane.process.is_alive() {
                // Best effort: without it the status stays unknown, but the program is dead either
                // way.
                pane.server.signal(Signal::SIGCHLD).ok();
            }
            std::thread::sleep(STATUS_POLL_INTERVAL);
            snapshot = self.snapshot(pane)?;
        }
        Ok(None)
    }
}

/// The program that waits for input; while another one has the terminal it works.
fn front(pane: &Pane) -> i32 {
    match &pane.origin {
        PaneOrigin::Started(_) => pane.process.pid,
        PaneOrigin::Adopted { foreground, .. } => foreground.pid,
    }
}

/// Keeps `ESC [ … m` and removes every other control character but line feeds and tabs.
fn only_colours(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = rest.strip_prefix("\u{1b}[").and_then(|tail| {
            let end = tail.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':')?;
            tail[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
        });
        let taken = colour.unwrap_or(c.len_utf8());
        if colour.is_some() || !c.is_control() || c == '\n' || c == '\t' {
            safe.push_str(&rest[..taken]);
        }
        rest = &rest[taken..];
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_survive() {
        let dirty = "\u{1b}[1;31mred\u{1b}[0m \u{1b}]8;;http://x\u{1b}\\link\u{1b}[2J\u{7}\u{9b}1m\n\u{1b}[";
        assert_eq!(only_colours(dirty), "\u{1b}[1;31mred\u{1b}[0m ]8;;http://x\\link[2J1m\n[");
    }
}
