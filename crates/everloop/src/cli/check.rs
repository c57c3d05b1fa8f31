//! `everloop check`: runs checks now, in the person's folder, and shows their results. Loops are
//! not affected.

use std::time::Duration;

use everloop_agents::environment::Outside;
use everloop_core::scoreboard::{Scoreboard, Verdict};
use everloop_engine::account;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::check::{self, CheckSet};
use everloop_engine::services::runtime::block_on;
use serde_json::{Value, json};

use super::{VerbSession, config as config_verb};
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

pub fn check(args: &CheckArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let sets = if args.checks.is_empty() {
        chosen(args.id.as_deref(), session)?
    } else {
        vec![check::of_commands(&args.checks, &session.dir)]
    };
    let Some(boards) = block_on(check::run_all(&sets, session, Duration::MAX))?? else { return Ok(Code::Interrupted) };
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

/// The checks of a loop that exists, or of one that is only in the file.
fn chosen(word: Option<&str>, session: &VerbSession) -> Result<Vec<CheckSet>, Failure> {
    let configured = || -> Result<Vec<CheckSet>, Failure> {
        let loops = config_verb::load(session)?.check(&config_verb::this_moment(session))?;
        let wanted = loops.into_iter().filter(|l| word.is_none_or(|w| w == l.name));
        Ok(wanted
            .map(|l| CheckSet {
                hide: account::hidden(std::iter::once(&l.agent).chain(&l.others), &Outside::ours()),
                name: l.name,
                dir: l.workspace.dir,
                checks: l.checks,
                pass_env: l.agent.pass_env,
                isolation: l.isolation,
            })
            .collect())
    };
    if let Some(set) = check::of_loop(session, word)? {
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

fn report(set: &CheckSet, board: &Scoreboard, session: &VerbSession) -> Vec<String> {
    let paint = session.ui.paint();
    let mut lines = vec![paint.strong(&format!("{}: {} (in {})", clean(&set.name), score(board), set.dir.display()))];
    lines.extend(scoreboard(board, None, paint));
    for row in board.failing() {
        let run = set.checks.iter().find(|c| c.name == row.name).map_or("", |c| c.run.as_str());
        lines.push(format!("--- {}: {} ---", clean(&row.name), clean(run)));
        if let Verdict::Broken { why } | Verdict::Suspicious { why } = &row.verdict {
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
