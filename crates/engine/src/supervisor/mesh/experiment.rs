//! Experiments of the mesh: where one begins, what this machine knows of the champion, and the
//! leader's part: the baseline, and whether a reported keep may be the champion.

use std::cmp::Reverse;

use everloop_agents::workspace::{CommitMeta, Joining, Pushed, Remote};
use everloop_core::event::Judgement;
use everloop_core::ids::LoopId;
use everloop_core::mesh::node::{MergeRequest, Merged};
use everloop_core::mesh::research::{FirstValues, ReportedExperiment, champion_ref};
use everloop_core::mesh::work::mesh_loop_of;
use everloop_core::mesh::{Judged, MeshLoop};
use everloop_core::research::judge::{Experiment, ExperimentVerdict, Inspection};
use everloop_core::research::race::{mean, unbiased};
use everloop_core::research::row::{Row, Status};
use everloop_core::research::sample::{Contender, Sample};
use everloop_core::research::state::{ExperimentStep, ResearchState};
use everloop_core::scoreboard::Scoreboard;
use everloop_store::{Ledger, LoopRow, OpenMode, Sqlite};

use super::merge::Checkout;
use crate::record::read_state;
use crate::supervisor::action_run::{ActionRun, full_text};

/// Latest loops for experiments in which values of the champion are looked for.
const LOOKED_THROUGH: usize = 50;

/// Why a row is not as its node reported it.
const REPLAYED: &str = "replayed on the champion, which moved meanwhile";
const ON_LEADER: &str = "on the leader";

/// Takes over what this machine measured of the champion for an experiment before.
pub(super) fn calibrate(ledger: &Sqlite, owner: &LoopId, seed: &mut ResearchState) {
    let mut rows: Vec<LoopRow> = ledger.loops().unwrap_or_default();
    rows.retain(|row| mesh_loop_of(&row.id).as_ref() == Some(owner));
    rows.sort_by_key(|row| Reverse(row.updated_at));
    let known = rows.iter().take(LOOKED_THROUGH).filter_map(|row| read_state(row).ok()?.research);
    for known in known {
        if seed.calibrate_from(&known) {
            return;
        }
    }
}

/// The commit that an experiment begins from, which is fetched. A line whose commit is not there any
/// more is left.
pub(super) async fn base(remote: &Remote, state: &MeshLoop, seed: &mut ResearchState) -> Result<String, String> {
    let reference = champion_ref(&state.id);
    let fetched = remote.fetch(&reference).await.map_err(|e| full_text(&e))?;
    if fetched.is_none() {
        return Err(format!("the remote has no `{reference}`"));
    }
    if let Some(line) = &seed.line
        && remote.local(&line.commit).await.map_err(|e| full_text(&e))?.is_none()
    {
        seed.line = None;
    }
    let base = seed.base().cloned().ok_or("the run has no champion")?;
    // A leader may have moved the champion and not written that yet; then its base is there, too.
    match remote.local(&base).await.map_err(|e| full_text(&e))? {
        Some(base) => Ok(base),
        None => Err(format!("the remote does not have the champion {base}")),
    }
}

impl Checkout {
    /// Guards and metric before the first experiment. The champion's ref is made at that commit.
    pub(super) async fn first_values(&self) -> Result<(Judged, FirstValues), String> {
        let (remote, reference) = (self.remote().await?, champion_ref(&self.state.id));
        // The ref is there when a leader died before it wrote the baseline.
        let begun = remote.fetch(&reference).await.map_err(|e| full_text(&e))?;
        let branch = &self.state.spec.branch;
        let commit = if let Some(commit) = begun {
            commit
        } else {
            let commit = remote.fetch(branch).await.map_err(|e| full_text(&e))?;
            let commit = commit.ok_or_else(|| format!("the remote has no `{branch}`"))?;
            if remote.land(&reference, "", &commit).await.map_err(|e| full_text(&e))? == Pushed::Moved {
                return Err(format!("another leader made `{reference}`"));
            }
            commit
        };
        let mut action_run = self.action_run(&remote, &commit).await?;
        let board = action_run.board_of(&commit, None).await?;
        let broken = board.failing().next().is_some();
        let samples = if broken { Vec::new() } else { action_run.values_at(&commit).await? };
        Ok((Judged { commit, board }, FirstValues { samples }))
    }

    /// Whether a reported keep may be the champion: as it is if the champion is the one that it was
    /// compared with, otherwise replayed on the champion and measured here.
    pub(super) async fn weigh(
        &self,
        request: &MergeRequest,
        made: &ReportedExperiment,
        (reference, work): (&str, &str),
    ) -> Result<Merged, String> {
        let remote = self.remote().await?;
        let known = self.state.research.as_ref().and_then(|found| found.champion.commit.clone());
        let known = known.ok_or("the run has no champion")?;
        let over = |status: Status, why: String| Merged::Weighed {
            target: known.clone(),
            row: Box::new(Row { status, why, ..made.row.clone() }),
            board: Scoreboard::default(),
        };
        let found = remote.fetch(reference).await.map_err(|e| full_text(&e))?;
        if found.as_deref() != Some(work) || made.row.commit.as_deref() != Some(work) {
            return Ok(over(Status::Refused, format!("`{reference}` is not at {work}, which was reported")));
        }
        let branch = champion_ref(&self.state.id);
        let target = remote.fetch(&branch).await.map_err(|e| full_text(&e))?;
        let Some(target) = target else { return Err(format!("the remote has no `{branch}`")) };
        if target != known {
            // A leader moved it and died before it wrote that down. If that was for another task, the
            // document counts: the ref is moved from there, and that task is replayed.
            if target == work || remote.is_of(&target, &request.task).await.map_err(|e| full_text(&e))? {
                return Ok(Merged::Landed { commit: target });
            }
        }
        let subject = format!("{}: {}", self.state.name, made.row.description);
        let commit_meta = CommitMeta::new(&request.task, request.fence, &subject);
        let fresh = made.is_fresh(&self.state);
        let commit = if fresh {
            work.to_owned()
        } else {
            match remote.replay(&known, work, &commit_meta).await.map_err(|e| full_text(&e))? {
                Joining::Ready { commit, .. } => commit,
                Joining::Landed { .. } | Joining::Contained => {
                    return Ok(over(Status::Repeat, "the champion has this change already".to_owned()));
                }
                Joining::Conflict { paths } => {
                    let why = format!("the champion moved meanwhile, and it conflicts in {}", paths.join(", "));
                    return Ok(over(Status::Discard, why));
                }
            }
        };
        let violations = remote.violations(&known, &commit, &self.state.spec.wanted.workspace).await;
        let violations = violations.map_err(|e| full_text(&e))?;
        if !violations.is_empty() {
            return Ok(over(Status::Refused, format!("it changed {}", violations.join(", "))));
        }
        let mut action_run = self.action_run(&remote, &known).await?;
        let board = action_run.board_of(&commit, None).await?;
        let row = if fresh && board.failing().next().is_none() {
            made.row.clone()
        } else {
            self.race(&mut action_run, (&known, &commit), made, &board).await?
        };
        Ok(Merged::Weighed { target, row: Box::new(row), board })
    }

    /// Compares a replayed change with the champion, both measured on this machine.
    async fn race(
        &self,
        action_run: &mut ActionRun,
        (champion, commit): (&str, &str),
        made: &ReportedExperiment,
        board: &Scoreboard,
    ) -> Result<Row, String> {
        let Some((spec, found)) = self.state.experiments() else { return Err("the run has not begun".to_owned()) };
        let mut research = found.seed(0, spec);
        calibrate(&open(&self.home)?, &self.state.id, &mut research);
        let direction = spec.metric.direction;
        if research.is_uncalibrated() {
            let samples = action_run.values_at(champion).await?;
            if samples.iter().any(|sample| sample.value().is_none()) {
                return Err("the champion cannot be measured here".to_owned());
            }
            research.apply(&ExperimentStep::Calibrated { samples }, direction);
        }
        action_run.state.research = Some(Box::new(research.clone()));
        let workspace = action_run.workspace().await?;
        let change = workspace.examine((champion, commit), &spec.scope, &[]).await.map_err(|e| full_text(&e))?;
        let guarded = board.failing().next().is_none();
        let inspection = Inspection {
            description: made.row.description.clone(),
            hash: Some(change.hash),
            added: change.added,
            removed: change.removed,
            scope: change.scope,
            sample: if guarded { Some(action_run.value_at(commit).await?) } else { None },
        };
        let judged =
            Judgement { changed: true, commit: Some(commit.to_owned()), board: board.clone(), ..Judgement::default() };
        let mut again: Vec<(Contender, Sample)> = Vec::new();
        loop {
            let experiment =
                Experiment { spec, state: &research, found: &judged, inspection: &inspection, again: &again };
            let (status, why) = match experiment.weigh() {
                ExperimentVerdict::Measure(subject) => {
                    let at = if subject == Contender::Champion { champion } else { commit };
                    let sample = action_run.value_at(at).await?;
                    research.apply(&ExperimentStep::Measured { subject, sample: sample.clone() }, direction);
                    again.push((subject, sample));
                    continue;
                }
                ExperimentVerdict::Fix { kind, .. } => (Status::Crash, format!("it crashed ({})", kind.label())),
                ExperimentVerdict::Decide { status, why } => (status, why),
                // The leader compares with the champion of the moment.
                ExperimentVerdict::Replay => (Status::Discard, "another champion came first".to_owned()),
            };
            let about = if made.is_fresh(&self.state) { ON_LEADER } else { REPLAYED };
            return Ok(replayed(&experiment, (status, format!("{about}: {why}")), made));
        }
    }
}

/// The row of a change that was replayed.
fn replayed(experiment: &Experiment<'_>, (status, why): (Status, String), made: &ReportedExperiment) -> Row {
    let values = experiment.values();
    let crashed = matches!(status, Status::Crash | Status::Timeout | Status::MetricError);
    let known = !values.is_empty() && !crashed;
    let board = &experiment.found.board;
    Row {
        commit: experiment.found.commit.clone(),
        base: experiment.state.champion.commit.clone(),
        value: known.then(|| mean(unbiased(&values))),
        delta: experiment.delta().filter(|_| known),
        samples: values,
        guard: (!board.0.is_empty()).then(|| board.all_pass()),
        status,
        why,
        luck: if status == Status::Keep { experiment.luck() } else { 0.0 },
        hash: experiment.inspection.hash.filter(|_| !crashed),
        ..made.row.clone()
    }
}

fn open(home: &crate::state_folder::StateFolder) -> Result<Sqlite, String> {
    Sqlite::open(&home.database(), OpenMode::ReadOnly).map_err(|e| full_text(&e))
}
