//! Loops and what they are doing. One look at the ledger, never at the journal.

use everloop_core::guard::{Freeze, Guards, Scope};
use everloop_core::hook::{HookSession as Record, SESSION};
use everloop_core::immune::Immune;
use everloop_core::op::Ticket;
use everloop_core::state::LoopState;
use everloop_store::{Ledger, Tickets};

use super::sessions::{SHOWN, read_record};
use super::{ServiceContext, no_loops};
use crate::error::Failure;
use crate::notifiers;
use crate::record::read_state;
use crate::state_folder::LockOwner;
use crate::state_folder::node_id;

/// What one read of the ledger found.
#[derive(Debug, Default)]
pub struct StatusAnswer {
    pub loops: Vec<LoopState>,
    pub guards: Guards,
    pub tickets: Vec<Ticket>,
    /// Notifiers that cannot be reached, and what is wrong.
    pub troubles: Vec<(String, String)>,
    /// Sessions that everloop did not start, by id.
    pub sessions: Vec<(String, Record)>,
    pub immune: Immune,
    pub supervisor: Option<LockOwner>,
}

/// All loops, or the one that a word means, and what concerns them.
pub fn status(context: &ServiceContext, word: Option<&str>) -> Result<StatusAnswer, Failure> {
    let home = context.home()?;
    let supervisor = home.owner();
    let Some(ledger) = context.reader(&home)? else {
        return match word {
            Some(_) => Err(no_loops()),
            None => Ok(StatusAnswer { supervisor, ..StatusAnswer::default() }),
        };
    };
    let mut loops = match word {
        Some(word) => vec![context.find_loop(&ledger, Some(word))?.1],
        None => ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?,
    };
    loops.sort_by_key(|s| std::cmp::Reverse((!s.is_over(), s.created_at)));
    let mut tickets = ledger.tickets(Tickets::Open)?;
    if word.is_some() {
        tickets.retain(|t| t.owner.is_none() || loops.iter().any(|s| t.owner.as_ref() == Some(&s.id)));
    }
    let mut sessions = Vec::new();
    for row in ledger.docs(SESSION)? {
        let record = read_record(&row.body)?;
        let here = word.is_none() || loops.iter().any(|s| record.owner.as_ref() == Some(&s.id));
        if here && !record.ended && context.now().since(record.seen_at) < SHOWN {
            sessions.push((row.key, record));
        }
    }
    let troubles = notifiers::troubles(&ledger, context.now())?;
    let (_, immune) = crate::immune::read(&ledger)?;
    Ok(StatusAnswer { loops, guards: ledger.guards()?, tickets, troubles, sessions, immune, supervisor })
}

/// The freeze that keeps a loop from starting anything, with its scope.
pub fn freeze_of<'a>(state: &LoopState, guards: &'a Guards) -> Option<(Scope, &'a Freeze)> {
    let scopes = [
        Scope::All,
        Scope::Node(node_id()),
        Scope::Account(state.spec.agent.account.clone()),
        Scope::Loop(state.id.clone()),
    ];
    scopes.into_iter().find_map(|scope| {
        let freeze = guards.get(&scope)?.state.freeze.as_ref()?;
        Some((scope, freeze))
    })
}
