//! `everloop` alone: what is going on, or the first commands to try.

use crate::env::Env;

#[test]
fn without_a_verb_it_shows_the_first_steps_and_then_the_loops_of_this_folder() {
    let env = Env::new();
    let nothing = env.run(&[]).ok().stdout;
    for step in ["everloop demo", "everloop init", "everloop run \"GOAL\""] {
        assert!(nothing.contains(step), "{nothing}");
    }
    env.run(&["run", "a file", "--check", "test -f done", "--agent-cmd", "touch done"]).ok();
    let text = env.run(&[]).ok().stdout;
    assert!(text.lines().count() <= 10 && text.contains("reached") && text.contains("a file"), "{text}");
    assert_eq!(env.run(&["--json"]).ok().json()["loops"][0]["name"], "a-file");
}

#[test]
fn verbs_that_moved_are_no_verbs_any_more() {
    let env = Env::new();
    for old in ["join", "leave", "node", "hub", "send", "inbox", "comment", "prompts", "completions", "man"] {
        env.run(&[old]).exits(2);
    }
    let help = env.run(&["--help"]).ok().stdout;
    let place = |word: &str| help.find(word).unwrap_or_else(|| panic!("`{word}` is missing in\n{help}"));
    assert!(place("Every day:") < place("Work:") && place("Work:") < place("Maintain:"), "{help}");
}
