//! The guard's state; holds everything, releases a hold.
//!
//! A person's hold and release are events like the guard's own; `crate::hold` writes them.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::guard::permit::caps;
use everloop_core::guard::{Freeze, GuardState, Guards, Scope};
use everloop_core::reason::Reason;
use everloop_core::spec::StartCaps;
use everloop_core::state::LoopState;
use everloop_store::{Ledger, Sqlite};

use super::ServiceContext;
use crate::caller::person;
use crate::error::Failure;
use crate::hold::{self, CliStart};
use crate::record::read_state;
use crate::state_folder::node_id;

/// Every scope, and the loops with their limits.
#[derive(Clone, Debug, Default)]
pub struct GuardAnswer {
    pub guards: Guards,
    pub loops: Vec<LoopState>,
}

/// Block starts in a scope.
#[derive(Clone, Debug)]
pub struct HoldRequest {
    /// A loop may be given by name or prefix.
    pub scope: Scope,
    pub reason: String,
    /// After this time it ends by itself.
    pub time: Option<Duration>,
}

/// End a freeze.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// Without one: all that are frozen.
    pub scope: Option<Scope>,
    pub reason: String,
}

/// What the guard knows.
pub fn status(context: &ServiceContext) -> Result<GuardAnswer, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Ok(GuardAnswer::default()) };
    Ok(GuardAnswer { guards: ledger.guards()?, loops: loops(&ledger)? })
}

/// Blocks starts in a scope; running turns go on to their end.
pub fn hold(context: &ServiceContext, request: HoldRequest) -> Result<(Scope, Freeze), Failure> {
    context.for_a_person("hold the guard")?;
    let reason = reason_given(&request.reason, "everloop guard hold --reason \"the API key leaks\"")?;
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let scope = known(request.scope, &ledger, context)?;
    let now = context.now();
    let freeze = Freeze::by_person(person(), reason, now, request.time.map(|d| now + d));
    hold::write(&mut ledger, &scope, (&Event::Frozen { scope: scope.clone(), freeze: freeze.clone() }, now), &[])?;
    home.wake();
    Ok((scope, freeze))
}

/// Ends freezes and delays that an agent requested, and resets the reflexes; returns the scopes.
pub fn release(context: &ServiceContext, request: ReleaseRequest) -> Result<Vec<Scope>, Failure> {
    context.for_a_person("release the guard")?;
    let reason = reason_given(&request.reason, "everloop guard release --reason \"the key was renewed\"")?;
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let now = context.now();
    let delayed = |guard: &GuardState| guard.backing.as_ref().is_some_and(|delay| delay.requested && delay.until > now);
    let guards = ledger.guards()?.into_iter();
    let frozen: Vec<Scope> =
        guards.filter(|(_, v)| v.state.freeze.is_some() || delayed(&v.state)).map(|(scope, _)| scope).collect();
    let wanted = match request.scope {
        None if frozen.is_empty() => return Err(nothing_frozen()),
        None => frozen,
        Some(scope) => {
            let scope = resolve(scope, &ledger, context)?;
            if !frozen.contains(&scope) {
                return Err(not_frozen(&scope, &frozen));
            }
            vec![scope]
        }
    };
    let by = person();
    for scope in &wanted {
        hold::Release { by: &by, reason, now }.write(&mut ledger, scope, &[])?;
    }
    home.wake();
    Ok(wanted)
}

/// Starts of CLIs by a command in a turn, in a minute, where the loop has no cap of its own.
const CLIS_PER_MINUTE: u32 = 20;

/// Counts a CLI that a command in a turn is about to start, unless a cap of its loop is used up;
/// then the reason. A plain command is free, but what it starts is not: without caps of the loop the
/// usual ones hold.
pub fn admit_cli(context: &ServiceContext, agent: &str) -> Result<Option<Reason>, Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let (Some(state), Some(turn)) = (context.own_loop(&ledger)?, context.caller.turn()) else { return Ok(None) };
    let mut spec = state.spec.guard.clone();
    if spec.caps == StartCaps::NONE {
        spec.caps = StartCaps { per_minute: Some(CLIS_PER_MINUTE), ..StartCaps::default() };
    }
    let (now, node) = (context.now(), Scope::Node(node_id()));
    let scopes = vec![Scope::Loop(state.id.clone()), node, Scope::All];
    let start = CliStart { scopes, agent, by: format!("turn {turn}"), now };
    Ok(start.count(&mut ledger, |own| caps(own, &spec, now))?)
}

fn loops(ledger: &Sqlite) -> Result<Vec<LoopState>, Failure> {
    ledger.loops()?.iter().map(read_state).collect()
}

fn reason_given<'a>(reason: &'a str, example: &str) -> Result<&'a str, Failure> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(Failure::usage("the reason is empty").hint(example));
    }
    Ok(reason)
}

/// A loop may be given by name or prefix, as everywhere else.
fn resolve(scope: Scope, ledger: &Sqlite, context: &ServiceContext) -> Result<Scope, Failure> {
    match scope {
        Scope::Loop(word) => Ok(Scope::Loop(context.find_loop(ledger, Some(word.as_str()))?.0.id)),
        other => Ok(other),
    }
}

/// A hold on an unused name would have no effect and no message.
fn known(scope: Scope, ledger: &Sqlite, context: &ServiceContext) -> Result<Scope, Failure> {
    let scope = resolve(scope, ledger, context)?;
    let loops = loops(ledger)?;
    let mut all: Vec<Scope> = vec![Scope::All, Scope::Node(node_id())];
    let agents = loops.iter().flat_map(|s| s.spec.agents());
    all.extend(agents.flat_map(|a| [a.account.clone(), a.guard_account()]).map(Scope::Account));
    all.extend(ledger.guards()?.into_keys());
    all.extend(loops.iter().filter(|s| !s.is_over()).map(|s| Scope::Loop(s.id.clone())));
    if matches!(scope, Scope::Loop(_)) || all.contains(&scope) {
        return Ok(scope);
    }
    all.sort();
    all.dedup();
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    Err(Failure::usage(format!("`{scope}` is not used by any loop")).hint(format!("there are: {}", names.join(", "))))
}

fn nothing_frozen() -> Failure {
    Failure::usage("nothing is frozen").hint("`everloop guard status` shows the guard's state")
}

fn not_frozen(scope: &Scope, frozen: &[Scope]) -> Failure {
    if frozen.is_empty() {
        return nothing_frozen();
    }
    let names: Vec<String> = frozen.iter().map(ToString::to_string).collect();
    Failure::usage(format!("`{scope}` is not frozen")).hint(format!("frozen are: {}", names.join(", ")))
}
