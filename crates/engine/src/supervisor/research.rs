//! Experiments of a research run: measures the baseline, inspects and measures a change, and keeps
//! the table of results.

use std::path::Path;

use everloop_agents::workspace::{Collected, CommitMeta, Replayed};
use everloop_core::action::Input;
use everloop_core::commit_message::WorkDone;
use everloop_core::event::Judgement;
use everloop_core::ids::TurnId;
use everloop_core::research::idea;
use everloop_core::research::judge::{Inspection, is_repeat};
use everloop_core::research::race::baseline_suffices;
use everloop_core::research::sample::{Contender, Measured, Sample};
use everloop_core::research::time_limit;
use everloop_core::scoreboard::Scoreboard;
use everloop_core::state::Phase;

use super::action_run::{ActionRun, full_text};
use super::judge::judgement;
use crate::research;

impl ActionRun {
    /// Measures the metric before the first experiment, as often as its spread needs.
    pub(super) async fn first_values(
        &mut self,
        board: &Scoreboard,
        commit: Option<&str>,
    ) -> Result<Vec<Sample>, String> {
        if let Some(guard) = board.failing().next() {
            return Err(format!("the guard `{}` does not pass before anything was changed", guard.name));
        }
        let cwd = self.verify_at(commit).await?;
        let (mut samples, mut values) = (Vec::new(), Vec::new());
        while !baseline_suffices(&values) {
            let sample = self.sample(&cwd).await?;
            match &sample.result {
                Measured::Value { value, .. } => values.push(*value),
                Measured::Crash { text, .. } => {
                    return Err(format!("the metric's command fails before anything was changed: {}", last_line(text)));
                }
                Measured::Timeout { .. } => {
                    return Err("the metric's command did not end in time before anything was changed".to_owned());
                }
                Measured::Unreadable { why } => return Err(format!("the metric cannot be read: {why}")),
            }
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Inspects the work of an experiment, runs the guards on it, and takes the first look at its
    /// metric.
    pub(super) async fn inspect(&mut self, found: Collected, base: Option<String>) -> Result<Judgement, String> {
        // After a restart the workspace alone knows it, and has compared it with the ledger.
        let base = base.or_else(|| found.base.clone());
        let base = self.examined_from(base.as_deref());
        self.look_first(found, base).await
    }

    /// The commit that the change of an experiment is compared with, for a turn that began from
    /// `base`; `None` in other loops. Turns that mend a crash add to the change of the experiment.
    pub(super) fn examined_from(&self, base: Option<&str>) -> Option<String> {
        self.state.spec.research.as_ref()?;
        let open = self.state.research.as_ref().and_then(|research| research.open.as_ref());
        open.map_or_else(|| base.map(str::to_owned), |open| open.base.clone())
    }

    async fn look_first(&mut self, mut found: Collected, base: Option<String>) -> Result<Judgement, String> {
        let Some(spec) = self.state.spec.research.clone() else { return Err("this is no research run".to_owned()) };
        let mut inspection = Inspection { description: self.description(&found), ..Inspection::default() };
        if let (Some(base), Some(commit)) = (base.as_deref(), &found.commit) {
            let workspace = self.workspace().await?;
            let changes = workspace.examine((base, commit), &spec.scope, &found.changes).await;
            let change = changes.map_err(|e| full_text(&e))?;
            (inspection.added, inspection.removed) = (change.added, change.removed);
            (inspection.scope, inspection.hash) = (change.scope, Some(change.hash));
            found.violations.extend(change.outside.into_iter().map(|path| format!("{path} (outside of the scope)")));
            let lines = change.added.saturating_add(change.removed);
            if lines > spec.max_lines {
                found.violations.push(format!("{lines} lines (at most {})", spec.max_lines));
            }
        }
        let known = self.state.research.as_ref().is_some_and(|research| is_repeat(research, inspection.hash));
        let mut board = self.state.progress.board.clone();
        if found.changed && found.violations.is_empty() && !known {
            let cwd = self.verify_at(found.commit.as_deref()).await?;
            board = if board.0.is_empty() { board } else { self.ask(cwd.clone(), Some(&board), true).await? };
            if board.failing().next().is_none() {
                inspection.sample = Some(self.sample(&cwd).await?);
            }
        }
        let judged = judgement(found, (None, None), board);
        Ok(Judgement { experiment: Some(Box::new(inspection)), ..judged })
    }

    /// Measures a commit as often as its spread needs, or up to the first look without a value.
    pub(super) async fn values_at(&mut self, commit: &str) -> Result<Vec<Sample>, String> {
        let cwd = self.verify_at(Some(commit)).await?;
        let (mut samples, mut values) = (Vec::new(), Vec::new());
        while !baseline_suffices(&values) {
            let sample = self.sample(&cwd).await?;
            let value = sample.value();
            samples.push(sample);
            match value {
                Some(value) => values.push(value),
                None => break,
            }
        }
        Ok(samples)
    }

    /// Measures a commit once.
    pub(super) async fn value_at(&mut self, commit: &str) -> Result<Sample, String> {
        let cwd = self.verify_at(Some(commit)).await?;
        self.sample(&cwd).await
    }

    /// Makes the change of an experiment again on a new champion, and judges it there.
    pub(super) async fn replay(&mut self, turn: &TurnId, commit: &str, onto: String) -> Input {
        let board = self.state.progress.board.clone();
        let failed = |why| Ok(Box::new(Judgement { error: Some(why), board, ..Judgement::default() }));
        let result = self.replay_on(turn, commit, &onto).await.unwrap_or_else(failed);
        Input::Replayed { turn: turn.clone(), onto, result }
    }

    async fn replay_on(
        &mut self,
        turn: &TurnId,
        commit: &str,
        onto: &str,
    ) -> Result<Result<Box<Judgement>, Vec<String>>, String> {
        let author = self.state.spec.workspace.author.clone();
        let (task, fence) = (turn.task(), turn.fence());
        let commit_meta = CommitMeta { task, fence, done: WorkDone::default(), goal: "", author: &author };
        let replayed = self.workspace().await?.replay(commit, onto, &commit_meta).await;
        Ok(match replayed.map_err(|e| full_text(&e))? {
            Replayed::Conflict(paths) => Err(paths),
            Replayed::Done(found) => {
                let judged = self.look_first(found, Some(onto.to_owned())).await?;
                Ok(Box::new(Judgement { target: Some(onto.to_owned()), ..judged }))
            }
        })
    }

    /// Measures candidate or champion again.
    pub(super) async fn measure(&mut self, turn: &TurnId, subject: Contender, commit: Option<String>) -> Input {
        let sample = match self.verify_at(commit.as_deref()).await {
            Ok(cwd) => self.sample(&cwd).await,
            Err(why) => Err(why),
        };
        let sample = sample.unwrap_or_else(|why| Sample { result: Measured::Unreadable { why }, millis: 0 });
        Input::Measured { turn: turn.clone(), subject, sample }
    }

    async fn sample(&self, cwd: &Path) -> Result<Sample, String> {
        let Some(spec) = &self.state.spec.research else { return Err("this is no research run".to_owned()) };
        let times = self.state.research.as_ref().map_or(&[][..], |research| &research.times);
        let limit = time_limit(times, spec.metric.check.timeout);
        let _turn = if spec.metric.exclusive { Some(research::one_at_a_time(&self.home).await?) } else { None };
        let checker = self.checker(self.check_isolation(cwd));
        checker.measure(&spec.metric, cwd, limit).await.map_err(|e| full_text(&e))
    }

    /// The change in one sentence: as the agent named it, its summary, or what it touched.
    fn description(&self, found: &Collected) -> String {
        let touched = || if found.diffstat.is_empty() { "no change".to_owned() } else { found.diffstat.clone() };
        self.idea().or_else(|| self.summary()).unwrap_or_else(touched)
    }

    /// The sentence with which the agent of an experiment named its change.
    pub(super) fn idea(&self) -> Option<String> {
        let Phase::Turn(turn) = &self.state.phase else { return None };
        let exit = turn.exit.as_ref().filter(|_| self.state.spec.research.is_some())?;
        idea::description(&exit.tail).or_else(|| idea::description(exit.last_words()))
    }
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").trim()
}
