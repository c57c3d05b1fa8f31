//! Who becomes supervisor. Pure; shared by all ledgers.

use everloop_core::ids::NodeId;
use everloop_core::op::Refusal;
use everloop_core::planted::{self, Bug};
use everloop_core::time::Time;

use crate::rows::Leader;

/// The leader after `node` asked for the lease until `until`; `None` when somebody else holds it.
pub(crate) fn elect(current: Option<&Leader>, node: &NodeId, until: Time, now: Time) -> Option<Leader> {
    let epoch = match current {
        None => 1,
        Some(leader) if leader.until <= now => leader.epoch + u64::from(!planted::is(Bug::EpochNotGrown)),
        Some(leader) if leader.node == *node => leader.epoch,
        Some(leader) if planted::is(Bug::StealsTheSeat) => leader.epoch + 1,
        Some(_) => return None,
    };
    Some(Leader { node: node.clone(), epoch, until })
}

/// Refuses whoever is not the supervisor under `epoch` now.
pub(crate) fn check_lead(current: Option<&Leader>, node: &NodeId, epoch: u64, now: Time) -> Result<(), Refusal> {
    let leads = current.is_some_and(|leader| leader.node == *node && leader.epoch == epoch && leader.until > now);
    if leads { Ok(()) } else { Err(Refusal::Deposed { epoch }) }
}

/// The leader after `node` gave up; `None` when there is nothing to give up.
pub(crate) fn resign(current: Option<&Leader>, node: &NodeId, epoch: u64, now: Time) -> Option<Leader> {
    check_lead(current, node, epoch, now).ok()?;
    Some(Leader { node: node.clone(), epoch, until: now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_grows_with_every_grant_that_is_not_a_renewal() {
        let (a, b) = (NodeId::new("a"), NodeId::new("b"));
        let first = elect(None, &a, Time(10), Time(0)).unwrap();
        assert_eq!(first.epoch, 1);
        assert_eq!(elect(Some(&first), &b, Time(19), Time(9)), None, "the lease is live");
        let renewed = elect(Some(&first), &a, Time(19), Time(9)).unwrap();
        assert_eq!((renewed.epoch, renewed.until), (1, Time(19)));
        assert_eq!(elect(Some(&renewed), &b, Time(29), Time(19)).unwrap().epoch, 2, "over at its very end");
        assert_eq!(elect(Some(&renewed), &a, Time(29), Time(19)).unwrap().epoch, 2, "also for its last holder");
    }
    #[test]
    fn only_who_leads_under_this_epoch_and_in_time_leads() {
        let (a, b) = (NodeId::new("a"), NodeId::new("b"));
        let leader = Leader { node: a.clone(), epoch: 3, until: Time(10) };
        let leads = |node, epoch, now| check_lead(Some(&leader), node, epoch, Time(now)).is_ok();
        assert!(leads(&a, 3, 9));
        assert!(!leads(&a, 3, 10) && !leads(&a, 2, 9) && !leads(&b, 3, 9));
        assert!(check_lead(None, &a, 1, Time(0)).is_err());
        let resigned = resign(Some(&leader), &a, 3, Time(4)).unwrap();
        assert_eq!(elect(Some(&resigned), &b, Time(19), Time(4)).unwrap().epoch, 4, "nobody has to wait");
        assert_eq!(resign(Some(&leader), &b, 3, Time(4)), None);
        assert_eq!(resign(Some(&leader), &a, 3, Time(10)), None, "it is over already");
    }
}
