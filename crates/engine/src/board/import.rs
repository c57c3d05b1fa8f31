//! Tasks from a file: a list of tasks with id, description, status, priority and dependencies, as
//! many tools write it, or a board of our own. Unknown fields are kept in the task's prompt. All of
//! it comes onto the board, or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everloop_agents::redact::without_secrets;
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::op::{Amendment, NewTask, Op, TaskEnd, Trust};
use everloop_core::time::Time;
use serde_json::{Map, Value};

use super::merge;

/// Fields that a task has a place for, or that mean nothing outside the ledger they come from.
const KNOWN: [&str; 23] = [
    "id",
    "title",
    "name",
    "subject",
    "description",
    "content",
    "prompt",
    "details",
    "status",
    "state",
    "priority",
    "depends",
    "depends_on",
    "dependencies",
    "deps",
    "after",
    "kind",
    "author",
    "trust",
    "fence",
    "held_by",
    "loop",
    "created_at",
];
/// A title is one line of a listing.
const TITLE_MAX_CHARS: usize = 200;
/// As for tasks that are typed.
const PROMPT_MAX_BYTES: usize = 100_000;

/// The state of an imported task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Queued,
    Done,
    Blocked,
    Dead,
}

/// One task of a board file, checked and ready to be put onto the board.
#[derive(Debug)]
pub struct ImportedTask {
    task: NewTask,
    status: Status,
    result: String,
}

/// Author, trust and owner of imported tasks.
pub struct Import {
    pub owner: Option<LoopId>,
    pub author: String,
    pub trust: Trust,
    pub now: Time,
}

impl Import {
    /// Reads tasks in an order in which each comes after what it depends on. `is_there` knows the
    /// board.
    pub fn read(&self, text: &str, is_there: impl Fn(&TaskId) -> bool) -> Result<Vec<ImportedTask>, String> {
        let mut entries: BTreeMap<TaskId, ImportedTask> = BTreeMap::new();
        let mut order = Vec::new();
        for value in merge::read(text)? {
            let entry = self.entry(&value)?;
            let id = entry.task.id.clone();
            if entries.insert(id.clone(), entry).is_some() {
                return Err(format!("task `{id}` occurs twice"));
            }
            order.push(id);
        }
        for (id, entry) in &entries {
            if let Some(dep) = entry.task.deps.iter().find(|dep| !entries.contains_key(dep) && !is_there(dep)) {
                return Err(format!("task `{id}` depends on `{dep}`, which is neither in the file nor on the board"));
            }
        }
        let sorted =
            sort(&order, |id| entries[id].task.deps.iter().filter(|d| entries.contains_key(d)).cloned().collect())?;
        let mut take = |id| entries.remove(&id).expect("each id is sorted once");
        Ok(sorted.into_iter().map(&mut take).filter(|entry| !is_there(&entry.task.id)).collect())
    }

    fn entry(&self, value: &Value) -> Result<ImportedTask, String> {
        let id = merge::id(value).ok_or("a task has no `id`")?;
        let good = id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !good {
            return Err(format!(
                "`{}` cannot be an id: letters, digits, `-`, `_` and `.`, at most 64",
                merge::short(&value["id"])
            ));
        }
        let empty = Map::new();
        let fields = value.as_object().unwrap_or(&empty);
        let wrong = |why: String| format!("task `{id}`: {why}");
        let (title, prompt) = texts(fields).map_err(wrong)?;
        let kind = fields.get("kind").and_then(Value::as_str).filter(|k| !k.is_empty()).unwrap_or("task");
        if super::OWN_KINDS.contains(&kind) {
            return Err(wrong(format!("`{kind}` cannot be a task's kind")));
        }
        let status = status(fields).map_err(wrong)?;
        let deps = depends(fields).map_err(wrong)?;
        let task = NewTask {
            id: TaskId::new(&id),
            owner: self.owner.clone(),
            kind: kind.to_owned(),
            title,
            prompt,
            priority: priority(fields.get("priority")).map_err(wrong)?,
            // A done task waits for nothing any more.
            deps: if status == Status::Done { Vec::new() } else { deps },
            author: self.author.clone(),
            trust: self.trust,
            ready_at: self.now,
        };
        let result = fields.get("result").map(plain).unwrap_or_default();
        Ok(ImportedTask { task, status, result })
    }
}

impl ImportedTask {
    /// The id under which the board keeps it.
    pub fn id(&self) -> &TaskId {
        &self.task.id
    }

    /// The operations that put it onto the board.
    pub fn ops(&self) -> Vec<Op> {
        let id = || self.task.id.clone();
        let mut ops = vec![Op::Enqueue(self.task.clone())];
        match self.status {
            Status::Queued => {}
            Status::Blocked => ops.push(Op::Amend { task: id(), change: Amendment::Block }),
            Status::Dead => ops.push(Op::Amend { task: id(), change: Amendment::Cancel }),
            Status::Done => {
                let (node, lease) = (NodeId::new("import"), Duration::from_secs(1));
                ops.push(Op::Take { task: id(), fence: Fence(1), node, lease });
                let result = self.result.clone();
                ops.push(Op::Finish { task: id(), fence: Fence(1), state: TaskEnd::Done, result });
            }
        }
        ops
    }
}

/// Each after what it depends on; in the order of the file otherwise. A cycle is named.
fn sort(order: &[TaskId], deps: impl Fn(&TaskId) -> Vec<TaskId>) -> Result<Vec<TaskId>, String> {
    let mut sorted = Vec::new();
    let mut done = BTreeSet::new();
    for first in order {
        // The path from `first` down, each with its remaining dependencies.
        let mut path = vec![(first.clone(), deps(first))];
        if done.contains(first) {
            continue;
        }
        while let Some((id, rest)) = path.last_mut() {
            match rest.pop() {
                None => {
                    if done.insert(id.clone()) {
                        sorted.push(id.clone());
                    }
                    path.pop();
                }
                Some(dep) if done.contains(&dep) => {}
                Some(dep) => {
                    if let Some(at) = path.iter().position(|(id, _)| *id == dep) {
                        let ring: Vec<&str> = path[at..].iter().map(|(id, _)| id.as_str()).collect();
                        return Err(format!("tasks depend on each other in a circle: {} → {dep}", ring.join(" → ")));
                    }
                    let further = deps(&dep);
                    path.push((dep, further));
                }
            }
        }
    }
    Ok(sorted)
}

/// Title and prompt. Fields without a place of their own are appended to the prompt.
fn texts(fields: &Map<String, Value>) -> Result<(String, String), String> {
    let text = |names: &[&str]| {
        names.iter().find_map(|name| fields.get(*name)?.as_str()).unwrap_or_default().trim().to_owned()
    };
    let (title, mut prompt) = (text(&["title", "name", "subject"]), text(&["prompt", "details"]));
    let description = text(&["description", "content"]);
    let whole = if title.is_empty() { description.clone() } else { title.clone() };
    let one_line = whole.split_whitespace().collect::<Vec<_>>().join(" ");
    if one_line.is_empty() {
        return Err("it has neither a `title` nor a `description`".to_owned());
    }
    let short: String = one_line.chars().take(TITLE_MAX_CHARS).collect();
    // A description that only repeats the title is left out.
    if !description.is_empty() && description != short {
        prompt = if prompt.is_empty() { description } else { format!("{description}\n\n{prompt}") };
    }
    let other: Vec<String> = fields
        .iter()
        .filter(|(name, value)| !KNOWN.contains(&name.as_str()) && *name != "result" && !value.is_null())
        .map(|(name, value)| format!("{name}: {}", plain(value)))
        .collect();
    if !other.is_empty() {
        let gap = if prompt.is_empty() { "" } else { "\n\n" };
        prompt = format!("{prompt}{gap}{}", other.join("\n"));
    }
    if prompt.len() > PROMPT_MAX_BYTES {
        return Err(format!("its text is longer than {PROMPT_MAX_BYTES} bytes"));
    }
    Ok((without_secrets(&short), without_secrets(&prompt)))
}

fn status(fields: &Map<String, Value>) -> Result<Status, String> {
    let Some(value) = fields.get("status").or_else(|| fields.get("state")) else { return Ok(Status::Queued) };
    let word = plain(value).to_lowercase().replace([' ', '-'], "_");
    match word.as_str() {
        // A lease of another board does not count here.
        "" | "queued" | "pending" | "todo" | "open" | "ready" | "new" | "backlog" | "leased" | "in_progress"
        | "doing" | "started" | "active" | "claimed" => Ok(Status::Queued),
        "done" | "completed" | "complete" | "closed" | "finished" | "resolved" => Ok(Status::Done),
        "blocked" | "waiting" | "on_hold" | "paused" => Ok(Status::Blocked),
        // A turn of another board ended, and what was to be done may not be.
        "progress" | "not_yet" | "no_op" | "refused" | "regressed" | "agent_failed" | "task_failed" => {
            Ok(Status::Queued)
        }
        "dead" | "cancelled" | "canceled" | "failed" | "wontfix" | "dropped" | "deleted" => Ok(Status::Dead),
        _ => Err(format!("unknown status `{word}`; use queued, in_progress, done, blocked and cancelled")),
    }
}

fn priority(value: Option<&Value>) -> Result<i32, String> {
    let Some(value) = value.filter(|v| !v.is_null()) else { return Ok(0) };
    if let Some(number) = value.as_i64().and_then(|n| i32::try_from(n).ok()) {
        return Ok(number);
    }
    match plain(value).to_lowercase().as_str() {
        "critical" | "urgent" | "highest" | "p0" => Ok(20),
        "high" | "p1" => Ok(10),
        "" | "medium" | "normal" | "p2" => Ok(0),
        "low" | "p3" => Ok(-10),
        "lowest" | "p4" => Ok(-20),
        other => Err(format!("unknown priority `{other}`; write a number, or high, medium or low")),
    }
}

fn depends(fields: &Map<String, Value>) -> Result<Vec<TaskId>, String> {
    let names = ["depends", "depends_on", "dependencies", "deps", "after"];
    let Some(value) = names.iter().find_map(|name| fields.get(*name)).filter(|v| !v.is_null()) else {
        return Ok(Vec::new());
    };
    let all = match value {
        Value::Array(all) => all.iter().map(plain).collect(),
        Value::String(text) => text.split(',').map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).collect(),
        Value::Number(id) => vec![id.to_string()],
        _ => return Err("its dependencies have to be a list of ids".to_owned()),
    };
    let unique: BTreeSet<String> = all.into_iter().collect();
    Ok(unique.into_iter().map(TaskId::new).collect())
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<ImportedTask>, String> {
        let import = Import { owner: None, author: "me".to_owned(), trust: Trust::Operator, now: Time(5) };
        import.read(text, |id| id.as_str() == "there")
    }

    #[test]
    fn boards_of_other_tools_are_understood() {
        let entries = read(
            r#"[{"id":2,"description":"second","status":"in-progress","priority":"high","depends":[1,"there"],"labels":["x"]},
                {"id":1,"description":"first","status":"completed","depends":["there"],"estimate":3},
                {"id":"there","description":"known"},
                {"id":"3","title":"third","description":"with more","status":"cancelled"}]"#,
        )
        .expect("it is a board");
        let told: Vec<String> = entries
            .iter()
            .map(|e| format!("{} {:?} {} {:?} {:?}", e.id(), e.status, e.task.priority, e.task.title, e.task.prompt))
            .collect();
        assert_eq!(
            told,
            [
                r#"1 Done 0 "first" "estimate: 3""#,
                r#"2 Queued 10 "second" "labels: [\"x\"]""#,
                r#"3 Dead 0 "third" "with more""#
            ]
        );
        assert_eq!(entries[1].task.deps, [TaskId::new("1"), TaskId::new("there")]);
    }

    #[test]
    fn cycles_are_named_and_so_is_everything_else_that_is_wrong() {
        let ring = r#"[{"id":"a","title":"a","depends":["b"]},{"id":"b","title":"b","depends":["c"]},
                       {"id":"c","title":"c","depends":["a"]},{"id":"d","title":"d"}]"#;
        assert_eq!(read(ring).expect_err("a ring"), "tasks depend on each other in a circle: a → b → c → a");
        let itself = r#"[{"id":"a","title":"a","depends":["a"]}]"#;
        assert!(read(itself).expect_err("a ring").contains("a → a"));
        for (bad, said) in [
            (r#"[{"id":"a","title":"a","depends":["x"]}]"#, "`x`, which is neither"),
            (r#"[{"id":"a","title":"a"},{"id":"a","title":"b"}]"#, "occurs twice"),
            (r#"[{"id":"a b","title":"a"}]"#, "cannot be an id"),
            (r#"[{"id":"a"}]"#, "neither a `title`"),
            (r#"[{"id":"a","title":"a","status":"great"}]"#, "unknown status"),
            (r#"[{"id":"a","title":"a","priority":"soon"}]"#, "unknown priority"),
            (r#"[{"id":"a","title":"a","kind":"batch"}]"#, "cannot be a task's kind"),
        ] {
            let told = read(bad).expect_err(bad);
            assert!(told.contains(said), "{told}");
        }
    }

    #[test]
    fn a_long_chain_does_not_overflow_anything() {
        let tasks: Vec<String> =
            (0..5000).map(|n| format!(r#"{{"id":"t{n}","title":"x","depends":["t{}"]}}"#, n + 1)).collect();
        let text = format!(r#"[{},{{"id":"t5000","title":"last"}}]"#, tasks.join(","));
        let entries = read(&text).expect("a chain is no ring");
        assert_eq!((entries.len(), entries[0].id().as_str()), (5001, "t5000"));
    }
}
