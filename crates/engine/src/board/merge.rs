//! Merges two boards into one, for git. The union of their tasks: no task is lost, none is doubled,
//! and there are no conflict markers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::file::FORMAT;

/// The order of a task's states; of two copies the one that is further counts.
const STATE_ORDER: [&str; 5] = ["queued", "leased", "blocked", "dead", "done"];

/// Reads a board. An empty file is an empty board: git hands one over when there was none.
pub fn read(text: &str) -> Result<Vec<Value>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let version = value.get("schema_version").and_then(Value::as_u64).unwrap_or(FORMAT);
    if version > FORMAT {
        return Err(format!("format {version} is newer than this everloop understands ({FORMAT})"));
    }
    let tasks = match &value {
        Value::Array(tasks) => tasks,
        other => other.get("tasks").and_then(Value::as_array).ok_or("the list `tasks` is missing")?,
    };
    match tasks.iter().find(|task| id(task).is_none()) {
        Some(bad) => Err(format!("a task has no `id`: {}", short(bad))),
        None => Ok(tasks.clone()),
    }
}

/// The union of ours and theirs. What only one side changed since `base` is taken from that side;
/// of what both changed, the copy under the greater fence, and then the one that is further in its
/// states.
pub fn merge(base: &[Value], ours: &[Value], theirs: &[Value]) -> Vec<Value> {
    let by_id = |tasks: &[Value]| -> BTreeMap<String, Value> {
        tasks.iter().filter_map(|task| Some((id(task)?, task.clone()))).collect()
    };
    let (base, mut ours, theirs) = (by_id(base), by_id(ours), by_id(theirs));
    for (id, their) in theirs {
        let keep = match (base.get(&id), ours.get(&id)) {
            (_, None) => false,
            (Some(base), Some(_)) if *base == their => true,
            (Some(base), Some(our)) if base == our => false,
            (_, Some(our)) => weight(our) >= weight(&their),
        };
        if !keep {
            ours.insert(id, their);
        }
    }
    let mut tasks: Vec<Value> = ours.into_values().collect();
    tasks.sort_by_key(|task| (task.get("created_at").and_then(Value::as_i64).unwrap_or(0), id(task)));
    tasks
}

/// A total order, so that both sides of a merge choose the same copy.
fn weight(task: &Value) -> (u64, usize, String) {
    let fence = task.get("fence").and_then(Value::as_u64).unwrap_or(0);
    let status = task.get("status").and_then(Value::as_str).unwrap_or_default();
    let rank = STATE_ORDER.iter().position(|s| *s == status).unwrap_or(0);
    (fence, rank, task.to_string())
}

/// The id of a task; some boards use numbers.
pub fn id(task: &Value) -> Option<String> {
    match task.get("id")? {
        Value::String(id) if !id.is_empty() => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// The beginning of a value, for messages.
pub fn short(value: &Value) -> String {
    let text = json!(value).to_string();
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, status: &str, fence: u64) -> Value {
        json!({ "id": id, "status": status, "fence": fence, "created_at": 1 })
    }

    #[test]
    fn both_sides_come_to_the_same_and_nothing_is_lost() {
        let base = [task("a", "queued", 0), task("b", "queued", 0), task("c", "leased", 1)];
        let ours = [task("a", "done", 1), task("b", "queued", 0), task("c", "done", 1), task("d", "queued", 0)];
        let theirs = [task("a", "queued", 0), task("b", "leased", 1), task("c", "queued", 2), task("e", "queued", 0)];
        let merged = merge(&base, &ours, &theirs);
        assert_eq!(merged, merge(&base, &theirs, &ours));
        let told: Vec<String> = merged.iter().map(|t| format!("{} {}", t["id"], t["status"])).collect();
        assert_eq!(told, [r#""a" "done""#, r#""b" "leased""#, r#""c" "queued""#, r#""d" "queued""#, r#""e" "queued""#]);
        assert_eq!(merge(&base, &merged, &merged), merged, "again is the same");
    }

    #[test]
    fn a_task_that_one_side_dropped_stays() {
        let base = [task("a", "queued", 0)];
        assert_eq!(merge(&base, &[], &base), base);
        assert_eq!(merge(&base, &base, &[]), base);
    }

    #[test]
    fn what_is_no_board_is_refused() {
        assert_eq!(read("").map(|t| t.len()), Ok(0));
        assert_eq!(read(r#"[{"id":1}]"#).map(|t| t.len()), Ok(1));
        for bad in ["{", "{}", r#"{"tasks":[{}]}"#, r#"{"schema_version":2,"tasks":[]}"#, "<<<<<<< ours"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
