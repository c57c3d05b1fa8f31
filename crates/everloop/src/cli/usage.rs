//! `everloop usage`: what turns used, from the journal alone. Reads in pages and keeps sums, never
//! the records.

use std::time::Duration;

use everloop_core::ids::LoopId;
use everloop_core::pacing::{AHEAD_PERMILLE, Window};
use everloop_core::time::Time;
use everloop_engine::error::{Code, Failure};
use everloop_engine::record::read_state;
use everloop_engine::tally::{By, Loop, UsageTally};
use everloop_store::{Ledger, Sqlite};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::choices;
use super::{VerbSession, logs};
use crate::ui::usage::usage_lines;

const HELP: &str = "Examples:
  everloop usage
  everloop usage --by account --since 7d
  everloop usage k3f9 --by day --json

`~` marks figures that are everloop's estimate and not the agent's report, `*` those that come from the agent's telemetry
because its stream reported less or nothing.";

/// Records read at once.
const CHUNK: usize = 1000;
/// A turn that ends in the requested time may have begun before it; none lasts longer than this by
/// default.
const TURN_MOST: Duration = Duration::from_secs(24 * 3600);

/// Shows turns, tokens and money, and how full the windows of the accounts are.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct UsageArgs {
    /// Loop id or name [default: all]
    id: Option<String>,
    /// Dimension of the sums
    #[arg(long, value_parser = choices::sums(), default_value = "loop", value_name = "WHAT")]
    by: By,
    /// Only turns that ended after this: `7d` (ago), `21:00`, `2026-11-15`, `2026-11-15 21:00`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

pub fn usage(args: &UsageArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let since = args.since.as_deref().map(|text| logs::past(text, session)).transpose()?;
    let tally = match session.reader(&home)? {
        Some(ledger) => {
            let only = match &args.id {
                Some(word) => Some(session.find_loop(&ledger, Some(word))?.0.id),
                None => None,
            };
            count(&ledger, only.as_ref(), args.by, since)?
        }
        None if args.id.is_some() => return Err(super::no_loops()),
        None => UsageTally::new(args.by, TimeZone::system(), since),
    };
    let look = session.ui.look(session.now());
    session.ui.answer(&usage_lines(&tally, &look), &as_json(&tally, look.now))?;
    Ok(Code::Ok)
}

/// Reads what is needed of the journal, page by page.
fn count(ledger: &Sqlite, only: Option<&LoopId>, by: By, since: Option<Time>) -> Result<UsageTally, Failure> {
    let mut tally = UsageTally::new(by, TimeZone::system(), since);
    for row in ledger.loops()? {
        let state = read_state(&row)?;
        let agent = &state.spec.agent;
        let known = Loop { name: state.name.clone(), agent: agent.name.clone(), account: agent.account.clone() };
        tally.know(state.id.clone(), known);
        if state.spec.guard.pace && !state.is_over() {
            tally.paced.extend(state.spec.agents().map(|agent| agent.account.clone()));
        }
    }
    let mut after = match since {
        Some(since) => logs::before(ledger, since - TURN_MOST, ledger.last_seq()?)?,
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

fn as_json(tally: &UsageTally, now: Time) -> Value {
    let rows: Vec<Value> = tally.rows.iter().map(|(key, sum)| json!({ "key": key, "usage": sum })).collect();
    let window = |((account, _), window): (&(String, String), &Window)| {
        let pace = window.pace(now);
        json!({
            "account": account,
            "window": window.quota.window,
            "used_permille": window.quota.used_permille,
            "reset_at": window.quota.reset_at,
            "seen_at": window.seen,
            "over": window.is_over(now),
            "at_reset_permille": pace.map(|p| p.at_reset_permille),
            "empty_at": pace.and_then(|p| p.empty_at),
            "paced_until": window.hold(AHEAD_PERMILLE, now).filter(|_| tally.paced.contains(account)),
        })
    };
    json!({
        "by": tally.by.label(),
        "since": tally.since,
        "rows": rows,
        "total": tally.total,
        "windows": tally.windows.iter().map(window).collect::<Vec<_>>(),
    })
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
