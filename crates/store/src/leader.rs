//! Who becomes supervisor. Pure; shared by all ledgers.

use everloop_core::ids::NodeId;
use everloop_core::time::Time;

use crate::rows::Leader;

/// The leader after `node` asked for the lease until `until`; `None` when somebody else holds it.
pub(crate) fn elect(current: Option<&Leader>, node: &NodeId, until: Time, now: Time) -> Option<Leader> {
    let epoch = match current {
        None => 1,
        Some(leader) if leader.until <= now => leader.epoch + 1,
        Some(leader) if leader.node == *node => leader.epoch,
        Some(_) => return None,
    };
    Some(Leader { node: node.clone(), epoch, until })
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
}
