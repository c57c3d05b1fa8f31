//! What the mirror reads from a hub, and how an empty hub is restored from a mirror.

use std::time::Duration;

use everloop_core::ids::{LoopId, TaskId};
use everloop_core::op::TaskRow;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::connection::{BEGIN, HubConnection, Statement, StatementEnd};
use super::write::{with_new, with_standing};
use super::{Postgres, columns};
use crate::Error;
use crate::mirror::{MirrorSource, Rows, TaskMark};

/// Limit of a whole restore: a person waits, and a hub that does not reply in this time will not.
const RESTORE_WITHIN: Duration = Duration::from_secs(120);
/// Rows in one statement: each stays far below the hub's time limit.
const AT_ONCE: usize = 500;

impl MirrorSource for Postgres {
    fn loop_marks(&self) -> Result<Vec<(LoopId, u64)>, Error> {
        let statement = Statement::new("look for changed loops", "SELECT id, version FROM everloop.loops");
        self.all(statement, |row| pair(row).map(|(id, version)| (LoopId::new(id), version)))
    }

    fn doc_marks(&self) -> Result<Vec<(String, String, u64)>, Error> {
        let sql = "SELECT kind, key AS id, version FROM everloop.docs";
        self.all(Statement::new("look for changed documents", sql), |row| {
            let (key, version) = pair(row)?;
            Ok((columns::plain(row, "kind").map_err(columns::shape("a document"))?, key, version))
        })
    }

    fn task_marks(&self, completed: usize) -> Result<Vec<TaskMark>, Error> {
        let part = |state: &str| {
            let limit = if ["done", "dead"].contains(&state) { format!("LIMIT {completed}") } else { String::new() };
            format!(
                "(SELECT id, state, updated_at, fence, failures, coalesce(until, 0) AS until FROM everloop.tasks
                  WHERE state = '{state}' ORDER BY created_at DESC, id DESC {limit})"
            )
        };
        let parts = ["queued", "leased", "blocked", "done", "dead"].map(part);
        self.all(Statement::new("look for changed tasks", parts.join(" UNION ALL ")), |row| {
            let read = || -> Result<TaskMark, tokio_postgres::Error> {
                let state = columns::plain(row, "state")?;
                let numbers = ["updated_at", "fence", "failures", "until"].map(|column| row.try_get::<_, i64>(column));
                let [updated_at, fence, failures, until] = numbers;
                Ok(TaskMark::new(columns::plain(row, "id")?, &state, [updated_at?, fence?, failures?, until?]))
            };
            read().map_err(columns::shape("a task"))
        })
    }

    fn late_results_after(&self, number: u64) -> Result<Vec<(u64, TaskId)>, Error> {
        let sql = "SELECT id AS version, task AS id FROM everloop.shelf WHERE id > $1 ORDER BY version";
        let after = i64::try_from(number).unwrap_or(i64::MAX);
        let statement = Statement::new("look for late results", sql).number(after);
        self.all(statement, |row| pair(row).map(|(task, number)| (number, TaskId::new(task))))
    }
}

pub(super) fn pair(row: &Row) -> Result<(String, u64), Error> {
    let read =
        || -> Result<_, tokio_postgres::Error> { Ok((columns::plain(row, "id")?, columns::number(row, "version")?)) };
    read().map_err(columns::shape("a row"))
}

impl Postgres {
    /// Fills an empty hub with `rows` and gives it the `id` of the lost one, so that its nodes
    /// recognise it; in one transaction. False when it is not empty.
    pub fn restore(&mut self, id: &str, rows: &Rows) -> Result<bool, Error> {
        let doing = "restore the hub";
        let made = self.waiter.wait(async || {
            let line = HubConnection::connect(&self.options.url).await?;
            timeout(RESTORE_WITHIN, restore(&line, id, rows)).await.map_err(|late| line.too_late(doing, late))?
        })?;
        if made {
            id.clone_into(&mut self.id);
            // The next call finds the hub under its old id.
            *self.line.lock().expect("no call panics while it holds the line") = None;
        }
        Ok(made)
    }
}

async fn restore(line: &HubConnection, id: &str, rows: &Rows) -> Result<bool, Error> {
    let doing = "look whether the hub is empty";
    // It locks the hub, which keeps another node from doing the same at this moment; commit and
    // rollback both release it.
    let adopt = [Statement::new(doing, "SELECT everloop.adopt($1) AS empty").text(id)];
    let found = line.send(Some(BEGIN), &adopt, StatementEnd::Open).await?;
    let empty: bool =
        found[0].first().map_or(Ok(false), |row| row.try_get("empty")).map_err(columns::shape("the hub"))?;
    if !empty {
        line.rollback().await?;
        return Ok(false);
    }
    for statement in statements(rows) {
        line.send(None, &[statement], StatementEnd::Open).await?;
    }
    line.send(None, &[], StatementEnd::Commit).await?;
    Ok(true)
}

fn statements(rows: &Rows) -> Vec<Statement> {
    let mut all: Vec<Statement> = rows.tasks.chunks(AT_ONCE).map(tasks).collect();
    all.extend(rows.late_results.chunks(AT_ONCE).map(|late| {
        let sql = "INSERT INTO everloop.shelf (task, fence, at, result)
                   SELECT w.task, w.fence, w.at, w.result FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])
                   WITH ORDINALITY w (task, fence, at, result, place) ORDER BY w.place";
        Statement::new("restore late results", sql)
            .texts(late.iter().map(|s| s.task.as_str()))
            .numbers(late.iter().map(|s| s.fence.0 as i64))
            .numbers(late.iter().map(|s| s.at.0))
            .texts(late.iter().map(|s| &s.result))
    }));
    all.extend(rows.docs.chunks(AT_ONCE).map(|docs| {
        let sql = "INSERT INTO everloop.docs (name, kind, key, version, updated_at, body)
                   SELECT w.* FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[]) w";
        Statement::new("restore documents", sql)
            .texts(docs.iter().map(|(kind, doc)| format!("{kind}\u{1f}{}", doc.key)))
            .texts(docs.iter().map(|(kind, _)| kind))
            .texts(docs.iter().map(|(_, doc)| &doc.key))
            .numbers(docs.iter().map(|(_, doc)| doc.version as i64))
            .numbers(docs.iter().map(|(_, doc)| doc.updated_at.0))
            .texts(docs.iter().map(|(_, doc)| &doc.body))
    }));
    all.extend(records(rows));
    all.extend(heads(rows));
    all
}

fn tasks(rows: &[TaskRow]) -> Statement {
    let statement = Statement::new(
        "restore tasks",
        "INSERT INTO everloop.tasks (id, owner, kind, title, prompt, priority, deps, author, trust, ready_at, state, node,
                                     until, fence, failures, result, created_at, updated_at)
         SELECT w.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[],
                                $8::text[], $9::text[], $10::bigint[], $11::text[], $12::text[], $13::bigint[],
                                $14::bigint[], $15::bigint[], $16::text[], $17::bigint[], $18::bigint[]) w",
    );
    with_standing(with_new(statement, rows.iter().map(|r| &r.task)), rows.iter())
        .numbers(rows.iter().map(|r| r.created_at.0))
        .numbers(rows.iter().map(|r| r.updated_at.0))
}

fn records(rows: &Rows) -> Vec<Statement> {
    let mut all: Vec<Statement> = Vec::new();
    all.extend(rows.journal.chunks(AT_ONCE).map(super::write::journal_rows));
    all.extend(rows.tickets.chunks(AT_ONCE).map(super::write::ticket_rows));
    all.extend(rows.messages.chunks(AT_ONCE).map(super::write::message_rows));
    let guards: Vec<(String, i64, String)> = rows
        .guards
        .iter()
        .map(|(scope, guard)| {
            let state = serde_json::to_string(&guard.state).expect("a guard is plain data and always has a JSON form");
            (scope.to_string(), guard.version as i64, state)
        })
        .collect();
    all.extend(guards.chunks(AT_ONCE).map(|guards| {
        let sql = "INSERT INTO everloop.guards (scope, version, state)
                   SELECT w.* FROM unnest($1::text[], $2::bigint[], $3::text[]) w";
        Statement::new("restore guards", sql)
            .texts(guards.iter().map(|(scope, _, _)| scope))
            .numbers(guards.iter().map(|(_, version, _)| *version))
            .texts(guards.iter().map(|(_, _, state)| state))
    }));
    if let Some(leader) = &rows.leader {
        let sql = "INSERT INTO everloop.leader (single, node, epoch, until) VALUES (1, $1, $2, $3)";
        let statement = Statement::new("restore the leader lease", sql).text(leader.node.as_str());
        all.push(statement.number(leader.term as i64).number(leader.until.0));
    }
    all
}

/// Sequences continue after the restored rows.
fn heads(rows: &Rows) -> [Statement; 3] {
    let head = |name: &str, value: u64, sum: u32| {
        Statement::new("write the heads", "UPDATE everloop.heads SET value = $2, sum = $3 WHERE name = $1")
            .text(name)
            .number(value as i64)
            .number(i64::from(sum))
    };
    let last = rows.journal.last();
    [
        head("journal", last.map_or(0, |r| r.seq), last.map_or(0, |r| r.sum)),
        head("messages", rows.messages.iter().map(|m| m.id).max().unwrap_or(0), 0),
        head("tickets", rows.tickets.iter().map(|t| t.id).max().unwrap_or(0), 0),
    ]
}
