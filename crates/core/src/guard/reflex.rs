//! Reflexes of the guard to the end of a turn: Frosty (a cooldown), Really Chill Willy (a freeze),
//! backoff.
//!
//! Called after the end itself has been applied, so the states already include the death.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use super::{Freeze, GuardState, Guards, Permit, Scope};
use crate::event::{Event, Outcome, Settled};
use crate::jitter::{between, doubled, mix};
use crate::planted::{self, Bug};
use crate::spec::{CooldownSpec, FreezeSpec, GuardSpec};
use crate::stream::{LimitClass, VendorLimit};
use crate::time::{Time, human};

/// Upper bound of a delay that an agent requests: it must not park a loop for ever.
pub const ASKED_CAP: Duration = Duration::from_secs(6 * 3600);

/// A turn that just ended.
#[derive(Clone, Debug)]
pub struct TurnEnd<'a> {
    pub permit: &'a Permit,
    pub settled: &'a Settled,
    /// Description of the end, for the audit.
    pub how: &'a str,
    /// Delay that the agent requested.
    pub asked: Option<Duration>,
    /// The vendor's limit that ended the turn.
    pub limit: Option<&'a VendorLimit>,
    /// The agent was refused and does not start again as it is.
    pub refused: bool,
    /// What the turn proves, if it was a trial start.
    pub trial: Trial,
    pub spec: &'a GuardSpec,
    /// Seed of the jitter.
    pub seed: u64,
}

/// What a turn proves about a frozen scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The agent works.
    EndedWell,
    Failed,
    /// Nothing: a limit, an outage of the vendor or a person cut it short.
    CutShort,
}

impl Trial {
    /// Classifies an outcome.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Reached
            | Outcome::Progress
            | Outcome::NotYet
            | Outcome::NoOp
            | Outcome::Refused { .. }
            | Outcome::Regressed { .. }
            | Outcome::Discarded { .. } => Trial::EndedWell,
            Outcome::AgentFailed { .. } | Outcome::TaskFailed { .. } => Trial::Failed,
            Outcome::Limited { .. } | Outcome::Interrupted | Outcome::Lost => Trial::CutShort,
        }
    }
}

/// The guard's reflexes to the end of a turn.
pub fn reflexes(guards: &Guards, end: &TurnEnd<'_>, now: Time) -> Vec<Event> {
    let mut events = Vec::new();
    for (n, scope) in end.permit.scopes.iter().enumerate() {
        let Some(state) = guards.get(scope).map(|v| &v.state) else { continue };
        if state.freeze.is_some() {
            if end.permit.canary.as_ref() == Some(scope) && end.trial == Trial::EndedWell {
                let reason = format!("the trial start ended well: {}", end.how);
                events.push(Event::Released { scope: scope.clone(), by: "canary".to_owned(), reason });
            }
            continue;
        }
        if let (Scope::Account(_), Some(limit)) = (scope, end.limit) {
            events.extend(limited(scope, state, limit, mix(end.seed, 99), now));
        }
        if end.settled.died_young && matches!(scope, Scope::Loop(_) | Scope::Account(_)) {
            events.extend(frosty(scope, state, end, mix(end.seed, n as u64), now));
        }
        if matches!(scope, Scope::Loop(_)) {
            events.extend(backoff(scope, state, end, now));
        }
    }
    events
}

/// Effect of a vendor's limit on the account.
fn limited(scope: &Scope, state: &GuardState, limit: &VendorLimit, seed: u64, now: Time) -> Option<Event> {
    if !limit.class.holds_account() {
        return None;
    }
    if limit.class.needs_person() {
        return Some(wall(scope, limit, now));
    }
    let strikes = state.held.as_ref().map_or(0, |h| h.strikes) + 1;
    let until = match limit.reset_at.filter(|at| *at > now) {
        Some(at) if !planted::is(Bug::ProbesBeforeReset) => at,
        _ => {
            let (first, cap) = ladder(limit.class);
            now + between(first, doubled(first, strikes - 1, cap), seed)
        }
    };
    Some(Event::Limited { scope: scope.clone(), limit: limit.clone(), until, strikes })
}

/// First and longest wait when the vendor gives no reset time.
fn ladder(class: LimitClass) -> (Duration, Duration) {
    let secs = Duration::from_secs;
    match class {
        LimitClass::Window | LimitClass::Weekly | LimitClass::Daily | LimitClass::Model => (secs(300), secs(3600)),
        LimitClass::Rate => (secs(30), secs(900)),
        LimitClass::Overload | LimitClass::Network => (secs(15), secs(600)),
        // Unreachable: these freeze the account or are handled above.
        LimitClass::Spend | LimitClass::Credit | LimitClass::Auth | LimitClass::Context | LimitClass::Request => {
            (secs(3600), secs(3600))
        }
    }
}

/// A limit that waiting does not lift: no trial starts either, each would fail in the same way.
fn wall(scope: &Scope, limit: &VendorLimit, now: Time) -> Event {
    let audit =
        vec![format!("{}: {}", limit.class.describe(), limit.text), format!("recognised by rule {}", limit.rule)];
    let freeze = Freeze {
        cause: limit.class.to_string(),
        audit,
        since: now,
        until: limit.reset_at.filter(|at| *at > now),
        canary_at: None,
        canary_every_ms: 0,
        by: None,
    };
    Event::Frozen { scope: scope.clone(), freeze }
}

fn frosty(scope: &Scope, state: &GuardState, end: &TurnEnd<'_>, seed: u64, now: Time) -> Vec<Event> {
    let CooldownSpec { deaths, window, first, cap, .. } = end.spec.cooldown;
    let willy = &end.spec.freeze;
    if state.probation {
        return vec![freeze(scope, state, "relapse", end, now)];
    }
    let recent = state.deaths.iter().filter(|t| now.since(**t) < window).count();
    // Deaths in a row count for the loop itself, however slowly they come: with a gap three deaths
    // never fall into one window.
    let in_a_row = if matches!(scope, Scope::Loop(_)) { state.deaths.len() } else { 0 };
    if recent.max(in_a_row) < deaths as usize {
        return Vec::new();
    }
    let length = between(first, doubled(first, state.level, cap), seed);
    let mut events = vec![Event::Cooldown { scope: scope.clone(), until: now + length, level: state.level + 1 }];
    let lately = state.cooldowns.iter().filter(|t| now.since(**t) < willy.window).count() + 1;
    if lately >= willy.cooldowns as usize && !planted::is(Bug::NeverFreezes) {
        let again = state.freezes.iter().any(|t| now.since(*t) < willy.relapse);
        events.push(freeze(scope, state, if again { "relapse" } else { "cooldowns" }, end, now));
    }
    events
}

fn freeze(scope: &Scope, state: &GuardState, cause: &str, end: &TurnEnd<'_>, now: Time) -> Event {
    let FreezeSpec { time, canary, relapse_canary, .. } = end.spec.freeze;
    let person = cause == "relapse";
    let every = if person { relapse_canary } else { canary };
    let audit = vec![
        format!("{} starts died young in a row, the last one: {}", state.failures, end.how),
        format!("{} cooldowns before", state.cooldowns.len()),
        format!("{} freezes in the last day", state.freezes.len()),
        "before releasing: does the agent start by hand, is it logged in, is the network there?".to_owned(),
    ];
    let freeze = Freeze {
        cause: cause.to_owned(),
        audit,
        since: now,
        until: (!person).then_some(now + time),
        canary_at: Some(now + every),
        canary_every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX),
        by: None,
    };
    Event::Frozen { scope: scope.clone(), freeze }
}

fn backoff(scope: &Scope, state: &GuardState, end: &TurnEnd<'_>, now: Time) -> Vec<Event> {
    let mut events = Vec::new();
    if end.settled.failed && !end.refused {
        let longest = doubled(end.spec.backoff_first, state.failures.saturating_sub(1), end.spec.backoff_cap);
        let until = now + between(Duration::ZERO, longest, mix(end.seed, 77));
        let why = format!("failure: {}", end.how);
        events.push(Event::Backoff { scope: scope.clone(), until, why, requested: false });
    }
    if let Some(asked) = end.asked {
        let granted = asked.min(ASKED_CAP);
        let why = format!("the agent requested a delay of {}", human(asked));
        events.push(Event::Backoff { scope: scope.clone(), until: now + granted, why, requested: true });
    }
    events
}
