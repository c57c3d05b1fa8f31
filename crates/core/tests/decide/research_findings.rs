//! What must hold for the findings of any research run, and that each planted mistake breaks it.

use everloop_core::event::LoopEnd;
use everloop_core::research::ResearchSpec;
use everloop_core::research::ladder::Rung;
use everloop_core::research::row::{Row, Status};
use everloop_core::state::{LoopState, Phase};

use super::research::{Change, Played, Run, SCRIPT, SIZE};

/// The commit that the runs begin from.
const START: &str = "base";
/// Turns that may mend an experiment.
const MOST_FIXES: u32 = 3;

/// Runs that together show every rule.
fn runs() -> Vec<Run> {
    let mut stuck = vec![Change::Value(90.0), Change::Value(80.0)];
    stuck.extend((0..40).map(|n| Change::Value(200.0 + f64::from(n))));
    let mut impatient = Run::new(&stuck, None, None);
    impatient.rig.state.spec.research.as_mut().expect("a research run").patience = Some(7);
    let close = [Change::Value(90.0), Change::Value(88.95), Change::Same, Change::Same];
    let mute = [Change::Mute, Change::Mute, Change::Value(1.0)];
    vec![
        Run::new(&SCRIPT, None, None),
        Run::new(&SCRIPT, Some(88.0), None),
        Run::new(&stuck, None, None),
        impatient,
        Run::new(&close, None, None),
        Run::new(&mute, None, None),
        Run::with_frontier(None),
    ]
}

/// What does not hold for the findings of a run.
fn violations(played: &Played) -> Vec<String> {
    let Played { state, script, rows } = played;
    let Some(research) = &state.research else { return vec!["no findings".to_owned()] };
    let mut found: Vec<String> = rows.iter().flat_map(of_row).collect();
    for (row, change) in rows.iter().zip(script) {
        let expected = match change {
            Change::Cheats => Some(Status::Refused),
            Change::Mute => Some(Status::MetricError),
            Change::Nothing => Some(Status::NoOp),
            _ => None,
        };
        if expected.is_some_and(|status| row.status != status) {
            found.push(format!("{} is {}, and the change {change:?}", row.number, row.status.label()));
        }
    }
    let same = script.iter().zip(rows).filter(|(change, _)| **change == Change::Same);
    if same.skip(1).any(|(_, row)| row.status != Status::Repeat) {
        found.push("the same change was measured twice".to_owned());
    }
    let kept = rows.iter().rev().find(|row| row.status.keeps());
    if kept.is_some_and(|row| row.samples.len() > 1 && research.champion.samples.first() == row.samples.first()) {
        found.push("the look that chose the champion counts".to_owned());
    }
    found.extend(bases(rows));
    found.extend(frontier(rows));
    found.extend(ending(state, rows));
    found
}

fn of_row(row: &Row) -> Vec<String> {
    let mut found = Vec::new();
    if row.status == Status::Keep && row.samples.len() < 2 {
        found.push(format!("{} was kept at its first look", row.number));
    }
    if row.status == Status::Keep && row.description.contains("Lucky") {
        found.push(format!("{} was kept for its luck", row.number));
    }
    if row.status.keeps() && row.guard == Some(false) {
        found.push(format!("{} was kept with a broken guard", row.number));
    }
    if matches!(row.status, Status::Crash | Status::Timeout | Status::MetricError) && row.value.is_some() {
        found.push(format!("{} crashed and has a value", row.number));
    }
    if row.fixes > MOST_FIXES {
        found.push(format!("{} was mended {} times", row.number, row.fixes));
    }
    found
}

/// What is on the frontier is better in something than all that was kept or put there before, and
/// not by one look.
fn frontier(rows: &[Row]) -> Vec<String> {
    let size = |row: &Row| row.others.get("size").copied().unwrap_or(SIZE);
    let mut found = Vec::new();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.status == Status::Frontier) {
        let better = |other: &&Row| row.value < other.value || size(row) < size(other);
        let earlier = rows[..at].iter().filter(|other| other.status.succeeds());
        found.extend(
            earlier.filter(|other| !better(other)).map(|other| {
                format!("{} is on the frontier, and {} is as good in everything", row.number, other.number)
            }),
        );
        if row.samples.len() < 2 {
            found.push(format!("{} is on the frontier at its first look", row.number));
        }
    }
    found
}

/// Every experiment begins from the champion; on the rung for it, every other one from an older keep.
fn bases(rows: &[Row]) -> Vec<String> {
    let (mut kept, mut at, mut found) = (vec![START.to_owned()], 0, Vec::new());
    for row in rows {
        let (champion, older) = kept.split_last().expect("the start is there");
        let base = row.base.clone().unwrap_or_default();
        let branches = Rung::is_on_line(row.number - 1 - at) && !older.is_empty();
        let right = if branches { older.contains(&base) } else { base == *champion };
        if !right {
            found.push(format!("{} begins from `{base}`, and the champion is `{champion}`", row.number));
        }
        if row.status.keeps() {
            kept.extend(row.commit.clone());
            at = row.number;
        }
    }
    found
}

/// A run ends for the reasons that it has, and then at once.
fn ending(state: &LoopState, rows: &[Row]) -> Vec<String> {
    let Phase::Ended { ending, .. } = &state.phase else { return vec!["it does not end".to_owned()] };
    let spec: &ResearchSpec = state.spec.research.as_ref().expect("a research run");
    let is_met = |row: &Row| {
        row.status.keeps() && spec.goal_value.is_some_and(|goal| row.value.is_some_and(|value| value <= goal))
    };
    let mute = |pair: &[Row]| pair.iter().all(|row| row.status == Status::MetricError);
    let since = rows.iter().rev().take_while(|row| !row.status.keeps()).count();
    let bound = state.spec.bounds.max_turns.map(|n| n as usize);
    let reasons = [
        (rows.iter().position(is_met).map(|at| at + 1), "its goal"),
        (rows.windows(2).position(mute).map(|at| at + 2), "two errors of its metric"),
        (spec.patience.map(|most| rows.len() - since + most as usize), "its patience"),
        (bound, "its bound"),
    ];
    let due = reasons.into_iter().filter_map(|(at, why)| Some((at?, why))).min_by_key(|(at, _)| *at);
    match due {
        Some((at, why)) if at != rows.len() => vec![format!("{} experiments, and {why} ends it at {at}", rows.len())],
        Some((_, "its goal")) if *ending != LoopEnd::Reached => vec![format!("its goal is met: {ending:?}")],
        Some(_) => Vec::new(),
        None => vec![format!("nothing ends it: {ending:?}")],
    }
}

#[test]
fn the_findings_of_scripted_runs_hold() {
    for (n, run) in runs().into_iter().enumerate() {
        assert_eq!(violations(&run.played()), Vec::<String>::new(), "run {n}");
    }
}

#[cfg(feature = "planted")]
#[test]
fn planted_mistakes_are_found() {
    use everloop_core::planted::{RESEARCH, plant};
    assert!(RESEARCH.len() >= 12);
    for bug in RESEARCH {
        plant(Some(*bug));
        let found: Vec<String> = runs().into_iter().flat_map(|run| violations(&run.played())).collect();
        plant(None);
        assert!(!found.is_empty(), "{bug:?} is not found");
    }
}
