//! What an agent said and did in a turn, as steps for people: text, tool calls with their results,
//! questions, retries, limits, the end. Made from [`AgentEvent`]s, so it is the same for every CLI.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::VecDeque;

use serde::Serialize;

use crate::stream::{AgentEvent, Usage};

/// Steps kept of a turn; of a longer one the last.
const STEPS: usize = 2_000;
/// Bytes of one step of plain output; more of it is several steps.
const OUTPUT_CAP: usize = 8 << 10;

/// One step of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// The session began, or changed its model.
    Session {
        /// The id that resumes it.
        id: String,
        model: Option<String>,
    },
    /// Words of the agent; data.
    Text { text: String },
    /// A tool call and its result.
    Tool {
        name: String,
        /// Its arguments in short.
        input: String,
        /// Its result in short; empty while it runs and where the CLI does not say.
        output: String,
        state: ToolState,
    },
    /// The CLI was refused a tool.
    Denied { tool: String },
    /// The CLI waits for a person.
    Asking { what: String },
    /// The CLI retries a request.
    Retrying { attempt: u32, why: Option<String> },
    /// The vendor refuses for now.
    Limit { text: String },
    /// Output without a meaning to everloop: of a plain command, or on standard error.
    Output { of: OutputOf, text: String },
    /// The turn's end in the CLI's words.
    End { ok: bool, text: String },
}

/// Where output was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputOf {
    Stdout,
    Stderr,
}

/// How far a tool call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    Running,
    Done,
    Failed,
}

impl Step {
    /// Whether nothing will be added to it.
    fn is_settled(&self) -> bool {
        !matches!(self, Step::Tool { state: ToolState::Running, .. })
    }
}

/// The steps of a turn so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Transcript {
    /// The latest steps.
    pub steps: VecDeque<Step>,
    /// How many came before them and were left out.
    pub left_out: usize,
    /// Records that no parser knows.
    pub unknown: u64,
    /// Usage as the CLI counts it by turn.
    pub used: Usage,
    #[serde(skip)]
    open: Vec<(String, usize)>,
}

impl Transcript {
    /// Takes one record.
    pub fn take(&mut self, said: &AgentEvent) {
        match said {
            AgentEvent::Session { id, model } => {
                let step = Step::Session { id: id.clone(), model: model.clone() };
                if !self.steps.contains(&step) {
                    self.push(step);
                }
            }
            AgentEvent::Text { text } if !text.trim().is_empty() => self.push(Step::Text { text: text.clone() }),
            AgentEvent::ToolStarted { id, name, input, .. } => {
                let (name, input) = (name.clone(), input.clone());
                self.push(Step::Tool { name, input, output: String::new(), state: ToolState::Running });
                self.open.push((id.clone(), self.left_out + self.steps.len() - 1));
            }
            AgentEvent::ToolEnded { id, error, output } => self.ended(id, *error, output),
            AgentEvent::Denied { tool } => self.push(Step::Denied { tool: tool.clone() }),
            AgentEvent::Asking { what } => self.push(Step::Asking { what: what.clone() }),
            AgentEvent::Retrying { attempt, class, .. } => {
                let why = class.map(|class| class.describe().to_owned());
                self.push(Step::Retrying { attempt: *attempt, why });
            }
            AgentEvent::Limit(limit) => self.push(Step::Limit { text: limit.text.clone() }),
            AgentEvent::SessionLost => {
                self.push(Step::Limit { text: "the session to be resumed does not exist any more".to_owned() });
            }
            AgentEvent::Used(usage) => self.used = self.used.plus(*usage),
            AgentEvent::Result { ok, text } => self.end(*ok, text),
            AgentEvent::Unknown => self.unknown += 1,
            AgentEvent::Failed { text, .. } => self.push(Step::Output { of: OutputOf::Stderr, text: text.clone() }),
            AgentEvent::Text { .. }
            | AgentEvent::Quota(_)
            | AgentEvent::UsedInAll(_)
            | AgentEvent::Context { .. }
            | AgentEvent::Background { .. } => {}
        }
    }

    /// How many steps, counted from the first of the turn, will not change any more. Steps settle in
    /// their order, so what is shown up to here stays true.
    pub fn settled(&self) -> usize {
        let open = self.steps.iter().position(|step| !step.is_settled()).unwrap_or(self.steps.len());
        self.left_out + open
    }

    /// The steps from this one on, counted from the first of the turn.
    pub fn since(&self, first: usize) -> impl Iterator<Item = &Step> {
        self.steps.iter().skip(first.saturating_sub(self.left_out))
    }

    /// Takes output that is no record, in whole lines.
    pub fn output(&mut self, of: OutputOf, text: &str) {
        let mut rest = text;
        while rest.len() > OUTPUT_CAP {
            let end = rest[..floor(rest, OUTPUT_CAP)].rfind('\n').unwrap_or(floor(rest, OUTPUT_CAP));
            self.push(Step::Output { of, text: rest[..end].to_owned() });
            rest = rest[end..].trim_start_matches('\n');
        }
        self.push(Step::Output { of, text: rest.to_owned() });
    }

    fn push(&mut self, step: Step) {
        self.steps.push_back(step);
        if self.steps.len() > STEPS {
            self.steps.pop_front();
            self.left_out += 1;
        }
    }

    fn ended(&mut self, id: &str, error: Option<u64>, result: &str) {
        let Some(at) = self.open.iter().rposition(|(open, _)| open == id) else { return };
        let (_, index) = self.open.remove(at);
        let step = index.checked_sub(self.left_out).and_then(|i| self.steps.get_mut(i));
        if let Some(Step::Tool { output, state, .. }) = step {
            result.clone_into(output);
            *state = if error.is_some() { ToolState::Failed } else { ToolState::Done };
        }
    }

    /// The CLIs repeat their last words in the final record; they are shown once. Of several ends the
    /// last counts.
    fn end(&mut self, ok: bool, text: &str) {
        for step in self.steps.iter_mut().filter(|step| !step.is_settled()) {
            if let Step::Tool { state, .. } = step {
                *state = ToolState::Failed;
            }
        }
        self.open.clear();
        let repeated = matches!(self.steps.back(), Some(Step::Text { text: last }) if last.trim() == text.trim());
        let text = if repeated && ok { String::new() } else { text.to_owned() };
        self.push(Step::End { ok, text });
    }
}

/// The largest place at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(id: &str, input: &str) -> AgentEvent {
        AgentEvent::ToolStarted {
            id: id.to_owned(),
            name: "bash".to_owned(),
            fingerprint: 1,
            timeout_ms: None,
            subagent: false,
            input: input.to_owned(),
        }
    }

    fn ended(id: &str, error: Option<u64>) -> AgentEvent {
        AgentEvent::ToolEnded { id: id.to_owned(), error, output: format!("of {id}") }
    }

    fn text(words: &str) -> AgentEvent {
        AgentEvent::Text { text: words.to_owned() }
    }

    fn of(said: &[AgentEvent]) -> Transcript {
        let mut all = Transcript::default();
        for one in said {
            all.take(one);
        }
        all
    }

    #[test]
    fn a_result_stands_with_its_call() {
        let both = of(&[started("a", "ls"), started("b", "make"), ended("b", Some(1)), ended("a", None), text("so")]);
        let tools: Vec<_> = both
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Tool { input, output, state, .. } => Some((input.as_str(), output.as_str(), *state)),
                _ => None,
            })
            .collect();
        assert_eq!(tools, [("ls", "of a", ToolState::Done), ("make", "of b", ToolState::Failed)]);
    }

    #[test]
    fn steps_settle_in_their_order() {
        let mut turn = of(&[text("one"), started("a", "ls"), text("two")]);
        assert_eq!(turn.settled(), 1);
        turn.take(&ended("a", None));
        assert_eq!((turn.settled(), turn.since(1).count()), (3, 2));
        turn.take(&started("c", "sleep"));
        turn.take(&AgentEvent::Result { ok: false, text: "killed".to_owned() });
        assert_eq!(turn.settled(), 5);
    }

    #[test]
    fn last_words_are_shown_once_and_errors_always() {
        let end = |ok, text: &str| AgentEvent::Result { ok, text: text.to_owned() };
        let done = of(&[text("all done"), end(true, "all done")]);
        assert_eq!(done.steps.back(), Some(&Step::End { ok: true, text: String::new() }));
        let failed = of(&[text("API error"), end(false, "API error")]);
        assert_eq!(failed.steps.back(), Some(&Step::End { ok: false, text: "API error".to_owned() }));
    }

    #[test]
    fn long_output_is_cut_at_lines() {
        let mut all = Transcript::default();
        let text = "é line\n".repeat(5_000);
        all.output(OutputOf::Stdout, &text);
        let parts: Vec<&str> = all
            .steps
            .iter()
            .map(|step| match step {
                Step::Output { text, .. } => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(parts.len() > 1 && parts.iter().all(|p| p.len() <= OUTPUT_CAP));
        assert_eq!(parts.join("\n"), text);
    }

    #[test]
    fn of_a_flood_the_last_steps_are_kept() {
        let mut all = Transcript::default();
        for n in 0..STEPS + 10 {
            all.take(&started(&n.to_string(), ""));
        }
        assert_eq!((all.left_out, all.steps.len()), (10, STEPS));
        // The result of a call that was left out changes nothing else.
        all.take(&ended("3", None));
        assert_eq!(all.settled(), 10);
        all.take(&ended("10", None));
        assert_eq!(all.settled(), 11);
    }
}
