//! `everloop status`: a line per loop, and what the guard holds.

use everloop_core::guard::{Guards, Scope};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use jiff::tz::TimeZone;

use super::isolation;
use super::paint::Paint;
use super::quantities::{Accuracy, coarse, moment, money, relative};
use super::table::Table;
use super::text::{clean, fit};

/// The time, zone, colours and width of a listing.
#[derive(Clone, Debug)]
pub struct StatusStyle {
    pub now: Time,
    pub zone: TimeZone,
    pub paint: Paint,
    /// Cells in a line.
    pub width: usize,
}

/// The loops as a table, holds of the guard below it.
pub fn status_table(loops: &[LoopState], guards: &Guards, look: &StatusStyle) -> Vec<String> {
    let folder = |state: &LoopState| state.spec.workspace.dir.clone();
    // One folder needs no column.
    let has_folders = loops.iter().any(|state| folder(state) != folder(&loops[0]));
    let heads = ["ID", "NAME", "STATE", "CHECKS", "TURNS", "SPENT", "NEXT"];
    let more: &[&str] = if has_folders { &["FOLDER", "GOAL"] } else { &["GOAL"] };
    let mut table = Table::new(&[&heads[..], more].concat());
    for state in loops {
        let folder = has_folders.then(|| clean(&folder(state)));
        let cells = [
            state.id.to_string(),
            clean(&state.name),
            label(state, look.paint),
            format!("{}/{}", state.progress.board.passing().len(), state.progress.board.0.len()),
            state
                .spec
                .bounds
                .max_turns
                .map_or(state.task.turns.to_string(), |max| format!("{}/{max}", state.task.turns)),
            spent(state),
            next(state, look),
        ];
        table.row(cells.into_iter().chain(folder).chain([clean(&state.spec.goal)]));
    }
    let mut lines = if loops.is_empty() { vec!["no loops".to_owned()] } else { table.lines(look.width) };
    lines.extend(holds(guards, look));
    let open = |state: &&LoopState| !state.is_over() && !isolation::holds(&state.spec);
    let open = loops.iter().filter(open);
    lines
        .extend(open.map(|s| look.paint.warn(&format!("{}: isolation {}", s.id, isolation::means(&s.spec.isolation)))));
    lines
}

fn label(state: &LoopState, paint: Paint) -> String {
    let word = if state.people.paused.is_some() { "paused" } else { state.label() };
    match word {
        "reached" => paint.good(word),
        "failed" => paint.bad(word),
        "waiting" | "parked" | "paused" | "exhausted" | "stopped" => paint.warn(word),
        _ => word.to_owned(),
    }
}

fn spent(state: &LoopState) -> String {
    match state.spend.spent.microusd {
        0 => "-".to_owned(),
        sum => format!("{}{}", Accuracy::from(&state.spend).of_dollars(), money(sum)),
    }
}

fn next(state: &LoopState, look: &StatusStyle) -> String {
    match &state.phase {
        Phase::Turn(turn) => format!("turn {} for {}", turn.number, coarse(look.now.since(turn.started_at))),
        Phase::Waiting { .. } if ["watching", "parked"].contains(&state.phase.label()) => "at a change".to_owned(),
        Phase::Waiting { reason, .. } => {
            reason.until.map_or("on a command".to_owned(), |at| relative(at.max(look.now), look.now))
        }
        Phase::Ended { at, .. } => format!("- (ended {})", relative(*at, look.now)),
        Phase::New | Phase::Ready => "now".to_owned(),
    }
}

/// A line for every scope that the guard holds.
pub fn holds(guards: &Guards, look: &StatusStyle) -> Vec<String> {
    let hold = |(scope, guard): (&Scope, &everloop_core::guard::Versioned)| {
        let said = match (&guard.state.freeze, &guard.state.cooling) {
            (Some(freeze), _) => {
                let end = freeze.until.map_or("until a person releases it".to_owned(), |at| {
                    format!("until {}", moment(at, look.now, &look.zone))
                });
                let trial =
                    freeze.canary_at.map_or(String::new(), |at| format!(", next trial {}", relative(at, look.now)));
                format!("frozen {end} ({}){trial}", freeze.cause)
            }
            (None, Some(cooling)) if cooling.until > look.now => {
                format!("cools down, goes on {} (level {})", relative(cooling.until, look.now), cooling.level)
            }
            (None, _) => return None,
        };
        let line = format!("{} {}: {}", look.paint.warn("held"), clean(&scope.to_string()), clean(&said));
        Some(fit(&line, look.width))
    };
    let mut lines: Vec<String> = guards.iter().filter_map(hold).collect();
    if guards.values().any(|guard| guard.state.freeze.is_some()) {
        lines.push(fit("release it: everloop guard release SCOPE --reason 'WHY'", look.width));
    }
    lines
}

#[cfg(test)]
mod tests {
    use everloop_core::event::LoopEnd;
    use everloop_core::guard::{Cooling, Freeze, GuardState, Versioned};
    use everloop_core::reason::{Reason, RuleId};

    use super::super::text::width;
    use super::*;
    use everloop_testkit::sample::{START, state, turn};

    fn look(width: usize) -> StatusStyle {
        StatusStyle { now: Time(START.0 + 130_000), zone: TimeZone::UTC, paint: Paint::Off, width }
    }

    fn loops() -> Vec<LoopState> {
        let mut running = state();
        running.phase = Phase::Turn(Box::new(turn(3)));
        running.spend.spent.microusd = 300_000;
        let mut waiting = state();
        let reason = Reason::new(RuleId::GuardGap).until(Time(START.0 + 142_000));
        waiting.phase = Phase::Waiting { reason, since: START };
        let mut ended = state();
        ended.phase = Phase::Ended { ending: LoopEnd::Reached, at: START };
        vec![running, waiting, ended]
    }

    fn guards() -> Guards {
        let freeze = Freeze {
            cause: "cooldowns".into(),
            audit: vec![],
            since: START,
            until: Some(Time(START.0 + 3_600_000)),
            canary_at: Some(Time(START.0 + 900_000)),
            canary_every_ms: 900_000,
            by: None,
        };
        let frozen = GuardState { freeze: Some(freeze), ..GuardState::default() };
        let cooling = Cooling { until: Time(START.0 + 140_000), level: 2 };
        let cooling = GuardState { cooling: Some(cooling), ..GuardState::default() };
        let over = GuardState { cooling: Some(Cooling { until: START, level: 1 }), ..GuardState::default() };
        let versioned = |state| Versioned { version: 1, state };
        [
            (Scope::All, versioned(over)),
            (Scope::Account("default".into()), versioned(frozen)),
            (Scope::Loop(everloop_core::ids::LoopId::new("k3f9")), versioned(cooling)),
        ]
        .into()
    }

    #[test]
    fn loops_and_holds_are_listed() {
        insta::assert_snapshot!(status_table(&loops(), &guards(), &look(120)).join("\n"));
        assert_eq!(status_table(&[], &Guards::new(), &look(80)), ["no loops"]);
    }

    #[test]
    fn what_is_due_is_not_in_the_past() {
        let mut due = state();
        let reason = Reason::new(RuleId::GuardGap).until(START);
        due.phase = Phase::Waiting { reason, since: START };
        let text = status_table(&[due], &Guards::new(), &look(120)).join("\n");
        assert!(!text.contains(" ago"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for cells in [20, 40, 60, 80, 200] {
            let lines = status_table(&loops(), &guards(), &look(cells));
            assert!(lines.iter().all(|line| width(line) <= cells), "{cells}: {lines:#?}");
        }
    }
}
