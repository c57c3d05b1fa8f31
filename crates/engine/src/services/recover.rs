//! Rebuilds a lost ledger from the mirror, and a lost hub from a node's mirror.

use std::path::{Path, PathBuf};

use everloop_agents::{clock, job};
use everloop_core::event::Event;
use everloop_core::ids::TurnId;
use everloop_core::mesh::rights::Rights;
use everloop_core::op::{Op, TaskState};
use everloop_store::mirror::{self, Lost, MirrorError};
use everloop_store::{Error, Ledger, OpenMode, Sqlite};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::{ServiceContext, up};
use crate::error::Failure;
use crate::membership::Membership;
use crate::recover::RestorePlan;
use crate::state_folder::StateFolder;

/// Rebuild the ledger of the state folder.
#[derive(Clone, Debug)]
pub struct RecoverRequest {
    /// The folder of another mirror, from the caller's folder; `None`: the state folder's own.
    pub from: Option<PathBuf>,
    /// Also rebuild the hub; the ledger of this machine may then exist.
    pub hub: bool,
    /// Only plan it: nothing is written.
    pub dry_run: bool,
}

/// What was rebuilt, or would be.
#[derive(Clone, Debug, Serialize)]
pub struct RecoverAnswer {
    /// The folder of the mirror.
    pub from: String,
    pub dry_run: bool,
    /// `None` when the ledger is readable and stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<RebuiltLedger>,
    /// `None` when only the ledger was to be rebuilt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub: Option<RebuiltHub>,
}

/// The ledger of this machine.
#[derive(Clone, Debug, Serialize)]
pub struct RebuiltLedger {
    #[serde(flatten)]
    pub rows: RebuiltRows,
    /// Turns that began after the last write of the mirror.
    pub turns_set_aside: Vec<TurnId>,
}

/// The hub of this node.
#[derive(Clone, Debug, Serialize)]
pub struct RebuiltHub {
    pub id: String,
    #[serde(flatten)]
    pub rows: RebuiltRows,
}

/// What a mirror brings back.
#[derive(Clone, Debug, Serialize)]
pub struct RebuiltRows {
    pub loops: usize,
    pub documents: usize,
    pub tasks: usize,
    pub tasks_open: usize,
    /// Tasks that are done or came to nothing.
    #[serde(skip)]
    pub tasks_over: usize,
    #[serde(rename = "shelf")]
    pub late_results: usize,
    pub tickets: usize,
    pub journal: usize,
    pub fences_raised: usize,
    /// Turns that the supervisor will look for.
    pub turns_under_way: Vec<TurnId>,
    /// What cannot be known; untrusted text.
    #[serde(serialize_with = "lost_as_objects")]
    pub lost: Vec<Lost>,
}

fn lost_as_objects<S: Serializer>(lost: &[Lost], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(lost.iter().map(|lost| json!({ "what": lost.what, "why": lost.why })))
}

impl RebuiltRows {
    fn of(plan: RestorePlan) -> Self {
        let rows = &plan.rows;
        let of = |fits: fn(&TaskState) -> bool| rows.tasks.iter().filter(|row| fits(&row.state)).count();
        Self {
            loops: rows.loops.len(),
            documents: rows.docs.len(),
            tasks: rows.tasks.len(),
            tasks_open: of(|state| matches!(state, TaskState::Queued | TaskState::Leased { .. } | TaskState::Blocked)),
            tasks_over: of(|state| matches!(state, TaskState::Done | TaskState::Dead)),
            late_results: rows.late_results.len(),
            tickets: rows.tickets.len(),
            journal: rows.journal.len(),
            fences_raised: plan.leapt,
            turns_under_way: plan.under_way,
            lost: plan.lost,
        }
    }
}

/// State of the existing ledger.
enum Ledgers {
    /// None, or one without content.
    None,
    /// An unreadable one, with the reason.
    Broken(String),
    Whole,
}

/// Rebuilds what the request names. `warn` gets a sentence when a broken ledger was moved away.
pub fn recover(
    context: &ServiceContext,
    request: &RecoverRequest,
    warn: &mut dyn FnMut(&str),
) -> Result<RecoverAnswer, Failure> {
    context.for_a_person("rebuild a ledger")?;
    let home = context.home()?;
    let _ownership = match home.own("recover", context.now())? {
        Ok(ownership) => ownership,
        Err(owner) => return Err(up::taken(&home, owner.as_ref())),
    };
    let root = request.from.as_ref().map_or_else(|| home.mirror(), |from| context.dir.join(from));
    let restore = Restore { context, home: &home, root: &root, dry_run: request.dry_run };
    let ledger = match (look(&home), request.hub) {
        (Ledgers::Whole, false) => {
            return Err(Failure::failed(format!(
                "there is a ledger that can be read: `{}`",
                home.database().display()
            ))
            .hint("`everloop replay` checks it; to discard it, move it away first"));
        }
        (Ledgers::Whole, true) => None,
        (found, _) => Some(restore.ledger(&found, warn)?),
    };
    let hub = request.hub.then(|| restore.hub()).transpose()?;
    Ok(RecoverAnswer { from: root.display().to_string(), dry_run: request.dry_run, ledger, hub })
}

fn look(home: &StateFolder) -> Ledgers {
    let looked = || -> Result<Ledgers, Error> {
        let ledger = Sqlite::open(&home.database(), OpenMode::ReadOnly)?;
        if let Some(wrong) = ledger.check_integrity()?.first() {
            return Ok(Ledgers::Broken(wrong.clone()));
        }
        let empty = ledger.last_seq()? == 0 && ledger.loops()?.is_empty();
        Ok(if empty { Ledgers::None } else { Ledgers::Whole })
    };
    match looked() {
        Ok(found) => found,
        Err(Error::Missing { .. }) => Ledgers::None,
        // Another version of everloop can read it.
        Err(Error::Newer { .. } | Error::Older { .. } | Error::Busy { .. }) => Ledgers::Whole,
        Err(error) => Ledgers::Broken(error.to_string()),
    }
}

/// What both restorations need.
struct Restore<'a> {
    context: &'a ServiceContext,
    home: &'a StateFolder,
    /// The folder of the mirror.
    root: &'a Path,
    dry_run: bool,
}

impl Restore<'_> {
    fn ledger(&self, there: &Ledgers, warn: &mut dyn FnMut(&str)) -> Result<RebuiltLedger, Failure> {
        let (home, now) = (self.home, self.context.now());
        let found = mirror::found(self.root).map_err(|e| cannot(&e))?;
        let mut plan = RestorePlan::local(found, &turns(home), now);
        let strangers = std::mem::take(&mut plan.strangers);
        if !self.dry_run {
            set_aside(home, &strangers)?;
            if let Ledgers::Broken(why) = there {
                let place = move_ledger(home)?;
                warn(&format!("the broken ledger ({why}) is now `{}`", place.display()));
            }
            let mut ledger = Sqlite::open(&home.database(), OpenMode::ReadWrite)?;
            if !ledger.restore(&plan.rows)? {
                return Err(Failure::failed("the ledger is not empty").hint("move it away first"));
            }
            let text = format!("this ledger was rebuilt from `{}`", self.root.display());
            ledger.transact(self.context.now(), &[Op::Append { owner: None, events: vec![Event::Note { text }] }])?;
        }
        Ok(RebuiltLedger { rows: RebuiltRows::of(plan), turns_set_aside: strangers })
    }

    fn hub(&self) -> Result<RebuiltHub, Failure> {
        let Some(mut membership) = Membership::read(self.home)? else {
            return Err(Failure::failed("this machine is not a node of a mesh")
                .hint("create the hub (everloop mesh hub init) and join it (everloop mesh join), then recover"));
        };
        let found = mirror::found(&self.root.join("hub")).map_err(|e| cannot(&e))?;
        let mut hub = membership.open_any()?;
        if membership.hub != found.of && membership.hub != hub.id() {
            return Err(Failure::failed(format!(
                "the mirror is that of hub `{}`, and this machine is a node of `{}`",
                found.of, membership.hub
            ))
            .hint("use the mirror of a node of this hub: --from FOLDER"));
        }
        if hub.rights() == Rights::Worker {
            return Err(Failure::config(
                "the login of this node has the rights of a worker, which cannot rebuild a hub",
            )
            .hint("recover on a node with the login of a leader, or: everloop mesh hub init --print-sql --role NAME"));
        }
        let id = found.of.clone();
        let plan = RestorePlan::hub(found, clock::machine_now());
        if !self.dry_run {
            if !hub.restore(&id, &plan.rows)? {
                return Err(Failure::failed("the hub is not empty, so nothing was written to it")
                    .hint("check it: everloop mesh hub check; only a new one can be rebuilt"));
            }
            membership.hub.clone_from(&id);
            membership.save(self.home)?;
        }
        Ok(RebuiltHub { id, rows: RebuiltRows::of(plan) })
    }
}

/// Turns with a folder.
fn turns(home: &StateFolder) -> Vec<TurnId> {
    let entries = std::fs::read_dir(home.turns()).into_iter().flatten().flatten();
    let mut all: Vec<TurnId> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    all.sort();
    all
}

/// Moves away the folder of an unknown turn: it must neither run on nor be taken for another turn
/// with the same name.
fn set_aside(home: &StateFolder, strangers: &[TurnId]) -> Result<(), Failure> {
    for turn in strangers {
        let dir = home.turn(turn);
        if let Ok(job::JobTrace::Alive { shim }) = job::inspect(&dir) {
            let who = shim.map_or_else(String::new, |shim| format!(" (process {})", shim.pid));
            return Err(Failure::failed(format!("turn `{turn}`{who} still runs, and the mirror has no record of it"))
                .hint("let it end, or stop it, then recover; nothing was changed"));
        }
        let place = dir.with_file_name(format!("{turn}.lost"));
        std::fs::rename(&dir, &place)
            .map_err(|e| Failure::failed(format!("cannot move `{}`", dir.display())).because(&e))?;
    }
    Ok(())
}

/// Moves an unreadable ledger away, with all that belongs to it.
fn move_ledger(home: &StateFolder) -> Result<PathBuf, Failure> {
    let from = home.database();
    let place = |n: u32| from.with_file_name(format!("ledger.db.broken-{n}"));
    let to = (1..u32::MAX).map(place).find(|path| !path.exists()).expect("there are fewer broken ledgers than numbers");
    for end in ["-wal", "-shm", ""] {
        let name = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        match std::fs::rename(name(&from), name(&to)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::failed(format!("cannot move `{}`", name(&from).display())).because(&e));
            }
            _ => {}
        }
    }
    Ok(to)
}

fn cannot(error: &MirrorError) -> Failure {
    let failure = Failure::failed(error.to_string());
    let failure = match std::error::Error::source(error) {
        Some(source) => failure.because(source),
        None => failure,
    };
    failure.hint("name the folder of another mirror: everloop recover --from FOLDER")
}
