//! The guard's rules, in their order. Every refusal names its rule and the inputs, so that `why`
//! needs nothing else.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Bucket, GuardState, Guards, Permit, PermitDecision, Scope, Spend};
use crate::ids::{LoopId, NodeId};
use crate::jitter::doubled;
use crate::pacing::{AHEAD_PERMILLE, AHEAD_URGENT_PERMILLE};
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::spec::{AgentSpec, BucketSpec, DEFAULT_ACCOUNT, GuardSpec};
use crate::state::{LoopState, Phase};
use crate::time::{Time, human};

/// Poll interval of a loop that waits for a free turn, in case the wake of the ending turn is lost.
pub const SLOT_POLL: Duration = Duration::from_secs(30);
/// The rule's id; unlike the others it can end at any time.
pub const SLOTS: RuleId = RuleId::GuardSlots;
/// Loops that waited for one account start one by one at this interval…
const SPREAD_STEP: Duration = Duration::from_secs(5);
/// …for this long after its limit ended: enough for as many loops as one account may have. A success
/// ends it earlier.
const SPREAD: Duration = Duration::from_secs(600);
/// No-op turns before the gap grows.
const NOOPS_FREE: u32 = 3;

/// A request to start a turn.
#[derive(Clone, Debug)]
pub struct PermitRequest<'a> {
    pub owner: &'a LoopId,
    pub account: &'a str,
    pub node: &'a NodeId,
    pub spec: &'a GuardSpec,
    /// Estimated usage of the turn.
    pub reserve: Spend,
    /// No-op turns in a row.
    pub noops: u32,
    /// Priority of the task; above 0 is urgent.
    pub priority: i32,
}

impl PermitRequest<'_> {
    /// All scopes that are checked and charged.
    pub fn scopes(&self) -> Vec<Scope> {
        vec![
            Scope::All,
            Scope::Node(self.node.clone()),
            Scope::Account(self.account.to_owned()),
            Scope::Loop(self.owner.clone()),
        ]
    }
}

/// The scope that all default accounts have in common: a person may hold it, and older versions
/// kept the limits of all vendors there. Nothing is charged to it.
pub(crate) fn common(account: &str) -> Option<Scope> {
    let is_default = account.split_once('/').is_some_and(|(name, _)| name == DEFAULT_ACCOUNT);
    is_default.then(|| Scope::Account(DEFAULT_ACCOUNT.to_owned()))
}

/// All guard scopes that a decision about a loop reads: those of all its agents' accounts, and
/// those of the turn under way.
pub fn concerned(state: &LoopState, node: &NodeId) -> BTreeSet<Scope> {
    let running = match &state.phase {
        Phase::Turn(turn) => turn.permit.scopes.clone(),
        _ => Vec::new(),
    };
    let accounts = state.spec.agents().map(AgentSpec::guard_account);
    let accounts = accounts.flat_map(|name| common(&name).into_iter().chain([Scope::Account(name)]));
    let fixed = [Scope::All, Scope::Node(node.clone()), Scope::Loop(state.id.clone())];
    accounts.chain(fixed).chain(running).collect()
}

/// Answers whether this turn may start now.
pub fn permit(guards: &Guards, request: &PermitRequest<'_>, now: Time) -> PermitDecision {
    let empty = GuardState::default();
    let scopes = request.scopes();
    let of = |scope: &Scope| guards.get(scope).map_or(&empty, |v| &v.state);
    let own = of(&scopes[3]);

    let common = common(request.account);
    let frozen: Vec<Scope> = scopes.iter().cloned().chain(common.clone()).collect();
    let canary = match freeze(&frozen, of, now) {
        Err(reason) => return PermitDecision::Wait(reason),
        Ok(canary) => canary,
    };
    // Of several waits the longest one holds the loop; naming it saves a useless wake-up.
    let waits = [
        limit(of(&scopes[2]), request.account, now),
        common.and_then(|scope| limit_of_all(of(&scope), request.account, now)),
        pace(of(&scopes[2]), request, now),
        cooldown(&scopes, canary.as_ref(), of, now),
        gap(own, request, now),
        backoff(&scopes, canary.as_ref(), of, now),
        caps(own, request.spec, now),
    ];
    if let Some(reason) = waits.into_iter().flatten().rev().max_by_key(|r| r.until) {
        return PermitDecision::Wait(reason);
    }
    if let Some(reason) = budget(own, request) {
        return PermitDecision::Spent(reason);
    }
    let bucket = match bucket(of(&scopes[2]), request.spec.bucket.as_ref(), now) {
        Err(reason) => return PermitDecision::Wait(reason.with("account", request.account)),
        Ok(bucket) => bucket,
    };
    let running = of(&scopes[1]).reserved.len();
    if running >= request.spec.max_parallel_turns as usize {
        let reason = Reason::new(SLOTS).with("running", running).with("slots", request.spec.max_parallel_turns);
        return PermitDecision::Wait(reason.until(now + SLOT_POLL));
    }
    PermitDecision::Go(Permit { scopes, reserve: request.reserve, canary, bucket })
}

/// Why nothing may start under an account, whatever its loop: a freeze, or a limit of its vendor.
pub fn held(guards: &Guards, account: &str, node: &NodeId, now: Time) -> Option<Reason> {
    let empty = GuardState::default();
    let of = |scope: &Scope| guards.get(scope).map_or(&empty, |v| &v.state);
    let own = Scope::Account(account.to_owned());
    let scopes = [Scope::All, Scope::Node(node.clone()), own.clone()].into_iter().chain(common(account));
    let frozen = freeze(&scopes.collect::<Vec<_>>(), of, now).err();
    frozen.or_else(|| limit(of(&own), account, now))
}

/// Frozen scopes that are past the booked end of their freeze.
pub fn over(guards: &Guards, scopes: &[Scope], now: Time) -> Vec<Scope> {
    let ended = |s: &&Scope| {
        let freeze = guards.get(s).and_then(|v| v.state.freeze.as_ref());
        freeze.and_then(|f| f.until).is_some_and(|until| until <= now)
    };
    scopes.iter().filter(ended).cloned().collect()
}

/// The scope for which a trial start is due, or the reason to wait.
fn freeze<'a>(scopes: &[Scope], of: impl Fn(&Scope) -> &'a GuardState, now: Time) -> Result<Option<Scope>, Reason> {
    let mut canary = None;
    for scope in scopes {
        let Some(freeze) = &of(scope).freeze else { continue };
        if freeze.canary_at.is_some_and(|at| at <= now) && !planted::is(Bug::FreezeWithoutCanary) {
            canary = Some(scope.clone());
            continue;
        }
        let mut reason = Reason::new(RuleId::GuardFreeze)
            .with("scope", scope)
            .with("cause", &freeze.cause)
            .with("audit", freeze.audit.join("; "));
        if let Some(by) = &freeze.by {
            reason = reason.with("by", by);
        }
        reason.until = [freeze.until, freeze.canary_at].into_iter().flatten().min();
        if freeze.until.is_none() {
            reason = reason.with("release", "a person");
        }
        return Err(reason);
    }
    Ok(canary)
}

fn cooldown<'a>(
    scopes: &[Scope],
    canary: Option<&Scope>,
    of: impl Fn(&Scope) -> &'a GuardState,
    now: Time,
) -> Option<Reason> {
    let hot = scopes.iter().filter(|s| Some(*s) != canary);
    let cooling = hot.filter_map(|s| of(s).cooling.map(|c| (s, c))).filter(|(_, c)| c.until > now);
    let (scope, cooling) = cooling.max_by_key(|(_, c)| c.until)?;
    Some(Reason::new(RuleId::GuardCooldown).with("scope", scope).with("level", cooling.level).until(cooling.until))
}

/// The vendor's own limit: no start before it ends, then the waiting loops one after the other.
fn limit(account: &GuardState, name: &str, now: Time) -> Option<Reason> {
    let held = account.held.as_ref()?;
    let reason = Reason::new(RuleId::GuardLimit)
        .with("account", name)
        .with("class", held.limit.class)
        .with("said", &held.limit.text)
        .with("rule", &held.limit.rule);
    if held.until > now {
        return Some(reason.until(held.until));
    }
    let next = account.last_start.filter(|at| *at >= held.until)? + SPREAD_STEP;
    (next > now && now < held.until + SPREAD)
        .then(|| Reason::new(RuleId::GuardSpread).with("account", name).until(next))
}

/// A limit that an older version kept for the default accounts of all vendors. Its rule names the
/// vendor's CLI, if only one can have met it.
fn limit_of_all(all: &GuardState, account: &str, now: Time) -> Option<Reason> {
    let held = all.held.as_ref().filter(|held| held.until > now)?;
    let (cli, _) = held.limit.rule.split_once('.')?;
    let concerns = cli == "any" || account.split_once('/').is_some_and(|(_, kind)| kind == cli);
    concerns.then(|| limit(all, account, now)).flatten()
}

/// Spreads the account's allowance over its windows, for loops that want that.
fn pace(account: &GuardState, request: &PermitRequest<'_>, now: Time) -> Option<Reason> {
    if !request.spec.pace || planted::is(Bug::PaceIgnored) {
        return None;
    }
    let ahead = if request.priority > 0 { AHEAD_URGENT_PERMILLE } else { AHEAD_PERMILLE };
    let held = account.windows.iter().filter_map(|w| Some((w.hold(ahead, now)?, w)));
    let (until, window) = held.max_by_key(|(until, _)| *until)?;
    let percent = |permille: u32| format!("{} %", permille.saturating_add(5) / 10);
    let reason = Reason::new(RuleId::GuardPace)
        .with("account", request.account)
        .with("window", &window.quota.window)
        .with("used", percent(window.quota.used_permille))
        .until(until);
    // As of the time of the report: a reason that changes with the clock would be a new one at
    // every decision.
    Some(match window.pace(now) {
        Some(pace) => {
            reason.with("elapsed", percent(pace.elapsed_permille)).with("at_reset", percent(pace.at_reset_permille))
        }
        None => reason,
    })
}

fn gap(own: &GuardState, request: &PermitRequest<'_>, now: Time) -> Option<Reason> {
    if planted::is(Bug::GapIgnored) {
        return None;
    }
    let plain = request.spec.min_gap;
    let most = request.spec.max_noop_gap.max(plain);
    let extra = if most > plain { request.noops.saturating_sub(NOOPS_FREE - 1) } else { 0 };
    let gap = doubled(plain, extra, most);
    let next = own.last_start? + gap;
    if next <= now {
        return None;
    }
    let mut reason = Reason::new(RuleId::GuardGap).with("gap", human(gap)).until(next);
    if extra > 0 {
        reason = reason.with("no_op_turns", request.noops);
    }
    Some(reason)
}

fn backoff<'a>(
    scopes: &[Scope],
    canary: Option<&Scope>,
    of: impl Fn(&Scope) -> &'a GuardState,
    now: Time,
) -> Option<Reason> {
    let others = scopes.iter().filter(|s| Some(*s) != canary);
    let waits = others.filter_map(|s| of(s).backing.as_ref().map(|b| (s, b))).filter(|(_, b)| b.until > now);
    let (scope, wait) = waits.max_by_key(|(_, b)| b.until)?;
    let reason = Reason::new(RuleId::GuardBackoff).with("scope", scope).with("why", &wait.why);
    Some(reason.with("failures", of(scope).failures).until(wait.until))
}

/// The cap on starts that a loop has used up, if any.
pub fn caps(own: &GuardState, spec: &GuardSpec, now: Time) -> Option<Reason> {
    spec.caps.windows().find_map(|(name, window, cap)| {
        let used = own.starts.within(window, now);
        (used >= cap).then(|| {
            let reason = Reason::new(RuleId::GuardCap).with("window", name).with("cap", cap).with("used", used);
            reason.until(own.starts.room_at(window, cap, now))
        })
    })
}

fn budget(own: &GuardState, request: &PermitRequest<'_>) -> Option<Reason> {
    let reserved = own.reserved.values().fold(Spend::default(), |sum, s| sum.plus(*s));
    let used = own.spent.plus(reserved);
    let wanted = used.plus(request.reserve);
    let limits = &request.spec.budget;
    let rows = [
        ("calls", limits.calls, wanted.calls, used.calls),
        ("tokens", limits.tokens, wanted.tokens, used.tokens),
        ("dollars", limits.microusd, wanted.microusd, used.microusd),
    ];
    rows.into_iter().find_map(|(name, limit, wanted, used)| {
        let limit = limit?;
        // An unknown price cannot be reserved; the budget then ends the loop once it is used up.
        let over = wanted > limit || (wanted == used && used >= limit);
        over.then(|| Reason::new(RuleId::GuardBudget).with("bound", name).with("budget", limit).with("used", used))
    })
}

fn bucket(account: &GuardState, spec: Option<&BucketSpec>, now: Time) -> Result<Option<Bucket>, Reason> {
    let Some(spec) = spec else { return Ok(None) };
    let full = u64::from(spec.burst) * 1000;
    let every = u64::try_from(spec.every.as_millis()).unwrap_or(u64::MAX).max(1);
    let filled = account.bucket.map_or(full, |b| {
        let gained = u64::try_from(now.since(b.at).as_millis()).unwrap_or(u64::MAX).saturating_mul(1000) / every;
        b.millistarts.saturating_add(gained).min(full)
    });
    if filled < 1000 {
        let wait = Duration::from_millis(((1000 - filled) * every).div_ceil(1000));
        let reason = Reason::new(RuleId::GuardBucket).with("burst", spec.burst).with("every", human(spec.every));
        return Err(reason.until(now + wait));
    }
    Ok(Some(Bucket { millistarts: filled - 1000, at: now }))
}
