//! Two queues that get the same work in turns, so that a busy moment of the machine hits both. The
//! result is the median of the ratios of neighbours, not the ratio of sums, which one bad moment
//! can invert.

use std::time::{Duration, Instant};

use everloop_core::ids::{NodeId, TaskId};
use everloop_core::op::{NewTask, Op, Reply, TaskEnd, TaskRow, Trust};
use everloop_core::time::Time;
use everloop_store::Ledger;

use crate::report::{BenchRow, remark};
use crate::{Options, Result};

/// Tasks that are claimed at once.
pub const BATCHES: [u32; 3] = [1, 10, 100];

/// A queue of tasks.
pub trait Queue {
    /// Its name in the report.
    fn name(&self) -> &str;
    /// Adds `n` tasks with ids that begin with `prefix`.
    fn fill(&mut self, prefix: &str, n: u32) -> Result<()>;
    /// Claims and finishes `batch` tasks, `rounds` times.
    fn work(&mut self, batch: u32, rounds: u32) -> Result<Duration>;
}

/// Lets two queues work in turns, each first every second time, and prints the result.
pub fn run(options: &Options, (ours, plain): (&mut dyn Queue, &mut dyn Queue), batch: u32) -> Result<()> {
    let (pairs, rounds) = (options.length.pick(40, 6), rounds(batch));
    let mut took: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for pair in 0..pairs {
        let prefix = format!("b{batch}-{pair}");
        ours.fill(&prefix, batch * rounds)?;
        plain.fill(&prefix, batch * rounds)?;
        for turn in 0..2 {
            let which = (pair + turn) % 2;
            let queue: &mut dyn Queue = if which == 0 { ours } else { plain };
            took[which].push(queue.work(batch, rounds)?.as_secs_f64());
        }
    }
    let ratio = median(took[1].iter().zip(&took[0]).map(|(plain, ours)| plain / ours).collect());
    let [ours, bare] = took.map(|all| median(all) / f64::from(rounds));
    let rate = |seconds: f64| format!("{:.0} tasks/s", f64::from(batch) / seconds);
    BenchRow::new(format!("batches of {batch}"), rate(ours))
        .floor(plain.name(), &rate(bare), ratio)
        .goal("≥ 0.80x", ratio >= 0.8)
        .print();
    remark(&format!("claim and finish {:.3} ms, plain {:.3} ms", ours * 1e3, bare * 1e3));
    Ok(())
}

/// Short, so that the two are close to each other in time; long enough to be measured.
fn rounds(batch: u32) -> u32 {
    match batch {
        1 => 100,
        10 => 50,
        _ => 10,
    }
}

/// Of at least one number.
pub fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The ledger of everloop.
pub struct Ours<L>(pub L);

impl<L: Ledger> Queue for Ours<L> {
    fn name(&self) -> &'static str {
        "everloop"
    }

    fn fill(&mut self, prefix: &str, n: u32) -> Result<()> {
        enqueue(&mut self.0, prefix, n)
    }

    fn work(&mut self, batch: u32, rounds: u32) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..rounds {
            let ops = claim(&mut self.0, batch)?;
            finish(&mut self.0, &ops)?;
        }
        Ok(start.elapsed())
    }
}

/// Queues `n` tasks.
pub fn enqueue(ledger: &mut impl Ledger, prefix: &str, n: u32) -> Result<()> {
    let task = |i: u32| {
        Op::Enqueue(NewTask {
            id: TaskId::new(format!("{prefix}-{i}")),
            owner: None,
            kind: "batch".to_owned(),
            title: "a task".to_owned(),
            prompt: "do it".to_owned(),
            priority: 0,
            deps: Vec::new(),
            author: "bench".to_owned(),
            trust: Trust::Operator,
            ready_at: Time(0),
        })
    };
    let all: Vec<Op> = (0..n).map(task).collect();
    for chunk in all.chunks(1000) {
        ledger.transact(Time(0), chunk)?;
    }
    Ok(())
}

/// Claims exactly `n` tasks and returns the operations that finish them.
pub fn claim(ledger: &mut impl Ledger, n: u32) -> Result<Vec<Op>> {
    let claim = Op::Claim { node: NodeId::new("bench"), n, owner: None, lease: Duration::from_secs(90) };
    let Some(Reply::Claimed(rows)) = ledger.transact(Time(0), &[claim])?.pop() else { return Err("no claim".into()) };
    if rows.len() != n as usize {
        return Err(format!("{} tasks of {n} were claimed", rows.len()).into());
    }
    let finish = |row: TaskRow| Op::Finish {
        task: row.task.id,
        fence: row.fence,
        state: TaskEnd::Done,
        result: "ok".to_owned(),
    };
    Ok(rows.into_iter().map(finish).collect())
}

/// Finishes what [`claim`] claimed.
pub fn finish(ledger: &mut impl Ledger, ops: &[Op]) -> Result<()> {
    ledger.transact(Time(0), ops)?;
    Ok(())
}
