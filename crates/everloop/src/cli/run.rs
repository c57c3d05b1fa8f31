//! `everloop run`: works on a goal until its checks pass.

use std::sync::Arc;

use everloop_core::action::LoopCommand;
use everloop_core::event::LoopEnd;
use everloop_core::raise::RunLimits;
use everloop_core::reason::RuleId;
use everloop_core::research::ResearchSpec;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::{LoopState, Phase};
use everloop_engine::brought;
use everloop_engine::error::{Code, Failure};
use everloop_engine::projects::ProjectFile;
use everloop_engine::services::create::Attachment;
use everloop_engine::services::loops as services;
use everloop_engine::services::research::summed;
use everloop_engine::services::run::again::{RunAgain, take_over};
use everloop_engine::state_folder::StateFolder;
use everloop_engine::supervisor::{Interrupt, LoopSelection, Supervisor, SupervisorOptions, Until};
use everloop_store::Sqlite;

use super::{VerbSession, up};
use crate::config::{FileProjects, Flags, ResolvedLoop};
use crate::http::Http;
use crate::ui::{Format, LogDetail, quantities};

mod apply;
mod create;
mod follow;
mod mesh;
mod watch;

pub use apply::apply;
pub use create::{add_configured, installed_clis};

/// Runs turns until every check passes, or until turns, time or budget end. Ctrl-C once ends after
/// the running turn, twice stops the agent; the same command continues an unfinished loop.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  everloop run \"make the tests pass\" --check 'cargo test' --agent claude --allow 'cargo test' -n 20\n  \
everloop run \"make the tests pass\" --check 'cargo test' --agent-cmd 'my-agent {prompt}'"
)]
pub struct RunArgs {
    /// The goal of the loop; without it, the loop of everloop.toml is run. With nothing else, checks
    /// and agent are looked for, shown and confirmed
    goal: Option<String>,
    /// Name of a loop in everloop.toml
    #[arg(long = "loop", value_name = "NAME", conflicts_with = "goal")]
    name: Option<String>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    mesh: MeshSwitches,
    #[command(flatten)]
    switches: RunSwitches,
}

/// Whether and how the mesh works on a loop.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct MeshSwitches {
    /// Let all nodes of the mesh work on it, through a git remote (`everloop mesh join` first)
    #[arg(long)]
    mesh: bool,
    /// With --mesh: the git remote through which work travels [default: origin]
    #[arg(long, value_name = "NAME", requires = "mesh")]
    remote: Option<String>,
    /// With --mesh: failing checks that are worked on at once, or experiments
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    width: u32,
}

/// How a loop is started and followed.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RunSwitches {
    /// Names of environment variables that are passed to the agent; their values are redacted from
    /// all output
    #[arg(long = "env", value_name = "NAME")]
    env: Vec<String>,
    /// Hand it to a supervisor in the background and return
    #[arg(long)]
    detach: bool,
    /// Start a new loop even if the same one is unfinished
    #[arg(long)]
    new: bool,
    /// Start without confirmation: with checks and an agent that were found here, with an agent that
    /// seems not to be logged in, with an everloop.toml that changed while agents worked here
    #[arg(short, long)]
    yes: bool,
    /// Print every event, also the steps of a turn and the bookkeeping of quarantine
    #[arg(short, long)]
    verbose: bool,
    /// Print everything that the agent says, while it says it
    #[arg(short, long, conflicts_with = "detach")]
    follow: bool,
    /// End with exit code 5 or 4 instead of waiting when the guard or a person holds the loop
    #[arg(long)]
    no_wait: bool,
}

impl RunArgs {
    /// A run with a goal and these settings.
    pub(super) fn of(goal: String, flags: Flags, mesh: MeshSwitches, switches: RunSwitches) -> Self {
        Self { goal: Some(goal), name: None, flags, mesh, switches }
    }

    /// The run of a name in everloop.toml, with these settings over it.
    pub(super) fn named(name: String, flags: Flags, mesh: MeshSwitches, switches: RunSwitches) -> Self {
        Self { goal: None, name: Some(name), flags, mesh, switches }
    }

    /// What was typed besides the goal.
    fn words(&self) -> Vec<String> {
        let mut words = self.flags.words();
        words.extend(self.switches.env.iter().flat_map(|name| ["--env".to_owned(), name.clone()]));
        let switches =
            [("--detach", self.switches.detach), ("--new", self.switches.new), ("--no-wait", self.switches.no_wait)];
        words.extend(switches.into_iter().filter(|(_, on)| *on).map(|(flag, _)| flag.to_owned()));
        words
    }

    /// Whether the loop needs this terminal.
    fn attachment(&self) -> Attachment {
        if self.switches.detach { Attachment::Background } else { Attachment::Terminal }
    }
}

pub fn run(args: &RunArgs, session: &VerbSession) -> Result<Code, Failure> {
    let (wanted, file) = create::resolve(args, session)?;
    start(args, session, wanted, file.as_ref())
}

/// Runs experiments: a loop whose turns are judged by a metric. Without guards the loop has no
/// checks.
pub(super) fn research(args: &RunArgs, session: &VerbSession, spec: ResearchSpec) -> Result<Code, Failure> {
    let guarded = args.flags.has("check");
    let with = RunArgs { flags: args.flags.clone().with_default("check", "true"), ..args.clone() };
    let (mut wanted, file) = create::resolve(&with, session)?;
    if !guarded {
        wanted.checks.clear();
    }
    wanted.research = Some(spec);
    start(args, session, wanted, file.as_ref())
}

/// Runs the experiments of a name in everloop.toml, as `change` changes them.
pub(super) fn research_of_file(
    args: &RunArgs,
    session: &VerbSession,
    change: &mut dyn FnMut(&mut ResearchSpec) -> Result<(), Failure>,
) -> Result<Code, Failure> {
    let (mut wanted, file) = create::resolve(args, session)?;
    let name = wanted.name.clone();
    let Some(spec) = &mut wanted.research else {
        return Err(Failure::usage(format!("`{name}` of everloop.toml is a loop without a metric"))
            .hint(format!("everloop run --loop {name}")));
    };
    change(spec)?;
    start(args, session, wanted, file.as_ref())
}

/// Starts a persona of everloop.toml in the background, or continues it.
pub(super) fn persona(session: &VerbSession, name: &str, yes: bool) -> Result<Code, Failure> {
    session.for_a_person("start a persona")?;
    let switches = RunSwitches { yes, detach: true, ..RunSwitches::default() };
    let args = RunArgs::named(name.to_owned(), Flags::default(), MeshSwitches::default(), switches);
    let (wanted, file) = create::resolve(&args, session)?;
    if wanted.persona.is_none() {
        return Err(Failure::usage(format!("`{name}` of everloop.toml is no persona"))
            .hint(format!("everloop run --loop {name}, or add `[persona.NAME]` to everloop.toml")));
    }
    start(&args, session, wanted, file.as_ref())
}

fn start(
    args: &RunArgs,
    session: &VerbSession,
    mut wanted: ResolvedLoop,
    file: Option<&ProjectFile>,
) -> Result<Code, Failure> {
    if let Some(file) = file {
        create::accept(args, session, file)?;
    }
    if args.mesh.mesh {
        return mesh::run(args, &wanted, session);
    }
    create::need_agents(args, session, &wanted)?;
    if args.switches.yes {
        wanted.guard.start_broken = true;
    }
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let (state, origin) = create::find_or_create(&wanted, args, session, &mut ledger)?;
    let spec = match origin {
        create::LoopOrigin::Made => state.spec.clone(),
        create::LoopOrigin::Resumed => {
            let again = RunAgain { wanted: &wanted.new_loop().spec, attachment: args.attachment() };
            let taken = take_over(session, &mut ledger, &state, again)?;
            if !taken.changes.is_empty() {
                session.ui.talk(&format!("takes over for loop {}: {}", state.id, taken.changes.join(", ")));
            }
            taken.spec
        }
    };
    let state = LoopState { spec, ..state };
    announce(session, &state, &wanted, origin);
    announce_workers(session, &state, &wanted);
    if args.switches.detach {
        return detach(session, &home, &mut ledger, &state);
    }
    attend(args, session, &home, &state)
}

/// Prints before anything starts what will happen and what it may cost at most.
fn announce(session: &VerbSession, state: &LoopState, wanted: &ResolvedLoop, origin: create::LoopOrigin) {
    let ui = &session.ui;
    let verb = if origin == create::LoopOrigin::Resumed { "resuming" } else { "starting" };
    ui.talk(&format!("{verb} loop {} ({}): {}", state.id, state.name, crate::ui::text::clean(&state.spec.goal)));
    let place = match &state.spec.workspace.mode {
        WorkspaceMode::Git { target } => {
            let branch = target.strip_prefix("refs/heads/").unwrap_or(target);
            let end = match &state.spec.research {
                Some(_) => format!("the champion moves onto {branch} by `everloop research apply {}`", state.id),
                None => format!("finished work moves onto {branch}"),
            };
            format!("in private clones of {}; {end}", state.spec.workspace.dir)
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

/// Prints how many experiments run at a time, and what that changes.
fn announce_workers(session: &VerbSession, state: &LoopState, wanted: &ResolvedLoop) {
    let (Some(research), Some(asked)) = (&state.spec.research, &wanted.research) else { return };
    let (workers, slots) = (research.workers, wanted.guard.max_parallel_turns);
    if asked.workers != workers {
        let text = format!(
            "the run goes on with {workers} at a time; --new starts another run with --workers {}",
            asked.workers
        );
        session.ui.warn(&text);
    }
    if workers > 1 {
        let part = format!("each worker has 1/{workers} of the budget");
        session.ui.talk(&format!("  {workers} experiments at a time, each in a clone of its own; {part}"));
    }
    if workers > slots {
        session.ui.warn(&format!("max_parallel_turns is {slots}; for this run it is {workers}"));
    }
}

/// Hands the loop to a supervisor in the background.
fn detach(session: &VerbSession, home: &StateFolder, ledger: &mut Sqlite, state: &LoopState) -> Result<Code, Failure> {
    services::hand_over(session, home, ledger, state)?;
    let supervised = home.owner().is_some_and(|o| o.role == "up");
    if !supervised {
        up::name_unfinished(session, &services::unfinished(ledger, Some(&state.id))?);
        up::start_in_background(home)?;
    }
    let told = serde_json::json!({ "loop": state.id, "name": state.name, "detached": true });
    session
        .ui
        .said(&format!("{} runs in the background; `everloop logs -f {}` follows it", state.id, state.id), &told)?;
    Ok(Code::Ok)
}

/// Supervises the loop, or follows it while another process does; when that process ends, this one
/// takes over.
fn attend(args: &RunArgs, session: &VerbSession, home: &StateFolder, started: &LoopState) -> Result<Code, Failure> {
    let (id, team) = (&started.id, started.team());
    let style = watch::ForegroundStyle {
        detail: LogDetail::of(args.switches.verbose),
        wait: if args.switches.no_wait { watch::HoldPolicy::End } else { watch::HoldPolicy::Wait },
        follow: if args.switches.follow { watch::FollowAgent::All } else { watch::FollowAgent::LastLine },
    };
    let mut watcher = watch::Foreground::new(&session.ui, &team, home, style);
    loop {
        let interrupted = if let Ok(ownership) = home.own("run", session.now())? {
            let reach = LoopSelection::Only(team.iter().cloned().collect());
            let (until, shim) = (Until::LoopsEnd, up::own_shim()?);
            let (listen, port) = (up::listen_on_demand(session)?, Some(Box::new(Http::default()) as _));
            let options = SupervisorOptions {
                home: home.clone(),
                reach,
                until,
                shim,
                listen,
                port,
                projects: Arc::new(FileProjects),
                collector: up::collector(session)?,
            };
            let supervisor = Supervisor::new(options, session.writer(home)?, ownership);
            up::block_on(supervisor.run(&mut watcher))??
        } else {
            let mut ledger = session.writer(home)?;
            services::hand_over(session, home, &mut ledger, started)?;
            let followed = follow::Followed { session, home, id, team: &team };
            let ended = up::block_on(followed.follow(&mut watcher))??;
            for id in &team {
                brought::forget(home, id);
            }
            ended
        };
        watcher.finish();
        let ledger = session.writer(home)?;
        let (_, state) = session.find_loop(&ledger, Some(id.as_str()))?;
        let held = watcher.held();
        match (&state.phase, interrupted, held) {
            (Phase::Ended { ending, .. }, _, _) => {
                return report(session, &summed(&ledger, state.clone())?, ending, interrupted);
            }
            (_, Some(interrupt), _) => {
                // A loop that another process supervises goes on there; that was printed.
                if !home.is_owned() {
                    session.ui.talk(&format!("loop {id} is not over; the same command goes on with it"));
                }
                return Ok(code_of(interrupt));
            }
            (Phase::Waiting { reason, .. }, None, Some(_))
                if reason.rule == RuleId::ChecksBroken && start_broken(session, home, &state)? =>
            {
                watcher.go_on();
            }
            (_, None, Some(code)) => {
                session.ui.talk(&everloop_core::why::why(&state, session.now(), &|t| quantities::here(t)));
                return Ok(code);
            }
            (_, None, None) => {}
        }
    }
}

/// Lets a person start turns that have to mend the checks first.
fn start_broken(session: &VerbSession, home: &StateFolder, state: &LoopState) -> Result<bool, Failure> {
    if !session.ui.asks() {
        return Ok(false);
    }
    session.ui.talk(&everloop_core::why::why(state, session.now(), &|t| quantities::here(t)));
    if !session.ui.agrees("start turns all the same?")? {
        return Ok(false);
    }
    let mut spec = state.spec.clone();
    spec.guard.start_broken = true;
    services::leave(session, home, &state.id, &LoopCommand::Reconfigure { spec: Box::new(spec) })?;
    Ok(true)
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
