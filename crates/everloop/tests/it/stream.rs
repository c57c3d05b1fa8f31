//! `everloop stream`: entries that are kept, read, taken by groups and trimmed; what their routes make
//! of them; and answers.

use std::fs;

use serde_json::{Value, json};

use crate::env::Env;
use crate::persona::Personas;

fn route(from: &str, to: &str, more: &str) -> String {
    format!("[[route]]\nfrom = \"stream:{from}\"\nto = \"{to}\"\n{more}\n")
}

fn json(env: &Env, args: &[&str]) -> Value {
    env.run(&[args, &["--json"]].concat()).ok().json()
}

/// The values of a field, entry by entry.
fn values(page: &Value, field: &str) -> Vec<String> {
    let of = |entry: &Value| {
        let fields = entry["fields"].as_array().expect("an entry has fields").clone();
        fields.iter().find(|pair| pair[0] == field).map(|pair| pair[1].as_str().unwrap_or_default().to_owned())
    };
    page["entries"].as_array().expect("a page has entries").iter().filter_map(of).collect()
}

#[test]
fn entries_are_kept_in_order_read_and_trimmed_and_a_gap_is_reported() {
    let env = Env::new();
    env.run(&["stream", "read", "ops"]).exits(2);
    for n in 1..=5 {
        let added = json(&env, &["stream", "add", "ops", &format!("n:{n}"), "at=12:30"]);
        assert_eq!((&added["number"], &added["personas"]), (&json!(n), &json!([])), "{added}");
    }
    let page = json(&env, &["stream", "read", "ops", "-n", "2"]);
    assert_eq!((values(&page, "n"), values(&page, "at")), (vec!["1".into(), "2".into()], vec!["12:30".into(); 2]));
    assert_eq!(values(&json(&env, &["stream", "tail", "ops", "-n", "2"]), "n"), ["4", "5"]);
    assert_eq!(values(&json(&env, &["stream", "read", "ops", "--after", "3"]), "n"), ["4", "5"]);
    assert_eq!(json(&env, &["stream", "trim", "ops", "--keep", "2"])["trimmed"], 3);
    let page = json(&env, &["stream", "read", "ops", "--after", "1"]);
    assert_eq!((values(&page, "n"), &page["missed"]), (vec!["4".into(), "5".into()], &json!(2)));
    let said = env.run(&["stream", "read", "ops", "--after", "1"]).ok().stdout;
    assert!(said.contains("2 entries before these were dropped unread") && said.contains("  n: 4"), "{said}");
    assert_eq!(json(&env, &["stream", "trim", "ops", "--older", "1h"])["trimmed"], 0);
    let listed = env.run(&["stream", "list"]).ok().stdout;
    assert!(listed.contains("ops") && listed.contains("STREAM"), "{listed}");
    for (bad, words) in [
        (&["stream", "add", "a b", "x:1"][..], "invalid name of a stream"),
        (&["stream", "add", "ops", "x:1", "x:2"], "stands twice"),
        (&["stream", "add", "ops", "plain"], "field:value"),
        (&["stream", "trim", "nowhere", "--keep", "1"], "there is no stream `nowhere`"),
    ] {
        let said = env.run(bad).exits(2).stderr;
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn an_id_counts_once_and_a_secret_is_not_kept() {
    let env = Env::new();
    let key = ["sk-ant-", "api03-", &"k".repeat(40)].concat();
    let add = ["stream", "add", "ops", &format!("key:{key}"), "--id", "7"];
    assert_eq!(json(&env, &add)["repeated"], false);
    let again = json(&env, &add);
    assert_eq!((&again["repeated"], &again["number"]), (&json!(true), &json!(1)));
    let page = json(&env, &["stream", "read", "ops"]);
    assert!(page["entries"].as_array().is_some_and(|all| all.len() == 1) && !page.to_string().contains(&key), "{page}");
}

#[test]
fn a_group_takes_each_entry_once_until_it_is_reclaimed() {
    let env = Env::new();
    for n in 1..=3 {
        env.run(&["stream", "add", "ops", &format!("n:{n}")]).ok();
    }
    let take = |n: &str, idle: &str| {
        values(&json(&env, &["stream", "read", "ops", "--group", "g", "-n", n, "--idle", idle]), "n")
    };
    assert_eq!(take("2", "1h"), ["1", "2"]);
    assert_eq!(take("9", "1h"), ["3"]);
    env.run(&["stream", "ack", "ops", "--group", "g", "1", "3"]).ok();
    assert!(take("9", "1h").is_empty());
    assert_eq!(take("9", "0s"), ["2"], "it was not acknowledged");
    let listed = json(&env, &["stream", "list"]);
    assert_eq!(listed["streams"][0]["groups"]["g"], json!({ "cursor": 3, "pending": 1 }));
}

#[test]
fn a_question_is_answered_by_the_turn_that_takes_it() {
    let personas = Personas::new();
    let agent = "cat > /dev/null; echo the answer is 42";
    let personas = personas
        .with_agent("echo", agent, "")
        .with("other", "")
        .and(&route("deploys", "echo", "filter = 'kind == \"question\"'"))
        .and(&route("paired", "echo", "reply = \"done\""));
    let up = personas.up();
    let asked = json(&personas.env, &["stream", "ask", "deploys", "kind:question", "--wait", "60s"]);
    let answer = json!({ "entries": [asked["answer"]] });
    assert_eq!(values(&answer, "words"), ["the answer is 42"], "{asked}");
    assert_eq!((values(&answer, "from"), values(&answer, "outcome")), (vec!["echo".into()], vec!["no-op".into()]));
    assert_eq!(values(&answer, "correlation"), [asked["correlation"].as_str().expect("a text")]);
    assert_eq!(asked["reply_to"], "deploys.answers");
    let refused = personas.env.run(&["stream", "ask", "deploys", "kind:other"]).exits(2).stderr;
    assert!(refused.contains("no persona takes this entry"), "{refused}");
    personas.took("echo", 1);
    let added = json(&personas.env, &["stream", "add", "paired", "x:1", "--id", "8"]);
    assert_eq!(added["personas"], json!(["echo"]));
    personas.took("echo", 2);
    assert_eq!(values(&json(&personas.env, &["stream", "read", "done"]), "correlation"), ["8"]);
    personas.down(up);
    // Nothing takes it now, and the answer comes later than the patience lasts.
    let late = personas.env.run(&["stream", "ask", "paired", "x:2", "--wait", "0s", "--json"]);
    assert_eq!(late.exits(3).json()["answer"], Value::Null);
}

#[test]
fn a_route_to_a_loop_is_a_task_on_its_board_once() {
    let env = Env::new();
    let loop_toml =
        "[loop.fix]\ngoal = \"mend it\"\nchecks = [\"false\"]\nworkspace = \"in-place\"\nagent_cmd = \"true\"\n";
    env.write("everloop.toml", &format!("{loop_toml}{}", route("tickets", "fix", "reply = \"x\"")));
    let said = env.run(&["config", "check"]).exits(7).stderr;
    assert!(said.contains("`reply` is for routes to personas"), "{said}");
    env.write("everloop.toml", &format!("{loop_toml}{}", route("tickets", "fix", "priority = 7")));
    env.run(&["config", "check"]).ok();
    env.run(&["run", "--loop", "fix", "--detach"]).ok();
    for _ in 0..2 {
        env.run(&["stream", "add", "tickets", "text:the door is stuck", "--id", "1"]).ok();
    }
    let tasks = json(&env, &["task", "list"]);
    let of = |task: &&Value| task["title"] == "entry 1 of tickets";
    let found: Vec<&Value> = tasks["tasks"].as_array().expect("a list").iter().filter(of).collect();
    assert!(found.len() == 1 && found[0]["priority"] == 7, "{tasks}");
}

#[test]
fn a_turn_adds_what_leads_elsewhere_and_neither_trims_nor_wakes_itself() {
    let env = Env::new();
    let out = env.project().with_file_name("out").join("a");
    let exe = env!("CARGO_BIN_EXE_everloop");
    let add = |stream: &str, more: &str| format!("{exe} stream add {stream} x:1 {more}; ");
    let verbs = [
        add("plain", ""),
        add("mine", ""),
        add("loud", ""),
        add("redis:there", ""),
        add("plain", "reply_to:redis:there"),
        format!("{exe} stream trim plain --keep 0; "),
        format!("{exe} stream read plain --group g; "),
    ];
    let agent = format!("cat > /dev/null; {{ {}true; }} > {}/said 2>&1", verbs.concat(), out.display());
    let personas = Personas::of(env)
        .with_agent("a", &agent, "")
        .with("b", "")
        .and(&route("plain", "b", ""))
        .and(&route("mine", "a", ""))
        .and(&route("loud", "b", "class = \"high\""));
    let up = personas.up();
    personas.signal("a", "go", &[]);
    personas.took("a", 1);
    let said = fs::read_to_string(out.join("said")).expect("the agent ran");
    for words in ["entry 1 of plain: to b", "which leads to its own loop", "whose route has class high"] {
        assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
    }
    assert_eq!(said.matches("may write to a stream outside of the ledger").count(), 2, "{said}");
    assert_eq!(said.matches("a turn may not do this").count(), 2, "{said}");
    personas.took("b", 1);
    assert_eq!(json(&personas.env, &["stream", "list"])["streams"].as_array().map(Vec::len), Some(1));
    personas.down(up);
}
