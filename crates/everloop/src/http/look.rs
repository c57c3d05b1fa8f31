//! What answers read in the ledger: one short look, on a thread of its own, shared by all requests
//! within a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use everloop_engine::state_folder::StateFolder;
use everloop_store::{Error, Ledger, OpenMode, Sqlite, StateName, TaskFilter, TaskOwner};
use tokio::sync::Mutex;

use super::App;

/// A look is good for this long, so that frequent requests cost nothing.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// Leases that are counted; a greater number need not be exact.
const LEASES_MOST: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Loops by the name of their phase.
    pub loops: BTreeMap<String, u64>,
    /// Tasks that are held.
    pub leases: u64,
    /// The journal's last record.
    pub last_seq: u64,
}

/// The last look.
#[derive(Default)]
pub struct Cache(Mutex<Option<(Instant, Arc<Look>)>>);

/// What the ledger holds now, or held a moment ago. Requests meanwhile wait for the same look.
pub async fn look(app: &App) -> Result<Arc<Look>, String> {
    let mut last = app.looked.0.lock().await;
    if let Some((at, look)) = last.as_ref().filter(|(at, _)| at.elapsed() < GOOD_FOR) {
        tracing::trace!(age = ?at.elapsed(), "answered from memory");
        return Ok(Arc::clone(look));
    }
    let home = app.port.home.clone();
    let fresh = tokio::task::spawn_blocking(move || read(&home)).await.map_err(|e| e.to_string())?;
    let fresh = Arc::new(fresh.map_err(|e| e.to_string())?);
    *last = Some((Instant::now(), Arc::clone(&fresh)));
    Ok(fresh)
}

fn read(home: &StateFolder) -> Result<Look, Error> {
    let ledger = match Sqlite::open(&home.database(), OpenMode::ReadOnly) {
        Err(Error::Missing { .. }) => return Ok(Look::default()),
        opened => opened?,
    };
    let mut loops = BTreeMap::new();
    for row in ledger.loops()? {
        *loops.entry(row.phase).or_default() += 1;
    }
    let held = TaskFilter { owner: TaskOwner::Any, states: vec![StateName::Leased], limit: LEASES_MOST };
    let leases = ledger.tasks(&held)?.len() as u64;
    Ok(Look { loops, leases, last_seq: ledger.last_seq()? })
}
