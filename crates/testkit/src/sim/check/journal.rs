//! Follows the events of a loop: order, counting, fences, tickets, messages, endings.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::event::{Event, Integrated, LoopEnd, Outcome};
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::state::{LoopState, NOTES_KEPT};
use everloop_core::time::Time;

use super::starts::Reflexes;
use super::streak::Streak;
use super::{Current, Invariants, broken};
use crate::sim::world::{Violation, World};

impl Invariants {
    fn new(fold: LoopState, now_ms: u64) -> Self {
        Self {
            fold,
            starts: Vec::new(),
            paused: false,
            stop: false,
            ended: None,
            current: None,
            counted: 0,
            tickets: BTreeSet::new(),
            fences: BTreeMap::new(),
            done: BTreeSet::new(),
            over: BTreeMap::new(),
            pins: Vec::new(),
            notes: Vec::new(),
            reflexes: Reflexes::default(),
            moved_ms: now_ms,
            heard: None,
            streak: Streak::default(),
        }
    }
}

impl World {
    pub(super) fn observe_loop(&mut self, id: &LoopId, event: &Event, at: Time) -> Result<(), Violation> {
        let now_ms = self.now_ms;
        if let Event::LoopCreated { name, spec } = event {
            let fold = LoopState::new(id.clone(), name.clone(), (**spec).clone(), at);
            self.watch.loops.insert(id.clone(), Invariants::new(fold, now_ms));
            return Ok(());
        }
        match event {
            Event::TurnStarted { .. } => self.check_start(id, event, at)?,
            Event::Waiting { reason } => self.check_wait(id, reason)?,
            Event::TurnEnded { .. } => self.check_turn_end(id, event)?,
            Event::Signalled { cursor, task, .. } => self.check_signal(id, cursor, task.as_ref())?,
            Event::Ended { ending: LoopEnd::Reached } => self.check_reached(id)?,
            _ => {}
        }
        self.follow_reflexes(id, event, at);
        let Some(invariants) = self.watch.loops.get_mut(id) else {
            return broken("journal", format!("loop {id} has events before it was made"));
        };
        // A loop that watches need not write anything.
        if invariants.ended.is_none()
            && !invariants.paused
            && !["watching", "parked"].contains(&invariants.fold.phase.label())
        {
            self.watch.longest_stall_ms = self.watch.longest_stall_ms.max(now_ms - invariants.moved_ms);
        }
        invariants.moved_ms = now_ms;
        invariants.fold.apply(event, at);
        invariants.follow(event, now_ms, &self.watch.amended)?;
        invariants.follow_streak(event)?;
        self.follow_tickets(id, event)?;
        self.check_notes(id)
    }

    /// The end of a turn, before it is applied.
    fn check_turn_end(&mut self, id: &LoopId, event: &Event) -> Result<(), Violation> {
        let Event::TurnEnded { turn, outcome, work, .. } = event else { return Ok(()) };
        if *outcome == Outcome::Lost && self.exit_of(turn).is_some() {
            return broken("I1", format!("turn {turn} left a record of its end and was declared lost"));
        }
        let site = &self.sites[id];
        if let (Some(new), Some(old)) = (work, &self.watch.loops[id].fold.progress.work) {
            let (now, before) = (site.git.tree(new), site.git.tree(old));
            // A flaky check can hide that something passed, so that its loss is not seen either.
            let worse = now.fixed.count_ones() < before.fixed.count_ones() && !site.was_flaky;
            if worse || now.tampered {
                return broken(
                    "worse",
                    format!("turn {turn} was kept, although its work is worse: {before:?} {now:?}"),
                );
            }
            if !site.git.is_held(new) {
                return broken("work", format!("the work of turn {turn} stands under no name"));
            }
        }
        if outcome.counts() {
            let read = self.watch.read.get(turn).cloned().unwrap_or_default();
            if let Some(invariants) = self.watch.loops.get_mut(id) {
                invariants.notes.retain(|note| !read.contains(note));
            }
        }
        Ok(())
    }

    /// Reached is only what truly passes where the operator finds it.
    fn check_reached(&self, id: &LoopId) -> Result<(), Violation> {
        let site = &self.sites[id];
        let checks = site.setup.checks();
        let aside = self.watch.loops[id].fold.progress.kept.last().and_then(|k| k.integrated.clone());
        let right = match aside {
            Some(Integrated::Aside { commit, .. }) => site.git.tree(&commit).is_right(checks),
            _ => site.result().is_right(checks),
        };
        if right {
            return Ok(());
        }
        broken("false success", format!("loop {id} says it is reached, the operator has {:?}", site.result()))
    }

    /// One ticket per cause: opened once, notified once.
    fn follow_tickets(&mut self, id: &LoopId, event: &Event) -> Result<(), Violation> {
        let Some(invariants) = self.watch.loops.get_mut(id) else { return Ok(()) };
        match event {
            Event::TicketOpened { key, .. } => {
                if !invariants.tickets.insert(key.clone()) {
                    return broken("I11", format!("ticket {key} was opened twice"));
                }
                *self.watch.opened.entry(key.clone()).or_default() += 1;
            }
            Event::TicketClosed { key } => {
                invariants.tickets.remove(key);
            }
            _ => {}
        }
        Ok(())
    }

    /// A message stays until an agent has read it.
    fn check_notes(&self, id: &LoopId) -> Result<(), Violation> {
        let invariants = &self.watch.loops[id];
        let newest = invariants.notes.len().saturating_sub(NOTES_KEPT);
        match invariants.notes[newest..]
            .iter()
            .find(|note| !invariants.fold.people.notes.iter().any(|kept| kept.text() == *note))
        {
            Some(lost) => broken("messages", format!("loop {id} lost the message `{lost}`; no agent has read it")),
            None => Ok(()),
        }
    }
}

impl Invariants {
    fn follow(&mut self, event: &Event, now_ms: u64, amended: &BTreeSet<TaskId>) -> Result<(), Violation> {
        match event {
            Event::TurnStarted { turn, task, fence, .. } => {
                if self.fences.get(task).is_some_and(|old| old >= fence) {
                    return broken("I3", format!("turn {turn}: the fence of its task fell"));
                }
                self.fences.insert(task.clone(), *fence);
                let current = Current { turn: turn.clone(), task: task.clone(), fence: *fence, exit: None };
                self.current = Some(current);
            }
            Event::TurnExited { turn, exit } => {
                if let Some(current) = self.current.as_mut().filter(|c| c.turn == *turn) {
                    current.exit = Some(exit.clone());
                }
            }
            Event::TurnJudged { judgement, .. } => {
                if let (Some(pin), Some(commit)) = (&judgement.pin, &judgement.commit) {
                    self.pins.push((pin.clone(), commit.clone()));
                } else if judgement.commit.is_some() {
                    return broken("work", "a judged commit has no pin");
                }
            }
            Event::TurnEnded { turn, outcome, .. } => {
                self.over.insert(turn.clone(), now_ms);
                let current = self.current.take().filter(|c| c.turn == *turn);
                let Some(current) = current else {
                    return broken("I2", format!("turn {turn} ended, and was not under way"));
                };
                self.counted += u32::from(outcome.counts());
                // A task that a person took away and gave out again has its first result among the
                // late results.
                let twice = !outcome.retries() && !self.done.insert(current.task.clone());
                if twice && !amended.contains(&current.task) {
                    return broken("I2", format!("task {} was completed twice", current.task));
                }
            }
            Event::Paused { .. } => self.paused = true,
            Event::StopAsked { .. } => self.stop = true,
            Event::Resumed { .. } => {
                (self.paused, self.stop) = (false, false);
                if self.ended != Some(LoopEnd::Reached) {
                    self.ended = None;
                }
            }
            Event::Steered { message, .. } => self.notes.push(message.clone()),
            Event::Ended { ending } => {
                self.stop = false;
                self.ended = Some(ending.clone());
            }
            _ => {}
        }
        Ok(())
    }
}
