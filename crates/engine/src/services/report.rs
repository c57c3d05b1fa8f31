//! The morning report: what loops did in a period. Reads the journal in pages and the present
//! states; what they mean is in `everloop_core::morning`.

use std::time::Duration;

use everloop_core::ids::LoopId;
use everloop_core::morning::{Changes, LoopReport, MorningFold, MorningReport, WaitingTicket};
use everloop_core::research::summary::summary;
use everloop_core::spec::WorkspaceMode;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_core::why::why;
use everloop_store::{Ledger, Sqlite, Tickets};

use super::diff::{DiffDetail, diff};
use super::{ServiceContext, journal, no_loops};
use crate::error::Failure;
use crate::record::read_state;
use crate::research::with_findings;

/// Records read at once.
const CHUNK: usize = 1000;
/// A turn or a sleep of the period may have begun before it; no turn lasts longer than this by
/// default.
const UNDER_WAY: Duration = Duration::from_secs(24 * 3600);
/// The period of a report about all loops.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Loops whose changes are counted by git; a report does not list more of them in full.
const MAX_COMPARED: usize = 20;

/// Report about a period.
pub struct ReportRequest<'a> {
    /// Only this loop, by id or name.
    pub word: Option<&'a str>,
    /// The beginning; without it the last 24 hours, or the whole life of the one loop.
    pub since: Option<Time>,
    /// A point in time in the reader's words.
    pub stamp: &'a dyn Fn(Time) -> String,
}

/// Reads what happened in the period.
pub fn report(context: &ServiceContext, request: &ReportRequest<'_>) -> Result<MorningReport, Failure> {
    let (home, now) = (context.home()?, context.now());
    let Some(ledger) = context.reader(&home)? else {
        return match request.word {
            Some(_) => Err(no_loops()),
            None => Ok(MorningReport::new(request.since.unwrap_or(now - DAY), now, Vec::new(), Vec::new())),
        };
    };
    let (states, only) = if let Some(word) = request.word {
        let (_, state) = context.find_loop(&ledger, Some(word))?;
        let only = state.team();
        (with_workers(&ledger, state)?, only)
    } else {
        let states = ledger.loops()?.iter().map(read_state).collect::<Result<Vec<LoopState>, Failure>>()?;
        let states = states.into_iter().map(|state| with_findings(&ledger, state));
        (states.collect::<Result<_, _>>()?, Vec::new())
    };
    let born = states.first().filter(|_| !only.is_empty()).map(|state| state.created_at);
    let since = request.since.or(born).unwrap_or(now - DAY);
    let mut fold = read(&ledger, &only, since, now)?;
    let mut loops = Vec::new();
    for state in &states {
        if only.is_empty() && state.is_over() && !fold.is_active(&state.id) {
            continue;
        }
        let mut part = fold.finish(state, why(state, now, request.stamp));
        if loops.len() < MAX_COMPARED {
            part.changes = changes(context, state, &part);
        }
        part.research = result(state);
        loops.push(part);
    }
    let tickets = ledger.tickets(Tickets::Open)?.into_iter();
    let is_meant = |owner: &Option<LoopId>| only.is_empty() || owner.as_ref().is_some_and(|id| only.contains(id));
    let tickets = tickets.filter(|ticket| is_meant(&ticket.owner)).map(|ticket| WaitingTicket {
        ticket: ticket.id,
        owner: ticket.owner,
        text: ticket.text,
        opened_at: ticket.opened_at,
    });
    Ok(MorningReport::new(since, now, loops, tickets.collect()))
}

/// The loop, and the further workers of its run.
fn with_workers(ledger: &Sqlite, state: LoopState) -> Result<Vec<LoopState>, Failure> {
    let mut states = Vec::new();
    for id in state.team().iter().filter(|id| **id != state.id) {
        states.extend(ledger.get_loop(id)?.map(|row| read_state(&row)).transpose()?);
    }
    states.insert(0, state);
    Ok(states)
}

/// Folds the records of the period, and those before it that may still matter.
fn read(ledger: &Sqlite, only: &[LoopId], since: Time, now: Time) -> Result<MorningFold, Failure> {
    let mut fold = MorningFold::new(since, now);
    let one = only.first().filter(|_| only.len() == 1);
    let mut after = journal::before(ledger, since - UNDER_WAY, ledger.last_seq()?)?;
    loop {
        let records = ledger.journal(after, one, CHUNK)?;
        let Some(last) = records.last() else { return Ok(fold) };
        after = last.seq;
        let is_meant = |owner: &LoopId| only.is_empty() || only.contains(owner);
        for record in records.iter().filter(|record| record.owner.as_ref().is_some_and(is_meant)) {
            fold.take(record);
        }
    }
}

/// What the kept work of a loop changes. A repository that is gone leaves the rest of the report.
fn changes(context: &ServiceContext, state: &LoopState, part: &LoopReport) -> Option<Changes> {
    if part.kept_count == 0 || state.spec.workspace.mode == WorkspaceMode::InPlace {
        return None;
    }
    let found = diff(context, Some(state.id.as_str()), DiffDetail::Files);
    if let Err(failure) = &found {
        tracing::debug!(owner = %state.id, error = %failure.message, "the changes are not counted");
    }
    let files = found.ok()?.files;
    let sum = |of: fn(&super::diff::ChangedFile) -> Option<u64>| files.iter().filter_map(of).sum();
    Some(Changes { files: files.len(), added: sum(|file| file.added), removed: sum(|file| file.removed) })
}

/// The summary of a research run.
fn result(state: &LoopState) -> Option<String> {
    if state.is_helper() {
        return None;
    }
    let (spec, found) = state.spec.research.as_deref().zip(state.research.as_deref())?;
    Some(summary(spec, found, state.spec.bounds.max_turns))
}
