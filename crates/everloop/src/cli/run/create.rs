//! From flags and files to a loop in the ledger.

use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::state::LoopState;
use everloop_engine::error::{Code, Failure};
use everloop_engine::projects::ProjectFile;
use everloop_engine::services::create::{CreatedLoop, NewLoop};
use everloop_engine::services::preflight::{Obstacle, agents_ready};
use everloop_engine::services::run::configured;
use everloop_engine::services::{agents, create, trust};
use everloop_store::Sqlite;

use super::RunArgs;
use crate::cli::{VerbSession, config as config_verb};
use crate::config::{self, BUILT_IN, Config, ConfigError, Overrides, ResolveContext, ResolvedLoop, built_in};
use crate::detect::detect;
use crate::detect::guess::guess;
use crate::ui::text::clean;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopOrigin {
    /// It was just created.
    Made,
    /// The same goal with the same checks was unfinished.
    Resumed,
}

/// Resolves flags, environment and files. The project's file comes as it was read.
pub fn resolve(args: &RunArgs, session: &VerbSession) -> Result<(ResolvedLoop, Option<ProjectFile>), Failure> {
    let dir = config::find(&session.dir).unwrap_or(&session.dir);
    let user = config::user_dir(|name| std::env::var(name).ok());
    let load = |flags| config::load(dir, user.as_deref(), &Overrides::new(flags)).map_err(usage);
    let mut config = load(args.flags.clone())?;
    if let Some(goal) = args.goal.as_deref().filter(|_| config.one_off_lacks().anything()) {
        config = load(guessed(args, goal, &config, session)?)?;
    }
    let mut wanted = chosen(args, &config, session)?;
    wanted.agents_mut().for_each(|agent| agent.pass_env.extend(args.switches.env.iter().cloned()));
    Ok((wanted, config.project_file()))
}

/// The flags with what the folder and the machine suggest, once a person has agreed to them.
fn guessed(args: &RunArgs, goal: &str, config: &Config, session: &VerbSession) -> Result<config::Flags, Failure> {
    let lacking = config.one_off_lacks();
    let clis = if lacking.agent { installed_clis() } else { Vec::new() };
    let guess = guess(lacking, &detect(&session.dir), &clis)?;
    for line in &guess.found {
        session.ui.talk(&format!("found {}", clean(line)));
    }
    let command = guess.command(goal, &args.words());
    if !args.switches.yes {
        let refused = || Failure::usage("a loop does not start with a check or an agent that you did not name");
        if !session.ui.asks() {
            return Err(refused().hint(format!("{command}; or the same with --yes")));
        }
        session.ui.talk(&format!("that is: {}", clean(&command)));
        if !session.ui.agrees("start?")? {
            return Err(refused().hint("change what you like in the command above"));
        }
    }
    Ok(guess.flags.into_iter().fold(args.flags.clone(), |flags, (flag, value)| flags.with(flag, value)))
}

/// The CLIs that are installed here, logged in ones first.
pub fn installed_clis() -> Vec<(AgentSpec, everloop_agents::agent::probe::Installed)> {
    agents::installed(BUILT_IN.into_iter().filter(|kind| *kind != AgentKind::Api).map(built_in))
}

/// Refuses a loop of which no agent can start; names agents that cannot.
pub fn need_agents(args: &RunArgs, session: &VerbSession, wanted: &ResolvedLoop) -> Result<(), Failure> {
    let specs: Vec<AgentSpec> = wanted.agents().cloned().collect();
    let (obstacle, warnings) = agents_ready(&specs, &wanted.workspace.dir);
    for line in &warnings {
        session.ui.warn(line);
    }
    match obstacle {
        None => Ok(()),
        Some(Obstacle::Doubtful(_)) if args.switches.yes => Ok(()),
        Some(Obstacle::Doubtful(failure)) if session.ui.asks() => {
            session.ui.warn(&failure.message);
            if session.ui.agrees("start it all the same?")? { Ok(()) } else { Err(failure) }
        }
        Some(Obstacle::Fatal(failure) | Obstacle::Doubtful(failure)) => Err(failure),
    }
}

/// A person that types `run` accepts the file that it reads, once per content. A text that changed
/// while agents worked in the folder may be theirs: then the person is asked.
pub fn accept(args: &RunArgs, session: &VerbSession, file: &ProjectFile) -> Result<(), Failure> {
    let home = session.home()?;
    if let Err(undecided) = trust::by_run(session, &session.writer(&home)?, file)?
        && !args.switches.yes
    {
        if !session.ui.asks() {
            return Err(undecided.refusal());
        }
        session.ui.warn(&undecided.refusal().message);
        for line in &undecided.commands {
            session.ui.talk(&format!("  {}", clean(line)));
        }
        if !session.ui.agrees("take it over?")? {
            return Err(undecided.refusal());
        }
    }
    trust::accept(session, file, "run")?;
    Ok(())
}

fn chosen(args: &RunArgs, config: &Config, session: &VerbSession) -> Result<ResolvedLoop, Failure> {
    let moment = moment(session);
    if let Some(goal) = &args.goal {
        return config.one_off(goal, &moment).map_err(usage);
    }
    let names = config.loops();
    let name = match (&args.name, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, []) => {
            return Err(Failure::usage("there is no goal")
                .hint("everloop run \"GOAL\" --check 'CMD' --agent claude, or `everloop init`"));
        }
        (None, several) => {
            return Err(Failure::usage("everloop.toml holds several loops")
                .hint(format!("name one: everloop run --loop {}", several.join(" | "))));
        }
    };
    config.resolve(name, &moment).map_err(usage)
}

/// A mistake outside of every file is one of the command line.
fn usage(error: ConfigError) -> Failure {
    let in_file = error.diagnostics.iter().any(|d| d.place.is_some());
    let mut failure = Failure::from(error);
    if !in_file {
        failure.code = Code::Usage;
    }
    failure
}

pub fn moment(session: &VerbSession) -> ResolveContext {
    ResolveContext::at(session.now())
}

/// The unfinished loop with the same goal and checks in the same folder, or a new one.
pub fn find_or_create(
    wanted: &ResolvedLoop,
    args: &RunArgs,
    session: &VerbSession,
    ledger: &mut Sqlite,
) -> Result<(LoopState, LoopOrigin), Failure> {
    let new = wanted.new_loop();
    if !args.switches.new
        && let Some(state) = create::find_same(ledger, &new)?
    {
        return Ok((state, LoopOrigin::Resumed));
    }
    let made = create::create(session, ledger, &new, args.attachment())?;
    show_unseen(session, &made);
    Ok((made.state, LoopOrigin::Made))
}

/// Adds the loops of this folder's configuration that are not known yet. A file that is not trusted
/// adds nothing.
pub fn add_configured(session: &VerbSession, ledger: &mut Sqlite) -> Result<(), Failure> {
    if let Some(line) = trust::not_in_force(session)? {
        session.ui.warn(&line);
    }
    let config = config_verb::load_in_force(session)?;
    let wanted: Vec<NewLoop> = config.check(&moment(session))?.iter().map(ResolvedLoop::new_loop).collect();
    configured::add(session, ledger, &wanted, &mut |made| {
        show_unseen(session, made);
        session.ui.talk(&format!("added loop {} ({}) from everloop.toml", made.state.id, made.state.name));
    })
}

/// Prints what turns and checks of a new loop will not see.
pub(super) fn show_unseen(session: &VerbSession, made: &CreatedLoop) {
    made.warnings.iter().for_each(|line| session.ui.warn(line));
}
