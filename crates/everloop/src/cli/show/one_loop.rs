//! A loop in full: the summary, its limits, and every turn in its state.

use everloop_core::raise::RunLimits;
use everloop_core::spec::{AgentSpec, Tasks, WorkspaceMode};
use everloop_core::state::{LoopState, Phase, Try};
use everloop_core::time::{Time, human};
use everloop_core::watch::MonitorSpec;
use everloop_core::why::why;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::show::LoopShown;
use serde_json::json;

use crate::cli::VerbSession;
use crate::cli::why::sign_line;
use crate::ui::isolation;
use crate::ui::quantities::{ceiling, moment};
use crate::ui::status::StatusStyle;
use crate::ui::summary;
use crate::ui::table::Table;
use crate::ui::text::{clean, clean_lines, fit};

/// Lines shown of a failing check's output.
const OUTPUT_LINES: usize = 20;

pub fn show(found: &LoopShown, session: &VerbSession) -> Result<Code, Failure> {
    let LoopShown { state, tasks, signs } = found;
    let look = session.ui.look(session.now());
    let mut lines = summary(state, look.paint);
    lines.extend(rules(state, look.now));
    lines.push(format!(
        "{}{}",
        look.paint.strong("Now       "),
        clean(&why(state, look.now, &|at| moment(at, look.now, &look.zone)))
    ));
    lines.extend(turns(state, &look));
    for row in tasks {
        lines.push(fit(&format!("task {} ({}): {}", row.task.id, row.status(), clean(&row.task.title)), look.width));
    }
    lines.extend(signs.iter().map(|(rule, sign)| sign_line(rule, sign, look.now)));
    lines.extend(failing(state));
    session.ui.answer(&lines, &json!({ "loop": state, "tasks": tasks, "signs": signs }))?;
    Ok(Code::Ok)
}

fn rules(state: &LoopState, now: Time) -> Vec<String> {
    let spec = &state.spec;
    let place = match &spec.workspace.mode {
        WorkspaceMode::Git { target } => format!("{}, onto {target}", spec.workspace.dir),
        WorkspaceMode::InPlace => format!("{}, in place", spec.workspace.dir),
    };
    let guard = &spec.guard;
    let cap = |cap: Option<u32>| cap.map_or("-".to_owned(), |n| n.to_string());
    let caps = [guard.caps.per_minute, guard.caps.per_hour, guard.caps.per_day].map(cap).join("/");
    let paced = if guard.pace { ", paced" } else { "" };
    let mut lines: Vec<String> = spec.agents().map(agent).collect();
    lines.extend(spec.watch.monitors.iter().map(monitor));
    lines.push(format!("Where     {}", clean(&place)));
    lines.push(format!("Isolation {}", isolation::means(&spec.isolation)));
    lines.push(format!(
        "Limits    {}; gap {}, starts per minute/hour/day {caps}{paced}",
        ceiling(state, &RunLimits::of(state), now),
        human(guard.min_gap)
    ));
    lines
}

/// The target and interval of a monitor.
fn monitor(monitor: &MonitorSpec) -> String {
    let (kind, of) = (monitor.target.kind(), monitor.target.of());
    clean(&format!("Watches   {} ({kind} {of}), every {}", monitor.name, human(monitor.every)))
}

/// The agent, its permission, and the tasks it takes.
fn agent(agent: &AgentSpec) -> String {
    let Tasks { kinds, min_priority, max_priority } = &agent.tasks;
    let mut only = Vec::new();
    if !kinds.is_empty() {
        only.push(format!("of kind {}", kinds.join(", ")));
    }
    only.extend(min_priority.map(|n| format!("from priority {n} up")));
    only.extend(max_priority.map(|n| format!("up to priority {n}")));
    let only = if only.is_empty() { String::new() } else { format!(" (only tasks {})", only.join(", ")) };
    clean(&format!("Agent     {}: {}{only}", agent.name, shown(&agent.argv)))
}

fn shown(argv: &[String]) -> String {
    shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_else(|_| argv.join(" "))
}

/// Turns, oldest first; the running one last.
fn turns(state: &LoopState, look: &StatusStyle) -> Vec<String> {
    let mut table = Table::new(&["TURN", "ID", "OUTCOME", "TOOK", "EXIT", "CHANGED", "KEPT AT"]);
    for attempt in &state.progress.tries {
        table.row(row(attempt));
    }
    let running = match &state.phase {
        Phase::Turn(turn) => Some(turn),
        Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Ended { .. } => None,
    };
    if let Some(turn) = running {
        let took = human(std::time::Duration::from_secs(look.now.since(turn.started_at).as_secs()));
        table.row([turn.number.to_string(), turn.id.to_string(), state.phase.label().to_owned(), took]);
    }
    if state.progress.tries.is_empty() && running.is_none() { Vec::new() } else { table.lines(look.width) }
}

fn row(attempt: &Try) -> [String; 7] {
    [
        attempt.number.to_string(),
        attempt.turn.to_string(),
        attempt.outcome.label().to_owned(),
        human(attempt.took),
        clean(&attempt.exit),
        if attempt.diffstat.is_empty() { "-".to_owned() } else { clean(&attempt.diffstat) },
        attempt.pin.as_deref().map_or("-".to_owned(), clean),
    ]
}

/// The last output of checks that do not pass.
fn failing(state: &LoopState) -> Vec<String> {
    let mut lines = Vec::new();
    for check in state.progress.board.failing().filter(|c| !c.output.trim().is_empty()) {
        lines.push(format!("--- {} ---", clean(&check.name)));
        lines.extend(clean_lines(&check.output, OUTPUT_LINES));
    }
    lines
}
