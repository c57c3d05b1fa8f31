//! The supervisor is killed, again and again, at any moment; the end is the same as if nothing had
//! happened.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::env::{Env, processes_of};

/// Turns of the loop, each of which appends its task's id to a file.
const TURNS: usize = 30;
/// Kills in all, spread over all turns; they hit starts, turns, judgements, landings and
/// recoveries.
const KILLS: usize = 200;

/// A turn ends when the file `allowed` counts more turns than are done, so that the kills cannot
/// outlast the loop.
fn args(env: &Env) -> Vec<String> {
    let check = format!("test $(wc -l < ids) -ge {TURNS}");
    let wait = format!("until test $(cat {}) -gt $(wc -l < ids); do sleep 0.01; done", allowed(env).display());
    let agent = format!("{wait}; echo $EVERLOOP_TASK >> ids");
    ["run", "count", "--check", &check, "--agent-cmd", &agent, "--min-gap", "0"].map(str::to_owned).to_vec()
}

fn allowed(env: &Env) -> std::path::PathBuf {
    gate(env).join("allowed")
}

/// A folder of its own: an isolated turn does not see a new file beside the state folder.
fn gate(env: &Env) -> std::path::PathBuf {
    env.project().with_file_name("gate")
}

fn allow(env: &Env, turns: usize) {
    let new = gate(env).join("allowed.new");
    std::fs::write(&new, turns.to_string()).expect("the folder is there");
    std::fs::rename(new, allowed(env)).expect("the file was just written");
}

fn world() -> Env {
    let env = Env::new().git();
    std::fs::create_dir(gate(&env)).expect("the folder is new");
    env.write("ids", "");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "ids"]);
    env
}

/// Ids without the loop's own, which is drawn at random.
fn numbers(env: &Env) -> Vec<String> {
    env.read("ids").lines().map(|l| l.rsplit_once('-').expect("a loop's task has a number").1.to_owned()).collect()
}

fn trailers(env: &Env) -> Vec<String> {
    let log = env.git_run(&["log", "--format=%(trailers:key=Task-Id,valueonly,separator=%x2C)", "main"]);
    log.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

#[test]
fn long_two_hundred_kills_change_nothing() {
    let calm = world();
    allow(&calm, TURNS);
    let calm_args = args(&calm);
    calm.run(&calm_args.iter().map(String::as_str).collect::<Vec<_>>()).ok();

    let env = world();
    let args = args(&env);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut seed = 7;
    for kills in 0..KILLS {
        allow(&env, kills * TURNS / KILLS);
        seed = everloop_core::jitter::mix(seed, 1);
        let mut run = env.command(&args);
        run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = run.spawn().unwrap();
        // Any moment from the first instruction to a few turns later.
        let end = Instant::now() + Duration::from_micros(seed % 120_000);
        while Instant::now() < end && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(500));
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before kill {kills}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    allow(&env, TURNS);
    env.run(&args).ok();

    assert_eq!(numbers(&env), numbers(&calm), "equal to the uninterrupted run");
    let trailers = trailers(&env);
    assert_eq!(trailers.len(), trailers.iter().collect::<BTreeSet<_>>().len(), "each task landed once");
    let over = Instant::now();
    env.wait_for("nothing of a turn is left", || processes_of(&env.state()).is_empty());
    assert!(over.elapsed() < Duration::from_secs(20), "something lived for {:?}", over.elapsed());
    let said = env.run(&["replay"]).ok().stdout;
    assert!(said.contains("equal"), "{said}");
    assert_eq!(env.git_run(&["status", "--porcelain"]), "");
}

#[test]
fn a_turn_outlives_its_supervisor_and_is_adopted() {
    let env = Env::new().git();
    let agent = "sh -c 'while ! test -f '$GO'; do sleep 0.02; done; touch done'";
    let go = env.project().parent().unwrap().join("go");
    let agent = agent.replace("'$GO'", &go.display().to_string());
    let args = ["run", "x", "--check", "test -f done", "--agent-cmd", &agent, "--min-gap", "0"];
    let run = env.spawn(&args);
    env.wait_for_agent();
    run.signal(Signal::SIGKILL);
    run.wait();
    let second = env.spawn(&args);
    env.wait_for("it was found", || env.run(&["logs"]).stdout.contains("still at work"));
    std::fs::write(&go, "").unwrap();
    second.wait().ok();
    let state = env.the_loop();
    assert_eq!((state["started"].as_u64(), state["tally"]["lost"].as_u64()), (Some(1), Some(0)), "{state}");
}

/// As after a reboot: neither the supervisor nor anything of the turn is left.
#[test]
fn a_turn_that_ended_with_the_machine_is_tried_again_and_what_it_left_is_kept() {
    let env = Env::new().git();
    env.write("../gate/empty", "");
    let gate = gate(&env).display().to_string();
    let agent = format!("if test -e {gate}/begun; then touch done; else touch half {gate}/begun; exec sleep 1000; fi");
    let run = ["run", "x", "--check", "test -f done", "--agent-cmd", &agent, "--min-gap", "0", "--writable", &gate];
    let first = env.spawn(&run);
    env.wait_for("the agent has begun", || env.project().join("../gate/begun").exists());
    first.signal(Signal::SIGKILL);
    env.wait_for("nothing is left", || {
        let left = processes_of(&env.state());
        for pid in &left {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGKILL).ok();
        }
        left.is_empty()
    });
    first.wait();
    env.run(&run).ok();
    let state = env.the_loop();
    assert_eq!((state["tally"]["lost"].as_u64(), state["turns"].as_u64()), (Some(1), Some(1)), "{state}");
    let refs = env.git_run(&["for-each-ref", "--format=%(refname)", "refs/everloop"]);
    let kept = |name: &str| env.git_run(&["ls-tree", "--name-only", name]).lines().any(|file| file == "half");
    assert!(refs.lines().any(kept), "{refs}");
}

/// The check waits in its first run after the turn; the run after the supervisor's end decides.
#[test]
fn checks_that_were_interrupted_are_run_again() {
    for way in ["kill", "down"] {
        let env = Env::new().git();
        env.write("../gate/log", "");
        let gate = gate(&env).display().to_string();
        let check = format!("test -f done || exit 1; echo x >> {gate}/log; test -e {gate}/go || exec sleep 1000");
        let run = ["run", "x", "--check", &check, "--agent-cmd", "touch done", "--min-gap", "0", "--writable", &gate];
        let first = env.spawn(&run);
        env.wait_for("the check runs", || !env.read("../gate/log").is_empty());
        match way {
            "kill" => first.signal(Signal::SIGKILL),
            _ => drop(env.run(&["down"]).ok()),
        }
        first.wait();
        assert_eq!(env.the_loop()["tries"].as_array().map(Vec::len), Some(0), "{way}: nothing was judged");
        env.write("../gate/go", "");
        env.run(&run).ok();
        let state = env.the_loop();
        assert!(env.read("../gate/log").lines().count() >= 2, "{way}: it was run again");
        assert_eq!((state["started"].as_u64(), state["turns"].as_u64()), (Some(1), Some(1)), "{way}: {state}");
    }
}

#[test]
fn a_second_supervisor_says_so_and_exits() {
    let env = Env::new();
    let up = env.spawn(&["up"]);
    env.wait_for("it supervises", || env.run(&["status", "--json"]).json()["supervisor"]["role"] == "up");
    let second = env.run(&["up"]).exits(1);
    assert!(second.stderr.contains("already supervises") && second.stderr.contains("hint:"), "{}", second.stderr);
    env.run(&["down"]).ok();
    up.wait().exits(143);
    env.run(&["down"]).exits(6);
}

#[test]
fn a_second_terminal_follows_and_takes_over() {
    let env = Env::new().git();
    let first = env.spawn(&["run", "one", "--check", "test -f never", "--agent-cmd", "sleep 60", "--min-gap", "0"]);
    env.wait_for_agent();
    let agent = "sh -c 'sleep 0.5; touch two'";
    let second = env.spawn(&["run", "two", "--check", "test -f two", "--agent-cmd", agent, "--min-gap", "0"]);
    let two_runs = || {
        let status = env.run(&["status", "--json"]).json();
        status["loops"].as_array().unwrap().iter().any(|l| l["name"] == "two" && l["phase"] == "running")
    };
    env.wait_for("the first process runs the second loop, too", two_runs);
    first.signal(Signal::SIGKILL);
    first.wait();
    second.wait().ok();
    assert!(env.git_run(&["ls-tree", "--name-only", "main"]).contains("two"));
}

#[test]
fn a_process_that_is_done_with_its_own_loop_leaves_the_others_to_their_own() {
    let env = Env::new().git();
    let first =
        env.spawn(&["run", "one", "--check", "test -f one", "--agent-cmd", "sleep 1; touch one", "--min-gap", "0"]);
    env.wait_for_agent();
    let go = env.project().parent().unwrap().join("go");
    let agent = format!("sh -c 'while ! test -f {}; do sleep 0.02; done; touch two'", go.display());
    let second = env.spawn(&["run", "two", "--check", "test -f two", "--agent-cmd", &agent, "--min-gap", "0"]);
    // The other loop cannot end before this.
    first.wait().ok();
    std::fs::write(&go, "").unwrap();
    second.wait().ok();
    assert_eq!(env.git_run(&["ls-tree", "--name-only", "main"]), "README\none\ntwo\n");
}

#[test]
fn commands_without_a_supervisor_take_effect_at_once() {
    let env = Env::new().git();
    let run = env.spawn(&["run", "x", "--check", "test -f never", "--agent-cmd", "sleep 300", "--min-gap", "0"]);
    env.wait_for_agent();
    run.signal(Signal::SIGKILL);
    run.wait();
    let begun = Instant::now();
    env.run(&["pause", "--reason", "lunch"]).ok();
    env.run(&["steer", "look at the parser"]).ok();
    assert!(begun.elapsed() < Duration::from_secs(10), "it waited for the turn");
    assert_eq!(env.the_loop()["paused"]["reason"], "lunch");
    assert!(!processes_of(&env.state()).is_empty(), "the turn goes on");
    env.run(&["stop", "--now"]).ok();
    assert_eq!(env.the_loop()["phase"]["is"], "ended");
    env.wait_for("nothing is left", || processes_of(&env.state()).is_empty());
}

#[test]
fn interrupts_end_after_the_turn_and_then_stop_the_agent() {
    let env = Env::new().git();
    let args = ["run", "x", "--check", "test -f never", "--agent-cmd", "sleep 600", "--min-gap", "0"];
    let run = env.spawn(&args);
    env.wait_for_agent();
    run.signal(Signal::SIGINT);
    env.wait_for("the request is noted", || env.run(&["logs"]).stdout.contains("stop requested by"));
    assert_eq!(env.the_loop()["phase"]["is"], "turn", "the turn goes on");
    let begun = Instant::now();
    run.signal(Signal::SIGINT);
    run.wait().exits(130);
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "the agent got its signal, it was not killed at the end of the grace"
    );
    env.wait_for("nothing is left", || processes_of(&env.state()).is_empty());
    let again = env.spawn(&args);
    env.wait_for_agent();
    again.signal(Signal::SIGTERM);
    again.wait().exits(143);
    assert_eq!(env.the_loop()["turns"], 0, "an interrupted turn does not count");
}

#[test]
fn a_stop_that_comes_before_the_agent_has_begun_still_stops_it() {
    let env = Env::new().git();
    // The setup takes its time, so that the turn is granted long before its process is there.
    let args = ["run", "x", "--check", "test -f never", "--agent-cmd", "sleep 600", "--min-gap", "0"];
    let run = env.spawn(&[&args[..], &["--setup", "test $(basename $PWD) = verify || sleep 2"]].concat());
    env.wait_for("the turn is granted", || env.run(&["logs"]).stdout.contains("turn 1 started"));
    env.run(&["stop", "--now"]).ok();
    let begun = Instant::now();
    run.wait().exits(3);
    assert!(begun.elapsed() < Duration::from_secs(15), "it took {:?}", begun.elapsed());
}

#[test]
fn a_closed_terminal_ends_nothing() {
    let env = Env::new().git();
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", "sh -c 'sleep 1; touch done'"]);
    env.wait_for_agent();
    run.signal(Signal::SIGHUP);
    run.wait().ok();
}

#[test]
fn detached_it_goes_on_without_us() {
    let env = Env::new().git();
    let args =
        ["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0", "--detach", "--json"];
    let told = env.run(&args).ok().json();
    assert_eq!(told["detached"], true);
    env.wait_for("it is reached", || env.run(&["status", "--json"]).json()["loops"][0]["phase"] == "reached");
    env.run(&["down"]).ok();
}

#[test]
fn on_a_full_disk_an_interrupt_still_ends_the_run() {
    let env = Env::new();
    std::fs::create_dir_all(env.state()).expect("a folder");
    let agent = "touch begun; until test -f go; do sleep 0.05; done; touch half";
    let words = ["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0", "--isolation", "none"];
    // The state folder is on a disk of its own, which is filled while the agent works.
    let script = "mount -t tmpfs -o size=8m none \"$EVERLOOP_STATE_DIR\" || exit 99
        \"$@\" 2> errors & run=$!
        until test -f begun; do sleep 0.05; done
        dd if=/dev/zero of=\"$EVERLOOP_STATE_DIR/fill\" bs=4k 2> fill
        touch go
        until grep -q 'the disk is full' errors; do kill -0 $run || exit 98; sleep 0.05; done
        kill -INT $run; wait $run";
    let inner = env.command(&words);
    let mut outer = std::process::Command::new("unshare");
    outer.args(["-rm", "sh", "-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    outer.current_dir(env.project()).env_clear();
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = outer.output().expect("`unshare` of util-linux is there");
    let errors = env.read("errors");
    assert_eq!(ended.status.code(), Some(130), "{errors}\n{}", String::from_utf8_lossy(&ended.stderr));
    assert!(errors.contains("the disk of the state folder is full") && errors.contains("hint: make room"), "{errors}");
}
