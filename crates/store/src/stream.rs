//! Rules for streams and their groups. Pure; shared by all ledgers, so that they differ only in how
//! rows are stored.

use everloop_core::op::Refusal;
use everloop_core::op::streams::{
    DeliverRequest, GroupState, NewStreamEntry, PENDING_MAX, PendingEntry, StreamEnds, StreamEntry,
};
use everloop_core::time::Time;

/// Gives a new entry the next id, and drops the oldest ones beyond those to keep.
pub(crate) fn add(ends: &mut StreamEnds, new: &NewStreamEntry, now: Time) -> StreamEntry {
    ends.last += 1;
    ends.trimmed = ends.trimmed.max(ends.last.saturating_sub(u64::from(new.keep.max(1))));
    let NewStreamEntry { source, key, fields, .. } = new.clone();
    StreamEntry { id: ends.last, at: now, source, key, fields }
}

/// The refusal of an entry that the stream has already.
pub(crate) fn repeated(stream: &str, id: u64) -> Refusal {
    Refusal::Repeated { stream: stream.to_owned(), id }
}

/// Drops the entries up to an id; how many there were.
pub(crate) fn trim(ends: &mut StreamEnds, up_to: u64) -> u64 {
    let before = ends.trimmed;
    ends.trimmed = before.max(up_to.min(ends.last));
    ends.trimmed - before
}

/// A group that begins with the oldest entry that is kept.
pub(crate) fn new_group(ends: StreamEnds) -> GroupState {
    GroupState { cursor: ends.trimmed, pending: Vec::new() }
}

/// Which entries a group takes now, by id, and how many it missed because they were dropped.
pub(crate) fn deliver(
    ends: StreamEnds,
    group: &mut GroupState,
    request: &DeliverRequest,
    now: Time,
) -> (Vec<u64>, u64) {
    let held = group.pending.len();
    group.pending.retain(|pending| pending.id > ends.trimmed);
    let missed = (held - group.pending.len()) as u64 + ends.trimmed.saturating_sub(group.cursor);
    group.cursor = group.cursor.max(ends.trimmed);
    let (most, mut ids) = (request.n as usize, Vec::new());
    for pending in group.pending.iter_mut().filter(|pending| pending.at + request.idle <= now).take(most) {
        request.consumer.clone_into(&mut pending.consumer);
        (pending.at, pending.times) = (now, pending.times.saturating_add(1));
        ids.push(pending.id);
    }
    while ids.len() < most && group.cursor < ends.last && group.pending.len() < PENDING_MAX {
        group.cursor += 1;
        let (id, consumer) = (group.cursor, request.consumer.clone());
        group.pending.push(PendingEntry { id, consumer, at: now, times: 1 });
        ids.push(id);
    }
    (ids, missed)
}

/// Takes acknowledged entries out of a group.
pub(crate) fn ack(group: &mut GroupState, ids: &[u64]) {
    group.pending.retain(|pending| !ids.contains(&pending.id));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_group_gets_each_entry_once_reclaims_what_rested_and_is_told_of_a_gap() {
        let mut ends = StreamEnds { last: 5, trimmed: 2 };
        let mut group = new_group(ends);
        let mut take = |ends, n, at, consumer: &str| {
            let (stream, name) = ("s".to_owned(), "g".to_owned());
            let idle = Duration::from_millis(10);
            let request = DeliverRequest { stream, group: name, consumer: consumer.to_owned(), n, idle };
            let taken = deliver(ends, &mut group, &request, Time(at));
            (taken, group.clone())
        };
        assert_eq!(take(ends, 2, 0, "a").0, (vec![3, 4], 0), "a new group begins with what is there");
        assert_eq!(take(ends, 2, 9, "b").0, (vec![5], 0), "the others are held by a");
        let (taken, state) = take(ends, 9, 10, "b");
        assert_eq!((taken, state.pending[0].consumer.as_str(), state.pending[0].times), ((vec![3, 4], 0), "b", 2));
        (ends.last, ends.trimmed) = (9, 7);
        assert_eq!(take(ends, 9, 10, "b").0, (vec![8, 9], 5), "3, 4 and 5 were held, 6 and 7 never seen");
        let (_, mut state) = take(ends, 9, 10, "b");
        ack(&mut state, &[8, 77]);
        assert_eq!((state.pending.len(), state.cursor), (1, 9));
    }

    #[test]
    fn an_entry_drops_the_oldest_ones_and_ids_are_never_used_again() {
        let mut ends = StreamEnds::default();
        let new = |keep| NewStreamEntry {
            stream: "s".to_owned(),
            source: "cli".to_owned(),
            key: None,
            fields: Vec::new(),
            keep,
        };
        for _ in 0..5 {
            add(&mut ends, &new(3), Time(0));
        }
        assert_eq!(ends, StreamEnds { last: 5, trimmed: 2 });
        assert_eq!((trim(&mut ends, 99), trim(&mut ends, 1)), (3, 0));
        assert_eq!(add(&mut ends, &new(0), Time(1)).id, 6);
        assert_eq!(ends, StreamEnds { last: 6, trimmed: 5 }, "the new one is always kept");
    }
}
