//! `everloop recover`: rebuilds a lost ledger from the mirror, and a lost hub from a node's mirror.

use std::path::{Path, PathBuf};

use everloop_agents::{clock, job};
use everloop_core::event::Event;
use everloop_core::ids::TurnId;
use everloop_core::mesh::rights::Rights;
use everloop_core::op::{Op, TaskState};
use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::Membership;
use everloop_engine::recover::RestorePlan;
use everloop_engine::state_folder::StateFolder;
use everloop_store::mirror::{self, MirrorError};
use everloop_store::{Ledger, OpenMode, Sqlite};
use serde_json::{Value, json};

use super::VerbSession;
use crate::ui::text::{clean, count};

const HELP: &str = "Examples:
  everloop recover --dry-run
  everloop recover --from mirror
  everloop recover --from /mnt/backup/mirror
  everloop mesh hub init && everloop recover --hub

A readable ledger is never overwritten. Files of the mirror that are cut off, damaged, foreign or newer are refused by
name. The next `everloop up` looks for turns that were under way, as after any crash.
--hub also gives the new, empty hub of this node the loops, tasks and late results of the one that is gone, and its name, so
that the other nodes recognise it; restart them. Tasks that were held there are free, and what their holders still bring
is kept as a late result.";

/// Rebuilds the ledger of this state folder from the files of its mirror.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct RecoverArgs {
    /// `mirror` for this state folder's own, or the folder of another one
    #[arg(long, default_value = "mirror", value_name = "MIRROR")]
    from: PathBuf,
    /// Also rebuild the hub; the ledger of this machine may then exist
    #[arg(long)]
    hub: bool,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

/// State of the existing ledger.
enum Ledgers {
    /// None, or one without content.
    None,
    /// An unreadable one, with the reason.
    Broken(String),
    Whole,
}

pub fn recover(args: &RecoverArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    session.for_a_person("rebuild a ledger")?;
    let home = session.home()?;
    let _ownership = match home.own("recover", session.now())? {
        Ok(ownership) => ownership,
        Err(owner) => return Err(super::up::taken(&home, owner.as_ref())),
    };
    let root = if args.from == Path::new("mirror") { home.mirror() } else { session.dir.join(&args.from) };
    let mut lines = Vec::new();
    let mut content = json!({ "from": root.display().to_string(), "dry_run": args.dry_run });
    match (look(&home), args.hub) {
        (Ledgers::Whole, false) => {
            return Err(Failure::failed(format!(
                "there is a ledger that can be read: `{}`",
                home.database().display()
            ))
            .hint("`everloop replay` checks it; to discard it, move it away first"));
        }
        (Ledgers::Whole, true) => lines.push("the ledger of this machine is readable and stays as it is".to_owned()),
        (found, _) => content["ledger"] = local(args, session, (&home, &root, found), &mut lines)?,
    }
    if args.hub {
        content["hub"] = hub(args, (&home, &root), &mut lines)?;
    }
    if !args.dry_run {
        lines.push("go on: everloop up".to_owned());
    }
    session.ui.answer(&lines, &content)?;
    Ok(Code::Ok)
}

fn look(home: &StateFolder) -> Ledgers {
    let looked = || -> Result<Ledgers, everloop_store::Error> {
        let ledger = Sqlite::open(&home.database(), OpenMode::ReadOnly)?;
        if let Some(wrong) = ledger.check_integrity()?.first() {
            return Ok(Ledgers::Broken(wrong.clone()));
        }
        let empty = ledger.last_seq()? == 0 && ledger.loops()?.is_empty();
        Ok(if empty { Ledgers::None } else { Ledgers::Whole })
    };
    match looked() {
        Ok(found) => found,
        Err(everloop_store::Error::Missing { .. }) => Ledgers::None,
        // Another version of everloop can read it.
        Err(
            everloop_store::Error::Newer { .. }
            | everloop_store::Error::Older { .. }
            | everloop_store::Error::Busy { .. },
        ) => Ledgers::Whole,
        Err(error) => Ledgers::Broken(error.to_string()),
    }
}

fn local(
    args: &RecoverArgs,
    session: &VerbSession,
    (home, root, there): (&StateFolder, &Path, Ledgers),
    lines: &mut Vec<String>,
) -> Result<Value, Failure> {
    let found = mirror::found(root).map_err(|e| cannot(&e))?;
    let turns = turns(home);
    let plan = RestorePlan::local(found, &turns, session.now());
    let strangers = &plan.strangers;
    if !args.dry_run {
        set_aside(home, strangers)?;
        if let Ledgers::Broken(why) = &there {
            let place = move_ledger(home)?;
            session.ui.warn(&format!("the broken ledger ({why}) is now `{}`", place.display()));
        }
        let mut ledger = Sqlite::open(&home.database(), OpenMode::ReadWrite)?;
        if !ledger.restore(&plan.rows)? {
            return Err(Failure::failed("the ledger is not empty").hint("move it away first"));
        }
        let text = format!("this ledger was rebuilt from `{}`", root.display());
        ledger.transact(session.now(), &[Op::Append { owner: None, events: vec![Event::Note { text }] }])?;
    }
    let mut told = tell(&plan, ("the ledger", args.dry_run), lines);
    for turn in strangers {
        lines.push(format!("  turn {turn} began after the last write of the mirror; its folder is moved away"));
    }
    told["turns_set_aside"] = json!(strangers);
    Ok(told)
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

fn hub(args: &RecoverArgs, (home, root): (&StateFolder, &Path), lines: &mut Vec<String>) -> Result<Value, Failure> {
    let Some(mut membership) = Membership::read(home)? else {
        return Err(Failure::failed("this machine is not a node of a mesh")
            .hint("create the hub (everloop mesh hub init) and join it (everloop mesh join), then recover"));
    };
    let found = mirror::found(&root.join("hub")).map_err(|e| cannot(&e))?;
    let mut hub = membership.open_any()?;
    if membership.hub != found.of && membership.hub != hub.id() {
        return Err(Failure::failed(format!(
            "the mirror is that of hub `{}`, and this machine is a node of `{}`",
            found.of, membership.hub
        ))
        .hint("use the mirror of a node of this hub: --from FOLDER"));
    }
    if hub.rights() == Rights::Worker {
        return Err(Failure::config("the login of this node has the rights of a worker, which cannot rebuild a hub")
            .hint("recover on a node with the login of a leader, or: everloop mesh hub init --print-sql --role NAME"));
    }
    let id = found.of.clone();
    let plan = RestorePlan::hub(found, clock::machine_now());
    if !args.dry_run {
        if !hub.restore(&id, &plan.rows)? {
            return Err(Failure::failed("the hub is not empty, so nothing was written to it")
                .hint("check it: everloop mesh hub check; only a new one can be rebuilt"));
        }
        membership.hub.clone_from(&id);
        membership.save(home)?;
    }
    let mut told = tell(&plan, ("the hub", args.dry_run), lines);
    told["id"] = json!(id);
    Ok(told)
}

fn tell(plan: &RestorePlan, (what, dry_run): (&str, bool), lines: &mut Vec<String>) -> Value {
    let rows = &plan.rows;
    let of = |fits: fn(&TaskState) -> bool| rows.tasks.iter().filter(|row| fits(&row.state)).count();
    let open = of(|state| matches!(state, TaskState::Queued | TaskState::Leased { .. } | TaskState::Blocked));
    let done = of(|state| matches!(state, TaskState::Done | TaskState::Dead));
    let verb = if dry_run { "would get back" } else { "has" };
    lines.push(format!(
        "{what} {verb} {}, {} ({open} open, {done} over), {}, {}",
        count(rows.loops.len() as u64, "loop"),
        count(rows.tasks.len() as u64, "task"),
        count(rows.late_results.len() as u64, "late result"),
        count(rows.journal.len() as u64, "journal record"),
    ));
    for turn in &plan.under_way {
        lines.push(format!("  turn {turn} was under way; the supervisor will look for it"));
    }
    for lost in &plan.lost {
        lines.push(format!("  not known: {}: {}", clean(&lost.what), clean(&lost.why)));
    }
    let lost: Vec<Value> = plan.lost.iter().map(|lost| json!({ "what": lost.what, "why": lost.why })).collect();
    json!({
        "loops": rows.loops.len(),
        "documents": rows.docs.len(),
        "tasks": rows.tasks.len(),
        "tasks_open": open,
        "shelf": rows.late_results.len(),
        "tickets": rows.tickets.len(),
        "journal": rows.journal.len(),
        "fences_raised": plan.leapt,
        "turns_under_way": plan.under_way,
        "lost": lost,
    })
}

fn cannot(error: &MirrorError) -> Failure {
    let failure = Failure::failed(error.to_string());
    let failure = match std::error::Error::source(error) {
        Some(source) => failure.because(source),
        None => failure,
    };
    failure.hint("name the folder of another mirror: everloop recover --from FOLDER")
}
