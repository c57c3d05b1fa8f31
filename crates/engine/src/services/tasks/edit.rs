//! A person's edit of a task's text, priority and dependencies.

use std::collections::BTreeSet;

use everloop_core::ids::TaskId;
use everloop_core::op::{Refusal, TaskRow, Trust};
use everloop_store::{Error, Ledger, Sqlite, TaskEdit};
use serde::Serialize;

use super::add::{prompt_of, title_of};
use super::{MAX_CONFLICT_RETRIES, no_task, note};
use crate::board;
use crate::error::Failure;
use crate::record::record;
use crate::services::ServiceContext;

/// Edit a task; what is `None` stays as it is.
#[derive(Clone, Debug)]
pub struct EditTask {
    pub task: TaskId,
    pub title: Option<String>,
    pub prompt: Option<String>,
    pub priority: Option<i32>,
    pub after: Option<Vec<String>>,
}

/// What an edit changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskEdited {
    pub task: TaskId,
    /// `title`, `prompt`, `priority`, `after`.
    pub changed: Vec<&'static str>,
}

/// The task as it is, for an editor.
pub fn editable(context: &ServiceContext, id: &TaskId) -> Result<TaskRow, Failure> {
    let home = context.home()?;
    let ledger = context.reader(&home)?;
    let row = ledger.map(|ledger| ledger.task(id)).transpose()?.flatten().ok_or_else(|| no_task(id))?;
    check_rights(context, &row)?;
    Ok(row)
}

/// Edits a task. Its next turn has the new text; a task that is held takes a new priority only.
pub fn edit(context: &ServiceContext, request: EditTask) -> Result<TaskEdited, Failure> {
    let row = editable(context, &request.task)?;
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let (edit, changed) = checked(&ledger, &row, request)?;
    if changed.is_empty() {
        return Ok(TaskEdited { task: edit.task, changed });
    }
    let mut text = format!("task {} was edited by {}: {}", edit.task, context.caller.name(), changed.join(", "));
    if let Some(title) = &edit.title {
        text = format!("{text}; it is now: {title}");
    }
    write(&mut ledger, context, &row, &edit, &text).map_err(refused)?;
    home.wake();
    Ok(TaskEdited { task: edit.task, changed })
}

fn check_rights(context: &ServiceContext, row: &TaskRow) -> Result<(), Failure> {
    let id = &row.task.id;
    if board::OWN_KINDS.contains(&row.task.kind.as_str()) {
        return Err(Failure::usage(format!("task `{id}` is everloop's own"))
            .hint("`everloop steer` adds an instruction to a loop's next turn"));
    }
    // An agent may change what it put on the board itself, but no text that is a person's instruction,
    // whatever name that has as its author.
    let is_own = row.task.author == context.caller.name();
    if is_own && (context.caller.is_person() || row.task.trust == Trust::Agent) {
        return Ok(());
    }
    context.for_a_person(&format!("edit a task of {}", row.task.author))
}

/// The edit without what is the same already, and what it changes.
fn checked(ledger: &Sqlite, row: &TaskRow, request: EditTask) -> Result<(TaskEdit, Vec<&'static str>), Failure> {
    let task = &row.task;
    let title = request.title.map(|title| title_of(&title)).transpose()?.filter(|title| *title != task.title);
    let prompt = request.prompt.map(|prompt| prompt_of(&prompt)).transpose()?.filter(|prompt| *prompt != task.prompt);
    let priority = request.priority.filter(|priority| *priority != task.priority);
    let deps = request.after.map(|after| after.into_iter().map(TaskId::new).collect::<Vec<_>>());
    let deps = deps.filter(|deps| *deps != task.deps);
    check_dependencies(ledger, &task.id, deps.as_deref().unwrap_or_default())?;
    let parts = [
        ("title", title.is_some()),
        ("prompt", prompt.is_some()),
        ("priority", priority.is_some()),
        ("after", deps.is_some()),
    ];
    let changed = parts.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name).collect();
    Ok((TaskEdit { task: task.id.clone(), title, prompt, priority, deps }, changed))
}

/// Refuses dependencies that are not there, or that wait for the task themselves.
fn check_dependencies(ledger: &Sqlite, id: &TaskId, deps: &[TaskId]) -> Result<(), Failure> {
    let (mut open, mut seen) = (deps.to_vec(), BTreeSet::new());
    while let Some(dep) = open.pop() {
        let why = if dep == *id {
            "it would wait for itself".to_owned()
        } else {
            match ledger.task(&dep)? {
                Some(row) => {
                    let further = row.task.deps.into_iter().filter(|further| seen.insert(further.clone()));
                    open.extend(further);
                    continue;
                }
                // What a known task waits for may be gone; it decides about that task only.
                None if !deps.contains(&dep) => continue,
                None => format!("there is no task `{dep}`"),
            }
        };
        return Err(Failure::usage(format!("task `{id}` cannot wait for this: {why}"))
            .hint("`everloop task list` shows what is there"));
    }
    Ok(())
}

fn write(
    ledger: &mut Sqlite,
    context: &ServiceContext,
    row: &TaskRow,
    edit: &TaskEdit,
    text: &str,
) -> Result<(), Error> {
    let mut tries = 1;
    loop {
        let now = context.now();
        let ops = record(ledger, row.task.owner.as_ref(), &[note(text.to_owned())], now)?;
        match ledger.edit_task(now, edit, &ops) {
            Err(Error::Refused(Refusal::Conflict { .. })) if tries < MAX_CONFLICT_RETRIES => tries += 1,
            other => return other,
        }
    }
}

fn refused(error: Error) -> Failure {
    match error {
        Error::Refused(Refusal::WrongState { task, state }) if state == "leased" => {
            Failure::failed(format!("task `{task}` is held, so only its priority can be changed"))
                .hint(format!("take it from its holder first: everloop task retry {task}"))
        }
        Error::Refused(Refusal::WrongState { task, state }) => {
            Failure::failed(format!("task `{task}` is {state}, so it cannot be edited"))
                .hint("add a new one: everloop task add TITLE")
        }
        other => other.into(),
    }
}
