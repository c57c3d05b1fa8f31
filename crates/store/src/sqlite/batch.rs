//! Operations: one batch is one transaction. The rows are read, the shared rules decide, the rows
//! are written.

use everloop_core::event::Event;
use everloop_core::guard::{GuardState, Scope};
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::journal;
use everloop_core::op::{Amendment, NewTask, Op, Refusal, Reply, TaskEnd, TaskRow};
use everloop_core::time::Time;
use rusqlite::{Connection, Params, Transaction, TransactionBehavior, params};

use super::chain::{self, ChainKey};
use super::{columns, read, sql};
use crate::rows::Leader;
use crate::{Error, leader, task};

/// Performs all of `ops` or none. The write lock is taken before the first read, so no row can
/// change between a decision and the commit; dropping the transaction without a commit rolls it
/// back.
pub(super) fn run(conn: &mut Connection, key: Option<&ChainKey>, now: Time, ops: &[Op]) -> Result<Vec<Reply>, Error> {
    let batch = Batch::begin(conn, key, now)?;
    let replies = ops.iter().map(|op| batch.apply(op)).collect::<Result<_, _>>()?;
    batch.tx.commit().map_err(sql("commit a transaction"))?;
    Ok(replies)
}

pub(super) struct Batch<'a> {
    pub(super) tx: Transaction<'a>,
    key: Option<&'a ChainKey>,
    pub(super) now: Time,
}

impl<'a> Batch<'a> {
    pub(super) fn begin(conn: &'a mut Connection, key: Option<&'a ChainKey>, now: Time) -> Result<Self, Error> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql("begin a transaction"))?;
        Ok(Self { tx, key, now })
    }

    pub(super) fn apply(&self, op: &Op) -> Result<Reply, Error> {
        match op {
            Op::Enqueue(task) => self.enqueue(task),
            Op::Claim { node, n, owner, lease } => self.claim(node, *n, owner.as_ref(), self.now + *lease),
            Op::Take { task, fence, node, lease } => self.take(task, *fence, node, self.now + *lease),
            Op::Renew { task, fence, lease } => {
                let until = self.now + *lease;
                self.change(task, |row, now| task::renew(row, *fence, until, now))
            }
            Op::Finish { task, fence, state, result } => self.finish(task, *fence, *state, result),
            Op::Release { task, fence, ready_at, failed } => self.change(task, |row, now| {
                task::check_held(row, *fence)?;
                task::release(row, *ready_at, u32::from(*failed), now);
                Ok(())
            }),
            Op::Shelve { task, fence, result } => self.shelve(task, *fence, result),
            Op::Amend { task, change } => self.amend(task, change),
            Op::Heartbeat { node, info } => self.heartbeat(node, info),
            Op::Elect { node, lease } => self.elect(node, self.now + *lease),
            Op::Lead { node, term } => {
                leader::check_lead(read::leader(&self.tx)?.as_ref(), node, *term, self.now)?;
                Ok(Reply::Ok)
            }
            Op::Resign { node, term } => self.resign(node, *term),
            Op::SaveGuard { scope, version, state } => self.save_guard(scope, *version, state),
            Op::SaveLoop { id, version, phase, state } => self.save_loop(id, *version, phase, state),
            Op::SaveDoc { kind, key, version, body } => self.save_doc((kind, key), *version, body),
            Op::Signal { to, by, body } => self.signal(to, by, body),
            Op::Consume { ids } => self.consume(ids),
            Op::Stream(op) => self.stream(op),
            Op::OpenTicket { key, owner, text } => self.open_ticket(key, owner.as_ref(), text),
            Op::CloseTicket { key, answer } => self.close_ticket(key, answer),
            Op::Append { owner, events } => self.append(owner.as_ref(), events),
        }
    }

    fn enqueue(&self, task: &NewTask) -> Result<Reply, Error> {
        if read::task(&self.tx, &task.id)?.is_some() {
            return Ok(Reply::Made(false));
        }
        task::check_deps(task, |dep| Ok::<_, Error>(read::task(&self.tx, dep)?.is_some()))?;
        insert_task(&self.tx, &task::queued(task, self.now)).map_err(sql("queue a task"))?;
        Ok(Reply::Made(true))
    }

    fn claim(&self, node: &NodeId, n: u32, owner: Option<&LoopId>, until: Time) -> Result<Reply, Error> {
        let mut rows = read::ready(&self.tx, self.now, owner, n)?;
        for row in &mut rows {
            task::lease(row, node, until, self.now);
            self.put_task(row)?;
        }
        Ok(Reply::Claimed(rows))
    }

    fn take(&self, id: &TaskId, fence: Fence, node: &NodeId, until: Time) -> Result<Reply, Error> {
        let mut row = self.row(id)?;
        task::check_take(&row, fence, self.now)?;
        if !read::deps_done(&self.tx, id)? {
            return Err(task::held_by_deps(&row).into());
        }
        task::lease(&mut row, node, until, self.now);
        self.put_task(&row)?;
        Ok(Reply::Ok)
    }

    /// Most finishes succeed, and then no row has to be read; otherwise the rules give the refusal.
    fn finish(&self, id: &TaskId, fence: Fence, end: TaskEnd, result: &str) -> Result<Reply, Error> {
        let ended = self.write(
            "finish a task",
            "UPDATE tasks SET state = ?3, node = NULL, until = NULL, result = ?4, updated_at = ?5
             WHERE id = ?1 AND fence = ?2 AND +state = 'leased'",
            params![id.as_str(), fence.0 as i64, task::end_label(end), result, self.now.0],
        )?;
        if ended == 1 {
            return Ok(Reply::Ok);
        }
        self.change(id, |row, now| {
            task::check_held(row, fence)?;
            task::finish(row, end, result, now);
            Ok(())
        })
    }

    /// Renew and release: one row, changed by one rule.
    fn change(
        &self,
        id: &TaskId,
        rule: impl FnOnce(&mut TaskRow, Time) -> Result<(), Refusal>,
    ) -> Result<Reply, Error> {
        let mut row = self.row(id)?;
        rule(&mut row, self.now)?;
        self.put_task(&row)?;
        Ok(Reply::Ok)
    }

    fn shelve(&self, id: &TaskId, fence: Fence, result: &str) -> Result<Reply, Error> {
        self.row(id)?;
        self.write(
            "shelve a result",
            "INSERT INTO shelf (task, fence, at, result) SELECT ?1, ?2, ?3, ?4
             WHERE NOT EXISTS (SELECT 1 FROM shelf WHERE task = ?1 AND fence = ?2 AND result = ?4)",
            params![id.as_str(), fence.0 as i64, self.now.0, result],
        )?;
        Ok(Reply::Ok)
    }

    fn amend(&self, id: &TaskId, change: &Amendment) -> Result<Reply, Error> {
        self.change(id, |row, now| task::amend(row, change, now))
    }

    fn heartbeat(&self, node: &NodeId, info: &str) -> Result<Reply, Error> {
        self.write(
            "write a heartbeat",
            "INSERT INTO nodes (id, info, seen_at) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET info = excluded.info, seen_at = excluded.seen_at",
            params![node.as_str(), info, self.now.0],
        )?;
        Ok(Reply::Ok)
    }

    fn elect(&self, node: &NodeId, until: Time) -> Result<Reply, Error> {
        let current = read::leader(&self.tx)?;
        let Some(elected) = leader::elect(current.as_ref(), node, until, self.now) else {
            return Ok(Reply::Elected(None));
        };
        self.put_leader(&elected)?;
        Ok(Reply::Elected(Some(elected.term)))
    }

    fn resign(&self, node: &NodeId, term: u64) -> Result<Reply, Error> {
        if let Some(resigned) = leader::resign(read::leader(&self.tx)?.as_ref(), node, term, self.now) {
            self.put_leader(&resigned)?;
        }
        Ok(Reply::Ok)
    }

    fn put_leader(&self, leader: &Leader) -> Result<(), Error> {
        self.write(
            "elect a leader",
            "INSERT INTO leader (only, node, epoch, until) VALUES (1, ?1, ?2, ?3)
             ON CONFLICT (only) DO UPDATE SET node = excluded.node, epoch = excluded.epoch, until = excluded.until",
            params![leader.node.as_str(), leader.term as i64, leader.until.0],
        )
        .map(drop)
    }

    fn save_guard(&self, scope: &Scope, version: u64, state: &GuardState) -> Result<Reply, Error> {
        let name = scope.to_string();
        let json = serde_json::to_string(state).expect("a guard's state is plain data and always has a JSON form");
        let written = self.write(
            "save a guard",
            "INSERT INTO guards (scope, version, state) SELECT ?1, 1, ?3
             WHERE ?2 = 0 OR EXISTS (SELECT 1 FROM guards WHERE scope = ?1)
             ON CONFLICT (scope) DO UPDATE SET version = version + 1, state = excluded.state WHERE version = ?2",
            params![name, version as i64, json],
        )?;
        saved(written, version, || format!("guard {name}"))
    }

    fn save_loop(&self, id: &LoopId, version: u64, phase: &str, state: &str) -> Result<Reply, Error> {
        let written = self.write(
            "save a loop",
            "INSERT INTO loops (id, version, phase, updated_at, state) SELECT ?1, 1, ?3, ?4, ?5
             WHERE ?2 = 0 OR EXISTS (SELECT 1 FROM loops WHERE id = ?1)
             ON CONFLICT (id) DO UPDATE SET version = version + 1, phase = excluded.phase,
                                            updated_at = excluded.updated_at, state = excluded.state
                                        WHERE version = ?2",
            params![id.as_str(), version as i64, phase, self.now.0, state],
        )?;
        saved(written, version, || format!("loop {id}"))
    }

    fn save_doc(&self, (kind, key): (&str, &str), version: u64, body: &str) -> Result<Reply, Error> {
        let written = self.write(
            "save a document",
            "INSERT INTO docs (kind, key, version, updated_at, body) SELECT ?1, ?2, 1, ?4, ?5
             WHERE ?3 = 0 OR EXISTS (SELECT 1 FROM docs WHERE kind = ?1 AND key = ?2)
             ON CONFLICT (kind, key) DO UPDATE SET version = version + 1, updated_at = excluded.updated_at,
                                                   body = excluded.body
                                               WHERE version = ?3",
            params![kind, key, version as i64, self.now.0, body],
        )?;
        saved(written, version, || format!("{kind} {key}"))
    }

    fn signal(&self, to: &str, by: &str, body: &str) -> Result<Reply, Error> {
        self.write(
            "leave a message",
            "INSERT INTO messages (at, recipient, sender, body) VALUES (?1, ?2, ?3, ?4)",
            params![self.now.0, to, by, body],
        )?;
        Ok(Reply::Sent(self.tx.last_insert_rowid() as u64))
    }

    fn consume(&self, ids: &[u64]) -> Result<Reply, Error> {
        for id in ids {
            let taken = self.write("take a message", "DELETE FROM messages WHERE id = ?1", [*id as i64])?;
            if taken == 0 {
                return Err(Refusal::Gone { what: format!("message {id}") }.into());
            }
        }
        Ok(Reply::Ok)
    }

    fn open_ticket(&self, key: &str, owner: Option<&LoopId>, text: &str) -> Result<Reply, Error> {
        let made = self.write(
            "open a ticket",
            "INSERT INTO tickets (key, owner, text, opened_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (key) WHERE closed_at IS NULL DO NOTHING",
            params![key, owner.map(LoopId::as_str), text, self.now.0],
        )?;
        Ok(Reply::Made(made == 1))
    }

    fn close_ticket(&self, key: &str, answer: &str) -> Result<Reply, Error> {
        self.write(
            "close a ticket",
            "UPDATE tickets SET closed_at = ?2, answer = ?3 WHERE key = ?1 AND closed_at IS NULL",
            params![key, self.now.0, answer],
        )?;
        Ok(Reply::Ok)
    }

    pub(super) fn append(&self, owner: Option<&LoopId>, events: &[Event]) -> Result<Reply, Error> {
        let (mut seq, mut sum) = read::journal_end(&self.tx)?;
        let mut records = Vec::with_capacity(events.len());
        for event in events {
            let stored = journal::encode(seq + 1, self.now, owner, event, sum);
            self.write(
                "write to the journal",
                "INSERT INTO journal (seq, at, owner, version, body, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    stored.seq as i64,
                    stored.at.0,
                    owner.map(LoopId::as_str),
                    stored.version,
                    stored.body,
                    stored.sum
                ],
            )?;
            (seq, sum) = (stored.seq, stored.sum);
            records.push(stored);
        }
        if let Some(key) = self.key {
            chain::sign(&self.tx, key, &records)?;
        }
        Ok(Reply::Appended(seq))
    }

    pub(super) fn row(&self, id: &TaskId) -> Result<TaskRow, Error> {
        read::task(&self.tx, id)?.ok_or_else(|| task::gone(id).into())
    }

    /// Writes the columns that the rules may change; the rest of a task stays as it was created.
    fn put_task(&self, row: &TaskRow) -> Result<(), Error> {
        let (state, node, until) = columns::state_columns(&row.state);
        self.write(
            "write a task",
            "UPDATE tasks SET ready_at = ?2, state = ?3, node = ?4, until = ?5, fence = ?6, failures = ?7, result = ?8,
                              updated_at = ?9
             WHERE id = ?1",
            params![
                row.task.id.as_str(),
                row.task.ready_at.0,
                state,
                node,
                until,
                row.fence.0 as i64,
                row.failures,
                row.result,
                row.updated_at.0,
            ],
        )?;
        Ok(())
    }

    pub(super) fn write(&self, doing: &'static str, text: &str, params: impl Params) -> Result<usize, Error> {
        self.tx.prepare_cached(text).and_then(|mut s| s.execute(params)).map_err(sql(doing))
    }
}

/// Writes a new task.
pub(super) fn insert_task(conn: &Connection, row: &TaskRow) -> rusqlite::Result<()> {
    let TaskRow { task, state, fence, failures, result, created_at, updated_at } = row;
    let deps = serde_json::to_string(&task.deps).expect("a list of ids always has a JSON form");
    let (state, node, until) = columns::state_columns(state);
    let mut insert = conn.prepare_cached(
        "INSERT INTO tasks (id, owner, kind, title, prompt, priority, deps, author, trust, ready_at, state, node, until,
                            fence, failures, result, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
    )?;
    insert.execute(params![
        task.id.as_str(),
        task.owner.as_ref().map(LoopId::as_str),
        task.kind,
        task.title,
        task.prompt,
        task.priority,
        deps,
        task.author,
        columns::trust_column(task.trust),
        task.ready_at.0,
        state,
        node,
        until,
        fence.0 as i64,
        failures,
        result,
        created_at.0,
        updated_at.0,
    ])?;
    Ok(())
}

/// Reply of a compare-and-swap that wrote this many rows.
fn saved(written: usize, version: u64, what: impl FnOnce() -> String) -> Result<Reply, Error> {
    if written == 1 { Ok(Reply::Saved(version + 1)) } else { Err(Refusal::Conflict { what: what() }.into()) }
}
