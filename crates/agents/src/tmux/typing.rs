//! The only way in: the text as one bracketed paste, a pause, Enter as a separate key, and a check
//! of the result.
//!
//! `send-keys` would drop a trailing `;`, take `-x` for a flag and `Enter` for a key. And before
//! each write the identity of the pane is verified, once here (process, start time) and once by
//! tmux in the same command as the write: a paste into a pane whose program has ended crashes tmux
//! 3.3a with all panes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::call::TmuxCall;
use super::files::mark_typed;
use super::pane::{Pane, PaneProgram};
use super::state::{State, composer, holds, is_beginning};
use super::{PaneError, PaneKey, SafeText, TmuxServer};

/// Codex takes an Enter within 120 ms after text for a part of that text.
const PAUSE: Duration = Duration::from_millis(200);
/// A long paste takes the program time: one more millisecond per this many bytes.
const BYTES_PER_MS: usize = 1024;
/// How long a screen may take to show the typed text. One with echo off never does.
const ECHO_LIMIT: Duration = Duration::from_millis(1500);
/// How long a program may take to clear its input box after Enter.
const SUBMIT_LIMIT: Duration = Duration::from_secs(3);
/// Enter is repeated while the text is still in the box; a program that ignores three will ignore a
/// fourth.
const ENTERS: u32 = 3;
/// Poll interval for the screen.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What follows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Enter: the program gets it.
    Enter,
    /// Nothing: it stays in the input line.
    Nothing,
}

/// The result of typing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    pub bytes: usize,
    /// How often Enter was pressed.
    pub enters: u32,
    /// Whether the screen changed after the paste. A program that does not echo shows nothing.
    pub shown: bool,
}

impl TmuxServer {
    /// Types text into a pane of everloop or a lent one. A program with a known screen gets it only
    /// while it waits for a prompt: in a dialog Enter would take the marked choice.
    pub fn type_text(&self, pane: &Pane, text: &SafeText, finish: Finish) -> Result<Typed, PaneError> {
        let lock = self.files.lock(&pane.name)?;
        self.require_idle(pane)?;
        mark_typed(&lock);
        let mut typed = Typed { bytes: text.as_str().len(), enters: 0, shown: false };
        if !text.as_str().is_empty() {
            let before = self.screen(pane).unwrap_or_default();
            self.paste(pane, text)?;
            std::thread::sleep(PAUSE + Duration::from_millis((text.as_str().len() / BYTES_PER_MS) as u64));
            typed.shown = self.wait_until(ECHO_LIMIT, || Ok(self.screen(pane)? != before))?;
        }
        match finish {
            Finish::Nothing => {
                self.check(pane)?;
            }
            Finish::Enter => typed.enters = self.submit(pane, text)?,
        }
        Ok(typed)
    }

    /// The screen of a plain program has no meaning, so any of them may be typed into.
    fn require_idle(&self, pane: &Pane) -> Result<(), PaneError> {
        self.check(pane)?;
        match (pane.kind, self.see(pane)?.1) {
            (PaneProgram::Plain, _) | (_, State::Idle) => Ok(()),
            (_, State::Dead { .. }) => Err(PaneError::Dead { name: pane.name.to_string() }),
            (_, state) => Err(PaneError::NotIdle { name: pane.name.to_string(), state }),
        }
    }

    /// Whether Enter is still needed: a program that reads line by line is at work already. A dialog
    /// may have come up since the text was pasted; then no Enter is pressed.
    fn needs_enter(&self, pane: &Pane, text: &SafeText) -> Result<bool, PaneError> {
        match (pane.kind, self.see(pane)?) {
            (PaneProgram::Plain, _) | (_, (_, State::Idle)) => Ok(true),
            (kind, (sight, State::Working)) if !holds(kind, &sight.screen, text.as_str()) => Ok(false),
            // A prompt that begins with a list looks like a menu.
            (kind, (sight, State::Unknown)) if holds(kind, &sight.screen, text.as_str()) => Ok(true),
            (_, (_, State::Dead { .. })) => Err(PaneError::Dead { name: pane.name.to_string() }),
            (_, (_, state)) => Err(PaneError::Unsent { name: pane.name.to_string(), state }),
        }
    }

    /// Presses keys, one after the other, whatever the screen shows: an explicit answer of a person.
    pub fn press(&self, pane: &Pane, keys: &[PaneKey]) -> Result<(), PaneError> {
        let lock = self.files.lock(&pane.name)?;
        mark_typed(&lock);
        for key in keys {
            self.write(pane, &format!("send-keys -t {} {}", pane.id(), key.as_tmux()))?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// tmux has no empty buffers, so the caller skips empty text.
    fn paste(&self, pane: &Pane, text: &SafeText) -> Result<(), PaneError> {
        self.check(pane)?;
        let buffer = buffer_name();
        let socket = self.socket_of(pane);
        let load = ["load-buffer", "-b", &buffer, "-"];
        TmuxCall { socket, what: "take the text", args: &load, stdin: text.as_str().as_bytes() }.run()?;
        let written = self.write(pane, &format!("paste-buffer -p -d -b {buffer} -t {}", pane.id()));
        if written.is_err() {
            let args = ["delete-buffer", "-b", &buffer];
            // Best effort: the first error is the one to report, and the server may be gone.
            TmuxCall { socket, what: "drop the text", args: &args, stdin: &[] }.run().ok();
        }
        written
    }

    fn submit(&self, pane: &Pane, text: &SafeText) -> Result<u32, PaneError> {
        for pressed in 1..=ENTERS {
            if !self.needs_enter(pane, text)? {
                return Ok(pressed - 1);
            }
            self.write(pane, &format!("send-keys -t {} Enter", pane.id()))?;
            if pane.kind == PaneProgram::Plain || self.wait_until(SUBMIT_LIMIT, || self.is_taken(pane, text))? {
                return Ok(pressed);
            }
        }
        Ok(ENTERS)
    }

    /// Whether the program took the text: it is no longer in the input box, or the program is at
    /// work.
    fn is_taken(&self, pane: &Pane, text: &SafeText) -> Result<bool, PaneError> {
        let (sight, state) = self.see(pane)?;
        Ok(match state {
            State::Working | State::Asking { .. } | State::Limited { .. } | State::Dead { .. } => true,
            State::Idle | State::Unknown => {
                composer(pane.kind, &sight.screen).is_none_or(|c| !is_beginning(&c, text.as_str()))
            }
        })
    }

    /// Runs one constant command, which reaches the pane only if it is still the same one.
    fn write(&self, pane: &Pane, command: &str) -> Result<(), PaneError> {
        let snapshot = self.check(pane)?;
        let socket = self.socket_of(pane);
        if snapshot.in_mode {
            // A pane of everloop that was left scrolled back: keys would go to tmux.
            let args = ["copy-mode", "-q", "-t", pane.id()];
            TmuxCall { socket, what: "leave the history", args: &args, stdin: &[] }.run()?;
        }
        let same = format!(
            "#{{&&:#{{==:#{{pid}},{}}},#{{&&:#{{==:#{{pane_pid}},{}}},#{{!=:#{{pane_dead}},1}}}}}}",
            pane.server.pid, pane.process.pid
        );
        let done = format!("{command} ; display-message -p done");
        let args = ["if-shell", "-F", "-t", pane.id(), &same, &done];
        let said = TmuxCall { socket, what: "type into a pane", args: &args, stdin: &[] }.run()?;
        if said.trim() == "done" {
            return Ok(());
        }
        Err(PaneError::NotOurs { name: pane.name.to_string(), why: "it changed at the very moment of typing" })
    }

    #[expect(clippy::unused_self, reason = "reads better beside the checks that it makes")]
    fn wait_until(
        &self,
        limit: Duration,
        mut holds: impl FnMut() -> Result<bool, PaneError>,
    ) -> Result<bool, PaneError> {
        let end = Instant::now() + limit;
        loop {
            if holds()? {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A unique name, also when several threads type.
fn buffer_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("everloop-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_holds_something_else_was_cleared() {
        assert!(is_beginning("do the th", "do the thing\nand more"));
        assert!(is_beginning("do it", "\n do it\n"));
        assert!(is_beginning("[Pasted text #1 +40 lines]", "a\nb"));
        assert!(!is_beginning("", "do it"));
        assert!(!is_beginning("Ask Codex to do anything", "do it"));
    }
}
