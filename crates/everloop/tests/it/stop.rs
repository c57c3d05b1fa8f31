//! `everloop stop`: a loop ends after its turn, or now; it stays resumable.

use nix::sys::signal::Signal;

use crate::env::{Env, processes_of};

#[test]
fn stopping_now_ends_the_agent_and_the_command_that_waited() {
    let env = Env::new();
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", "sleep 50", "--min-gap", "0"]);
    env.wait_for_agent();
    let said = env.run(&["stop", "--now"]).ok().stdout;
    assert!(said.contains("stops now"), "{said}");
    run.wait().exits(3);
    assert_eq!(env.the_loop()["phase"]["ending"]["is"], "stopped");
    assert_eq!(processes_of(&env.state()), Vec::<i32>::new());
    env.run(&["replay"]).ok();
}

#[test]
fn stopping_waits_for_the_end_of_the_turn_whose_work_counts() {
    let env = Env::new();
    let agent = "touch begun; while ! test -f go; do sleep 0.05; done; touch half";
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]);
    env.wait_for("the agent works", || env.project().join("begun").exists());
    env.run(&["stop"]).ok();
    assert!(!env.project().join("half").exists(), "the turn is not cut off");
    env.write("go", "");
    run.wait().exits(3);
    assert!(env.project().join("half").exists(), "the turn came to its own end");
    let state = env.the_loop();
    assert_eq!((&state["phase"]["ending"]["is"], &state["turns"]), (&"stopped".into(), &1.into()), "{state}");
}

#[test]
fn an_agent_may_not_stop_a_loop() {
    let env = Env::new().var("EVERLOOP_TURN", "k3f9-1.1");
    assert!(env.run(&["stop"]).exits(2).stderr.contains("only a person may"));
}

#[test]
fn an_interrupt_in_a_run_that_joined_a_supervisor_takes_the_same_steps() {
    let env = Env::new();
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the supervisor", || env.run(&["status", "--json"]).ok().stdout.contains("\"up\""));
    let agent = "touch begun; sleep 50";
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]);
    env.wait_for("the agent works", || env.project().join("begun").exists());
    run.signal(Signal::SIGINT);
    env.wait_for("the wish arrives", || env.the_loop()["stop"]["now"] == false);
    assert_eq!(env.the_loop()["phase"]["is"], "turn", "the turn goes on");
    run.signal(Signal::SIGINT);
    let said = run.wait().exits(130).stderr;
    assert!(said.contains("ends after this turn; Ctrl-C again stops the agent now"), "{said}");
    assert!(said.contains("stopping the agent, nothing is lost; Ctrl-C again leaves at once"), "{said}");
    assert_eq!(env.the_loop()["phase"]["ending"]["is"], "stopped");
    env.run(&["down"]).ok();
    up.wait().exits(143);
}

#[test]
fn the_third_interrupt_leaves_and_names_what_goes_on() {
    let env = Env::new();
    let up = env.spawn(&["up", "--listen", "off"]);
    env.wait_for("the supervisor", || env.run(&["status", "--json"]).ok().stdout.contains("\"up\""));
    let agent = "trap '' TERM INT; touch begun; sleep 50 & wait; sleep 50 & wait; sleep 50";
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]);
    env.wait_for("the agent works", || env.project().join("begun").exists());
    for now in [false, true] {
        run.signal(Signal::SIGINT);
        env.wait_for("the wish arrives", || env.the_loop()["stop"]["now"] == now);
    }
    run.signal(Signal::SIGINT);
    let said = run.wait().exits(130).stderr;
    assert!(said.contains("leaving; its supervisor goes on with loop"), "{said}");
    env.run(&["down"]).ok();
    up.wait().exits(143);
}

#[test]
fn a_name_that_two_open_loops_have_is_refused_with_both_ids_and_a_person_chooses_one() {
    let env = Env::new().git();
    let words = ["run", "x", "--check", "test -f done", "--agent-cmd", "sleep 50", "--min-gap", "0"];
    let first = env.spawn(&words);
    env.wait_for_agent();
    let second = env.spawn(&[&words[..], &["--new"]].concat());
    let loops = || env.run(&["status", "--json"]).ok().json()["loops"].clone();
    env.wait_for("both are there", || loops()[1]["id"].is_string());
    let loops = loops();
    let ids: Vec<&str> = (0..2).filter_map(|n| loops[n]["id"].as_str()).collect();
    let name = loops[0]["name"].as_str().expect("a name");
    assert!(ids.len() == 2 && loops[1]["name"] == name, "{loops:#}");
    let refused = env.run(&["stop", name]).exits(2).stderr;
    assert!(refused.contains("2 loops are called") && ids.iter().all(|id| refused.contains(id)), "{refused}");
    for words in [&["resume", name][..], &["pause", name], &["wake", name], &["steer", "hurry", "--loop", name]] {
        assert!(env.run(words).exits(2).stderr.contains("2 loops are called"), "{words:?}");
    }
    let none = env.on_terminal(&["stop", "--now", name], "7\n").exits(2).stdout;
    assert!(none.contains("which one? [1-2]") && ids.iter().all(|id| none.contains(id)), "{none}");
    // The newest stands first.
    let asked = env.on_terminal(&["steer", "hurry", "--loop", name], "1\n").ok().stdout;
    let newest = asked.lines().find_map(|line| line.trim().strip_prefix("1) ")?.split(' ').next()).expect("a list");
    assert!(asked.contains(&format!("loop {newest}: the next turn will read the message")), "{asked}");
    let oldest = *ids.iter().find(|id| **id != newest).expect("there are two");
    let stopped = env.on_terminal(&["stop", "--now", name], "2\n").ok().stdout;
    assert!(stopped.contains(&format!("loop {oldest}: stops now")), "{stopped}");
    first.wait().exits(3);
    env.run(&["stop", "--now", name]).ok();
    second.wait().exits(3);
}

#[test]
fn commands_to_an_ended_loop_say_that_it_has_ended() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done"]).ok();
    for args in [&["stop"][..], &["pause"], &["steer", "hurry"]] {
        let said = env.run(args).exits(2).stderr;
        assert!(said.contains("has reached its goal: there is nothing to"), "{args:?}: {said}");
    }
    env.run(&["run", "y", "--check", "false", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    for args in [&["stop", "y"][..], &["pause", "y"]] {
        let said = env.run(args).exits(2).stderr;
        assert!(said.contains("its turns are used up") && said.contains("everloop resume"), "{args:?}: {said}");
    }
    let said = env.run(&["steer", "hurry", "--loop", "y"]).ok().stdout;
    assert!(said.contains("has ended; the message is kept"), "{said}");
}
