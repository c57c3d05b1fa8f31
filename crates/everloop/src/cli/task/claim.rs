//! `everloop task next` and `everloop task claim`: takes a task, for a time and under a fence.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::ids::{Fence, LoopId, NodeId, TaskId};
use everloop_core::op::{Op, Refusal, Reply, TaskRow, TaskState};
use everloop_core::time::{human, parse_duration};
use everloop_store::{Error, Ledger, Sqlite};
use serde_json::json;

use super::{Invocation, TaskChange, named_loop, no_task, note};
use crate::board;
use crate::error::{Code, Failure};
use crate::state_folder::node_id;
use crate::ui::text::clean;

/// Another process may be faster; then the next task is taken.
const MAX_CONFLICT_RETRIES: u32 = 8;

/// How a task is held.
#[derive(Debug, clap::Args)]
struct Hold {
    /// Name of the holder [default: this machine's name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Duration of the lease; afterwards the task is free to take
    #[arg(long, default_value = "90s", value_name = "TIME", value_parser = parse_duration)]
    lease: Duration,
}

impl Hold {
    /// An agent holds a task in its own name, so that it can end no other holder's task.
    fn node(&self, session: &Invocation) -> NodeId {
        if session.caller.is_person() {
            return self.node.as_ref().map_or_else(node_id, NodeId::new);
        }
        NodeId::new(session.caller.name())
    }
}

/// Takes the most urgent task that is ready and prints its id and its fence.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task next --lease 10m --json")]
pub struct NextArgs {
    /// A task of this loop [default: one that belongs to no loop]
    #[arg(long = "loop", value_name = "ID")]
    owner: Option<String>,
    #[command(flatten)]
    hold: Hold,
}

/// Takes this task, if it is free and what it waits for is done.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  everloop task claim x7k2m --lease 10m")]
pub struct ClaimArgs {
    /// Id of the task
    task: String,
    #[command(flatten)]
    hold: Hold,
}

pub fn next(args: &NextArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let owner = named_loop(session, &ledger, args.owner.as_deref())?;
    let taken = match &owner {
        None => claim_free(&mut ledger, &args.hold, session)?,
        Some(id) => claim_of_loop(&mut ledger, id, &args.hold, session)?,
    };
    let Some(row) = taken else {
        session.ui.answer(&["no task is ready".to_owned()], &json!({ "task": null }))?;
        return Ok(Code::NotReached);
    };
    tell(&row, &args.hold, session)
}

/// Tasks without a loop: the ledger itself chooses.
fn claim_free(ledger: &mut Sqlite, hold: &Hold, session: &Invocation) -> Result<Option<TaskRow>, Failure> {
    let claim = Op::Claim { node: hold.node(session), n: 1, owner: None, lease: hold.lease };
    let replies = ledger.transact(session.now(), &[claim])?;
    let taken = replies.into_iter().find_map(|reply| match reply {
        Reply::Claimed(rows) => rows.into_iter().next(),
        _ => None,
    });
    if let Some(row) = &taken {
        // Which task it is was not known before; a crash in between costs the journal a line,
        // nothing else.
        let events = [claimed(&row.task.id, row.fence, hold, session)];
        TaskChange { owner: None, ops: &[], events: &events }.commit(ledger, session)?;
    }
    Ok(taken)
}

/// Tasks of a loop, except those it made for itself: its supervisor works on these.
fn claim_of_loop(
    ledger: &mut Sqlite,
    owner: &LoopId,
    hold: &Hold,
    session: &Invocation,
) -> Result<Option<TaskRow>, Failure> {
    for _ in 0..MAX_CONFLICT_RETRIES {
        let Some(row) = board::most_urgent(ledger, owner, &[], session.now())? else { return Ok(None) };
        match take(ledger, &row, hold, session) {
            Ok(row) => return Ok(row),
            Err(Error::Refused(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

fn take(ledger: &mut Sqlite, row: &TaskRow, hold: &Hold, session: &Invocation) -> Result<Option<TaskRow>, Error> {
    let id = row.task.id.clone();
    let fence = row.fence.next();
    let take = Op::Take { task: id.clone(), fence, node: hold.node(session), lease: hold.lease };
    let events = [claimed(&id, fence, hold, session)];
    TaskChange { owner: row.task.owner.as_ref(), ops: &[take], events: &events }.commit(ledger, session)?;
    ledger.task(&id)
}

fn claimed(id: &TaskId, fence: Fence, hold: &Hold, session: &Invocation) -> Event {
    note(format!("task {id} was claimed by {} for {} (fence {fence})", session.caller.name(), human(hold.lease)))
}

pub fn claim(args: &ClaimArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let id = TaskId::new(&args.task);
    let row = ledger.task(&id)?.ok_or_else(|| no_task(&id))?;
    if board::OWN_KINDS.contains(&row.task.kind.as_str()) {
        return Err(
            Failure::usage(format!("task `{id}` is its loop's own")).hint("claim one that `everloop task add` made")
        );
    }
    let taken = take(&mut ledger, &row, &args.hold, session).map_err(|e| not_taken(e, &row, session))?;
    tell(&taken.ok_or_else(|| no_task(&id))?, &args.hold, session)
}

fn not_taken(error: Error, row: &TaskRow, session: &Invocation) -> Failure {
    match (error, &row.state) {
        (Error::Refused(Refusal::Fenced { .. }), TaskState::Leased { node, until }) => {
            let left = human(until.since(session.now()));
            Failure::failed(format!("task `{}` is held by {node} for another {left}", row.task.id))
                .hint(format!("wait, or take it from its holder: everloop task retry {}", row.task.id))
        }
        (Error::Refused(refusal), _) => {
            Failure::failed(refusal.to_string()).hint(format!("inspect it: everloop task show {}", row.task.id))
        }
        (other, _) => other.into(),
    }
}

fn tell(row: &TaskRow, hold: &Hold, session: &Invocation) -> Result<Code, Failure> {
    let (id, fence) = (&row.task.id, row.fence);
    let mut lines = vec![format!("{id} --fence {fence}"), clean(&row.task.title)];
    lines.extend(row.task.prompt.lines().map(clean));
    session.ui.answer(&lines, &json!({ "task": row }))?;
    session.ui.talk(&format!("held for {}; end it with: everloop task done {id} --fence {fence}", human(hold.lease)));
    Ok(Code::Ok)
}
