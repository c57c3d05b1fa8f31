//! Brings the results of a research run to the person: the champion with all commits of its line, as
//! one commit, or only chosen keeps. The branch moves as for `everloop take`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use everloop_agents::environment::Outside;
use everloop_agents::workspace::{Pick, PickRefusal, TakenWork, export, has_files_of, pick, squash};
use everloop_core::research::row::{Row, short};
use everloop_core::research::summary::change;
use everloop_core::scoreboard::Scoreboard;
use serde::Serialize;

use super::{RunAnswer, shared, show};
use crate::account;
use crate::error::Failure;
use crate::services::ServiceContext;
use crate::services::check::{self, CheckSet};
use crate::services::runtime::block_on;
use crate::services::take::{ChosenWork, TakeAnswer, bring_work, target};

/// Which commits of a run are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApplyShape {
    /// The champion with all commits of its line.
    #[default]
    Line,
    /// One commit with the files of the champion.
    Squash,
    /// These keeps and members of the frontier alone, one commit for each.
    Only(Vec<u32>),
}

/// Apply a run.
#[derive(Clone, Debug, Default)]
pub struct ApplyRequest {
    /// Its id or name; without one the run of the caller's folder.
    pub word: Option<String>,
    /// A new branch that is to hold the result.
    pub branch: Option<String>,
    pub shape: ApplyShape,
}

/// Where the result is now.
#[derive(Clone, Debug, Serialize)]
pub struct ApplyAnswer {
    #[serde(flatten)]
    pub work: TakeAnswer,
    /// The experiments that are in it.
    pub experiments: Vec<u32>,
    /// Checks that ran on it; none where it has the champion's files, which passed before.
    pub checks: usize,
}

/// Brings the results of a run to the person. What is in the way stays as it is, and is named with
/// what to do about it.
pub fn apply(context: &ServiceContext, request: &ApplyRequest) -> Result<ApplyAnswer, Failure> {
    context.for_a_person("apply a research run")?;
    let run = show(context, request.word.as_deref())?;
    let (_, found) = run.parts()?;
    if found.champion.number == 0 && !matches!(request.shape, ApplyShape::Only(_)) {
        return Err(Failure::usage(format!("run `{}` has kept no experiment, so there is nothing to apply", run.id))
            .hint(format!("everloop research show {}", run.id)));
    }
    let Some(champion) = found.champion.commit.clone() else {
        return Err(Failure::usage(format!("the champion of run `{}` is in no commit", run.id)));
    };
    shared::fetch_champion(&run, &champion)?;
    let target = target(&run.state)?.to_owned();
    let applied = match &request.shape {
        ApplyShape::Line => Applied { commit: champion.clone(), experiments: line(&run), checks: 0, whole: true },
        ApplyShape::Squash => squashed(&run, &champion)?,
        ApplyShape::Only(numbers) => only(context, &run, numbers)?,
    };
    let dir = Path::new(&run.state.spec.workspace.dir);
    let there = block_on(has_files_of(dir, &target, &applied.commit))?.map_err(|e| unreadable(&run, &e))?;
    let work = if there && request.branch.is_none() {
        let place = target.strip_prefix("refs/heads/").unwrap_or(&target).to_owned();
        TakeAnswer { id: run.id.clone(), commit: applied.commit.clone(), taken: TakenWork::Contained { place } }
    } else {
        // The ledger of this machine has no loop for a run of the mesh.
        let holds = (applied.whole && run.remote.is_none()).then_some(champion.as_str());
        let work = ChosenWork { commit: &applied.commit, holds, verb: "research apply" };
        bring_work(context, &run.state, &work, request.branch.as_deref())?
    };
    Ok(ApplyAnswer { work, experiments: applied.experiments, checks: applied.checks })
}

/// A commit that is to be applied.
struct Applied {
    commit: String,
    experiments: Vec<u32>,
    checks: usize,
    /// It has all work of the champion.
    whole: bool,
}

fn unreadable(run: &RunAnswer, error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::failed(format!("cannot read the commits of run `{}`", run.id)).because(error)
}

/// The keeps that the champion is made of: each began from the one before.
fn line(run: &RunAnswer) -> Vec<u32> {
    let mut numbers = Vec::new();
    let champion = run.state.research.as_ref().map_or(0, |found| found.champion.number);
    let mut next = run.rows.iter().find(|row| row.number == champion);
    while let Some(row) = next.filter(|row| row.number > 0) {
        numbers.push(row.number);
        next = run
            .rows
            .iter()
            .find(|other| other.number < row.number && other.commit.is_some() && other.commit == row.base);
    }
    numbers.reverse();
    numbers
}

/// The commit that the run began from.
fn start(run: &RunAnswer) -> Result<String, Failure> {
    let first = run.rows.first().and_then(|row| row.commit.clone());
    first.ok_or_else(|| Failure::failed(format!("the start of run `{}` is in no commit", run.id)))
}

fn squashed(run: &RunAnswer, champion: &str) -> Result<Applied, Failure> {
    let (spec, found) = run.parts()?;
    let experiments = line(run);
    let (from, to) = (found.baseline, found.champion.value());
    let better = change(to, from, spec.metric.direction);
    let mut message = format!("{}\n\nMetric {} -> {} ({better}).\n", run.goal.trim(), short(from), short(to));
    for row in run.rows.iter().filter(|row| experiments.contains(&row.number)) {
        write!(message, "\n- {}: {}", row.number, row.description).expect("writing to a string cannot fail");
    }
    let dir = Path::new(&run.state.spec.workspace.dir);
    let made = block_on(squash(dir, &start(run)?, champion, &message))?;
    Ok(Applied { commit: made.map_err(|e| unreadable(run, &e))?, experiments, checks: 0, whole: true })
}

fn only(context: &ServiceContext, run: &RunAnswer, numbers: &[u32]) -> Result<Applied, Failure> {
    let mut experiments = numbers.to_vec();
    experiments.sort_unstable();
    experiments.dedup();
    let rows: Vec<&Row> = experiments.iter().map(|number| kept(run, *number)).collect::<Result<_, _>>()?;
    let picks: Option<Vec<Pick>> =
        rows.iter().map(|row| Some(Pick { base: row.base.clone()?, commit: row.commit.clone()? })).collect();
    let picks = picks.ok_or_else(|| Failure::failed(format!("a keep of run `{}` is in no commit", run.id)))?;
    let dir = Path::new(&run.state.spec.workspace.dir);
    let made = block_on(pick(dir, &start(run)?, &picks))?.map_err(|e| unreadable(run, &e))?;
    let commit = made.map_err(|refusal| not_picked(run, &rows, refusal))?;
    let checks = checked(context, run, &commit)?;
    Ok(Applied { commit, experiments, checks, whole: false })
}

fn kept(run: &RunAnswer, number: u32) -> Result<&Row, Failure> {
    let row = run.row(number)?;
    if row.status.succeeds() {
        return Ok(row);
    }
    let keeps: Vec<String> =
        run.rows.iter().filter(|row| row.status.succeeds()).map(|row| row.number.to_string()).collect();
    Err(Failure::usage(format!("experiment {number} of run `{}` was not kept ({})", run.id, row.status.label()))
        .hint(format!("choose among the keeps: {}; its change: everloop research diff {number}", keeps.join(", "))))
}

fn not_picked(run: &RunAnswer, rows: &[&Row], refusal: PickRefusal) -> Failure {
    let PickRefusal::Conflict { at, paths } = refusal else {
        return Failure::failed("git 2.40 or newer is needed to apply chosen keeps")
            .hint("apply the whole champion: everloop research apply --squash");
    };
    let row = rows[at];
    let earlier = line(run).into_iter().filter(|number| *number < row.number);
    let mut with: Vec<u32> = earlier.chain(rows.iter().map(|row| row.number)).collect();
    with.sort_unstable();
    with.dedup();
    let with: Vec<String> = with.iter().map(u32::to_string).collect();
    let files = paths.join(", ");
    Failure::failed(format!("experiment {} builds on a change that is left out: both are in {files}", row.number))
        .hint(format!("take those before it, too: everloop research apply {} --only {}", run.id, with.join(",")))
}

/// Runs the guards on a commit that no experiment had; refuses one on which they do not pass.
fn checked(context: &ServiceContext, run: &RunAnswer, commit: &str) -> Result<usize, Failure> {
    let checks = run.state.spec.checks.len();
    if checks == 0 {
        return Ok(0);
    }
    let home = context.home()?;
    let folder = crate::research::folder(&home, &run.id).join(format!("apply-{}", std::process::id()));
    home.make(&folder)?;
    let board = checked_in(context, run, commit, &folder);
    std::fs::remove_dir_all(&folder)?;
    let board = board?;
    let broken: Vec<&str> = board.failing().map(|row| row.name.as_str()).collect();
    if broken.is_empty() {
        return Ok(checks);
    }
    Err(Failure::failed(format!("these experiments alone do not pass: {}", broken.join(", ")))
        .hint(format!("choose others, or apply the whole champion: everloop research apply {}", run.id)))
}

fn checked_in(context: &ServiceContext, run: &RunAnswer, commit: &str, folder: &Path) -> Result<Scoreboard, Failure> {
    let (spec, tree) = (&run.state.spec, folder.join("tree"));
    std::fs::create_dir(&tree)?;
    let dir = Path::new(&spec.workspace.dir);
    block_on(export(dir, commit, &tree, &folder.join("index")))?.map_err(|e| unreadable(run, &e))?;
    let set = CheckSet {
        name: run.name.clone(),
        dir: tree,
        checks: spec.checks.clone(),
        pass_env: spec.agent.pass_env.clone(),
        isolation: spec.isolation.clone(),
        hide: account::hidden(spec.agents(), &Outside::ours()),
    };
    let boards = block_on(check::run_all(std::slice::from_ref(&set), context, Duration::MAX))??;
    let board = boards.into_iter().flatten().next();
    board.ok_or_else(|| Failure::failed("the checks were interrupted, so nothing was applied"))
}
