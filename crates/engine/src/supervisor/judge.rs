//! Runs the checks: before the first turn, and on a turn's work. Also moves the work onto the
//! target.

use std::path::{Path, PathBuf};

use everloop_agents::check::{Checker, Question};
use everloop_agents::workspace::{Collected, CommitMeta, Merged, Prospect, Side, Started};
use everloop_core::action::{Input, Integration};
use everloop_core::commit_message::{self, WorkDone};
use everloop_core::event::{Integrated, Judgement};
use everloop_core::ids::{TaskId, TurnId};
use everloop_core::isolation::{CommandKind, Isolation};
use everloop_core::research::state::ResearchState;
use everloop_core::scoreboard::Scoreboard;
use everloop_core::spec::{CheckSpec, WorkspaceMode};
use everloop_core::state::Phase;

use super::action_run::{ActionRun, full_text};
use super::places;
use crate::account;

impl ActionRun {
    /// Runs the checks on the loop's starting point.
    pub(super) async fn baseline(&mut self) -> Input {
        let result = self.take_baseline().await;
        let notes = match &result {
            Ok((board, _)) if self.state.progress.baseline.is_none() => self.missing_in_clone(board).await,
            _ => Vec::new(),
        };
        let found = self.state.research.as_deref();
        // One experiment of a shared run needs the champion's values on this machine.
        let champion = found.and_then(|found| found.champion.commit.clone());
        let unknown = found.is_none_or(ResearchState::is_uncalibrated);
        let samples = match (&result, self.state.spec.research.is_some() && unknown) {
            (Ok((board, work)), true) => match self.first_values(board, champion.or(work.clone()).as_deref()).await {
                Ok(samples) => samples,
                Err(why) => return Input::Baselined { result: Err(why), notes, samples: Vec::new() },
            },
            _ => Vec::new(),
        };
        Input::Baselined { result, notes, samples }
    }

    async fn take_baseline(&mut self) -> Result<(Scoreboard, Option<String>), String> {
        let work = match self.state.progress.work.clone() {
            Some(work) => Some(work),
            None => self.workspace().await?.first_base().await.map_err(|e| full_text(&e))?,
        };
        let cwd = self.verify_at(work.as_deref()).await?;
        let board = self.ask(cwd, None, true).await?;
        Ok((board, work))
    }

    /// Keeps the turn's work under a pin and runs the checks on it.
    pub(super) async fn judge(&mut self, turn: &TurnId) -> Input {
        let judgement = self.look_at(turn).await.unwrap_or_else(|why| Judgement {
            error: Some(why),
            board: self.state.progress.board.clone(),
            ..Judgement::default()
        });
        Input::Judged { turn: turn.clone(), judgement }
    }

    async fn look_at(&mut self, turn: &TurnId) -> Result<Judgement, String> {
        let (goal, author) = (self.state.spec.goal.clone(), self.state.spec.workspace.author.clone());
        let summary = self.idea().or_else(|| self.summary()).unwrap_or_default();
        let title = self.assigned();
        let checks: Vec<String> = self.state.progress.board.failing().map(|check| check.name.clone()).collect();
        let done = WorkDone { summary: &summary, title: &title, checks: &checks, ..WorkDone::default() };
        let commit_meta = CommitMeta { task: turn.task(), fence: turn.fence(), done, goal: &goal, author: &author };
        let (base, work) = (self.base_of(turn), self.state.next_base().cloned());
        let examined_from = self.examined_from(base.as_deref());
        let started = Started { base: base.as_deref(), work: work.as_deref(), examined_from: examined_from.as_deref() };
        let place = places::place().await;
        let mut found = self.workspace().await?.collect(&commit_meta, &started).await.map_err(|e| full_text(&e))?;
        drop(place);
        for note in &found.notes {
            tracing::info!(%turn, "{note}");
        }
        let in_place = self.state.spec.workspace.mode == WorkspaceMode::InPlace;
        let refused = |found: &Collected| !found.violations.is_empty() && !in_place;
        if self.state.spec.research.is_some() {
            return self.inspect(found, base).await;
        }
        if refused(&found) {
            // Work that may not count is not worth a run of the checks.
            return Ok(judgement(found, (None, None), self.state.progress.board.clone()));
        }
        let (commit, target) = match &found.commit {
            Some(commit) => {
                let prospect = self.workspace().await?.prospect(commit, &commit_meta).await;
                let Prospect { merged, target, violations } = prospect.map_err(|e| full_text(&e))?;
                found.violations = violations;
                (Some(on_target(merged, commit)?), target)
            }
            None => (None, None),
        };
        if refused(&found) {
            return Ok(judgement(found, (commit, target), self.state.progress.board.clone()));
        }
        let subject = commit.clone().or_else(|| self.state.progress.work.clone());
        let cwd = self.verify_at(subject.as_deref()).await?;
        let before = self.state.progress.board.clone();
        let board = self.ask(cwd.clone(), Some(&before), found.changed).await?;
        let board = self.confirm(&cwd, board).await?;
        Ok(judgement(found, (commit, target), board))
    }

    /// The commit that the turn started from, according to the ledger.
    fn base_of(&self, turn: &TurnId) -> Option<String> {
        match &self.state.phase {
            Phase::Turn(now) if now.id == *turn => now.exit.as_ref()?.base.clone(),
            _ => None,
        }
    }

    /// The commit of the target against which the work was inspected, according to the ledger.
    fn inspected(&self, turn: &TurnId) -> Option<String> {
        match &self.state.phase {
            Phase::Turn(now) if now.id == *turn => now.judgement.as_ref()?.target.clone(),
            _ => None,
        }
    }

    /// Runs the checks on a commit.
    pub(super) async fn board_of(&mut self, commit: &str, before: Option<&Scoreboard>) -> Result<Scoreboard, String> {
        let cwd = self.verify_at(Some(commit)).await?;
        self.ask(cwd, before, true).await
    }

    pub(super) async fn verify_at(&mut self, commit: Option<&str>) -> Result<PathBuf, String> {
        let cwd = self.workspace().await?.check_out_verify(commit).await.map_err(|e| full_text(&e))?;
        self.set_up(Side::Verify, cwd.clone()).await?;
        Ok(cwd)
    }

    /// Runs checks again whose pass would end the loop: one that passes by luck has to be lucky each
    /// time.
    async fn confirm(&self, cwd: &Path, mut board: Scoreboard) -> Result<Scoreboard, String> {
        let confirm = self.state.spec.guard.confirm;
        for _ in 1..confirm {
            let names = board.unconfirmed(self.state.progress.baseline.as_ref(), confirm);
            let checks = self.state.spec.checks.iter().filter(|check| names.contains(&check.name.as_str()));
            let checks: Vec<CheckSpec> = checks.cloned().collect();
            if checks.is_empty() {
                break;
            }
            let question = Question { checks: &checks, cwd, before: Some(&board), changed: false };
            let again = self.run_checks(question, self.check_isolation(cwd)).await?;
            board.confirm(again);
        }
        Ok(board)
    }

    pub(super) async fn ask(
        &self,
        cwd: PathBuf,
        before: Option<&Scoreboard>,
        changed: bool,
    ) -> Result<Scoreboard, String> {
        let question = Question { checks: &self.state.spec.checks, cwd: &cwd, before, changed };
        self.run_checks(question, self.check_isolation(&cwd)).await
    }

    /// What checks in this folder may reach.
    pub(super) fn check_isolation(&self, cwd: &Path) -> Isolation {
        self.command_at(cwd).other(&CommandKind::Check)
    }

    pub(super) async fn run_checks(&self, question: Question<'_>, isolation: Isolation) -> Result<Scoreboard, String> {
        self.checker(isolation).run(question).await.map_err(|e| full_text(&e))
    }

    /// Runs commands as checks run, in jobs of this loop.
    pub(super) fn checker(&self, isolation: Isolation) -> Checker {
        Checker {
            outside: self.outside.clone(),
            shim: self.shim.clone(),
            jobs: self.home.checks(&self.state.id),
            pass_env: self.state.spec.agent.pass_env.clone(),
            isolation: Some(isolation),
            hide: account::hidden(self.state.spec.agents(), &self.outside),
        }
    }

    /// Moves the work onto the target; whatever is in the way, the work is kept.
    pub(super) async fn integrate(&mut self, turn: &TurnId, task: &TaskId, commit: &str) -> Input {
        let result = match self.move_target(task, commit, self.inspected(turn)).await {
            Ok(result) => result,
            Err(why) => {
                let command = format!("git merge {commit}");
                Integration::Done(Integrated::Aside { commit: commit.to_owned(), why, command })
            }
        };
        Input::Integrated { turn: turn.clone(), result }
    }

    async fn move_target(
        &mut self,
        task: &TaskId,
        commit: &str,
        inspected: Option<String>,
    ) -> Result<Integration, String> {
        let workspace = self.workspace().await?;
        workspace.set_work(commit).await.map_err(|e| full_text(&e))?;
        workspace.integrate(task, commit, inspected.as_deref()).await.map_err(|e| full_text(&e))
    }

    /// The agent's own words about its turn, for the commit.
    pub(super) fn summary(&self) -> Option<String> {
        let Phase::Turn(turn) = &self.state.phase else { return None };
        commit_message::summary(turn.exit.as_ref()?.last_words())
    }

    /// The title of a task of the board; a task of the loop itself has none that says anything.
    fn assigned(&self) -> String {
        let own = self.title.starts_with("make these checks pass");
        if own { String::new() } else { self.title.clone() }
    }
}

/// The commit that would be on the target: the work itself, or merged with a target that has moved.
fn on_target(merged: Merged, work: &str) -> Result<String, String> {
    match merged {
        Merged::Ready { commit } | Merged::Joined { commit } => Ok(commit),
        Merged::Contained => Ok(work.to_owned()),
        Merged::Conflict { paths } => Err(format!("the work conflicts with the target branch in {}", paths.join(", "))),
    }
}

pub(super) fn judgement(
    found: Collected,
    (commit, target): (Option<String>, Option<String>),
    board: Scoreboard,
) -> Judgement {
    Judgement {
        target,
        changed: found.changed,
        commit: commit.or(found.commit),
        pin: found.pin,
        diffstat: found.diffstat,
        violations: found.violations,
        board,
        experiment: None,
        error: None,
    }
}
