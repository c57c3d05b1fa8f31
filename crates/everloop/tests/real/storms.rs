//! What a failing vendor, a runaway script and a budget let through: counted at the server.

use std::time::{Duration, Instant};

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;

use super::world::{World, tell};

/// How often a program itself tries a request that fails, with the settings that everloop gives it.
const TRIES_INSIDE: usize = 3;

/// A vendor that answers nothing but this for a minute.
fn weathers(cli: CliProgram, script: &str) {
    let world = World::new(cli, script);
    let running = world.env.spawn(&world.words(&["--permission", "full"]));
    std::thread::sleep(Duration::from_secs(60));
    let starts = world.events("turn_started").len();
    let calls = world.calls().len();
    tell(&format!("{} in a storm of {script}: {starts} starts, {calls} calls in 60 s", cli.name()));
    assert!((1..=4).contains(&starts), "{starts} starts");
    assert!(calls <= starts * TRIES_INSIDE, "{calls} calls in {starts} starts");
    let waits = world.events("limited").len() + world.events("cooldown").len();
    assert!(waits >= starts - 1, "every start but the last was followed by a wait");
    assert_eq!(world.env.the_loop()["turns"], 0, "an outage is not charged to the loop");
    drop(running);
}

/// Each in a world of its own, all at once: nearly all of that minute is waiting.
#[test]
fn long_an_overload_and_a_rate_limit_without_an_end_are_weathered() {
    offline(|| {
        std::thread::scope(|scope| {
            for cli in [CliProgram::Claude, CliProgram::Codex] {
                for script in ["529", "429"] {
                    scope.spawn(move || weathers(cli, script));
                }
            }
        });
    });
}

#[test]
fn a_budget_is_not_exceeded_by_more_than_one_turn() {
    offline(|| {
        // Each call costs about 9 cents by the list price of the model.
        let world = World::new(CliProgram::Claude, "text:in=1000:out=3000");
        let out = world.run(&["--max-usd", "0.50", "-n", "40"]);
        assert_eq!(out.code, 3, "{}\n{}", out.stdout, out.stderr);
        let spent = world.env.run(&["usage", "--json"]).ok().json()["total"]["microusd"].as_u64().unwrap_or(0);
        let ended = world.events("turn_ended");
        let dearest = ended.iter().filter_map(|(_, e)| e["settled"]["spend"]["microusd"].as_u64()).max().unwrap_or(0);
        tell(&format!("budget 0.50: {} turns, {} calls, ${:.2}", ended.len(), world.calls().len(), spent as f64 / 1e6));
        assert!(ended.len() > 2 && dearest > 0, "{} turns, dearest {dearest}", ended.len());
        assert!(spent <= 500_000 + dearest, "{spent}");
        assert!(out.stdout.contains("dollars") || out.stderr.contains("dollars"), "{}\n{}", out.stdout, out.stderr);
    });
}

/// The worst kind of restart hook: starts the program in the background and always requests to go
/// on.
const WILD: &str = r#"for n in 1 2 3; do
  setsid "$CLAUDE" -p again --output-format json --dangerously-skip-permissions </dev/null >/dev/null 2>&1 &
done
exit 2"#;

#[test]
fn long_a_wild_restart_script_stays_within_the_caps() {
    offline(|| {
        let seconds = Duration::from_secs(60);
        // Without a guard, a third of that is enough.
        let share = 3;
        let cap = 4;
        let guarded = World::with(CliProgram::Claude, "text", &format!("min_gap = \"0\"\nper_minute = {cap}"));
        let base = guarded.model.base_url();
        let env = [
            ("CLAUDE", CliProgram::Claude.program().display().to_string()),
            ("ANTHROPIC_BASE_URL", base),
            ("ANTHROPIC_API_KEY", "sk-ant-dummy".to_owned()),
            ("IS_SANDBOX", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ];
        let script = guarded.env.script("wild.sh", WILD);
        let mut words = vec!["run", "go on", "--check", "test -f never", "--agent-cmd", &script];
        for (name, _) in &env {
            words.extend(["--env", name]);
        }
        let mut command = guarded.env.command(&words);
        let mut running = command.envs(env.iter().cloned()).spawn().expect("the binary was built for this test");
        std::thread::sleep(seconds);
        let with = guarded.calls().len();
        running.kill().expect("it is our child");
        running.wait().expect("it is our child");
        assert!(!guarded.events("turn_started").is_empty(), "the script ran behind the guard");

        // The same script by itself, as a hook that is called again whenever it requests to go on.
        let end = Instant::now() + seconds / share;
        let mut rounds = 0;
        while Instant::now() < end {
            let mut alone = std::process::Command::new("sh");
            alone.arg(&script).env_clear().env("PATH", "/usr/bin:/bin").envs(env.iter().cloned());
            alone.env("HOME", guarded.env.project().join("../home")).current_dir(guarded.env.project());
            alone.status().expect("sh is there");
            rounds += 1;
            // A machine has limits: no more at once than it can run.
            while everloop_testkit::offline::neighbours().len() > 8 && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let without = (guarded.calls().len() - with) * share as usize;
        tell(&format!(
            "wild script, 60 s: {with} calls behind the guard, {without} without (in 20 s, three times; {rounds} rounds)"
        ));
        assert!(with <= cap * 3, "{with} calls");
        assert!(without > 10 * with.max(1) || with == 0 && without > 10, "{without} calls without, {with} with");
        for pid in everloop_testkit::offline::neighbours() {
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).ok();
        }
    });
}
