//! Events of a loop that a process other than its supervisor writes: answers, task changes and
//! questions of people.

use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::state::{LoopState, STATE_VERSION};
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, LoopRow};

use crate::error::Failure;

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

/// Reads a stored state, refusing what a newer everloop wrote.
pub fn read_state(row: &LoopRow) -> Result<LoopState, Failure> {
    let broken = |why: String| Failure::failed(format!("the stored state of loop `{}` cannot be read: {why}", row.id));
    let value: serde_json::Value = serde_json::from_str(&row.state).map_err(|e| broken(e.to_string()))?;
    let version = value.get("state_version").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if version > u64::from(STATE_VERSION) {
        return Err(broken(format!("format {version} is newer than this everloop understands ({STATE_VERSION})"))
            .hint("use the everloop that wrote it, or a newer one"));
    }
    serde_json::from_value(value)
        .map_err(|e| broken(e.to_string()).hint("`everloop replay` rebuilds it from the journal"))
}
