//! What people read of a turn: the recorded runs of every program as steps.

use everloop_core::transcript::{Step, ToolState, Transcript};

use super::fixtures::{self, read};

fn steps(name: &str) -> Transcript {
    let case = fixtures::all().into_iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name}"));
    let mut all = Transcript::default();
    for said in &read(&case, usize::MAX) {
        all.take(said);
    }
    all
}

fn tools(name: &str) -> Vec<(String, String, String, ToolState)> {
    let tool = |step: &Step| match step {
        Step::Tool { name, input, output, state } => Some((name.clone(), input.clone(), output.clone(), *state)),
        _ => None,
    };
    steps(name).steps.iter().filter_map(tool).collect()
}

#[test]
fn a_call_is_shown_with_its_arguments_and_its_result() {
    for (name, tool, input, output) in [
        ("claude/tool", "Bash", "made.txt", ""),
        ("codex/tool", "command_execution", "made.txt", ""),
        ("gemini/tool", "run_shell_command", "made.txt", ""),
        ("opencode/tool", "bash", "made.txt", ""),
        ("copilot/tool", "bash", "made.txt", ""),
        ("claude/qwen-tool", "run_shell_command", "made.txt", "Exit Code: 0"),
    ] {
        let all = tools(name);
        let Some((found, given, said, state)) = all.first() else { panic!("{name}: no call") };
        assert_eq!((found.as_str(), *state), (tool, ToolState::Done), "{name}: {all:?}");
        assert!(given.contains(input) && said.contains(output), "{name}: {all:?}");
        assert!(!given.contains('{') && !given.contains('\n'), "{name}: not a line for people: {given}");
    }
    for name in ["claude/tool-fails", "codex/tool-fails", "gemini/tool-fails"] {
        let all = tools(name);
        assert!(
            all.iter().any(|(.., output, state)| *state == ToolState::Failed || output.contains("xit")),
            "{name}: {all:?}"
        );
    }
}

#[test]
fn every_recorded_run_can_be_read() {
    for case in fixtures::all() {
        let all = steps(&case.name);
        let shown = format!("{:?}", all.steps);
        assert!(!shown.contains("\\u{1b}") && !shown.contains("\\r"), "{}: {shown}", case.name);
        let said = read(&case, usize::MAX);
        let reported = fixtures::report(&said);
        let ends = all.steps.iter().filter(|step| matches!(step, Step::End { .. })).count();
        assert_eq!(ends > 0, reported.ok.is_some(), "{}", case.name);
        let calls = all.steps.iter().filter(|step| matches!(step, Step::Tool { .. })).count();
        assert_eq!(calls as u32, reported.tools, "{}", case.name);
    }
}
