//! Runs checks now, in the person's folder. Loops are not affected.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::check::{Checker, Question};
use everloop_agents::environment::{Hidden, Outside};
use everloop_core::ids::LoopId;
use everloop_core::isolation::IsolationSpec;
use everloop_core::scoreboard::Scoreboard;
use everloop_core::spec::CheckSpec;
use everloop_core::test_evidence::Proof;
use everloop_store::Ledger;
use tokio::signal::unix::{SignalKind, signal};

use super::ServiceContext;
use super::runtime::own_shim;
use crate::account;
use crate::error::Failure;
use crate::isolation;
use crate::record::read_state;

/// As in everloop.toml: a check that takes longer hangs more often than it works.
const TIMEOUT: Duration = Duration::from_secs(600);
/// A name made from a command is cut here.
const NAME_MAX_CHARS: usize = 32;

/// Checks of one owner.
#[derive(Debug)]
pub struct CheckSet {
    pub name: String,
    pub dir: PathBuf,
    pub checks: Vec<CheckSpec>,
    /// Variables passed to them.
    pub pass_env: Vec<String>,
    /// What they may reach.
    pub isolation: IsolationSpec,
    /// Secrets to redact from their output.
    pub hide: Vec<Hidden>,
}

/// The checks of commands, named after them.
pub fn of_commands(commands: &[String], dir: &Path) -> CheckSet {
    let mut checks: Vec<CheckSpec> = Vec::new();
    for run in commands {
        let short: String = run.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(NAME_MAX_CHARS).collect();
        let same = checks.iter().filter(|c| c.name.starts_with(&short)).count();
        let name = if same == 0 { short } else { format!("{short} #{}", same + 1) };
        checks.push(CheckSpec {
            name,
            run: run.clone(),
            timeout: TIMEOUT,
            weight: 1,
            pin: String::new(),
            proof: Proof::default(),
            parallel: false,
        });
    }
    let isolation = IsolationSpec::default();
    CheckSet {
        name: "checks".to_owned(),
        dir: dir.to_owned(),
        checks,
        pass_env: Vec::new(),
        isolation,
        hide: Vec::new(),
    }
}

/// The checks of the loop that a word means; without a word those of the newest loop of this
/// folder.
pub fn of_loop(context: &ServiceContext, word: Option<&str>) -> Result<Option<CheckSet>, Failure> {
    let home = context.home()?;
    let Some(ledger) = context.reader(&home)? else { return Ok(None) };
    let state = if let Some(word) = word {
        context.find_loop(&ledger, Some(word)).ok().map(|(_, state)| state)
    } else {
        let states = ledger.loops()?.iter().map(read_state).collect::<Result<Vec<_>, _>>()?;
        let here = states.into_iter().filter(|s| context.dir.starts_with(&s.spec.workspace.dir));
        here.max_by_key(|s| (!s.is_over(), s.created_at))
    };
    Ok(state.map(|state| CheckSet {
        hide: account::hidden(state.spec.agents(), &Outside::ours()),
        name: state.name,
        dir: PathBuf::from(state.spec.workspace.dir),
        checks: state.spec.checks,
        pass_env: state.spec.agent.pass_env,
        isolation: state.spec.isolation,
    }))
}

/// The scoreboards in the order of `sets`; `None` when the user interrupted it, or when one set
/// took longer than `patience`.
pub async fn run_all(
    sets: &[CheckSet],
    context: &ServiceContext,
    patience: Duration,
) -> Result<Option<Vec<Scoreboard>>, Failure> {
    let home = context.home()?;
    let on = |kind| signal(kind).map_err(|e| Failure::failed("cannot install signal handlers").because(&e));
    let (mut int, mut term) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
    // A job folder of its own: a loop's folder belongs to its supervisor.
    let jobs = home.checks(&LoopId::new(format!("by-hand-{}", std::process::id())));
    let mut boards = Vec::new();
    let mut interrupted = false;
    for set in sets {
        let checker = Checker {
            outside: Outside::ours(),
            shim: own_shim()?,
            jobs: jobs.clone(),
            pass_env: set.pass_env.clone(),
            isolation: Some(isolation::of_check(&set.isolation, home.root(), &set.dir)),
            hide: set.hide.clone(),
        };
        let question = Question { checks: &set.checks, cwd: &set.dir, before: None, changed: true };
        let board = tokio::select! {
            board = checker.run(question) => Some(board),
            _ = int.recv() => None,
            _ = term.recv() => None,
            () = tokio::time::sleep(patience) => None,
        };
        // A check that still runs would have no owner after this process ends.
        checker.clear().await.map_err(|e| Failure::failed("cannot end the checks").because(&e))?;
        match board {
            Some(board) => boards.push(board.map_err(|e| Failure::failed("cannot run the checks").because(&e))?),
            None => interrupted = true,
        }
        if interrupted {
            break;
        }
    }
    match std::fs::remove_dir_all(&jobs) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ if interrupted => Ok(None),
        _ => Ok(Some(boards)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_commands_get_names_that_differ() {
        let set = of_commands(&["make   test".to_owned(), "make test".to_owned(), "x".repeat(100)], Path::new("/"));
        let names: Vec<&str> = set.checks.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["make test", "make test #2", &"x".repeat(NAME_MAX_CHARS)]);
        assert_eq!(set.checks[0].run, "make   test");
    }
}
