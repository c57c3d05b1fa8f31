//! How events change what the guard remembers. The only writer of [`GuardState`].

use std::time::Duration;

use super::{AccountHold, Backing, Cooling, GuardState, Permit, Scope};
use crate::event::{Event, Exit, Settled};
use crate::ids::TurnId;
use crate::pacing::Window;
use crate::planted::{self, Bug};
use crate::stream::TurnReport;
use crate::time::Time;

/// Times of deaths, cooldowns and freezes older than this are forgotten.
const MEMORY: Duration = Duration::from_secs(24 * 3600);
/// And never more than this many of each: the state is written with every commit.
const LISTED: usize = 16;

impl GuardState {
    /// Applies an event. Events about other scopes change nothing.
    pub fn apply(&mut self, scope: &Scope, event: &Event, at: Time) {
        match event {
            Event::TurnStarted { turn, permit, .. } if permit.scopes.contains(scope) => {
                self.start(scope, turn, permit, at);
            }
            Event::TurnEnded { turn, settled, .. } => self.end(turn, settled, at),
            Event::TurnExited { turn, exit } if self.reserved.contains_key(turn) => {
                if let (Scope::Account(_), Some(report)) = (scope, &exit.report) {
                    self.apply_report(report, exit, at);
                }
            }
            // Of two limits the longer one holds: a turn that ran in parallel may know less.
            Event::Limited { scope: s, limit, until, strikes }
                if s == scope && self.held.as_ref().is_none_or(|h| h.until <= *until) =>
            {
                self.held = Some(AccountHold { limit: limit.clone(), until: *until, strikes: *strikes });
            }
            Event::Cooldown { scope: s, until, level } if s == scope => {
                self.cooling = Some(Cooling { until: *until, level: *level });
                self.level = *level;
                self.deaths.clear();
                remember(&mut self.cooldowns, at);
            }
            Event::Backoff { scope: s, until, why, requested }
                if s == scope
                    && (self.backing.as_ref().is_none_or(|b| b.until < *until)
                        || planted::is(Bug::BackoffMarkerShortens)) =>
            {
                self.backing = Some(Backing { until: *until, why: why.clone(), requested: *requested });
            }
            Event::DelayLifted { scope: s, .. } if s == scope => self.backing = None,
            Event::CliStarted { scopes, .. } if scopes.contains(scope) => self.starts.add(at),
            Event::Frozen { scope: s, freeze } if s == scope => {
                if freeze.by.is_none() {
                    remember(&mut self.freezes, at);
                }
                self.freeze = Some(freeze.clone());
                self.probation = false;
            }
            Event::Released { scope: s, by, .. } if s == scope => self.release(by),
            _ => {}
        }
    }

    fn start(&mut self, scope: &Scope, turn: &TurnId, permit: &Permit, at: Time) {
        self.last_start = Some(at);
        self.starts.add(at);
        self.reserved.insert(turn.clone(), permit.reserve);
        if permit.canary.as_ref() == Some(scope)
            && let Some(freeze) = &mut self.freeze
        {
            freeze.canary_at = Some(at + Duration::from_millis(freeze.canary_every_ms));
        }
        // A loop without a rate of its own leaves the account's bucket as it is.
        if matches!(scope, Scope::Account(_)) && permit.bucket.is_some() {
            self.bucket = permit.bucket;
        }
    }

    fn apply_report(&mut self, report: &TurnReport, exit: &Exit, at: Time) {
        // Only the gaps of a healthy turn are learned.
        if exit.ok() {
            self.gaps.learn(&report.gaps);
        }
        for quota in &report.quotas {
            let full = self.windows.len() >= LISTED;
            match self.windows.iter_mut().find(|w| w.quota.window == quota.window) {
                Some(known) => known.renew(quota, at),
                None if !full => self.windows.push(Window { quota: quota.clone(), seen: at }),
                None => {}
            }
        }
    }

    fn end(&mut self, turn: &TurnId, settled: &Settled, at: Time) {
        if planted::is(Bug::ReservationNotSettled) || self.reserved.remove(turn).is_none() {
            return;
        }
        self.spent = self.spent.plus(settled.spend);
        // A turn that was admitted before the limit proves nothing about it.
        if !settled.limited && !settled.failed && self.held.as_ref().is_some_and(|h| h.until <= at) {
            self.held = None;
        }
        if settled.failed {
            self.failures += 1;
        } else if !settled.limited {
            self.failures = 0;
            self.backing = None;
            self.probation = false;
        }
        if settled.died_young {
            remember(&mut self.deaths, at);
        }
        // Progress resets the reflexes; a long run does not.
        if settled.progress || (planted::is(Bug::BackoffResetByUptime) && settled.failed) {
            self.deaths.clear();
            self.cooldowns.clear();
            self.freezes.clear();
            self.level = 0;
            self.failures = 0;
        }
    }

    fn release(&mut self, by: &str) {
        self.freeze = None;
        self.held = None;
        self.cooling = None;
        self.backing = None;
        self.deaths.clear();
        self.cooldowns.clear();
        self.failures = 0;
        self.level = 0;
        self.probation = by == "booked";
        // A person's release is a fresh start; after a trial or a booked end a relapse is still a
        // relapse.
        if !matches!(by, "booked" | "canary") {
            self.freezes.clear();
        }
    }
}

fn remember(times: &mut Vec<Time>, at: Time) {
    times.retain(|t| at.since(*t) < MEMORY);
    times.push(at);
    if times.len() > LISTED {
        times.remove(0);
    }
}
