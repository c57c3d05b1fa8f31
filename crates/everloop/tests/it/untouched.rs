//! A person's own files stay untouched: tree, index, stash, branches, configuration.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::env::Env;

/// Everything in the project, byte for byte, except objects and everything under our own names.
pub fn contents(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(dir).expect("it is below").display().to_string();
            let ours = ["refs/everloop", "logs/refs/everloop", "worktrees", "objects"];
            if ours.iter().any(|o| name.starts_with(&format!(".git/{o}"))) {
                continue;
            }
            let meta = fs::symlink_metadata(&path).expect("it was just listed");
            if meta.is_dir() {
                todo.push(path);
            } else {
                let bytes = if meta.is_symlink() { Vec::new() } else { fs::read(&path).expect("it was just listed") };
                found.insert(name, (meta.permissions().mode(), bytes));
            }
        }
    }
    found
}

/// A repository with everything that could be disturbed.
fn busy() -> Env {
    let env = Env::new().git();
    env.write("src/a.txt", "one\n");
    env.write("src/b.txt", "two\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "files"]);
    env.git_run(&["branch", "other"]);
    env.write("src/a.txt", "stashed\n");
    env.git_run(&["stash", "-q"]);
    env.write("src/a.txt", "changed, staged\n");
    env.git_run(&["add", "src/a.txt"]);
    env.write("src/a.txt", "changed again, not staged\n");
    env.write("untracked.txt", "mine\n");
    env.git_run(&["config", "custom.key", "value"]);
    // Any `git status` refreshes the index; after this one there is nothing left to refresh.
    env.git_run(&["status"]);
    env
}

#[test]
fn a_dirty_tree_is_byte_identical_before_and_after() {
    let env = busy();
    let before = contents(&env.project());
    let agent = "sh -c 'touch done; echo other > src/a.txt'";
    let out = env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", agent, "--min-gap", "0"]).ok();
    let after = contents(&env.project());
    let changed: Vec<&String> = after.keys().chain(before.keys()).filter(|k| before.get(*k) != after.get(*k)).collect();
    assert_eq!(changed, Vec::<&String>::new(), "a person's file was touched");
    assert!(
        out.stdout.contains("git") && out.stdout.contains("merge --ff-only"),
        "it prints how to take the work: {}",
        out.stdout
    );
    let work = env.git_run(&["for-each-ref", "--format=%(refname)", "refs/everloop/*/work"]);
    assert!(env.git_run(&["ls-tree", "--name-only", work.trim()]).contains("done"));
}

#[test]
fn a_turn_that_is_refused_or_fails_leaves_no_trace_either() {
    let env = busy();
    let before = contents(&env.project());
    let agent = "sh -c 'rm -rf src; git stash drop; echo x > README; exit 3'";
    env.run(&["run", "x", "--check", "test -f never", "--agent-cmd", agent, "-n", "1", "--min-gap", "0"]).exits(3);
    let mut after = contents(&env.project());
    // The agent ran `git stash drop` in its worktree, where stashes are shared: that is the agent's
    // change, not everloop's.
    let mut before = before;
    for side in [&mut before, &mut after] {
        side.retain(|name, _| !name.contains("stash") && !name.ends_with("ORIG_HEAD"));
    }
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    assert!(before == after, "a person's file was touched");
}

#[test]
fn the_state_folder_is_private() {
    let env = Env::new().git();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    let mut todo = vec![env.state()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let inside_private = path != env.state() && meta.is_dir();
        // A link has no rights of its own.
        if !inside_private && !meta.is_symlink() {
            assert_eq!(meta.permissions().mode() & 0o077, 0, "{} is readable by other users", path.display());
        }
        if meta.is_dir() && !path.ends_with("work") {
            todo.extend(fs::read_dir(path).unwrap().flatten().map(|e| e.path()));
        }
    }
}

#[test]
fn state_is_where_the_flag_or_the_variable_says() {
    let env = Env::new();
    let places = ["../by-flag", "../xdg/everloop"].map(|place| env.project().join(place));
    let words = ["run", "x", "--check", "true", "--agent-cmd", "true", "--state-dir", "../by-flag"];
    env.run(&words).ok();
    let mut command = env.command(&words[..6]);
    command.env_remove("EVERLOOP_STATE_DIR").env("XDG_STATE_HOME", env.project().with_file_name("xdg"));
    assert!(command.status().expect("it was built").success());
    for place in places {
        assert!(place.join("ledger.db").exists(), "{}", place.display());
    }
    assert!(!env.state().join("ledger.db").exists());
}
