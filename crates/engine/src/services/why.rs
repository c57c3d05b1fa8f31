//! Why a loop, or a session that everloop did not start, is as it is.

use everloop_core::completion::Memory;
use everloop_core::guard::{Freeze, Scope};
use everloop_core::hook::HookSession as Record;
use everloop_core::immune::Immune;
use everloop_core::op::Ticket;
use everloop_core::state::LoopState;
use everloop_store::{Ledger, Tickets};

use super::mesh::{MeshDetail, MeshView};
use super::persona::{self, NextLook};
use super::status::freeze_of;
use super::{ServiceContext, no_loops, sessions};
use crate::completion;
use crate::error::Failure;
use crate::state_folder::LockOwner;

/// What explains a loop.
#[derive(Clone, Debug)]
pub struct LoopWhy {
    pub state: LoopState,
    /// The freeze that keeps it from starting anything.
    pub freeze: Option<(Scope, Freeze)>,
    pub immune: Immune,
    /// Open tickets about it.
    pub tickets: Vec<Ticket>,
    /// Sessions that work on it now.
    pub sessions: Vec<(String, Record)>,
    /// Signs that its goal is reached, by rule.
    pub signs: Vec<(String, Memory)>,
    pub supervisor: Option<LockOwner>,
    /// The next look of a persona, with every factor.
    pub next_look: Option<NextLook>,
}

/// What a word meant, and what explains it.
#[derive(Debug)]
pub enum WhyAnswer {
    Loop(Box<LoopWhy>),
    Session { id: String, record: Box<Record> },
    Mesh(Box<MeshWhy>),
}

/// What explains a loop of the mesh.
#[derive(Debug)]
pub struct MeshWhy {
    pub detail: MeshDetail,
    /// With the hub, or with this node's copy of it.
    pub view: MeshView,
}

/// What explains the loop or the session that a word means; without a word the loop of this folder.
pub fn why(context: &ServiceContext, word: Option<&str>) -> Result<WhyAnswer, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return of_mesh(context, word, no_loops()) };
    let found = context.find_loop(&ledger, word);
    if let (Err(_), Some(word)) = (&found, word)
        && let Some((id, record)) = sessions::find(&ledger, word)?
    {
        return Ok(WhyAnswer::Session { id, record: Box::new(record) });
    }
    let (_, state) = match found {
        Ok(found) => found,
        Err(failure) => return of_mesh(context, word, failure),
    };
    let guards = ledger.guards()?;
    let mut tickets = ledger.tickets(Tickets::Open)?;
    tickets.retain(|t| t.owner.as_ref() == Some(&state.id));
    let frozen = freeze_of(&state, &guards).filter(|_| !state.is_over());
    Ok(WhyAnswer::Loop(Box::new(LoopWhy {
        freeze: frozen.map(|(scope, freeze)| (scope, freeze.clone())),
        immune: crate::immune::read(&ledger)?.1,
        tickets,
        sessions: sessions::of(&ledger, &state, context.now())?,
        signs: completion::known(&ledger, &state.id)?,
        supervisor: home.owner(),
        next_look: persona::view(&state, context.now()).and_then(|view| view.next),
        state,
    })))
}

/// The loop of the mesh with this id; `failure` when there is none, or no mesh.
fn of_mesh(context: &ServiceContext, word: Option<&str>, failure: Failure) -> Result<WhyAnswer, Failure> {
    let Some(word) = word.filter(|_| context.home().is_ok_and(|home| home.membership().exists())) else {
        return Err(failure);
    };
    let view = MeshView::open(context)?;
    match view.find(word)? {
        Some(detail) => Ok(WhyAnswer::Mesh(Box::new(MeshWhy { detail, view }))),
        None => Err(failure),
    }
}
