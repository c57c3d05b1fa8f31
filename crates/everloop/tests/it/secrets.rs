//! Accounts' secrets: ten canaries, five in variables and five in files, that only their own agent
//! may ever see.

use std::fs;
use std::path::{Path, PathBuf};

use crate::env::Env;

/// The secrets of an account; each is found by its middle alone.
fn canaries(account: &str) -> Vec<String> {
    (0..10).map(|i| format!("canary-{account}-{i}-7f3a9c{i}")).collect()
}

/// A world with the accounts `one` and `two`. The agent writes its environment to `seen-ACCOUNT`
/// outside of everything that everloop keeps, prints it, and waits for the file `go`.
fn world() -> Env {
    let mut env = Env::new();
    let mut toml = String::new();
    for account in ["one", "two"] {
        let (mut by_env, mut by_file) = (Vec::new(), Vec::new());
        for (i, canary) in canaries(account).iter().enumerate() {
            if i < 5 {
                env = env.var(&format!("OF_{}_{i}", account.to_uppercase()), canary);
                by_env.push(format!("KEY_{i} = \"OF_{}_{i}\"", account.to_uppercase()));
            } else {
                env.write(&format!("keys/{account}-{i}"), &format!("{canary}\nnot this line\n"));
                let path = env.project().join(format!("keys/{account}-{i}"));
                by_file.push(format!("KEY_{i} = \"{}\"", path.display()));
            }
        }
        let sections = format!(
            "[account.{account}]\nenv = {{ {} }}\nfile = {{ {} }}\n[agent.{account}]\ncommand = [\"{}\", \"{account}\"]\n\
             account = \"{account}\"\n[loop.{account}]\ngoal = \"g\"\nagent = \"{account}\"\nworkspace = \"in-place\"\n\
             checks = [\"echo looked; cat seen-{account}; test -f never\"]\nmax_turns = 2\n[loop.{account}.guard]\nmin_gap = \"0\"\n",
            by_env.join(", "),
            by_file.join(", "),
            env.project().join("agent").display(),
        );
        toml.push_str(&sections);
    }
    env.script(
        "agent",
        "env > seen-$1\nenv\nenv >&2\necho \"<BACKOFF 0s> $KEY_0$KEY_9\"\nprintf %s \"$KEY_1\"\nwhile [ ! -f go ]; do sleep 0.05; done",
    );
    env.write("everloop.toml", &toml);
    env
}

/// Every file below a folder, with the canaries that are in it.
pub fn files_with(dir: &Path, canaries: &[String]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a listed file has a type"));
        if kind.is_dir() {
            found.extend(files_with(&path, canaries));
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            found.extend(canaries.iter().filter(|c| holds(&bytes, c)).map(|c| (path.clone(), c.clone())));
        }
    }
    found
}

pub fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// The arguments of every process of this machine that can be seen.
pub fn command_lines() -> Vec<u8> {
    let entries = fs::read_dir("/proc").expect("tests run on Linux").flatten();
    entries.flat_map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default()).collect()
}

#[test]
fn secrets_of_an_account_reach_its_own_agent_and_nothing_else() {
    let env = world();
    let all: Vec<String> = [canaries("one"), canaries("two")].concat();
    for account in ["one", "two"] {
        let run = env.spawn(&["run", "--loop", account]);
        let seen = env.project().join(format!("seen-{account}"));
        env.wait_for("the agent is at work", || seen.is_file());
        let lines = command_lines();
        assert!(!all.iter().any(|canary| holds(&lines, canary)), "a secret is in a command line");
        assert_eq!(files_with(&env.state(), &all), Vec::new(), "while the turn runs");
        env.write("go", "");
        let output = run.wait().exits(3);
        assert!(!all.iter().any(|c| output.stdout.contains(c) || output.stderr.contains(c)), "`run` shows a secret");
        fs::remove_file(env.project().join("go")).expect("it was just written");

        let environment = fs::read(&seen).expect("the agent wrote it");
        let (own, others) = if account == "one" { (&all[..10], &all[10..]) } else { (&all[10..], &all[..10]) };
        assert!(own.iter().all(|canary| holds(&environment, canary)), "an agent lacks a secret of its account");
        assert!(!others.iter().any(|canary| holds(&environment, canary)), "an agent sees another account's secret");
        assert!(!holds(&environment, "OF_ONE_") && !holds(&environment, "OF_TWO_"), "the sources are not the agent's");
        assert!(!holds(&environment, "not this line"));
    }
    assert_eq!(files_with(&env.state(), &all), Vec::new(), "of everything that is kept");
    let turn = |id: &str| env.run(&["logs", "--turn", "1", id]).stdout;
    assert!(turn("one").contains("[redacted:KEY_0]"), "{}", turn("one"));
    for words in [
        &["status"][..],
        &["show", "one"],
        &["logs", "-n", "1000"],
        &["logs", "--turn", "1", "one"],
        &["logs", "--turn", "2", "two"],
        &["usage", "--by", "account"],
        &["config", "show"],
        &["config", "check"],
        &["why", "one"],
        &["prompt", "one"],
        &["agents"],
        &["doctor"],
    ] {
        for form in [&[][..], &["--json"]] {
            let output = env.run(&[words, form].concat());
            let shown = all.iter().find(|c| output.stdout.contains(*c) || output.stderr.contains(*c));
            assert_eq!(shown, None, "`{}` shows a secret", words.join(" "));
        }
    }
}

#[test]
fn an_account_whose_key_is_missing_starts_nothing_and_says_which() {
    let env = Env::new();
    env.write(
        "everloop.toml",
        "[account.w]\nenv = { KEY = \"NOT_SET_ANYWHERE\" }\n[agent.x]\ncommand = \"touch started\"\naccount = \"w\"\n\
         [loop.a]\ngoal = \"g\"\nagent = \"x\"\nchecks = [\"test -f never\"]\nmax_turns = 1\nworkspace = \"in-place\"\n",
    );
    env.run(&["run"]).exits(3);
    assert!(!env.project().join("started").exists());
    let said = env.run(&["logs"]).ok().stdout;
    assert!(said.contains("NOT_SET_ANYWHERE") && said.contains("account `w`"), "{said}");
}

#[test]
fn a_key_is_known_by_its_shape_wherever_it_stands() {
    let env = Env::new();
    let key = format!("ghp_{}", "a1B2c3".repeat(6));
    let agent = env.script("agent", &format!("echo agent {key}; cat word"));
    env.write("word", &key);
    env.write(
        "everloop.toml",
        &format!(
            "[loop.main]\ngoal = \"g\"\nagent_cmd = \"{agent}\"\nworkspace = \"in-place\"\nmax_turns = 1\n\
             checks = [\"cat word; test -f never\"]\nguard = {{ min_gap = \"0\" }}\n"
        ),
    );
    env.run(&["run"]).exits(3);
    env.run(&["task", "add", &format!("use {key}"), "--prompt", &format!("with {key}")]).ok();
    env.run(&["message", "send", "main", &format!("mind {key}")]).ok();
    assert_eq!(crate::handoff::write(&env, &[], &format!("left {key}")), 0);
    assert_eq!(files_with(&env.state(), std::slice::from_ref(&key)), Vec::new());
    for words in [&["task", "list"][..], &["prompt"], &["handoff", "show"], &["logs", "--turn", "1"]] {
        let shown = env.run(words).stdout;
        assert!(shown.contains("[redacted:github token]") && !shown.contains(&key), "{words:?}: {shown}");
    }
}
