//! claude's telemetry besides its stream.

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::env::{get, processes_of};
use super::world::{World, tell};

/// The program itself, not its shim.
fn claude(world: &World) -> Option<Pid> {
    let is_claude = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("claude"));
    processes_of(&world.env.state()).into_iter().find(is_claude).map(Pid::from_raw)
}

/// The `usage` of a turn that was killed while it waited for its second answer. Only the first was
/// paid for.
fn killed_turn(world: &World, is_ready: impl Fn() -> bool) -> Value {
    let running = world.env.spawn(&world.words(&["-n", "1"]));
    world.env.wait_for("the second answer is waited for", || world.calls().len() == 2 && is_ready());
    kill(claude(world).expect("it is running"), Signal::SIGKILL).expect("it is ours");
    running.wait().exits(3);
    let usage = world.env.run(&["usage", "--json"]).ok().json();
    tell(&format!("killed turn: {}", usage["total"]));
    usage["total"].clone()
}

const SCRIPT: &str = "edit:path=other.txt:text=hello,hang";

#[test]
fn a_killed_turn_still_has_its_cost() {
    offline(|| {
        let world = World::new(CliProgram::Claude, SCRIPT);
        let told = || {
            let metrics = get(world.env.port(), "/metrics").1;
            metrics.lines().any(|line| line == "everloop_telemetry_requests_total 1")
        };
        let used = killed_turn(&world, told);
        assert!(used["microusd"].as_u64().is_some_and(|n| n > 0), "{used}");
        assert_eq!((&used["from_telemetry"], &used["estimated"]), (&Value::from(1), &Value::from(false)), "{used}");
        let exit = &world.events("turn_exited")[0].1["exit"];
        assert!(exit["report"]["used"]["microusd"].is_null(), "the stream knew no cost: {exit}");
    });
}

#[test]
fn without_a_receiver_it_is_an_estimate() {
    offline(|| {
        let World { env, model, cli } = World::new(CliProgram::Claude, SCRIPT);
        let world = World { env: env.var("EVERLOOP_LISTEN", "off"), model, cli };
        let used = killed_turn(&world, || true);
        assert_eq!((&used["from_telemetry"], &used["estimated"]), (&Value::from(0), &Value::from(true)), "{used}");
        assert!(used["microusd"].as_u64().is_some_and(|n| n > 0), "by the list of prices: {used}");
        assert!(!world.env.state().join("http.json").exists());
    });
}

#[test]
fn a_whole_turn_says_the_same_in_both_ways() {
    offline(|| {
        let world = World::new(CliProgram::Claude, "edit:path=made.txt:text=hello,text:say=done");
        world.run(&[]).ok();
        let report = world.events("turn_exited")[0].1["exit"]["report"].clone();
        assert_eq!(report["telemetry"], report["used"], "{report}");
        let used = world.env.run(&["usage", "--json"]).ok().json()["total"].clone();
        assert_eq!(used["from_telemetry"], 0, "{used}");
        assert!(used["microusd"].as_u64().is_some_and(|n| n > 0), "{used}");
    });
}

#[test]
fn tools_of_claude_do_not_see_the_secret_of_its_telemetry() {
    offline(|| {
        let world = World::new(CliProgram::Claude, "tool:cmd=env > made.txt,text:say=done");
        world.run(&["--permission", "full"]).ok();
        let variables = world.env.read("made.txt");
        assert!(variables.contains("EVERLOOP_TURN="), "{variables}");
        assert!(
            !variables.contains("OTEL_EXPORTER_OTLP_HEADERS") && !variables.contains("x-everloop-turn"),
            "{variables}"
        );
        let report = world.events("turn_exited")[0].1["exit"]["report"].clone();
        assert!(report["telemetry"].is_object(), "telemetry was sent: {report}");
    });
}
