//! A task in full, with its late results.

use everloop_core::op::{TaskRow, Trust};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::show::TaskShown;
use serde_json::json;

use crate::cli::VerbSession;
use crate::cli::task;
use crate::ui::events::amounts_to;
use crate::ui::quantities::moment;
use crate::ui::text::{clean, clean_lines};

/// Lines shown of a prompt or a result; `--json` has all.
const TEXT_LINES: usize = 40;

pub fn show(found: &TaskShown, session: &VerbSession) -> Result<Code, Failure> {
    let TaskShown { row, late_results, deps, turn } = found;
    let look = session.ui.look(session.now());
    let at = |time| moment(time, look.now, &look.zone);
    let task = &row.task;
    let mut lines = vec![
        format!("Task      {}", clean(task.id.as_str())),
        format!("Title     {}", clean(&task.title)),
        format!("State     {} (fence {})", task::state(row, &look), row.fence),
        format!("Loop      {}", task.owner.as_ref().map_or("none", |id| id.as_str())),
        format!("Kind      {}, priority {}", clean(&task.kind), task.priority),
        format!("Author    {}{}", clean(&task.author), if task.trust == Trust::Agent { " (an agent)" } else { "" }),
        format!("Made      {}, changed {}", at(row.created_at), at(row.updated_at)),
    ];
    for (dep, known) in deps {
        let state = known.as_ref().map_or("gone", TaskRow::status);
        lines.push(format!("After     {} ({state})", clean(dep.as_str())));
    }
    lines.extend(block("Prompt", &task.prompt));
    let result = row.result.as_deref().unwrap_or("");
    // The result of a loop's own task is its turn's outcome.
    let outcome = row.outcome().map(|outcome| amounts_to(&outcome));
    lines.extend(block("Result", outcome.as_deref().unwrap_or(result)));
    for late in late_results {
        let head = format!("Late      result under fence {} at {}, does not count:", late.fence, at(late.at));
        lines.push(head);
        lines.extend(clean_lines(&late.result, TEXT_LINES).into_iter().map(|line| format!("          {line}")));
    }
    lines.extend(turn.as_ref().map(|turn| format!("Turn      everloop show {turn}")));
    session.ui.answer(&lines, &json!({ "task": task::task_json(row), "shelf": late_results }))?;
    Ok(Code::Ok)
}

fn block(head: &str, text: &str) -> Vec<String> {
    let mut lines = clean_lines(text.trim_end(), TEXT_LINES).into_iter();
    let first = lines.next().map(|line| format!("{head:<10}{line}"));
    first.into_iter().chain(lines.map(|line| format!("          {line}"))).collect()
}
