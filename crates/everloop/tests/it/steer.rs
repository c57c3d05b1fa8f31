//! `everloop steer`: a message for the next turn's prompt, once.

use crate::env::Env;

#[test]
fn the_next_turn_reads_the_message_and_the_one_after_does_not() {
    let env = Env::new();
    let args = ["run", "x", "--check", "test -f done", "--agent-cmd", "cat > \"got-$EVERLOOP_TURN\"", "--min-gap", "0"];
    env.run(&[&args[..], &["-n", "1"]].concat()).exits(3);
    env.run(&["steer", "look at the parser first"]).ok();
    assert!(env.run(&["prompt"]).ok().stdout.contains("look at the parser first"), "the next prompt shows it already");
    env.run(&["resume", "-n", "2"]).ok();
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("two more turns", || env.the_loop()["phase"]["ending"]["is"] == "exhausted");
    env.run(&["down"]).ok();
    up.wait().exits(143);
    let mut prompts: Vec<_> = std::fs::read_dir(env.project())
        .expect("the project is there")
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("got-")))
        .collect();
    prompts.sort();
    let told: Vec<bool> = prompts
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("it was listed").contains("look at the parser first"))
        .collect();
    assert_eq!(told, [false, true, false], "{prompts:?}");
}

#[test]
fn an_empty_message_and_an_unknown_loop_are_refused() {
    let env = Env::new();
    assert!(env.run(&["steer", "  "]).exits(2).stderr.contains("the message is empty"));
    assert!(env.run(&["steer", "x", "--loop", "nothing"]).exits(2).stderr.contains("hint:"));
}
