//! Tickets of the hub on the machine of the mesh's supervisor: each open one is copied into its own ledger, where its notifiers
//! tell people and people answer. What is answered on one side is closed on the other. When the supervisor changes, the next
//! one copies them again: a person may be told twice, and is never told nothing.

use std::collections::BTreeMap;

use everloop_core::op::{Op, Ticket};
use everloop_core::time::Time;
use everloop_store::{Ledger, Tickets};

use super::node::Node;

/// Between two looks: people are told within a minute.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(20);
/// Closed copies that are remembered.
const REMEMBERED: usize = 500;

/// The key of a copy: its cause comes first, because that says how urgent it is.
pub fn copy_of(ticket: &Ticket) -> String {
    format!("{}@{}", ticket.key, ticket.id)
}

/// The number of the ticket in the hub that this one is a copy of.
fn original(copy: &Ticket) -> Option<u64> {
    copy.key.rsplit_once('@')?.1.parse().ok()
}

/// What to write in the hub and here, so that both know the same.
fn reconcile(hub: &[Ticket], here: &[Ticket]) -> (Vec<Op>, Vec<Op>) {
    let copies: BTreeMap<u64, &Ticket> = here.iter().filter_map(|copy| Some((original(copy)?, copy))).collect();
    let (mut there, mut own) = (Vec::new(), Vec::new());
    for ticket in hub {
        match copies.get(&ticket.id).map(|copy| &copy.closed) {
            None => {
                let text = format!("mesh: {}", ticket.text);
                own.push(Op::OpenTicket { key: copy_of(ticket), owner: None, text });
            }
            Some(Some((_, answer))) => {
                there.push(Op::CloseTicket { key: ticket.key.clone(), answer: answer.clone() });
            }
            Some(None) => {}
        }
    }
    let over = |id: &u64| !hub.iter().any(|ticket| ticket.id == *id);
    for copy in copies.iter().filter(|(id, copy)| over(id) && copy.closed.is_none()).map(|(_, copy)| copy) {
        own.push(Op::CloseTicket { key: copy.key.clone(), answer: "it is closed in the hub".to_owned() });
    }
    (there, own)
}

impl Node {
    /// Copies tickets and answers, now and then.
    pub(super) fn tell_people(&mut self) {
        let now = self.pace.now();
        if now < self.tell_at {
            return;
        }
        self.tell_at = now + POLL_INTERVAL;
        let Some(Ok(open)) = self.at_hub("look at tickets", |hub| hub.tickets(Tickets::Open)) else { return };
        let Ok(here) = self.local.tickets(Tickets::Newest(REMEMBERED)) else { return };
        let (there, own) = reconcile(&open, &here);
        if !there.is_empty() {
            self.at_hub("close tickets", |hub| hub.transact(Time::default(), &there));
        }
        if own.is_empty() {
            return;
        }
        match self.local.transact(self.pace.now(), &own) {
            Ok(_) => self.home.wake(),
            Err(error) => tracing::warn!(%error, "tickets of the mesh cannot be copied"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(id: u64, key: &str, closed: Option<&str>) -> Ticket {
        let closed = closed.map(|answer| (Time(2), answer.to_owned()));
        Ticket {
            id,
            key: key.to_owned(),
            owner: None,
            text: "it came to nothing".to_owned(),
            opened_at: Time(1),
            closed,
        }
    }

    #[test]
    fn what_is_open_in_the_hub_is_open_here_until_either_side_closes_it() {
        let hub = [ticket(7, "dead:k3f9-1", None)];
        let (there, own) = reconcile(&hub, &[]);
        assert!(there.is_empty());
        let [Op::OpenTicket { key, text, .. }] = &own[..] else { panic!("{own:?}") };
        assert_eq!((key.as_str(), text.as_str()), ("dead:k3f9-1@7", "mesh: it came to nothing"));
        assert_eq!(reconcile(&hub, &[ticket(1, key, None)]), (Vec::new(), Vec::new()), "once");
        let (there, own) = reconcile(&hub, &[ticket(1, key, Some("me: try again"))]);
        assert!(own.is_empty());
        let answered = Op::CloseTicket { key: "dead:k3f9-1".to_owned(), answer: "me: try again".to_owned() };
        assert_eq!(there, [answered]);
        let (there, own) = reconcile(&[], &[ticket(1, key, None), ticket(2, "question:-:1", None)]);
        assert!(there.is_empty());
        assert!(matches!(&own[..], [Op::CloseTicket { key: closed, .. }] if closed == key), "its own are its own");
        let again = [ticket(9, "dead:k3f9-1", None)];
        assert_eq!(reconcile(&again, &[ticket(1, key, Some("me"))]).1.len(), 1, "the same cause again is another one");
    }
}
