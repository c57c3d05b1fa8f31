//! After the first baseline: checks that fail on the commit and pass in the person's folder, because
//! something that git ignores is missing in a clone.
//!
//! What is committed may be an agent's work of before, so these checks read the folder and write
//! nothing in it. A check that has to write there fails, and the hint about it is missing. Where that
//! cannot be enforced, none is run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::check::Question;
use everloop_agents::workspace::{self, ProjectFolder};
use everloop_core::isolation::IsolationMode;
use everloop_core::scoreboard::Scoreboard;
use everloop_core::spec::{CheckSpec, WorkspaceMode};

use super::action_run::{ActionRun, full_text};

/// A check that takes longer in the folder is not waited for: its result is a hint only.
const FOLDER_CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// Folders that tools make, each with the command that makes it.
const MADE_BY: [(&str, &str); 6] = [
    ("node_modules", "npm ci"),
    (".venv", "python -m venv .venv && .venv/bin/pip install -r requirements.txt"),
    ("venv", "python -m venv venv && venv/bin/pip install -r requirements.txt"),
    ("vendor", "composer install"),
    ("target", "cargo build"),
    ("build", "make"),
];

impl ActionRun {
    /// Sentences about checks that pass in the folder only. A folder that cannot be looked at gives
    /// none.
    pub(super) async fn missing_in_clone(&self, board: &Scoreboard) -> Vec<String> {
        match self.compare_with_folder(board).await {
            Ok(notes) => notes,
            Err(why) => {
                tracing::debug!(why, "cannot compare with the folder");
                Vec::new()
            }
        }
    }

    async fn compare_with_folder(&self, board: &Scoreboard) -> Result<Vec<String>, String> {
        let spec = &self.state.spec;
        let failing: Vec<CheckSpec> = spec
            .checks
            .iter()
            .filter(|check| board.failing().any(|row| row.name == check.name))
            .map(|check| CheckSpec { timeout: check.timeout.min(FOLDER_CHECK_TIMEOUT), ..check.clone() })
            .collect();
        let in_place = spec.workspace.mode == WorkspaceMode::InPlace;
        if failing.is_empty() || in_place || spec.workspace.setup.is_some() {
            return Ok(Vec::new());
        }
        let dir = Path::new(&spec.workspace.dir);
        let ProjectFolder::Git(place) = workspace::discover(dir).await.map_err(|e| full_text(&e))? else {
            return Ok(Vec::new());
        };
        let ignored = workspace::survey(&place).await.map_err(|e| full_text(&e))?.ignored;
        let folders: Vec<PathBuf> = ignored.into_iter().filter(|path| place.root.join(path).is_dir()).collect();
        if folders.is_empty() {
            return Ok(Vec::new());
        }
        let mut isolation = self.check_isolation(dir);
        isolation.writable.retain(|path| !path.starts_with(&place.root) && !place.root.starts_with(path));
        if !matches!(isolation.mode, IsolationMode::Landlock | IsolationMode::Bubblewrap) {
            return Ok(Vec::new());
        }
        let question = Question { checks: &failing, cwd: dir, before: None, changed: true };
        let there = self.run_checks(question, isolation).await?;
        Ok(there.passing().into_iter().map(|check| sentence(check, &folders)).collect())
    }
}

/// What is missing, and what makes it.
fn sentence(check: &str, folders: &[PathBuf]) -> String {
    let name = |path: &PathBuf| path.display().to_string().trim_end_matches('/').to_owned();
    let base = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let known =
        folders.iter().find_map(|path| MADE_BY.iter().find(|(made, _)| base(path) == *made).map(|m| (path, m.1)));
    let (missing, setup) = match known {
        Some((path, command)) => (name(path), command),
        None => (folders.iter().map(name).collect::<Vec<_>>().join(", "), "CMD"),
    };
    format!(
        "check `{check}` passes in your folder and fails on the commit: `{missing}` is ignored by git and missing in the \
         clones; --setup '{setup}' makes it there"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_folder_comes_with_its_command() {
        let said = sentence("npm test", &[PathBuf::from("dist/"), PathBuf::from("web/node_modules/")]);
        assert!(said.contains("`web/node_modules` is ignored") && said.contains("--setup 'npm ci'"), "{said}");
        let said = sentence("t", &[PathBuf::from("data/"), PathBuf::from("x/")]);
        assert!(said.contains("`data, x` is ignored") && said.contains("--setup 'CMD'"), "{said}");
    }
}
