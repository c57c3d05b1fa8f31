//! Batches that are one statement and one round trip, the everyday operations of nodes: a single
//! claim, finishing, tasks without dependencies, a heartbeat, a read of the leader lease. Claims
//! and finishes are functions in the hub (`migrations/postgres/0003_functions.sql`), because their
//! plans are expensive.
//!
//! None of these has the server's own time limit, so each may happen late, after the caller gave
//! up; a comment at each states why that does no harm.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everloop_core::ids::{LoopId, NodeId};
use everloop_core::op::{NewTask, Op, Reply, TaskRow};
use everloop_core::time::Time;
use tokio_postgres::Row;

use super::connection::{HubConnection, Statement, is_not_held};
use super::{columns, write};
use crate::{Error, task};

/// `None` when the batch is something else, or when only the full rules can decide it; nothing
/// happened then.
pub(super) async fn attempt(line: &HubConnection, now: Option<Time>, ops: &[Op]) -> Result<Option<Vec<Reply>>, Error> {
    match ops {
        [] => return Ok(Some(Vec::new())),
        [Op::Claim { node, n, owner, lease }] => {
            let wish = ClaimRequest { node, n: *n, owner: owner.as_ref(), lease: *lease };
            // A late one leases tasks to a node that does not know of it, and the lease runs out.
            let rows = line.alone(&wish.statement(now)).await?;
            return Ok(Some(vec![Reply::Claimed(claimed(&rows)?)]));
        }
        [Op::Heartbeat { node, info }] => {
            // A late one makes a node look alive a little longer.
            line.alone(&write::heartbeats(&[(node, info)], now)).await?;
            return Ok(Some(vec![Reply::Ok]));
        }
        [Op::Elect { node, .. }] => {
            let taken = !line.ask(&supervised(node, now)).await?.is_empty();
            return Ok(taken.then(|| vec![Reply::Elected(None)]));
        }
        _ => {}
    }
    if let Some(statement) = finishes(now, ops) {
        // A late one is still checked against the fence, and does the same.
        return match line.alone(&statement).await {
            Ok(_) => Ok(Some(vec![Reply::Ok; ops.len()])),
            // The full rules find the task and the reason.
            Err(error) if is_not_held(&error) => Ok(None),
            Err(error) => Err(error),
        };
    }
    let Some(new) = queues(ops) else { return Ok(None) };
    // A late one makes a task under its own id, once.
    let rows = line.alone(&write::queue(&new, write::Clash::LeftAlone, now)).await?;
    let made: BTreeSet<String> =
        rows.iter().map(|row| columns::plain(row, "id")).collect::<Result<_, _>>().map_err(columns::shape("a task"))?;
    Ok(Some(new.iter().map(|task| Reply::Made(made.contains(task.id.as_str()))).collect()))
}

/// Tasks with different ids and without dependencies; `None` when the batch is something else.
fn queues<'a>(ops: &'a [Op]) -> Option<Vec<&'a NewTask>> {
    let simple = |op: &'a Op| match op {
        Op::Enqueue(task) if task.deps.is_empty() => Some(task),
        _ => None,
    };
    let all: Vec<&NewTask> = ops.iter().map(simple).collect::<Option<_>>()?;
    let distinct: BTreeSet<_> = all.iter().map(|task| &task.id).collect();
    (distinct.len() == all.len()).then_some(all)
}

/// Returns a row when another node leads: then the election is lost without a lock or a write,
/// which is the usual case.
fn supervised(node: &NodeId, now: Option<Time>) -> Statement {
    let sql = "SELECT 1 FROM everloop.leader
               WHERE node <> $1 AND until > coalesce($2, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)";
    Statement::new("read the leader lease", sql).text(node.as_str()).optional_number(now.map(|now| now.0))
}

pub(super) struct ClaimRequest<'a> {
    pub(super) node: &'a NodeId,
    pub(super) n: u32,
    pub(super) owner: Option<&'a LoopId>,
    pub(super) lease: Duration,
}

impl ClaimRequest<'_> {
    pub(super) fn statement(&self, now: Option<Time>) -> Statement {
        let sql = match self.n {
            1 => "SELECT * FROM everloop.claim_one($1, $2, $3, $4)",
            _ => "SELECT * FROM everloop.claim($1, $2, $3, $4, $5)",
        };
        let statement = Statement::new("claim tasks", sql).optional_number(now.map(|now| now.0));
        let statement = statement.text(self.node.as_str()).number(self.lease.as_millis() as i64);
        let statement = statement.optional_text(self.owner.map(LoopId::as_str));
        if self.n == 1 { statement } else { statement.number(i64::from(self.n)) }
    }
}

/// In the order of claims, which an update does not keep.
pub(super) fn claimed(rows: &[Row]) -> Result<Vec<TaskRow>, Error> {
    let mut rows: Vec<TaskRow> = rows.iter().map(columns::task).collect::<Result<_, _>>()?;
    rows.sort_by(|a, b| {
        let place = |row: &TaskRow| (Reverse(row.task.priority), row.created_at);
        place(a).cmp(&place(b)).then_with(|| a.task.id.cmp(&b.task.id))
    });
    Ok(rows)
}

/// Ends tasks, all of them or none. `None` when the batch is something else.
fn finishes(now: Option<Time>, ops: &[Op]) -> Option<Statement> {
    let now = now.map(|now| now.0);
    if let [Op::Finish { task, fence, state, result }] = ops {
        let statement = Statement::new("finish a task", "SELECT everloop.finish_one($1, $2, $3, $4, $5)");
        let statement = statement.optional_number(now).text(task.as_str()).number(fence.0 as i64);
        return Some(statement.text(task::end_label(*state)).text(result));
    }
    let finish = |op| match op {
        &Op::Finish { ref task, fence, state, ref result } => Some((task, (fence, state, result))),
        _ => None,
    };
    // In order, so that two batches that finish the same tasks do not deadlock.
    let all: BTreeMap<_, _> = ops.iter().map(finish).collect::<Option<_>>()?;
    if all.len() != ops.len() {
        return None;
    }
    let statement = Statement::new("finish tasks", "SELECT everloop.finish($1, $2, $3, $4, $5)").optional_number(now);
    let statement = statement.texts(all.keys().map(|task| task.as_str()));
    let statement = statement.numbers(all.values().map(|(fence, ..)| fence.0 as i64));
    let statement = statement.texts(all.values().map(|(_, end, _)| task::end_label(*end)));
    Some(statement.texts(all.values().map(|(.., result)| result)))
}
