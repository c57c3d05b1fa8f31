//! This machine as a node of a mesh: a thread of its own beside the supervisor, because a hub that is away may be waited for,
//! and loops may not.
//!
//! - [`node`]: the thread: signs of life, the office of supervisor, outcomes of errands
//! - [`lead`]: what the supervisor of the mesh does for its loops
//! - [`reconcile`]: what it sets right besides, and what it remembers of loops
//! - [`alone`]: what it does while the hub is away
//! - [`fit`]: whether it can work, and whether others do better
//! - [`work`]: tasks that this node holds; [`held`]: what it remembers of them; [`pace`]: its time; [`tells`]: what it says about itself
//! - [`tickets`]: what people have to know
//! - [`mirror`]: the hub as plain files, for the day on which it is gone
//!
//! What to do is decided in [`everloop_core::mesh`]. A task is worked on as a loop of this machine, through its ledger: the
//! supervisor here does not know that it is anybody else's.

mod alone;
mod fit;
mod held;
mod lead;
mod mirror;
mod node;
mod pace;
mod reconcile;
mod tells;
mod tickets;
mod work;

pub use node::{NODE, Wish};
pub use tickets::copy_of;

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use everloop_agents::job::ShimProgram;

use self::tells::Tells;
use crate::figures::Figures;
use crate::membership::Membership;
use crate::state_folder::StateFolder;

/// How long a supervisor that goes waits for the last words to the hub.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Between two looks whether they were said.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The node that runs beside a supervisor.
pub(super) struct Mesh {
    news: mpsc::Sender<node::News>,
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
        let (news, heard) = mpsc::channel();
        let (home, shim, own) = (home.clone(), shim.clone(), news.clone());
        let runner = tokio::runtime::Handle::current();
        let member = membership.clone();
        let figures = Arc::clone(figures);
        let run = move || match node::Node::new((home, shim), member, own, runner) {
            Ok(mut node) => {
                node.tells = Tells::new(figures);
                node.run(&heard);
            }
            Err(failure) => tracing::error!(error = failure.message, "this machine cannot be a node"),
        };
        let (listener, hints) = (membership.clone(), news.clone());
        let listening =
            std::thread::Builder::new().name("mesh-ear".to_owned()).spawn(move || node::listen(&listener, &hints));
        if let Err(e) = listening {
            tracing::warn!(error = %e, "hints of other nodes are not heard; this one looks by itself");
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

    /// Somebody changed something.
    pub fn wake(&self) {
        // A node that is gone has nothing to look at.
        self.news.send(node::News::Look).ok();
    }

    /// Tells it to go: the office is given back at once, and so are tasks.
    pub fn dismiss(&self) {
        self.news.send(node::News::Go).ok();
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
