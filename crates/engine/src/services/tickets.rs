//! Answers to tickets, of this machine and of the mesh. What an answer does is in `crate::tickets`;
//! here its loop is made to read it.

use everloop_core::guard::Scope;
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_store::{Ledger, Tickets};
use serde::Serialize;

use super::ServiceContext;
use super::loops::{Taker, deliver};
use crate::error::Failure;
use crate::tickets::{self, Doer, Effect};

/// Prefix of the number of a ticket of the mesh.
pub const MESH: &str = "mesh:";

/// The number of a ticket: of this machine, or of the mesh with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TicketNumber {
    Here(u64),
    Mesh(String),
}

/// The effect of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TicketAnswer {
    pub ticket: TicketNumber,
    pub key: String,
    /// The loop that reads it in its next turn.
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub owner: Option<LoopId>,
    /// The freeze that it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released: Option<Scope>,
    /// What took it to the loop.
    #[serde(skip)]
    pub taker: Option<Taker>,
}

/// The name of the caller, if it is a person: an agent that could answer would grade itself.
pub fn a_person(context: &ServiceContext) -> Result<String, Failure> {
    if context.caller.is_person() {
        return Ok(context.caller.name());
    }
    Err(Failure::usage("only a person answers tickets").hint("wait for the answer"))
}

/// Answers a ticket and has its loop read the answer.
pub fn answer(context: &ServiceContext, word: &str, text: &str) -> Result<TicketAnswer, Failure> {
    let by = a_person(context)?;
    if let Some(number) = word.strip_prefix(MESH) {
        return answer_mesh(context, number, &format!("{by}: {text}"));
    }
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let doer = Doer { by: &by, now: context.now(), with: &[] };
    let (ticket, effect) = tickets::answer(&mut ledger, word, text, doer)?;
    drop(ledger);
    let (owner, released) = match effect {
        Effect::Told(id) => (Some(id), None),
        Effect::Released(scope) => (None, Some(scope)),
        Effect::Closed => (None, None),
    };
    let taker = owner.as_ref().map(|id| deliver(context, id)).transpose()?;
    home.wake();
    Ok(TicketAnswer { ticket: TicketNumber::Here(ticket.id), key: ticket.key, owner, released, taker })
}

fn answer_mesh(context: &ServiceContext, number: &str, answer: &str) -> Result<TicketAnswer, Failure> {
    let (_, mut hub) = context.hub()?;
    let open = hub.tickets(Tickets::Open)?;
    let ticket = open.iter().find(|t| t.id.to_string() == number);
    let ticket = ticket.ok_or_else(|| {
        Failure::usage(format!("the mesh has no open ticket {number}")).hint("`everloop ticket list` shows them")
    })?;
    hub.transact(context.now(), &[Op::CloseTicket { key: ticket.key.clone(), answer: answer.to_owned() }])?;
    let number = TicketNumber::Mesh(format!("{MESH}{number}"));
    Ok(TicketAnswer { ticket: number, key: ticket.key.clone(), owner: None, released: None, taker: None })
}
