//! Operations: one batch is one transaction. Rows that it names are locked and read, the shared rules decide, the rows are
//! written: two round trips, one more for each claim in between. What nodes do all day (a claim alone, finishing alone)
//! is one statement and one round trip.
//!
//! Several nodes at once get the answers of some order in which they came one by one, because every answer rests on rows
//! that are locked until the commit, on facts that never change (a task is there, is done), or on a row that is not
//! there, which the insert proves. The one exception is on purpose: a claim passes over tasks that another transaction
//! holds or makes at that moment. What it does answer is exact.
//!
//! Crash windows: nothing is visible before the commit, and the hub undoes what was not committed when the connection ends.
//! If it ends after the commit was sent, [`Error::Unknown`] says so; whoever asked reads back by key.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use everloop_core::ids::{LoopId, NodeId};
use everloop_core::op::{Op, Reply, TaskEnd, TaskRow};
use everloop_core::time::Time;
use tokio_postgres::Row;

use super::draft::{Draft, Names};
use super::line::{BEGIN, End, Line, Statement, is_transient};
use super::{columns, write};
use crate::Error;

/// How often a batch is tried that others got in the way of. Each time somebody else got through, so a batch that does not
/// get through in this many has a hub that is busy beyond use.
const TRIES: u32 = 10;

/// Does all of `ops` or nothing. `now` is `None` where the hub's clock counts.
pub(super) async fn run(line: &Line, now: Option<Time>, ops: &[Op]) -> Result<Vec<Reply>, Error> {
    for _ in 0..TRIES {
        match attempt(line, now, ops).await {
            Ok(Some(replies)) => return Ok(replies),
            Ok(None) => {}
            Err(error) if is_transient(&error) => line.rollback().await?,
            Err(error) => return Err(error),
        }
    }
    Err(Error::Busy { doing: "get a batch through" })
}

/// `None` when others got in the way; nothing happened then.
async fn attempt(line: &Line, now: Option<Time>, ops: &[Op]) -> Result<Option<Vec<Reply>>, Error> {
    match ops {
        [] => return Ok(Some(Vec::new())),
        [Op::Claim { node, n, owner, lease }] => {
            let wish = Wish { node, n: *n, owner: owner.as_ref(), lease: *lease };
            // One that comes late leases tasks to a node that does not know of it, and the lease runs out.
            let rows = line.alone(&wish.statement(now)).await?;
            return Ok(Some(vec![Reply::Claimed(claimed(&rows)?)]));
        }
        _ => {}
    }
    if let Some(statement) = finishes(now, ops) {
        // One that comes late still has to fit the fence, and says the same.
        if line.alone(&statement).await?.len() == ops.len() {
            return Ok(Some(vec![Reply::Ok; ops.len()]));
        }
        // One of them is not held: below it is found out which and why.
    }
    general(line, now, ops).await
}

async fn general(line: &Line, now: Option<Time>, ops: &[Op]) -> Result<Option<Vec<Reply>>, Error> {
    let names = Names::of(now, ops);
    let answers = line.send(Some(BEGIN), &names.locks(), End::Open).await?;
    let mut draft = Draft::read(&names, &answers)?;
    if let Some(now) = now {
        draft.now = now;
    }
    // Before anything is added to the draft.
    let missing = draft.missing(&names);
    let mut replies = Vec::with_capacity(ops.len());
    for (place, op) in ops.iter().enumerate() {
        if let Op::Claim { node, n, owner, lease } = op {
            let wish = Wish { node, n: *n, owner: owner.as_ref(), lease: *lease };
            let mut statements = write::flush(&mut draft);
            statements.push(wish.statement(Some(draft.now)));
            let end = if place + 1 == ops.len() { End::Commit } else { End::Open };
            let answers = line.send(None, &statements, end).await?;
            let rows = claimed(&answers[statements.len() - 1])?;
            draft.claimed(&rows);
            replies.push(Reply::Claimed(rows));
            if end == End::Commit {
                return Ok(Some(replies));
            }
            continue;
        }
        match draft.apply(op) {
            Ok(reply) => replies.push(reply),
            Err(refusal) => {
                let look: Vec<Statement> = draft.look_again(&missing).into_iter().collect();
                let answers = line.send(None, &look, End::Undo).await?;
                let found = answers.first().and_then(|rows| rows.first());
                let found =
                    found.map_or(Ok(0), |row| row.try_get::<_, i64>("found")).map_err(columns::shape("a count"))?;
                // Somebody made it while the others were locked: it is another question now.
                return if found > 0 { Ok(None) } else { Err(refusal.into()) };
            }
        }
    }
    line.send(None, &write::flush(&mut draft), End::Commit).await?;
    Ok(Some(replies))
}

/// A claim.
struct Wish<'a> {
    node: &'a NodeId,
    n: u32,
    owner: Option<&'a LoopId>,
    lease: Duration,
}

impl Wish<'_> {
    /// The order of claims is held by `tasks_waiting_free` and `tasks_waiting_owned`; the conditions have to stand as they
    /// do there. Rows are locked one by one until there are enough, so those of others cost a look each.
    fn statement(&self, now: Option<Time>) -> Statement {
        let whose = if self.owner.is_some() { "t.owner = $4" } else { "t.owner IS NULL" };
        let sql = format!(
            "WITH clock AS MATERIALIZED (
                 SELECT coalesce($1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
             ), due AS MATERIALIZED (
                 SELECT t.id FROM everloop.tasks t
                 WHERE {whose} AND t.state IN ('queued', 'leased')
                   AND CASE t.state WHEN 'queued' THEN t.ready_at ELSE t.until END <= (SELECT now FROM clock)
                   AND (t.deps = '[]' OR NOT EXISTS (
                       SELECT 1 FROM json_array_elements_text(t.deps::json) d (id)
                       LEFT JOIN everloop.tasks n ON n.id = d.id WHERE n.state IS DISTINCT FROM 'done'))
                 ORDER BY t.priority DESC, t.created_at, t.id LIMIT {}
                 FOR UPDATE OF t SKIP LOCKED
             )
             UPDATE everloop.tasks t
             SET state = 'leased', node = $2, until = (SELECT now FROM clock) + $3, fence = t.fence + 1,
                 updated_at = (SELECT now FROM clock)
             WHERE t.id = ANY(ARRAY(SELECT id FROM due)) RETURNING t.*",
            self.n
        );
        let statement = Statement::new("claim tasks", sql).optional_number(now.map(|now| now.0));
        let statement = statement.text(self.node.as_str()).number(self.lease.as_millis() as i64);
        match self.owner {
            Some(owner) => statement.text(owner.as_str()),
            None => statement,
        }
    }
}

/// A claim as it is sent, to look at its plan.
#[cfg(test)]
pub(super) fn claim_statement(node: &NodeId, n: u32, owner: Option<&LoopId>) -> Statement {
    Wish { node, n, owner, lease: Duration::from_secs(1) }.statement(Some(Time(10_000)))
}

/// In the order of claims, which an update does not keep.
fn claimed(rows: &[Row]) -> Result<Vec<TaskRow>, Error> {
    let mut rows: Vec<TaskRow> = rows.iter().map(columns::task).collect::<Result<_, _>>()?;
    rows.sort_by(|a, b| {
        let place = |row: &TaskRow| (Reverse(row.task.priority), row.created_at);
        place(a).cmp(&place(b)).then_with(|| a.task.id.cmp(&b.task.id))
    });
    Ok(rows)
}

/// Ends tasks, all of them or none; answers one row for each. `None` when the batch is something else.
fn finishes(now: Option<Time>, ops: &[Op]) -> Option<Statement> {
    let finish = |op| match op {
        &Op::Finish { ref task, fence, state, ref result } => Some((task, fence, state, result)),
        _ => None,
    };
    let all: Vec<_> = ops.iter().map(finish).collect::<Option<_>>()?;
    let distinct: BTreeSet<_> = all.iter().map(|(task, ..)| *task).collect();
    if distinct.len() != all.len() {
        return None;
    }
    if let [(task, fence, end, result)] = all[..] {
        let statement = Statement::new("finish a task", FINISH_ONE).text(task.as_str()).number(fence.0 as i64);
        return Some(statement.text(label(end)).text(result).optional_number(now.map(|now| now.0)));
    }
    let statement = Statement::new("finish tasks", FINISH_ALL)
        .texts(all.iter().map(|(task, ..)| task.as_str()))
        .numbers(all.iter().map(|(_, fence, ..)| fence.0 as i64))
        .texts(all.iter().map(|(_, _, end, _)| label(*end)))
        .texts(all.iter().map(|(_, _, _, result)| result));
    Some(statement.optional_number(now.map(|now| now.0)))
}

fn label(end: TaskEnd) -> &'static str {
    match end {
        TaskEnd::Done => "done",
        TaskEnd::Dead => "dead",
    }
}

const FINISH_ONE: &str = "UPDATE everloop.tasks
     SET state = $3, node = NULL, until = NULL, result = $4,
         updated_at = coalesce($5, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
     WHERE id = $1 AND state = 'leased' AND fence = $2 RETURNING id";

/// Locked in order first, so that two that finish the same tasks do not wait in a circle.
const FINISH_ALL: &str = "WITH clock AS MATERIALIZED (
         SELECT coalesce($5, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
     ), want AS MATERIALIZED (
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) w (id, fence, state, result)
     ), held AS MATERIALIZED (
         SELECT t.id, t.state, t.fence FROM everloop.tasks t WHERE t.id = ANY($1) ORDER BY t.id FOR UPDATE
     ), fit AS MATERIALIZED (
         SELECT count(*) = cardinality($1) AS all_of_them FROM held h JOIN want w ON w.id = h.id
         WHERE h.state = 'leased' AND h.fence = w.fence
     )
     UPDATE everloop.tasks t
     SET state = w.state, node = NULL, until = NULL, result = w.result, updated_at = (SELECT now FROM clock)
     FROM want w WHERE t.id = w.id AND (SELECT all_of_them FROM fit) RETURNING t.id";
