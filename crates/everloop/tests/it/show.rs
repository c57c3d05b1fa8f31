//! `everloop show`: loops, tasks and turns.

use crate::env::Env;

#[test]
fn loops_tasks_and_turns_are_shown_in_full() {
    let env = Env::new().git();
    let agent = env.script("agent", "echo I did something; echo oops >&2; touch half");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "agent"]);
    env.run(&["run", "the goal", "--check", "test -f done", "--agent-cmd", &agent, "-n", "1", "--min-gap", "0"])
        .exits(3);
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    let shown = env.run(&["show", &id]).ok().stdout;
    assert!(shown.contains("the goal") && shown.contains("not yet") && shown.contains("refs/everloop/"), "{shown}");
    assert_eq!(env.run(&["show", &id[..2]]).ok().stdout, shown, "an id can be shortened");
    assert_eq!(env.run(&["show"]).ok().stdout, shown, "without one the loop of this folder is meant");
    let task = env.run(&["show", &format!("{id}-1")]).ok().stdout;
    assert!(task.contains("make these checks pass") && task.contains("done"), "{task}");
    let turn = format!("{id}-1.1");
    let text = env.run(&["show", &turn]).ok().stdout;
    assert!(text.contains("exit 0") && text.contains("I did something") && text.contains("oops"), "{text}");
    assert!(text.contains("prompt.md"), "{text}");
    let data = env.run(&["show", &turn, "--json"]).ok().json();
    assert_eq!(data["record"]["code"], 0);
    assert_eq!(data["try"]["outcome"]["is"], "not_yet");
    let unknown = env.run(&["show", "nothing"]).exits(2);
    assert!(unknown.stderr.contains("there is no loop, task or turn `nothing`"), "{}", unknown.stderr);
}
