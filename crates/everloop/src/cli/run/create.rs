//! From flags and files to a loop in the ledger.

use std::path::{Path, PathBuf};

use everloop_agents::protect;
use everloop_agents::workspace::{self, ProjectFolder, Workspace as LoopWorkspace};
use everloop_core::event::LoopEnd;
use everloop_core::ids::LoopId;
use everloop_core::spec::{AgentSpec, LoopSpec, WorkspaceMode};
use everloop_core::state::{LoopState, Phase};
use everloop_engine::error::{Code, Failure};
use everloop_engine::projects::ProjectFile;
use everloop_engine::record::read_state;
use everloop_engine::services::trust;
use everloop_engine::state_folder::StateFolder;
use everloop_store::{Ledger, Sqlite};

use super::RunArgs;
use crate::cli::{VerbSession, config as config_verb, up};
use crate::config::{self, Config, ConfigError, Overrides, ResolveContext, ResolvedLoop, WorkspaceKey};
use crate::ui::Ui;
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
    let config = config::load(dir, user.as_deref(), &Overrides::new(args.flags.clone())).map_err(usage)?;
    let mut wanted = chosen(args, &config, session)?;
    wanted.agents_mut().for_each(|agent| agent.pass_env.extend(args.env.iter().cloned()));
    Ok((wanted, config.project_file()))
}

/// A person that types `run` accepts the file that it reads, once per content. A text that changed
/// while agents worked in the folder may be theirs: then the person is asked.
pub fn accept(args: &RunArgs, session: &VerbSession, file: &ProjectFile) -> Result<(), Failure> {
    let home = session.home()?;
    if let Err(undecided) = trust::by_run(session, &session.writer(&home)?, file)?
        && !args.yes
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
    home: &StateFolder,
    ledger: &mut Sqlite,
) -> Result<(LoopState, LoopOrigin), Failure> {
    if !args.new {
        for row in ledger.loops()? {
            let state = read_state(&row)?;
            if is_same(&state, wanted) {
                return Ok((state, LoopOrigin::Resumed));
            }
        }
    }
    Ok((create(wanted, session, home, ledger)?, LoopOrigin::Made))
}

fn is_same(state: &LoopState, wanted: &ResolvedLoop) -> bool {
    // Names that everloop made up differ between versions.
    let runs =
        |checks: &[everloop_core::spec::CheckSpec]| -> Vec<String> { checks.iter().map(|c| c.run.clone()).collect() };
    let over = matches!(&state.phase, Phase::Ended { ending: LoopEnd::Reached, .. });
    !over
        && state.spec.goal == wanted.goal
        && Path::new(&state.spec.workspace.dir) == wanted.workspace.dir
        && state.spec.agents().map(who).eq(wanted.agents().map(who))
        && runs(&state.spec.checks) == runs(&wanted.checks)
}

/// The identity of an agent: another permission or account makes another one.
fn who(agent: &AgentSpec) -> impl PartialEq {
    let AgentSpec { kind, argv, model, permission, allow, account, .. } = agent.clone();
    (kind, argv, model, permission, allow, account)
}

/// Adds the loops of this folder's configuration that are not known yet. A file that is not trusted
/// adds nothing.
pub fn add_configured(session: &VerbSession, ledger: &mut Sqlite) -> Result<(), Failure> {
    if let Some(line) = trust::not_in_force(session)? {
        session.ui.warn(&line);
    }
    let config = config_verb::load_in_force(session)?;
    let home = session.home()?;
    let known: Vec<LoopState> = ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?;
    for wanted in config.check(&moment(session))? {
        // A loop that has reached its goal is known, too: `up` does not start it a second time.
        let mine = |s: &LoopState| s.name == wanted.name && Path::new(&s.spec.workspace.dir) == wanted.workspace.dir;
        if !known.iter().any(mine) {
            let state = create(&wanted, session, &home, ledger)?;
            session.ui.talk(&format!("added loop {} ({}) from everloop.toml", state.id, state.name));
        }
    }
    Ok(())
}

pub(super) fn create(
    wanted: &ResolvedLoop,
    session: &VerbSession,
    home: &StateFolder,
    ledger: &mut Sqlite,
) -> Result<LoopState, Failure> {
    let id = draw_id(ledger)?;
    let spec = up::block_on(complete(wanted, &id, home, &session.ui))??;
    let now = session.now();
    let state = LoopState::new(id, wanted.name.clone(), spec, now);
    ledger.transact(now, &state.birth())?;
    Ok(state)
}

/// Completes the settings from the folder: git or not, the branch, the files that the checks name
/// and their content.
pub(super) async fn complete(
    wanted: &ResolvedLoop,
    id: &LoopId,
    home: &StateFolder,
    ui: &Ui,
) -> Result<LoopSpec, Failure> {
    let dir = &wanted.workspace.dir;
    let cannot =
        |e: workspace::WorkspaceError| Failure::failed(format!("cannot work in `{}`", dir.display())).because(&e);
    let place = workspace::discover(dir).await.map_err(cannot)?;
    let mode = match (wanted.workspace.kind, &place) {
        (WorkspaceKey::InPlace, _) | (WorkspaceKey::Auto, ProjectFolder::Folder(_)) => WorkspaceMode::InPlace,
        (WorkspaceKey::Auto | WorkspaceKey::Git, ProjectFolder::Git(_)) => place.mode(id),
        (WorkspaceKey::Git, ProjectFolder::Folder(_)) => {
            return Err(Failure::usage(format!("`{}` is not in a git repository", dir.display()))
                .hint("run `git init` there, or use --in-place"));
        }
    };
    let mut spec = wanted.spec(mode.clone());
    // From a clean checkout: files that are built later or not committed are no part of a check.
    let options = workspace::WorkspaceOptions { owner: id.clone(), root: home.work(id), spec: spec.workspace.clone() };
    let mut workspace = LoopWorkspace::open(options).await.map_err(cannot)?;
    spec.workspace.origin = workspace.origin().await.map_err(cannot)?;
    let cwd = workspace.check_out_verify(None).await.map_err(cannot)?;
    let (root, below) = match (&mode, &place) {
        (WorkspaceMode::Git { .. }, ProjectFolder::Git(repository)) => {
            (top_of(&cwd, &repository.below), repository.below.clone())
        }
        _ => (cwd.clone(), PathBuf::new()),
    };
    let runs = spec.checks.iter().map(|c| c.run.as_str());
    let named = protect::files_of_checks(runs.clone(), &root, &below);
    spec.workspace.judge = protect::judge_files(runs, &root, &below);
    warn_uncommitted(&spec, dir, &cwd, ui);
    // The checks' own files come first, so that an exception in the configuration can still name
    // one.
    spec.workspace.protect.splice(0..0, named);
    for check in &mut spec.checks {
        let pinned = protect::pin(&check.run, &cwd);
        check.pin = pinned.map_err(|e| Failure::failed(format!("cannot pin check `{}`", check.name)).because(&e))?;
    }
    Ok(spec)
}

/// A check with a script in the folder but not in the commit would be broken without a visible
/// reason.
fn warn_uncommitted(spec: &LoopSpec, dir: &Path, checkout: &Path, ui: &Ui) {
    for check in &spec.checks {
        let here = protect::files_of_checks([check.run.as_str()], dir, Path::new(""));
        let there = protect::files_of_checks([check.run.as_str()], checkout, Path::new(""));
        for file in here.iter().filter(|f| !there.contains(f)) {
            ui.warn(&format!(
                "check `{}` runs `{file}`, which is not committed, and checks run on commits: commit it, or use --include-dirty or --in-place",
                check.name
            ));
        }
    }
}

/// The root of the checkout that `cwd` is `below`.
fn top_of(cwd: &Path, below: &Path) -> PathBuf {
    cwd.ancestors().nth(below.components().count()).unwrap_or(cwd).to_owned()
}

/// Draws a short id that is not in use.
fn draw_id(ledger: &Sqlite) -> Result<LoopId, Failure> {
    loop {
        let id = draw();
        if ledger.get_loop(&id)?.is_none() {
            return Ok(id);
        }
    }
}

pub(super) fn draw() -> LoopId {
    use std::hash::{BuildHasher, RandomState};
    // Without letters and digits that look alike.
    const ALPHABET: &[u8] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bits = RandomState::new().hash_one(0);
    let mut id = String::new();
    for _ in 0..4 {
        id.push(char::from(ALPHABET[(bits % ALPHABET.len() as u64) as usize]));
        bits /= ALPHABET.len() as u64;
    }
    LoopId::new(id)
}
