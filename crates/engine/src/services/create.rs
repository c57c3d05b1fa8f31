//! From settings to a loop in the ledger: the same one again, or a new one with what its folder
//! says.

use std::path::{Path, PathBuf};

use everloop_agents::protect;
use everloop_agents::workspace::{self, ProjectFolder, Workspace};
use everloop_core::event::LoopEnd;
use everloop_core::ids::LoopId;
use everloop_core::research::{Direction, ResearchSpec, shared};
use everloop_core::spec::{AgentSpec, CheckSpec, LoopSpec, WorkspaceMode};
use everloop_core::state::{LoopState, Phase};
use everloop_store::{Ledger, Sqlite};

use super::ServiceContext;
use super::preflight::{FolderRequest, unseen};
use super::runtime::block_on;
use crate::error::Failure;
use crate::record::read_state;
use crate::research::with_findings;
use crate::state_folder::StateFolder;

/// Where turns should work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceWish {
    /// In clones where there is git, else in the folder.
    Auto,
    Clones,
    Folder,
}

/// A loop as it was configured. What depends on the folder (mode, origin, pins, judge files) is
/// still open in `spec`.
#[derive(Clone, Debug)]
pub struct NewLoop {
    pub name: String,
    pub spec: LoopSpec,
    pub place: PlaceWish,
}

/// Whether a loop goes on without the terminal that it was started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    Terminal,
    Background,
}

/// A loop that was made.
#[derive(Clone, Debug)]
pub struct CreatedLoop {
    pub state: LoopState,
    /// What turns and checks will not see of the folder; sentences.
    pub warnings: Vec<String>,
}

/// Settings with what the folder says.
#[derive(Clone, Debug)]
pub struct CompletedSpec {
    pub spec: LoopSpec,
    /// As in [`CreatedLoop`].
    pub warnings: Vec<String>,
}

/// The loop with the same goal, checks and agents in the same folder that has not reached its goal; a
/// persona is the same by its name.
pub fn find_same(ledger: &Sqlite, wanted: &NewLoop) -> Result<Option<LoopState>, Failure> {
    for row in ledger.loops()? {
        let state = read_state(&row)?;
        if is_same(&state, wanted) {
            return Ok(Some(with_findings(ledger, state)?));
        }
    }
    Ok(None)
}

fn is_same(state: &LoopState, wanted: &NewLoop) -> bool {
    let NewLoop { name, spec: wanted, .. } = wanted;
    if state.is_persona() || wanted.persona.is_some() {
        let both = state.is_persona() && wanted.persona.is_some();
        return both && state.name == *name && state.spec.workspace.dir == wanted.workspace.dir;
    }
    // Names that everloop made up differ between versions.
    let runs = |checks: &[CheckSpec]| -> Vec<String> { checks.iter().map(|c| c.run.clone()).collect() };
    let reached = matches!(&state.phase, Phase::Ended { ending: LoopEnd::Reached, .. });
    !reached
        && !state.is_helper()
        && state.spec.goal == wanted.goal
        && state.spec.workspace.dir == wanted.workspace.dir
        && state.spec.agents().map(identity).eq(wanted.agents().map(identity))
        && runs(&state.spec.checks) == runs(&wanted.checks)
        && metric(state.spec.research.as_deref()) == metric(wanted.research.as_deref())
}

/// What a research run measures.
fn metric(research: Option<&ResearchSpec>) -> Option<(&str, Direction)> {
    research.map(|research| (research.metric.check.run.as_str(), research.metric.direction))
}

/// The identity of an agent: another permission or account makes another one.
fn identity(agent: &AgentSpec) -> impl PartialEq {
    let AgentSpec { kind, argv, model, permission, allow, account, .. } = agent.clone();
    (kind, argv, model, permission, allow, account)
}

/// Makes a loop.
pub fn create(
    context: &ServiceContext,
    ledger: &mut Sqlite,
    wanted: &NewLoop,
    attachment: Attachment,
) -> Result<CreatedLoop, Failure> {
    let home = context.home()?;
    let id = draw_id(ledger)?;
    let CompletedSpec { mut spec, warnings } = block_on(complete(&home, wanted, &id))??;
    shared::divide(&mut spec, &id);
    let now = context.now();
    let born = |id: &LoopId, name: String| {
        let state = LoopState::new(id.clone(), name, spec.clone(), now);
        match attachment {
            Attachment::Terminal => state.attached(),
            Attachment::Background => state,
        }
    };
    let state = born(&id, wanted.name.clone());
    let mut ops = state.birth();
    for (n, helper) in state.team().iter().enumerate().skip(1) {
        ops.extend(born(helper, format!("{}-{}", wanted.name, n + 1)).birth());
    }
    ledger.transact(now, &ops)?;
    Ok(CreatedLoop { state, warnings })
}

/// Completes the settings from the folder: git or not, the branch, the files that the checks name
/// and their content.
pub async fn complete(home: &StateFolder, wanted: &NewLoop, id: &LoopId) -> Result<CompletedSpec, Failure> {
    let mut spec = wanted.spec.clone();
    let dir = PathBuf::from(&spec.workspace.dir);
    let cannot =
        |e: workspace::WorkspaceError| Failure::failed(format!("cannot work in `{}`", dir.display())).because(&e);
    let place = workspace::discover(&dir).await.map_err(cannot)?;
    let mode = match (wanted.place, &place) {
        (PlaceWish::Folder, _) | (PlaceWish::Auto, ProjectFolder::Folder(_)) => WorkspaceMode::InPlace,
        (PlaceWish::Auto | PlaceWish::Clones, ProjectFolder::Git(_)) => place.mode(id),
        (PlaceWish::Clones, ProjectFolder::Folder(_)) => {
            return Err(Failure::usage(format!("`{}` is not in a git repository", dir.display()))
                .hint("run `git init` there, or use --in-place"));
        }
    };
    if spec.research.is_some() && mode == WorkspaceMode::InPlace {
        return Err(Failure::usage("experiments are commits, and this folder is in no git repository")
            .hint("run `git init` there and commit what is to be improved"));
    }
    spec.workspace.mode = mode.clone();
    // From a clean checkout: files that are built later or not committed are no part of a check.
    let options = workspace::WorkspaceOptions { owner: id.clone(), root: home.work(id), spec: spec.workspace.clone() };
    let mut workspace = Workspace::open(options).await.map_err(cannot)?;
    spec.workspace.origin = workspace.origin().await.map_err(cannot)?;
    let cwd = workspace.check_out_verify(None).await.map_err(cannot)?;
    let (root, below) = match (&mode, &place) {
        (WorkspaceMode::Git { .. }, ProjectFolder::Git(repository)) => {
            (top_of(&cwd, &repository.below), repository.below.clone())
        }
        _ => (cwd.clone(), PathBuf::new()),
    };
    let measured = spec.research.iter().map(|research| research.metric.check.run.as_str());
    let runs = spec.checks.iter().map(|c| c.run.as_str()).chain(measured);
    let named = protect::files_of_checks(runs.clone(), &root, &below);
    spec.workspace.judge = protect::judge_files(runs, &root, &below);
    let mut warnings = uncommitted_scripts(&spec, &dir, &cwd);
    if mode != WorkspaceMode::InPlace {
        let (include_dirty, has_setup) = (spec.workspace.include_dirty, spec.workspace.setup.is_some());
        warnings.extend(unseen(&FolderRequest { dir: &dir, include_dirty, has_setup }).await.map_err(cannot)?);
    }
    // The checks' own files come first, so that an exception in the configuration can still name
    // one.
    spec.workspace.protect.splice(0..0, named);
    let metric = spec.research.as_mut().map(|research| &mut research.metric.check);
    for check in spec.checks.iter_mut().chain(metric) {
        let pinned = protect::pin(&check.run, &cwd);
        check.pin = pinned.map_err(|e| Failure::failed(format!("cannot pin check `{}`", check.name)).because(&e))?;
    }
    Ok(CompletedSpec { spec, warnings })
}

/// A check with a script in the folder but not in the commit would be broken without a visible
/// reason.
fn uncommitted_scripts(spec: &LoopSpec, dir: &Path, checkout: &Path) -> Vec<String> {
    let mut said = Vec::new();
    let metric = spec.research.iter().map(|research| &research.metric.check);
    for check in spec.checks.iter().chain(metric) {
        let here = protect::files_of_checks([check.run.as_str()], dir, Path::new(""));
        let there = protect::files_of_checks([check.run.as_str()], checkout, Path::new(""));
        for file in here.iter().filter(|f| !there.contains(f)) {
            said.push(format!(
                "check `{}` runs `{file}`, which is not committed, and checks run on commits: commit it, or use \
                 --include-dirty or --in-place",
                check.name
            ));
        }
    }
    said
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

/// Draws a short id.
pub fn draw() -> LoopId {
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
