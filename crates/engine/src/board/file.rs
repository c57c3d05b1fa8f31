//! The board as a file that any program can read: made from the ledger, never read back by the
//! supervisor. One value per line and a stable order, so that a diff shows what happened and
//! nothing else.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use everloop_core::op::{TaskRow, TaskState};
use everloop_store::{Ledger, TaskFilter, TaskOwner};
use serde_json::{Map, Value, json};

use super::OWN_KINDS;
use crate::error::Failure;
use crate::record::read_state;

/// Version of the file.
pub const FORMAT: u64 = 1;
/// More tasks than this are an archive rather than a board; the newest are shown.
const TASKS_MOST: usize = 20_000;

/// The tasks on the board of the project in `dir`, in the form of the file: those of its loops, and
/// those that no loop owns.
pub fn tasks_of(ledger: &impl Ledger, dir: &Path) -> Result<Vec<Value>, Failure> {
    let mut others = BTreeSet::new();
    for row in ledger.loops()? {
        if !read_state(&row)?.is_in(dir) {
            others.insert(row.id);
        }
    }
    let is_own = |row: &&TaskRow| row.task.owner.as_ref().is_none_or(|owner| !others.contains(owner));
    Ok(rows(ledger)?.iter().filter(is_own).map(as_json).collect())
}

/// The tasks on the boards of all projects, in the form of the file.
pub fn tasks(ledger: &impl Ledger) -> Result<Vec<Value>, Failure> {
    Ok(rows(ledger)?.iter().map(as_json).collect())
}

/// The tasks on the board, oldest first.
pub fn rows(ledger: &impl Ledger) -> Result<Vec<TaskRow>, Failure> {
    let filter = TaskFilter { owner: TaskOwner::Any, states: Vec::new(), limit: TASKS_MOST };
    let mut rows = ledger.tasks(&filter)?;
    rows.retain(|row| !OWN_KINDS.contains(&row.task.kind.as_str()));
    rows.sort_by(|a, b| (a.created_at, &a.task.id).cmp(&(b.created_at, &b.task.id)));
    Ok(rows)
}

/// A task in the form of the file. Times of leases are left out: they move although nothing
/// happened.
pub fn as_json(row: &TaskRow) -> Value {
    let task = &row.task;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    put("id", json!(task.id));
    put("title", json!(task.title));
    put("status", json!(row.status()));
    if let TaskState::Leased { node, .. } = &row.state {
        put("held_by", json!(node));
    }
    put("fence", json!(row.fence));
    put("priority", json!(task.priority));
    put("kind", json!(task.kind));
    if let Some(owner) = &task.owner {
        put("loop", json!(owner));
    }
    put("depends", json!(task.deps));
    put("author", json!(task.author));
    put("trust", json!(task.trust));
    put("created_at", json!(row.created_at));
    if let Some(result) = row.result.as_ref().filter(|result| !result.is_empty()) {
        put("result", json!(result));
    }
    if !task.prompt.is_empty() {
        put("prompt", json!(task.prompt));
    }
    Value::Object(fields)
}

/// The board file as JSON text, with a line break at its end.
pub fn render(tasks: &[Value]) -> String {
    let board = json!({ "schema_version": FORMAT, "tasks": tasks });
    let mut text = serde_json::to_string_pretty(&board).expect("a board is plain data and always has a JSON form");
    text.push('\n');
    text
}

/// Whether a file holds exactly this text.
pub fn says(path: &Path, text: &str) -> bool {
    fs::read(path).is_ok_and(|old| old == text.as_bytes())
}

/// Replaces a file by a text in one step, if they differ. A symlink is not followed.
pub fn put(path: &Path, text: &str) -> Result<bool, Failure> {
    let cannot = |e: &std::io::Error| Failure::failed(format!("cannot write `{}`", path.display())).because(e);
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
        return Err(Failure::failed(format!("`{}` is a symlink and was left alone", path.display()))
            .hint("name the file itself: [board] file = \"…\""));
    }
    if says(path, text) {
        return Ok(false);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| cannot(&e))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = folder.join(format!(".{name}.{}.new", std::process::id()));
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&fresh, path)).map_err(|e| {
        drop(fs::remove_file(&fresh));
        cannot(&e)
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_only_when_it_says_something_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tasks/board.json");
        let text = render(&[json!({ "id": "a", "title": "x" })]);
        assert!(put(&path, &text).expect("it can be written"));
        assert!(!put(&path, &text).expect("it is there"));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
        assert_eq!(fs::read_dir(folder.path().join("tasks")).expect("a folder").count(), 1, "nothing is left over");
        std::os::unix::fs::symlink(&path, folder.path().join("link.json")).expect("a link");
        assert!(put(&folder.path().join("link.json"), "{}").is_err());
        assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
    }

    #[test]
    fn one_value_stands_in_one_line() {
        insta::assert_snapshot!(render(&[json!({ "id": "a", "depends": ["b"], "prompt": "two\nlines" })]), @r#"
        {
          "schema_version": 1,
          "tasks": [
            {
              "depends": [
                "b"
              ],
              "id": "a",
              "prompt": "two\nlines"
            }
          ]
        }
        "#);
    }
}
