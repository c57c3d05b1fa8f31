//! What the hub knows, as files of every node: a hub that is lost can be rebuilt from any of them.
//!
//! A look costs nothing while nothing happened: every sign of life is answered with the number of the journal's end. The
//! supervisor of the mesh writes to the journal with all that it does for a loop, so that number tells; what comes without one
//! (a claim, a late result) waits for the next look that would have come anyhow. When the hub is away nothing is lost: the
//! files are as they were.

use std::time::Duration;

use everloop_core::time::Time;
use everloop_store::Ledger;
use everloop_store::mirror::{Mirror, MirrorError};

use super::node::Node;
use crate::supervisor::mirror::{SCORES, open_for_hub};

/// Between two looks whether anything happened.
const POLL_INTERVAL: Duration = Duration::from_secs(20);
/// Between two passes when it seems that nothing did.
const ANYHOW: Duration = Duration::from_secs(300);

/// The mirror and when it was written.
#[derive(Default)]
pub(super) struct HubMirror {
    pub look_at: Time,
    passed_at: Time,
    seq: Option<u64>,
    /// How far the journal was at the last sign of life.
    pub heard: Option<u64>,
    mirror: Option<Mirror>,
}

impl HubMirror {
    /// The next look is a pass, whatever the journal says.
    pub fn due(&mut self) {
        self.seq = None;
    }

    fn is_as_heard(&self) -> bool {
        self.seq.is_some() && self.seq == self.heard
    }
}

impl Node {
    /// Brings the files to where the hub is, if it moved.
    pub(super) fn mirror_hub(&mut self) {
        let now = self.pace.now();
        self.mirror.look_at = now + POLL_INTERVAL;
        if self.mirror.is_as_heard() && now.since(self.mirror.passed_at) < ANYHOW {
            return;
        }
        let mut own = std::mem::take(&mut self.mirror);
        let root = self.home.mirror();
        let passed = self.at_hub("mirror it", |hub| {
            let seq = hub.last_seq()?;
            let passed = match own.mirror.take() {
                Some(mirror) => Ok(mirror),
                None => open_for_hub(&root, hub.id()),
            };
            let passed = passed.and_then(|mut mirror| mirror.pass(hub, SCORES).map(|_| own.mirror = Some(mirror)));
            match passed {
                Ok(()) => (own.seq, own.passed_at) = (Some(seq), now),
                // What the hub says is for the hub; a disk is another matter.
                Err(MirrorError::Ledger(error)) => return Err(error),
                Err(error) => return Ok(Err(error)),
            }
            Ok(Ok(()))
        });
        if let Some(Ok(Err(error))) = passed {
            tracing::warn!(%error, "the hub's mirror cannot be written; everything else goes on");
        }
        self.mirror = own;
    }
}
