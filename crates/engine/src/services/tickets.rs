//! Tickets of this machine and of the mesh: listed, shown, answered, acknowledged. What an answer
//! does is in `crate::tickets`; here its loop is made to read it.

use std::path::PathBuf;

use everloop_core::guard::Scope;
use everloop_core::ids::LoopId;
use everloop_core::op::{Op, Ticket};
use everloop_core::outbound::tickets::{Alert, plan};
use everloop_core::reason::Reason;
use everloop_store::{Ledger, Sqlite, Tickets};
use serde::Serialize;

use super::ServiceContext;
use super::loops::{Taker, deliver};
use crate::error::Failure;
use crate::membership::Membership;
use crate::outboxes;
use crate::record::read_state;
use crate::supervisor::mesh::copy_of;
use crate::tickets::{self, Doer, Effect, TicketRecord};
use crate::trust::TrustStore;

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

/// Tickets with what people did about them.
#[derive(Debug)]
pub struct TicketList {
    pub here: Vec<(Ticket, TicketRecord)>,
    /// Open ones of the mesh that are not copied here; an error when its hub is away.
    pub mesh: Result<Vec<Ticket>, Failure>,
}

/// A ticket with its record and its deliveries.
#[derive(Clone, Debug)]
pub struct TicketShown {
    pub ticket: Ticket,
    pub record: TicketRecord,
    /// For each notifier by name why the open ticket is delivered now, later or not at all.
    pub deliveries: Vec<(String, Reason)>,
}

/// The tickets of this machine, and the open ones of its mesh.
pub fn list(context: &ServiceContext, which: Tickets) -> Result<TicketList, Failure> {
    let home = context.home()?;
    let here: Vec<(Ticket, TicketRecord)> = match context.reader(&home)? {
        Some(ledger) => {
            let with_record = |t: Ticket| tickets::seen(&ledger, t.id).map(|(_, record)| (t, record));
            ledger.tickets(which)?.into_iter().map(with_record).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let mesh = match Membership::read(&home)? {
        None => Ok(Vec::new()),
        Some(membership) => membership.open().and_then(|hub| Ok(hub.tickets(Tickets::Open)?)),
    };
    // The leader has a copy of each.
    let is_copied = |ticket: &Ticket| here.iter().any(|(own, _)| own.key == copy_of(ticket));
    let mesh = mesh.map(|open| open.into_iter().filter(|ticket| !is_copied(ticket)).collect());
    Ok(TicketList { here, mesh })
}

/// The ticket that a word means.
pub fn show(context: &ServiceContext, word: &str) -> Result<TicketShown, Failure> {
    let home = context.home()?;
    let no_ticket =
        || Failure::usage(format!("there is no ticket `{word}`")).hint("`everloop ticket list --all` shows them");
    let ledger = context.reader(&home)?.ok_or_else(no_ticket)?;
    let ticket = tickets::find(&ledger, word)?;
    let record = tickets::seen(&ledger, ticket.id)?.1;
    let deliveries = if ticket.closed.is_none() { deliveries(&ledger, &ticket, context)? } else { Vec::new() };
    Ok(TicketShown { ticket, record, deliveries })
}

/// Repeats the supervisor's own decision about an open ticket.
fn deliveries(ledger: &Sqlite, ticket: &Ticket, context: &ServiceContext) -> Result<Vec<(String, Reason)>, Failure> {
    let owner = ticket.owner.as_ref().map(|id| ledger.get_loop(id)).transpose()?.flatten();
    let home = owner.and_then(|row| read_state(&row).ok()).map(|state| PathBuf::from(state.spec.workspace.dir));
    let alerts = tickets::alerts(ledger)?;
    let now = context.now();
    let mut found = Vec::new();
    let store = TrustStore::read(ledger)?;
    let file = store.in_force(&*context.projects, home.as_deref().unwrap_or(&context.dir));
    for sender in context.projects.notifiers(file.as_ref(), now)? {
        let outbox = outboxes::outbox(ledger, &sender.key())?;
        let mine: Vec<Alert> =
            alerts.iter().filter(|a| a.id == ticket.id && sender.hears(a, home.as_deref())).cloned().collect();
        let mut plan = plan(&mine, &sender.of.route, &outbox, outboxes::moment(now));
        found.extend(plan.reasons.remove(&ticket.id).map(|reason| (sender.of.receiver.name.clone(), reason)));
    }
    Ok(found)
}

/// Acknowledges a ticket: it is not repeated and stays open. Returns it, and the person that did so
/// before.
pub fn ack(context: &ServiceContext, word: &str) -> Result<(Ticket, Option<String>), Failure> {
    let by = a_person(context)?;
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let doer = Doer { by: &by, now: context.now(), with: &[] };
    let done = tickets::ack(&mut ledger, word, doer)?;
    home.wake();
    Ok(done)
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
