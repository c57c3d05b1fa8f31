//! Taking a task, for a time and under a fence.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::op::{Op, Refusal, Reply, TaskRow, TaskState};
use everloop_core::time::human;
use everloop_store::{Error, Ledger, Sqlite};

use super::{Change, no_task, note};
use crate::board;
use crate::error::Failure;
use crate::services::ServiceContext;
use crate::state_folder::node_id;

/// Another caller may be faster; then the next one is taken.
const MAX_CLAIM_RETRIES: u32 = 8;

/// How a task is held.
#[derive(Clone, Debug)]
pub struct TaskHold {
    /// In which name; without one in that of this machine.
    pub node: Option<String>,
    /// When it is over, every caller may take the task.
    pub lease: Duration,
}

impl TaskHold {
    /// An agent holds a task in its own name, so that it can end no other's.
    fn node(&self, context: &ServiceContext) -> NodeId {
        if context.caller.is_person() {
            return self.node.as_ref().map_or_else(node_id, NodeId::new);
        }
        NodeId::new(context.caller.name())
    }
}

/// Take the most urgent task that is ready.
#[derive(Clone, Debug)]
pub struct NextTask {
    /// One of this loop; without a word one that belongs to no loop.
    pub owner: Option<String>,
    pub hold: TaskHold,
}

/// Take a certain task.
#[derive(Clone, Debug)]
pub struct ClaimTask {
    pub task: TaskId,
    pub hold: TaskHold,
}

/// Takes the most urgent task that is ready, if there is one.
pub fn next(context: &ServiceContext, request: &NextTask) -> Result<Option<TaskRow>, Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    match context.named_loop(&ledger, request.owner.as_deref())? {
        None => claim_free(&mut ledger, &request.hold, context),
        Some(id) => claim_of_loop(&mut ledger, &id, &request.hold, context),
    }
}

/// Tasks without a loop: the ledger itself chooses.
fn claim_free(ledger: &mut Sqlite, hold: &TaskHold, context: &ServiceContext) -> Result<Option<TaskRow>, Failure> {
    let claim = Op::Claim { node: hold.node(context), n: 1, owner: None, lease: hold.lease };
    let replies = ledger.transact(context.now(), &[claim])?;
    let taken = replies.into_iter().find_map(|reply| match reply {
        Reply::Claimed(rows) => rows.into_iter().next(),
        _ => None,
    });
    if let Some(row) = &taken {
        // Which task it is was not known before; a crash in between costs the journal a line,
        // nothing else.
        let events = [claimed(&row.task.id, row.fence, hold, context)];
        Change { owner: None, ops: &[], events: &events }.commit(ledger, context)?;
    }
    Ok(taken)
}

/// Tasks of a loop, except those it made for itself: its supervisor works on these.
fn claim_of_loop(
    ledger: &mut Sqlite,
    owner: &LoopId,
    hold: &TaskHold,
    context: &ServiceContext,
) -> Result<Option<TaskRow>, Failure> {
    for _ in 0..MAX_CLAIM_RETRIES {
        let Some(row) = board::most_urgent(ledger, owner, &[], context.now())? else { return Ok(None) };
        match take(ledger, &row, hold, context) {
            Ok(row) => return Ok(row),
            Err(Error::Refused(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

fn take(
    ledger: &mut Sqlite,
    row: &TaskRow,
    hold: &TaskHold,
    context: &ServiceContext,
) -> Result<Option<TaskRow>, Error> {
    let id = row.task.id.clone();
    let fence = row.fence.next();
    let take = Op::Take { task: id.clone(), fence, node: hold.node(context), lease: hold.lease };
    let events = [claimed(&id, fence, hold, context)];
    Change { owner: row.task.owner.as_ref(), ops: &[take], events: &events }.commit(ledger, context)?;
    ledger.task(&id)
}

fn claimed(id: &TaskId, fence: Fence, hold: &TaskHold, context: &ServiceContext) -> Event {
    note(format!("task {id} was claimed by {} for {} (fence {fence})", context.caller.name(), human(hold.lease)))
}

/// Takes this task, if it is not held and what it waits for is done.
pub fn claim(context: &ServiceContext, request: &ClaimTask) -> Result<TaskRow, Failure> {
    let home = context.home()?;
    let mut ledger = context.writer(&home)?;
    let id = &request.task;
    let row = ledger.task(id)?.ok_or_else(|| no_task(id))?;
    if board::OWN_KINDS.contains(&row.task.kind.as_str()) {
        return Err(
            Failure::usage(format!("task `{id}` is its loop's own")).hint("claim one that `everloop task add` made")
        );
    }
    let taken = take(&mut ledger, &row, &request.hold, context).map_err(|e| not_taken(e, &row, context))?;
    taken.ok_or_else(|| no_task(id))
}

fn not_taken(error: Error, row: &TaskRow, context: &ServiceContext) -> Failure {
    match (error, &row.state) {
        (Error::Refused(Refusal::Fenced { .. }), TaskState::Leased { node, until }) => {
            let left = human(until.since(context.now()));
            Failure::failed(format!("task `{}` is held by {node} for another {left}", row.task.id))
                .hint(format!("wait, or take it from its holder: everloop task retry {}", row.task.id))
        }
        (Error::Refused(refusal), _) => {
            Failure::failed(refusal.to_string()).hint(format!("inspect it: everloop task show {}", row.task.id))
        }
        (other, _) => other.into(),
    }
}
