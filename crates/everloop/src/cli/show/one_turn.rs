//! A turn in full: its end, usage, files, and the end of its output.

use std::path::Path;

use everloop_agents::job;
use everloop_core::ids::TurnId;
use everloop_core::state::{LoopState, Phase, Try};
use everloop_core::time::human;
use everloop_core::why::choice;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::show::TurnShown;
use serde_json::json;

use crate::cli::VerbSession;
use crate::ui::quantities::{coarse, moment};
use crate::ui::status::StatusStyle;
use crate::ui::text::{clean, clean_lines};

/// Lines shown of the end of each stream.
const TAIL_LINES: usize = 40;

pub fn show(found: &TurnShown, session: &VerbSession) -> Result<Code, Failure> {
    let TurnShown { turn, state, record, process, .. } = found;
    let look = session.ui.look(session.now());
    let attempt = state.as_ref().and_then(|s| s.tries.iter().find(|t| t.turn == *turn));
    let mut lines = vec![format!("Turn      {turn}")];
    lines.extend(state.as_ref().and_then(|s| agent(s, turn, &look)));
    lines.extend(attempt.map(amounts_to).unwrap_or_default());
    match (record, process) {
        (Some(record), _) => lines.extend(ended(record, &look)),
        (None, Some(started)) if started.shim.is_alive() => {
            lines.push(format!(
                "Runs      for {}, process {}",
                coarse(look.now.since(started.started_at)),
                started.shim.pid
            ));
        }
        (None, _) if found.dir.is_some() => lines.push("Ended     without a record".to_owned()),
        (None, _) => {
            lines.push("Ended     its folder is gone; the work of old turns stays under its ref".to_owned());
        }
    }
    lines.extend(found.dir.iter().flat_map(|dir| files(dir, found)));
    lines.extend(section("stdout", &found.stdout_tail));
    lines.extend(section("stderr", &found.stderr_tail));
    let content = json!({
        "turn": turn,
        "try": attempt,
        "record": record,
        "process": process,
        "dir": found.dir,
        "prompt": found.prompt,
        "stdout_tail": found.stdout_tail,
        "stderr_tail": found.stderr_tail,
    });
    session.ui.answer(&lines, &content)?;
    Ok(Code::Ok)
}

/// The turn's agent, and why, where the loop has several agents.
fn agent(state: &LoopState, turn: &TurnId, look: &StatusStyle) -> Option<String> {
    let running = match &state.phase {
        Phase::Turn(t) if t.id == *turn => Some((&t.agent, &t.chosen)),
        _ => None,
    };
    let ended = || state.tries.iter().find(|t| t.turn == *turn).map(|t| (&t.agent, &t.chosen));
    let (agent, chosen) = running.or_else(ended).filter(|(agent, _)| !agent.is_empty())?;
    let why = chosen.as_ref().map(|reason| choice(reason, look.now, &|at| moment(at, look.now, &look.zone)));
    Some(clean(&format!("Agent     {agent}{}", why.map_or(String::new(), |why| format!(": {why}")))))
}

fn amounts_to(attempt: &Try) -> Vec<String> {
    let mut lines = vec![format!("Outcome   turn {}: {}", attempt.number, attempt.outcome.label())];
    if !attempt.diffstat.is_empty() {
        lines.push(format!("Changed   {}", clean(&attempt.diffstat)));
    }
    if let Some(pin) = &attempt.pin {
        lines.push(format!("Kept at   {pin}  (git show {pin})", pin = clean(pin)));
    }
    lines
}

fn ended(record: &job::JobRecord, look: &StatusStyle) -> Vec<String> {
    let exit = &record.exit;
    let took = human(exit.ended_at.since(exit.started_at));
    let mut lines = vec![
        format!(
            "Ended     {} at {}, after {took}",
            clean(&exit.describe()),
            moment(exit.ended_at, look.now, &look.zone)
        ),
        format!(
            "Used      {} of CPU, {} MB of memory; wrote {} bytes",
            human(std::time::Duration::from_millis(record.cpu_ms)),
            record.max_rss_kb.div_ceil(1024),
            exit.out_bytes
        ),
    ];
    if exit.leftovers > 0 || record.survivors > 0 {
        lines.push(format!("Left      {} processes behind, {} could not be killed", exit.leftovers, record.survivors));
    }
    if let Some(error) = &record.capture_error {
        lines.push(format!("Output    is incomplete: {}", clean(error)));
    }
    lines
}

fn files(dir: &Path, found: &TurnShown) -> Vec<String> {
    let listed: Vec<String> = found.files.iter().map(|(name, bytes)| format!("{} ({bytes})", clean(name))).collect();
    let mut lines = vec![format!("Folder    {}", dir.display()), format!("Files     {}", listed.join(", "))];
    lines.extend(found.prompt.as_ref().map(|prompt| format!("Prompt    {}", prompt.display())));
    lines
}

fn section(name: &str, text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let all: Vec<&str> = text.lines().collect();
    let end = all[all.len().saturating_sub(TAIL_LINES)..].join("\n");
    std::iter::once(format!("--- end of {name} ---")).chain(clean_lines(&end, TAIL_LINES)).collect()
}
