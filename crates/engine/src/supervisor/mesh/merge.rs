//! The leader's checkout: running the checks on the branch, merging work beside it, and moving it.

use std::path::PathBuf;

use everloop_agents::job::ShimProgram;
use everloop_agents::workspace::{CommitMeta, Joining, Pushed, Remote, result_ref};
use everloop_core::mesh::node::{LandRequest, MergeRequest, Merged, MeshOutcome};
use everloop_core::mesh::research::{FirstValues, champion_ref};
use everloop_core::mesh::{Judged, MeshLoop};
use everloop_core::scoreboard::Scoreboard;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::LoopState;
use tokio::sync::watch;

use super::host::Host;
use super::node_clock::NodeClock;
use crate::state_folder::StateFolder;
use crate::supervisor::action_run::{ActionRun, full_text};

/// Where the leader merges and runs the checks; everything travels with it.
pub(super) struct Checkout {
    pub(super) home: StateFolder,
    shim: ShimProgram,
    dir: PathBuf,
    pub(super) state: MeshLoop,
    pace: NodeClock,
}

/// Runs the checks on the branch as it is.
pub(super) async fn judge(checkout: Checkout) -> MeshOutcome {
    let judged = checkout.judge_branch().await;
    MeshOutcome::Judged { id: checkout.state.id, judged }
}

/// Merges the work of a task beside the branch and runs all checks on the result.
pub(super) async fn merge(checkout: Checkout, request: Box<MergeRequest>) -> MeshOutcome {
    let merged = checkout.merge(&request).await.unwrap_or_else(Merged::Later);
    MeshOutcome::Merged { request, merged }
}

/// Moves the branch, if it is where it was.
pub(super) async fn land(checkout: Checkout, request: Box<LandRequest>) -> MeshOutcome {
    let landed = checkout.land(&request).await;
    MeshOutcome::Landed { id: checkout.state.id, landed }
}

impl Checkout {
    /// The leader's checkout for the loop `state`, in the state folder of this machine.
    pub fn of(host: &Host, state: MeshLoop) -> Self {
        let dir = host.home.mesh().join(state.id.as_str()).join("lead");
        Self { home: host.home.clone(), shim: host.shim.clone(), dir, state, pace: host.pace.clone() }
    }

    pub(super) async fn remote(&self) -> Result<Remote, String> {
        Remote::open(&self.dir, &self.state.spec.remote).await.map_err(|e| full_text(&e))
    }

    async fn judge_branch(&self) -> Result<(Judged, FirstValues), String> {
        if self.state.spec.wanted.research.is_some() {
            return self.first_values().await;
        }
        let remote = self.remote().await?;
        let branch = &self.state.spec.branch;
        let commit = remote.fetch(branch).await.map_err(|e| full_text(&e))?;
        let commit = commit.ok_or_else(|| format!("the remote has no `{branch}`"))?;
        let board = self.board_of(&remote, &commit, None).await?;
        Ok((Judged { commit, board }, FirstValues::default()))
    }

    async fn merge(&self, request: &MergeRequest) -> Result<Merged, String> {
        let remote = self.remote().await?;
        let (Some(reference), Some(work)) = (&request.report.reference, &request.report.commit) else {
            return Ok(Merged::Refused("there is no work".to_owned()));
        };
        if let Some(made) = &request.report.experiment {
            return self.weigh(request, made, (reference, work)).await;
        }
        let found = remote.fetch(reference).await.map_err(|e| full_text(&e))?;
        if found.as_ref() != Some(work) {
            return Ok(Merged::Refused(format!("`{reference}` is not at {work}, which was reported")));
        }
        let subject = format!("{}: {}", self.state.name, request.check);
        let branch = &self.state.spec.branch;
        let commit_meta = CommitMeta::new(&request.task, request.fence, &subject);
        let (target, commit) = match remote.join(branch, work, &commit_meta).await.map_err(|e| full_text(&e))? {
            Joining::Ready { target, commit } => (target, commit),
            Joining::Landed { commit } => return Ok(Merged::Landed { commit }),
            Joining::Contained => return Ok(Merged::Contained),
            Joining::Conflict { paths } => {
                return Ok(Merged::Refused(format!("it conflicts with the branch in {}", paths.join(", "))));
            }
        };
        let violations = remote.violations(&target, &commit, &self.state.spec.wanted.workspace).await;
        let violations = violations.map_err(|e| full_text(&e))?;
        if !violations.is_empty() {
            return Ok(Merged::Refused(format!("it changes protected files: {}", violations.join(", "))));
        }
        let known = self.state.judged.as_ref().filter(|judged| judged.commit == target);
        let before = match known {
            Some(judged) => judged.board.clone(),
            None => self.board_of(&remote, &target, None).await?,
        };
        let after = self.board_of(&remote, &commit, Some(&before)).await?;
        Ok(Merged::Ready { target, commit, before, after })
    }

    async fn land(&self, request: &LandRequest) -> Result<bool, String> {
        let remote = self.remote().await?;
        if self.pace.now() >= request.until {
            return Err("the leader lease is over".to_owned());
        }
        let research = self.state.spec.wanted.research.is_some();
        let branch = if research { champion_ref(&self.state.id) } else { self.state.spec.branch.clone() };
        let landed = remote.land(&branch, &request.target, &request.commit).await;
        Ok(landed.map_err(|e| full_text(&e))? == Pushed::Done)
    }

    /// The results of the checks on a commit.
    async fn board_of(&self, remote: &Remote, commit: &str, before: Option<&Scoreboard>) -> Result<Scoreboard, String> {
        self.action_run(remote, commit).await?.board_of(commit, before).await
    }

    /// Runs commands in the leader's checkout.
    pub(super) async fn action_run(&self, remote: &Remote, commit: &str) -> Result<ActionRun, String> {
        let target = result_ref(&self.state.id);
        remote.begin(&target, commit).await.map_err(|e| full_text(&e))?;
        let mut spec = self.state.spec.wanted.clone();
        let folder = remote.folder(&self.state.spec.below).map_err(|e| full_text(&e))?;
        spec.workspace.dir = folder.to_string_lossy().into_owned();
        spec.workspace.mode = WorkspaceMode::Git { target };
        spec.workspace.include_dirty = false;
        spec.workspace.origin = None;
        let now = self.pace.now();
        let state = LoopState::new(self.state.id.clone(), self.state.name.clone(), spec, now);
        Ok(ActionRun {
            outside: everloop_agents::environment::Outside::ours(),
            home: self.home.clone(),
            shim: self.shim.clone(),
            state,
            workspace: None,
            title: String::new(),
            phase_liveness: watch::channel(None).0,
            line: None,
            now,
            base: None,
        })
    }
}
