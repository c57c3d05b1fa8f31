//! One turn: its prompt, the steps of its agent, its checks, and the decision.

use everloop_core::event::Event;
use everloop_core::ids::{LoopId, TurnId};
use everloop_core::stream::Usage;
use everloop_core::transcript::Step;
use serde::Serialize;

use super::loops::{CheckRow, TurnRow, checks, is_running, of_turn, row_of};
use super::{ledger, line, lines};
use crate::error::Failure;
use crate::record::read_state;
use crate::services::transcript::transcript;
use crate::services::{ServiceContext, no_loops};
use everloop_store::Ledger;

/// Steps of a turn that are shown, the latest; `everloop logs --turn` has all.
const STEPS_SHOWN: usize = 150;
/// Bytes of a prompt that are shown.
const PROMPT_BYTES: usize = 24 << 10;
/// Lines of a step's text or output.
const STEP_LINES: usize = 30;
/// Lines of a check's output.
const OUTPUT_LINES: usize = 80;

/// One turn in full.
#[derive(Clone, Debug, Serialize)]
pub struct TurnView {
    pub turn: TurnId,
    #[serde(rename = "loop")]
    pub owner: Option<LoopId>,
    pub name: String,
    pub running: bool,
    /// Its row in the list of the loop; `None` for one that is older than what is read.
    pub row: Option<TurnRow>,
    pub prompt: Vec<String>,
    pub steps: Vec<StepRow>,
    /// Steps before those that are shown.
    pub left_out: usize,
    pub used: Usage,
    pub checks: Vec<CheckRow>,
    /// How its agent ended.
    pub exit: String,
    /// The command that shows all of it.
    pub command: String,
    /// What is not there, in words.
    pub missing: Option<String>,
}

/// A step of an agent.
#[derive(Clone, Debug, Serialize)]
pub struct StepRow {
    /// `said`, `tool`, `asked` and so on.
    pub kind: &'static str,
    pub title: String,
    pub text: Vec<String>,
    pub output: Vec<String>,
    pub failed: bool,
}

/// Reads the turn.
pub fn one(context: &ServiceContext, turn: &TurnId) -> Result<TurnView, Failure> {
    let Some(ledger) = ledger(context)? else { return Err(no_loops()) };
    let Some((owner, records)) = of_turn(&ledger, turn)? else {
        return Err(
            Failure::usage(format!("there is no turn `{turn}`")).hint("`everloop show ID` lists the turns of a loop")
        );
    };
    let state = ledger.get_loop(&owner)?.map(|row| read_state(&row)).transpose()?;
    let mut view = TurnView {
        turn: turn.clone(),
        owner: Some(owner),
        name: state.as_ref().map(|state| line(&state.name)).unwrap_or_default(),
        running: state.as_ref().is_some_and(|state| is_running(state, turn)),
        row: row_of(&records, turn),
        prompt: Vec::new(),
        steps: Vec::new(),
        left_out: 0,
        used: Usage::default(),
        checks: Vec::new(),
        exit: String::new(),
        command: format!("everloop logs --turn {turn}"),
        missing: None,
    };
    for record in &records {
        match &record.event {
            Event::TurnExited { turn: ended, exit } if ended == turn => view.exit = line(&exit.describe()),
            Event::TurnJudged { turn: judged, judgement } if judged == turn => {
                view.checks = checks(&judgement.board, OUTPUT_LINES);
            }
            _ => {}
        }
    }
    let prompt = std::fs::read_to_string(context.home()?.turn(turn).join("prompt.md")).unwrap_or_default();
    let end = (0..=PROMPT_BYTES.min(prompt.len())).rev().find(|at| prompt.is_char_boundary(*at)).unwrap_or(0);
    view.prompt = lines(&prompt[..end], usize::MAX);
    match transcript(context, turn) {
        Ok(found) => {
            let all = found.transcript.steps.len();
            view.left_out = found.transcript.left_out + all.saturating_sub(STEPS_SHOWN);
            view.used = found.transcript.used;
            let steps = found.transcript.steps.iter().skip(all.saturating_sub(STEPS_SHOWN));
            view.steps = steps.map(step).collect();
        }
        Err(failure) => view.missing = Some(line(&failure.message)),
    }
    Ok(view)
}

fn step(step: &Step) -> StepRow {
    let row = |kind, title: &str, text: &str| StepRow {
        kind,
        title: line(title),
        text: lines(text, STEP_LINES),
        output: Vec::new(),
        failed: false,
    };
    match step {
        Step::Session { id, model } => row("session", model.as_deref().unwrap_or("a session"), id),
        Step::Text { text } => row("said", "", text),
        Step::Tool { name, input, output, state } => StepRow {
            output: lines(output, STEP_LINES),
            failed: *state == everloop_core::transcript::ToolState::Failed,
            ..row("tool", name, input)
        },
        Step::Denied { tool } => row("denied", tool, ""),
        Step::Asking { what } => row("asks", what, ""),
        Step::Retrying { attempt, why } => {
            row("retries", &format!("attempt {attempt}"), why.as_deref().unwrap_or_default())
        }
        Step::Limit { text } => row("limit", "", text),
        Step::Output { text, .. } => row("output", "", text),
        Step::End { ok, text } => StepRow { failed: !ok, ..row("end", if *ok { "well" } else { "failed" }, text) },
    }
}
