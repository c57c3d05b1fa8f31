//! `everloop guard`: status, hold, release.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::env::Env;

#[test]
fn a_hold_is_seen_and_released_with_a_reason() {
    let env = Env::new();
    env.run(&["guard", "status"]).ok();
    env.run(&["guard", "hold", "--reason", "the key leaks"]).ok();
    let held = env.run(&["guard", "status"]).exits(5).stdout;
    assert!(held.contains("frozen by tester") && held.contains("tester: the key leaks"), "{held}");
    let data = env.run(&["guard", "status", "--json"]).exits(5).json();
    assert_eq!(data["scopes"][0]["freeze"]["cause"], "person");
    assert_eq!(data["scopes"][0]["freeze"]["canary_at"], serde_json::Value::Null);
    env.run(&["guard", "release"]).exits(2);
    env.run(&["guard", "release", "--reason", " "]).exits(2);
    let other = env.run(&["guard", "release", "account:default", "--reason", "x"]).exits(2);
    assert!(other.stderr.contains("frozen are: all"), "{}", other.stderr);
    env.run(&["guard", "release", "--reason", "new key"]).ok();
    env.run(&["guard", "status"]).ok();
    let none = env.run(&["guard", "release", "--reason", "again"]).exits(2);
    assert!(none.stderr.contains("nothing is frozen"), "{}", none.stderr);
    let log = env.run(&["logs"]).ok().stdout;
    assert!(log.contains("all was released by tester: new key"), "{log}");
    env.run(&["replay"]).ok();
}

#[test]
fn scopes_that_nobody_has_are_refused() {
    let env = Env::new();
    let typo = env.run(&["guard", "hold", "everything", "--reason", "x"]).exits(2);
    assert!(typo.stderr.contains("write `all`, `loop:ID`"), "{}", typo.stderr);
    let nobody = env.run(&["guard", "hold", "account:nobody", "--reason", "x"]).exits(2);
    assert!(nobody.stderr.contains("`account:nobody` is not used by any loop"), "{}", nobody.stderr);
}

#[test]
fn a_held_loop_starts_nothing_and_goes_on_when_it_is_released() {
    let env = Env::new();
    env.run(&["guard", "hold", "--reason", "not yet"]).ok();
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]);
    env.wait_for("the loop waits", || env.run(&["why"]).stdout.contains("guard.freeze"));
    env.run(&["status", "--exit-code"]).exits(5);
    assert!(!env.project().join("done").exists());
    env.run(&["guard", "release", "--reason", "now"]).ok();
    run.wait().ok();
    assert!(env.project().join("done").exists());
    env.run(&["replay"]).ok();
}

/// A script that starts a CLI as fast as it can: the guard counts every one, and holds the cap.
#[test]
fn a_wild_script_starts_no_more_clis_than_the_cap() {
    let env = Env::new();
    let calls = env.project().join("../calls");
    std::fs::create_dir(&calls).expect("the folder is new");
    let calls = calls.canonicalize().expect("it was made").display().to_string();
    let whole = env.script("../bin/claude", &format!("echo x >> {calls}/all"));
    let path = format!("{}:{}", env.project().join("../bin").display(), std::env::var("PATH").unwrap_or_default());
    let env = env.var("PATH", &path);
    let script =
        format!("{whole}\nfor i in 1 2 3 4 5 6 7 8 9; do claude -p hello || {{ echo $? > code; exit 0; }}; done");
    let agent = env.script("../wild", &script);
    env.write("everloop.toml", "[defaults.guard]\nper_hour = 5\n");
    let run = ["run", "x", "--check", "false", "--agent-cmd", &agent, "-n", "1"];
    env.run(&[&run[..], &["--writable", &calls]].concat());
    let made = std::fs::read_to_string(format!("{calls}/all")).unwrap_or_default().lines().count();
    assert_eq!(made, 5, "five starts in an hour: the turn and four CLIs; and the one by its whole path");
    assert_eq!(env.read("code"), "75\n", "an hour is too long to wait for");
    let log = env.run(&["logs", "-n", "100"]).ok().stdout;
    assert_eq!(log.matches("claude was started by turn").count(), 4, "{log}");
    env.run(&["replay"]).ok();
}

/// A loop without caps: starts within a minute beyond the usual cap wait until it is over. They come
/// all at once, more than the shim answers at a time.
#[test]
fn without_caps_a_wild_script_has_twenty_starts_a_minute_and_waits_for_more() {
    let env = Env::new().fast(10);
    env.script("../bin/claude", "true");
    let path = format!("{}:{}", env.project().join("../bin").display(), std::env::var("PATH").unwrap_or_default());
    let env = env.var("PATH", &path);
    let agent = env.script("../wild", "for i in 1 2 3 4 5 6 7 8 9; do claude & claude & claude & claude & done; wait");
    env.run(&["run", "x", "--check", "false", "--agent-cmd", &agent, "-n", "1", "--min-gap", "0"]).exits(3);
    let log = env.run(&["logs", "-n", "1000", "--json"]).ok().stdout;
    let records = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a record"));
    let starts =
        records.filter(|r| ["turn_started", "cli_started"].contains(&r["event"]["event"].as_str().unwrap_or("")));
    let mut at: Vec<i64> = starts.filter_map(|record| record["at"].as_i64()).collect();
    // Calls at once are recorded in another order than they were begun in.
    at.sort_unstable();
    assert_eq!(at.len(), 1 + 36, "none was refused, and none began uncounted: {log}");
    assert!(at.windows(21).all(|span| span[20] - span[0] >= 60_000), "{at:?}");
}

#[test]
fn a_hold_lets_the_running_turn_end_and_ends_by_itself() {
    let env = Env::new().fast(10);
    let agent =
        "touch begun; until test -f go; do sleep 0.05; done; if test -f one; then touch done; else touch one; fi";
    let run = env.spawn(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]);
    env.wait_for("the agent works", || env.project().join("begun").exists());
    env.run(&["guard", "hold", "loop:x", "--reason", "not yet", "--for", "150s"]).ok();
    env.write("go", "");
    env.wait_for_words(&["why"], &["[guard.freeze]", "not yet"]);
    assert!(env.project().join("one").exists(), "the turn came to its own end");
    assert_eq!(env.the_loop()["started"], 1);
    run.wait().ok();
    env.run(&["guard", "status"]).ok();
}

#[test]
fn every_scope_is_held_and_released_by_its_name() {
    let env = Env::new();
    env.run(&["run", "x", "--check", "false", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let scopes = |code| env.run(&["guard", "status", "--json"]).exits(code).json()["scopes"].clone();
    let named = |code, is: &dyn Fn(&serde_json::Value) -> bool| -> Vec<String> {
        let scopes = scopes(code).as_array().cloned().unwrap_or_default();
        scopes.iter().filter(|scope| is(scope)).filter_map(|s| s["scope"].as_str().map(str::to_owned)).collect()
    };
    let all = named(0, &|_| true);
    let kinds: Vec<&str> = all.iter().filter_map(|scope| scope.split(':').next()).collect();
    assert_eq!(kinds, ["all", "node", "account", "loop"], "{all:?}");
    for scope in all {
        env.run(&["guard", "hold", &scope, "--reason", "x"]).ok();
        assert_eq!(named(5, &|found| found["freeze"].is_object()), std::slice::from_ref(&scope));
        env.run(&["guard", "release", &scope, "--reason", "y"]).ok();
    }
    env.run(&["guard", "status"]).ok();
}

/// Every file of the state folder with its content.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let kind = std::fs::symlink_metadata(&path).map(|meta| (meta.is_dir(), meta.is_file()));
        match kind.unwrap_or_default() {
            (true, _) => found.append(&mut contents(&path)),
            (_, true) => found.extend(std::fs::read(&path).map(|content| (path, content))),
            _ => {}
        }
    }
    found
}

#[test]
fn a_sleeping_loop_starts_nothing_and_writes_nothing() {
    let env = Env::new().fast(100);
    let run = ["run", "x", "--check", "test -f done", "--agent-cmd", "true", "--min-gap", "20h"];
    let _run = env.spawn(&run);
    env.wait_for_words(&["why"], &["[guard.gap]"]);
    let changes = |period: Duration| {
        let before = contents(&env.state());
        env.let_pass(period);
        let after = contents(&env.state());
        let changed = after.into_iter().filter(|(path, content)| before.get(path) != Some(content));
        changed.map(|(path, _)| path).collect::<Vec<_>>()
    };
    // It follows the ledger in passes; while one is under way there is a note of it.
    let followed = || {
        let files = contents(&env.state().join("mirror"));
        let is_noted = files.keys().any(|path| path.ends_with("pending.json"));
        let last = files.iter().filter(|(path, _)| path.components().any(|part| part.as_os_str() == "log"));
        !is_noted && last.into_iter().any(|(_, text)| String::from_utf8_lossy(text).contains("guard.gap"))
    };
    env.wait_for("the mirror has followed", || followed() && changes(Duration::from_secs(100)).is_empty());
    assert_eq!(changes(Duration::from_secs(400)), Vec::<PathBuf>::new());
    assert_eq!(env.the_loop()["started"], 1);
}

/// Two projects whose programs have the same name: one that crashes does not hold the other, and the
/// same program in a third one is held.
#[test]
fn a_crashing_program_does_not_cool_down_its_namesake_in_another_project() {
    let env = Env::new();
    env.script("../a/agent.sh", "exit 1");
    env.script("../b/agent.sh", "touch done");
    env.write("../c/README", "a link to the first one's program");
    std::os::unix::fs::symlink("../a/agent.sh", env.project().join("../c/agent.sh")).expect("a link can be made");
    let run = |folder: &str, goal: &str| {
        let place = ["-C", folder, "run", goal];
        env.spawn(&[&place[..], &["--check", "test -f done", "--agent-cmd", "./agent.sh", "--min-gap", "0"]].concat())
    };
    // Deaths of several loops count for what they have in common.
    let _crashing = ["one", "two", "three"].map(|goal| run("../a", goal));
    env.wait_for_words(&["guard", "status"], &["account:default/agent.sh-", "cools down until"]);
    let _held = run("../c", "held");
    env.wait_for_words(&["-C", "../c", "why", "held"], &["account:default/agent.sh-", "[guard.cooldown]"]);
    run("../b", "free").wait().ok();
    assert!(env.project().join("../b/done").exists());
    let log = env.run(&["-C", "../b", "logs", "free", "--json"]).ok().stdout;
    assert!(!log.contains("guard.cooldown") && !log.contains("guard.freeze"), "{log}");
}
