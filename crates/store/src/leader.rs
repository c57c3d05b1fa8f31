//! Grants of the leader lease. Pure; shared by all ledgers.

use everloop_core::ids::NodeId;
use everloop_core::op::Refusal;
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;

use crate::rows::Leader;

/// The leader after `node` requested the lease until `until`; `None` when another node holds it.
pub(crate) fn elect(current: Option<&Leader>, node: &NodeId, until: Time, now: Time) -> Option<Leader> {
    let term = match current {
        None => 1,
        Some(leader) if leader.until <= now => leader.term + u64::from(!planted::is(Bug::EpochNotGrown)),
        Some(leader) if leader.node == *node => leader.term,
        Some(leader) if planted::is(Bug::StealsTheSeat) => leader.term + 1,
        Some(_) => return None,
    };
    Some(Leader { node: node.clone(), term, until })
}

/// Refuses a node that is not the leader in this term now.
pub(crate) fn check_lead(current: Option<&Leader>, node: &NodeId, term: u64, now: Time) -> Result<(), Refusal> {
    let leads = current.is_some_and(|leader| leader.node == *node && leader.term == term && leader.until > now);
    if leads { Ok(()) } else { Err(Refusal::NotLeader { term }) }
}

/// The leader after `node` resigned; `None` when it is not the leader.
pub(crate) fn resign(current: Option<&Leader>, node: &NodeId, term: u64, now: Time) -> Option<Leader> {
    check_lead(current, node, term, now).ok()?;
    Some(Leader { node: node.clone(), term, until: now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_grows_with_every_grant_that_is_not_a_renewal() {
        let (a, b) = (NodeId::new("a"), NodeId::new("b"));
        let first = elect(None, &a, Time(10), Time(0)).unwrap();
        assert_eq!(first.term, 1);
        assert_eq!(elect(Some(&first), &b, Time(19), Time(9)), None, "the lease is live");
        let renewed = elect(Some(&first), &a, Time(19), Time(9)).unwrap();
        assert_eq!((renewed.term, renewed.until), (1, Time(19)));
        assert_eq!(elect(Some(&renewed), &b, Time(29), Time(19)).unwrap().term, 2, "over at its very end");
        assert_eq!(elect(Some(&renewed), &a, Time(29), Time(19)).unwrap().term, 2, "also for its last holder");
    }
    #[test]
    fn only_who_leads_under_this_epoch_and_in_time_leads() {
        let (a, b) = (NodeId::new("a"), NodeId::new("b"));
        let leader = Leader { node: a.clone(), term: 3, until: Time(10) };
        let leads = |node, term, now| check_lead(Some(&leader), node, term, Time(now)).is_ok();
        assert!(leads(&a, 3, 9));
        assert!(!leads(&a, 3, 10) && !leads(&a, 2, 9) && !leads(&b, 3, 9));
        assert!(check_lead(None, &a, 1, Time(0)).is_err());
        let resigned = resign(Some(&leader), &a, 3, Time(4)).unwrap();
        assert_eq!(elect(Some(&resigned), &b, Time(19), Time(4)).unwrap().term, 4, "no wait for the end of the lease");
        assert_eq!(resign(Some(&leader), &b, 3, Time(4)), None);
        assert_eq!(resign(Some(&leader), &a, 3, Time(10)), None, "it is over already");
    }
}
