//! How rows of the hub become the core's types and back. PostgreSQL's texts cannot hold a NUL and
//! its integers are signed: the first is escaped, the second cast where they cross.

use std::borrow::Cow;
use std::fmt::Display;

use everloop_core::guard::{GuardState, Scope, Versioned};
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::journal::{self, Damage, JournalRecord, Stored};
use everloop_core::op::streams::{Field, GroupState};
use everloop_core::op::{LateResult, Message, NewTask, TaskRow, TaskState, Ticket, Trust};
use everloop_core::time::Time;
use tokio_postgres::Row;

use crate::Error;
use crate::rows::{DocRow, Leader, LoopRow, NodeRow};

type Sql<T> = Result<T, tokio_postgres::Error>;

/// NUL becomes 0x01 `0` and 0x01 becomes 0x01 `1`; everything else stays readable, and texts keep
/// their order.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', '\u{1}']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\u{1}', "\u{1}1").replace('\0', "\u{1}0"))
}

fn unescaped(text: String) -> String {
    if !text.contains('\u{1}') {
        return text;
    }
    text.replace("\u{1}0", "\0").replace("\u{1}1", "\u{1}")
}

pub(super) fn plain(row: &Row, column: &str) -> Sql<String> {
    row.try_get(column).map(unescaped)
}

pub(super) fn optional_text(row: &Row, column: &str) -> Sql<Option<String>> {
    Ok(row.try_get::<_, Option<String>>(column)?.map(unescaped))
}

pub(super) fn time(row: &Row, column: &str) -> Sql<Time> {
    row.try_get(column).map(Time)
}

pub(super) fn number(row: &Row, column: &str) -> Sql<u64> {
    row.try_get::<_, i64>(column).map(|n| n as u64)
}

fn owner(row: &Row) -> Sql<Option<LoopId>> {
    Ok(optional_text(row, "owner")?.map(LoopId::new))
}

/// Parses a column that is not plain text or number; the error names the row.
fn parse<T, E: Display>(what: &dyn Display, value: Result<T, E>) -> Result<T, Error> {
    value.map_err(|e| Error::Unreadable { what: what.to_string(), why: e.to_string() })
}

/// A column is missing or of another type: the schema was changed.
pub(super) fn shape(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
    move |e| Error::Unreadable { what: what.to_owned(), why: e.to_string() }
}

/// The ids that a task depends on, from its column.
pub(super) fn deps_column(deps: &[TaskId]) -> String {
    let ids: Vec<Cow<'_, str>> = deps.iter().map(|id| escaped(id.as_str())).collect();
    serde_json::to_string(&ids).expect("a list of texts always has a JSON form")
}

/// Reads the columns of `tasks`.
pub(super) fn task(row: &Row) -> Result<TaskRow, Error> {
    let read = || -> Sql<_> {
        let lease = row.try_get::<_, Option<String>>("node")?.map(unescaped).zip(row.try_get("until")?);
        let task = NewTask {
            id: TaskId::new(plain(row, "id")?),
            owner: owner(row)?,
            kind: plain(row, "kind")?,
            title: plain(row, "title")?,
            prompt: plain(row, "prompt")?,
            priority: row.try_get("priority")?,
            deps: Vec::new(),
            author: plain(row, "author")?,
            trust: Trust::Agent,
            ready_at: time(row, "ready_at")?,
        };
        let task = TaskRow {
            task,
            state: TaskState::Queued,
            fence: Fence(number(row, "fence")?),
            failures: number(row, "failures")? as u32,
            result: optional_text(row, "result")?,
            created_at: time(row, "created_at")?,
            updated_at: time(row, "updated_at")?,
        };
        Ok((task, row.try_get("deps")?, row.try_get("trust")?, row.try_get("state")?, lease))
    };
    let (mut task, deps, trust, state, lease) = read().map_err(shape("a task"))?;
    let (deps, trust, state): (String, String, String) = (deps, trust, state);
    let what = format!("task `{}`", task.task.id);
    let deps: Vec<String> = parse(&what, serde_json::from_str(&deps))?;
    task.task.deps = deps.into_iter().map(|id| TaskId::new(unescaped(id))).collect();
    task.task.trust = parse(&what, trust_named(&trust))?;
    task.state = parse(&what, state_named(&state, lease))?;
    Ok(task)
}

fn state_named(name: &str, lease: Option<(String, i64)>) -> Result<TaskState, String> {
    match (name, lease) {
        ("queued", None) => Ok(TaskState::Queued),
        ("leased", Some((node, until))) => Ok(TaskState::Leased { node: NodeId::new(node), until: Time(until) }),
        ("done", None) => Ok(TaskState::Done),
        ("dead", None) => Ok(TaskState::Dead),
        ("blocked", None) => Ok(TaskState::Blocked),
        (other, _) => Err(format!("unknown state `{other}`, or a lease that does not fit it")),
    }
}

/// The columns `state`, `node` and `until`.
pub(super) fn state_columns(state: &TaskState) -> (&'static str, Option<&str>, Option<i64>) {
    match state {
        TaskState::Leased { node, until } => (state.label(), Some(node.as_str()), Some(until.0)),
        TaskState::Queued | TaskState::Done | TaskState::Dead | TaskState::Blocked => (state.label(), None, None),
    }
}

fn trust_named(name: &str) -> Result<Trust, String> {
    match name {
        "operator" => Ok(Trust::Operator),
        "agent" => Ok(Trust::Agent),
        other => Err(format!("unknown trust `{other}`")),
    }
}

/// The column `trust`.
pub(super) fn trust_column(trust: Trust) -> &'static str {
    match trust {
        Trust::Operator => "operator",
        Trust::Agent => "agent",
    }
}

/// Reads the columns of `loops`.
pub(super) fn loop_row(row: &Row) -> Result<LoopRow, Error> {
    let read = || -> Sql<_> {
        Ok(LoopRow {
            id: LoopId::new(plain(row, "id")?),
            version: number(row, "version")?,
            phase: plain(row, "phase")?,
            updated_at: time(row, "updated_at")?,
            state: plain(row, "state")?,
        })
    };
    read().map_err(shape("a loop"))
}

/// Reads the columns of `docs`.
pub(super) fn doc(row: &Row) -> Result<DocRow, Error> {
    let read = || -> Sql<_> {
        Ok(DocRow {
            key: plain(row, "key")?,
            version: number(row, "version")?,
            updated_at: time(row, "updated_at")?,
            body: plain(row, "body")?,
        })
    };
    read().map_err(shape("a document"))
}

/// Reads the columns of `shelf`, the table of late results.
pub(super) fn late_result(row: &Row) -> Result<LateResult, Error> {
    let read = || -> Sql<_> {
        Ok(LateResult {
            task: TaskId::new(plain(row, "task")?),
            fence: Fence(number(row, "fence")?),
            at: time(row, "at")?,
            result: plain(row, "result")?,
        })
    };
    read().map_err(shape("a late result"))
}

/// Reads the columns of `nodes`.
pub(super) fn node(row: &Row) -> Result<NodeRow, Error> {
    let read = || -> Sql<_> {
        let node = NodeId::new(plain(row, "id")?);
        Ok(NodeRow { node, info: plain(row, "info")?, seen_at: time(row, "seen_at")? })
    };
    read().map_err(shape("a node"))
}

/// Reads the columns of `leader`.
pub(super) fn leader(row: &Row) -> Result<Leader, Error> {
    let read = || -> Sql<_> {
        let node = NodeId::new(plain(row, "node")?);
        Ok(Leader { node, term: number(row, "epoch")?, until: time(row, "until")? })
    };
    read().map_err(shape("the leader"))
}

/// Reads the columns of `guards`.
pub(super) fn guard(row: &Row) -> Result<(Scope, Versioned), Error> {
    let read = || -> Sql<_> { Ok((plain(row, "scope")?, number(row, "version")?, plain(row, "state")?)) };
    let (scope, version, state) = read().map_err(shape("a guard"))?;
    let what = format!("guard `{scope}`");
    let state: GuardState = parse(&what, serde_json::from_str(&state))?;
    Ok((parse(&what, Scope::try_from(scope))?, Versioned { version, state }))
}

/// Reads the columns of `messages`.
pub(super) fn message(row: &Row) -> Result<Message, Error> {
    let read = || -> Sql<_> {
        Ok(Message {
            id: number(row, "id")?,
            at: time(row, "at")?,
            to: plain(row, "recipient")?,
            by: plain(row, "sender")?,
            body: plain(row, "body")?,
        })
    };
    read().map_err(shape("a message"))
}

/// Reads the columns of `tickets`.
pub(super) fn ticket(row: &Row) -> Result<Ticket, Error> {
    let read = || -> Sql<_> {
        let closed_at: Option<i64> = row.try_get("closed_at")?;
        Ok(Ticket {
            id: number(row, "id")?,
            key: plain(row, "key")?,
            owner: owner(row)?,
            text: plain(row, "text")?,
            opened_at: time(row, "opened_at")?,
            closed: closed_at.map(Time).zip(optional_text(row, "answer")?),
        })
    };
    read().map_err(shape("a ticket"))
}

/// A group of a stream from its column.
pub(super) fn stream_group(body: &str) -> Result<GroupState, Error> {
    parse(&"a group of a stream", serde_json::from_str(body))
}

/// The fields of an entry from their column.
pub(super) fn stream_fields(id: u64, fields: &str) -> Result<Vec<Field>, Error> {
    parse(&format!("entry {id} of a stream"), serde_json::from_str(fields))
}

/// Reads the columns of `journal`.
pub(super) fn stored(row: &Row) -> Result<Stored, Error> {
    let read = || -> Sql<_> {
        Ok(Stored {
            seq: number(row, "seq")?,
            at: time(row, "at")?,
            owner: owner(row)?,
            version: row.try_get::<_, i32>("version")? as u32,
            body: plain(row, "body")?,
            sum: number(row, "sum")? as u32,
        })
    };
    read().map_err(shape("a journal record"))
}

/// Reads a journal row together with the checksum of the row before it (`previous_sum`) and opens
/// it.
pub(super) fn record(row: &Row) -> Result<JournalRecord, Error> {
    let stored = stored(row)?;
    let previous_sum: Option<i64> = row.try_get("previous_sum").map_err(shape("a journal record"))?;
    let before = stored.seq.saturating_sub(1);
    let previous = match (before, previous_sum) {
        (0, _) => None,
        (_, None) => return Err(Damage::Gap { expected: before, found: stored.seq }.into()),
        (seq, Some(sum)) => {
            let version = stored.version;
            Some(Stored { seq, at: Time(0), owner: None, version, body: String::new(), sum: sum as u32 })
        }
    };
    Ok(journal::open(&stored, previous.as_ref())?)
}

/// Reads a number of the journal.
pub(super) fn seq(row: &Row) -> Result<u64, Error> {
    number(row, "seq").map_err(shape("a journal record"))
}

/// Reads a row of `heads`: the last number and, of the journal, its checksum.
pub(super) fn head(row: &Row) -> Result<(String, u64, u32), Error> {
    let read = || -> Sql<_> { Ok((plain(row, "name")?, number(row, "value")?, number(row, "sum")? as u32)) };
    read().map_err(shape("a head"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_keeps_its_place() {
        let texts =
            ["", "\0", "\0\0", "\0a", "\u{1}", "\u{1}0", "\u{1}1", "\u{2}", "a", "a\0", "a\0b", "a\u{1}", "b", "ü"];
        for (i, a) in texts.iter().enumerate() {
            assert!(!escaped(a).contains('\0'));
            assert_eq!(unescaped(escaped(a).into_owned()), **a);
            for (j, b) in texts.iter().enumerate() {
                assert_eq!(escaped(a).cmp(&escaped(b)), a.cmp(b), "{i} and {j}");
            }
        }
    }
}
