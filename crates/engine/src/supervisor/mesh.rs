//! This machine as a node of a mesh: a thread of its own beside the supervisor, because a hub that
//! is away may be waited for, and loops may not.
//!
//! - `thread`: waits for inputs; `host`: carries out effects on this machine, `hub` those at the
//!   hub
//! - `attempt`: loops for tasks; `merge`: the leader's checkout; `experiment`: the same for research
//!   runs; `leftovers`: what is left of them
//! - `node_clock`: the node's time; `status`: what it publishes; its files are in
//!   [`crate::node_files`]
//!
//! What to do, and in which order, is decided in [`everloop_core::mesh::node`]. A task is worked on
//! as a loop of this machine, through its ledger, like any other.

mod attempt;
mod experiment;
mod host;
mod hub;
mod leftovers;
mod merge;
mod node_clock;
mod status;
mod thread;

pub use everloop_core::mesh::node::tickets::copy_of;
pub use everloop_core::mesh::node::{NODE, Wish};

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use everloop_agents::job::ShimProgram;
use everloop_core::mesh::node::NodeInput;

use self::host::Host;
use self::status::MeshStatus;
use crate::figures::Figures;
use crate::membership::Membership;
use crate::state_folder::StateFolder;

/// How long a supervisor that goes waits for the last words to the hub.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Interval at which the end of the node's thread is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The node that runs beside a supervisor.
pub(super) struct Mesh {
    news: mpsc::Sender<thread::News>,
    thread: JoinHandle<()>,
}

impl Mesh {
    /// Becomes a node.
    pub fn start(
        home: &StateFolder,
        shim: &ShimProgram,
        membership: &Membership,
        figures: &Arc<Figures>,
    ) -> Option<Self> {
        let (news, inputs) = mpsc::channel();
        let mut host = match Host::open(home, shim, membership, news.clone()) {
            Ok(host) => host,
            Err(failure) => {
                tracing::error!(error = failure.message, "this machine cannot be a node");
                return None;
            }
        };
        host.status = MeshStatus::new(Arc::clone(figures), home);
        let run = move || thread::run(host, &inputs);
        let (listener, hints) = (membership.clone(), news.clone());
        let listening = std::thread::Builder::new()
            .name("mesh-listener".to_owned())
            .spawn(move || thread::listen(&listener, &hints));
        if let Err(e) = listening {
            tracing::warn!(error = %e, "hints of other nodes are not received; the node polls");
        }
        let thread = std::thread::Builder::new().name("mesh".to_owned()).spawn(run);
        thread
            .map(|thread| Self { news, thread })
            .inspect_err(|e| tracing::error!(error = %e, "no thread for the mesh"))
            .ok()
    }

    /// Whether its thread still runs.
    pub fn is_there(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Makes the node look for changes.
    pub fn wake(&self) {
        // A node that is gone has nothing to look at.
        self.news.send(thread::News::Input(NodeInput::Look)).ok();
    }

    /// Stops the node: it gives up its term and its tasks at once.
    pub fn dismiss(&self) {
        self.news.send(thread::News::Go).ok();
    }

    /// Waits until it went.
    pub async fn gone(self) {
        self.dismiss();
        let end = tokio::time::Instant::now() + LAST_WORDS;
        while !self.thread.is_finished() && tokio::time::Instant::now() < end {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
