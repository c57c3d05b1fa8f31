//! The agent's repository is not the person's: what an agent does to git in its turn has no effect
//! outside of the files it leaves, and unusual repositories work.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::env::{Env, Output};

/// One turn of a script with the check that the file `done` holds `yes`.
fn turn(env: &Env, script: &str) -> Output {
    turn_under(env, "auto", script)
}

fn turn_under(env: &Env, isolation: &str, script: &str) -> Output {
    let agent = env.script("../agent", &format!("set -e\n{script}"));
    let run = ["run", "x", "--check", "grep -q yes done", "--agent-cmd", &agent, "--min-gap", "0", "-n", "1"];
    env.run(&[&run[..], &["--isolation", isolation]].concat())
}

/// An honest turn reaches the goal and lands.
fn honest(env: &Env) {
    turn(env, "git status >/dev/null; git log -1 >/dev/null; echo yes >done; git add -A; git commit -qm mine").ok();
}

fn tries(env: &Env) -> Value {
    env.the_loop()["tries"].clone()
}

fn git_in(env: &Env, dir: &Path, args: &[&str]) -> String {
    env.git_run(&[&["-C", dir.to_str().expect("a temporary path is text")], args].concat())
}

#[test]
fn an_agents_git_settings_run_nowhere_else() {
    let env = Env::new().git();
    let proof = env.project().join("../proof");
    let script = format!(
        "cat >evil <<'END'\n#!/bin/sh\necho \"$PPID $PWD\" >>'{}'\ncat\nEND\nchmod +x evil\nE=$PWD/evil\n\
         for k in filter.e.clean filter.e.smudge merge.e.driver core.fsmonitor diff.external core.sshCommand; do \
         git config $k \"$E\"; done\ngit config core.hooksPath .\nfor h in post-checkout reference-transaction; do cp \
         evil $h; done\necho '* filter=e merge=e' >.git/info/attributes\necho yes >done\nrm -f '{}'",
        proof.display(),
        proof.display()
    );
    turn(&env, &script).ok();
    assert!(!proof.exists(), "{}", fs::read_to_string(&proof).unwrap_or_default());
    assert_eq!(env.read("done"), "yes\n");
}

#[test]
fn an_agents_refs_stashes_and_settings_stay_in_its_clone() {
    let env = Env::new().git();
    env.write("README", "stashed\n");
    env.git_run(&["stash", "-q"]);
    let before = (env.git_run(&["stash", "list"]), env.git_run(&["config", "--list", "--local"]));
    turn(&env, "git stash drop -q || :; git branch -D main || :; git config a.b c; git tag t; echo yes >done").ok();
    assert_eq!(before, (env.git_run(&["stash", "list"]), env.git_run(&["config", "--list", "--local"])));
    assert_eq!(env.git_run(&["for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags"]), "refs/heads/main\n");
}

#[test]
fn a_file_in_the_way_of_the_checks_is_not_there() {
    // Everywhere below the state folder where a check may run, and in its own clone.
    let plant = "echo yes >done; find .. -name README | while read f; do echo yes >$(dirname $f)/done || :; done";
    for isolation in ["auto", "none"] {
        let env = Env::new().git();
        env.write(".gitignore", "done\n");
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "ignores the goal"]);
        turn_under(&env, isolation, plant).exits(3);
        assert_eq!(tries(&env)[0]["outcome"]["is"], "no_op", "{isolation}: {}", tries(&env));
    }
}

#[test]
fn hidden_changes_of_protected_files_are_refused() {
    let env = Env::new().git();
    env.write("tests/t.sh", "exit 1\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "tests"]);
    let script = "git update-index --skip-worktree tests/t.sh; git update-index --assume-unchanged README\n\
                  echo exit 0 >tests/t.sh; echo yes >done; git add -A; git commit -qm all; git checkout -q --orphan x\n\
                  git commit -qm 'nothing before'";
    turn(&env, script).exits(3);
    assert_eq!(tries(&env)[0]["outcome"]["is"], "refused", "{}", tries(&env));
    assert_eq!(env.read("tests/t.sh"), "exit 1\n");
}

#[test]
fn a_clone_turned_into_a_link_touches_nothing_else() {
    let env = Env::new().git();
    let other = env.project().join("../other");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("precious"), "mine\n").unwrap();
    let script = format!("cd ..; rm -rf turn; ln -s '{}' turn", other.display());
    turn(&env, &script).exits(3);
    assert_eq!(fs::read_to_string(other.join("precious")).unwrap(), "mine\n");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
}

#[test]
fn a_shallow_clone_takes_work() {
    let env = Env::new().git();
    env.git_run(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let origin = env.project().join("../origin");
    fs::rename(env.project(), &origin).unwrap();
    fs::create_dir(env.project()).unwrap();
    env.git_run(&["clone", "-q", "--depth", "1", &format!("file://{}", origin.display()), "."]);
    honest(&env);
    assert_eq!(env.git_run(&["rev-list", "--count", "HEAD"]), "2\n");
}

#[test]
fn a_partial_clone_takes_work() {
    let env = Env::new().git();
    env.write("README", "another\n");
    env.git_run(&["commit", "-q", "-a", "-m", "second"]);
    env.git_run(&["config", "uploadpack.allowFilter", "true"]);
    let origin = env.project().join("../origin");
    fs::rename(env.project(), &origin).unwrap();
    fs::create_dir(env.project()).unwrap();
    env.git_run(&["clone", "-q", "--filter=blob:none", &format!("file://{}", origin.display()), "."]);
    honest(&env);
    assert_eq!(env.read("done"), "yes\n");
}

#[test]
fn a_repository_with_submodules_takes_work() {
    let env = Env::new().git();
    let lib = env.project().join("../lib");
    fs::create_dir(&lib).unwrap();
    git_in(&env, &lib, &["init", "-q"]);
    fs::write(lib.join("f"), "f\n").unwrap();
    git_in(&env, &lib, &["add", "-A"]);
    git_in(&env, &lib, &["commit", "-q", "-m", "lib"]);
    let url = lib.display().to_string();
    env.git_run(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &url, "lib"]);
    env.git_run(&["commit", "-q", "-m", "with a submodule"]);
    let before = env.git_run(&["ls-tree", "HEAD", "lib"]);
    turn(&env, "git -c protocol.file.allow=always submodule --quiet update --init; test -f lib/f; echo yes >done").ok();
    assert_eq!(env.git_run(&["ls-tree", "HEAD", "lib"]), before);
}

#[test]
fn a_filter_of_the_person_works_for_turns_and_checks() {
    let env = Env::new().git();
    env.git_run(&["config", "--global", "filter.rot.clean", "tr a-z n-za-m"]);
    env.git_run(&["config", "--global", "filter.rot.smudge", "tr a-z n-za-m"]);
    env.git_run(&["config", "--global", "filter.rot.required", "true"]);
    env.write(".gitattributes", "*.rot filter=rot\n");
    env.write("a.rot", "hello\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "filtered"]);
    turn(&env, "grep -q hello a.rot; echo hello again >a.rot; echo yes >done").ok();
    assert_eq!(env.read("a.rot"), "hello again\n");
    assert_eq!(env.git_run(&["cat-file", "blob", "HEAD:a.rot"]), "uryyb ntnva\n");
}

#[test]
fn a_repository_that_is_a_worktree_takes_work() {
    let env = Env::new().git();
    let main = env.project().join("../main");
    fs::rename(env.project(), &main).unwrap();
    fs::create_dir(env.project()).unwrap();
    git_in(&env, &main, &["worktree", "add", "-q", "-b", "side", env.project().to_str().unwrap()]);
    honest(&env);
    assert_eq!(env.git_run(&["log", "-1", "--format=%an", "side"]), "everloop\n");
    assert_eq!(env.git_run(&["worktree", "list"]).lines().count(), 2, "everloop adds none");
}

#[test]
fn a_detached_head_and_a_sparse_checkout_take_work() {
    let env = Env::new().git();
    for name in ["in/a", "out/b"] {
        env.write(name, "x\n");
    }
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "folders"]);
    env.git_run(&["sparse-checkout", "set", "in"]);
    env.git_run(&["checkout", "-q", "--detach"]);
    turn(&env, "test -f out/b; test -f in/a; echo yes >done").ok();
    let result = env.git_run(&["for-each-ref", "--format=%(refname)", "refs/everloop/*/result"]);
    assert!(env.git_run(&["ls-tree", "-r", "--name-only", result.trim()]).contains("out/b"), "nothing is lost");
}

#[test]
fn worktrees_of_an_earlier_version_are_taken_over() {
    let env = Env::new().git();
    env.run(&["run", "x", "--check", "grep -q yes done", "--agent-cmd", "false", "--min-gap", "0", "-n", "1"]).exits(3);
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    let work = env.state().join("work").join(&id);
    for name in ["turn", "verify"] {
        fs::remove_dir_all(work.join(name)).ok();
        let path = work.join(name).display().to_string();
        env.git_run(&["worktree", "add", "-q", "--detach", &path]);
    }
    env.run(&["run", "x", "--check", "grep -q yes done", "--agent-cmd", "false", "--min-gap", "0", "-n", "2"]).exits(3);
    assert_eq!(env.git_run(&["worktree", "list"]).lines().count(), 1, "git knows only the person's");
}

#[test]
fn long_fifty_thousand_files() {
    let env = Env::new().git();
    for folder in 0..500 {
        for file in 0..100 {
            env.write(&format!("d{folder}/f{file}"), &format!("{folder} {file}\n"));
        }
    }
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "many"]);
    honest(&env);
    assert_eq!(env.git_run(&["ls-files"]).lines().count(), 50_002);
}

#[test]
fn a_commit_says_what_was_done_and_whose_it_is() {
    for (author, name) in [("person", "Ann"), ("Bo <bo@example.com>", "Bo")] {
        let env = Env::new().git();
        env.git_run(&["config", "user.name", "Ann"]);
        env.git_run(&["config", "user.email", "ann@example.com"]);
        env.script("agent", "cat > /dev/null; touch done; echo; echo 'Summary: add what was missing.'");
        let file = "[loop.a]\ngoal = \"make it work\"\nchecks = [\"test -f done\"]\nagent_cmd = \"./agent\"\n";
        env.write("everloop.toml", &format!("{file}commit_author = \"{author}\"\n[loop.a.guard]\nmin_gap = \"0\"\n"));
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "setup"]);
        env.run(&["run"]).ok();
        let commit = env.git_run(&["log", "-1", "--format=%an%n%s%n%b", "main"]);
        assert!(commit.starts_with(&format!("{name}\nadd what was missing\n")), "{commit}");
        assert!(commit.contains("Goal: make it work") && commit.contains("Co-authored-by: everloop"), "{commit}");
    }
    let env = Env::new().git();
    let words = ["run", "y", "--check", "exists :: test -f done", "--agent-cmd", "touch done", "--min-gap", "0"];
    env.run(&words).ok();
    assert_eq!(env.git_run(&["log", "-1", "--format=%an: %s", "main"]), "everloop: done, for exists\n");
}
