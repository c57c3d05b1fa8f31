//! A permission that the CLI of a turn requests: allowed before, or a ticket that is waited for.

use std::time::{Duration, Instant};

use everloop_agents::clock;
use everloop_agents::redact::without_secrets;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::permission::{PERMISSION, PermissionCall, PermissionWord};
use everloop_store::{Ledger, Sqlite, Tickets};
use serde::Serialize;

use super::ServiceContext;
use crate::caller::Caller;
use crate::error::Failure;
use crate::permissions::{self, Asked};
use crate::tickets;

/// Poll interval for the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// A longer request could not be read in its ticket.
const MAX_INPUT_BYTES: usize = 16 << 10;
/// More open requests than a CLI makes at a time would only bury the others.
const MAX_WAITING: usize = 20;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum PermissionReply {
    Allow,
    Deny { why: String },
}

/// Gets the answer to a request of a turn; waits for a person at most this long.
pub fn ask(context: &ServiceContext, call: &PermissionCall, within: Duration) -> Result<PermissionReply, Failure> {
    let turn = turn_of(&context.caller)?;
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let owner = owner(&ledger, &turn)?;
    let known = permissions::known(&ledger, &owner)?.1;
    if known.allows(call) {
        return Ok(PermissionReply::Allow);
    }
    if let Some(why) = unfit(&ledger, call)? {
        return Ok(deny(why));
    }
    if known.unattended {
        // A night without a person costs one wait and one ticket, not one per request.
        return Ok(deny("no person answers requests of this loop at the moment; go on without it"));
    }
    let asked = Asked { owner: &owner, call, turn: turn.as_str() };
    asked.open(&mut ledger, context.now())?;
    home.wake();
    let deadline = Instant::now() + clock::machine_period(within);
    let key = asked.key();
    while Instant::now() < deadline {
        let ticket = tickets::find(&ledger, &key)?;
        if let Some((_, answer)) = &ticket.closed {
            return Ok(reply(answer));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    asked.give_up(&mut ledger, context.now())?;
    home.wake();
    Ok(deny("no person answered in time; go on without it"))
}

/// Why a request is not put to a person.
fn unfit(ledger: &Sqlite, call: &PermissionCall) -> Result<Option<&'static str>, Failure> {
    if call.input.len() > MAX_INPUT_BYTES {
        return Ok(Some("the request is too long for a person to read; divide it"));
    }
    if without_secrets(&call.input) != call.input {
        return Ok(Some("there is a secret in the request; name it as a variable of the account instead"));
    }
    let waiting = ledger.tickets(Tickets::Open)?.iter().filter(|ticket| ticket.key.starts_with(PERMISSION)).count();
    Ok((waiting >= MAX_WAITING).then_some("too many requests wait for a person; go on without it"))
}

/// An answer is stored as `PERSON: TEXT`; one without a person is no consent.
fn reply(answer: &str) -> PermissionReply {
    let word = answer.split_once(": ").map(|(_, text)| PermissionWord::of(text));
    match word {
        Some(PermissionWord::Once | PermissionWord::Always) => PermissionReply::Allow,
        Some(PermissionWord::Deny(text)) => deny(&format!("a person refused it: {text}")),
        None => deny(answer),
    }
}

fn deny(why: &str) -> PermissionReply {
    PermissionReply::Deny { why: why.to_owned() }
}

/// Only the CLI of a turn has anything to request.
fn turn_of(caller: &Caller) -> Result<TurnId, Failure> {
    let word = match caller {
        Caller::Turn(turn) => turn.as_str(),
        Caller::Client(name) => name.strip_prefix("turn ").unwrap_or_default(),
        Caller::Person(_) => "",
    };
    word.parse().map_err(|_| Failure::usage("only the agent of a turn requests permissions"))
}

fn owner(ledger: &Sqlite, turn: &TurnId) -> Result<LoopId, Failure> {
    let row = ledger.task(turn.task())?;
    row.and_then(|row| row.task.owner).ok_or_else(|| Failure::failed(format!("turn `{turn}` belongs to no loop")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_of_a_person_is_consent() {
        assert_eq!(reply("me: allow"), PermissionReply::Allow);
        assert_eq!(reply("ann (telegram): always"), PermissionReply::Allow);
        for refused in ["me: deny", "me: not now", "the turn that asked has ended", "no answer in time: refused"] {
            assert!(matches!(reply(refused), PermissionReply::Deny { .. }), "{refused}");
        }
    }
}
