//! What is written to the guard beside the loops: a person's hold and release, and starts of CLIs
//! that are no turns. State and journal are one transaction.

use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::guard::{GuardState, Scope};
use everloop_core::op::{Op, Refusal};
use everloop_core::reason::{Reason, RuleId};
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

/// A CLI that was started beside the turns.
pub struct CliStart<'a> {
    /// All scopes in which it counts; the first one decides.
    pub scopes: Vec<Scope>,
    pub agent: &'a str,
    /// The session, or the turn.
    pub by: String,
    pub now: Time,
}

impl CliStart<'_> {
    /// Counts it in all its scopes and in the journal, unless `refuses` finds a reason not to; that
    /// reason.
    pub fn count(
        &self,
        ledger: &mut Sqlite,
        refuses: impl Fn(&GuardState) -> Option<Reason>,
    ) -> Result<Option<Reason>, Error> {
        let (scopes, agent, by) = (self.scopes.clone(), self.agent.to_owned(), self.by.clone());
        let event = Event::CliStarted { scopes, agent, by };
        for _ in 0..MAX_CONFLICT_RETRIES {
            let mut batch = Vec::new();
            for (place, scope) in self.scopes.iter().enumerate() {
                let mut guard = ledger.guard(scope)?;
                if let Some(reason) = refuses(&guard.state).filter(|_| place == 0) {
                    return Ok(Some(reason));
                }
                guard.state.apply(scope, &event, self.now);
                let (scope, state) = (scope.clone(), Box::new(guard.state));
                batch.push(Op::SaveGuard { scope, version: guard.version, state });
            }
            batch.push(Op::Append { owner: None, events: vec![event.clone()] });
            match ledger.transact(self.now, &batch) {
                Err(Error::Refused(Refusal::Conflict { .. })) => {}
                other => return other.map(|_| None),
            }
        }
        Err(Error::Refused(Refusal::Conflict { what: "the guard".to_owned() }))
    }
}
