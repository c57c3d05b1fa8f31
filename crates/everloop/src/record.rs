//! Events of a loop that a process other than its supervisor writes: answers, task changes and
//! questions of people.

use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_store::{Error, Ledger};

use crate::supervisor::read_state;

/// The operations that write these events. Events of a loop are part of its state (`replay` proves
/// it), so they are applied to the state and it is saved, unless another process did since; the
/// supervisor notices the new version and reads again.
pub fn record(ledger: &impl Ledger, owner: Option<&LoopId>, events: &[Event], now: Time) -> Result<Vec<Op>, Error> {
    let row = owner.map(|id| ledger.get_loop(id)).transpose()?.flatten();
    // A loop with unreadable state is left alone; the journal still has the events.
    let known = row.and_then(|row| read_state(&row).ok().map(|state| (row.version, state)));
    let owner = known.as_ref().map(|(_, state)| state.id.clone());
    let mut ops = vec![Op::Append { owner, events: events.to_vec() }];
    if let Some((version, mut state)) = known {
        for event in events {
            state.apply(event, now);
        }
        ops.push(state.save(version));
    }
    Ok(ops)
}
