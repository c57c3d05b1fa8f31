//! `everloop doctor`: finds what is wrong and mends what is safe.

use crate::env::Env;

#[test]
fn an_empty_state_folder_is_well() {
    let env = Env::new();
    let said = env.run(&["doctor"]).ok().stdout;
    assert!(said.contains("git version") && said.contains("nothing was ever written"), "{said}");
    let data = env.run(&["doctor", "--json"]).ok().json();
    assert_eq!(data["ok"], true);
}

#[test]
fn an_agent_that_is_not_there_and_a_bad_file_are_failures() {
    let env = Env::new();
    env.write("everloop.toml", "[loop.x]\nnonsense = 1\n");
    let said = env.run(&["doctor"]).exits(1).stdout;
    assert!(said.contains("fail  ") && said.contains("everloop config check"), "{said}");
}

#[test]
fn a_stale_bell_is_mended_only_when_asked() {
    let env = Env::new();
    env.run(&["doctor"]).ok();
    let wake_pipe = env.state().join("bell");
    std::fs::write(&wake_pipe, "not a pipe").unwrap();
    let said = env.run(&["doctor"]).ok().stdout;
    assert!(said.contains("is not the pipe it should be") && said.contains("hint: everloop doctor --fix"), "{said}");
    assert!(wake_pipe.exists());
    let said = env.run(&["doctor", "--fix"]).ok().stdout;
    assert!(said.contains("fixed"), "{said}");
    assert!(!wake_pipe.exists());
}

#[test]
fn worktrees_of_an_ended_loop_are_removed_and_the_work_stays() {
    let env = Env::new().git();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch half", "-n", "1", "--min-gap", "0"])
        .exits(3);
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    // As if the supervisor had been killed before it could clean up.
    let left = env.state().join("work").join(&id).join("turn");
    std::fs::create_dir_all(&left).unwrap();
    let said = env.run(&["doctor"]).ok().stdout;
    assert!(said.contains(&format!("worktrees of the ended loop {id}")), "{said}");
    let said = env.run(&["doctor", "--fix"]).ok().stdout;
    assert!(said.contains("fixed"), "{said}");
    assert!(!left.exists());
    assert!(env.git_run(&["for-each-ref", "refs/everloop"]).contains(&id));
}

#[test]
fn a_process_of_a_job_that_is_over_is_found_and_ended() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    assert!(env.run(&["doctor"]).stdout.contains("no process without owner"));
    let id = env.the_loop()["id"].as_str().expect("a loop has an id").to_owned();
    let mark = everloop_agents::job::mark(&env.state().join("turns").join(format!("{id}-1.1"))).expect("it is there");
    let mut left =
        std::process::Command::new("sleep").arg("1000").env("EVERLOOP_JOB", mark).spawn().expect("coreutils");
    let said = env.run(&["doctor"]).stdout;
    assert!(said.contains("1 process of a job that is over") && said.contains("hint: everloop doctor --fix"), "{said}");
    assert!(left.try_wait().is_ok_and(|ended| ended.is_none()), "it was only shown");
    let said = env.run(&["doctor", "--fix"]).stdout;
    assert!(said.contains("fixed"), "{said}");
    assert!(!left.wait().expect("it is our child").success(), "it was killed");
}

#[test]
fn hooks_that_a_cli_skips_are_reported() {
    let env = Env::new();
    env.run(&["init", "--yes", "--agent", "codex"]).ok();
    env.run(&["trust"]).ok();
    let said = env.run(&["doctor"]).stdout;
    assert!(said.contains("codex skips the hooks of") && said.contains("trust the hooks in `/hooks`"), "{said}");
}

#[test]
fn what_is_examined_is_listed() {
    let env = Env::new();
    env.run(&["guard", "hold", "--reason", "a test"]).ok();
    env.run(&["run", "x", "--check", "false", "--agent-cmd", "true", "--no-wait"]).exits(5);
    let listed = env.run(&["doctor"]).stdout;
    for words in ["git version", "is private", "the database is sound", "the journal is whole", "is installed"] {
        assert!(listed.contains(words), "no `{words}` in: {listed}");
    }
}
