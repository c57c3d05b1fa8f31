//! False keeps of research runs at known noise: the rules side by side on a sphere in twenty
//! dimensions, with equal numbers of measurements.

use everloop_core::jitter::mix;
use everloop_core::research::race::{Look, Race, baseline_suffices, deviation, mean, unbiased};
use everloop_core::research::sample::Contender;
use everloop_core::research::{Direction, KeepRule};

use crate::report::{BenchRow, heading, remark};
use crate::{Options, Result};

const DIMENSIONS: usize = 20;
/// Measurements of a run.
const BUDGET: u32 = 300;
/// Length of a step of the scripted proposer, in each dimension.
const STEP: f64 = 0.1;
/// Noise, and the goal for the share of false keeps of a race.
const CASES: [(f64, f64); 2] = [(0.05, 12.0), (0.2, 21.0)];

/// How a candidate is decided.
#[derive(Clone, Copy)]
enum Decider {
    Rule(KeepRule),
    MedianOfThree,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    keeps: u32,
    false_keeps: u32,
    value: f64,
}

#[expect(clippy::unnecessary_wraps, reason = "every section has this form")]
pub fn run(options: &Options) -> Result<()> {
    heading("noise");
    let seeds = options.length.pick(60, 10);
    remark(&format!("a sphere in {DIMENSIONS} dimensions, {seeds} seeds, {BUDGET} measurements each"));
    for (sigma, goal) in CASES {
        for (name, decider) in [
            ("race", Decider::Rule(KeepRule::Race)),
            ("single", Decider::Rule(KeepRule::Single)),
            ("median of 3", Decider::MedianOfThree),
            ("sigma2", Decider::Rule(KeepRule::Sigma2)),
        ] {
            let runs: Vec<Tally> = (0..seeds).map(|seed| Search::new(seed, sigma).play(decider)).collect();
            let keeps: u32 = runs.iter().map(|run| run.keeps).sum();
            let wrong: u32 = runs.iter().map(|run| run.false_keeps).sum();
            let share = 100.0 * f64::from(wrong) / f64::from(keeps.max(1));
            let end = runs.iter().map(|run| run.value).sum::<f64>() / f64::from(seeds);
            let text = format!("{share:.1} % of {keeps} false, ends at {end:.3}");
            let row = BenchRow::new(format!("noise {sigma}, {name}"), text);
            let raced = matches!(decider, Decider::Rule(KeepRule::Race));
            let row = if raced { row.goal(&format!("<= {goal} %"), share <= goal) } else { row };
            row.print();
        }
    }
    Ok(())
}

/// A run of the scripted proposer.
struct Search {
    random: u64,
    sigma: f64,
    point: Vec<f64>,
    champion: Vec<f64>,
    measured: u32,
    /// Squares and degrees of freedom of what was measured more than once.
    spread: (f64, f64),
}

impl Search {
    fn new(seed: u32, sigma: f64) -> Self {
        let point = vec![1.0 / (DIMENSIONS as f64).sqrt(); DIMENSIONS];
        let random = mix(u64::from(seed), 77);
        let mut search =
            Self { random, sigma, point: point.clone(), champion: Vec::new(), measured: 0, spread: (0.0, 0.0) };
        while !baseline_suffices(&search.champion) {
            let value = search.measure(&point);
            search.champion.push(value);
        }
        search.learn(&search.champion.clone());
        search
    }

    /// A number between 0 and 1.
    fn uniform(&mut self) -> f64 {
        self.random = mix(self.random, 1);
        ((self.random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    fn measure(&mut self, point: &[f64]) -> f64 {
        self.measured += 1;
        truth(point) + self.sigma * self.normal()
    }

    fn learn(&mut self, values: &[f64]) {
        if values.len() > 1 {
            let free = (values.len() - 1) as f64;
            self.spread = (self.spread.0 + deviation(values).powi(2) * free, self.spread.1 + free);
        }
    }

    fn play(mut self, decider: Decider) -> Tally {
        let mut tally = Tally::default();
        while self.measured < BUDGET {
            let candidate: Vec<f64> = self.point.clone().into_iter().map(|x| x + STEP * self.normal()).collect();
            let (values, keep) = self.decide(decider, &candidate);
            self.learn(values.get(1..).unwrap_or_default());
            if keep {
                tally.keeps += 1;
                tally.false_keeps += u32::from(truth(&candidate) >= truth(&self.point));
                self.point = candidate;
                self.champion = match decider {
                    Decider::MedianOfThree => vec![median(&values)],
                    Decider::Rule(_) => unbiased(&values).to_vec(),
                };
            }
        }
        Tally { value: truth(&self.point), ..tally }
    }

    /// The measurements of a candidate, and whether it is kept.
    fn decide(&mut self, decider: Decider, candidate: &[f64]) -> (Vec<f64>, bool) {
        let mut values = vec![self.measure(candidate)];
        let Decider::Rule(rule) = decider else {
            values.extend([self.measure(candidate), self.measure(candidate)]);
            let keep = median(&values) < mean(&self.champion);
            return (values, keep);
        };
        let sigma = (self.spread.0 / self.spread.1).sqrt();
        loop {
            let (direction, champion) = (Direction::Lower, &self.champion);
            match (Race { rule, direction, champion, candidate: &values, exact: false, sigma }).next() {
                Look::Keep => return (values, true),
                Look::Discard => return (values, false),
                Look::Measure(Contender::Candidate) => values.push(self.measure(candidate)),
                Look::Measure(Contender::Champion) => {
                    let value = self.measure(&self.point.clone());
                    self.champion.push(value);
                }
            }
        }
    }
}

/// The sphere: the sum of squares.
fn truth(point: &[f64]) -> f64 {
    point.iter().map(|x| x * x).sum()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
