//! One good turn with each program.

use everloop_testkit::clis::CliProgram;
use everloop_testkit::fake_model::FakeModel;
use everloop_testkit::offline::offline;

use super::env::Env;
use super::world::World;

/// The program edits a file by a tool call, the check passes, the work lands.
fn reaches_the_goal(cli: CliProgram, more: &[&str]) {
    let world = World::new(cli, "edit:path=made.txt:text=hello,text:say=done");
    let out = world.run(more).ok();
    assert!(world.env.read("made.txt").starts_with("hello"), "{}", out.stdout);
    assert_eq!(world.env.git_run(&["status", "--porcelain"]), "");
    assert_eq!(world.calls().len(), 2, "a tool call and a last word");
    let started = world.events("turn_started");
    assert_eq!(started.len(), 1);
    let usage = world.env.run(&["usage", "--json", "--by", "agent"]).ok().json();
    assert!(usage["total"]["tokens"].as_u64().is_some_and(|n| n > 0), "{usage}");
}

#[test]
fn claude_edits_a_file() {
    offline(|| reaches_the_goal(CliProgram::Claude, &[]));
}

#[test]
fn claude_may_do_everything() {
    offline(|| reaches_the_goal(CliProgram::Claude, &["--permission", "full"]));
}

#[test]
fn codex_edits_a_file() {
    offline(|| reaches_the_goal(CliProgram::Codex, &["--permission", "full"]));
}

#[test]
fn gemini_edits_a_file() {
    offline(|| reaches_the_goal(CliProgram::Gemini, &[]));
}

/// everloop's own agent, with nothing of a vendor's on the machine.
fn our_own_agent_reaches_the_goal(format: &str, base: &str) {
    let script = r#"tool:name=write:json={"path":"made.txt","content":"hello"},text:say=done"#;
    let model = FakeModel::start(script).expect("a free port on loopback");
    let env = Env::new().var("MY_KEY", "sk-dummy-0123456789").git();
    let base = format!("{}{base}", model.base_url());
    let toml = format!(
        "[agent.api]\napi_format = \"{format}\"\nmodel = \"some-model\"\nkey_env = \"MY_KEY\"\napi_base = \"{base}\"\n"
    );
    env.write("everloop.toml", &toml);
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "everloop.toml"]);
    let out =
        env.run(&["run", "make made.txt", "--check", "test -f made.txt", "--agent", "api", "--min-gap", "0"]).ok();
    assert_eq!(env.read("made.txt"), "hello", "{}", out.stdout);
    assert_eq!(model.main_calls(), 2);
}

#[test]
fn our_own_agent_speaks_the_messages_api() {
    offline(|| our_own_agent_reaches_the_goal("messages", ""));
}

#[test]
fn our_own_agent_speaks_the_responses_api() {
    offline(|| our_own_agent_reaches_the_goal("responses", "/v1"));
}

#[test]
fn opencode_edits_a_file() {
    offline(|| reaches_the_goal(CliProgram::Opencode, &[]));
}

#[test]
fn copilot_edits_a_file() {
    offline(|| reaches_the_goal(CliProgram::Copilot, &["--permission", "full"]));
}
