//! Reads. Each is one statement and so one snapshot; none of them takes a lock that a writer would
//! wait for.

use everloop_core::guard::{Guards, Scope, Versioned};
use everloop_core::ids::{LoopId, TaskId};
use everloop_core::journal::{JournalRecord, Stored};
use everloop_core::op::{LateResult, Message, TaskRow, Ticket};
use everloop_core::time::Time;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::{columns, sql};
use crate::Error;
use crate::rows::{DocRow, Leader, LoopRow, NodeRow, Recipients, StateName, TaskFilter, TaskOwner, Tickets};

/// A query and its purpose for error messages.
pub(super) struct Query {
    pub(super) doing: &'static str,
    pub(super) sql: &'static str,
}

/// The index `tasks_waiting` keeps the order of claims; the text `state IN ('queued', 'leased')`
/// has to equal that of the index for SQLite to use it.
pub(super) const READY: Query = Query {
    doing: "find ready tasks",
    sql: "SELECT * FROM tasks
          WHERE owner IS ?2 AND state IN ('queued', 'leased')
            AND CASE state WHEN 'queued' THEN ready_at ELSE until END <= ?1
            AND (deps = '[]'
                 OR NOT EXISTS (SELECT 1 FROM json_each(tasks.deps) d LEFT JOIN tasks t ON t.id = d.value
                                WHERE t.state IS NOT 'done'
                                   OR (t.result GLOB '{\"is\":\"*' AND t.result NOT GLOB '{\"is\":\"reached\"*'
                                       AND t.result NOT GLOB '{\"is\":\"progress\"*'
                                       AND t.result NOT GLOB '{\"is\":\"not_yet\"*')))
          ORDER BY priority DESC, created_at, id LIMIT ?3",
};

/// Listings use `tasks_by_state` and `tasks_by_owner`.
pub(super) const TASKS: Query = Query {
    doing: "list tasks",
    sql: "SELECT * FROM tasks WHERE state = ?1 ORDER BY created_at DESC, id DESC LIMIT ?2",
};
pub(super) const TASKS_OF: Query = Query {
    doing: "list a loop's tasks",
    sql: "SELECT * FROM tasks WHERE owner IS ?3 AND state = ?1 ORDER BY created_at DESC, id DESC LIMIT ?2",
};

/// Each row comes with the checksum of the row before it, found by its key, so that every record
/// can be verified.
pub(super) const JOURNAL: Query = Query {
    doing: "read the journal",
    sql: "SELECT j.*, p.sum AS previous_sum FROM journal j LEFT JOIN journal p ON p.seq = j.seq - 1
          WHERE j.seq > ?1 ORDER BY j.seq LIMIT ?2",
};
pub(super) const JOURNAL_OF: Query = Query {
    doing: "read a loop's journal",
    sql: "SELECT j.*, p.sum AS previous_sum FROM journal j LEFT JOIN journal p ON p.seq = j.seq - 1
          WHERE j.owner = ?3 AND j.seq > ?1 ORDER BY j.seq LIMIT ?2",
};
pub(super) const TAIL: Query = Query {
    doing: "read the end of the journal",
    sql: "SELECT j.*, p.sum AS previous_sum FROM journal j LEFT JOIN journal p ON p.seq = j.seq - 1
          ORDER BY j.seq DESC LIMIT ?1",
};
pub(super) const TAIL_OF: Query = Query {
    doing: "read the end of a loop's journal",
    sql: "SELECT j.*, p.sum AS previous_sum FROM journal j LEFT JOIN journal p ON p.seq = j.seq - 1
          WHERE j.owner = ?2 ORDER BY j.seq DESC LIMIT ?1",
};

impl Query {
    pub(super) fn all<T>(
        &self,
        conn: &Connection,
        params: impl Params,
        row: impl FnMut(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Vec<T>, Error> {
        let mut statement = conn.prepare_cached(self.sql).map_err(sql(self.doing))?;
        let rows = statement.query_map(params, row).map_err(sql(self.doing))?;
        rows.collect::<Result<_, _>>().map_err(sql(self.doing))
    }

    pub(super) fn one<T>(
        &self,
        conn: &Connection,
        params: impl Params,
        row: impl FnOnce(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Option<T>, Error> {
        let mut statement = conn.prepare_cached(self.sql).map_err(sql(self.doing))?;
        statement.query_row(params, row).optional().map_err(sql(self.doing))
    }
}

/// SQLite counts in signed numbers; no listing is longer.
pub(super) fn signed(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn loops(conn: &Connection) -> Result<Vec<LoopRow>, Error> {
    let query = Query { doing: "read the loops", sql: "SELECT * FROM loops ORDER BY id" };
    query.all(conn, (), columns::loop_row)
}

pub(super) fn get_loop(conn: &Connection, id: &LoopId) -> Result<Option<LoopRow>, Error> {
    let query = Query { doing: "read a loop", sql: "SELECT * FROM loops WHERE id = ?1" };
    query.one(conn, [id.as_str()], columns::loop_row)
}

pub(super) fn task(conn: &Connection, id: &TaskId) -> Result<Option<TaskRow>, Error> {
    let query = Query { doing: "read a task", sql: "SELECT * FROM tasks WHERE id = ?1" };
    query.one(conn, [id.as_str()], columns::task)?.map(columns::RawTask::understood).transpose()
}

/// One query per state, each along an index, merged here: a listing never sorts a million finished
/// tasks.
pub(super) fn tasks(conn: &Connection, filter: &TaskFilter) -> Result<Vec<TaskRow>, Error> {
    let mut rows = Vec::new();
    for state in StateName::ALL {
        if !filter.states.is_empty() && !filter.states.contains(&state) {
            continue;
        }
        let (label, limit) = (state.label(), signed(filter.limit));
        let found = match &filter.owner {
            TaskOwner::Any => TASKS.all(conn, params![label, limit], columns::task)?,
            TaskOwner::Nobody => TASKS_OF.all(conn, params![label, limit, None::<&str>], columns::task)?,
            TaskOwner::Loop(id) => TASKS_OF.all(conn, params![label, limit, id.as_str()], columns::task)?,
        };
        for raw in found {
            rows.push(raw.understood()?);
        }
    }
    rows.sort_by(|a, b| (b.created_at, &b.task.id).cmp(&(a.created_at, &a.task.id)));
    rows.truncate(filter.limit);
    Ok(rows)
}

/// Up to `n` tasks that may be taken, in the order of claims.
pub(super) fn ready(conn: &Connection, now: Time, owner: Option<&LoopId>, n: u32) -> Result<Vec<TaskRow>, Error> {
    let rows = READY.all(conn, params![now.0, owner.map(LoopId::as_str), n], columns::task)?;
    rows.into_iter().map(columns::RawTask::understood).collect()
}

/// Whether all dependencies of a task unlock it.
pub(super) fn deps_done(conn: &Connection, id: &TaskId) -> Result<bool, Error> {
    let query = Query {
        doing: "look at a task's dependencies",
        sql: "SELECT NOT EXISTS (SELECT 1 FROM tasks, json_each(tasks.deps) d LEFT JOIN tasks t ON t.id = d.value
                                 WHERE tasks.id = ?1
                                   AND (t.state IS NOT 'done'
                                        OR (t.result GLOB '{\"is\":\"*' AND t.result NOT GLOB '{\"is\":\"reached\"*'
                                            AND t.result NOT GLOB '{\"is\":\"progress\"*'
                                            AND t.result NOT GLOB '{\"is\":\"not_yet\"*')))",
    };
    Ok(query.one(conn, [id.as_str()], |row| row.get(0))?.unwrap_or(true))
}

pub(super) fn late_results(conn: &Connection, task: &TaskId) -> Result<Vec<LateResult>, Error> {
    let query = Query { doing: "read the late results", sql: "SELECT * FROM shelf WHERE task = ?1 ORDER BY id" };
    query.all(conn, [task.as_str()], columns::late_result)
}

pub(super) fn nodes(conn: &Connection) -> Result<Vec<NodeRow>, Error> {
    let query = Query { doing: "read the nodes", sql: "SELECT * FROM nodes ORDER BY id" };
    query.all(conn, (), columns::node)
}

pub(super) fn leader(conn: &Connection) -> Result<Option<Leader>, Error> {
    let query = Query { doing: "read the leader", sql: "SELECT * FROM leader" };
    query.one(conn, (), columns::leader)
}

pub(super) fn guard(conn: &Connection, scope: &Scope) -> Result<Versioned, Error> {
    let query = Query { doing: "read a guard", sql: "SELECT * FROM guards WHERE scope = ?1" };
    match query.one(conn, [scope.to_string()], columns::guard)? {
        None => Ok(Versioned::default()),
        Some(raw) => columns::guard_understood(raw).map(|(_, versioned)| versioned),
    }
}

pub(super) fn guards(conn: &Connection) -> Result<Guards, Error> {
    let query = Query { doing: "read the guards", sql: "SELECT * FROM guards" };
    query.all(conn, (), columns::guard)?.into_iter().map(columns::guard_understood).collect()
}

pub(super) fn doc(conn: &Connection, kind: &str, key: &str) -> Result<Option<DocRow>, Error> {
    let query = Query { doing: "read a document", sql: "SELECT * FROM docs WHERE kind = ?1 AND key = ?2" };
    query.one(conn, [kind, key], columns::doc)
}

pub(super) fn docs(conn: &Connection, kind: &str) -> Result<Vec<DocRow>, Error> {
    let query = Query { doing: "read the documents", sql: "SELECT * FROM docs WHERE kind = ?1 ORDER BY key" };
    query.all(conn, [kind], columns::doc)
}

pub(super) fn messages(conn: &Connection, to: Recipients<'_>, limit: usize) -> Result<Vec<Message>, Error> {
    let doing = "read the messages";
    let all = Query { doing, sql: "SELECT * FROM messages ORDER BY id LIMIT ?1" };
    let these = Query {
        doing,
        sql: "SELECT * FROM messages WHERE recipient IN (SELECT value FROM json_each(?2)) ORDER BY id LIMIT ?1",
    };
    match to {
        Recipients::All => all.all(conn, [signed(limit)], columns::message),
        Recipients::These(names) => {
            let names = serde_json::to_string(names).expect("a list of texts always has a JSON form");
            these.all(conn, params![signed(limit), names], columns::message)
        }
    }
}

pub(super) fn tickets(conn: &Connection, which: Tickets) -> Result<Vec<Ticket>, Error> {
    let doing = "read the tickets";
    let open = Query { doing, sql: "SELECT * FROM tickets WHERE closed_at IS NULL ORDER BY id" };
    let newest = Query { doing, sql: "SELECT * FROM (SELECT * FROM tickets ORDER BY id DESC LIMIT ?1) ORDER BY id" };
    match which {
        Tickets::Open => open.all(conn, (), columns::ticket),
        Tickets::Newest(n) => newest.all(conn, [signed(n)], columns::ticket),
    }
}

pub(super) fn journal(
    conn: &Connection,
    after_seq: u64,
    owner: Option<&LoopId>,
    limit: usize,
) -> Result<Vec<JournalRecord>, Error> {
    let (after, limit) = (i64::try_from(after_seq).unwrap_or(i64::MAX), signed(limit));
    let rows = match owner {
        None => JOURNAL.all(conn, [after, limit], columns::linked)?,
        Some(id) => JOURNAL_OF.all(conn, params![after, limit, id.as_str()], columns::linked)?,
    };
    rows.into_iter().map(columns::record).collect()
}

pub(super) fn journal_tail(
    conn: &Connection,
    owner: Option<&LoopId>,
    limit: usize,
) -> Result<Vec<JournalRecord>, Error> {
    let rows = match owner {
        None => TAIL.all(conn, [signed(limit)], columns::linked)?,
        Some(id) => TAIL_OF.all(conn, params![signed(limit), id.as_str()], columns::linked)?,
    };
    rows.into_iter().rev().map(columns::record).collect()
}

pub(super) fn journal_raw(conn: &Connection, after_seq: u64, limit: usize) -> Result<Vec<Stored>, Error> {
    let query =
        Query { doing: "read the journal's rows", sql: "SELECT * FROM journal WHERE seq > ?1 ORDER BY seq LIMIT ?2" };
    let after = i64::try_from(after_seq).unwrap_or(i64::MAX);
    query.all(conn, [after, signed(limit)], columns::stored)
}

pub(super) fn last_seq(conn: &Connection) -> Result<u64, Error> {
    Ok(journal_end(conn)?.0)
}

/// Sequence number and checksum of the last record; zeros for an empty journal.
pub(super) fn journal_end(conn: &Connection) -> Result<(u64, u32), Error> {
    let query =
        Query { doing: "find the end of the journal", sql: "SELECT seq, sum FROM journal ORDER BY seq DESC LIMIT 1" };
    let end = query.one(conn, (), |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)))?;
    Ok(end.unwrap_or_default())
}

pub(super) fn data_version(conn: &Connection) -> Result<u64, Error> {
    let query = Query { doing: "check for changes", sql: "PRAGMA data_version" };
    Ok(query.one(conn, (), |row| row.get::<_, i64>(0))?.unwrap_or(0) as u64)
}

pub(super) fn check_integrity(conn: &Connection) -> Result<Vec<String>, Error> {
    let query = Query { doing: "check the ledger's file", sql: "PRAGMA integrity_check" };
    let mut found: Vec<String> = query.all(conn, (), |row| row.get(0))?;
    found.retain(|line| line != "ok");
    Ok(found)
}
