//! Ids and names of what is in the ledger, for completion. Only reads: no folder is made, nothing is
//! brought up to date or waited for, and what cannot be read has no names.

use std::path::Path;

use everloop_store::{Ledger, OpenMode, Sqlite, StateName, TaskFilter, TaskOwner, Tickets};

use crate::record::read_state;
use crate::state_folder::StateFolder;

/// Most tasks that are offered: more words are no help.
const MAX_TASKS: usize = 200;

/// A word that names something, and what that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub word: String,
    pub about: String,
}

impl Named {
    fn new(word: &impl ToString, about: impl Into<String>) -> Self {
        Self { word: word.to_string(), about: about.into() }
    }
}

fn ledger(state_dir: Option<&Path>) -> Option<Sqlite> {
    let home = StateFolder::existing(state_dir)?;
    Sqlite::open(&home.database(), OpenMode::ReadOnly).ok()
}

/// Ids and names of loops, those that are not over first.
pub fn loops(state_dir: Option<&Path>) -> Vec<Named> {
    let rows = ledger(state_dir).and_then(|ledger| ledger.loops().ok()).unwrap_or_default();
    let mut states: Vec<_> = rows.iter().filter_map(|row| read_state(row).ok()).collect();
    states.sort_by_key(|state| std::cmp::Reverse((!state.is_over(), state.created_at)));
    let mut named = Vec::new();
    for state in states {
        let about = format!("{}: {}", state.phase.label(), state.spec.goal);
        named.push(Named::new(&state.id, format!("{}, {about}", state.name)));
        if named.iter().all(|known| known.word != state.name) {
            named.push(Named::new(&state.name, about));
        }
    }
    named
}

/// Ids of tasks that are not over.
pub fn tasks(state_dir: Option<&Path>) -> Vec<Named> {
    let states = vec![StateName::Queued, StateName::Leased, StateName::Blocked];
    let filter = TaskFilter { owner: TaskOwner::Any, states, limit: MAX_TASKS };
    let rows = ledger(state_dir).and_then(|ledger| ledger.tasks(&filter).ok()).unwrap_or_default();
    rows.into_iter().map(|row| Named::new(&row.task.id, format!("{}: {}", row.status(), row.task.title))).collect()
}

/// Numbers of open tickets.
pub fn tickets(state_dir: Option<&Path>) -> Vec<Named> {
    let open = ledger(state_dir).and_then(|ledger| ledger.tickets(Tickets::Open).ok()).unwrap_or_default();
    open.into_iter().map(|ticket| Named::new(&ticket.id, ticket.text)).collect()
}
