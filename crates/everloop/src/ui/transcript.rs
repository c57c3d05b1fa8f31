//! The steps of a turn as lines. All text is of an agent or its tools, so all of it is cleaned.

use everloop_core::transcript::{OutputOf, Step, ToolState};

use super::Paint;
use super::text::{clean, clean_lines};

/// Lines of a tool's result that are shown.
const RESULT_LINES: usize = 8;

/// Turns steps into lines, also a few at a time.
#[derive(Debug, Default)]
pub struct TranscriptLines {
    /// What the last line belonged to.
    last: Option<Last>,
}

/// What stands above; blank lines divide things of different kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Words,
    Tool,
    Output(OutputOf),
}

impl TranscriptLines {
    /// The lines of the next steps.
    pub fn of<'a>(&mut self, steps: impl IntoIterator<Item = &'a Step>, paint: Paint) -> Vec<String> {
        steps.into_iter().flat_map(|step| self.step(step, paint)).collect()
    }

    fn step(&mut self, step: &Step, paint: Paint) -> Vec<String> {
        let (kind, mut body) = match step {
            Step::Session { id, model } => {
                let model = model.as_deref().map(|model| format!(", {}", clean(model))).unwrap_or_default();
                (Last::Tool, vec![paint.faint(&format!("session {}{model}", clean(id)))])
            }
            Step::Text { text } => (Last::Words, clean_lines(text, usize::MAX)),
            Step::Tool { name, input, output, state } => (Last::Tool, tool(name, input, (output, *state), paint)),
            Step::Denied { tool } => (Last::Tool, vec![paint.warn(&format!("! `{}` was not permitted", clean(tool)))]),
            Step::Asking { what } => (Last::Tool, vec![paint.warn(&format!("? waits for a person: {}", clean(what)))]),
            Step::Retrying { attempt, why } => {
                let why = why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
                (Last::Tool, vec![paint.faint(&format!("… retries a request ({attempt}){why}"))])
            }
            Step::Limit { text } => (Last::Tool, vec![paint.warn(&format!("! {}", clean(text)))]),
            Step::Output { of, text } => (Last::Output(*of), clean_lines(text, usize::MAX)),
            Step::End { ok: true, text } => (Last::Words, ended(&paint.good("= done"), text)),
            Step::End { ok: false, text } => (Last::Words, ended(&paint.bad("= failed"), text)),
        };
        if kind == Last::Output(OutputOf::Stderr) && self.last != Some(kind) {
            body.insert(0, paint.faint("--- stderr ---"));
        } else if self.last.is_some_and(|last| last != kind || kind == Last::Words) {
            body.insert(0, String::new());
        }
        self.last = Some(kind);
        body
    }
}

fn tool(name: &str, input: &str, (output, state): (&str, ToolState), paint: Paint) -> Vec<String> {
    let head = format!("● {}  {}", paint.strong(&clean(name)), clean(input));
    let mut lines = vec![head.trim_end().to_owned()];
    match state {
        ToolState::Running => lines.push(paint.faint("  … no result yet")),
        ToolState::Done => {
            lines.extend(clean_lines(output, RESULT_LINES).iter().map(|line| paint.faint(&format!("  │ {line}"))));
        }
        ToolState::Failed => {
            let said = if output.trim().is_empty() { "failed" } else { output };
            lines.extend(clean_lines(said, RESULT_LINES).iter().map(|line| paint.bad(&format!("  ✗ {line}"))));
        }
    }
    lines
}

fn ended(mark: &str, text: &str) -> Vec<String> {
    let mut lines = clean_lines(text, usize::MAX);
    match lines.first_mut() {
        Some(first) => *first = format!("{mark}: {first}"),
        None => lines.push(mark.to_owned()),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_as_lines() {
        let text = |text: &str| Step::Text { text: text.to_owned() };
        let tool = |input: &str, output: &str, state| Step::Tool {
            name: "Bash".to_owned(),
            input: input.to_owned(),
            output: output.to_owned(),
            state,
        };
        let steps = [
            Step::Session { id: "s1".to_owned(), model: Some("m".to_owned()) },
            text("I look first.\nThen \u{1b}[31mI write."),
            tool("ls\u{1b}]0;title\u{7}", "a\nb", ToolState::Done),
            tool("make", "no rule", ToolState::Failed),
            Step::Output { of: OutputOf::Stderr, text: "warning".to_owned() },
            Step::End { ok: false, text: "gave up".to_owned() },
        ];
        let lines = TranscriptLines::default().of(&steps, Paint::Off);
        insta::assert_snapshot!(lines.join("\n"), @r"
        session s1, m

        I look first.
        Then I write.

        ● Bash  ls
          │ a
          │ b
        ● Bash  make
          ✗ no rule
        --- stderr ---
        warning

        = failed: gave up
        ");
    }

    #[test]
    fn plain_output_stays_as_it_is() {
        let piece = |text: &str| Step::Output { of: OutputOf::Stdout, text: text.to_owned() };
        let lines = TranscriptLines::default().of(&[piece("one\ntwo"), piece("three")], Paint::Off);
        assert_eq!(lines, ["one", "two", "three"]);
    }
}
