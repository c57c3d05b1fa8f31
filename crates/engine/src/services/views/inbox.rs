//! Tickets: what waits for a person, and what was closed lately.

use everloop_core::ids::LoopId;
use everloop_core::op::Ticket;
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite, Tickets};
use serde::Serialize;

use super::{ledger, line, lines};
use crate::error::Failure;
use crate::services::ServiceContext;
use crate::tickets;

/// Closed tickets that are still listed.
const CLOSED_SHOWN: usize = 20;
/// Lines of a ticket; `everloop ticket show` has all.
const TEXT_LINES: usize = 40;

/// A ticket with its record.
#[derive(Clone, Debug, Serialize)]
pub struct TicketCard {
    pub id: u64,
    pub key: String,
    #[serde(rename = "loop")]
    pub owner: Option<LoopId>,
    pub text: Vec<String>,
    pub opened_at: Time,
    /// The person that acknowledged it first, and when.
    pub acked: Option<(String, Time)>,
    /// When it was closed, and with which words.
    pub closed: Option<(Time, String)>,
}

/// Tickets, open ones first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InboxView {
    pub open: Vec<TicketCard>,
    pub closed: Vec<TicketCard>,
}

/// Reads the tickets of this machine.
pub fn inbox(context: &ServiceContext) -> Result<InboxView, Failure> {
    let Some(ledger) = ledger(context)? else { return Ok(InboxView::default()) };
    let now = context.now();
    let open = cards(&ledger, ledger.tickets(Tickets::Open)?, now)?;
    let mut closed = ledger.tickets(Tickets::Newest(2 * CLOSED_SHOWN))?;
    closed.retain(|ticket| ticket.closed.is_some());
    closed.reverse();
    closed.truncate(CLOSED_SHOWN);
    Ok(InboxView { open, closed: cards(&ledger, closed, now)? })
}

/// The tickets of one loop.
pub(super) fn of_loop(ledger: &Sqlite, id: &LoopId, now: Time) -> Result<Vec<TicketCard>, Failure> {
    let mut open = ledger.tickets(Tickets::Open)?;
    open.retain(|ticket| ticket.owner.as_ref() == Some(id));
    cards(ledger, open, now)
}

/// Tickets with what people did about them.
pub(super) fn cards(ledger: &Sqlite, tickets: Vec<Ticket>, now: Time) -> Result<Vec<TicketCard>, Failure> {
    let card = |ticket: Ticket| -> Result<TicketCard, Failure> {
        let acked = tickets::seen(ledger, ticket.id)?.1.acked.map(|(by, at)| (line(&by), at.min(now)));
        Ok(TicketCard {
            id: ticket.id,
            key: line(&ticket.key),
            owner: ticket.owner,
            text: lines(&ticket.text, TEXT_LINES),
            opened_at: ticket.opened_at,
            acked,
            closed: ticket.closed.map(|(at, answer)| (at, line(&answer))),
        })
    };
    tickets.into_iter().map(card).collect()
}
