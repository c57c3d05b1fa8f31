//! A person's hold and release of the guard: written to the guard's state and to the journal in one
//! transaction, with name and reason.

use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::guard::Scope;
use everloop_core::op::{Op, Refusal};
use everloop_core::reason::RuleId;
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, Sqlite};

use crate::record::read_state;

/// Another process may write at the same time; then the state is read and changed again.
const MAX_CONFLICT_RETRIES: u32 = 8;

/// A release, with the releasing person and the reason.
pub struct Release<'a> {
    pub by: &'a str,
    /// What was done about the cause.
    pub reason: &'a str,
    pub now: Time,
}

impl Release<'_> {
    /// Ends the freeze of a scope: closes its ticket and wakes the loops that wait for it.
    pub fn write(&self, ledger: &mut Sqlite, scope: &Scope, extra: &[Op]) -> Result<(), Error> {
        let event = Event::Released { scope: scope.clone(), by: self.by.to_owned(), reason: self.reason.to_owned() };
        let key = format!("guard.freeze:{scope}");
        let mut ops = vec![Op::CloseTicket { key, answer: format!("released by {}: {}", self.by, self.reason) }];
        ops.extend(wake_calls(ledger, self.by)?);
        ops.extend_from_slice(extra);
        write(ledger, scope, (&event, self.now), &ops)
    }
}

/// Loops that wait for a frozen scope have no timer, or one that is hours away: a wake command
/// makes them check again.
fn wake_calls(ledger: &Sqlite, by: &str) -> Result<Vec<Op>, Error> {
    let held =
        |state: &LoopState| matches!(&state.phase, Phase::Waiting { reason, .. } if reason.rule == RuleId::GuardFreeze);
    let body = serde_json::to_string(&LoopCommand::Wake).expect("a command is plain data and always has a JSON form");
    let call = |state: &LoopState| Op::Signal { to: state.id.to_string(), by: by.to_owned(), body: body.clone() };
    // A loop with unreadable state waits for nothing known here.
    let loops: Vec<LoopState> = ledger.loops()?.iter().filter_map(|row| read_state(row).ok()).collect();
    Ok(loops.iter().filter(|s| held(s)).map(call).collect())
}

/// Applies an event to a guard: its state, the journal and `extra` in one transaction.
pub fn write(ledger: &mut Sqlite, scope: &Scope, (event, now): (&Event, Time), extra: &[Op]) -> Result<(), Error> {
    let conflict = Refusal::Conflict { what: format!("guard {scope}") };
    for _ in 0..MAX_CONFLICT_RETRIES {
        let mut guard = ledger.guard(scope)?;
        guard.state.apply(scope, event, now);
        let mut batch = vec![
            Op::SaveGuard { scope: scope.clone(), version: guard.version, state: Box::new(guard.state) },
            Op::Append { owner: None, events: vec![event.clone()] },
        ];
        batch.extend_from_slice(extra);
        match ledger.transact(now, &batch) {
            Err(Error::Refused(refusal)) if refusal == conflict => {}
            other => return other.map(drop),
        }
    }
    Err(Error::Refused(conflict))
}
