//! Reads. Each is one statement and so one snapshot; none of them takes a lock.

use everloop_core::ids::{LoopId, TaskId};

use super::connection::Statement;
use crate::rows::{Recipients, StateName, TaskFilter, TaskOwner, Tickets};

/// PostgreSQL counts in signed numbers; no listing is longer. Inlined everywhere: with a parameter
/// for a limit the planner takes a plan for any number of rows, and that one sorts the table.
fn signed(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn after(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(super) fn loops() -> Statement {
    Statement::new("read the loops", "SELECT * FROM everloop.loops ORDER BY id")
}

pub(super) fn get_loop(id: &LoopId) -> Statement {
    Statement::new("read a loop", "SELECT * FROM everloop.loops WHERE id = $1").text(id.as_str())
}

pub(super) fn task(id: &TaskId) -> Statement {
    Statement::new("read a task", "SELECT * FROM everloop.tasks WHERE id = $1").text(id.as_str())
}

/// One part per state, each along an index, merged by the caller: a listing never sorts a million
/// finished tasks.
pub(super) fn tasks(filter: &TaskFilter) -> Statement {
    let limit = signed(filter.limit);
    let whose = match &filter.owner {
        TaskOwner::Any => "",
        TaskOwner::Nobody => " AND owner IS NULL",
        TaskOwner::Loop(_) => " AND owner = $1",
    };
    let wanted = |state: &StateName| filter.states.is_empty() || filter.states.contains(state);
    let part = |state: StateName| {
        format!(
            "(SELECT * FROM everloop.tasks WHERE state = '{}'{whose} ORDER BY created_at DESC, id DESC LIMIT {limit})",
            state.label()
        )
    };
    let parts: Vec<String> = StateName::ALL.into_iter().filter(wanted).map(part).collect();
    let statement = Statement::new("list tasks", parts.join(" UNION ALL "));
    match &filter.owner {
        TaskOwner::Loop(id) => statement.text(id.as_str()),
        TaskOwner::Any | TaskOwner::Nobody => statement,
    }
}

pub(super) fn late_results(task: &TaskId) -> Statement {
    Statement::new("read the late results", "SELECT * FROM everloop.shelf WHERE task = $1 ORDER BY id")
        .text(task.as_str())
}

pub(super) fn nodes() -> Statement {
    Statement::new("read the nodes", "SELECT * FROM everloop.nodes ORDER BY id")
}

pub(super) fn leader() -> Statement {
    Statement::new("read the leader", "SELECT * FROM everloop.leader")
}

pub(super) fn guard(scope: &str) -> Statement {
    Statement::new("read a guard", "SELECT * FROM everloop.guards WHERE scope = $1").text(scope)
}

pub(super) fn doc(kind: &str, key: &str) -> Statement {
    Statement::new("read a document", "SELECT * FROM everloop.docs WHERE kind = $1 AND key = $2").text(kind).text(key)
}

pub(super) fn docs(kind: &str) -> Statement {
    Statement::new("read the documents", "SELECT * FROM everloop.docs WHERE kind = $1 ORDER BY key").text(kind)
}

pub(super) fn guards() -> Statement {
    Statement::new("read the guards", "SELECT * FROM everloop.guards")
}

pub(super) fn messages(to: Recipients<'_>, limit: usize) -> Statement {
    let (doing, limit) = ("read the messages", signed(limit));
    match to {
        Recipients::All => Statement::new(doing, format!("SELECT * FROM everloop.messages ORDER BY id LIMIT {limit}")),
        Recipients::These(names) => {
            let sql = "SELECT * FROM everloop.messages WHERE recipient = ANY($1) ORDER BY id LIMIT";
            Statement::new(doing, format!("{sql} {limit}")).texts(names)
        }
    }
}

pub(super) fn tickets(which: Tickets) -> Statement {
    let doing = "read the tickets";
    match which {
        Tickets::Open => Statement::new(doing, "SELECT * FROM everloop.tickets WHERE closed_at IS NULL ORDER BY id"),
        Tickets::Newest(n) => {
            let newest = format!("SELECT * FROM everloop.tickets ORDER BY id DESC LIMIT {}", signed(n));
            Statement::new(doing, format!("SELECT * FROM ({newest}) t ORDER BY id"))
        }
    }
}

/// Each row comes with the checksum of the row before it, found by its key: every record can be
/// checked.
const LINKED: &str = "SELECT j.*, p.sum AS previous_sum FROM everloop.journal j
                      LEFT JOIN everloop.journal p ON p.seq = j.seq - 1";

pub(super) fn journal(after_seq: u64, owner: Option<&LoopId>, limit: usize) -> Statement {
    let limit = signed(limit);
    match owner {
        None => {
            let sql = format!("{LINKED} WHERE j.seq > $1 ORDER BY j.seq LIMIT {limit}");
            Statement::new("read the journal", sql).number(after(after_seq))
        }
        Some(id) => {
            let sql = format!("{LINKED} WHERE j.owner = $2 AND j.seq > $1 ORDER BY j.seq LIMIT {limit}");
            Statement::new("read a loop's journal", sql).number(after(after_seq)).text(id.as_str())
        }
    }
}

/// Newest first; the caller turns it round.
pub(super) fn journal_tail(owner: Option<&LoopId>, limit: usize) -> Statement {
    let limit = signed(limit);
    match owner {
        None => Statement::new("read the end of the journal", format!("{LINKED} ORDER BY j.seq DESC LIMIT {limit}")),
        Some(id) => {
            let sql = format!("{LINKED} WHERE j.owner = $1 ORDER BY j.seq DESC LIMIT {limit}");
            Statement::new("read the end of a loop's journal", sql).text(id.as_str())
        }
    }
}

pub(super) fn journal_raw(after_seq: u64, limit: usize) -> Statement {
    let sql = format!("SELECT * FROM everloop.journal WHERE seq > $1 ORDER BY seq LIMIT {}", signed(limit));
    Statement::new("read the journal's rows", sql).number(after(after_seq))
}

/// The last record itself, not the head: only what was written counts.
pub(super) fn last_seq() -> Statement {
    Statement::new("find the end of the journal", "SELECT seq FROM everloop.journal ORDER BY seq DESC LIMIT 1")
}
