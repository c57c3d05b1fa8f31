//! What turns used, from the journal alone. Reads in pages and keeps sums, never the records.

use std::time::Duration;

use everloop_core::ids::LoopId;
use everloop_core::spec::AgentSpec;
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};
use jiff::tz::TimeZone;

use super::{ServiceContext, journal, no_loops};
use crate::error::Failure;
use crate::record::read_state;
use crate::tally::{By, Loop, UsageTally};

/// Records read at once.
const CHUNK: usize = 1000;
/// A turn that ends in the requested time may have begun before it; none lasts longer than this by
/// default.
const TURN_MOST: Duration = Duration::from_secs(24 * 3600);

/// Sum up what turns used.
#[derive(Clone, Debug)]
pub struct UsageRequest {
    /// Only this loop, by id or name.
    pub word: Option<String>,
    /// The dimension of the sums.
    pub by: By,
    /// Only turns that ended after this.
    pub since: Option<Time>,
}

/// Sums up the journal.
pub fn usage(context: &ServiceContext, request: &UsageRequest) -> Result<UsageTally, Failure> {
    let home = context.home()?;
    match context.reader(&home)? {
        Some(ledger) => {
            let only = context.named_loop(&ledger, request.word.as_deref())?;
            count(&ledger, only.as_ref(), request.by, request.since)
        }
        None if request.word.is_some() => Err(no_loops()),
        None => Ok(UsageTally::new(request.by, TimeZone::system(), request.since)),
    }
}

/// Reads what is needed of the journal, page by page.
fn count(ledger: &Sqlite, only: Option<&LoopId>, by: By, since: Option<Time>) -> Result<UsageTally, Failure> {
    let mut tally = UsageTally::new(by, TimeZone::system(), since);
    for row in ledger.loops()? {
        let state = read_state(&row)?;
        let agent = &state.spec.agent;
        let known = Loop { name: state.name.clone(), agent: agent.name.clone(), account: agent.guard_account() };
        tally.know(state.id.clone(), known);
        if state.spec.guard.pace && !state.is_over() {
            tally.paced.extend(state.spec.agents().map(AgentSpec::guard_account));
        }
    }
    let mut after = match since {
        Some(since) => journal::before(ledger, since - TURN_MOST, ledger.last_seq()?)?,
        None => 0,
    };
    loop {
        let records = ledger.journal(after, only, CHUNK)?;
        let Some(last) = records.last() else { return Ok(tally) };
        after = last.seq;
        for record in &records {
            tally.take(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use everloop_core::event::{Event, Exit, Outcome, Settled};
    use everloop_core::guard::{Permit, Spend};
    use everloop_core::ids::{Fence, TaskId, TurnId};
    use everloop_core::op::Op;
    use everloop_core::stream::{TurnReport, Usage};

    use super::*;

    /// The three records of a turn that count, at 1 s after each other.
    fn turn(ledger: &mut Sqlite, number: u32) {
        let (task, owner) = (TaskId::new(format!("k3f9-{number}")), LoopId::new("k3f9"));
        let turn = TurnId::of(&task, Fence(1));
        let permit = Permit { scopes: Vec::new(), reserve: Spend::default(), canary: None, bucket: None };
        let (agent, account) = ("claude".to_owned(), "work".to_owned());
        let started = Event::TurnStarted {
            turn: turn.clone(),
            task,
            fence: Fence(1),
            number,
            permit,
            agent,
            account,
            resume: None,
            chosen: None,
        };
        let used = Usage { input: 10, output: 5, cache_read: 100, cache_write: 1, microusd: Some(1000) };
        let report = TurnReport { used, model: Some("m1".to_owned()), ok: Some(true), ..TurnReport::default() };
        let exit = Exit { code: Some(0), report: Some(Box::new(report)), ..Exit::default() };
        let spend = Spend { calls: 1, tokens: 116, microusd: 1000 };
        let settled = Settled { spend, ..Settled::default() };
        let ended =
            Event::TurnEnded { turn: turn.clone(), outcome: Outcome::NotYet, settled, work: None, integrated: None };
        let events = vec![started, Event::TurnExited { turn, exit }, ended];
        ledger.transact(Time(i64::from(number) * 1000), &[Op::Append { owner: Some(owner), events }]).unwrap();
    }

    #[test]
    fn a_journal_is_summed_up_page_by_page() {
        let mut ledger = Sqlite::in_memory().unwrap();
        for number in 1..=700 {
            turn(&mut ledger, number);
        }
        assert!(ledger.last_seq().unwrap() > 2 * CHUNK as u64, "it has several pages");
        let tally = count(&ledger, None, By::Account, None).unwrap();
        assert_eq!(tally.rows.keys().collect::<Vec<_>>(), ["work"]);
        assert_eq!((tally.total.turns, tally.total.tokens, tally.total.microusd), (700, 700 * 116, 700_000));
        assert_eq!((tally.total.input, tally.total.cache_read), (7000, 70_000));
        let late = count(&ledger, Some(&LoopId::new("k3f9")), By::Model, Some(Time(600_500))).unwrap();
        assert_eq!(late.total.turns, 100);
        assert_eq!(late.rows.keys().collect::<Vec<_>>(), ["m1"]);
        assert_eq!(count(&ledger, Some(&LoopId::new("none")), By::Day, None).unwrap().total.turns, 0);
    }
}
