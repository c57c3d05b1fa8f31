//! `everloop prompt`: what the next turn would read.

use crate::env::Env;

#[test]
fn the_next_prompt_has_the_goal_the_failing_check_and_what_it_printed() {
    let env = Env::new();
    let check = "echo the moon is missing; test -f done";
    env.run(&["run", "reach the moon", "--check", check, "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let text = env.run(&["prompt"]).ok().stdout;
    assert!(text.contains("reach the moon") && text.contains("the moon is missing"), "{text}");
    let data = env.run(&["prompt", "--json"]).ok().json();
    assert_eq!(data["prompt"].as_str().map(str::trim_end), Some(text.trim_end()), "text and JSON agree");
    assert_eq!(data["loop"], env.the_loop()["id"]);
    assert_eq!(env.the_loop()["started"], 1, "looking starts nothing");
}

#[test]
fn while_a_turn_runs_it_is_the_prompt_of_that_turn() {
    let env = Env::new();
    let agent = "cat > got; touch begun; sleep 50";
    let _run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]);
    env.wait_for("the agent has its prompt", || env.project().join("begun").exists());
    assert_eq!(env.run(&["prompt"]).ok().stdout.trim_end(), env.read("got").trim_end());
}

#[test]
fn without_a_loop_there_is_no_prompt() {
    assert!(Env::new().run(&["prompt"]).exits(2).stderr.contains("there is no loop yet"));
}
