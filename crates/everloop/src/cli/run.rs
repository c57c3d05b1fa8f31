//! `everloop run`: works on a goal until its checks pass.

use std::collections::BTreeSet;
use std::sync::Arc;

use everloop_core::event::LoopEnd;
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_core::raise::RunLimits;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::{LoopState, Phase};
use everloop_engine::error::{Code, Failure};
use everloop_engine::state_folder::StateFolder;
use everloop_engine::supervisor::{Interrupt, LoopSelection, Notice, SUPERVISOR, Supervisor, SupervisorOptions, Until};
use everloop_store::{Ledger, Sqlite};

use super::message::send;
use super::{VerbSession, up};
use crate::config::{FileProjects, Flags, ResolvedLoop};
use crate::http::Http;
use crate::ui::{Format, LogDetail, quantities};

mod apply;
mod create;
mod follow;
mod mesh;
mod resumed;
mod watch;

pub use apply::apply;
pub use create::add_configured;

/// Runs turns until every check passes, or until turns, time or budget end. Ctrl-C once ends after
/// the running turn, twice stops the agent; the same command continues an unfinished loop.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  everloop run \"make the tests pass\" --check 'cargo test' --agent claude --allow 'cargo test' -n 20\n  \
everloop run \"make the tests pass\" --check 'cargo test' --agent-cmd 'my-agent {prompt}'"
)]
pub struct RunArgs {
    /// The goal of the loop; without it, the loop of everloop.toml is run
    goal: Option<String>,
    /// Name of a loop in everloop.toml
    #[arg(long = "loop", value_name = "NAME", conflicts_with = "goal")]
    name: Option<String>,
    #[command(flatten)]
    flags: Flags,
    /// Names of environment variables that are passed to the agent; their values are redacted from
    /// all output
    #[arg(long = "env", value_name = "NAME")]
    env: Vec<String>,
    /// Let all nodes of the mesh work on it, through a git remote (`everloop mesh join` first)
    #[arg(long)]
    mesh: bool,
    /// With --mesh: the git remote through which work travels [default: origin]
    #[arg(long, value_name = "NAME", requires = "mesh")]
    remote: Option<String>,
    /// With --mesh: failing checks that are worked on at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    width: u32,
    /// Hand it to a supervisor in the background and return
    #[arg(long)]
    detach: bool,
    /// Start a new loop even if the same one is unfinished
    #[arg(long)]
    new: bool,
    /// Take over an everloop.toml that changed while agents worked here, without confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print every event, also the steps of a turn and the bookkeeping of quarantine
    #[arg(short, long)]
    verbose: bool,
    /// End with exit code 5 or 4 instead of waiting when the guard or a person holds the loop
    #[arg(long)]
    no_wait: bool,
}

pub fn run(args: &RunArgs, session: &VerbSession) -> Result<Code, Failure> {
    let (wanted, file) = create::resolve(args, session)?;
    if let Some(file) = &file {
        create::accept(args, session, file)?;
    }
    if args.mesh {
        return mesh::run(args, &wanted, session);
    }
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let (state, origin) = create::find_or_create(&wanted, args, session, &home, &mut ledger)?;
    let spec = match origin {
        create::LoopOrigin::Made => state.spec.clone(),
        create::LoopOrigin::Resumed => resumed::take_over(session, &mut ledger, &state, &wanted)?,
    };
    announce(session, &LoopState { spec, ..state.clone() }, &wanted, origin);
    if args.detach {
        return detach(session, &home, &mut ledger, &state);
    }
    attend(args, session, &home, &state.id)
}

/// Prints before anything starts what will happen and what it may cost at most.
fn announce(session: &VerbSession, state: &LoopState, wanted: &ResolvedLoop, origin: create::LoopOrigin) {
    let ui = &session.ui;
    let verb = if origin == create::LoopOrigin::Resumed { "resuming" } else { "starting" };
    ui.talk(&format!("{verb} loop {} ({}): {}", state.id, state.name, crate::ui::text::clean(&state.spec.goal)));
    let place = match &state.spec.workspace.mode {
        WorkspaceMode::Git { target } => {
            let branch = target.strip_prefix("refs/heads/").unwrap_or(target);
            format!("in private clones of {}; finished work moves onto {branch}", state.spec.workspace.dir)
        }
        WorkspaceMode::InPlace => format!("directly in {}", state.spec.workspace.dir),
    };
    ui.talk(&format!("  works {place}"));
    ui.talk(&format!("  at most: {}", quantities::ceiling(state, &RunLimits::of(state), session.now())));
    for line in crate::ui::agents::permissions(&state.spec) {
        ui.talk(&format!("  {line}"));
    }
    let isolation = crate::ui::isolation::line(&state.spec);
    if crate::ui::isolation::holds(&state.spec) {
        ui.talk(&format!("  isolation: {isolation}"));
    } else {
        ui.warn(&format!("isolation: {isolation}"));
    }
    for warning in &wanted.warnings {
        ui.warn(warning);
    }
}

/// Hands the loop to a supervisor in the background.
fn detach(session: &VerbSession, home: &StateFolder, ledger: &mut Sqlite, state: &LoopState) -> Result<Code, Failure> {
    attend_elsewhere(session, home, ledger, &state.id)?;
    let supervised = home.owner().is_some_and(|o| o.role == "up");
    if !supervised {
        up::name_unfinished(session, ledger, Some(&state.id))?;
        up::start_in_background(home)?;
    }
    let told = serde_json::json!({ "loop": state.id, "name": state.name, "detached": true });
    session
        .ui
        .said(&format!("{} runs in the background; `everloop logs -f {}` follows it", state.id, state.id), &told)?;
    Ok(Code::Ok)
}

fn attend_elsewhere(
    session: &VerbSession,
    home: &StateFolder,
    ledger: &mut Sqlite,
    id: &LoopId,
) -> Result<(), Failure> {
    let body = serde_json::to_string(&Notice::Attend { id: id.clone() }).expect("a notice always has a JSON form");
    ledger.transact(session.now(), &[Op::Signal { to: SUPERVISOR.to_owned(), by: send::person(), body }])?;
    home.wake();
    Ok(())
}

/// Supervises the loop, or follows it while another process does; when that process ends, this one
/// takes over.
fn attend(args: &RunArgs, session: &VerbSession, home: &StateFolder, id: &LoopId) -> Result<Code, Failure> {
    let mut watcher = {
        let wait = if args.no_wait { watch::HoldPolicy::End } else { watch::HoldPolicy::Wait };
        watch::Foreground::new(&session.ui, id.clone(), LogDetail::of(args.verbose), wait)
    };
    loop {
        let interrupted = if let Ok(ownership) = home.own("run", session.now())? {
            let reach = LoopSelection::Only(BTreeSet::from([id.clone()]));
            let (until, shim) = (Until::LoopsEnd, up::own_shim()?);
            let (listen, port) = (up::listen_on_demand(session)?, Some(Box::new(Http) as _));
            let options = SupervisorOptions {
                home: home.clone(),
                reach,
                until,
                shim,
                listen,
                port,
                projects: Arc::new(FileProjects),
            };
            let supervisor = Supervisor::new(options, session.writer(home)?, ownership);
            up::block_on(supervisor.run(&mut watcher))??
        } else {
            let mut ledger = session.writer(home)?;
            attend_elsewhere(session, home, &mut ledger, id)?;
            let followed = follow::Followed { session, home, id };
            up::block_on(followed.follow(&mut watcher))??
        };
        watcher.finish();
        let ledger = session.writer(home)?;
        let (_, state) = session.find_loop(&ledger, Some(id.as_str()))?;
        let held = watcher.held();
        match (&state.phase, interrupted, held) {
            (Phase::Ended { ending, .. }, _, _) => return report(session, &state, ending, interrupted),
            (_, Some(interrupt), _) => {
                // A loop that another process supervises goes on there; that was printed.
                if !home.is_owned() {
                    session.ui.talk(&format!("loop {id} is not over; the same command goes on with it"));
                }
                return Ok(code_of(interrupt));
            }
            (_, None, Some(code)) => {
                session.ui.talk(&everloop_core::why::why(&state, session.now(), &|t| quantities::here(t)));
                return Ok(code);
            }
            (_, None, None) => {}
        }
    }
}

fn code_of(interrupt: Interrupt) -> Code {
    match interrupt {
        Interrupt::Int => Code::Interrupted,
        Interrupt::Term => Code::Terminated,
    }
}

fn report(
    session: &VerbSession,
    state: &LoopState,
    ending: &LoopEnd,
    interrupt: Option<Interrupt>,
) -> Result<Code, Failure> {
    let summary = crate::ui::summary(state, session.ui.paint());
    match session.ui.format() {
        Format::Text => session.ui.out_lines(&summary)?,
        Format::Json => session.ui.json(state)?,
    }
    Ok(match (ending, interrupt) {
        (LoopEnd::Stopped { .. }, Some(interrupt)) => code_of(interrupt),
        (ending, _) => Code::of(ending),
    })
}
