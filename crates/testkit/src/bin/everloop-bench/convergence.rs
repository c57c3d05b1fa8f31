//! How fast research runs get better, per evaluation, beside plain greedy search and beside
//! openevolve and gepa: the same problems, scripted proposer and seeds for all of them.
//!
//! - `arena`: the problems and the other methods, which `peers/research/arena.py` plays
//! - `decided`: everloop's own decisions, in this process
//! - `real`: one run of the real binary, for the time that it adds to an evaluation

mod arena;
mod decided;
mod real;

use std::cmp::Ordering;

use self::arena::{Curve, Place};
use crate::report::{heading, remark};
use crate::{Options, Result};

/// The problems: their name, and whether higher values are better.
const LANDSCAPES: [(&str, bool); 2] = [("packing", true), ("rastrigin", false)];
/// The other methods, as the arena names them.
const OTHERS: [&str; 4] = ["greedy", "gepa", "gepa-cached", "openevolve"];
/// Evaluations after which the methods are compared.
const AFTER: [usize; 2] = [300, 1000];

pub fn run(options: &Options) -> Result<()> {
    heading("convergence: the best value per evaluation, same scripted proposer and seeds for all");
    let Some(place) = Place::find() else {
        remark("left out: openevolve and gepa are not installed; `just bench-research` installs them");
        return Ok(());
    };
    let seeds = options.length.pick(5, 2);
    let after: &[usize] = options.length.pick(&AFTER, &AFTER[..1]);
    let most = after.last().copied().unwrap_or_default();
    remark(&format!("{} seeds, {most} evaluations each; {}", seeds, place.versions()?));
    for (landscape, higher) in LANDSCAPES {
        let ours = (0..seeds).map(|seed| decided::play(&place, (landscape, higher), seed, most));
        let ours = ours.collect::<Result<Vec<Curve>>>()?;
        print(landscape, "everloop", &ours, after);
        for method in OTHERS {
            let theirs = (0..seeds).map(|seed| place.play(method, landscape, seed, most));
            let theirs = theirs.collect::<Result<Vec<Curve>>>()?;
            print(landscape, method, &theirs, after);
            compare(&ours, &theirs, after, higher);
        }
    }
    real::run(options, &place)
}

/// Median and range of a method.
fn print(landscape: &str, method: &str, curves: &[Curve], after: &[usize]) {
    for &n in after {
        let mut values: Vec<f64> = curves.iter().filter_map(|curve| curve.after(n)).collect();
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else { continue };
        let median = values[values.len() / 2];
        println!("{landscape:<10} {method:<12} after {n:>4}: median {median:>8.4}  ({least:.4} to {most:.4})");
    }
    let beyond: f64 = curves.iter().map(Curve::beyond_ms).sum::<f64>() / curves.len().max(1) as f64;
    remark(&format!("beyond the evaluation itself: {beyond:.2} ms each"));
}

/// Seeds in which everloop is ahead, level and behind.
fn compare(ours: &[Curve], theirs: &[Curve], after: &[usize], higher: bool) {
    for &n in after {
        let orders: Vec<Ordering> = ours
            .iter()
            .zip(theirs)
            .filter_map(|(own, other)| {
                let order = own.after(n)?.total_cmp(&other.after(n)?);
                Some(if higher { order } else { order.reverse() })
            })
            .collect();
        let count = |wanted| orders.iter().filter(|order| **order == wanted).count();
        let (ahead, level, behind) = (count(Ordering::Greater), count(Ordering::Equal), count(Ordering::Less));
        remark(&format!("after {n}: everloop is ahead in {ahead}, level in {level}, behind in {behind} seeds"));
    }
}
