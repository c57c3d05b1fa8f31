//! Commands of people and other programs to a loop.

use super::Step;
use crate::action::LoopCommand;
use crate::event::{Event, LoopEnd, StopCause};
use crate::guard::Scope;
use crate::planted::{self, Bug};
use crate::raise::RunLimits;
use crate::spec::LoopSpec;
use crate::state::{Phase, TurnStage};

/// Longer messages are cut: a message is part of every prompt until a turn has read it.
const MESSAGE_CAP: usize = 8_000;

impl Step<'_> {
    pub(super) fn command(&mut self, by: &str, command: &LoopCommand) {
        let by = by.to_owned();
        match command {
            LoopCommand::Pause { reason, until } => {
                // A pause without an end belongs to a person; a timed pause does not shorten it.
                let endless = self.state().people.paused.as_ref().is_some_and(|p| p.until.is_none());
                if !endless && !self.ended() && until.is_none_or(|at| at > self.ctx.now) {
                    self.emit(Event::Paused { by, reason: reason.clone(), until: *until });
                }
            }
            LoopCommand::Resume { bounds, budget } => {
                self.lift_delay(&by);
                let reached = matches!(&self.state().phase, Phase::Ended { ending: LoopEnd::Reached, .. });
                // A person wants it to go on, and no terminal of its own is there.
                if !reached && !self.ctx.attended {
                    self.detach(&by);
                }
                if !reached {
                    let (bounds, budget) = (bounds.clone(), budget.clone());
                    self.emit(Event::Resumed { by, bounds, budget, keeps_clock: true });
                    if self.state().phase == Phase::New {
                        self.request_baseline();
                    }
                }
            }
            LoopCommand::Detach => {
                self.detach(&by);
                if self.state().phase == Phase::New && !self.ctx.draining {
                    self.request_baseline();
                }
            }
            LoopCommand::Stop { now } => {
                if !self.ended() {
                    self.emit(Event::StopAsked { by, now: *now });
                    self.stop_running(*now);
                }
            }
            LoopCommand::Steer { message, trust } => {
                let message = message.chars().take(MESSAGE_CAP).collect();
                self.emit(Event::Steered { by, message, trust: *trust });
            }
            LoopCommand::Taken { commit } => {
                if self.state().progress.taken.as_ref() != Some(commit) {
                    self.emit(Event::WorkTaken { by, commit: commit.clone() });
                }
            }
            LoopCommand::Reconfigure { spec } => self.reconfigure(&by, spec),
            LoopCommand::Signal { signal } => self.take_signal(&by, signal),
            LoopCommand::Remember { line } => self.keep_line(&by, line),
            LoopCommand::Wake if self.state().people.paused.as_ref().is_some_and(|p| p.until.is_some()) => {
                self.lift_delay(&by);
                self.emit(Event::Resumed { by, bounds: None, budget: None, keeps_clock: true });
            }
            LoopCommand::Wake => {
                self.lift_delay(&by);
                let before = self.state().phase.label();
                self.summon();
                self.emit(Event::Woken { by });
                self.check_again_since(before);
                self.look_now();
            }
        }
        self.tick();
    }

    fn detach(&mut self, by: &str) {
        if self.state().people.attached {
            self.emit(Event::Detached { by: by.to_owned() });
        }
    }

    fn reconfigure(&mut self, by: &str, spec: &LoopSpec) {
        let mut spec = Box::new(spec.clone());
        // Where a loop began does not change with its settings.
        spec.workspace.origin.clone_from(&self.state().spec.workspace.origin);
        if let (Some(new), Some(old)) = (&mut spec.research, &self.state().spec.research) {
            (new.workers, new.run) = (old.workers, old.run.clone());
        }
        let reached = matches!(&self.state().phase, Phase::Ended { ending: LoopEnd::Reached, .. });
        if reached || self.state().spec == *spec {
            return;
        }
        let limits = RunLimits { bounds: spec.bounds.clone(), budget: spec.guard.budget.clone() };
        // A limit that ended the loop and is another one now ends it no longer.
        let goes_on = self.is_exhausted() && limits.still_ended(self.state()).is_none();
        let taking = self.state().phase == Phase::New;
        self.emit(Event::SpecChanged { spec });
        if goes_on {
            if !self.ctx.attended {
                self.detach(by);
            }
            self.emit(Event::Resumed { by: by.to_owned(), bounds: None, budget: None, keeps_clock: true });
        }
        // Other checks need another baseline; one that is under way runs the old checks and is
        // compared by their names when it arrives.
        if self.state().phase == Phase::New && !taking {
            self.request_baseline();
        }
    }

    /// A delay that the agent requested ends by a person's word; every other wait stays.
    fn lift_delay(&mut self, by: &str) {
        let scope = Scope::Loop(self.state().id.clone());
        let backing = self.out.guards.get(&scope).and_then(|guard| guard.state.backing.as_ref());
        if backing.is_some_and(|delay| delay.requested && delay.until > self.ctx.now) {
            self.emit(Event::DelayLifted { scope, by: by.to_owned() });
        }
    }

    fn is_exhausted(&self) -> bool {
        matches!(&self.state().phase, Phase::Ended { ending: LoopEnd::Exhausted { .. }, .. })
    }

    fn ended(&self) -> bool {
        matches!(self.state().phase, Phase::Ended { .. })
    }

    fn stop_running(&mut self, now: bool) {
        let Phase::Turn(turn) = &self.state().phase else { return };
        let running = turn.stage == TurnStage::Running && turn.stopping != Some(StopCause::Person);
        if now && running && !planted::is(Bug::StopIgnored) {
            let turn = (**turn).clone();
            self.stop_turn(&turn, StopCause::Person);
        }
    }
}
