//! Each program works: it writes a file with its own tool, runs a command, and reports that it is
//! done.

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;

use crate::turn;

fn works(cli: CliProgram) {
    let script = "edit:path=made.txt:text=by edit,tool:cmd=echo by tool > tool.txt,text:say=all done";
    let (model, leader_lease, run) = turn(cli, script);
    let told = format!("{run:#?}\n{:#?}", model.requests());
    let read = |name: &str| std::fs::read_to_string(leader_lease.folder().join(name)).unwrap_or_default();
    assert_eq!(run.code, Some(0), "{told}");
    assert_eq!((read("made.txt").as_str(), read("tool.txt").as_str()), ("by edit\n", "by tool\n"), "{told}");
    // Some programs print each piece by itself.
    assert!(run.stdout.contains("done"), "{told}");
    assert_eq!(model.main_calls(), 3, "{told}");
    let results: Vec<bool> = model.requests().iter().filter(|r| r.step.is_some()).map(|r| r.has_tool_result).collect();
    assert_eq!(results, [false, true, true], "{told}");
}

#[test]
fn claude_writes_a_file_and_runs_a_command() {
    offline(|| works(CliProgram::Claude));
}

#[test]
fn codex_writes_a_file_and_runs_a_command() {
    offline(|| works(CliProgram::Codex));
}

#[test]
fn gemini_writes_a_file_and_runs_a_command() {
    offline(|| works(CliProgram::Gemini));
}

#[test]
fn opencode_writes_a_file_and_runs_a_command() {
    offline(|| works(CliProgram::Opencode));
}

#[test]
fn tokens_of_the_script_reach_the_bill() {
    offline(|| {
        let (_model, _seat, run) = turn(CliProgram::Claude, "text:in=1000:out=500");
        let result = run.events().into_iter().find(|e| e["type"] == "result").expect("claude ends with a result");
        assert_eq!(result["usage"]["input_tokens"], 1000, "{result}");
        assert_eq!(result["usage"]["output_tokens"], 500, "{result}");
        assert!(result["total_cost_usd"].as_f64().is_some_and(|cost| cost > 0.0), "{result}");
    });
}
