//! Brings the decisions of a draft to the tables: at most one statement per kind of change, however
//! long the batch is.

use std::borrow::Cow;

use everloop_core::ids::{LoopId, NodeId};
use everloop_core::journal::Stored;
use everloop_core::op::{Message, NewTask, TaskRow, Ticket};
use everloop_core::time::Time;

use super::columns;
use super::connection::Statement;
use super::draft::{BatchDraft, Pending};

/// All that is not written yet. Afterwards nothing is pending and every new row is stored.
///
/// A row that was missing when the others were locked is inserted without `ON CONFLICT`: if another
/// transaction made it meanwhile, this batch was decided on a false premise, is undone, and is
/// tried again.
pub(super) fn flush(draft: &mut BatchDraft) -> Vec<Statement> {
    let pending = std::mem::take(&mut draft.pending);
    let mut all = Vec::new();
    tasks(draft, &pending, &mut all);
    late_results(&pending, &mut all);
    nodes(draft, &pending, &mut all);
    leader(draft, &pending, &mut all);
    guards(draft, &pending, &mut all);
    loops(draft, &pending, &mut all);
    docs(draft, &pending, &mut all);
    messages(&pending, &mut all);
    tickets(draft, &pending, &mut all);
    journal(&pending, &mut all);
    heads(draft, &pending, &mut all);
    draft.streams.flush(&mut all);
    all
}

fn tasks(draft: &BatchDraft, pending: &Pending, all: &mut Vec<Statement>) {
    let made: Vec<&TaskRow> = pending.made.iter().filter_map(|id| draft.tasks.get(id)).collect();
    if !made.is_empty() {
        let new: Vec<&NewTask> = made.iter().map(|row| &row.task).collect();
        all.push(queue(&new, Clash::Undoes, Some(draft.now)));
    }
    let rows: Vec<&TaskRow> = pending.touched.iter().filter_map(|id| draft.tasks.get(id)).collect();
    if !rows.is_empty() {
        // Only what the rules may change; the rest of a task never changes.
        let statement = Statement::new(
            "write tasks",
            "UPDATE everloop.tasks t
             SET ready_at = w.ready_at, state = w.state, node = w.node, until = w.until, fence = w.fence,
                 failures = w.failures, result = w.result, updated_at = w.updated_at
             FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
                         $7::bigint[], $8::text[], $9::bigint[])
                  w (id, ready_at, state, node, until, fence, failures, result, updated_at)
             WHERE t.id = w.id",
        )
        .texts(rows.iter().map(|r| r.task.id.as_str()))
        .numbers(rows.iter().map(|r| r.task.ready_at.0));
        let statement = with_standing(statement, rows.iter().copied());
        all.push(statement.numbers(rows.iter().map(|r| r.updated_at.0)));
    }
}

/// The ten columns of a task that never change, and when it is ready: id to `ready_at`.
pub(super) fn with_new<'a>(statement: Statement, new: impl Iterator<Item = &'a NewTask> + Clone) -> Statement {
    statement
        .texts(new.clone().map(|t| t.id.as_str()))
        .optional_texts(new.clone().map(|t| t.owner.as_ref().map(LoopId::as_str)))
        .texts(new.clone().map(|t| &t.kind))
        .texts(new.clone().map(|t| &t.title))
        .texts(new.clone().map(|t| &t.prompt))
        .numbers(new.clone().map(|t| i64::from(t.priority)))
        .verbatim(new.clone().map(|t| columns::deps_column(&t.deps)).collect())
        .texts(new.clone().map(|t| &t.author))
        .texts(new.clone().map(|t| columns::trust_column(t.trust)))
        .numbers(new.map(|t| t.ready_at.0))
}

/// The six columns of a task's state: state, node, until, fence, failures, result.
pub(super) fn with_standing<'a>(statement: Statement, rows: impl Iterator<Item = &'a TaskRow> + Clone) -> Statement {
    statement
        .texts(rows.clone().map(|r| columns::state_columns(&r.state).0))
        .optional_texts(rows.clone().map(|r| columns::state_columns(&r.state).1))
        .optional_numbers(rows.clone().map(|r| columns::state_columns(&r.state).2))
        .numbers(rows.clone().map(|r| r.fence.0 as i64))
        .numbers(rows.clone().map(|r| i64::from(r.failures)))
        .optional_texts(rows.map(|r| r.result.as_ref()))
}

/// What happens to a new task with an id that the hub has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// It was not there when the others were locked: the batch is undone.
    Undoes,
    /// The existing one stays as it is; the reply names those that were made.
    LeftAlone,
}

/// Queues tasks. `now` is `None` where the hub's clock counts.
pub(super) fn queue(new: &[&NewTask], clash: Clash, now: Option<Time>) -> Statement {
    let sql = "WITH clock AS MATERIALIZED (
                   SELECT coalesce($11, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
               )
               INSERT INTO everloop.tasks (id, owner, kind, title, prompt, priority, deps, author, trust, ready_at,
                                           state, fence, failures, created_at, updated_at)
               SELECT w.*, 'queued', 0, 0, (SELECT now FROM clock), (SELECT now FROM clock)
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[],
                           $8::text[], $9::text[], $10::bigint[]) w";
    let sql: Cow<'static, str> = match clash {
        Clash::Undoes => sql.into(),
        Clash::LeftAlone => format!("{sql} ON CONFLICT (id) DO NOTHING RETURNING id").into(),
    };
    with_new(Statement::new("queue tasks", sql), new.iter().copied()).optional_number(now.map(|now| now.0))
}

/// The task's row is locked, so no other transaction reads its late results now.
fn late_results(pending: &Pending, all: &mut Vec<Statement>) {
    let late_result = &pending.late_result;
    if !late_result.is_empty() {
        all.push(
            Statement::new(
                "store late results",
                "INSERT INTO everloop.shelf (task, fence, at, result)
                 SELECT w.task, w.fence, w.at, w.result
                 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])
                      WITH ORDINALITY w (task, fence, at, result, place)
                 WHERE NOT EXISTS (SELECT 1 FROM everloop.shelf s
                                   WHERE s.task = w.task AND s.fence = w.fence AND s.result = w.result)
                 ORDER BY w.place",
            )
            .texts(late_result.iter().map(|s| s.task.as_str()))
            .numbers(late_result.iter().map(|s| s.fence.0 as i64))
            .numbers(late_result.iter().map(|s| s.at.0))
            .texts(late_result.iter().map(|s| &s.result)),
        );
    }
}

fn nodes(draft: &BatchDraft, pending: &Pending, all: &mut Vec<Statement>) {
    if !pending.seen.is_empty() {
        let seen: Vec<(&NodeId, &String)> = pending.seen.iter().collect();
        all.push(heartbeats(&seen, Some(draft.now)));
    }
}

/// Nothing is decided on a heartbeat, so the last one wins. `now` is `None` where the hub's clock
/// counts.
pub(super) fn heartbeats(seen: &[(&NodeId, &String)], now: Option<Time>) -> Statement {
    Statement::new(
        "write heartbeats",
        "INSERT INTO everloop.nodes (id, info, seen_at)
         SELECT w.id, w.info, coalesce($3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
         FROM unnest($1::text[], $2::text[]) w (id, info)
         ON CONFLICT (id) DO UPDATE SET info = excluded.info, seen_at = excluded.seen_at",
    )
    .texts(seen.iter().map(|(node, _)| node.as_str()))
    .texts(seen.iter().map(|(_, info)| info))
    .optional_number(now.map(|now| now.0))
}

fn leader(draft: &mut BatchDraft, pending: &Pending, all: &mut Vec<Statement>) {
    let Some(leader) = draft.leader.as_ref().filter(|_| pending.elected) else { return };
    let sql = if draft.leader_stored {
        "UPDATE everloop.leader SET node = $1, epoch = $2, until = $3"
    } else {
        "INSERT INTO everloop.leader (single, node, epoch, until) VALUES (1, $1, $2, $3)"
    };
    let statement = Statement::new("elect a supervisor", sql).text(leader.node.as_str());
    all.push(statement.number(leader.term as i64).number(leader.until.0));
    draft.leader_stored = true;
}

fn guards(draft: &mut BatchDraft, pending: &Pending, all: &mut Vec<Statement>) {
    for stored in [true, false] {
        let fits = |name: &str| draft.guards.get(name).is_some_and(|slot| slot.stored == stored);
        let these: Vec<_> = pending.guards.iter().filter(|(name, _)| fits(name)).collect();
        if these.is_empty() {
            continue;
        }
        let sql = if stored {
            "UPDATE everloop.guards g SET version = w.version, state = w.state
             FROM unnest($1::text[], $2::bigint[], $3::text[]) w (scope, version, state) WHERE g.scope = w.scope"
        } else {
            "INSERT INTO everloop.guards (scope, version, state)
             SELECT w.* FROM unnest($1::text[], $2::bigint[], $3::text[]) w"
        };
        let versions = these.iter().map(|(name, _)| draft.guards[*name].version as i64);
        let statement = Statement::new("save guards", sql).texts(these.iter().map(|(name, _)| name));
        all.push(statement.numbers(versions).texts(these.iter().map(|(_, state)| state)));
    }
    draft.guards.values_mut().for_each(|slot| slot.stored = slot.version > 0);
}

fn loops(draft: &mut BatchDraft, pending: &Pending, all: &mut Vec<Statement>) {
    for stored in [true, false] {
        let fits = |name: &str| draft.loops.get(name).is_some_and(|slot| slot.stored == stored);
        let these: Vec<_> = pending.loops.iter().filter(|(name, _)| fits(name)).collect();
        if these.is_empty() {
            continue;
        }
        let sql = if stored {
            "UPDATE everloop.loops l SET version = w.version, phase = w.phase, state = w.state, updated_at = $5
             FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) w (id, version, phase, state)
             WHERE l.id = w.id"
        } else {
            "INSERT INTO everloop.loops (id, version, phase, state, updated_at)
             SELECT w.*, $5 FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) w"
        };
        let versions = these.iter().map(|(name, _)| draft.loops[*name].version as i64);
        let statement = Statement::new("save loops", sql).texts(these.iter().map(|(name, _)| name)).numbers(versions);
        let statement = statement.texts(these.iter().map(|(_, (phase, _))| phase));
        all.push(statement.texts(these.iter().map(|(_, (_, state))| state)).number(draft.now.0));
    }
    draft.loops.values_mut().for_each(|slot| slot.stored = slot.version > 0);
}

fn docs(draft: &mut BatchDraft, pending: &Pending, all: &mut Vec<Statement>) {
    for stored in [true, false] {
        let fits = |name: &str| draft.docs.get(name).is_some_and(|slot| slot.stored == stored);
        let these: Vec<_> = pending.docs.iter().filter(|(name, _)| fits(name)).collect();
        if these.is_empty() {
            continue;
        }
        let sql = if stored {
            "UPDATE everloop.docs d SET version = w.version, body = w.body, updated_at = $6
             FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[]) w (name, version, kind, key, body)
             WHERE d.name = w.name"
        } else {
            "INSERT INTO everloop.docs (name, version, kind, key, body, updated_at)
             SELECT w.*, $6 FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[]) w"
        };
        let versions = these.iter().map(|(name, _)| draft.docs[*name].version as i64);
        let mut statement =
            Statement::new("save documents", sql).texts(these.iter().map(|(name, _)| name)).numbers(versions);
        for part in 0..3 {
            statement = statement.texts(these.iter().map(|(_, parts)| &parts[part]));
        }
        all.push(statement.number(draft.now.0));
    }
    draft.docs.values_mut().for_each(|slot| slot.stored = slot.version > 0);
}

fn messages(pending: &Pending, all: &mut Vec<Statement>) {
    if !pending.consumed.is_empty() {
        let sql = "DELETE FROM everloop.messages WHERE id = ANY($1)";
        all.push(Statement::new("take messages", sql).numbers(pending.consumed.iter().copied()));
    }
    if !pending.sent.is_empty() {
        all.push(message_rows(&pending.sent));
    }
}

pub(super) fn message_rows(sent: &[Message]) -> Statement {
    Statement::new(
        "leave messages",
        "INSERT INTO everloop.messages (id, at, recipient, sender, body)
                 SELECT w.* FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[]) w",
    )
    .numbers(sent.iter().map(|m| m.id as i64))
    .numbers(sent.iter().map(|m| m.at.0))
    .texts(sent.iter().map(|m| &m.to))
    .texts(sent.iter().map(|m| &m.by))
    .texts(sent.iter().map(|m| &m.body))
}

/// Closed first: the same batch may have opened the key again.
fn tickets(draft: &BatchDraft, pending: &Pending, all: &mut Vec<Statement>) {
    if !pending.closed.is_empty() {
        all.push(
            Statement::new(
                "close tickets",
                "UPDATE everloop.tickets t SET closed_at = $3, answer = w.answer
                 FROM unnest($1::bigint[], $2::text[]) w (id, answer) WHERE t.id = w.id",
            )
            .numbers(pending.closed.iter().map(|(id, _)| *id as i64))
            .texts(pending.closed.iter().map(|(_, answer)| answer))
            .number(draft.now.0),
        );
    }
    if !pending.opened.is_empty() {
        all.push(ticket_rows(&pending.opened));
    }
}

pub(super) fn ticket_rows(opened: &[Ticket]) -> Statement {
    Statement::new(
        "open tickets",
        "INSERT INTO everloop.tickets (id, key, owner, text, opened_at, closed_at, answer)
                 SELECT w.* FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
                                        $7::text[]) w",
    )
    .numbers(opened.iter().map(|t| t.id as i64))
    .texts(opened.iter().map(|t| &t.key))
    .optional_texts(opened.iter().map(|t| t.owner.as_ref().map(LoopId::as_str)))
    .texts(opened.iter().map(|t| &t.text))
    .numbers(opened.iter().map(|t| t.opened_at.0))
    .optional_numbers(opened.iter().map(|t| t.closed.as_ref().map(|(at, _)| at.0)))
    .optional_texts(opened.iter().map(|t| t.closed.as_ref().map(|(_, answer)| answer)))
}

fn journal(pending: &Pending, all: &mut Vec<Statement>) {
    if !pending.journal.is_empty() {
        all.push(journal_rows(&pending.journal));
    }
}

pub(super) fn journal_rows(rows: &[Stored]) -> Statement {
    Statement::new(
        "write to the journal",
        "INSERT INTO everloop.journal (seq, at, owner, version, body, sum)
                 SELECT w.* FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::text[],
                                        $6::bigint[]) w",
    )
    .numbers(rows.iter().map(|r| r.seq as i64))
    .numbers(rows.iter().map(|r| r.at.0))
    .optional_texts(rows.iter().map(|r| r.owner.as_ref().map(LoopId::as_str)))
    .numbers(rows.iter().map(|r| i64::from(r.version)))
    .texts(rows.iter().map(|r| &r.body))
    .numbers(rows.iter().map(|r| i64::from(r.sum)))
}

fn heads(draft: &BatchDraft, pending: &Pending, all: &mut Vec<Statement>) {
    if !pending.heads.is_empty() {
        let of = |name: &&'static str| draft.heads.get(*name).copied().unwrap_or_default();
        all.push(
            Statement::new(
                "write the heads",
                "UPDATE everloop.heads h SET value = w.value, sum = w.sum
                 FROM unnest($1::text[], $2::bigint[], $3::bigint[]) w (name, value, sum) WHERE h.name = w.name",
            )
            .texts(&pending.heads)
            .numbers(pending.heads.iter().map(|name| of(name).0 as i64))
            .numbers(pending.heads.iter().map(|name| i64::from(of(name).1))),
        );
    }
}
