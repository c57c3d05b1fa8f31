//! `everloop check`: runs checks now, in the person's folder, and shows their results. Loops are
//! not affected.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::check::{Checker, Question};
use everloop_agents::environment::Hidden;
use everloop_core::ids::LoopId;
use everloop_core::isolation::IsolationSpec;
use everloop_core::scoreboard::{Scoreboard, Verdict};
use everloop_core::spec::CheckSpec;
use everloop_engine::account;
use everloop_engine::error::{Code, Failure};
use everloop_engine::isolation;
use everloop_engine::record::read_state;
use everloop_store::Ledger;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{VerbSession, config as config_verb, up};
use crate::config;
use crate::ui::board::scoreboard;
use crate::ui::quantities::score;
use crate::ui::text::{clean, clean_lines};

const HELP: &str = "Examples:
  everloop check
  everloop check k3f9
  everloop check --check 'cargo test' --check 'cargo clippy -- -D warnings'

Exits with 0 when all pass, with 3 otherwise.";

/// Lines shown of a failing check's output; `--json` has all that was kept.
const OUTPUT_LINES: usize = 40;
/// As in everloop.toml: a check that takes longer hangs more often than it works.
const TIMEOUT: Duration = Duration::from_secs(600);
/// A name made from a command is cut here.
const NAME_MAX_CHARS: usize = 32;

/// Runs checks in your folder as it is, uncommitted changes included: of a loop, of everloop.toml,
/// or the given ones.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct CheckArgs {
    /// Loop id or name, also of a loop that is only in everloop.toml [default: what is in this
    /// folder]
    id: Option<String>,
    /// Run this command instead; repeat for several
    #[arg(long = "check", short = 'c', value_name = "CMD", conflicts_with = "id")]
    checks: Vec<String>,
}

/// Checks of one owner.
pub struct Set {
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

pub fn check(args: &CheckArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let sets = if args.checks.is_empty() {
        chosen(args.id.as_deref(), session)?
    } else {
        vec![given(&args.checks, &session.dir)]
    };
    let Some(boards) = up::block_on(run_all(&sets, session, Duration::MAX))?? else { return Ok(Code::Interrupted) };
    let mut lines = Vec::new();
    for (set, board) in sets.iter().zip(&boards) {
        lines.extend(report(set, board, session));
    }
    let passed = boards.iter().all(Scoreboard::all_pass);
    let content: Vec<Value> = sets
        .iter()
        .zip(&boards)
        .map(|(set, board)| json!({ "name": set.name, "dir": set.dir, "checks": board }))
        .collect();
    session.ui.answer(&lines, &json!({ "passed": passed, "loops": content }))?;
    Ok(if passed { Code::Ok } else { Code::NotReached })
}

fn given(commands: &[String], dir: &Path) -> Set {
    let mut checks: Vec<CheckSpec> = Vec::new();
    for run in commands {
        let short: String = run.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(NAME_MAX_CHARS).collect();
        let same = checks.iter().filter(|c| c.name.starts_with(&short)).count();
        let name = if same == 0 { short } else { format!("{short} #{}", same + 1) };
        checks.push(CheckSpec { name, run: run.clone(), timeout: TIMEOUT, weight: 1, pin: String::new() });
    }
    let isolation = IsolationSpec::default();
    Set { name: "checks".to_owned(), dir: dir.to_owned(), checks, pass_env: Vec::new(), isolation, hide: Vec::new() }
}

/// The checks of a loop that exists, or of one that is only in the file.
fn chosen(word: Option<&str>, session: &VerbSession) -> Result<Vec<Set>, Failure> {
    let configured = || -> Result<Vec<Set>, Failure> {
        let loops = config_verb::load(session)?.check(&config_verb::this_moment(session))?;
        let wanted = loops.into_iter().filter(|l| word.is_none_or(|w| w == l.name));
        Ok(wanted
            .map(|l| Set {
                hide: account::hidden(std::iter::once(&l.agent).chain(&l.others)),
                name: l.name,
                dir: l.workspace.dir,
                checks: l.checks,
                pass_env: l.agent.pass_env,
                isolation: l.isolation,
            })
            .collect())
    };
    if let Some(set) = existing(word, session)? {
        return Ok(vec![set]);
    }
    let sets = if config::find(&session.dir).is_some() { configured()? } else { Vec::new() };
    match (sets.is_empty(), word) {
        (false, _) => Ok(sets),
        (true, Some(word)) => {
            Err(Failure::usage(format!("no loop `{word}`, neither started nor in everloop.toml here"))
                .hint("`everloop status` shows the loops; --check 'CMD' runs a command without any"))
        }
        (true, None) => Err(Failure::usage("there is nothing to check here").hint("everloop check --check 'CMD'")),
    }
}

fn existing(word: Option<&str>, session: &VerbSession) -> Result<Option<Set>, Failure> {
    let home = session.home()?;
    let Some(ledger) = session.reader(&home)? else { return Ok(None) };
    let state = if let Some(word) = word {
        session.find_loop(&ledger, Some(word)).ok().map(|(_, state)| state)
    } else {
        let states = ledger.loops()?.iter().map(read_state).collect::<Result<Vec<_>, _>>()?;
        let here = states.into_iter().filter(|s| session.dir.starts_with(&s.spec.workspace.dir));
        here.max_by_key(|s| (!s.is_over(), s.created_at))
    };
    Ok(state.map(|state| Set {
        hide: account::hidden(state.spec.agents()),
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
    sets: &[Set],
    session: &VerbSession,
    patience: Duration,
) -> Result<Option<Vec<Scoreboard>>, Failure> {
    let home = session.home()?;
    let on = |kind| signal(kind).map_err(|e| Failure::failed("cannot install signal handlers").because(&e));
    let (mut int, mut term) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
    // A job folder of its own: a loop's folder belongs to its supervisor.
    let jobs = home.checks(&LoopId::new(format!("by-hand-{}", std::process::id())));
    let mut boards = Vec::new();
    let mut interrupted = false;
    for set in sets {
        let checker = Checker {
            shim: up::own_shim()?,
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

fn report(set: &Set, board: &Scoreboard, session: &VerbSession) -> Vec<String> {
    let paint = session.ui.paint();
    let mut lines = vec![paint.strong(&format!("{}: {} (in {})", clean(&set.name), score(board), set.dir.display()))];
    lines.extend(scoreboard(board, None, paint));
    for row in board.failing() {
        let run = set.checks.iter().find(|c| c.name == row.name).map_or("", |c| c.run.as_str());
        lines.push(format!("--- {}: {} ---", clean(&row.name), clean(run)));
        if let Verdict::Broken { why } = &row.verdict {
            lines.push(clean(why));
        }
        let output = row.output.trim_end();
        let skipped = output.lines().count().saturating_sub(OUTPUT_LINES);
        if skipped > 0 {
            lines.push(format!("… {skipped} lines before these"));
        }
        let end: Vec<&str> = output.lines().skip(skipped).collect();
        lines.extend(clean_lines(&end.join("\n"), OUTPUT_LINES));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_commands_get_names_that_differ() {
        let set = given(&["make   test".to_owned(), "make test".to_owned(), "x".repeat(100)], Path::new("/"));
        let names: Vec<&str> = set.checks.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["make test", "make test #2", &"x".repeat(NAME_MAX_CHARS)]);
        assert_eq!(set.checks[0].run, "make   test");
    }
}
