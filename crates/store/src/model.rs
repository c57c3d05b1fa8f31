//! A ledger in memory: plain maps, meant to be obviously right. The simulation runs on it and the
//! other ledgers are compared with it.
//!
//! This file keeps the tables and implements reads; `model/batch.rs` implements operations,
//! `model/streams.rs` streams. A
//! refused batch is undone from a log of what it touched, so the cost of a batch depends on its
//! size and not on that of the ledger.

mod batch;
mod streams;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use everloop_core::guard::{Guards, Scope, Versioned};
use everloop_core::ids::{LoopId, NodeId, TaskId};
use everloop_core::journal::{self, Damage, JournalRecord, Stored};
use everloop_core::op::streams::StreamEntry;
use everloop_core::op::{LateResult, Message, Op, Reply, TaskRow, TaskState, Ticket};
use everloop_core::time::Time;

use crate::rows::{DocRow, Leader, LoopRow, NodeRow, Recipients, StateName, StreamRow, TaskFilter, TaskOwner, Tickets};
use crate::{Error, Ledger, LocalLedger, task};

/// A ledger in memory. A clone is an independent copy of the whole ledger.
#[derive(Clone, Debug, Default)]
pub struct Model {
    tasks: BTreeMap<TaskId, TaskRow>,
    /// Queued and leased tasks in the order of claims.
    waiting: BTreeSet<Place>,
    late_results: Vec<LateResult>,
    nodes: BTreeMap<NodeId, NodeRow>,
    leader: Option<Leader>,
    guards: Guards,
    loops: BTreeMap<LoopId, LoopRow>,
    /// Documents by kind and key.
    docs: BTreeMap<(String, String), DocRow>,
    streams: streams::Streams,
    messages: BTreeMap<u64, Message>,
    last_message: u64,
    /// The ticket with id `n` is at index `n - 1`.
    tickets: Vec<Ticket>,
    /// The record with sequence number `n` is at index `n - 1`.
    journal: Vec<Stored>,
}

/// A task's place in the order of claims: by owner, then highest priority, oldest, smallest id.
type Place = (Option<LoopId>, Reverse<i32>, Time, TaskId);

fn place(row: &TaskRow) -> Option<Place> {
    match row.state {
        TaskState::Queued | TaskState::Leased { .. } => {
            Some((row.task.owner.clone(), Reverse(row.task.priority), row.created_at, row.task.id.clone()))
        }
        TaskState::Done | TaskState::Dead | TaskState::Blocked => None,
    }
}

impl Model {
    /// Writes (or with `None` removes) a task and returns the previous row.
    fn put_task(&mut self, id: &TaskId, row: Option<TaskRow>) -> Option<TaskRow> {
        let before = self.tasks.remove(id);
        if let Some(place) = before.as_ref().and_then(place) {
            self.waiting.remove(&place);
        }
        if let Some(row) = row {
            self.waiting.extend(place(&row));
            self.tasks.insert(id.clone(), row);
        }
        before
    }

    /// A task without a copy: the simulation reads it millions of times.
    pub fn peek_task(&self, id: &TaskId) -> Option<&TaskRow> {
        self.tasks.get(id)
    }

    /// The queued and leased tasks, without a copy.
    pub fn peek_waiting(&self) -> impl Iterator<Item = &TaskRow> {
        self.waiting.iter().map(|place| &self.tasks[&place.3])
    }

    /// A document without a copy.
    pub fn peek_doc(&self, name: &(String, String)) -> Option<&DocRow> {
        self.docs.get(name)
    }

    /// The leader without a copy.
    pub fn peek_leader(&self) -> Option<&Leader> {
        self.leader.as_ref()
    }

    /// Whether tasks of loops are queued, due now or later.
    pub fn has_queued(&self) -> bool {
        let mut rows = self.waiting.iter().map(|place| &self.tasks[&place.3]);
        rows.any(|row| row.state == TaskState::Queued && row.task.owner.is_some())
    }

    /// All tasks, or only waiting ones when `states` allows only these.
    fn candidates(&self, states: &[StateName]) -> Vec<&TaskRow> {
        let wait = |state: &StateName| matches!(state, StateName::Queued | StateName::Leased);
        if !states.is_empty() && states.iter().all(wait) {
            return self.waiting.iter().map(|place| &self.tasks[&place.3]).collect();
        }
        self.tasks.values().collect()
    }

    /// Tasks that can be claimed now, in the order of claims.
    fn ready_rows(&self, now: Time, owner: Option<&LoopId>) -> impl Iterator<Item = &TaskRow> {
        let first = (owner.cloned(), Reverse(i32::MAX), Time(i64::MIN), TaskId::new(""));
        let places = self.waiting.range(first..).take_while(move |place| place.0.as_ref() == owner);
        places.map(|place| &self.tasks[&place.3]).filter(move |row| task::is_due(row, now) && self.deps_done(row))
    }

    fn deps_done(&self, row: &TaskRow) -> bool {
        row.task.deps.iter().all(|dep| self.tasks.get(dep).is_some_and(TaskRow::unlocks))
    }

    fn record(&self, stored: &Stored) -> Result<JournalRecord, Damage> {
        let before = (stored.seq as usize).checked_sub(2).map(|i| &self.journal[i]);
        journal::open(stored, before)
    }
}

impl LocalLedger for Model {
    fn ready(&self, now: Time, owner: Option<&LoopId>, n: u32) -> Result<Vec<TaskRow>, Error> {
        Ok(self.ready_rows(now, owner).take(n as usize).cloned().collect())
    }

    fn named(&self, name: &str) -> Result<Vec<LoopRow>, Error> {
        let is_named = |row: &&LoopRow| {
            serde_json::from_str::<serde_json::Value>(&row.state).is_ok_and(|state| state["name"] == name)
        };
        Ok(self.loops.values().filter(is_named).cloned().collect())
    }
}

impl Ledger for Model {
    fn transact(&mut self, now: Time, ops: &[Op]) -> Result<Vec<Reply>, Error> {
        Ok(batch::run(self, now, ops)?)
    }

    fn loops(&self) -> Result<Vec<LoopRow>, Error> {
        Ok(self.loops.values().cloned().collect())
    }

    fn get_loop(&self, id: &LoopId) -> Result<Option<LoopRow>, Error> {
        Ok(self.loops.get(id).cloned())
    }

    fn task(&self, id: &TaskId) -> Result<Option<TaskRow>, Error> {
        Ok(self.tasks.get(id).cloned())
    }

    fn tasks(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, Error> {
        let mut rows = self.candidates(&filter.states);
        rows.retain(|row| match &filter.owner {
            TaskOwner::Any => true,
            TaskOwner::Nobody => row.task.owner.is_none(),
            TaskOwner::Loop(id) => row.task.owner.as_ref() == Some(id),
        });
        rows.retain(|row| filter.states.is_empty() || filter.states.contains(&StateName::of(&row.state)));
        rows.sort_by_key(|row| Reverse((row.created_at, &row.task.id)));
        Ok(rows.into_iter().take(filter.limit).cloned().collect())
    }

    fn late_results(&self, task: &TaskId) -> Result<Vec<LateResult>, Error> {
        Ok(self.late_results.iter().filter(|s| s.task == *task).cloned().collect())
    }

    fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        Ok(self.nodes.values().cloned().collect())
    }

    fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.leader.clone())
    }

    fn guard(&self, scope: &Scope) -> Result<Versioned, Error> {
        Ok(self.guards.get(scope).cloned().unwrap_or_default())
    }

    fn guards(&self) -> Result<Guards, Error> {
        Ok(self.guards.clone())
    }

    fn doc(&self, kind: &str, key: &str) -> Result<Option<DocRow>, Error> {
        Ok(self.docs.get(&(kind.to_owned(), key.to_owned())).cloned())
    }

    fn docs(&self, kind: &str) -> Result<Vec<DocRow>, Error> {
        Ok(self.docs.iter().filter(|((k, _), _)| k == kind).map(|(_, row)| row.clone()).collect())
    }

    fn messages(&self, to: Recipients<'_>, limit: usize) -> Result<Vec<Message>, Error> {
        let wanted = |message: &&Message| match to {
            Recipients::All => true,
            Recipients::These(names) => names.contains(&message.to),
        };
        Ok(self.messages.values().filter(wanted).take(limit).cloned().collect())
    }

    fn tickets(&self, which: Tickets) -> Result<Vec<Ticket>, Error> {
        Ok(match which {
            Tickets::Open => self.tickets.iter().filter(|t| t.closed.is_none()).cloned().collect(),
            Tickets::Newest(n) => self.tickets[self.tickets.len().saturating_sub(n)..].to_vec(),
        })
    }

    fn streams(&self) -> Result<Vec<StreamRow>, Error> {
        Ok(self.streams.list())
    }

    fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, Error> {
        Ok(self.streams.after(stream, after, limit))
    }

    fn entry_with_key(&self, stream: &str, source: &str, key: &str) -> Result<Option<StreamEntry>, Error> {
        Ok(self.streams.with_key([stream, source, key]))
    }

    fn journal(&self, after_seq: u64, owner: Option<&LoopId>, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        let rows = self.journal.iter().skip(after_seq as usize);
        let wanted = rows.filter(|s| owner.is_none() || s.owner.as_ref() == owner).take(limit);
        Ok(wanted.map(|s| self.record(s)).collect::<Result<_, _>>()?)
    }

    fn journal_tail(&self, owner: Option<&LoopId>, limit: usize) -> Result<Vec<JournalRecord>, Error> {
        let rows = self.journal.iter().rev();
        let wanted = rows.filter(|s| owner.is_none() || s.owner.as_ref() == owner).take(limit);
        let mut records = wanted.map(|s| self.record(s)).collect::<Result<Vec<_>, _>>()?;
        records.reverse();
        Ok(records)
    }

    fn journal_raw(&self, after_seq: u64, limit: usize) -> Result<Vec<Stored>, Error> {
        Ok(self.journal.iter().skip(after_seq as usize).take(limit).cloned().collect())
    }

    fn last_seq(&self) -> Result<u64, Error> {
        Ok(self.journal.len() as u64)
    }
}
