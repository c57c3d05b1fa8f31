//! `everloop task list`: the board as a table.

use clap::ValueEnum;
use everloop_core::op::{TaskRow, TaskState};
use everloop_core::watch::KEEPALIVE;
use everloop_engine::error::{Code, Failure};
use everloop_store::{Ledger, StateName, TaskFilter, TaskOwner};
use serde_json::{Value, json};

use super::VerbSession;
use crate::ui::quantities::{coarse, relative};
use crate::ui::status::StatusStyle;
use crate::ui::table::Table;
use crate::ui::text::clean;

/// Lists tasks, newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  everloop task list\n  everloop task list --loop k3f9 --state done --state dead")]
pub struct TaskListArgs {
    /// Only tasks of this loop
    #[arg(long = "loop", value_name = "ID")]
    owner: Option<String>,
    /// Only tasks in this state; may be repeated [default: queued, leased and blocked]
    #[arg(long)]
    state: Vec<State>,
    /// Tasks in every state
    #[arg(long, conflicts_with = "state")]
    all: bool,
    /// Tasks that were given up: failed too often, or cancelled
    #[arg(long, conflicts_with_all = ["state", "all"])]
    dead: bool,
    /// Most tasks to list
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// Waiting to be taken
    Queued,
    /// Held under a lease
    Leased,
    /// Finished for good
    Done,
    /// Given up: failed too often, or cancelled
    Dead,
    /// Waiting for a person
    Blocked,
}

impl State {
    fn name(self) -> StateName {
        match self {
            State::Queued => StateName::Queued,
            State::Leased => StateName::Leased,
            State::Done => StateName::Done,
            State::Dead => StateName::Dead,
            State::Blocked => StateName::Blocked,
        }
    }
}

pub fn list(args: &TaskListArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let Some(ledger) = session.reader(&home)? else {
        session.ui.answer(&["no tasks".to_owned()], &json!({ "tasks": [] }))?;
        return Ok(Code::Ok);
    };
    let owner = session.named_loop(&ledger, args.owner.as_deref())?.map_or(TaskOwner::Any, TaskOwner::Loop);
    let states = match args.state.as_slice() {
        [] if args.all => Vec::new(),
        [] if args.dead => vec![StateName::Dead],
        [] => vec![StateName::Queued, StateName::Leased, StateName::Blocked],
        some => some.iter().map(|s| s.name()).collect(),
    };
    let rows = ledger.tasks(&TaskFilter { owner, states, limit: args.limit })?;
    let look = session.ui.look(session.now());
    let waits = rows.iter().map(|row| waits_for(row, &ledger)).collect::<Result<Vec<_>, _>>()?;
    session
        .ui
        .answer(&lines(&rows, &waits, &look), &json!({ "tasks": rows.iter().map(task_json).collect::<Vec<_>>() }))?;
    Ok(Code::Ok)
}

/// A task for programs: as it is stored, with what became of it.
pub(in crate::cli) fn task_json(row: &TaskRow) -> Value {
    let mut task = json!(row);
    task["status"] = json!(row.status());
    task
}

/// The tasks that have to be done before this one, as `k3f9-2 (no-op)`.
fn waits_for(row: &TaskRow, ledger: &impl Ledger) -> Result<Vec<String>, Failure> {
    let mut waits = Vec::new();
    for dep in row.task.deps.iter().filter(|_| row.state == TaskState::Queued) {
        match ledger.task(dep)? {
            Some(before) if before.unlocks() => {}
            Some(before) => waits.push(format!("{dep} ({})", before.status())),
            None => waits.push(format!("{dep} (gone)")),
        }
    }
    Ok(waits)
}

fn lines(rows: &[TaskRow], waits: &[Vec<String>], look: &StatusStyle) -> Vec<String> {
    if rows.is_empty() {
        return vec!["no tasks; add one: everloop task add TITLE".to_owned()];
    }
    let mut table = Table::new(&["ID", "LOOP", "STATE", "PRIO", "KIND", "AGE", "TITLE"]);
    for (row, waits) in rows.iter().zip(waits) {
        let waits = if waits.is_empty() { String::new() } else { format!(", waits for {}", waits.join(", ")) };
        table.row([
            clean(row.task.id.as_str()),
            row.task.owner.as_ref().map_or("-".to_owned(), ToString::to_string),
            state(row, look) + &clean(&waits),
            row.task.priority.to_string(),
            clean(&row.task.kind),
            coarse(look.now.since(row.created_at)),
            clean(&row.task.title),
        ]);
    }
    table.lines(look.width)
}

/// The state of a task, with its holder, time and failures.
pub(in crate::cli) fn state(row: &TaskRow, look: &StatusStyle) -> String {
    let failures = if row.failures == 0 { String::new() } else { format!(", failed {}×", row.failures) };
    match &row.state {
        TaskState::Queued if row.task.kind == KEEPALIVE => "watching".to_owned(),
        TaskState::Queued if row.task.ready_at > look.now => {
            format!("queued, ready {}{failures}", relative(row.task.ready_at, look.now))
        }
        TaskState::Queued => format!("queued{failures}"),
        TaskState::Leased { node, until } if *until <= look.now => {
            format!("lease of {} is over{failures}", clean(node.as_str()))
        }
        TaskState::Leased { node, .. } => format!("leased to {}{failures}", clean(node.as_str())),
        TaskState::Done => match row.status() {
            "done" => look.paint.good("done"),
            other => look.paint.warn(other),
        },
        TaskState::Dead => look.paint.bad(&format!("dead{failures}")),
        TaskState::Blocked => look.paint.warn("blocked"),
    }
}
