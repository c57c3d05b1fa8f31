//! A person's edit of a task's text. Only SQLite has this: tasks of a hub are made by loops.

use everloop_core::op::{Op, Refusal, TaskRow, TaskState};
use everloop_core::time::Time;
use rusqlite::params;

use super::batch::Batch;
use super::{Sqlite, sql};
use crate::Error;
use crate::rows::TaskEdit;

impl Sqlite {
    /// Edits a task and performs `ops`, in one transaction. A held task takes a new priority only;
    /// a task that is done takes nothing ([`Refusal::WrongState`]).
    pub fn edit_task(&mut self, now: Time, edit: &TaskEdit, ops: &[Op]) -> Result<(), Error> {
        let batch = Batch::begin(&mut self.conn, self.key.as_ref(), now)?;
        let mut row = batch.row(&edit.task)?;
        apply(&mut row, edit)?;
        let task = &row.task;
        let deps = serde_json::to_string(&task.deps).expect("a list of ids always has a JSON form");
        let text = "UPDATE tasks SET title = ?2, prompt = ?3, priority = ?4, deps = ?5, updated_at = ?6 WHERE id = ?1";
        let values = params![task.id.as_str(), task.title, task.prompt, task.priority, deps, now.0];
        batch.write("edit a task", text, values)?;
        for op in ops {
            batch.apply(op)?;
        }
        batch.tx.commit().map_err(sql("commit a transaction"))
    }
}

fn apply(row: &mut TaskRow, edit: &TaskEdit) -> Result<(), Refusal> {
    let is_allowed = match row.state {
        TaskState::Queued | TaskState::Blocked | TaskState::Dead => true,
        TaskState::Leased { .. } => edit.is_priority_only(),
        TaskState::Done => false,
    };
    if !is_allowed {
        let state = row.state.label().to_owned();
        return Err(Refusal::WrongState { task: row.task.id.clone(), state });
    }
    let task = &mut row.task;
    task.title = edit.title.clone().unwrap_or_else(|| task.title.clone());
    task.prompt = edit.prompt.clone().unwrap_or_else(|| task.prompt.clone());
    task.priority = edit.priority.unwrap_or(task.priority);
    task.deps = edit.deps.clone().unwrap_or_else(|| task.deps.clone());
    Ok(())
}
