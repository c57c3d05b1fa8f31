//! The output of `run`: a view that stays in place on a terminal, plain lines otherwise.

use std::io::Stderr;
use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::journal::JournalRecord;
use everloop_core::reason::RuleId;
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_engine::error::Code;
use everloop_engine::supervisor::{StopStep, Watcher};
use jiff::tz::TimeZone;

use crate::ui::live::{Live, LiveFacts, frame};
use crate::ui::{EventLines, Format, LogDetail, Ui};

/// The view is drawn this often.
const BEAT: Duration = Duration::from_millis(500);

/// What to do while the guard or a person holds the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPolicy {
    Wait,
    End,
}

pub struct Foreground<'a> {
    ui: &'a Ui,
    id: LoopId,
    zone: TimeZone,
    live: Option<Live<Stderr>>,
    lines: EventLines,
    no_wait: bool,
    held: Option<Code>,
}

impl<'a> Foreground<'a> {
    pub fn new(ui: &'a Ui, id: LoopId, detail: LogDetail, wait: HoldPolicy) -> Self {
        let (lines, no_wait) = (EventLines::new(detail), wait == HoldPolicy::End);
        Self { ui, id, zone: TimeZone::system(), live: ui.live(), lines, no_wait, held: None }
    }

    /// The exit code of a held loop, with `--no-wait`.
    pub fn held(&self) -> Option<Code> {
        self.held
    }

    /// Clears the view.
    pub fn finish(&mut self) {
        if let Some(live) = &mut self.live {
            drop(live.clear());
        }
    }

    /// Prints what is to be said of an event.
    pub fn say(&mut self, record: &JournalRecord) {
        if self.live.is_none() && self.ui.format() == Format::Json {
            return drop(self.ui.json(record));
        }
        let lines = self.lines.of(record);
        match &mut self.live {
            // A lost terminal is no reason to stop.
            Some(live) => drop(live.print(&lines)),
            None => lines.iter().for_each(|line| self.ui.talk(line)),
        }
    }

    pub fn draw(&mut self, state: &LoopState, evidence: Option<Duration>, now: Time) {
        let Some(live) = &mut self.live else { return };
        let facts = LiveFacts { now, zone: self.zone.clone(), evidence, paint: self.ui.talk_paint() };
        drop(live.draw(&frame(state, &facts, self.ui.width())));
    }

    /// Prints a line that is not an event.
    fn note(&mut self, line: &str) {
        match &mut self.live {
            Some(live) => drop(live.print(&[line.to_owned()])),
            None => self.ui.talk(line),
        }
    }

    /// This process ends, and another one goes on with the loop.
    pub fn leaves(&mut self) {
        let id = self.id.clone();
        self.note(&format!(
            "leaving; its supervisor goes on with loop {id}: `everloop status` shows it, `everloop stop --now {id}` stops it"
        ));
    }

    fn look_for_hold(&mut self, state: &LoopState) {
        if !self.no_wait {
            return;
        }
        self.held = match &state.phase {
            Phase::Waiting { reason, .. } if reason.rule == RuleId::GuardFreeze => Some(Code::Held),
            Phase::Waiting { reason, .. } if reason.rule == RuleId::Paused => Some(Code::NeedsPerson),
            _ => None,
        };
    }
}

impl Watcher for Foreground<'_> {
    fn committed(&mut self, state: &LoopState, events: &[Event], at: Time) {
        if state.id != self.id {
            return;
        }
        for event in events {
            let owner = Some(state.id.clone());
            let version = everloop_core::event::EVENT_VERSION;
            self.say(&JournalRecord { seq: 0, at, owner, version, event: event.clone() });
        }
        self.draw(state, None, at);
        self.look_for_hold(state);
    }

    fn beat(&mut self, state: &LoopState, evidence: Option<Duration>, now: Time) {
        if state.id == self.id {
            self.draw(state, evidence, now);
            self.look_for_hold(state);
        }
    }

    fn beats(&self) -> Option<Duration> {
        self.live.as_ref().map(|_| BEAT)
    }

    fn stopping(&mut self, step: StopStep) {
        self.note(match step {
            StopStep::AfterTurn => "ends after this turn; Ctrl-C again stops the agent now",
            StopStep::Agent => "stopping the agent, nothing is lost; Ctrl-C again leaves at once",
            StopStep::Leave => "leaving at once; the next `everloop run` or `everloop up` finds the turn again",
        });
    }

    fn wants_to_go(&self) -> bool {
        self.held.is_some()
    }
}
