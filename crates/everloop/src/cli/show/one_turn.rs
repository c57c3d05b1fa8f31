//! A turn in full: its end, usage, files, and what its agent said and did last.

use std::path::Path;

use everloop_agents::job;
use everloop_core::ids::TurnId;
use everloop_core::state::{LoopState, Phase, Try};
use everloop_core::time::human;
use everloop_core::transcript::Transcript;
use everloop_core::why::choice;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::show::TurnShown;
use everloop_engine::services::transcript;
use serde_json::json;

use crate::cli::VerbSession;
use crate::ui::quantities::{coarse, moment};
use crate::ui::status::StatusStyle;
use crate::ui::text::{clean, clean_lines};
use crate::ui::transcript::TranscriptLines;

/// The last steps that are shown: about two screens.
const STEPS_SHOWN: usize = 30;
/// Lines shown of the end of each stream.
const TAIL_LINES: usize = 40;

/// How the output of a turn is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStyle {
    /// What was said and done.
    Steps,
    /// As it was written.
    Raw,
}

impl OutputStyle {
    pub fn of(raw: bool) -> Self {
        if raw { OutputStyle::Raw } else { OutputStyle::Steps }
    }
}

pub fn show(found: &TurnShown, style: OutputStyle, session: &VerbSession) -> Result<Code, Failure> {
    let TurnShown { turn, state, record, process, .. } = found;
    let look = session.ui.look(session.now());
    let attempt = state.as_ref().and_then(|s| s.progress.tries.iter().find(|t| t.turn == *turn));
    let mut lines = vec![format!("Turn      {turn}")];
    lines.extend(state.as_ref().and_then(|s| agent(s, turn, &look)));
    let report = found.report.as_deref();
    lines.extend(report.and_then(|r| r.model.as_ref()).map(|model| format!("Model     {}", clean(model))));
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
    let transcript = found.dir.as_ref().map(|_| transcript::transcript(session, turn)).transpose()?;
    match (style, &transcript) {
        (OutputStyle::Steps, Some(found)) => lines.extend(steps(&found.transcript, turn, &look)),
        (OutputStyle::Raw, _) | (_, None) => {
            lines.extend(section("stdout", &found.stdout_tail));
            lines.extend(section("stderr", &found.stderr_tail));
        }
    }
    let content = json!({
        "turn": turn,
        "try": attempt,
        "model": report.and_then(|r| r.model.as_ref()),
        "record": record,
        "process": process,
        "dir": found.dir,
        "prompt": found.prompt,
        "stdout_tail": found.stdout_tail,
        "stderr_tail": found.stderr_tail,
        "transcript": transcript.as_ref().map(|found| &found.transcript),
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
    let ended = || state.progress.tries.iter().find(|t| t.turn == *turn).map(|t| (&t.agent, &t.chosen));
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

/// The last steps, from a whole one on.
fn steps(transcript: &Transcript, turn: &TurnId, look: &StatusStyle) -> Vec<String> {
    let all = transcript.steps.len();
    if all == 0 {
        return Vec::new();
    }
    let first = all.saturating_sub(STEPS_SHOWN);
    let left_out = transcript.left_out + first;
    let mut lines = vec!["--- what its agent said and did ---".to_owned()];
    if left_out > 0 {
        lines.push(format!("… {left_out} steps before: everloop logs --turn {turn}"));
    }
    lines.extend(TranscriptLines::default().of(transcript.steps.iter().skip(first), look.paint));
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
