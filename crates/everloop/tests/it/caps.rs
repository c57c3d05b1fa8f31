//! `--max-tokens` and `--max-usd` within a turn: an agent is stopped at its first report over the
//! cap, so a turn overshoots by one request at most.

use everloop_testkit::fake_model::FakeModel;
use serde_json::Value;

use crate::env::{Env, Output};

/// After the second report the agent would go on much later: a test that waits for that has failed.
const MUCH_LATER: u32 = 300;

/// An agent that writes Claude Code's stream: three requests of 15,000 tokens each.
fn claude_speaker(env: &Env) {
    let request = |n: u32| {
        format!(
            r#"echo '{{"type":"assistant","message":{{"id":"m{n}","model":"claude-opus-5-5","content":[{{"type":"text","text":"part {n}"}}],"usage":{{"input_tokens":15000,"output_tokens":0}}}},"session_id":"s1"}}'; echo {n} >> requests"#
        )
    };
    let init = r#"echo '{"type":"system","subtype":"init","session_id":"s1","model":"claude-opus-5-5","tools":[]}'"#;
    env.script("speaker", &[init, &request(1), &request(2), &format!("sleep {MUCH_LATER}"), &request(3)].join("\n"));
    agent(env, "claude");
}

fn agent(env: &Env, dialect: &str) {
    env.write(
        "everloop.toml",
        &format!("[agent.speaker]\ncommand = [\"./speaker\"]\ndialect = \"{dialect}\"\nfree = true\n"),
    );
}

/// An agent that writes codex' stream, which counts at its end only, and a session file that has the
/// model and a sum after every request.
fn codex_speaker(env: &Env) {
    let note = |n: u64| {
        format!(
            r#"echo '{{"type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{{"input_tokens":{sum},"output_tokens":0}},"last_token_usage":{{"total_tokens":15000}},"model_context_window":272000}}}}}}' >> "$file"; echo {n} >> requests"#,
            sum = n * 15_000
        )
    };
    let begin = r#"thread=019a0000-0000-7000-8000-000000000001
sessions="$CODEX_HOME/sessions/2026/11/17"; mkdir -p "$sessions"; file="$sessions/rollout-2026-11-17T10-00-00-$thread.jsonl"
echo '{"type":"turn_context","payload":{"model":"gpt-5.5"}}' >> "$file"
echo "{\"type\":\"thread.started\",\"thread_id\":\"$thread\"}"; echo '{"type":"turn.started"}'"#;
    env.script("speaker", &[begin, &note(1), &note(2), &format!("sleep {MUCH_LATER}"), &note(3)].join("\n"));
    let home = env.project().join("codex-home");
    env.write(
        "everloop.toml",
        &format!(
            "[agent.speaker]\ncommand = [\"./speaker\"]\ndialect = \"codex\"\nfree = true\naccount = \"own\"\n\
             [account.own]\nset = {{ CODEX_HOME = \"{}\" }}\n",
            home.display()
        ),
    );
}

fn capped(env: &Env, cap: [&str; 2]) -> Output {
    let all = ["run", "x", "--check", "test -f done", "--agent", "speaker", "--in-place", "--yes"];
    env.run(&all.into_iter().chain(cap).collect::<Vec<_>>()).exits(3)
}

fn total(env: &Env) -> Value {
    env.run(&["usage", "--json"]).ok().json()["total"].clone()
}

#[test]
fn a_stream_is_stopped_at_the_first_report_over_its_tokens() {
    for (speaker, words) in [(claude_speaker as fn(&Env), "claude"), (codex_speaker, "codex")] {
        let env = Env::new();
        speaker(&env);
        let said = capped(&env, ["--max-tokens", "20000"]).stderr;
        assert_eq!(env.read("requests"), "1\n2\n", "{words}: {said}");
        assert!(said.contains("tokens are used up") && said.contains("the budget was used up"), "{words}: {said}");
        assert_eq!(total(&env)["tokens"], 30_000, "{words}: the overshoot is one request");
        let by_model = env.run(&["usage", "--json", "--by", "model"]).ok().json();
        let model = if words == "codex" { "gpt-5.5" } else { "claude-opus-5-5" };
        assert_eq!(by_model["rows"][0]["key"], model, "{words}: {by_model}");
        let turn = format!("{}-1.1", env.the_loop()["id"].as_str().expect("a loop has an id"));
        let shown = env.run(&["show", &turn]).ok().stdout;
        assert!(shown.contains(&format!("Model     {model}")), "{words}: {shown}");
    }
}

#[test]
fn a_stream_is_stopped_at_the_first_report_over_its_dollars_by_the_list_of_prices() {
    // 15,000 tokens are $0.06 with one model and $0.075 with the other.
    for (speaker, words, microusd) in
        [(claude_speaker as fn(&Env), "claude", 120_000), (codex_speaker, "codex", 150_000)]
    {
        let env = Env::new();
        speaker(&env);
        let said = capped(&env, ["--max-usd", "0.1"]).stderr;
        assert_eq!(env.read("requests"), "1\n2\n", "{words}: {said}");
        assert!(said.contains("dollars are used up") && said.contains("~$0.1"), "{words}: {said}");
        let total = total(&env);
        assert_eq!((&total["microusd"], &total["estimated"]), (&microusd.into(), &true.into()), "{words}: {total}");
        let logs = env.run(&["logs", "--json", "-n", "100"]).ok().stdout;
        let records = logs.lines().map(|line| serde_json::from_str::<Value>(line).expect("a record"));
        let exit = records.map(|record| record["event"].clone()).find(|event| event["event"] == "turn_exited");
        let rates = exit.expect("the turn ended")["exit"]["report"]["rates"].clone();
        assert!(rates["as_of"] == "2026-11" && rates.to_string().contains("input"), "{words}: {rates}");
    }
}

#[test]
fn the_api_agent_stops_before_the_next_request() {
    for (cap, words) in [(["--max-tokens", "20000"], "tokens"), (["--max-usd", "0.1"], "dollars")] {
        let env = Env::new();
        let look = "tool:name=read:json={\"path\":\".\"}:in=15000:out=1";
        let model = FakeModel::start(&[look; 5].join(",")).expect("a free port on loopback");
        env.write(
            "everloop.toml",
            &format!(
                "[agent.speaker]\nkind = \"api\"\nmodel = \"claude-opus-5-5\"\nkey_env = \"FAKE_KEY\"\n\
                 api_base = \"{}\"\nfree = true\n",
                model.base_url()
            ),
        );
        let env = env.var("FAKE_KEY", "sk-test");
        let said = capped(&env, cap).stderr;
        assert_eq!(model.main_calls(), 2, "{words}: {said}");
        assert!(said.contains(&format!("{words} are used up")), "{words}: {said}");
    }
}
