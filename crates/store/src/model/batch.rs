//! Operations of the model: one batch, undone as a whole when one of its operations is refused.

use everloop_core::event::Event;
use everloop_core::guard::{GuardState, Scope, Versioned};
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::journal;
use everloop_core::op::{Amendment, LateResult, Message, NewTask, Op, Refusal, Reply, TaskRow, Ticket};
use everloop_core::time::Time;

use super::Model;
use super::streams::UndoStream;
use crate::rows::{DocRow, Leader, LoopRow, NodeRow};
use crate::{leader, task};

/// Performs all of `ops` or none.
pub(super) fn run(model: &mut Model, now: Time, ops: &[Op]) -> Result<Vec<Reply>, Refusal> {
    let mark = Mark::of(model);
    let mut batch = Batch { model, now, undo: Vec::new() };
    let mut replies = Vec::with_capacity(ops.len());
    for op in ops {
        match batch.apply(op) {
            Ok(reply) => replies.push(reply),
            Err(refusal) => {
                batch.roll_back(mark);
                return Err(refusal);
            }
        }
    }
    Ok(replies)
}

/// A row as it was before the batch changed it.
pub(super) enum Undo {
    Task(TaskId, Option<TaskRow>),
    Node(NodeId, Option<NodeRow>),
    Guard(Scope, Option<Box<Versioned>>),
    Loop(LoopId, Option<LoopRow>),
    Doc((String, String), Option<DocRow>),
    Stream(UndoStream),
    Consumed(Message),
    Closed(u64),
}

/// Lengths and single values as they were before the batch; tables that grew are cut back to them.
struct Mark {
    late_results: usize,
    leader: Option<Leader>,
    last_message: u64,
    tickets: usize,
    journal: usize,
}

impl Mark {
    fn of(model: &Model) -> Self {
        Mark {
            late_results: model.late_results.len(),
            leader: model.leader.clone(),
            last_message: model.last_message,
            tickets: model.tickets.len(),
            journal: model.journal.len(),
        }
    }
}

pub(super) struct Batch<'a> {
    pub(super) model: &'a mut Model,
    pub(super) now: Time,
    pub(super) undo: Vec<Undo>,
}

impl Batch<'_> {
    fn apply(&mut self, op: &Op) -> Result<Reply, Refusal> {
        match op {
            Op::Enqueue(task) => self.enqueue(task),
            Op::Claim { node, n, owner, lease } => Ok(self.claim(node, *n, owner.as_ref(), self.now + *lease)),
            Op::Take { task, fence, node, lease } => self.take(task, *fence, node, self.now + *lease),
            Op::Renew { task, fence, lease } => {
                let until = self.now + *lease;
                self.change(task, |row, now| task::renew(row, *fence, until, now))
            }
            Op::Finish { task, fence, state, result } => self.change(task, |row, now| {
                task::check_held(row, *fence)?;
                task::finish(row, *state, result, now);
                Ok(())
            }),
            Op::Release { task, fence, ready_at, failed } => self.change(task, |row, now| {
                task::check_held(row, *fence)?;
                task::release(row, *ready_at, u32::from(*failed), now);
                Ok(())
            }),
            Op::Shelve { task, fence, result } => self.shelve(task, *fence, result),
            Op::Amend { task, change } => self.amend(task, change),
            Op::Heartbeat { node, info } => Ok(self.heartbeat(node, info)),
            Op::Elect { node, lease } => Ok(self.elect(node, self.now + *lease)),
            Op::Lead { node, term } => {
                leader::check_lead(self.model.leader.as_ref(), node, *term, self.now).map(|()| Reply::Ok)
            }
            Op::Resign { node, term } => Ok(self.resign(node, *term)),
            Op::SaveGuard { scope, version, state } => self.save_guard(scope, *version, state),
            Op::SaveLoop { id, version, phase, state } => self.save_loop(id, *version, phase, state),
            Op::SaveDoc { kind, key, version, body } => self.save_doc((kind, key), *version, body),
            Op::Signal { to, by, body } => Ok(self.signal(to, by, body)),
            Op::Consume { ids } => self.consume(ids),
            Op::Stream(op) => self.stream(op),
            Op::OpenTicket { key, owner, text } => Ok(self.open_ticket(key, owner.as_ref(), text)),
            Op::CloseTicket { key, answer } => Ok(self.close_ticket(key, answer)),
            Op::Append { owner, events } => Ok(self.append(owner.as_ref(), events)),
        }
    }

    fn enqueue(&mut self, task: &NewTask) -> Result<Reply, Refusal> {
        if self.model.tasks.contains_key(&task.id) {
            return Ok(Reply::Made(false));
        }
        task::check_deps(task, |dep| Ok::<_, Refusal>(self.model.tasks.contains_key(dep)))?;
        self.put_task(task::queued(task, self.now));
        Ok(Reply::Made(true))
    }

    fn claim(&mut self, node: &NodeId, n: u32, owner: Option<&LoopId>, until: Time) -> Reply {
        let ready = self.model.ready_rows(self.now, owner);
        let mut rows: Vec<TaskRow> = ready.take(n as usize).cloned().collect();
        for row in &mut rows {
            task::lease(row, node, until, self.now);
            self.put_task(row.clone());
        }
        Reply::Claimed(rows)
    }

    fn take(&mut self, id: &TaskId, fence: Fence, node: &NodeId, until: Time) -> Result<Reply, Refusal> {
        let mut row = self.row(id)?;
        task::check_take(&row, fence, self.now)?;
        if !self.model.deps_done(&row) {
            return Err(task::held_by_deps(&row));
        }
        task::lease(&mut row, node, until, self.now);
        self.put_task(row);
        Ok(Reply::Ok)
    }

    /// Renew, finish and release: one row, changed by one rule.
    fn change(
        &mut self,
        id: &TaskId,
        rule: impl FnOnce(&mut TaskRow, Time) -> Result<(), Refusal>,
    ) -> Result<Reply, Refusal> {
        let mut row = self.row(id)?;
        rule(&mut row, self.now)?;
        self.put_task(row);
        Ok(Reply::Ok)
    }

    fn shelve(&mut self, id: &TaskId, fence: Fence, result: &str) -> Result<Reply, Refusal> {
        let row = self.row(id)?;
        let late_results = &mut self.model.late_results;
        if !late_results.iter().any(|s| s.task == *id && s.fence == fence && s.result == result) {
            late_results.push(LateResult { task: row.task.id, fence, at: self.now, result: result.to_owned() });
        }
        Ok(Reply::Ok)
    }

    fn amend(&mut self, id: &TaskId, change: &Amendment) -> Result<Reply, Refusal> {
        self.change(id, |row, now| task::amend(row, change, now))
    }

    fn heartbeat(&mut self, node: &NodeId, info: &str) -> Reply {
        let row = NodeRow { node: node.clone(), info: info.to_owned(), seen_at: self.now };
        let before = self.model.nodes.insert(node.clone(), row);
        self.undo.push(Undo::Node(node.clone(), before));
        Reply::Ok
    }

    fn elect(&mut self, node: &NodeId, until: Time) -> Reply {
        let elected = leader::elect(self.model.leader.as_ref(), node, until, self.now);
        let term = elected.as_ref().map(|leader| leader.term);
        if elected.is_some() {
            self.model.leader = elected;
        }
        Reply::Elected(term)
    }

    fn resign(&mut self, node: &NodeId, term: u64) -> Reply {
        if let Some(resigned) = leader::resign(self.model.leader.as_ref(), node, term, self.now) {
            self.model.leader = Some(resigned);
        }
        Reply::Ok
    }

    fn save_guard(&mut self, scope: &Scope, version: u64, state: &GuardState) -> Result<Reply, Refusal> {
        let stored = self.model.guards.get(scope).map_or(0, |g| g.version);
        if stored != version {
            return Err(Refusal::Conflict { what: format!("guard {scope}") });
        }
        let row = Versioned { version: version + 1, state: state.clone() };
        let before = self.model.guards.insert(scope.clone(), row);
        self.undo.push(Undo::Guard(scope.clone(), before.map(Box::new)));
        Ok(Reply::Saved(version + 1))
    }

    fn save_loop(&mut self, id: &LoopId, version: u64, phase: &str, state: &str) -> Result<Reply, Refusal> {
        let stored = self.model.loops.get(id).map_or(0, |l| l.version);
        if stored != version {
            return Err(Refusal::Conflict { what: format!("loop {id}") });
        }
        let row = LoopRow {
            id: id.clone(),
            version: version + 1,
            phase: phase.to_owned(),
            updated_at: self.now,
            state: state.to_owned(),
        };
        let before = self.model.loops.insert(id.clone(), row);
        self.undo.push(Undo::Loop(id.clone(), before));
        Ok(Reply::Saved(version + 1))
    }

    fn save_doc(&mut self, (kind, key): (&str, &str), version: u64, body: &str) -> Result<Reply, Refusal> {
        let name = (kind.to_owned(), key.to_owned());
        let stored = self.model.docs.get(&name).map_or(0, |d| d.version);
        if stored != version {
            return Err(Refusal::Conflict { what: format!("{kind} {key}") });
        }
        let row = DocRow { key: key.to_owned(), version: version + 1, updated_at: self.now, body: body.to_owned() };
        let before = self.model.docs.insert(name.clone(), row);
        self.undo.push(Undo::Doc(name, before));
        Ok(Reply::Saved(version + 1))
    }

    fn signal(&mut self, to: &str, by: &str, body: &str) -> Reply {
        self.model.last_message += 1;
        let id = self.model.last_message;
        let message = Message { id, at: self.now, to: to.to_owned(), by: by.to_owned(), body: body.to_owned() };
        self.model.messages.insert(id, message);
        Reply::Sent(id)
    }

    fn consume(&mut self, ids: &[u64]) -> Result<Reply, Refusal> {
        for id in ids {
            let message = self.model.messages.remove(id);
            let message = message.ok_or_else(|| Refusal::Gone { what: format!("message {id}") })?;
            self.undo.push(Undo::Consumed(message));
        }
        Ok(Reply::Ok)
    }

    fn open_ticket(&mut self, key: &str, owner: Option<&LoopId>, text: &str) -> Reply {
        let tickets = &mut self.model.tickets;
        if tickets.iter().any(|t| t.key == key && t.closed.is_none()) {
            return Reply::Made(false);
        }
        tickets.push(Ticket {
            id: tickets.len() as u64 + 1,
            key: key.to_owned(),
            owner: owner.cloned(),
            text: text.to_owned(),
            opened_at: self.now,
            closed: None,
        });
        Reply::Made(true)
    }

    fn close_ticket(&mut self, key: &str, answer: &str) -> Reply {
        if let Some(ticket) = self.model.tickets.iter_mut().find(|t| t.key == key && t.closed.is_none()) {
            ticket.closed = Some((self.now, answer.to_owned()));
            self.undo.push(Undo::Closed(ticket.id));
        }
        Reply::Ok
    }

    fn append(&mut self, owner: Option<&LoopId>, events: &[Event]) -> Reply {
        let journal = &mut self.model.journal;
        for event in events {
            let (seq, sum) = journal.last().map_or((0, 0), |last| (last.seq, last.sum));
            journal.push(journal::encode(seq + 1, self.now, owner, event, sum));
        }
        Reply::Appended(journal.len() as u64)
    }

    fn row(&self, id: &TaskId) -> Result<TaskRow, Refusal> {
        self.model.tasks.get(id).cloned().ok_or_else(|| task::gone(id))
    }

    fn put_task(&mut self, row: TaskRow) {
        let id = row.task.id.clone();
        let before = self.model.put_task(&id, Some(row));
        self.undo.push(Undo::Task(id, before));
    }

    fn roll_back(self, mark: Mark) {
        let model = self.model;
        for undo in self.undo.into_iter().rev() {
            match undo {
                Undo::Task(id, row) => drop(model.put_task(&id, row)),
                Undo::Node(id, row) => put(&mut model.nodes, id, row),
                Undo::Guard(scope, row) => put(&mut model.guards, scope, row.map(|row| *row)),
                Undo::Loop(id, row) => put(&mut model.loops, id, row),
                Undo::Doc(name, row) => put(&mut model.docs, name, row),
                Undo::Stream(undo) => model.streams.undo(undo),
                Undo::Consumed(message) => put(&mut model.messages, message.id, Some(message)),
                Undo::Closed(id) => model.tickets[id as usize - 1].closed = None,
            }
        }
        model.late_results.truncate(mark.late_results);
        model.leader = mark.leader;
        drop(model.messages.split_off(&(mark.last_message + 1)));
        model.last_message = mark.last_message;
        model.tickets.truncate(mark.tickets);
        model.journal.truncate(mark.journal);
    }
}

pub(super) fn put<K: Ord, V>(map: &mut std::collections::BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}
