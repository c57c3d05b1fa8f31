//! `everloop take`: the work of a loop comes to the person, and nothing of the person is lost.

use serde_json::Value;

use crate::env::Env;

/// Runs a loop with this script as its agent, until its check passes or one turn is over.
fn run(env: &Env, agent: &str, more: &[&str]) -> String {
    let words = ["run", "x", "--check", "test -f done", "--agent-cmd", agent, "-n", "1", "--min-gap", "0"];
    env.run(&[&words[..], more].concat()).ok();
    env.the_loop()["id"].as_str().expect("an id").to_owned()
}

fn read(env: &Env, name: &str) -> String {
    std::fs::read_to_string(env.project().join(name)).unwrap_or_default()
}

fn head(env: &Env) -> String {
    env.git_run(&["rev-parse", "HEAD"]).trim().to_owned()
}

#[test]
fn work_that_waits_beside_uncommitted_changes_is_taken() {
    let env = Env::new().git();
    env.write("mine", "staged\n");
    env.git_run(&["add", "mine"]);
    env.write("README", "a project\nmy line\n");
    let id = run(&env, "sh -c 'echo work > done; echo more >> README'", &[]);
    let refused = env.run(&["take"]).exits(1).stderr;
    let commit = format!("git -C {} commit -m 'my changes' -- README", env.project().display());
    assert!(refused.contains("uncommitted changes of yours") && refused.contains(&commit), "{refused}");
    assert_eq!((read(&env, "README"), read(&env, "done")), ("a project\nmy line\n".to_owned(), String::new()));
    // The command of the hint makes room; the rest of the person's changes stays as it is.
    env.write("README", "a project\n");
    let summary = env.run(&["show", &id]).ok().stdout;
    assert!(summary.contains(&format!("everloop take {id}")), "{summary}");
    let text = env.run(&["take"]).ok().stdout;
    assert!(text.contains("main is at "), "{text}");
    assert_eq!((read(&env, "done"), read(&env, "README")), ("work\n".to_owned(), "a project\nmore\n".to_owned()));
    assert_eq!(env.git_run(&["status", "--porcelain"]).trim(), "A  mine");
    let again = env.run(&["take"]).ok().stdout;
    assert!(again.contains("is in main already"), "{again}");
    let after = env.run(&["show", &id]).ok().stdout;
    assert!(!after.contains("not merged") && !after.contains("take the work"), "{after}");
    let log = env.run(&["logs", &id, "-v"]).ok().stdout;
    assert!(log.contains("was taken by"), "{log}");
}

#[test]
fn an_untracked_file_in_the_way_is_named_or_recognised() {
    let env = Env::new().git();
    env.write("done", "mine\n");
    run(&env, "sh -c 'echo work > done'", &[]);
    let refused = env.run(&["take"]).exits(1).stderr;
    let file = env.project().join("done").display().to_string();
    assert!(refused.contains("`done`") && refused.contains(&format!("mv {file} {file}.mine")), "{refused}");
    assert_eq!(read(&env, "done"), "mine\n");
    env.write("done", "work\n");
    env.run(&["take"]).ok();
    assert_eq!((read(&env, "done"), env.git_run(&["status", "--porcelain"])), ("work\n".to_owned(), String::new()));
}

#[test]
fn work_on_uncommitted_changes_joins_them_in_the_files() {
    let env = Env::new().git();
    env.write("README", "a project\nmy line\n");
    env.write("untracked", "mine\n");
    let before = head(&env);
    let id =
        run(&env, "sh -c 'echo work > done; echo theirs >> README; echo theirs >> untracked'", &["--include-dirty"]);
    let text = env.run(&["take", &id]).ok().stdout;
    assert!(text.contains("3 files") && text.contains("uncommitted"), "{text}");
    assert_eq!(read(&env, "README"), "a project\nmy line\ntheirs\n");
    assert_eq!((read(&env, "untracked"), read(&env, "done")), ("mine\ntheirs\n".to_owned(), "work\n".to_owned()));
    assert_eq!(head(&env), before, "nothing was committed for the person");
    assert!(env.run(&["take", &id]).ok().stdout.contains("already"));
}

#[test]
fn changes_after_the_start_are_not_overwritten_by_work_on_uncommitted_ones() {
    let env = Env::new().git();
    env.write("README", "a project\nmy line\n");
    let id = run(&env, "sh -c 'echo work > done; echo theirs >> README'", &["--include-dirty"]);
    env.write("README", "something else\n");
    let refused = env.run(&["take"]).exits(1).stderr;
    assert!(refused.contains("README") && refused.contains(&format!("everloop take {id} --branch NAME")), "{refused}");
    assert_eq!((read(&env, "README"), read(&env, "done")), ("something else\n".to_owned(), String::new()));
    env.run(&["take", "--branch", "idea"]).ok();
    assert!(env.git_run(&["show", "idea:README"]).ends_with("my line\ntheirs\n"));
    let twice = env.run(&["take", "--branch", "main"]).exits(1).stderr;
    assert!(twice.contains("there is a branch `main` already"), "{twice}");
}

#[test]
fn without_a_branch_the_commit_that_is_checked_out_moves() {
    let env = Env::new().git();
    env.git_run(&["switch", "-q", "--detach"]);
    let id = run(&env, "sh -c 'echo work > done'", &[]);
    assert_eq!(read(&env, "done"), "");
    let summary = env.run(&["show", &id]).ok().stdout;
    assert!(summary.contains(&format!("everloop take {id}")), "{summary}");
    let data = env.run(&["take", "--json"]).ok().json();
    assert_eq!((&data["taken"], &data["commit"]), (&Value::from("forwarded"), &Value::from(head(&env))), "{data}");
    assert_eq!(read(&env, "done"), "work\n");
    assert!(env.git_run(&["rev-parse", "main"]).trim() != head(&env), "no branch was moved");
}

#[test]
fn a_branch_that_went_on_is_merged_and_a_conflict_is_found_before_anything_moves() {
    let env = Env::new().git();
    env.write("dirty", "x\n");
    env.git_run(&["add", "dirty"]);
    env.write("README", "in the way\n");
    run(&env, "sh -c 'echo work > done; echo more >> README'", &[]);
    env.write("README", "a project\n");
    env.git_run(&["commit", "-q", "-m", "mine"]);
    let text = env.run(&["take"]).ok().stdout;
    assert!(text.contains("is merged into main"), "{text}");
    assert_eq!((read(&env, "done"), read(&env, "dirty")), ("work\n".to_owned(), "x\n".to_owned()));
    let env = Env::new().git();
    env.write("dirty", "x\n");
    env.git_run(&["add", "dirty"]);
    env.write("README", "mine\n");
    run(&env, "sh -c 'echo work > done; echo theirs > README'", &[]);
    env.git_run(&["commit", "-qam", "mine"]);
    let before = head(&env);
    let refused = env.run(&["take"]).exits(1).stderr;
    assert!(
        refused.contains("conflicts with main in `README`") && refused.contains(" merge refs/everloop/"),
        "{refused}"
    );
    assert_eq!((head(&env), read(&env, "README")), (before, "mine\n".to_owned()));
    assert!(env.git_run(&["status", "--porcelain"]).trim().is_empty());
}

#[test]
fn a_branch_that_is_checked_out_nowhere_moves_by_itself() {
    let env = Env::new().git();
    env.write("dirty", "x\n");
    env.git_run(&["add", "dirty"]);
    env.write("README", "in the way\n");
    run(&env, "sh -c 'echo work > done; echo more >> README'", &[]);
    env.write("README", "a project\n");
    env.git_run(&["switch", "-q", "-c", "other"]);
    env.run(&["take"]).ok();
    assert_eq!(env.git_run(&["show", "main:done"]), "work\n");
    assert_eq!((read(&env, "done"), read(&env, "dirty")), (String::new(), "x\n".to_owned()));
}

#[test]
fn what_cannot_be_taken_is_said() {
    let env = Env::new().git();
    assert!(env.run(&["take"]).exits(2).stderr.contains("there is no loop yet"));
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    assert!(env.run(&["take"]).exits(2).stderr.contains("has no work to take"));
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "touch done", "--min-gap", "0"]).ok();
    assert!(env.run(&["take"]).exits(2).stderr.contains("works in place"));
}
