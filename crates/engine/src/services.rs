//! What verbs of the command line, tools of MCP and other faces do: typed requests, typed answers.
//! Nothing here parses words or prints.
//!
//! - here: what every service gets
//! - `loops`: commands to loops; `tasks`: the board; `messages`: messages to loops, tasks, people
//! - `tickets`: what waits for a person; `notifiers`: what brings it there; `guard`: holds;
//!   `quarantine`: rules about subjects
//! - `prompts`: what agents are given; `permissions`: what a CLI wants to be allowed
//! - `status`, `why`: what is going on; `show`: a loop, a task or a turn in full; `diff`: what the
//!   work of a loop changes; `take`: brings it to the person; `speech`: what an agent says while it
//!   works
//! - `transcript`: what an agent said and did in a turn
//! - `journal`: what happened; `usage`: what turns used; `replay`: whether stored states follow
//!   from the journal
//! - `report`: what loops did in a period; `views`: what a dashboard shows
//! - `persona`: loops without an end; `signal`: what wakes them; `stream`: entries that routes turn
//!   into signals
//! - `forget`: removes loops that are over with all that they left
//! - `names`: ids and names, for completion
//! - `create`: a loop from its settings; `run`: the same command again, the loops of a file, and
//!   a loop for the mesh
//! - `agents`: which are installed; `preflight`: what is wrong before a loop starts; `init`: the
//!   files of a project; `doctor`: what is wrong on this machine
//! - `trust`: which everloop.toml is in force; `mesh`: loops and nodes of the mesh
//! - `check`: checks by hand; `hook`: the moments of sessions that everloop did not start;
//!   `handoff`: what one leaves for the next; `sessions`: what is known of them
//! - `up`, `down`: the supervisor as a process; `recover`: a ledger or a hub from its mirror
//! - `pane`: agents in tmux panes; `api`: a turn of everloop's own agent; `runtime`: running
//!   futures and jobs

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everloop_agents::clock;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, LocalLedger, LoopRow, OpenMode, Postgres, Sqlite};

use crate::caller::{self, Caller};
use crate::error::{Failure, RECOVER};
use crate::membership::Membership;
use crate::projects::Projects;
use crate::record::read_state;
use crate::research::with_findings;
use crate::state_folder::StateFolder;

pub mod agents;
pub mod api;
pub mod check;
pub mod create;
pub mod diff;
pub mod doctor;
pub mod down;
pub mod forget;
pub mod guard;
pub mod handoff;
pub mod hook;
pub mod init;
pub mod journal;
pub mod loops;
pub mod mesh;
pub mod messages;
pub mod names;
pub mod notifiers;
pub mod pane;
pub mod permissions;
pub mod persona;
pub mod preflight;
pub mod prompts;
pub mod quarantine;
pub mod recover;
pub mod replay;
pub mod report;
pub mod research;
pub mod run;
pub mod runtime;
pub mod sessions;
pub mod show;
pub mod signal;
pub mod speech;
pub mod status;
pub mod stream;
pub mod take;
pub mod tasks;
pub mod tickets;
pub mod transcript;
pub mod trust;
pub mod up;
pub mod usage;
pub mod views;
pub mod why;

/// What every service gets: which state folder, from which folder, and on behalf of what caller.
#[derive(Clone, Debug)]
pub struct ServiceContext {
    /// The state folder that was named.
    pub state_dir: Option<PathBuf>,
    /// The folder that the caller is in.
    pub dir: PathBuf,
    /// The person or agent that acts.
    pub caller: Caller,
    /// The configuration of folders.
    pub projects: Arc<dyn Projects>,
}

impl ServiceContext {
    /// Opens the state folder; creates it if missing.
    pub fn home(&self) -> Result<StateFolder, Failure> {
        StateFolder::open(self.state_dir.as_deref())
    }

    /// Refuses decisions that are reserved for a person: even a misled agent does not change its
    /// own limits, its checks, or what others hold. What it does with another state folder than the
    /// one that it works for is its own affair.
    pub fn for_a_person(&self, what: &str) -> Result<(), Failure> {
        if self.is_for_a_person() {
            return Ok(());
        }
        let hint = "request it from a person: everloop message send person \"TEXT\"";
        Err(Failure::usage(format!("only a person may {what}; the caller is {}", self.caller.name())).hint(hint))
    }

    /// Whether a decision here is a person's, or about another state folder than the turn's own.
    pub fn is_for_a_person(&self) -> bool {
        let theirs = std::env::var_os("EVERLOOP_STATE_DIR").map(PathBuf::from);
        let is_other = || self.state_dir != theirs && caller::inside(self.state_dir.as_deref()).is_none();
        self.caller.is_person() || is_other()
    }

    /// The current time, as every service sees it.
    pub fn now(&self) -> Time {
        clock::now()
    }

    /// Opens the ledger read-only; `None` when nothing was ever written.
    pub fn reader(&self, home: &StateFolder) -> Result<Option<Sqlite>, Failure> {
        need_ledger(home)?;
        match Sqlite::open(&home.database(), OpenMode::ReadOnly) {
            Ok(ledger) => Ok(Some(ledger)),
            Err(Error::Missing { .. }) => Ok(None),
            // An older everloop wrote it; the first reader brings it up to date.
            Err(Error::Older { .. }) => {
                drop(Sqlite::open(&home.database(), OpenMode::ReadWrite)?);
                Ok(Some(Sqlite::open(&home.database(), OpenMode::ReadOnly)?))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Opens the ledger for writing.
    pub fn writer(&self, home: &StateFolder) -> Result<Sqlite, Failure> {
        need_ledger(home)?;
        Ok(Sqlite::open(&home.database(), OpenMode::ReadWrite)?)
    }

    /// Opens the hub of this node's mesh.
    pub fn hub(&self) -> Result<(Membership, Postgres), Failure> {
        let Some(membership) = Membership::read(&self.home()?)? else {
            return Err(mesh::no_mesh());
        };
        let hub = membership.open()?;
        Ok((membership, hub))
    }

    /// Finds a loop by id, by name, or by the beginning of the id; without a word the one of the
    /// turn that calls, the one that works in this folder, or the only one there is.
    pub fn find_loop(&self, ledger: &Sqlite, word: Option<&str>) -> Result<(LoopRow, LoopState), Failure> {
        // By its id alone, whatever else there is: one of thousands is found as soon as one of ten.
        if let Some(word) = word
            && let Some(row) = ledger.get_loop(&LoopId::new(word))?
            && ledger.named(word)?.is_empty()
        {
            let state = with_findings(ledger, read_state(&row)?)?;
            return Ok((row, state));
        }
        let mut all = Vec::new();
        for row in ledger.loops()? {
            let state = read_state(&row)?;
            // A run is found by its first worker.
            if !state.is_helper() || word == Some(row.id.as_str()) {
                all.push((row, state));
            }
        }
        all.sort_by_key(|(_, s)| std::cmp::Reverse((!s.is_over(), s.created_at)));
        let (row, state) = if let Some(word) = word {
            named(all, word)?
        } else {
            let own = self.own_loop(ledger)?.map(|own| own.shared_run().cloned().unwrap_or(own.id));
            let own = own.and_then(|own| all.iter().position(|(row, _)| row.id == own));
            own.map_or_else(|| nearest(all.clone(), &self.dir), |at| Ok(all[at].clone()))?
        };
        let state = with_findings(ledger, state)?;
        Ok((row, state))
    }

    /// The loop of the turn that calls, if a turn does.
    pub fn own_loop(&self, ledger: &Sqlite) -> Result<Option<LoopState>, Failure> {
        let turn = self.caller.turn().and_then(|turn| turn.parse::<TurnId>().ok());
        let task = turn.map(|turn| ledger.task(turn.task())).transpose()?.flatten();
        let Some(id) = task.and_then(|row| row.task.owner) else { return Ok(None) };
        ledger.get_loop(&id)?.map(|row| read_state(&row)).transpose()
    }

    /// The loop that a word names, if there is a word.
    pub fn named_loop(&self, ledger: &Sqlite, word: Option<&str>) -> Result<Option<LoopId>, Failure> {
        match word {
            None => Ok(None),
            Some(word) => Ok(Some(self.find_loop(ledger, Some(word))?.0.id)),
        }
    }
}

/// Refuses to begin anew where a ledger was lost: its mirror still has the loops.
fn need_ledger(home: &StateFolder) -> Result<(), Failure> {
    let gone = std::fs::metadata(home.database()).map_or(true, |meta| meta.len() == 0);
    let mirrored = || std::fs::read_dir(home.mirror().join("loops")).is_ok_and(|mut loops| loops.next().is_some());
    if gone && mirrored() {
        let database = home.database();
        return Err(Failure::failed(format!("the ledger `{}` is gone, but its mirror is there", database.display()))
            .hint(format!("{RECOVER}; to begin anew, move `{}` away", home.mirror().display())));
    }
    Ok(())
}

fn named(all: Vec<(LoopRow, LoopState)>, word: &str) -> Result<(LoopRow, LoopState), Failure> {
    let exact = all.iter().position(|(r, s)| r.id == LoopId::new(word) || s.name == word);
    let begins: Vec<usize> =
        all.iter().enumerate().filter(|(_, (r, _))| r.id.as_str().starts_with(word)).map(|(i, _)| i).collect();
    let ids: Vec<String> = all.iter().map(|(r, s)| format!("{} ({})", r.id, s.name)).take(8).collect();
    match (exact, begins.as_slice()) {
        (Some(i), _) | (None, &[i]) => Ok(all.into_iter().nth(i).expect("the position was just found")),
        (None, []) if ids.is_empty() => Err(no_loops()),
        (None, []) => {
            Err(Failure::usage(format!("there is no loop `{word}`")).hint(format!("there are: {}", ids.join(", "))))
        }
        (None, _) => {
            Err(Failure::usage(format!("`{word}` matches several loops"))
                .hint(format!("there are: {}", ids.join(", "))))
        }
    }
}

fn nearest(mut all: Vec<(LoopRow, LoopState)>, dir: &Path) -> Result<(LoopRow, LoopState), Failure> {
    if all.is_empty() {
        return Err(no_loops());
    }
    let here = all.iter().position(|(_, s)| dir.starts_with(&s.spec.workspace.dir));
    let active = all.iter().filter(|(_, s)| !s.is_over()).count();
    match here {
        Some(i) => Ok(all.swap_remove(i)),
        None if all.len() == 1 || active == 1 => Ok(all.swap_remove(0)),
        None => {
            let ids: Vec<String> = all.iter().map(|(r, s)| format!("{} ({})", r.id, s.name)).take(8).collect();
            Err(Failure::usage("no loop works in this folder, and there are several others")
                .hint(format!("name one: {}", ids.join(", "))))
        }
    }
}

/// There is no loop at all.
pub fn no_loops() -> Failure {
    Failure::usage("there is no loop yet")
        .hint("start one: everloop run \"GOAL\" --check 'CMD' --agent claude (`everloop agents` lists what is here)")
}
