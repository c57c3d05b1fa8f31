//! The real programs, the official SDK in both of its versions, and the official inspector, as
//! clients of `everloop mcp`.

use std::path::Path;

use everloop_testkit::clis::{CliProgram, installed};
use everloop_testkit::offline::offline;
use serde_json::{Value, json};

use super::env::Env;
use super::world::World;

/// Every tool, with matching arguments. The ledger shows the effect of each call.
const CALLS: [(&str, &str); 11] = [
    ("status", "{}"),
    ("next_task", r#"{"lease":"5m"}"#),
    ("report_metric", r#"{"task":"T-1","name":"latency","value":12}"#),
    ("complete_task", r#"{"task":"T-1","fence":1,"result":"done by a client"}"#),
    ("add_task", r#"{"title":"added by a client"}"#),
    ("ask_human", r#"{"question":"may I?"}"#),
    ("send_message", r#"{"to":"@reviewer","text":"hello"}"#),
    ("wake", r#"{"loop":"make-made-txt"}"#),
    ("why", r#"{"loop":"make-made-txt"}"#),
    ("diff", r#"{"loop":"make-made-txt"}"#),
    ("sleep_until", r#"{"loop":"make-made-txt","for":"1s"}"#),
];

/// Calls that a turn may make; the variables of its own loop hold.
const TURN_CALLS: [(&str, &str); 4] = [CALLS[0], CALLS[4], CALLS[5], CALLS[6]];

/// A project with an agent that has our server among its own.
fn world(cli: CliProgram, called: &[(&str, &str)], variables: &[(&str, &str)]) -> World {
    let (prefix, _) = client_of(cli, "", variables);
    let calls: Vec<String> =
        called.iter().map(|(tool, json)| format!("tool:name={prefix}{tool}:json={json}")).collect();
    let script = format!("{},edit:path=made.txt:text=hello,text:say=done", calls.join(","));
    let world = World::new(cli, &script);
    let state = world.env.state().display().to_string();
    let (_, more) = client_of(cli, &state, variables);
    let quoted: Vec<String> = more.iter().map(|word| json!(word).to_string()).collect();
    let program = format!("command = [\"{}\"]", cli.program().display());
    let longer = program.replace(']', &format!(", {}]", quoted.join(", ")));
    let toml = world.env.read("everloop.toml");
    assert!(toml.contains(&program), "{toml}");
    world.env.write("everloop.toml", &toml.replace(&program, &longer));
    world.env.write("tasks.json", r#"[{"id":"T-1","title":"for a client"}]"#);
    world.env.git_run(&["add", "-A"]);
    world.env.git_run(&["commit", "-q", "-m", "our server"]);
    world.env.run(&["task", "board", "import", "tasks.json"]).ok();
    world
}

/// Prefix of the tools' names, and the arguments that add our server with these variables.
fn client_of(cli: CliProgram, state: &str, variables: &[(&str, &str)]) -> (&'static str, Vec<String>) {
    let (everloop, args) = (env!("CARGO_BIN_EXE_everloop"), ["--state-dir", state, "mcp"]);
    if cli == CliProgram::Claude {
        let variables: serde_json::Map<_, _> = variables.iter().map(|(n, v)| ((*n).to_owned(), json!(v))).collect();
        let server = json!({ "type": "stdio", "command": everloop, "args": args, "env": variables });
        let config = json!({ "mcpServers": { "everloop": server } }).to_string();
        return ("mcp__everloop__", vec!["--mcp-config".to_owned(), config, "--strict-mcp-config".to_owned()]);
    }
    let set = |key: &str, value: Value| ["-c".to_owned(), format!("mcp_servers.everloop.{key}={value}")];
    let variables = variables.iter().flat_map(|(name, value)| set(&format!("env.{name}"), json!(value)));
    let words = [set("command", json!(everloop)), set("args", json!(args))].concat();
    ("mcp__everloop/", words.into_iter().chain(variables).collect())
}

/// Without isolation and without the turn's socket, so that the server is the client's own process;
/// the tasks here belong to no loop.
fn every_tool_is_called(cli: CliProgram) {
    let world = world(cli, &CALLS, &[("EVERLOOP_LOOP", ""), ("EVERLOOP_SOCKET", "")]);
    world.run(&["--permission", "full", "--isolation", "none"]).ok();
    let env = &world.env;
    let task = env.run(&["task", "show", "T-1", "--json"]).ok().json()["task"].clone();
    assert_eq!((&task["state"]["is"], &task["result"]), (&json!("done"), &json!("done by a client")), "{task}");
    assert_eq!(
        env.run(&["message", "inbox", "T-1", "--json"]).ok().json()["messages"][0]["text"],
        "metric latency = 12"
    );
    let added = env.run(&["task", "list", "--json"]).ok().json()["tasks"].clone();
    assert_eq!((&added[0]["title"], &added[0]["trust"]), (&json!("added by a client"), &json!("agent")), "{added}");
    assert_eq!(env.run(&["message", "inbox", "@reviewer", "--json"]).ok().json()["messages"][0]["text"], "hello");
    let tickets = env.run(&["status", "--json"]).ok().json()["tickets"].clone();
    assert!(
        tickets[0]["text"].as_str().is_some_and(|t| t.starts_with("question from ") && t.ends_with(": may I?")),
        "{tickets}"
    );
    assert_eq!((world.events("woken").len(), world.events("paused").len()), (1, 1));
    assert_eq!(world.calls().len(), CALLS.len() + 2, "no call was made twice");
}

/// Inside of an isolated turn the server cannot open the ledger: the turn's shim serves it.
fn a_turn_calls_its_tools(cli: CliProgram) {
    let world = world(cli, &TURN_CALLS, &[]);
    world.run(&["--permission", "full"]).ok();
    let added = world.env.run(&["task", "list", "--json"]).ok().json()["tasks"].clone();
    let of_agents: Vec<&Value> = added.as_array().into_iter().flatten().filter(|t| t["trust"] == "agent").collect();
    assert_eq!(of_agents.len(), 1, "{added}");
    let inbox = world.env.run(&["message", "inbox", "@reviewer", "--json"]).ok().json();
    assert_eq!(inbox["messages"][0]["text"], "hello", "{inbox}");
    let tickets = world.env.run(&["status", "--json"]).ok().json()["tickets"].clone();
    assert!(tickets[0]["text"].as_str().is_some_and(|t| t.starts_with("question from turn ")), "{tickets}");
}

#[test]
fn claude_calls_every_tool() {
    offline(|| every_tool_is_called(CliProgram::Claude));
}

#[test]
fn codex_calls_every_tool() {
    offline(|| every_tool_is_called(CliProgram::Codex));
}

#[test]
fn claude_in_an_isolated_turn_calls_its_tools() {
    offline(|| a_turn_calls_its_tools(CliProgram::Claude));
}

#[test]
fn codex_in_an_isolated_turn_calls_its_tools() {
    offline(|| a_turn_calls_its_tools(CliProgram::Codex));
}

/// The newest revision of the protocol, and two before it.
const REVISIONS: [&str; 3] = ["2026-07-28", "2025-11-25", "2025-06-18"];

/// What an installed client prints; it ends with an error when something is wrong.
fn client(env: &Env, name: &str, args: &[&str]) -> Value {
    let mut command = std::process::Command::new(installed(name));
    command.args(args).current_dir(env.project()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", env.project().join("../home"));
    let out = command.env("EVERLOOP_STATE_DIR", env.state()).output().expect("the client is installed");
    let (said, wrong) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{name} {args:?}: {said}{wrong}");
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// The output of a client made with the SDK: version 1, or version 2 with a revision of the
/// protocol. The client ends with an error when a good call fails or a bad one does not.
fn sdk(env: &Env, revision: Option<&str>, how: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/sdk-client.cjs").display().to_string();
    let name = if revision.is_some() { "mcp-client" } else { "mcp-sdk" };
    let said = client(env, name, &[&[script.as_str(), revision.unwrap_or("-")], how].concat());
    assert_eq!(said["revision"].as_str(), revision);
    said
}

/// A loop that waits for its next turn, and a supervisor that looks after it.
fn at_work() -> (Env, super::env::Background) {
    let env = Env::new().git();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "--min-gap", "1h", "--detach"]).ok();
    env.run(&["down"]).ok();
    let up = env.spawn(&["up", "--listen", "127.0.0.1:0"]);
    env.port();
    (env, up)
}

fn every_tool_answers(env: &Env, said: &Value, who: &str) {
    let names: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    for name in &names {
        assert!(said["good"][name].is_object(), "{name} was not called: {said}");
        let bad = said["bad"][name].as_str().unwrap_or_default();
        assert!(bad.contains("there is no argument `nonsense`") && bad.contains("hint: "), "{name}: {bad}");
    }
    assert_eq!(said["tools"].as_array().map(Vec::len), Some(names.len()));
    assert!(said["unknown"].as_str().is_some_and(|text| text.contains("there is no tool `rm`")), "{said}");
    let task = said["good"]["next_task"]["task"]["id"].as_str().expect("a task was taken");
    let row = env.run(&["task", "show", task, "--json"]).ok().json()["task"].clone();
    assert_eq!((&row["state"]["is"], &row["result"]), (&json!("done"), &json!("done by the SDK")), "{row}");
    assert_eq!((&row["trust"], &row["author"]), (&json!("agent"), &json!(who)), "{row}");
    assert_eq!(env.run(&["message", "inbox", "@reviewer", "--json"]).ok().json()["messages"][0]["by"], who);
    env.run(&["replay"]).ok();
}

fn token(env: &Env) -> String {
    let token = std::fs::read_to_string(env.state().join("token")).expect("the supervisor drew one");
    token.trim().to_owned()
}

const STDIO: [&str; 3] = ["stdio", env!("CARGO_BIN_EXE_everloop"), "mcp"];

#[test]
fn the_official_sdk_calls_every_tool_over_standard_input_and_output() {
    offline(|| {
        for revision in REVISIONS.map(Some).into_iter().chain([None]) {
            let (env, up) = at_work();
            every_tool_answers(&env, &sdk(&env, revision, &STDIO), "agent sdk");
            drop(up);
        }
    });
}

#[test]
fn the_official_sdk_calls_every_tool_over_http() {
    offline(|| {
        for revision in REVISIONS.map(Some).into_iter().chain([None]) {
            let (env, up) = at_work();
            let said = sdk(&env, revision, &["http", &format!("http://{}/mcp", env.port()), &token(&env)]);
            // Before the newest revision nothing in a request names its client.
            let name = if revision == Some(REVISIONS[0]) { "agent sdk" } else { "an agent" };
            every_tool_answers(&env, &said, name);
            drop(up);
        }
    });
}

#[test]
fn the_official_inspector_lists_and_calls_tools() {
    offline(|| {
        let (env, up) = at_work();
        let (url, bearer) = (format!("http://{}/mcp", env.port()), format!("Authorization: Bearer {}", token(&env)));
        let stdio = [env!("CARGO_BIN_EXE_everloop"), "--state-dir", &env.state().display().to_string(), "mcp"]
            .map(str::to_owned);
        let http = [url, "--transport".to_owned(), "http".to_owned(), "--header".to_owned(), bearer];
        for era in ["legacy", "modern"] {
            for target in [&stdio[..], &http[..]] {
                let ask = |more: &[&str]| {
                    let target: Vec<&str> = target.iter().map(String::as_str).collect();
                    let options = ["--format", "json", "--quiet", "--protocol-era", era];
                    client(&env, "mcp-inspector", &[&["--cli"], &target[..], &options, more].concat())["result"].clone()
                };
                let listed = ask(&["--method", "tools/list", "--strict"]);
                assert_eq!(listed["tools"].as_array().map(Vec::len), Some(CALLS.len()), "{listed}");
                let title = format!("from the {era} inspector over {}", target.len());
                let arguments = json!({ "title": title }).to_string();
                let called =
                    ask(&["--method", "tools/call", "--tool-name", "add_task", "--tool-args-json", &arguments]);
                assert_eq!(called["isError"], false, "{called}");
                let tasks = env.run(&["task", "list", "--json"]).ok().json()["tasks"].clone();
                assert_eq!(tasks[0]["title"], title.as_str(), "{tasks}");
            }
        }
        drop(up);
    });
}
