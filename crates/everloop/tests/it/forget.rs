//! `everloop forget`: loops that are over go with all that they left; nothing else does.

use std::path::PathBuf;

use crate::env::Env;

/// Runs a loop to its end with this agent; its id.
fn ended(env: &Env, agent: &str, more: &[&str]) -> String {
    let words = ["run", "x", "--new", "--check", "test -f done", "--agent-cmd", agent, "-n", "1", "--min-gap", "0"];
    env.run(&[&words[..], more].concat());
    env.the_loop()["id"].as_str().expect("an id").to_owned()
}

/// Refs and folders of a loop that are there.
fn left(env: &Env, id: &str) -> Vec<String> {
    let refs = env.git_run(&["for-each-ref", "--format=%(refname)", &format!("refs/everloop/{id}/")]);
    let mut found: Vec<String> = refs.lines().map(str::to_owned).collect();
    let below = |folder: &str| {
        let entries = std::fs::read_dir(env.state().join(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let all = ["turns", "work", "checks", "setup"].into_iter().flat_map(below);
    found.extend(all.map(|path| path.display().to_string()).filter(|path| path.contains(&format!("/{id}"))));
    found
}

fn ids(env: &Env) -> Vec<String> {
    let loops = env.run(&["status", "--all", "--json"]).ok().json()["loops"].clone();
    let loops = loops.as_array().expect("a list").iter();
    loops.filter_map(|state| state["id"].as_str().map(str::to_owned)).collect()
}

#[test]
fn an_ended_loop_goes_with_its_refs_and_folders_and_stays_gone() {
    let env = Env::new().git();
    let id = ended(&env, "touch done", &[]);
    assert!(left(&env, &id).iter().any(|what| what.starts_with("refs/")), "{:?}", left(&env, &id));
    assert!(left(&env, &id).iter().any(|what| what.contains("/turns/")), "{:?}", left(&env, &id));
    let refused = env.run(&["forget", &id]).exits(2).stderr;
    assert!(refused.contains(&id) && refused.contains("ref") && refused.contains("--yes"), "{refused}");
    assert!(!left(&env, &id).is_empty(), "without --yes nothing is removed");
    let data = env.run(&["forget", &id, "--yes", "--json"]).ok().json();
    assert_eq!(data["forgotten"][0]["loop"], id.as_str());
    assert_eq!(left(&env, &id), Vec::<String>::new());
    assert_eq!(ids(&env), Vec::<String>::new());
    assert!(env.run(&["logs", "--all", "-v"]).ok().stdout.contains("was forgotten by tester"));
    env.run(&["replay"]).ok();
    let again = env.run(&["forget", &id, "--yes"]).exits(2).stderr;
    assert!(again.contains("loop"), "{again}");
    // A supervisor mirrors it; a ledger rebuilt from the mirror does not bring it back.
    env.git_run(&["rm", "-q", "done"]);
    env.git_run(&["commit", "-q", "-m", "again"]);
    let second = ended(&env, "touch done", &[]);
    for file in std::fs::read_dir(env.state()).expect("it is there").flatten() {
        if file.file_name().to_string_lossy().starts_with("ledger.db") {
            std::fs::remove_file(file.path()).expect("it is a file");
        }
    }
    env.run(&["recover"]).ok();
    assert_eq!(ids(&env), [second]);
}

#[test]
fn what_is_not_over_or_not_taken_stays() {
    let env = Env::new().git();
    env.write("README", "mine\n");
    let id = ended(&env, "sh -c 'touch done; echo more >> README'", &[]);
    let refused = env.run(&["forget", &id, "--yes"]).exits(2).stderr;
    assert!(refused.contains("on no branch") && refused.contains(&format!("everloop take {id}")), "{refused}");
    let spared = env.run(&["forget", "--ended", "--yes", "--json"]).ok().json();
    assert_eq!((&spared["forgotten"], &spared["spared"][0]["loop"]), (&serde_json::json!([]), &id.as_str().into()));
    assert!(!left(&env, &id).is_empty());
    env.run(&["take", &id, "--branch", "idea"]).ok();
    env.run(&["forget", &id, "--yes"]).ok();
    assert_eq!(left(&env, &id), Vec::<String>::new());
    env.git_run(&["rev-parse", "--verify", "idea"]);
    let lost = ended(&env, "sh -c 'touch done; echo less >> README'", &[]);
    env.run(&["forget", &lost, "--yes"]).exits(2);
    env.run(&["forget", &lost, "--force", "--yes"]).ok();
    assert_eq!(left(&env, &lost), Vec::<String>::new());
    let run = env.spawn(&["run", "y", "--check", "test -f never", "--agent-cmd", "sleep 50", "--min-gap", "0"]);
    env.wait_for_agent();
    let open = ids(&env)[0].clone();
    let refused = env.run(&["forget", &open, "--force", "--yes"]).exits(2).stderr;
    assert!(refused.contains("it is not over") && refused.contains(&format!("everloop stop {open}")), "{refused}");
    assert!(env.run(&["forget", "--ended", "--yes"]).ok().stdout.contains("nothing to forget"));
    assert_eq!(ids(&env), [open]);
    drop(run);
    env.run(&["replay"]).ok();
}

#[test]
fn only_old_ones_go_and_a_person_at_a_terminal_confirms() {
    let env = Env::new().git();
    let id = ended(&env, "touch done", &[]);
    assert!(env.run(&["forget", "--older", "1h", "--yes"]).ok().stdout.contains("nothing to forget"));
    let kept = env.on_terminal(&["forget", "--ended"], "n\n").ok().stdout;
    assert!(kept.contains("remove 1 loop?") && kept.contains("nothing was removed"), "{kept}");
    assert_eq!(ids(&env), std::slice::from_ref(&id));
    let gone = env.on_terminal(&["forget", &id], "\n").ok().stdout;
    assert!(gone.contains(&format!("forgot {id}")), "{gone}");
    assert_eq!((ids(&env), left(&env, &id)), (Vec::<String>::new(), Vec::<String>::new()));
    env.run(&["forget"]).exits(2);
}

#[test]
fn leftovers_of_a_removal_that_was_cut_off_go_with_the_same_command() {
    let env = Env::new().git();
    let id = ended(&env, "touch done", &[]);
    let work = env.state().join("work").join(&id);
    env.run(&["forget", &id, "--yes"]).ok();
    // As after a crash between the ledger and the folders.
    std::fs::create_dir_all(work.join("turn")).expect("the folder can be made");
    env.git_run(&["update-ref", &format!("refs/everloop/{id}/work"), "HEAD"]);
    let said = env.run(&["forget", &id, "--yes"]).ok().stdout;
    assert!(said.contains("1 ref, 1 folder"), "{said}");
    assert_eq!(left(&env, &id), Vec::<String>::new());
    env.run(&["replay"]).ok();
}

#[test]
fn an_agent_forgets_nothing() {
    let env = Env::new();
    let id = ended(&env, "touch done", &["--in-place"]);
    let agent = env.var("EVERLOOP_TURN", "k3f9-1.1");
    assert!(agent.run(&["forget", &id, "--yes"]).exits(2).stderr.contains("only a person may"));
    assert_eq!(ids(&agent), [id]);
}
