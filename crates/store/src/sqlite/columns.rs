//! Conversion between rows of the database and the core's types. SQLite's integers are signed 64
//! bit: numbers that only count up (fences, versions, ids) fit, and are cast at this boundary.

use std::fmt::Display;

use everloop_core::guard::{GuardState, Scope, Versioned};
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::journal::{self, Damage, JournalRecord, Stored};
use everloop_core::op::{LateResult, Message, NewTask, TaskRow, TaskState, Ticket, Trust};
use everloop_core::time::Time;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::Error;
use crate::rows::{DocRow, Leader, LoopRow, NodeRow};

type Sql<T> = Result<T, rusqlite::Error>;

fn time(row: &Row<'_>, column: &str) -> Sql<Time> {
    row.get(column).map(Time)
}

fn number(row: &Row<'_>, column: &str) -> Sql<u64> {
    row.get::<_, i64>(column).map(|n| n as u64)
}

fn owner(row: &Row<'_>) -> Sql<Option<LoopId>> {
    Ok(row.get::<_, Option<String>>("owner")?.map(LoopId::new))
}

/// Parses a structured column; an error names the row.
fn parse<T, E: Display>(what: &dyn Display, value: Result<T, E>) -> Result<T, Error> {
    value.map_err(|e| Error::Unreadable { what: what.to_string(), why: e.to_string() })
}

/// A task as its columns, before they are parsed.
pub(super) struct RawTask {
    task: NewTask,
    deps: String,
    trust: String,
    state: String,
    lease: Option<(String, i64)>,
    fence: u64,
    failures: u32,
    result: Option<String>,
    created_at: Time,
    updated_at: Time,
}

/// Reads the columns of `tasks`, by their position in the table: SQLite would search all names for
/// each of them, and claims read many. A new column comes last.
pub(super) fn task(row: &Row<'_>) -> Sql<RawTask> {
    let task = NewTask {
        id: TaskId::new(row.get::<_, String>(0)?),
        owner: row.get::<_, Option<String>>(1)?.map(LoopId::new),
        kind: row.get(2)?,
        title: row.get(3)?,
        prompt: row.get(4)?,
        priority: row.get(5)?,
        deps: Vec::new(),
        author: row.get(7)?,
        trust: Trust::Agent,
        ready_at: Time(row.get(9)?),
    };
    let (node, until): (Option<String>, Option<i64>) = (row.get(11)?, row.get(12)?);
    Ok(RawTask {
        task,
        deps: row.get(6)?,
        trust: row.get(8)?,
        state: row.get(10)?,
        lease: node.zip(until),
        fence: row.get::<_, i64>(13)? as u64,
        failures: row.get(14)?,
        result: row.get(15)?,
        created_at: Time(row.get(16)?),
        updated_at: Time(row.get(17)?),
    })
}

impl RawTask {
    /// Parses the structured columns.
    pub(super) fn understood(self) -> Result<TaskRow, Error> {
        let RawTask { mut task, deps, trust, state, lease, fence, failures, result, created_at, updated_at } = self;
        let what = format!("task `{}`", task.id);
        task.deps = parse(&what, serde_json::from_str(&deps))?;
        task.trust = parse(&what, trust_named(&trust))?;
        let state = parse(&what, state_named(&state, lease))?;
        Ok(TaskRow { task, state, fence: Fence(fence), failures, result, created_at, updated_at })
    }
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
pub(super) fn loop_row(row: &Row<'_>) -> Sql<LoopRow> {
    Ok(LoopRow {
        id: LoopId::new(row.get::<_, String>("id")?),
        version: number(row, "version")?,
        phase: row.get("phase")?,
        updated_at: time(row, "updated_at")?,
        state: row.get("state")?,
    })
}

/// Reads the columns of `docs`.
pub(super) fn doc(row: &Row<'_>) -> Sql<DocRow> {
    Ok(DocRow {
        key: row.get("key")?,
        version: number(row, "version")?,
        updated_at: time(row, "updated_at")?,
        body: row.get("body")?,
    })
}

/// Reads the columns of `late_results`.
pub(super) fn late_result(row: &Row<'_>) -> Sql<LateResult> {
    Ok(LateResult {
        task: TaskId::new(row.get::<_, String>("task")?),
        fence: Fence(number(row, "fence")?),
        at: time(row, "at")?,
        result: row.get("result")?,
    })
}

/// Reads the columns of `nodes`.
pub(super) fn node(row: &Row<'_>) -> Sql<NodeRow> {
    let node = NodeId::new(row.get::<_, String>("id")?);
    Ok(NodeRow { node, info: row.get("info")?, seen_at: time(row, "seen_at")? })
}

/// Reads the columns of `leader`.
pub(super) fn leader(row: &Row<'_>) -> Sql<Leader> {
    let node = NodeId::new(row.get::<_, String>("node")?);
    Ok(Leader { node, term: number(row, "epoch")?, until: time(row, "until")? })
}

/// Reads the columns of `guards`.
pub(super) fn guard(row: &Row<'_>) -> Sql<(String, u64, String)> {
    Ok((row.get("scope")?, number(row, "version")?, row.get("state")?))
}

/// Parses the structured columns.
pub(super) fn guard_understood((scope, version, state): (String, u64, String)) -> Result<(Scope, Versioned), Error> {
    let what = format!("guard `{scope}`");
    let state: GuardState = parse(&what, serde_json::from_str(&state))?;
    Ok((parse(&what, Scope::try_from(scope))?, Versioned { version, state }))
}

/// Reads the columns of `messages`.
pub(super) fn message(row: &Row<'_>) -> Sql<Message> {
    Ok(Message {
        id: number(row, "id")?,
        at: time(row, "at")?,
        to: row.get("recipient")?,
        by: row.get("sender")?,
        body: row.get("body")?,
    })
}

/// Reads the columns of `tickets`.
pub(super) fn ticket(row: &Row<'_>) -> Sql<Ticket> {
    let closed_at: Option<i64> = row.get("closed_at")?;
    let answer: Option<String> = row.get("answer")?;
    Ok(Ticket {
        id: number(row, "id")?,
        key: row.get("key")?,
        owner: owner(row)?,
        text: row.get("text")?,
        opened_at: time(row, "opened_at")?,
        closed: closed_at.map(Time).zip(answer),
    })
}

/// Reads the columns of `journal`. Bytes that are no text any more are replaced: the checksum then
/// does not fit, which reports the damage.
pub(super) fn stored(row: &Row<'_>) -> Sql<Stored> {
    let text = |column: &str| -> Sql<Option<String>> {
        Ok(match row.get_ref(column)? {
            ValueRef::Null => None,
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            ValueRef::Integer(n) => Some(n.to_string()),
            ValueRef::Real(n) => Some(n.to_string()),
        })
    };
    Ok(Stored {
        seq: number(row, "seq")?,
        at: time(row, "at")?,
        owner: text("owner")?.map(LoopId::new),
        version: number(row, "version")? as u32,
        body: text("body")?.unwrap_or_default(),
        sum: number(row, "sum")? as u32,
    })
}

/// Reads a journal row together with the checksum of the row before it (`previous_sum`).
pub(super) fn linked(row: &Row<'_>) -> Sql<(Stored, Option<u32>)> {
    let previous: Option<i64> = row.get("previous_sum")?;
    Ok((stored(row)?, previous.map(|sum| sum as u32)))
}

/// Opens a journal row after the one before it, of which only the checksum matters.
pub(super) fn record((stored, previous_sum): (Stored, Option<u32>)) -> Result<JournalRecord, Error> {
    let before = stored.seq.saturating_sub(1);
    let previous = match (before, previous_sum) {
        (0, _) => None,
        (_, None) => return Err(Damage::Gap { expected: before, found: stored.seq }.into()),
        (seq, Some(sum)) => {
            Some(Stored { seq, at: Time(0), owner: None, version: stored.version, body: String::new(), sum })
        }
    };
    Ok(journal::open(&stored, previous.as_ref())?)
}
