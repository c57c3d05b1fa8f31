//! `everloop agents`: installation, login and billing; and that a known CLI needs no configuration.

use serde_json::Value;

use crate::env::Env;

/// A world in which the only CLI is a `claude` that takes a turn by writing `done`.
pub fn with_claude() -> Env {
    let env = Env::new();
    // Quiet, as the real one is in a throw-away home; a turn is reported in its own stream.
    env.script(
        "bin/claude",
        r#"if [ "$1" = --version ]; then echo "2.1.325 (Claude Code)"; exit; fi
echo '{"type":"system","subtype":"init","session_id":"s1","model":"claude-test-1","tools":[]}'
echo '{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","rateLimitType":"five_hour","utilization":0.5,"resetsAt":4102444800}}'
echo '{"type":"assistant","message":{"id":"m1","model":"claude-test-1","content":[{"type":"text","text":"working"}],"usage":{"input_tokens":10,"output_tokens":5}},"session_id":"s1"}'
touch done
echo '{"type":"result","subtype":"success","is_error":false,"result":"it is there","session_id":"s1","total_cost_usd":0.25,"usage":{"input_tokens":10,"output_tokens":5,"cache_read_input_tokens":100,"cache_creation_input_tokens":20},"modelUsage":{"claude-test-1":{"inputTokens":10,"outputTokens":5,"cacheReadInputTokens":100,"cacheCreationInputTokens":20,"costUSD":0.25}},"num_turns":1}'"#,
    );
    let path = format!("{}:/usr/bin:/bin", env.project().join("bin").display());
    env.var("PATH", &path)
}

fn row<'a>(data: &'a Value, name: &str, account: &str) -> &'a Value {
    let rows = data["agents"].as_array().expect("there is a list");
    let is = |r: &&Value| r["name"] == name && r["account"] == account;
    rows.iter().find(is).unwrap_or_else(|| panic!("no {name} under {account}: {data}"))
}

#[test]
fn known_agents_are_listed_without_any_configuration() {
    let env = with_claude();
    let said = env.run(&["agents"]).ok().stdout;
    for kind in ["claude", "codex", "gemini", "opencode", "copilot", "api"] {
        assert!(said.lines().any(|l| l.starts_with(kind)), "{kind}: {said}");
    }
    let data = env.run(&["agents", "--json"]).ok().json();
    let claude = row(&data, "claude", "default");
    assert_eq!((&claude["installed"], &claude["version"]), (&Value::Bool(true), &Value::from("2.1.325")), "{claude}");
    assert_eq!(claude["login"], "not_logged_in");
    assert!(
        claude["hint"].is_string() && claude["path"].as_str().is_some_and(|p| p.ends_with("bin/claude")),
        "{claude}"
    );
    assert_eq!(row(&data, "api", "default")["installed"], true);
}

#[test]
fn an_account_is_looked_at_with_its_own_variables_and_its_key_is_not_read() {
    let env = with_claude().var("ANTHROPIC_API_KEY", "canary-of-the-machine");
    env.write("key", "canary-of-work\n");
    let key = env.project().join("key").display().to_string();
    env.write(
        "everloop.toml",
        &format!(
            "[account.work]\nfile = {{ ANTHROPIC_API_KEY = \"{key}\" }}\n[account.own]\nset = {{ X = \"y\" }}\n\
             [agent.bot]\ncommand = \"bot\"\n\
             [loop.a]\ngoal = \"g\"\nchecks = [\"true\"]\nagents = [\"claude@work\", \"claude@own\", \"bot\"]\n"
        ),
    );
    let output = env.run(&["agents", "--json"]).ok();
    let data = output.json();
    assert_eq!((&data["agents"].as_array().unwrap().len()), &9, "{data}");
    assert_eq!(row(&data, "claude", "work")["login"], "logged_in");
    assert_eq!(row(&data, "claude", "work")["billing"], "key");
    assert_eq!(row(&data, "claude", "own")["login"], "not_logged_in", "the machine's key is not this account's");
    assert_eq!(row(&data, "claude", "default")["login"], "logged_in");
    assert_eq!(row(&data, "bot", "default")["installed"], false);
    assert!(!output.stdout.contains("canary"), "{}", output.stdout);
    let doctor = env.run(&["doctor"]).ok().stdout;
    assert!(doctor.contains("agent `claude@work` of `a` is installed"), "{doctor}");
    assert!(doctor.contains("agent `claude@own` of `a` is not logged in"), "{doctor}");
    assert!(doctor.contains("agent `bot` of `a` is not installed"), "{doctor}");
}

#[test]
fn a_known_cli_works_out_of_the_box() {
    let env = with_claude();
    let run = ["run", "a file", "--check", "test -f done", "--agent", "claude", "--in-place", "--yes"];
    let first = env.run(&[&run[..], &["-n", "1"]].concat()).ok();
    assert!(first.stderr.contains("permission: edits"), "{}", first.stderr);
    let spec = &env.the_loop()["spec"]["agent"];
    assert_eq!((&spec["kind"], &spec["account"]), (&Value::from("claude"), &Value::from("default")));
    std::fs::remove_file(env.project().join("done")).unwrap();
    let full = env.run(&[&run[..], &["-n", "1", "--permission", "full", "--model", "m2", "--new"]].concat()).ok();
    let said = "permission: full (the agent may run any command as your user, without confirmation)";
    assert!(full.stderr.contains(said), "{}", full.stderr);
    env.run(&["run", "x", "--check", "true", "--agent", "cluade"]).exits(2);
    env.run(&["run", "x", "--check", "true", "--agent", "claude@nobody"]).exits(2);
    env.run(&["run", "x", "--check", "true", "--agent", "claude", "--permission", "all"]).exits(2);
}

#[test]
fn a_program_that_prints_text_is_limited_by_its_own_sentences() {
    for (keys, sentence) in [
        ("dialect = \"aider\"", "litellm.RateLimitError: slow down, try again in 2h"),
        ("dialect = \"goose\"", "Rate limit exceeded: try again in 2h"),
        ("limit_rules = [\"rate: too many requests\"]", "too many requests, try again in 2h"),
    ] {
        let env = Env::new();
        env.script("bot", &format!("echo '{sentence}'; exit 1"));
        env.write("everloop.toml", &format!("[agent.bot]\ncommand = [\"./bot\"]\n{keys}\n"));
        let _run = env.spawn(&["run", "x", "--check", "false", "--agent", "bot", "--min-gap", "0", "--in-place"]);
        env.wait_for_words(&["why"], &["[guard.limit]", "try again in 2h"]);
    }
}

#[test]
fn init_picks_what_is_installed() {
    let env = with_claude();
    env.write("Makefile", "test:\n\ttrue\n");
    env.run(&["init", "--yes"]).ok();
    let text = env.read("everloop.toml");
    assert!(text.contains("agent = \"claude\"") && text.contains("allow = [\"make test\"]"), "{text}");
    env.run(&["config", "check"]).ok();
}
