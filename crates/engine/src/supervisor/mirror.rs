//! Schedules writes of the file mirror: on a thread of its own, some time after a change, never in
//! the way of a turn.
//!
//! The thread sleeps until a commit is reported, by this or another process. It waits a moment, so
//! that a busy time is one pass, reads one snapshot of the ledger, and writes what differs. It
//! never works for more than a small part of the time, however big the ledger. An idle node writes
//! nothing at all. A failed write is a warning, and is tried again with the next change.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use everloop_agents::clock;
use everloop_agents::process::give_back_memory;
use everloop_core::mesh::{KIND, MeshLoop};
use everloop_store::mirror::{Mirror, MirrorError, Passed, Scores};
use everloop_store::{DocRow, LoopRow, OpenMode, Sqlite};
use serde_json::{Value, json};

use crate::record::read_state;
use crate::state_folder::StateFolder;
use crate::state_folder::node_id;

/// A change is in the files after this time; what changes in between comes with it.
const REST: Duration = Duration::from_secs(1);
/// A pass is followed by a rest of so many times its own length: at most half a hundredth of a core,
/// also with a big ledger, so that thousands of personas that look in vain cost next to nothing.
const REST_FACTOR: u32 = 200;
/// But no longer, so that what a lost disk takes along stays small.
const REST_MOST: Duration = Duration::from_secs(20);
/// A turn may take hours without a commit; the heartbeat file is not older than this meanwhile.
const BEAT: Duration = Duration::from_secs(60);
/// After a pass with so many changes, such as the first one, memory is given back.
const MANY: usize = 500;
/// How long an ending supervisor waits for the last pass.
const LAST_PASS: Duration = Duration::from_secs(5);
/// Between two checks whether the last pass is over.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The columns of the scoreboard.
pub const SCORES: Scores = Scores { of_loop, of_doc };

/// Messages to the thread.
enum News {
    Changed,
    /// A turn is under way.
    Alive,
    /// Write once more and end.
    Go,
}

/// The thread that follows the ledger.
pub(super) struct Follower {
    news: Sender<News>,
    /// A change was reported that no pass has covered yet.
    told: Arc<AtomicBool>,
    /// The ledger's version at the last change by another process.
    seen: Option<u64>,
    thread: JoinHandle<()>,
}

impl Follower {
    /// Begins to follow the ledger of this state folder.
    pub fn start(home: &StateFolder, role: &'static str) -> Option<Self> {
        let (news, heard) = mpsc::channel();
        let told = Arc::new(AtomicBool::new(true));
        let mut thread = Thread { home: home.clone(), role, told: Arc::clone(&told), mirror: None, beaten: None };
        let run = move || thread.run(&heard);
        let thread = std::thread::Builder::new().name("mirror".to_owned()).spawn(run);
        thread
            .map(|thread| Self { news, told, seen: None, thread })
            .inspect_err(|e| tracing::warn!(error = %e, "cannot start the mirror's thread: it is not written"))
            .ok()
    }

    /// Reports a commit. Costs next to nothing.
    pub fn changed(&self) {
        if !self.told.swap(true, Ordering::AcqRel) {
            // A thread that ended has logged why.
            self.news.send(News::Changed).ok();
        }
    }

    /// Reports a commit of another process: `version` differs then.
    pub fn look(&mut self, version: Option<u64>) {
        if self.seen != version {
            self.seen = version;
            self.changed();
        }
    }

    /// Reports a turn under way.
    pub fn alive(&self) {
        self.news.send(News::Alive).ok();
    }

    /// Waits until everything is in the files, within bounds.
    pub async fn gone(self) {
        self.news.send(News::Go).ok();
        let end = tokio::time::Instant::now() + LAST_PASS;
        while !self.thread.is_finished() && tokio::time::Instant::now() < end {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

struct Thread {
    home: StateFolder,
    role: &'static str,
    told: Arc<AtomicBool>,
    mirror: Option<Mirror>,
    beaten: Option<Instant>,
}

impl Thread {
    fn run(&mut self, heard: &Receiver<News>) {
        let mut rest_until = Instant::now() + REST;
        loop {
            let rest = rest_until.saturating_duration_since(Instant::now());
            let wanted = self.told.load(Ordering::Acquire);
            let news = if wanted { heard.recv_timeout(rest) } else { heard.recv().map_err(RecvTimeoutError::from) };
            match news {
                Ok(News::Changed) => {}
                Ok(News::Alive) => self.beat("working", BEAT),
                Err(RecvTimeoutError::Timeout) => {
                    let took = self.pass();
                    rest_until = Instant::now() + (took * REST_FACTOR).clamp(REST, REST_MOST);
                }
                Ok(News::Go) | Err(RecvTimeoutError::Disconnected) => {
                    self.pass();
                    self.beat("stopped", Duration::ZERO);
                    return;
                }
            }
        }
    }

    /// One pass over the ledger; returns its duration.
    fn pass(&mut self) -> Duration {
        let begun = Instant::now();
        // Before the read: a commit from now on sets it again.
        self.told.store(false, Ordering::Release);
        match self.look() {
            Ok(Passed { changed, kept_aside }) => {
                if let Some(place) = kept_aside {
                    let place = place.display().to_string();
                    tracing::warn!(
                        place,
                        "the mirror was that of another ledger and is kept; `everloop recover` can rebuild that one from it"
                    );
                }
                if changed > MANY {
                    give_back_memory();
                }
                if changed > 0 {
                    self.beat("working", Duration::ZERO);
                }
            }
            Err(error) => {
                self.mirror = None;
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%error, cause, "cannot write the mirror; everything else goes on");
            }
        }
        begun.elapsed()
    }

    /// The ledger is opened for the pass alone: an idle node needs no memory for it.
    fn look(&mut self) -> Result<Passed, MirrorError> {
        let ledger = Sqlite::open(&self.home.database(), OpenMode::ReadOnly)?;
        let mirror = match &mut self.mirror {
            Some(mirror) => mirror,
            none => none.insert(Mirror::open(&self.home.mirror(), None)?),
        };
        ledger.frozen(|ledger| mirror.pass(ledger, SCORES))?
    }

    fn beat(&mut self, state: &str, at_most_every: Duration) {
        if self.beaten.is_some_and(|at| at.elapsed() < at_most_every) {
            return;
        }
        self.beaten = Some(Instant::now());
        let beat = json!({
            "at": clock::now(),
            "node": node_id(),
            "pid": std::process::id(),
            "role": self.role,
            "state": state,
        });
        if let Some(Err(error)) = self.mirror.as_ref().map(|mirror| mirror.beat(&beat)) {
            tracing::debug!(%error, "cannot write the mirror's heartbeat");
        }
    }
}

/// The mirror of a hub, beside that of this machine's own ledger.
pub(super) fn open_for_hub(root: &Path, hub: &str) -> Result<Mirror, MirrorError> {
    Mirror::open(&root.join("hub"), Some(hub))
}

fn of_loop(row: &LoopRow) -> Option<Value> {
    let state = read_state(row).ok()?;
    Some(json!({
        "id": state.id,
        "name": state.name,
        "goal": state.spec.goal,
        "phase": row.phase,
        "passing": state.progress.board.passing().len(),
        "checks": state.spec.checks.len(),
        "turns": state.task.turns,
        "tokens": state.spend.spent.tokens,
        "microusd": state.spend.spent.microusd,
        "updated_at": row.updated_at,
    }))
}

fn of_doc(kind: &str, row: &DocRow) -> Option<Value> {
    let state = MeshLoop::read(&row.body).ok().filter(|_| kind == KIND)?;
    Some(json!({
        "id": state.id,
        "name": state.name,
        "goal": state.spec.wanted.goal,
        "phase": state.ended.as_ref().map_or("working".to_owned(), ToString::to_string),
        "passing": state.judged.as_ref().map_or(0, |judged| judged.board.passing().len()),
        "checks": state.spec.wanted.checks.len(),
        "open_tasks": state.open.len(),
        "landed": state.landed_count,
        "updated_at": row.updated_at,
    }))
}
