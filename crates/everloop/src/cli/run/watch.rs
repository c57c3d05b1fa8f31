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
use everloop_engine::services::speech::Speech;
use everloop_engine::state_folder::StateFolder;
use everloop_engine::supervisor::{StopStep, Watcher};
use jiff::tz::TimeZone;

use crate::ui::events::spoken;
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
    /// The workers of a research run; the first one is the run.
    team: &'a [LoopId],
    detail: LogDetail,
    zone: TimeZone,
    live: Option<Live<Stderr>>,
    lines: EventLines,
    speech: Speech,
    /// Whether everything that the agent says is printed.
    follow: FollowAgent,
    said: Option<String>,
    no_wait: bool,
    held: Option<Code>,
}

/// How much of what the agent says is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowAgent {
    /// Its last line, in the live view.
    LastLine,
    All,
}

/// How a `run` shows its loop.
#[derive(Clone, Copy, Debug)]
pub struct ForegroundStyle {
    pub detail: LogDetail,
    pub wait: HoldPolicy,
    pub follow: FollowAgent,
}

impl<'a> Foreground<'a> {
    /// Shows a loop, or a research run with all its workers.
    pub fn new(ui: &'a Ui, team: &'a [LoopId], home: &StateFolder, style: ForegroundStyle) -> Self {
        Self {
            ui,
            id: team.first().cloned().unwrap_or_else(|| LoopId::new("")),
            team,
            detail: style.detail,
            zone: TimeZone::system(),
            live: ui.live(),
            lines: EventLines::new(style.detail),
            speech: Speech::new(home),
            follow: style.follow,
            said: None,
            no_wait: style.wait == HoldPolicy::End,
            held: None,
        }
    }

    /// Takes over the agent's output since the last time.
    fn listen(&mut self, state: &LoopState) {
        if self.live.is_none() && self.follow == FollowAgent::LastLine {
            return;
        }
        let lines = self.speech.read(state);
        if self.follow == FollowAgent::All {
            for line in &lines {
                self.note(&spoken(line));
            }
        }
        self.said = match &state.phase {
            Phase::Turn(_) => lines.into_iter().next_back().or(self.said.take()),
            Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Ended { .. } => None,
        };
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

    /// Prints the line of an event.
    pub fn say(&mut self, record: &JournalRecord) {
        let is_helpers = record.owner.as_ref().is_some_and(|owner| *owner != self.id);
        if is_helpers && self.detail == LogDetail::Brief && !concerns_run(&record.event) {
            return;
        }
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
        let (zone, paint, said) = (self.zone.clone(), self.ui.talk_paint(), self.said.clone());
        let facts = LiveFacts { now, zone, paint, evidence, said };
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

    /// A person decided: what held the loop does so no longer.
    pub fn go_on(&mut self) {
        self.held = None;
    }

    fn look_for_hold(&mut self, state: &LoopState) {
        self.held = match &state.phase {
            // Nothing changes while it is waited for.
            Phase::Waiting { reason, .. } if reason.rule == RuleId::ChecksBroken => Some(Code::NeedsPerson),
            _ if !self.no_wait => None,
            Phase::Waiting { reason, .. } if reason.rule == RuleId::GuardFreeze => Some(Code::Held),
            Phase::Waiting { reason, .. } if reason.rule == RuleId::Paused => Some(Code::NeedsPerson),
            _ => None,
        };
    }
}

/// Whether an event of a further worker concerns the run: its turns are only its own.
fn concerns_run(event: &Event) -> bool {
    matches!(event, Event::Experiment { .. } | Event::Note { .. } | Event::TicketOpened { .. })
}

impl Watcher for Foreground<'_> {
    fn committed(&mut self, state: &LoopState, events: &[Event], at: Time) {
        if !self.team.contains(&state.id) {
            return;
        }
        let is_first = state.id == self.id;
        if is_first {
            self.listen(state);
        }
        for event in events {
            let owner = Some(state.id.clone());
            let version = everloop_core::event::EVENT_VERSION;
            self.say(&JournalRecord { seq: 0, at, owner, version, event: event.clone() });
        }
        if is_first {
            self.draw(state, None, at);
            self.look_for_hold(state);
        }
    }

    fn beat(&mut self, state: &LoopState, evidence: Option<Duration>, now: Time) {
        if state.id == self.id {
            self.listen(state);
            self.draw(state, evidence, now);
            self.look_for_hold(state);
        }
    }

    fn beats(&self) -> Option<Duration> {
        (self.live.is_some() || self.follow == FollowAgent::All).then_some(BEAT)
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
