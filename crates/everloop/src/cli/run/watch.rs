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
use everloop_engine::supervisor::Watcher;
use jiff::tz::TimeZone;

use crate::ui::live::{Live, LiveFacts, frame};
use crate::ui::{Format, Ui, event_line};

/// The view is drawn this often.
const BEAT: Duration = Duration::from_millis(500);

pub struct Foreground<'a> {
    ui: &'a Ui,
    id: LoopId,
    zone: TimeZone,
    live: Option<Live<Stderr>>,
    no_wait: bool,
    held: Option<Code>,
}

impl<'a> Foreground<'a> {
    pub fn new(ui: &'a Ui, id: LoopId, no_wait: bool) -> Self {
        Self { ui, id, zone: TimeZone::system(), live: ui.live(), no_wait, held: None }
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

    /// Prints one line per event.
    pub fn say(&mut self, record: &JournalRecord) {
        let line = event_line(record, &self.zone);
        match &mut self.live {
            // A lost terminal is no reason to stop.
            Some(live) => drop(live.print(&[line])),
            None if self.ui.format() == Format::Json => drop(self.ui.json(record)),
            None => self.ui.talk(&line),
        }
    }

    pub fn draw(&mut self, state: &LoopState, evidence: Option<Duration>, now: Time) {
        let Some(live) = &mut self.live else { return };
        let facts = LiveFacts { now, zone: self.zone.clone(), evidence, paint: self.ui.talk_paint() };
        drop(live.draw(&frame(state, &facts, self.ui.width())));
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
        }
    }

    fn beats(&self) -> Option<Duration> {
        self.live.as_ref().map(|_| BEAT)
    }

    fn wants_to_go(&self) -> bool {
        self.held.is_some()
    }
}
