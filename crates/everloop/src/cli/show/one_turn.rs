//! A turn in full: its end, usage, files, and the end of its output.

use std::path::Path;

use everloop_agents::job::{self, Stream};
use everloop_core::ids::TurnId;
use everloop_core::state::{LoopState, Phase, Try};
use everloop_core::time::human;
use everloop_core::why::choice;
use everloop_engine::error::{Code, Failure};
use everloop_engine::record::read_state;
use everloop_store::{Ledger, Sqlite};
use serde_json::json;

use crate::cli::VerbSession;
use crate::ui::quantities::{coarse, moment};
use crate::ui::status::StatusStyle;
use crate::ui::text::{clean, clean_lines};

/// The end of each stream that is shown; `everloop logs --turn` has all that was kept.
const TAIL_BYTES: u64 = 4096;
const TAIL_LINES: usize = 40;

pub fn show(turn: &TurnId, ledger: &Sqlite, session: &VerbSession) -> Result<Code, Failure> {
    let look = session.ui.look(session.now());
    let dir = session.home()?.turn(turn);
    let state = owner(turn, ledger)?;
    let attempt = state.as_ref().and_then(|s| s.tries.iter().find(|t| t.turn == *turn));
    let failed = |e: job::JobError| Failure::failed(format!("cannot read the record of turn `{turn}`")).because(&e);
    let there = dir.is_dir();
    let record = if there { job::record(&dir).map_err(failed)? } else { None };
    let started = if there { job::started(&dir).map_err(failed)? } else { None };
    let tail = |stream| if there { job::output(&dir, stream, TAIL_BYTES) } else { Ok(String::new()) };
    let (out, err) = (tail(Stream::Out).map_err(failed)?, tail(Stream::Err).map_err(failed)?);

    let mut lines = vec![format!("Turn      {turn}")];
    lines.extend(state.as_ref().and_then(|s| agent(s, turn, &look)));
    lines.extend(attempt.map(amounts_to).unwrap_or_default());
    match (&record, &started) {
        (Some(record), _) => lines.extend(ended(record, &look)),
        (None, Some(started)) if started.shim.is_alive() => {
            lines.push(format!(
                "Runs      for {}, process {}",
                coarse(look.now.since(started.started_at)),
                started.shim.pid
            ));
        }
        (None, _) if there => lines.push("Ended     without a record".to_owned()),
        (None, _) => {
            lines.push("Ended     its folder is gone; the work of old turns stays under its ref".to_owned());
        }
    }
    if there {
        lines.extend(files(&dir));
    }
    lines.extend(section("stdout", &out));
    lines.extend(section("stderr", &err));
    let prompt = dir.join("prompt.md");
    let content = json!({
        "turn": turn,
        "try": attempt,
        "record": record,
        "process": started,
        "dir": there.then_some(&dir),
        "prompt": prompt.is_file().then_some(&prompt),
        "stdout_tail": out,
        "stderr_tail": err,
    });
    session.ui.answer(&lines, &content)?;
    Ok(Code::Ok)
}

/// The loop that the turn's task belongs to.
fn owner(turn: &TurnId, ledger: &Sqlite) -> Result<Option<LoopState>, Failure> {
    let id = ledger.task(turn.task())?.and_then(|row| row.task.owner);
    let row = id.map(|id| ledger.get_loop(&id)).transpose()?.flatten();
    row.as_ref().map(read_state).transpose()
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

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<(String, u64)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len())))
        .collect();
    names.sort();
    let listed: Vec<String> = names.into_iter().map(|(name, bytes)| format!("{} ({bytes})", clean(&name))).collect();
    let mut lines = vec![format!("Folder    {}", dir.display()), format!("Files     {}", listed.join(", "))];
    let prompt = dir.join("prompt.md");
    if prompt.is_file() {
        lines.push(format!("Prompt    {}", prompt.display()));
    }
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
