//! Selects the subject that a failure is charged to: the one that fails across different values of
//! the others.
//!
//! Failure rates are Beta distributions over the latest outcomes; the weight of an outcome halves
//! every twenty outcomes of the subject. The other subjects' outcomes in the same time have the
//! same weight, so that an outage of everything is an excess of none. A subject is charged only if
//! - it exceeds the others of its dimension by the margin, at the 90 % bound of the difference;
//! - it also exceeds those with the same account, node, kind and so on, in each respect on its own;
//! - it also fails without each subject that was only seen together with it (a node is not charged
//!   for its one bad pane).
//!
//! Plain arithmetic and square roots only: the same outcomes give the same result on every machine.

use std::collections::BTreeSet;

use super::record::{OutcomeRecord, OutcomeView};
use super::{Class, Dimension, Immune, Subject};
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};

/// Minimum number of outcomes, of a subject as of those it is compared with.
pub const LEAST: usize = 5;
/// Minimum number of outcomes of others with the same account (or node, …) for a comparison.
const COMPARED: usize = 3;
/// Required excess over the failure rate of the others.
const MARGIN: f64 = 0.2;
/// The 90 % bound, in standard deviations.
const BOUND: f64 = 1.2816;
/// 2^(-1/20): after twenty outcomes half of the weight is left.
const DECAY: f64 = 0.965_936_328_924_846;
/// Weight of the prior of a subject, at the rate of the others.
const PRIOR: f64 = 4.0;
/// Prior of the others: one failure in ten.
const OTHERS_PRIOR: (f64, f64) = (0.5, 5.0);

/// Weighted sum of outcomes.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    n: usize,
    weight: f64,
    failed: f64,
}

impl Sum {
    fn add(&mut self, weight: f64, failed: bool) {
        self.n += 1;
        self.weight += weight;
        self.failed += if failed { weight } else { 0.0 };
    }

    /// Mean and variance of the rate, given the prior.
    fn rate(self, (failed, weight): (f64, f64)) -> (f64, f64) {
        let (a, n) = (self.failed + failed, self.weight + weight);
        let mean = a / n;
        (mean, mean * (1.0 - mean) / (n + 1.0))
    }
}

/// An outcome that put the dimension to the test.
struct Weighed<'a> {
    look: OutcomeView<'a>,
    weight: f64,
    failed: bool,
    own: bool,
}

/// Outcomes of a subject beside those of the others of its dimension.
struct Beside<'a> {
    subject: &'a Subject,
    rows: Vec<Weighed<'a>>,
}

impl<'a> Beside<'a> {
    fn new(record: &'a OutcomeRecord, subject: &'a Subject) -> Self {
        let mut weight = 1.0;
        let mut rows = Vec::new();
        for look in record.newest() {
            let Some(who) = look.of(subject.dimension) else { continue };
            let Some(failed) = look.class().failed_for(subject.dimension) else { continue };
            let own = who == subject;
            rows.push(Weighed { look, weight, failed, own });
            if own && !planted::is(Bug::HalfLifeIgnored) {
                weight *= DECAY;
            }
        }
        Self { subject, rows }
    }

    /// Sums of the subject's outcomes and of the others', limited to `wanted`.
    fn sums(&self, wanted: impl Fn(OutcomeView<'_>) -> bool) -> (Sum, Sum) {
        let (mut own, mut others) = (Sum::default(), Sum::default());
        for row in self.rows.iter().filter(|r| wanted(r.look)) {
            let sum = if row.own { &mut own } else { &mut others };
            sum.add(row.weight, row.failed);
        }
        (own, others)
    }

    /// All subjects that took part in the subject's outcomes.
    fn company(&self) -> BTreeSet<&'a Subject> {
        let own = self.rows.iter().filter(|r| r.own);
        own.flat_map(|r| r.look.subjects()).filter(|s| *s != self.subject).collect()
    }

    /// Average excess over the others with the same value in this dimension.
    fn within(&self, dimension: Dimension, usual: f64) -> Within {
        let (mut sum, mut spread, mut weight) = (0.0, 0.0, 0.0);
        let (mut compared, mut shared) = (0, false);
        for same in self.company().into_iter().filter(|s| s.dimension == dimension) {
            let (own, others) = self.sums(|look| look.has(same));
            shared |= others.n > 0;
            if others.n < COMPARED {
                continue;
            }
            let (rate, _) = others.rate((usual, 1.0));
            let (_, unsure) = others.rate((0.5, 1.0));
            sum += own.failed - own.weight * rate;
            spread += own.weight * own.weight * unsure;
            weight += own.weight;
            compared += own.n;
        }
        match (shared, compared >= LEAST) {
            (false, _) => Within::Alone,
            (true, false) => Within::Unclear,
            (true, true) => Within::Excess((sum - BOUND * spread.sqrt()) / weight),
        }
    }
}

/// A subject compared with others that had the same account, node, kind and so on.
enum Within {
    /// No other subject had the same.
    Alone,
    /// Too few outcomes for a comparison.
    Unclear,
    /// Excess over the others.
    Excess(f64),
}

/// Excess of a subject over the others, at the bound, with the figures it was computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// Lower bound of the difference.
    pub bound: f64,
    /// The subject's own rate.
    pub own: f64,
    /// Rate of the others.
    pub others: f64,
    /// The subject's own outcomes.
    pub outcomes: usize,
}

/// The excess of a subject over the others, if no other subject explains it.
pub fn excess(record: &OutcomeRecord, subject: &Subject, margin: f64) -> Option<Excess> {
    let beside = Beside::new(record, subject);
    let (own, others) = beside.sums(|_| true);
    if own.n < LEAST || others.n < LEAST {
        return None;
    }
    let found = compare(own, others);
    if planted::is(Bug::ChargesWithoutComparison) {
        return (found.own > margin).then_some(Excess { bound: found.own, ..found });
    }
    if found.bound <= margin {
        return None;
    }
    let half = margin / 2.0;
    let stands = |dimension| match beside.within(dimension, found.others) {
        // A node shows its other panes sooner or later; until then it may as well be the node.
        Within::Alone if dimension == Dimension::Node => own.n >= 2 * LEAST,
        Within::Alone => true,
        Within::Unclear => false,
        Within::Excess(excess) => excess > half,
    };
    let mut others = Dimension::ALL.into_iter().filter(|d| *d != subject.dimension);
    (others.all(stands) && fails_without(&beside, half)).then_some(found)
}

/// Whether it also fails without each of the subjects that were only seen together with it.
fn fails_without(beside: &Beside<'_>, half: f64) -> bool {
    beside.company().into_iter().all(|other| {
        let (_, with_others) = beside.sums(|look| look.has(other));
        if with_others.n >= LEAST {
            return true;
        }
        let (own, others) = beside.sums(|look| !look.has(other));
        match own.n {
            // Never seen apart: charging either of the two has the same effect.
            0 => true,
            1..LEAST => false,
            _ => {
                let found = compare(own, others);
                found.own - found.others > half
            }
        }
    })
}

fn compare(own: Sum, others: Sum) -> Excess {
    let (usual, usual_spread) = others.rate(OTHERS_PRIOR);
    let (rate, spread) = own.rate((PRIOR * usual, PRIOR));
    let bound = rate - usual - BOUND * (spread + usual_spread).sqrt();
    Excess { bound, own: rate, others: usual, outcomes: own.n }
}

/// The subject to which the latest failure is charged, if any.
pub fn charge(immune: &Immune, subjects: &[Subject], class: Class) -> Option<(Subject, Reason)> {
    let margin = MARGIN * f64::from(immune.thresholds.margin_permille) / 1000.0;
    let mut suspects: Vec<(&Subject, Excess)> = Vec::new();
    for subject in subjects.iter().filter(|s| class.failed_for(s.dimension) == Some(true)) {
        suspects.extend(excess(&immune.record, subject, margin).map(|found| (subject, found)));
    }
    // Of two that are equally bad the first in the order of dimensions: they were never seen apart.
    suspects.sort_by(|(a, x), (b, y)| y.bound.total_cmp(&x.bound).then(a.dimension.cmp(&b.dimension)));
    let (subject, found) = suspects.into_iter().next()?;
    let percent = |rate: f64| format!("{:.0} %", rate * 100.0);
    let reason = Reason::new(RuleId::ImmuneCharge)
        .with("subject", subject)
        .with("fails", percent(found.own))
        .with("others", percent(found.others))
        .with("excess", format!("at least {}", percent(found.bound)))
        .with("outcomes", found.outcomes);
    Some((subject.clone(), reason))
}
