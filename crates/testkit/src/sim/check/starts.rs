//! Every start against the guarantees of the guard: I6. Derived from the journal by separate rules,
//! not by the guard's code.

use std::time::Duration;

use everloop_core::event::{Event, Exit, Outcome};
use everloop_core::guard::Scope;
use everloop_core::ids::LoopId;
use everloop_core::reason::Reason;
use everloop_core::spec::GuardSpec;
use everloop_core::state::Phase;
use everloop_core::time::Time;
use everloop_store::Ledger as _;

use super::{Invariants, broken};
use crate::sim::agent::METERED;
use crate::sim::world::{Violation, World, here};

/// The longest delay that an agent can request.
const ASKED_CAP: Duration = Duration::from_secs(6 * 3600);

/// What follows from the ends of turns; a person or a success gives a fresh start.
#[derive(Clone, Debug, Default)]
pub(super) struct Reflexes {
    deaths: u32,
    cooldowns: Vec<Time>,
    not_before: Option<(Time, &'static str)>,
    backoff: Option<Time>,
}

impl World {
    /// A start, before it is applied.
    pub(super) fn check_start(&mut self, id: &LoopId, event: &Event, at: Time) -> Result<(), Violation> {
        let Event::TurnStarted { turn, permit, account, .. } = event else { return Ok(()) };
        let invariants = &self.watch.loops[id];
        let name = |what: &str| format!("turn {turn} started {what}");
        if invariants.paused || invariants.stop || invariants.ended.is_some() {
            return broken("I6", name("although the loop is paused, stopped or over"));
        }
        if let Some(current) = &invariants.current {
            return broken("I6", name(&format!("beside turn {}", current.turn)));
        }
        let account = Scope::Account(account.clone());
        for scope in [Scope::All, Scope::Node(here()), account, Scope::Loop(id.clone())] {
            let canary = permit.canary.as_ref() == Some(&scope);
            if let Some(freeze) = self.watch.frozen.get(&scope)
                && freeze.canary_at.is_none_or(|due| due > at)
            {
                return broken("I6", name(&format!("while {scope} is frozen")));
            }
            if self.watch.unserved.get(&scope).is_some_and(|until| *until > at) {
                return broken("I6", name(&format!("before the vendor serves {scope} again")));
            }
            if self.watch.cooling.get(&scope).is_some_and(|until| *until > at) && !canary {
                return broken("I6", name(&format!("while {scope} cools down")));
            }
        }
        let trial = permit.canary == Some(Scope::Loop(id.clone()));
        if invariants.reflexes.backoff.is_some_and(|until| until > at) && !trial {
            return broken("I6", name("before its backoff is over"));
        }
        if let Some((_, why)) = invariants.reflexes.not_before.filter(|(until, _)| *until > at && !trial) {
            return broken("I6", name(&format!("too early: {why}")));
        }
        let spec = invariants.fold.spec.guard.clone();
        if let Some(text) = crowded(invariants, &spec, at) {
            return broken("I6", name(&text));
        }
        let running = self.watch.loops.values().filter(|w| w.current.is_some()).count();
        if running >= spec.max_parallel_turns as usize {
            return broken("I6", name(&format!("with {running} of {} slots taken", spec.max_parallel_turns)));
        }
        self.check_quarantine(id, event, at)?;
        self.check_bucket(id, at)?;
        self.check_pace(id, event, at)?;
        if let Some(invariants) = self.watch.loops.get_mut(id) {
            invariants.starts.push(at);
        }
        Ok(())
    }

    /// Starts of an account in any window: burst + rate × window.
    fn check_bucket(&self, id: &LoopId, at: Time) -> Result<(), Violation> {
        let Some(bucket) = self.watch.loops[id].fold.spec.guard.bucket.clone() else { return Ok(()) };
        // Starts are not distinguished by account here.
        let other =
            |w: &Invariants| w.fold.spec.guard.bucket.as_ref() != Some(&bucket) || !w.fold.spec.others.is_empty();
        if self.watch.loops.values().any(other) {
            return Ok(());
        }
        for n in 1..=4u32 {
            let from = at - bucket.every * n;
            let starts = self.watch.loops.values().flat_map(|w| &w.starts);
            let seen = starts.filter(|t| **t > from && **t <= at).count() as u32 + 1;
            if seen > bucket.burst + n {
                return broken("I6", format!("{seen} starts of one account within {n} refills of its bucket"));
            }
        }
        Ok(())
    }

    /// When a paced turn starts, the used share of its account's window exceeds the elapsed share
    /// by a twentieth at most; that of an urgent one, by a fifth.
    fn check_pace(&self, id: &LoopId, event: &Event, at: Time) -> Result<(), Violation> {
        let Event::TurnStarted { account, task, .. } = event else { return Ok(()) };
        let quota = self.watch.windows.get(account).filter(|_| self.watch.loops[id].fold.spec.guard.pace);
        let Some((quota, reset)) = quota.and_then(|q| Some((q, q.reset_at?))) else { return Ok(()) };
        let left = reset.0 - at.0;
        let length = METERED.as_millis() as i64;
        // Over, or the clock jumped to before it began: nothing is known.
        if left <= 0 || left > length {
            return Ok(());
        }
        let row = self.ledger.model().task(task).expect("the model always answers");
        let ahead = if row.is_some_and(|r| r.task.priority > 0) { 200 } else { 50 };
        let used = i64::from(quota.used_permille);
        if used >= 1000 || used - ahead > (length - left) * 1000 / length {
            let gone = (length - left) * 1000 / length;
            return broken("I6", format!("a paced start with {used} of 1000 used and {gone} of 1000 gone"));
        }
        Ok(())
    }

    /// No loop is paced beyond the reset of a window.
    pub(super) fn check_wait(&self, id: &LoopId, reason: &Reason) -> Result<(), Violation> {
        // Two resets within a minute are the same one.
        let resets = self.watch.windows.values().filter_map(|q| q.reset_at).map(|at| at + Duration::from_secs(60));
        if reason.rule == "guard.pace" && reason.until > resets.max() {
            return broken("I6", format!("loop {id} is to wait beyond the reset: {reason:?}"));
        }
        Ok(())
    }

    /// The use of an account's window as a turn reported it; within one window it only grows.
    fn follow_window(&mut self, id: &LoopId, exit: &Exit) {
        let invariants = &self.watch.loops[id];
        let (Phase::Turn(turn), Some(report)) = (&invariants.fold.phase, &exit.report) else { return };
        for quota in &report.quotas {
            let known = self.watch.windows.entry(turn.account.clone()).or_insert_with(|| quota.clone());
            if known.reset_at != quota.reset_at || known.used_permille < quota.used_permille {
                *known = quota.clone();
            }
        }
    }

    /// A vendor reported until when it does not serve an account.
    fn follow_limit(&mut self, id: &LoopId) {
        let invariants = &self.watch.loops[id];
        let Phase::Turn(turn) = &invariants.fold.phase else { return };
        let account = Scope::Account(turn.account.clone());
        let exit = invariants.current.as_ref().and_then(|c| c.exit.as_ref());
        let until = exit.and_then(|e| e.limit()).and_then(|l| l.reset_at);
        if let (Some(until), false) = (until, self.watch.frozen.contains_key(&account)) {
            let known = self.watch.unserved.entry(account).or_insert(until);
            *known = until.max(*known);
        }
    }

    /// Deaths, cooldowns and backoffs as they follow from the events.
    pub(super) fn follow_reflexes(&mut self, id: &LoopId, event: &Event, at: Time) {
        let own = Scope::Loop(id.clone());
        let frozen = self.watch.frozen.contains_key(&own);
        if let Event::TurnEnded { outcome: Outcome::Limited { .. }, .. } = event {
            self.follow_limit(id);
        }
        if let Event::TurnExited { exit, .. } = event {
            self.follow_window(id, exit);
        }
        let Some(invariants) = self.watch.loops.get_mut(id) else { return };
        let spec = invariants.fold.spec.guard.clone();
        // A lost turn has no exit: it was there from its start until now.
        let lived = Exit { started_at: *invariants.starts.last().unwrap_or(&at), ended_at: at, ..Exit::default() };
        let exit = invariants.current.as_ref().and_then(|c| c.exit.clone()).unwrap_or(lived);
        let reflexes = &mut invariants.reflexes;
        match event {
            Event::TurnEnded { outcome, .. } => reflexes.turn_ended(outcome, frozen, (&spec, &exit), at),
            Event::Cooldown { scope, .. } if *scope == own => {
                reflexes.deaths = 0;
                reflexes.cooldowns.retain(|t| at.since(*t) < spec.freeze.window);
                reflexes.cooldowns.push(at);
                if reflexes.cooldowns.len() >= spec.freeze.cooldowns as usize {
                    reflexes.not_before = Some((at + spec.freeze.canary, "so many cooldowns bring a freeze"));
                }
            }
            Event::Frozen { scope, .. } if *scope == own => reflexes.deaths = 0,
            Event::Backoff { scope, until, .. } if *scope == own => {
                reflexes.backoff = reflexes.backoff.max(Some(*until));
            }
            Event::DelayLifted { scope, .. } if *scope == own => reflexes.backoff = None,
            _ => {}
        }
    }
}

impl Reflexes {
    fn turn_ended(&mut self, outcome: &Outcome, frozen: bool, (spec, exit): (&GuardSpec, &Exit), at: Time) {
        match outcome {
            Outcome::Reached | Outcome::Progress => *self = Self::default(),
            Outcome::AgentFailed { .. } | Outcome::TaskFailed { .. } => {
                let young = exit.ended_at.since(exit.started_at) < spec.cooldown.young;
                if young && !frozen {
                    self.deaths += 1;
                }
                if self.deaths >= spec.cooldown.deaths {
                    self.not_before = Some((at + spec.cooldown.first, "so many young deaths bring a cooldown"));
                }
            }
            // Neither a failure nor a success.
            Outcome::Limited { .. } => {}
            _ => self.backoff = None,
        }
        if let (Some(ms), false) = (exit.backoff_ms, frozen) {
            let until = at + Duration::from_millis(ms).min(ASKED_CAP);
            self.backoff = self.backoff.max(Some(until));
        }
    }
}

/// Gap and caps over all windows that end now.
fn crowded(invariants: &Invariants, spec: &GuardSpec, at: Time) -> Option<String> {
    let before = || invariants.starts.iter().rev().filter(|t| **t <= at);
    if let Some(last) = before().next()
        && at.since(*last) < spec.min_gap
    {
        return Some(format!("only {:?} after the one before", at.since(*last)));
    }
    let caps = [(60, spec.caps.per_minute), (3600, spec.caps.per_hour), (86_400, spec.caps.per_day)];
    caps.into_iter().find_map(|(secs, cap)| {
        let from = at - Duration::from_secs(secs);
        let seen = before().filter(|t| **t > from).count() as u32 + 1;
        (seen > cap?).then(|| format!("as number {seen} within {secs} s"))
    })
}
