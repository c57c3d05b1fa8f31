//! The guard: what holds each scope, its starts against their caps, its cooldowns and windows.

use std::time::Duration;

use everloop_core::guard::{GuardState, Scope};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::Ledger;
use serde::Serialize;

use super::{ledger, line};
use crate::error::Failure;
use crate::quantities::Accuracy;
use crate::quantities::spend;
use crate::record::read_state;
use crate::services::ServiceContext;
use crate::state_folder::node_id;

/// Windows in which starts are counted.
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Every scope that was used.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GuardView {
    pub scopes: Vec<ScopeCard>,
}

/// A scope and its figures.
#[derive(Clone, Debug, Serialize)]
pub struct ScopeCard {
    pub scope: String,
    /// The loop's name, for a loop.
    pub name: String,
    /// What holds it: a word, the sentence, and the end.
    pub hold: Option<GuardHold>,
    /// Cooldowns in a row.
    pub level: u32,
    /// Starts in a minute, an hour, a day, with their caps.
    pub starts: Vec<(&'static str, u32, Option<u32>)>,
    pub last_start: Option<Time>,
    pub failures: u32,
    pub spent: String,
    pub windows: Vec<WindowRow>,
}

/// What keeps a scope from starting anything.
#[derive(Clone, Debug, Serialize)]
pub struct GuardHold {
    /// `frozen`, `cooling`, `limited`, `backing off`.
    pub word: &'static str,
    pub why: String,
    /// Without an end only a person ends it.
    pub until: Option<Time>,
    /// Whether a person can release it.
    pub releasable: bool,
}

/// An allowance of an account.
#[derive(Clone, Debug, Serialize)]
pub struct WindowRow {
    pub name: String,
    pub used_percent: u32,
    /// Projected use at the reset.
    pub at_reset_percent: Option<u32>,
    pub reset_at: Option<Time>,
}

/// Reads every scope that was ever used, the whole machine first.
pub fn guard(context: &ServiceContext) -> Result<GuardView, Failure> {
    let Some(ledger) = ledger(context)? else { return Ok(GuardView::default()) };
    let now = context.now();
    let mut guards = ledger.guards()?;
    for scope in [Scope::All, Scope::Node(node_id())] {
        guards.entry(scope).or_default();
    }
    let mut scopes = Vec::new();
    for (scope, versioned) in &guards {
        let state = match scope {
            Scope::Loop(id) => ledger.get_loop(id)?.map(|row| read_state(&row)).transpose()?,
            Scope::All | Scope::Node(_) | Scope::Account(_) => None,
        };
        // Loops that are over start nothing.
        if matches!(scope, Scope::Loop(_)) && state.as_ref().is_none_or(LoopState::is_over) {
            continue;
        }
        let caps = state.as_ref().map(|state| state.spec.guard.caps.clone());
        let own = &versioned.state;
        let caps = caps.unwrap_or(everloop_core::spec::StartCaps::NONE);
        let starts = vec![
            ("minute", own.starts.within(MINUTE, now), caps.per_minute),
            ("hour", own.starts.within(HOUR, now), caps.per_hour),
            ("day", own.starts.within(DAY, now), caps.per_day),
        ];
        scopes.push(ScopeCard {
            scope: scope.to_string(),
            name: state.map(|state| line(&state.name)).unwrap_or_default(),
            hold: hold(own, now),
            level: own.level,
            starts,
            last_start: own.last_start,
            failures: own.failures,
            spent: spend(own.spent, Accuracy::Reported),
            windows: own.windows.iter().filter(|window| !window.is_over(now)).map(|window| row(window, now)).collect(),
        });
    }
    scopes.sort_by_key(|card| (card.hold.is_none(), card.scope != "all"));
    Ok(GuardView { scopes })
}

fn hold(own: &GuardState, now: Time) -> Option<GuardHold> {
    if let Some(freeze) = &own.freeze {
        let audit = freeze.audit.last().cloned().unwrap_or_default();
        let why = line(&format!("Really Chill Willy ({}): {audit}", freeze.cause));
        return Some(GuardHold { word: "frozen", why, until: freeze.until, releasable: true });
    }
    let running = |until: Time| until > now;
    if let Some(cooling) = own.cooling.filter(|cooling| running(cooling.until)) {
        let why = format!("Frosty, level {}", cooling.level);
        return Some(GuardHold { word: "cooling", why, until: Some(cooling.until), releasable: false });
    }
    if let Some(held) = own.held.as_ref().filter(|held| running(held.until)) {
        let why = line(&held.limit.text);
        return Some(GuardHold { word: "limited", why, until: Some(held.until), releasable: false });
    }
    let backing = own.backing.as_ref().filter(|backing| running(backing.until))?;
    let why = line(&backing.why);
    Some(GuardHold { word: "backing off", why, until: Some(backing.until), releasable: backing.requested })
}

fn row(window: &everloop_core::pacing::Window, now: Time) -> WindowRow {
    WindowRow {
        name: line(&window.quota.window),
        used_percent: window.quota.used_permille / 10,
        at_reset_percent: window.pace(now).map(|pace| pace.at_reset_permille / 10),
        reset_at: window.quota.reset_at,
    }
}
