//! One prompt and its end: wait until the program is idle, type, wait until it has worked and is
//! idle again.
//!
//! Nothing is kept between two calls. A killed caller leaves an agent at work in its pane; the next
//! turn waits until that one is idle again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::pane::Pane;
use super::quiet::ScreenQuiet;
use super::state::{PaneView, State, composer};
use super::typing::is_beginning;
use super::{Finish, PaneError, SafeText, TmuxServer};
use crate::clock;

/// Poll interval: too short to be noticed, and a poll costs a few milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// Dialogs and limits are drawn in several steps; a state that lasts this long counts.
const SETTLE: Duration = Duration::from_secs(1);

/// The input of a turn.
#[derive(Clone, Debug)]
pub struct PaneTurn {
    pub prompt: SafeText,
    /// How long all of it may take.
    pub limit: Duration,
    /// Idle counts when the screen has not changed for this long.
    pub quiet: Duration,
    /// A file that a hook of the program creates at the end of a turn; then `quiet` is not waited
    /// for.
    pub stop_file: Option<PathBuf>,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaneTurnEnd {
    /// The program worked and is idle again.
    Done {
        /// The final screen.
        screen: String,
    },
    /// Limited, waiting for an answer, or dead.
    Stuck {
        state: State,
        /// The final screen.
        screen: String,
    },
    /// The time limit passed.
    TimedOut {
        /// The last state.
        state: State,
        /// The final screen.
        screen: String,
        /// Whether the prompt was typed.
        typed: bool,
    },
}

/// Polls one pane.
struct Watch<'a> {
    server: &'a TmuxServer,
    pane: &'a Pane,
    end: Instant,
    quiet: ScreenQuiet,
    /// The current state and its beginning.
    since: Option<(State, Instant)>,
}

struct Seen {
    sight: PaneView,
    state: State,
    /// How long the state has lasted.
    lasts: Duration,
    /// How long the screen has been unchanged.
    quiet: Duration,
}

impl Watch<'_> {
    fn look(&mut self) -> Result<Seen, PaneError> {
        let (sight, state) = self.server.see(self.pane)?;
        let now = Instant::now();
        let quiet = self.quiet.look(&sight.screen, now);
        let since = match self.since.take() {
            Some((last, since)) if last == state => since,
            _ => now,
        };
        self.since = Some((state.clone(), since));
        Ok(Seen { sight, state, lasts: now.saturating_duration_since(since), quiet })
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }
}

impl Seen {
    /// Whether it will not continue without a person.
    fn is_stuck(&self) -> bool {
        match self.state {
            State::Dead { .. } => true,
            State::Limited { .. } | State::Asking { .. } => self.lasts >= SETTLE,
            State::Idle | State::Working | State::Unknown => false,
        }
    }

    fn stuck(self) -> PaneTurnEnd {
        PaneTurnEnd::Stuck { state: self.state, screen: self.sight.screen }
    }
}

impl TmuxServer {
    /// Runs one turn. Only one at a time in a pane.
    pub fn turn(&self, pane: &Pane, turn: &PaneTurn) -> Result<PaneTurnEnd, PaneError> {
        let _lock = self.files.lock_turn(&pane.name)?;
        let end = Instant::now() + clock::machine_period(turn.limit);
        let mut watch = Watch { server: self, pane, end, quiet: ScreenQuiet::default(), since: None };
        let before = loop {
            let seen = watch.look()?;
            if seen.is_stuck() {
                return Ok(seen.stuck());
            }
            if seen.state == State::Idle {
                break seen.sight;
            }
            if watch.is_over() {
                return Ok(PaneTurnEnd::TimedOut { state: seen.state, screen: seen.sight.screen, typed: false });
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        if let Some(path) = &turn.stop_file {
            forget(path)?;
        }
        match self.type_text(pane, &turn.prompt, Finish::Enter) {
            // It ended during the typing; that is a result and not a failure.
            Err(PaneError::Dead { .. }) => Ok(watch.look()?.stuck()),
            Err(e) => Err(e),
            Ok(_) => watch.until_done(turn, &before),
        }
    }
}

impl Watch<'_> {
    fn until_done(&mut self, turn: &PaneTurn, before: &PaneView) -> Result<PaneTurnEnd, PaneError> {
        let mut began = false;
        loop {
            let seen = self.look()?;
            if seen.is_stuck() {
                return Ok(seen.stuck());
            }
            let stopped = turn.stop_file.as_deref().is_some_and(|p| fs::exists(p).unwrap_or(false));
            let waits = composer(self.pane.kind, &seen.sight.screen)
                .is_some_and(|box_text| is_beginning(&box_text, turn.prompt.as_str()));
            // A short turn may never be seen at work; then the changed screen and the empty box
            // have to suffice.
            began |= seen.state == State::Working || seen.sight.screen != before.screen && !waits;
            let calm = stopped || began && !waits && seen.quiet >= turn.quiet;
            if seen.state == State::Idle && calm {
                return Ok(PaneTurnEnd::Done { screen: seen.sight.screen });
            }
            if self.is_over() {
                return Ok(PaneTurnEnd::TimedOut { state: seen.state, screen: seen.sight.screen, typed: true });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A file of an earlier turn must not end this one.
fn forget(path: &Path) -> Result<(), PaneError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(PaneError::io("remove", path)(e)),
        _ => Ok(()),
    }
}
