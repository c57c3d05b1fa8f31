//! `everloop ticket`: tickets for people.

use everloop_testkit::postgres::server;
use serde_json::json;

use crate::env::Env;

/// A world with a loop that ended without reaching its goal; the loop's id.
fn with_loop() -> (Env, String) {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let id = env.the_loop()["id"].as_str().expect("a loop has an id").to_owned();
    (env, id)
}

#[test]
fn a_question_is_listed_seen_answered_and_read_by_its_loop() {
    let (env, id) = with_loop();
    assert!(env.run(&["ticket", "list"]).ok().stdout.contains("no tickets"));
    env.run(&["message", "send", "person", "may I drop Python 3.8?", "--about", &id]).ok();
    let listed = env.run(&["ticket", "list", "--json"]).exits(4).json();
    assert_eq!(listed["tickets"][0]["severity"], "warning");
    assert_eq!(listed["tickets"][0]["acked_by"], json!(null));
    assert!(env.run(&["ticket", "ack", "1"]).ok().stdout.contains("stays open"));
    assert!(env.run(&["ticket", "ack", "#1"]).ok().stdout.contains("seen already by tester"));
    let shown = env.run(&["ticket", "show", "question"]).exits(4).stdout;
    assert!(shown.contains("may I drop Python 3.8?") && shown.contains("seen by tester"), "{shown}");
    let answered = env.run(&["ticket", "answer", "1", "yes, drop it"]).ok();
    assert!(answered.stdout.contains("will read the answer"), "{}", answered.stdout);
    assert!(env.run(&["prompt", &id]).ok().stdout.contains("yes, drop it"));
    let late = env.run(&["ticket", "answer", "1", "no"]).exits(1).stderr;
    assert!(late.contains("closed already: tester: yes, drop it") && late.contains("hint:"), "{late}");
    env.run(&["ticket", "ack", "1"]).exits(1);
    assert!(env.run(&["ticket", "list"]).ok().stdout.contains("no tickets"));
    assert!(env.run(&["ticket", "list", "--all"]).ok().stdout.contains("closed"));
    env.run(&["ticket", "show", "77"]).exits(2);
    env.run(&["replay"]).ok();
}

#[test]
fn two_terminals_answer_once_and_the_loop_reads_one_answer() {
    let (env, id) = with_loop();
    env.run(&["message", "send", "person", "which one?", "--about", &id]).ok();
    let both: Vec<_> = ["left", "right"].map(|text| env.spawn(&["ticket", "answer", "1", text])).into();
    let mut codes: Vec<i32> = both.into_iter().map(|one| one.wait().code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 1]);
    let prompt = env.run(&["prompt", &id]).ok().stdout;
    assert_eq!(prompt.matches("Answer to your question").count(), 1, "{prompt}");
    env.run(&["replay"]).ok();
}

#[test]
fn an_agent_answers_nothing() {
    let (env, id) = with_loop();
    env.run(&["message", "send", "person", "may I?", "--about", &id]).ok();
    let agent = env.var("EVERLOOP_TURN", "k3f9-1.1");
    for words in [&["ticket", "answer", "1", "yes"][..], &["ticket", "ack", "1"]] {
        assert!(agent.run(words).exits(2).stderr.contains("only a person answers tickets"));
    }
}

#[test]
fn one_of_the_hub_is_listed_and_answered_on_every_node() {
    let url = server().database();
    let node = |name: &str| {
        let env = Env::new().var("EVERLOOP_HUB_URL", &url);
        env.run(&["mesh", "hub", "init"]).ok();
        env.run(&["mesh", "join", "--name", name]).ok();
        env
    };
    let (one, two) = (node("n1"), node("n2"));
    let database = url.rsplit('/').next().expect("an address ends with its database");
    let open = "insert into everloop.tickets values (3, 'dead:k-1', null, 'it came to nothing', 1, null, null)";
    server().psql(database, open);
    for env in [&one, &two] {
        let listed = env.run(&["ticket", "list"]).exits(4).stdout;
        assert!(listed.contains("mesh:3") && listed.contains("it came to nothing"), "{listed}");
    }
    two.run(&["ticket", "answer", "mesh:3", "try it again"]).ok();
    assert!(one.run(&["ticket", "list"]).ok().stdout.contains("no tickets"));
    let late = one.run(&["ticket", "answer", "mesh:3", "no"]).exits(2).stderr;
    assert!(late.contains("the mesh has no open ticket 3"), "{late}");
    let answer = server().psql(database, "select answer from everloop.tickets");
    assert!(answer.contains("tester: try it again"), "{answer}");
}
