//! Tickets of the hub on the leader's node: each open one is copied into its own ledger, whose
//! channels notify people and in which people answer. What is answered on one side is closed on the
//! other. When the leader changes, the next one copies them again: a person may be notified twice,
//! and never not at all.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MeshNode, NodeEffects, NodeEvent};
use crate::op::{Op, Ticket};
use crate::planted::{self, Bug};

/// Between two looks: people are notified within a minute.
const COPY: Duration = Duration::from_secs(20);

/// The key of a copy: its cause comes first, because that decides how urgent it is.
pub fn copy_of(ticket: &Ticket) -> String {
    format!("{}@{}", ticket.key, ticket.id)
}

/// Whether a ticket is a copy of one of the hub.
fn is_copy(ticket: &Ticket) -> bool {
    ticket.key.rsplit_once('@').is_some_and(|(_, id)| id.parse::<u64>().is_ok())
}

/// What to write in the hub and here, so that both know the same.
fn reconcile(hub: &[Ticket], here: &[Ticket]) -> (Vec<Op>, Vec<Op>) {
    // By the whole key: a hub that was set back gives a number to another ticket.
    let mut copies: BTreeMap<&str, &Ticket> =
        here.iter().filter(|copy| is_copy(copy)).map(|copy| (copy.key.as_str(), copy)).collect();
    let (mut there, mut own) = (Vec::new(), Vec::new());
    for ticket in hub {
        let key = copy_of(ticket);
        match copies.remove(key.as_str()).map(|copy| &copy.closed) {
            None => {
                let text = format!("mesh: {}", ticket.text);
                own.push(Op::OpenTicket { key, owner: None, text });
            }
            Some(Some((_, answer))) if !planted::is(Bug::AnswersStayLocal) => {
                there.push(Op::CloseTicket { key: ticket.key.clone(), answer: answer.clone() });
            }
            Some(_) => {}
        }
    }
    for copy in copies.into_values().filter(|copy| copy.closed.is_none()) {
        own.push(Op::CloseTicket { key: copy.key.clone(), answer: "it is closed in the hub".to_owned() });
    }
    (there, own)
}

impl MeshNode {
    /// Copies tickets and answers, now and then.
    pub(super) fn copy_tickets(&mut self, fx: &mut impl NodeEffects) {
        let now = fx.now();
        if now < self.tickets_at {
            return;
        }
        self.tickets_at = now + COPY;
        let Some(open) = self.at_hub(fx, "look at tickets", super::effects::HubCalls::tickets) else { return };
        let Some(here) = fx.local_tickets() else { return };
        let (there, own) = reconcile(&open, &here);
        if !there.is_empty() {
            self.at_hub(fx, "close tickets", |fx| fx.transact(None, &there));
        }
        if !own.is_empty()
            && let Err(error) = fx.write_tickets(&own)
        {
            fx.observe(&NodeEvent::NotWritten { what: "copies of tickets", error: &error });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

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
