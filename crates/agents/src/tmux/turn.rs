//! One prompt and its end: wait until the program is idle, type, wait until it has worked and is
//! idle again.
//!
//! Nothing is kept between two calls. A killed caller leaves an agent at work in its pane; the next
//! turn waits until that one is idle again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use everloop_core::stream::{Usage, VendorLimit};

use super::pane::Pane;
use super::quiet::ScreenQuiet;
use super::state::{PaneView, State, composer, is_beginning};
use super::usage::UsageMeter;
use super::{Finish, PaneError, SafeText, TmuxServer};
use crate::clock;

/// Poll interval: too short to be noticed, and a poll costs a few milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// The transcript is read this often: a cap on tokens holds within a turn.
const METER_INTERVAL: Duration = Duration::from_secs(1);
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
    /// How long a question of the program may wait for a person.
    pub answer_within: Duration,
}

/// What happens in a turn before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaneNews<'a> {
    /// The program waits for an answer, in its own words.
    Asks(&'a str),
    /// A person answered.
    GoesOn,
    /// The session used this, besides what was reported before.
    Used(Usage),
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
        /// The limit, of a program that is limited.
        limit: Option<VendorLimit>,
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
    pane: Pane,
    end: Instant,
    quiet: ScreenQuiet,
    /// The current state and its beginning.
    since: Option<(State, Instant)>,
    /// How long a question may wait.
    answer_within: Duration,
    /// The reported question.
    asked: Option<String>,
    meter: UsageMeter,
    /// When the meter was read.
    metered: Instant,
    news: &'a mut dyn FnMut(PaneNews<'_>),
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
        let (sight, state) = self.server.see(&self.pane)?;
        self.server.forget_past_limit(&mut self.pane, &sight)?;
        let now = Instant::now();
        let quiet = self.quiet.look(&sight.screen, now);
        let since = match self.since.take() {
            Some((last, since)) if last == state => since,
            _ => now,
        };
        self.since = Some((state.clone(), since));
        let seen = Seen { sight, state, lasts: now.saturating_duration_since(since), quiet };
        self.report(&seen);
        if now.saturating_duration_since(self.metered) >= METER_INTERVAL {
            self.report_usage();
        }
        Ok(seen)
    }

    fn report_usage(&mut self) {
        self.metered = Instant::now();
        let used = self.meter.read(&self.pane);
        if used != Usage::default() {
            (self.news)(PaneNews::Used(used));
        }
    }

    /// A question is reported once, and so is its end.
    fn report(&mut self, seen: &Seen) {
        match &seen.state {
            State::Asking { question } if seen.lasts >= SETTLE && self.asked.as_ref() != Some(question) => {
                (self.news)(PaneNews::Asks(question));
                self.asked = Some(question.clone());
            }
            // Between two screens nothing may be recognised.
            State::Asking { .. } | State::Unknown => {}
            State::Idle | State::Working | State::Limited { .. } | State::Dead { .. } => {
                if self.asked.take().is_some() {
                    (self.news)(PaneNews::GoesOn);
                }
            }
        }
    }

    /// Whether it will not continue without a person, or for longer than one may take.
    fn is_stuck(&self, seen: &Seen) -> bool {
        match seen.state {
            State::Dead { .. } => true,
            State::Limited { .. } => seen.lasts >= SETTLE,
            State::Asking { .. } => seen.lasts >= SETTLE.max(self.answer_within),
            State::Idle | State::Working | State::Unknown => false,
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    fn stuck(&mut self, seen: Seen) -> Result<PaneTurnEnd, PaneError> {
        let limit = self.server.record_limit(&mut self.pane, &seen.state)?;
        Ok(PaneTurnEnd::Stuck { state: seen.state, limit, screen: seen.sight.screen })
    }
}

impl TmuxServer {
    /// Runs one turn. Only one at a time in a pane. A question of the program is reported and waits
    /// for a person; nothing is typed into it.
    pub fn turn(
        &self,
        pane: &Pane,
        turn: &PaneTurn,
        news: &mut dyn FnMut(PaneNews<'_>),
    ) -> Result<PaneTurnEnd, PaneError> {
        let _lock = self.files.lock_turn(&pane.name)?;
        let end = Instant::now() + clock::machine_period(turn.limit);
        let answer_within = clock::machine_period(turn.answer_within);
        let quiet = ScreenQuiet::default();
        let pane = self.permitted(pane)?;
        let (meter, metered) = (UsageMeter::new(&pane), Instant::now());
        let mut watch =
            Watch { server: self, pane, end, quiet, since: None, answer_within, asked: None, meter, metered, news };
        let ended = watch.take_turn(turn);
        watch.report_usage();
        ended
    }
}

impl Watch<'_> {
    fn take_turn(&mut self, turn: &PaneTurn) -> Result<PaneTurnEnd, PaneError> {
        loop {
            let before = match self.until_idle()? {
                Ready::Idle(sight) => sight,
                Ready::Ended(end) => return Ok(end),
            };
            if let Some(path) = &turn.stop_file {
                forget(path)?;
            }
            match self.server.type_text(&self.pane, &turn.prompt, Finish::Enter) {
                // It ended during the typing; that is a result and not a failure.
                Err(PaneError::Dead { .. }) => {
                    let seen = self.look()?;
                    return self.stuck(seen);
                }
                // Another screen came up at that very moment, and nothing was sent.
                Err(PaneError::NotIdle { .. }) if !self.is_over() => {}
                Err(e) => return Err(e),
                Ok(_) => return self.until_done(turn, &before),
            }
        }
    }
}

/// What came of waiting for the idle state.
enum Ready {
    Idle(PaneView),
    Ended(PaneTurnEnd),
}

impl Watch<'_> {
    fn until_idle(&mut self) -> Result<Ready, PaneError> {
        loop {
            let seen = self.look()?;
            if self.is_stuck(&seen) {
                return self.stuck(seen).map(Ready::Ended);
            }
            if seen.state == State::Idle {
                return Ok(Ready::Idle(seen.sight));
            }
            if self.is_over() {
                let (state, screen) = (seen.state, seen.sight.screen);
                return Ok(Ready::Ended(PaneTurnEnd::TimedOut { state, screen, typed: false }));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn until_done(&mut self, turn: &PaneTurn, before: &PaneView) -> Result<PaneTurnEnd, PaneError> {
        let mut began = false;
        loop {
            let seen = self.look()?;
            if self.is_stuck(&seen) {
                return self.stuck(seen);
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
