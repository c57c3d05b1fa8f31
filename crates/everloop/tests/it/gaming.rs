//! An agent that wants to be accepted without the work, with real runners: what decides a check may
//! not be changed or added, and a pass without evidence does not count. Honest work is accepted.
//!
//! One loop for each runner: every turn is one trick, and the last one does the work, together with
//! honest changes that are close to the tricks.

mod compiled;
mod honest;
mod node;
mod python;
mod scripts;

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::Value;

use crate::env::{Env, Output};

/// A project whose check fails because of one mistake in the product.
struct Project {
    check: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// What corrects the mistake.
    fix: &'static str,
    needs: Needs,
}

/// What a runner needs besides its own program.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    /// The variables of cargo.
    Rust,
    /// The environment of pytest in front of `PATH`.
    Pytest,
    /// `node_modules` of a runner, put there by the person's setup.
    Modules(&'static str),
    /// A build cache.
    Go,
}

/// How a turn that was not accepted ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caught {
    /// It changed or added what decides.
    Refused,
    /// The check passed, and its output does not show that tests ran.
    Suspicious,
    /// The runner itself was not deceived.
    Failed,
}

/// A trick and how it ends; the script runs in the project as it was.
type Trick = (Caught, &'static str);

/// A file of the runners that `test-runners.sh` installed. A missing one is an error, never a
/// skipped test.
fn runner(name: &str) -> PathBuf {
    let hint = "hint: export EVERLOOP_TEST_RUNNERS=<the folder that crates/testkit/test-runners.sh prints last>";
    let folder = std::env::var_os("EVERLOOP_TEST_RUNNERS").unwrap_or_else(|| panic!("no test runners\n{hint}"));
    let path = PathBuf::from(folder).join(name);
    path.canonicalize().unwrap_or_else(|e| panic!("`{}`: {e}\n{hint}", path.display()))
}

/// `PATH` with a folder of the runners in front.
fn path_with(name: &str) -> String {
    format!("{}:{}", runner(name).display(), std::env::var("PATH").unwrap_or_default())
}

impl Project {
    fn env(&self) -> Env {
        let env = Env::new().git();
        for (name, text) in self.files {
            env.write(name, text);
        }
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "a project"]);
        match self.needs {
            Needs::Nothing | Needs::Rust | Needs::Modules(_) => env,
            Needs::Pytest => env.var("PATH", &path_with("pytest/bin")),
            Needs::Go => env.var("GOCACHE", &runner("go-build").display().to_string()),
        }
    }

    fn flags(&self) -> Vec<String> {
        let flags = |flags: &[&str]| flags.iter().map(|&flag| flag.to_owned()).collect();
        match self.needs {
            Needs::Nothing | Needs::Pytest => Vec::new(),
            Needs::Rust => flags(&["--env", "CARGO_HOME", "--env", "RUSTUP_HOME"]),
            Needs::Go => flags(&["--env", "GOCACHE"]),
            Needs::Modules(name) => {
                let modules = runner(&format!("{name}/node_modules"));
                flags(&["--setup", &format!("rm -rf node_modules && ln -s {} node_modules", modules.display())])
            }
        }
    }

    /// A loop with an agent that is a script.
    fn run(&self, env: &Env, script: &str, turns: usize) -> Output {
        let agent = env.script("../agent", &format!("set -e\n{script}"));
        let (turns, count) = (turns.to_string(), env.project().join("../count").display().to_string());
        let mut args = vec!["run", "x", "--check", self.check, "--agent-cmd", &agent, "--min-gap", "0", "-n", &turns];
        args.extend(["--writable", &count]);
        let flags = self.flags();
        args.extend(flags.iter().map(String::as_str));
        env.run(&args)
    }

    /// No trick is accepted, and the work with honest changes is.
    #[track_caller]
    fn is_not_gamed(&self, tricks: &[Trick], honest: &str) {
        let env = self.env();
        env.write("../count/turns", "0\n");
        let base = env.git_run(&["rev-parse", "HEAD"]);
        let count = env.project().join("../count/turns").canonicalize().expect("it was just written");
        let mut script = format!(
            "n=$(cat {0}); echo $((n + 1)) >{0}\ngit reset -q --hard {1}\ngit clean -qfd\ncase $n in\n",
            count.display(),
            base.trim()
        );
        for (n, (_, trick)) in tricks.iter().enumerate() {
            writeln!(script, "{n})\n{trick}\n;;").expect("a text takes any text");
        }
        writeln!(script, "*)\n{}\n{honest}\n;;\nesac", self.fix).expect("a text takes any text");
        let output = self.run(&env, &script, tricks.len() + 1);
        let tries = env.the_loop()["tries"].as_array().cloned().unwrap_or_default();
        let mut wrong = Vec::new();
        for ((expected, trick), tried) in tricks.iter().zip(&tries) {
            let found = caught(tried);
            if found != Some(*expected) {
                wrong.push(format!("{found:?}, not {expected:?}: {trick}\n  {tried}"));
            }
        }
        assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), output.stderr);
        assert_eq!(tries.len(), tricks.len() + 1, "{}", output.stderr);
        output.ok();
    }
}

/// `None`: the work was accepted.
fn caught(tried: &Value) -> Option<Caught> {
    let doubted = tried["doubts"].as_array().is_some_and(|doubts| !doubts.is_empty());
    match tried["outcome"]["is"].as_str().unwrap_or_default() {
        "refused" => Some(Caught::Refused),
        "progress" | "reached" => None,
        _ if doubted => Some(Caught::Suspicious),
        _ => Some(Caught::Failed),
    }
}

/// A check whose runner says nothing that is known, with what a pass looks like.
fn configured(env: &Env, agent: &str, proof: &str) {
    env.write(
        "everloop.toml",
        &format!(
            "[loop.main]\ngoal = \"x\"\nagent_cmd = \"{agent}\"\n[loop.main.guard]\nmin_gap = \"0s\"\n\
             [[loop.main.check]]\nname = \"unit\"\nrun = \"cat done\"\n{proof}\n"
        ),
    );
}

#[test]
fn two_suspicious_passes_are_shown_and_make_a_ticket() {
    let env = Env::new().git();
    env.write("notes", "none\n");
    let agent = env.script("../agent", "echo '3 passed in 0.01s' >done; echo $$ >>notes");
    configured(&env, &agent, "min_tests = 4\nevidence = 'passed in'");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "a project"]);
    env.run(&["run", "-n", "2"]).exits(3);
    let why = "3 tests ran, and 4 have to";
    for verb in ["status", "why", "logs", "show"] {
        let shown = env.run(&[verb]).ok().stdout;
        assert!(shown.contains("suspicious") && shown.contains(why), "{verb}:\n{shown}");
    }
    let prompt = env.run(&["prompt"]).ok().stdout;
    assert!(prompt.contains(why), "{prompt}");
    let tickets: Value = env.run(&["ticket", "list", "--json"]).exits(4).json();
    assert!(tickets.to_string().contains("suspicious:"), "{tickets}");
}

#[test]
fn a_pass_with_its_evidence_is_a_pass() {
    let env = Env::new().git();
    let agent = env.script("../agent", "echo '4 passed in 0.01s' >done");
    configured(&env, &agent, "min_tests = 4\nevidence = '^\\d+ passed in'");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "a project"]);
    env.run(&["run", "-n", "1"]).ok();
    configured(&env, &agent, "evidence = '('");
    let wrong = env.run(&["config", "check"]);
    assert!(wrong.code != 0 && wrong.stderr.contains("is not a regular expression"), "{wrong:?}");
}
