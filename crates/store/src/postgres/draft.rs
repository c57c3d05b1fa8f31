//! A batch in memory: the rows that it names, locked in the hub, and what the shared rules make of
//! them. Owns the order of locks and every decision; `write` brings the outcome back to the tables.
//! Methods stand in the order of the model's.

use std::collections::{BTreeMap, BTreeSet};

use everloop_core::event::Event;
use everloop_core::guard::GuardState;
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::journal::{self, Stored};
use everloop_core::op::{LateResult, Message, NewTask, Op, Refusal, Reply, TaskRow, Ticket};
use everloop_core::time::Time;
use tokio_postgres::Row;

use super::columns;
use super::connection::Statement;
use super::streams::{StreamDraft, StreamKeys, StreamPart};
use crate::rows::Leader;
use crate::{Error, leader, task};

/// What a batch names.
#[derive(Debug, Default)]
pub(super) struct BatchKeys {
    tasks: BTreeSet<String>,
    /// Of those, the ones to read the dependencies of.
    taken: BTreeSet<String>,
    /// Dependencies of new tasks.
    needed: BTreeSet<String>,
    loops: BTreeSet<String>,
    guards: BTreeSet<String>,
    docs: BTreeSet<String>,
    messages: BTreeSet<i64>,
    keys: BTreeSet<String>,
    heads: BTreeSet<&'static str>,
    streams: StreamKeys,
    leader: bool,
    /// Whether to read the hub's clock, before anything else.
    clock: bool,
}

impl BatchKeys {
    /// `now` is `None` where the hub's clock counts.
    pub(super) fn of(now: Option<Time>, ops: &[Op]) -> Self {
        let mut names = Self { clock: now.is_none(), ..Self::default() };
        for op in ops {
            match op {
                Op::Enqueue(task) => {
                    names.tasks.insert(task.id.to_string());
                    names.needed.extend(task.deps.iter().map(TaskId::to_string));
                }
                Op::Take { task, .. } => {
                    names.tasks.insert(task.to_string());
                    names.taken.insert(task.to_string());
                }
                Op::Renew { task, .. }
                | Op::Finish { task, .. }
                | Op::Release { task, .. }
                | Op::Shelve { task, .. }
                | Op::Amend { task, .. } => drop(names.tasks.insert(task.to_string())),
                Op::Claim { .. } | Op::Heartbeat { .. } => {}
                Op::Elect { .. } | Op::Lead { .. } | Op::Resign { .. } => names.leader = true,
                Op::SaveGuard { scope, .. } => drop(names.guards.insert(scope.to_string())),
                Op::SaveLoop { id, .. } => drop(names.loops.insert(id.to_string())),
                Op::SaveDoc { kind, key, .. } => drop(names.docs.insert(doc_name(kind, key))),
                Op::Signal { .. } => drop(names.heads.insert("messages")),
                Op::Consume { ids } => names.messages.extend(ids.iter().map(|id| *id as i64)),
                Op::Stream(op) => names.streams.name(op),
                Op::OpenTicket { key, .. } => {
                    names.keys.insert(key.clone());
                    names.heads.insert("tickets");
                }
                Op::CloseTicket { key, .. } => drop(names.keys.insert(key.clone())),
                Op::Append { .. } => drop(names.heads.insert("journal")),
            }
        }
        names
    }

    /// Locks and reads every named row, in the same order for every batch, so that none deadlock.
    /// Rows that may be missing without a refusal come last: once all locks are held, a missing row
    /// stays missing.
    fn statements(&self) -> Vec<(Part, Statement)> {
        let mut all = Vec::new();
        let mut add = |wanted: bool, part: Part, statement: Statement| {
            if wanted {
                all.push((part, statement));
            }
        };
        let lock = |doing, sql: &'static str| Statement::new(doing, sql);
        add(self.clock, Part::Clock, lock("read the clock", CLOCK));
        add(!self.tasks.is_empty(), Part::Tasks, lock("lock tasks", LOCK_TASKS).texts(&self.tasks));
        add(!self.loops.is_empty(), Part::Loops, lock("lock loops", LOCK_LOOPS).texts(&self.loops));
        add(!self.guards.is_empty(), Part::Guards, lock("lock guards", LOCK_GUARDS).texts(&self.guards));
        add(!self.docs.is_empty(), Part::Docs, lock("lock documents", LOCK_DOCS).texts(&self.docs));
        add(self.leader, Part::Leader, lock("lock the leader", "SELECT * FROM everloop.leader FOR UPDATE"));
        let ids = self.messages.iter().copied();
        add(!self.messages.is_empty(), Part::Messages, lock("lock messages", LOCK_MESSAGES).numbers(ids));
        add(!self.heads.is_empty(), Part::Heads, lock("lock the heads", LOCK_HEADS).texts(&self.heads));
        add(!self.keys.is_empty(), Part::Tickets, lock("lock tickets", LOCK_TICKETS).texts(&self.keys));
        let there = lock("look at dependencies", THERE).texts(&self.needed);
        add(!self.needed.is_empty(), Part::Facts, there);
        let needed = lock("look at dependencies", NEEDED).texts(&self.taken);
        add(!self.taken.is_empty(), Part::Facts, needed);
        all.extend(self.streams.statements().into_iter().map(|(part, statement)| (Part::Streams(part), statement)));
        all
    }

    pub(super) fn locks(&self) -> Vec<Statement> {
        self.statements().into_iter().map(|(_, statement)| statement).collect()
    }
}

/// The table that a reply is about.
#[derive(Clone, Copy, Debug)]
enum Part {
    Clock,
    Tasks,
    Loops,
    Guards,
    Docs,
    Leader,
    Messages,
    Heads,
    Tickets,
    Facts,
    Streams(StreamPart),
}

const CLOCK: &str = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
const LOCK_TASKS: &str = "SELECT * FROM everloop.tasks WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_LOOPS: &str = "SELECT id AS name, version FROM everloop.loops WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_GUARDS: &str =
    "SELECT scope AS name, version FROM everloop.guards WHERE scope = ANY($1) ORDER BY scope FOR UPDATE";
const LOCK_DOCS: &str = "SELECT name, version FROM everloop.docs WHERE name = ANY($1) ORDER BY name FOR UPDATE";
const LOCK_MESSAGES: &str = "SELECT id FROM everloop.messages WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_HEADS: &str = "SELECT * FROM everloop.heads WHERE name = ANY($1) ORDER BY name FOR UPDATE";
const LOCK_TICKETS: &str =
    "SELECT id, key FROM everloop.tickets WHERE key = ANY($1) AND closed_at IS NULL ORDER BY id FOR UPDATE";
/// Not locked: no task is ever deleted, and a task that unlocks others stays so.
const THERE: &str = "SELECT id, state = 'done' AND (left(result, 7) = '{\"is\":\"'
            AND result !~ '^[{]\"is\":\"(reached|progress|not_yet)\"') IS NOT TRUE AS done
     FROM everloop.tasks WHERE id = ANY($1)";
const NEEDED: &str = "SELECT n.id, n.state = 'done' AND (left(n.result, 7) = '{\"is\":\"'
            AND n.result !~ '^[{]\"is\":\"(reached|progress|not_yet)\"') IS NOT TRUE AS done
     FROM everloop.tasks t, json_array_elements_text(t.deps::json) d (id) JOIN everloop.tasks n ON n.id = d.id
     WHERE t.id = ANY($1) AND t.deps <> '[]'";
/// How many of the missing rows exist now.
const FOUND: &str = "SELECT (SELECT count(*) FROM everloop.tasks WHERE id = ANY($1))
          + (SELECT count(*) FROM everloop.loops WHERE id = ANY($2))
          + (SELECT count(*) FROM everloop.guards WHERE scope = ANY($3))
          + (SELECT count(*) FROM everloop.messages WHERE id = ANY($4))
          + (SELECT count(*) FROM everloop.docs WHERE name = ANY($5)) AS found";

/// A loop, a guard or a document: its version, and whether the hub has a row of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VersionedRow {
    pub(super) version: u64,
    pub(super) stored: bool,
}

/// What was decided and is not written yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) made: Vec<TaskId>,
    pub(super) touched: BTreeSet<TaskId>,
    pub(super) late_result: Vec<LateResult>,
    pub(super) seen: BTreeMap<NodeId, String>,
    pub(super) elected: bool,
    pub(super) guards: BTreeMap<String, String>,
    pub(super) loops: BTreeMap<String, (String, String)>,
    /// Kind, key and body by name.
    pub(super) docs: BTreeMap<String, [String; 3]>,
    pub(super) sent: Vec<Message>,
    pub(super) consumed: Vec<i64>,
    pub(super) opened: Vec<Ticket>,
    pub(super) closed: Vec<(u64, String)>,
    pub(super) journal: Vec<Stored>,
    pub(super) heads: BTreeSet<&'static str>,
}

/// Rows that a batch names and the hub does not have.
#[derive(Debug)]
pub(super) struct Missing {
    tasks: Vec<TaskId>,
    loops: Vec<String>,
    guards: Vec<String>,
    docs: Vec<String>,
    messages: Vec<i64>,
}

/// A batch under way.
#[derive(Debug, Default)]
pub(super) struct BatchDraft {
    pub(super) now: Time,
    pub(super) tasks: BTreeMap<TaskId, TaskRow>,
    /// Tasks that are there, and whether they are done; `tasks` knows better where it knows.
    facts: BTreeMap<TaskId, bool>,
    pub(super) loops: BTreeMap<String, VersionedRow>,
    pub(super) guards: BTreeMap<String, VersionedRow>,
    pub(super) docs: BTreeMap<String, VersionedRow>,
    pub(super) leader: Option<Leader>,
    pub(super) leader_stored: bool,
    messages: BTreeSet<i64>,
    /// Messages that this batch left.
    sent: BTreeSet<i64>,
    /// Open tickets by key.
    tickets: BTreeMap<String, u64>,
    pub(super) heads: BTreeMap<String, (u64, u32)>,
    pub(super) streams: StreamDraft,
    pub(super) pending: Pending,
}

impl BatchDraft {
    /// From the answers to [`BatchKeys::locks`].
    pub(super) fn read(names: &BatchKeys, answers: &[Vec<Row>]) -> Result<Self, Error> {
        let mut draft = Self::default();
        for ((part, _), rows) in names.statements().iter().zip(answers) {
            for row in rows {
                draft.take_in(*part, row)?;
            }
        }
        let lost = names.heads.iter().find(|name| !draft.heads.contains_key(**name));
        if let Some(name) = lost {
            return Err(Error::Unreadable { what: format!("head `{name}`"), why: "it is not there".to_owned() });
        }
        Ok(draft)
    }

    fn take_in(&mut self, part: Part, row: &Row) -> Result<(), Error> {
        let slot = || {
            let read = || {
                Ok((
                    columns::plain(row, "name")?,
                    VersionedRow { version: columns::number(row, "version")?, stored: true },
                ))
            };
            read().map_err(columns::shape("a version"))
        };
        match part {
            Part::Clock => self.now = columns::time(row, "now").map_err(columns::shape("the clock"))?,
            Part::Tasks => {
                let task = columns::task(row)?;
                self.tasks.insert(task.task.id.clone(), task);
            }
            Part::Loops => self.loops.extend([slot()?]),
            Part::Guards => self.guards.extend([slot()?]),
            Part::Docs => self.docs.extend([slot()?]),
            Part::Leader => {
                self.leader = Some(columns::leader(row)?);
                self.leader_stored = true;
            }
            Part::Messages => drop(self.messages.insert(row.try_get("id").map_err(columns::shape("a message"))?)),
            Part::Heads => {
                let (name, value, sum) = columns::head(row)?;
                self.heads.insert(name, (value, sum));
            }
            Part::Tickets => {
                let read = || Ok((columns::plain(row, "key")?, columns::number(row, "id")?));
                self.tickets.extend([read().map_err(columns::shape("a ticket"))?]);
            }
            Part::Streams(part) => self.streams.take_in(part, row)?,
            Part::Facts => {
                let read = || Ok((TaskId::new(columns::plain(row, "id")?), row.try_get("done")?));
                self.facts.extend([read().map_err(columns::shape("a task"))?]);
            }
        }
        Ok(())
    }

    /// Named rows that were missing before anything is done.
    pub(super) fn missing(&self, names: &BatchKeys) -> Missing {
        let strangers = |names: &BTreeSet<String>, slots: &BTreeMap<String, VersionedRow>| {
            names.iter().filter(|name| !slots.contains_key(*name)).cloned().collect()
        };
        let tasks = names.tasks.iter().map(TaskId::new).filter(|id| !self.tasks.contains_key(id));
        Missing {
            tasks: tasks.collect(),
            loops: strangers(&names.loops, &self.loops),
            guards: strangers(&names.guards, &self.guards),
            docs: strangers(&names.docs, &self.docs),
            messages: names.messages.difference(&self.messages).copied().collect(),
        }
    }

    /// Looks for the missing rows once more, now that everything else is locked; not for those that
    /// this batch itself made since. `None` when nothing is left to look for.
    pub(super) fn look_again(&self, missing: &Missing) -> Option<Statement> {
        let strange =
            |name: &&String, slots: &BTreeMap<String, VersionedRow>| slots.get(*name).is_none_or(|s| s.version == 0);
        let tasks: Vec<_> = missing.tasks.iter().filter(|id| !self.tasks.contains_key(id)).collect();
        let loops: Vec<_> = missing.loops.iter().filter(|name| strange(name, &self.loops)).collect();
        let guards: Vec<_> = missing.guards.iter().filter(|name| strange(name, &self.guards)).collect();
        let docs: Vec<_> = missing.docs.iter().filter(|name| strange(name, &self.docs)).collect();
        let messages: Vec<_> = missing.messages.iter().filter(|id| !self.sent.contains(id)).copied().collect();
        let none = tasks.is_empty() && loops.is_empty() && guards.is_empty() && docs.is_empty() && messages.is_empty();
        let statement = Statement::new("look once more", FOUND).texts(tasks.into_iter().map(TaskId::as_str));
        (!none).then(|| statement.texts(loops).texts(guards).numbers(messages).texts(docs))
    }

    /// Does one operation, except claims and deliveries: their rows come from the hub.
    pub(super) fn apply(&mut self, op: &Op) -> Result<Reply, Refusal> {
        match op {
            Op::Enqueue(task) => self.enqueue(task),
            Op::Claim { .. } => Ok(Reply::Claimed(Vec::new())),
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
            Op::Amend { task, change } => self.change(task, |row, now| task::amend(row, change, now)),
            Op::Heartbeat { node, info } => {
                self.pending.seen.insert(node.clone(), info.clone());
                Ok(Reply::Ok)
            }
            Op::Elect { node, lease } => Ok(self.elect(node, self.now + *lease)),
            Op::Lead { node, term } => {
                leader::check_lead(self.leader.as_ref(), node, *term, self.now).map(|()| Reply::Ok)
            }
            Op::Resign { node, term } => Ok(self.resign(node, *term)),
            Op::SaveGuard { scope, version, state } => self.save_guard(&scope.to_string(), *version, state),
            Op::SaveLoop { id, version, phase, state } => self.save_loop(id, *version, phase, state),
            Op::SaveDoc { kind, key, version, body } => self.save_doc((kind, key), *version, body),
            Op::Signal { to, by, body } => Ok(self.signal(to, by, body)),
            Op::Consume { ids } => self.consume(ids),
            Op::Stream(op) => self.streams.apply(op, self.now),
            Op::OpenTicket { key, owner, text } => Ok(self.open_ticket(key, owner.as_ref(), text)),
            Op::CloseTicket { key, answer } => Ok(self.close_ticket(key, answer)),
            Op::Append { owner, events } => Ok(self.append(owner.as_ref(), events)),
        }
    }

    fn enqueue(&mut self, task: &NewTask) -> Result<Reply, Refusal> {
        if self.tasks.contains_key(&task.id) {
            return Ok(Reply::Made(false));
        }
        task::check_deps(task, |dep| Ok::<_, Refusal>(self.is_done(dep).is_some()))?;
        self.tasks.insert(task.id.clone(), task::queued(task, self.now));
        self.pending.made.push(task.id.clone());
        Ok(Reply::Made(true))
    }

    /// Takes over the tasks that the hub leased to a node.
    pub(super) fn claimed(&mut self, rows: &[TaskRow]) {
        for row in rows {
            if let Some(known) = self.tasks.get_mut(&row.task.id) {
                known.clone_from(row);
            }
        }
    }

    fn take(&mut self, id: &TaskId, fence: Fence, node: &NodeId, until: Time) -> Result<Reply, Refusal> {
        let mut row = self.row(id)?;
        task::check_take(&row, fence, self.now)?;
        if !row.task.deps.iter().all(|dep| self.is_done(dep) == Some(true)) {
            return Err(task::held_by_deps(&row));
        }
        task::lease(&mut row, node, until, self.now);
        self.put_task(row);
        Ok(Reply::Ok)
    }

    /// Renew, finish, release and amend: one row, changed by one rule.
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
        let late_results = &mut self.pending.late_result;
        if !late_results.iter().any(|s| s.task == *id && s.fence == fence && s.result == result) {
            late_results.push(LateResult { task: row.task.id, fence, at: self.now, result: result.to_owned() });
        }
        Ok(Reply::Ok)
    }

    fn elect(&mut self, node: &NodeId, until: Time) -> Reply {
        let Some(elected) = leader::elect(self.leader.as_ref(), node, until, self.now) else {
            return Reply::Elected(None);
        };
        let term = elected.term;
        self.leader = Some(elected);
        self.pending.elected = true;
        Reply::Elected(Some(term))
    }

    fn resign(&mut self, node: &NodeId, term: u64) -> Reply {
        if let Some(resigned) = leader::resign(self.leader.as_ref(), node, term, self.now) {
            self.leader = Some(resigned);
            self.pending.elected = true;
        }
        Reply::Ok
    }

    fn save_guard(&mut self, name: &str, version: u64, state: &GuardState) -> Result<Reply, Refusal> {
        let json = serde_json::to_string(state).expect("a guard's state is plain data and always has a JSON form");
        let saved = save(&mut self.guards, name, version).ok_or_else(|| conflict(format!("guard {name}")))?;
        self.pending.guards.insert(name.to_owned(), json);
        Ok(saved)
    }

    fn save_loop(&mut self, id: &LoopId, version: u64, phase: &str, state: &str) -> Result<Reply, Refusal> {
        let saved = save(&mut self.loops, id.as_str(), version).ok_or_else(|| conflict(format!("loop {id}")))?;
        self.pending.loops.insert(id.to_string(), (phase.to_owned(), state.to_owned()));
        Ok(saved)
    }

    fn save_doc(&mut self, (kind, key): (&str, &str), version: u64, body: &str) -> Result<Reply, Refusal> {
        let name = doc_name(kind, key);
        let saved = save(&mut self.docs, &name, version).ok_or_else(|| conflict(format!("{kind} {key}")))?;
        self.pending.docs.insert(name, [kind, key, body].map(str::to_owned));
        Ok(saved)
    }

    fn signal(&mut self, to: &str, by: &str, body: &str) -> Reply {
        let id = self.next("messages");
        self.sent.insert(id as i64);
        self.messages.insert(id as i64);
        let (to, by, body) = (to.to_owned(), by.to_owned(), body.to_owned());
        self.pending.sent.push(Message { id, at: self.now, to, by, body });
        Reply::Sent(id)
    }

    fn consume(&mut self, ids: &[u64]) -> Result<Reply, Refusal> {
        for id in ids {
            if !self.messages.remove(&(*id as i64)) {
                return Err(Refusal::Gone { what: format!("message {id}") });
            }
            // One that is not written yet is dropped.
            match self.pending.sent.iter().position(|message| message.id == *id) {
                Some(place) => drop(self.pending.sent.remove(place)),
                None => self.pending.consumed.push(*id as i64),
            }
        }
        Ok(Reply::Ok)
    }

    fn open_ticket(&mut self, key: &str, owner: Option<&LoopId>, text: &str) -> Reply {
        if self.tickets.contains_key(key) {
            return Reply::Made(false);
        }
        let id = self.next("tickets");
        self.tickets.insert(key.to_owned(), id);
        self.pending.opened.push(Ticket {
            id,
            key: key.to_owned(),
            owner: owner.cloned(),
            text: text.to_owned(),
            opened_at: self.now,
            closed: None,
        });
        Reply::Made(true)
    }

    fn close_ticket(&mut self, key: &str, answer: &str) -> Reply {
        if let Some(id) = self.tickets.remove(key) {
            match self.pending.opened.iter_mut().find(|ticket| ticket.id == id) {
                Some(ticket) => ticket.closed = Some((self.now, answer.to_owned())),
                None => self.pending.closed.push((id, answer.to_owned())),
            }
        }
        Reply::Ok
    }

    fn append(&mut self, owner: Option<&LoopId>, events: &[Event]) -> Reply {
        let head = self.heads.entry("journal".to_owned()).or_default();
        for event in events {
            let stored = journal::encode(head.0 + 1, self.now, owner, event, head.1);
            *head = (stored.seq, stored.sum);
            self.pending.journal.push(stored);
            self.pending.heads.insert("journal");
        }
        Reply::Appended(head.0)
    }

    fn row(&self, id: &TaskId) -> Result<TaskRow, Refusal> {
        self.tasks.get(id).cloned().ok_or_else(|| task::gone(id))
    }

    fn put_task(&mut self, row: TaskRow) {
        self.pending.touched.insert(row.task.id.clone());
        self.tasks.insert(row.task.id.clone(), row);
    }

    /// Whether a task is done; `None` when it is not there.
    fn is_done(&self, id: &TaskId) -> Option<bool> {
        let here = self.tasks.get(id).map(TaskRow::unlocks);
        here.or_else(|| self.facts.get(id).copied())
    }

    fn next(&mut self, name: &'static str) -> u64 {
        let head = self.heads.entry(name.to_owned()).or_default();
        head.0 += 1;
        self.pending.heads.insert(name);
        head.0
    }
}

/// A row that was never written has version 0.
fn save(slots: &mut BTreeMap<String, VersionedRow>, name: &str, version: u64) -> Option<Reply> {
    let slot = slots.entry(name.to_owned()).or_default();
    (slot.version == version).then(|| {
        slot.version += 1;
        Reply::Saved(slot.version)
    })
}

/// Kind and key in one text; no kind has the separator in it.
fn doc_name(kind: &str, key: &str) -> String {
    format!("{kind}\u{1f}{key}")
}

fn conflict(what: String) -> Refusal {
    Refusal::Conflict { what }
}
