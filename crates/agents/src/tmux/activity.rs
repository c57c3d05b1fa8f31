//! What the program of a pane does between turns, for the rule about work that it began by itself.

use std::time::{Duration, SystemTime};

use everloop_core::pane::{PaneDoing, PaneSighting};

use super::pane::{Pane, PaneProgram};
use super::state::State;
use super::{PaneError, PaneKey, TmuxServer};
use crate::clock::machine_period;

/// A program is at work within this time after Enter; later it has another reason.
const PROMPT_LASTS: Duration = Duration::from_secs(60);

/// A pane between turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaneSample {
    pub seen: PaneSighting,
    /// A person looks at it and may have typed by hand.
    pub attended: bool,
}

impl TmuxServer {
    /// What the program of a pane does; `None` when its screen has no meaning or it is dead.
    pub fn sample(&self, pane: &Pane) -> Result<Option<PaneSample>, PaneError> {
        if pane.kind == PaneProgram::Plain {
            return Ok(None);
        }
        let recent =
            |at: SystemTime| SystemTime::now().duration_since(at).is_ok_and(|age| age < machine_period(PROMPT_LASTS));
        let prompted = self.files.in_turn(&pane.name) || self.files.typed_at(&pane.name).is_some_and(recent);
        let doing = match self.see(pane)?.1 {
            State::Idle | State::Limited { .. } => PaneDoing::Waits,
            State::Working => PaneDoing::Works,
            State::Asking { .. } => PaneDoing::NeedsAnswer,
            State::Unknown => PaneDoing::Unknown,
            State::Dead { .. } => return Ok(None),
        };
        let attended = self.snapshot(pane)?.is_some_and(|snapshot| snapshot.attended);
        let process = (pane.process.pid, pane.process.start_ticks);
        Ok(Some(PaneSample { seen: PaneSighting { process, doing, prompted }, attended }))
    }

    /// Interrupts the work of a program.
    pub fn interrupt(&self, pane: &Pane) -> Result<(), PaneError> {
        let escape: PaneKey = "escape".parse()?;
        self.press(pane, &[escape])
    }
}
