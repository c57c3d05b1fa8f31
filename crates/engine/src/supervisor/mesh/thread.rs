//! The thread of a node: it waits for one input at a time, and every wait is bounded. [`MeshNode`]
//! decides what to do; this thread carries it out.

use std::sync::mpsc;
use std::time::Duration;

use everloop_core::mesh::node::{Hint, MeshNode, NodeEffects, NodeInput, NodeSettings};

use super::host::Host;
use crate::membership::Membership;
use crate::node_files::replica;
use crate::state_folder::node_id;

/// After the hub was away, before its hints are listened for again.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);

/// What wakes the thread.
pub(super) enum News {
    /// An input of the node.
    Input(NodeInput),
    /// Give everything back and end.
    Go,
}

/// Passes hints on as long as the node is there; when the hub is away, it listens again later.
pub(super) fn listen(membership: &Membership, news: &mpsc::Sender<News>) {
    let pass = |word: &str| news.send(News::Input(NodeInput::Hint(Hint::read(word)))).is_ok();
    while membership.listen(pass).is_err() && news.send(News::Input(NodeInput::Look)).is_ok() {
        std::thread::sleep(LISTEN_AGAIN);
    }
}

/// Runs a node until it is to go.
pub(super) fn run(mut host: Host, news: &mpsc::Receiver<News>) {
    let settings = NodeSettings {
        node: host.membership.node.clone(),
        here: node_id(),
        slots: host.membership.max_parallel_turns,
        time_scale: host.pace.scale(),
    };
    let mut node = MeshNode::new(settings, host.claims.all(), replica::read(&host.home));
    let mut input = NodeInput::Timer;
    loop {
        let nap = node.on(input, &mut host);
        host.status.publish(&node, host.now(), host.now());
        input = match news.recv_timeout(host.pace.real(nap)) {
            Ok(News::Input(input)) => input,
            Err(mpsc::RecvTimeoutError::Timeout) => NodeInput::Timer,
            Ok(News::Go) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
        };
    }
    node.leave(&mut host);
}
