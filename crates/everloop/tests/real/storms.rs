//! What a failing vendor, a runaway script and a budget let through: counted at the server.

use std::time::{Duration, Instant};

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;
use everloop_testkit::wait::try_wait_for;

use super::world::{World, tell};

/// How often a program itself tries a request that fails, with the settings that everloop gives it.
const TRIES_INSIDE: usize = 3;

/// Of everloop's time.
const STORM: Duration = Duration::from_secs(60);
/// The programs themselves take as long as ever, so this must not be too much.
const SCALE: u32 = 4;

/// A vendor that answers nothing but this for a minute.
fn weathers(cli: CliProgram, script: &str, scale: u32) {
    let world = World::new(cli, script).fast(scale);
    let running = world.env.spawn(&world.words(&["--permission", "full"]));
    world.env.let_pass(STORM);
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
fn weather_all(scale: u32) {
    std::thread::scope(|scope| {
        for cli in [CliProgram::Claude, CliProgram::Codex] {
            for script in ["529", "429"] {
                scope.spawn(move || weathers(cli, script, scale));
            }
        }
    });
}

#[test]
fn long_an_overload_and_a_rate_limit_without_an_end_are_weathered() {
    offline(|| weather_all(SCALE));
}

#[test]
fn soak_an_overload_and_a_rate_limit_are_weathered_for_a_real_minute() {
    offline(|| weather_all(1));
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

/// The wild script behind a guard that allows `cap` starts a minute.
struct Wild {
    world: World,
    script: String,
    env: Vec<(&'static str, String)>,
}

impl Wild {
    fn new(cap: usize, scale: u32) -> Self {
        let world =
            World::with(CliProgram::Claude, "text", &format!("min_gap = \"0\"\nper_minute = {cap}")).fast(scale);
        let env = vec![
            ("CLAUDE", CliProgram::Claude.program().display().to_string()),
            ("ANTHROPIC_BASE_URL", world.model.base_url()),
            ("ANTHROPIC_API_KEY", "sk-ant-dummy".to_owned()),
            ("IS_SANDBOX", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ];
        let script = world.env.script("wild.sh", WILD);
        Self { world, script, env }
    }

    /// Calls within a minute of everloop's time.
    fn behind_the_guard(&self) -> usize {
        let mut words = vec!["run", "go on", "--check", "test -f never", "--agent-cmd", &self.script];
        for (name, _) in &self.env {
            words.extend(["--env", name]);
        }
        let mut command = self.world.env.command(&words);
        let mut running = command.envs(self.env.iter().cloned()).spawn().expect("the binary was built for this test");
        self.world.env.let_pass(STORM);
        let calls = self.world.calls().len();
        running.kill().expect("it is our child");
        running.wait().expect("it is our child");
        assert!(!self.world.events("turn_started").is_empty(), "the script ran behind the guard");
        calls
    }

    /// Calls of the same script without everloop, as a hook that is called again whenever it
    /// requests to continue.
    fn by_itself(&self, period: Duration) -> usize {
        let (before, end) = (self.world.calls().len(), Instant::now() + period);
        while Instant::now() < end {
            let mut alone = std::process::Command::new("sh");
            alone.arg(&self.script).env_clear().env("PATH", "/usr/bin:/bin").envs(self.env.iter().cloned());
            alone.env("HOME", self.world.env.project().join("../home")).current_dir(self.world.env.project());
            alone.status().expect("sh is there");
            // A machine has an end: as many at once as it bears.
            let room = || (everloop_testkit::offline::neighbours().len() <= 8).then_some(());
            try_wait_for(end.saturating_duration_since(Instant::now()), room);
        }
        let calls = self.world.calls().len() - before;
        for pid in everloop_testkit::offline::neighbours() {
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).ok();
        }
        calls
    }
}

#[test]
fn long_a_wild_restart_script_stays_within_the_caps() {
    offline(|| {
        let cap = 4;
        let calls = Wild::new(cap, SCALE).behind_the_guard();
        tell(&format!("wild script, a minute behind the guard: {calls} calls"));
        assert!(calls <= cap * 3, "{calls} calls");
    });
}

#[test]
fn soak_a_wild_restart_script_makes_a_tenth_of_its_calls_behind_the_guard() {
    offline(|| {
        // Without a guard, a third of that minute is enough.
        let (cap, share) = (4, 3);
        let wild = Wild::new(cap, 1);
        let with = wild.behind_the_guard();
        let without = wild.by_itself(STORM / share) * share as usize;
        tell(&format!("wild script, 60 s: {with} calls behind the guard, {without} without (in 20 s, three times)"));
        assert!(with <= cap * 3, "{with} calls");
        assert!(without > 10 * with.max(1) || with == 0 && without > 10, "{without} calls without, {with} with");
    });
}
