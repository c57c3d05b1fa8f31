//! Limits, walls, hangs and cuts of the real programs.

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;

use super::world::{World, tell};

/// Nothing is called before the reset, and then the same session goes on at once.
fn sleeps_to_the_reset(cli: CliProgram, limit: &str) {
    let script = format!("{limit}:in=20,edit:path=made.txt:text=hello,text");
    let world = World::new(cli, &script);
    world.run(&["--permission", "full"]).ok();
    let calls = world.calls();
    let limited: Vec<_> = calls.iter().filter(|c| c.status == Some(429)).collect();
    assert_eq!(limited.len(), 1, "one call was refused, and none was made before the reset: {calls:#?}");
    let (_, event) = world.events("limited").remove(0);
    let reset = event["until"].as_i64().expect("the reset is known");
    let starts = world.events("turn_started");
    assert_eq!(starts.len(), 2);
    let late = starts[1].0 - reset;
    assert!((0..=2000).contains(&late), "resumed {late} ms after the reset");
    let first = calls.iter().find(|c| c.status == Some(200)).expect("it went on");
    tell(&format!(
        "{}: next turn {late} ms after the reset, first call {} ms after it",
        cli.name(),
        first.at_ms as i64 - reset
    ));
    let resumed = &starts[1].1;
    assert!(resumed["resume"].is_string(), "the same session: {resumed}");
    let tally = world.env.the_loop()["tally"].clone();
    assert_eq!((tally["agent_failed"].as_u64(), tally["limited"].as_u64()), (Some(0), Some(1)));
}

#[test]
fn long_claude_sleeps_to_the_reset_and_goes_on() {
    offline(|| sleeps_to_the_reset(CliProgram::ClaudeSubscription, "claude-limit"));
}

#[test]
fn long_codex_sleeps_to_the_reset_and_goes_on() {
    offline(|| sleeps_to_the_reset(CliProgram::Codex, "codex-limit"));
}

/// One start, a ticket, and no more.
fn meets_a_wall(cli: CliProgram, script: &str, class: &str) {
    let world = World::new(cli, script);
    let running = world.env.spawn(&world.words(&["--permission", "full"]));
    world.wait_for_rule("guard.freeze");
    let calls = world.calls().len();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(world.calls().len(), calls, "not one call more");
    assert_eq!(world.events("turn_started").len(), 1);
    let tickets = world.events("ticket_opened");
    assert_eq!(tickets.len(), 1);
    assert!(tickets[0].1.to_string().contains(&format!("is frozen ({class})")), "{}", tickets[0].1);
    drop(running);
}

#[test]
fn claude_that_is_not_let_in_waits_for_a_person() {
    offline(|| meets_a_wall(CliProgram::ClaudeSubscription, "401", "auth"));
}

#[test]
fn claude_without_credit_waits_for_a_person() {
    offline(|| meets_a_wall(CliProgram::Claude, "402", "credit"));
}

#[test]
fn codex_that_is_not_let_in_waits_for_a_person() {
    offline(|| meets_a_wall(CliProgram::Codex, "401", "auth"));
}

#[test]
fn codex_without_credit_waits_for_a_person() {
    offline(|| meets_a_wall(CliProgram::Codex, "codex-quota", "credit"));
}

/// One start, a ticket with the vendor's sentence, and no more.
fn is_refused_once(cli: CliProgram, script: &str, sentence: &str) {
    let world = World::new(cli, script);
    let running = world.env.spawn(&world.words(&["--permission", "full"]));
    world.wait_for_rule("agent.refused");
    assert_eq!(world.events("turn_started").len(), 1);
    let tickets = world.events("ticket_opened");
    assert_eq!(tickets.len(), 1);
    assert!(tickets[0].1.to_string().contains(sentence), "{}", tickets[0].1);
    let why = world.env.run(&["why"]).ok().stdout;
    assert!(why.contains(sentence), "{why}");
    let log = world.env.run(&["logs"]).ok().stdout;
    assert!(log.contains(&format!("agent failed (exit 1: {sentence}")), "{log}");
    drop(running);
}

#[test]
fn claude_with_an_unknown_model_is_started_once() {
    offline(|| is_refused_once(CliProgram::Claude, "404", "There's an issue with the selected model"));
}

#[test]
fn codex_whose_request_is_bad_is_started_once() {
    offline(|| is_refused_once(CliProgram::Codex, "400", "fake 400"));
}

/// A program that waits by itself is stopped, and its session goes on at the announced time.
fn waits_without_the_program(cli: CliProgram) {
    // The program announces more than a minute; everloop's own wait for it passes faster.
    const SCALE: u32 = 4;
    let world = World::new(cli, "429:ra=70,edit:path=made.txt:text=hello,text").fast(SCALE);
    world.run(&["--permission", "full"]).ok();
    let refused = world.calls().iter().filter(|c| c.status == Some(429)).count();
    assert_eq!(refused, 1, "no call was made before the announced time");
    let (_, event) = world.events("limited").remove(0);
    assert_eq!(event["limit"]["class"], "rate", "{event}");
    let starts = world.events("turn_started");
    assert_eq!(starts.len(), 2);
    let late = starts[1].0 - event["until"].as_i64().expect("the time was announced");
    assert!((0..=2000 * i64::from(SCALE)).contains(&late), "it went on {late} ms after the announced time");
    assert!(starts[1].1["resume"].is_string(), "the same session: {}", starts[1].1);
    let tally = world.env.the_loop()["tally"].clone();
    assert_eq!((tally["agent_failed"].as_u64(), tally["limited"].as_u64()), (Some(0), Some(1)));
}

#[test]
fn long_codex_that_announces_a_retry_is_waited_for() {
    offline(|| waits_without_the_program(CliProgram::Codex));
}

#[test]
fn long_opencode_that_waits_for_its_vendor_is_waited_for() {
    offline(|| waits_without_the_program(CliProgram::Opencode));
}

/// Found stuck by its activity, killed with all children, tried again.
fn is_freed_from_a_hang(cli: CliProgram) {
    let guard =
        "min_gap = \"0\"\nmodel_soft = \"4s\"\nmodel_hard = \"6s\"\nstarting_hard = \"30s\"\nbackoff_first = \"1s\"";
    let world = World::with(cli, "hang,edit:path=made.txt:text=hello,text", guard);
    world.run(&["--permission", "full"]).ok();
    let stops = world.events("stopping");
    assert_eq!(stops.len(), 1);
    assert!(stops[0].1.to_string().contains("stuck"), "{}", stops[0].1);
    assert_eq!(world.events("turn_started").len(), 2);
}

#[test]
fn long_claude_that_hangs_is_found_and_tried_again() {
    offline(|| is_freed_from_a_hang(CliProgram::Claude));
}

#[test]
fn long_codex_that_hangs_is_found_and_tried_again() {
    offline(|| is_freed_from_a_hang(CliProgram::Codex));
}

/// It compacts its session for ever; that is detected, the turn ends, and a fresh session begins.
#[test]
fn long_opencode_whose_conversation_never_fits_begins_afresh() {
    offline(|| {
        let world = World::with(CliProgram::Opencode, "too-long", "min_gap = \"0\"\nbackoff_first = \"1s\"");
        let running = world.env.spawn(&world.words(&["--permission", "full"]));
        world.env.wait_for("there is a loop", || world.env.run(&["show", "--json"]).code == 0);
        // It is found within three rounds and has 20 s to end by itself.
        world.env.wait_for("the turn ended", || !world.events("turn_ended").is_empty());
        world.env.wait_for("the next turn", || world.events("turn_started").len() > 1);
        let (_, exited) = world.events("turn_exited").remove(0);
        assert_eq!(exited["exit"]["report"]["limit"]["class"], "context", "{exited}");
        assert_eq!(exited["exit"]["stopped"], "lingers", "{exited}");
        let starts = world.events("turn_started");
        assert!(starts[1].1["resume"].is_null(), "a fresh session: {}", starts[1].1);
        drop(running);
    });
}

/// A stream that is cut again and again: the program gives up, everloop goes on.
fn survives_cuts(cli: CliProgram) {
    let world = World::new(cli, "drop*4,edit:path=made.txt:text=hello,text");
    world.run(&["--permission", "full"]).ok();
    let starts = world.events("turn_started").len();
    assert!((1..=3).contains(&starts), "{starts} starts");
    assert_eq!(world.env.the_loop()["tally"]["agent_failed"], 0);
}

#[test]
fn long_claude_survives_cuts() {
    offline(|| survives_cuts(CliProgram::Claude));
}

#[test]
fn long_codex_survives_cuts() {
    offline(|| survives_cuts(CliProgram::Codex));
}
