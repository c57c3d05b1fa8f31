//! Operations: one batch is one transaction. Rows that it names are locked and read, the shared
//! rules decide, the rows are written: two round trips, one more for each claim in between. The
//! everyday operations of nodes are one statement (`single_statement`).
//!
//! Concurrent batches get the replies of some serial order, because every reply rests on rows that
//! are locked until the commit, on facts that never change (a task exists, is done), or on the
//! absence of a row, which the insert proves. The one exception is on purpose: a claim passes over
//! tasks that another transaction holds or makes at that moment. Its replies are exact all the
//! same.
//!
//! Crash windows: nothing is visible before the commit, and the hub undoes uncommitted work when
//! the connection ends. If it ends after the commit was sent, the result is [`Error::Unknown`], and
//! the caller reads back by key.

use everloop_core::op::streams::{DeliverRequest, Delivered, StreamOp};
use everloop_core::op::{Op, Reply};
use everloop_core::time::Time;

use super::connection::{BEGIN, HubConnection, Statement, StatementEnd, is_transient};
use super::draft::{BatchDraft, BatchKeys};
use super::single_statement::{self, ClaimRequest, claimed};
use super::{columns, streams, write};
use crate::Error;

/// Attempts at a batch that conflicts with others. Each conflict means that another batch got
/// through, so a batch that fails this often meets an overloaded hub.
const TRIES: u32 = 10;

/// Commits all of `ops` or nothing. `now` is `None` where the hub's clock counts.
pub(super) async fn run(line: &HubConnection, now: Option<Time>, ops: &[Op]) -> Result<Vec<Reply>, Error> {
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

/// `None` after a conflict; nothing happened then.
async fn attempt(line: &HubConnection, now: Option<Time>, ops: &[Op]) -> Result<Option<Vec<Reply>>, Error> {
    match single_statement::attempt(line, now, ops).await? {
        Some(replies) => Ok(Some(replies)),
        None => general(line, now, ops).await,
    }
}

async fn general(line: &HubConnection, now: Option<Time>, ops: &[Op]) -> Result<Option<Vec<Reply>>, Error> {
    let names = BatchKeys::of(now, ops);
    let answers = line.send(Some(BEGIN), &names.locks(), StatementEnd::Open).await?;
    let mut draft = BatchDraft::read(&names, &answers)?;
    if let Some(now) = now {
        draft.now = now;
    }
    // Before anything is added to the draft.
    let missing = draft.missing(&names);
    let mut replies = Vec::with_capacity(ops.len());
    for (place, op) in ops.iter().enumerate() {
        if let Op::Claim { node, n, owner, lease } = op {
            let wish = ClaimRequest { node, n: *n, owner: owner.as_ref(), lease: *lease };
            let mut statements = write::flush(&mut draft);
            statements.push(wish.statement(Some(draft.now)));
            let end = if place + 1 == ops.len() { StatementEnd::Commit } else { StatementEnd::Open };
            let answers = line.send(None, &statements, end).await?;
            let rows = claimed(&answers[statements.len() - 1])?;
            draft.claimed(&rows);
            replies.push(Reply::Claimed(rows));
            if end == StatementEnd::Commit {
                return Ok(Some(replies));
            }
            continue;
        }
        if let Op::Stream(StreamOp::Deliver(request)) = op {
            replies.push(Reply::Delivered(deliver(line, &mut draft, request).await?));
            continue;
        }
        match draft.apply(op) {
            Ok(reply) => replies.push(reply),
            Err(refusal) => {
                let look: Vec<Statement> = draft.look_again(&missing).into_iter().collect();
                let answers = line.send(None, &look, StatementEnd::Undo).await?;
                let found = answers.first().and_then(|rows| rows.first());
                let found =
                    found.map_or(Ok(0), |row| row.try_get::<_, i64>("found")).map_err(columns::shape("a count"))?;
                // Another transaction made it while the rows were locked: start over.
                return if found > 0 { Ok(None) } else { Err(refusal.into()) };
            }
        }
    }
    line.send(None, &write::flush(&mut draft), StatementEnd::Commit).await?;
    Ok(Some(replies))
}

/// The group's choice is certain, as its stream is locked; the entries are read after all that is
/// written.
async fn deliver(line: &HubConnection, draft: &mut BatchDraft, request: &DeliverRequest) -> Result<Delivered, Error> {
    let (ids, missed) = draft.streams.deliver(request, draft.now);
    if ids.is_empty() {
        return Ok(Delivered { entries: Vec::new(), missed });
    }
    let mut statements = write::flush(draft);
    statements.push(streams::with_ids(&request.stream, &ids));
    let answers = line.send(None, &statements, StatementEnd::Open).await?;
    let rows = answers.last().into_iter().flatten();
    Ok(Delivered { entries: rows.map(streams::entry).collect::<Result<_, _>>()?, missed })
}
