//! One prompt and its end: wait until the program is idle, type, wait until it has worked and is idle again.
//!
//! Nothing is remembered between two calls. A caller that is killed in the middle leaves an agent at work in its pane;
//! the next turn waits until that one is idle again.

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

/// Between two looks: a person would not notice, and a look costs a few milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// Dialogs and limits are drawn in several steps; what is seen for this long is meant.
const SETTLE: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct PaneTurn {
    /// What the program is told.
    pub prompt: SafeText,
    /// How long all of it may take.
    pub limit: Duration,
    /// Idle counts when the screen has not changed for this long.
    pub quiet: Duration,
    /// A file that a hook of the program makes when a turn has ended; then `quiet` need not be waited for.
    pub stop_file: Option<PathBuf>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaneTurnEnd {
    /// The program worked and is idle again.
    Done {
        /// What it shows.
        screen: String,
    },
    /// Limited, asking or dead.
    Stuck {
        /// Which of them.
        state: State,
        /// What it shows.
        screen: String,
    },
    /// The time is over.
    TimedOut {
        /// What it was doing.
        state: State,
        /// What it shows.
        screen: String,
        /// Whether the prompt was typed.
        typed: bool,
    },
}

/// Looks at one pane again and again.
struct Watch<'a> {
    server: &'a TmuxServer,
    pane: &'a Pane,
    end: Instant,
    quiet: ScreenQuiet,
    /// Since when the state is what it is.
    since: Option<(State, Instant)>,
}

/// One look.
struct Seen {
    sight: PaneView,
    state: State,
    /// For how long the state is this one.
    lasts: Duration,
    /// For how long the screen is this one.
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
    /// It will not go on without somebody.
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
            // It ended while we typed; that is an ending and no mistake.
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
            // A short turn may never be seen at work; then the changed screen and the empty box have to do.
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
