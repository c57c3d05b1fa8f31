//! Tokens and money: today, and by day, model, account, agent and loop. A fold that goes on where
//! it stopped, so that a long journal is read once and in small steps.

use std::time::Duration;

use everloop_core::event::Event;
use everloop_core::spec::AgentSpec;
use everloop_core::time::Time;
use everloop_store::{Ledger, Sqlite};
use jiff::tz::TimeZone;
use serde::Serialize;

use super::ledger;
use crate::error::Failure;
use crate::record::read_state;
use crate::services::{ServiceContext, journal};
use crate::tally::{By, Loop, UsageSum, UsageTally};

/// The period of the sums.
const PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);
/// Records that one step reads: some milliseconds.
const STEP: usize = 500;
/// Points of the curve; further ones are joined.
const POINTS: usize = 400;
/// The dimensions of the sums.
const DIMENSIONS: [By; 5] = [By::Day, By::Model, By::Account, By::Agent, By::Loop];

/// Sums over the last week; `advance` brings them up to date.
#[derive(Debug)]
pub struct Burn {
    since: Time,
    seq: u64,
    last: u64,
    tallies: Vec<UsageTally>,
    today: (Time, u64),
    /// Cumulative dollars at times.
    curve: Vec<(Time, u64)>,
}

/// What was used.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BurnView {
    pub since: Time,
    /// Whether records are still being read.
    pub counting: bool,
    pub total: UsageSum,
    pub today_microusd: u64,
    pub tables: Vec<BurnTable>,
    /// Cumulative millionths of a dollar at times.
    pub curve: Vec<(Time, u64)>,
    /// Dollars that open loops may use in all, where each of them has a limit.
    pub budget_microusd: Option<u64>,
    /// Dollars per kept change.
    pub per_keep_microusd: Option<u64>,
}

/// Sums of one dimension, the dearest first.
#[derive(Clone, Debug, Serialize)]
pub struct BurnTable {
    pub by: &'static str,
    pub rows: Vec<(String, UsageSum)>,
}

impl Burn {
    /// Nothing read yet.
    pub fn new(now: Time) -> Self {
        let since = now - PERIOD;
        let tallies = DIMENSIONS.map(|by| UsageTally::new(by, TimeZone::system(), Some(since))).into();
        Self { since, seq: 0, last: u64::MAX, tallies, today: (midnight(now), 0), curve: Vec::new() }
    }

    /// Whether the sums are out of date: of another week, or records came.
    pub fn is_old(&self, now: Time) -> bool {
        now.since(self.since) > PERIOD + Duration::from_secs(24 * 3600)
    }

    /// Reads on; whether all records were read.
    pub fn advance(&mut self, context: &ServiceContext) -> Result<bool, Failure> {
        let Some(ledger) = ledger(context)? else { return Ok(true) };
        if self.seq == 0 {
            self.begin(&ledger)?;
        }
        let today = midnight(context.now());
        if self.today.0 != today {
            self.today = (today, 0);
        }
        let records = ledger.journal(self.seq, None, STEP)?;
        for record in &records {
            self.seq = record.seq;
            for tally in &mut self.tallies {
                tally.take(record);
            }
            if let Event::TurnEnded { settled, .. } = &record.event {
                if record.at >= self.today.0 {
                    self.today.1 = self.today.1.saturating_add(settled.spend.microusd);
                }
                if record.at >= self.since {
                    let before = self.curve.last().map_or(0, |(_, sum)| *sum);
                    self.curve.push((record.at, before.saturating_add(settled.spend.microusd)));
                    self.thin();
                }
            }
        }
        self.last = ledger.last_seq()?;
        Ok(records.len() < STEP)
    }

    fn begin(&mut self, ledger: &Sqlite) -> Result<(), Failure> {
        for row in ledger.loops()? {
            let Ok(state) = read_state(&row) else { continue };
            let agent: &AgentSpec = &state.spec.agent;
            let known = Loop { name: state.name.clone(), agent: agent.name.clone(), account: agent.guard_account() };
            for tally in &mut self.tallies {
                tally.know(state.id.clone(), known.clone());
            }
        }
        self.seq = journal::before(ledger, self.since, ledger.last_seq()?)?;
        Ok(())
    }

    /// Every second point of a long curve goes.
    fn thin(&mut self) {
        if self.curve.len() >= 2 * POINTS {
            let mut keep = false;
            self.curve.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// Dollars of today so far.
    pub fn today_microusd(&self) -> u64 {
        self.today.1
    }

    /// The sums so far.
    pub fn view(&self, context: &ServiceContext) -> Result<BurnView, Failure> {
        let table = |tally: &UsageTally| {
            let clean = |name: &String| super::line(name);
            let mut rows: Vec<(String, UsageSum)> = tally.rows.iter().map(|(name, sum)| (clean(name), *sum)).collect();
            match tally.by {
                By::Day => rows.reverse(),
                _ => rows.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.microusd, sum.tokens))),
            }
            BurnTable { by: tally.by.label(), rows }
        };
        let (mut budget, mut kept) = (Some(0_u64), 0_u64);
        if let Some(ledger) = ledger(context)? {
            for state in super::states(&ledger)?.0 {
                kept += u64::from(state.progress.kept_count);
                if !state.is_over() {
                    let own = state.spec.guard.budget.microusd;
                    budget = budget.zip(own).map(|(sum, own)| sum.saturating_add(own));
                }
            }
        }
        let total = self.tallies.first().map(|tally| tally.total).unwrap_or_default();
        Ok(BurnView {
            since: self.since,
            counting: self.seq < self.last,
            total,
            today_microusd: self.today.1,
            tables: self.tallies.iter().map(table).collect(),
            curve: self.curve.clone(),
            budget_microusd: budget.filter(|sum| *sum > 0),
            per_keep_microusd: (kept > 0 && total.microusd > 0).then(|| total.microusd / kept),
        })
    }
}

impl BurnView {
    /// The cumulative curve as a drawing.
    pub fn svg(&self, now: Time) -> String {
        let points: Vec<(f64, f64)> = self.curve.iter().map(|(at, sum)| (at.0 as f64, *sum as f64 / 1e6)).collect();
        let ends = (self.since, now);
        everloop_core::picture::growth::Growth {
            title: "Dollars, cumulative",
            points: &points,
            ends,
            limit: self.budget_microusd.map(|sum| sum as f64 / 1e6),
        }
        .svg(&super::clock)
    }
}

fn midnight(now: Time) -> Time {
    let at = jiff::Timestamp::from_millisecond(now.0).ok().map(|at| at.to_zoned(TimeZone::system()));
    let start = at.and_then(|at| at.start_of_day().ok());
    start.map_or(now, |start| Time(start.timestamp().as_millisecond()))
}
