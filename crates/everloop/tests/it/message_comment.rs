//! `everloop message comment`: comments stay with their task. How turns read them is in `message`.

use serde_json::json;

use crate::env::Env;

#[test]
fn a_comment_is_listed_with_its_author_and_stays() {
    let env = Env::new();
    let task = env.run(&["task", "add", "port it", "--json"]).ok().json()["task"].clone();
    let task = task.as_str().expect("`add` prints the id");
    let said = env.run(&["message", "comment", task, "the parser is in src/read.rs", "--json"]).ok().json();
    assert_eq!((&said["to"], &said["by"]), (&json!(task), &json!("tester")));
    for _ in 0..2 {
        let listed = env.run(&["message", "inbox", task]).ok().stdout;
        assert!(listed.contains("the parser is in src/read.rs") && listed.contains("tester"), "{listed}");
    }
}

#[test]
fn nothing_is_written_beneath_a_task_that_is_not_there_and_nothing_empty() {
    let env = Env::new();
    assert!(env.run(&["message", "comment", "x7k2m", "hello"]).exits(2).stderr.contains("x7k2m"));
    env.run(&["message", "comment", "x7k2m", " "]).exits(2);
}
