//! `everloop replay`: the journal proves the stored states.

use std::path::Path;

use everloop_store::{Ledger, OpenMode, Sqlite};
use everloop_testkit::tamper::{forge, remove_last_record, rewrite_states};

use crate::env::Env;

fn world() -> Env {
    let env = Env::new();
    env.run(&["run", "x", "--check", "test -f done", "--agent-cmd", "true", "-n", "2", "--min-gap", "0"]).exits(3);
    env
}

#[test]
fn what_was_run_is_equal() {
    let env = world();
    let said = env.run(&["replay"]).ok().stdout;
    assert!(said.starts_with("equal: ") && said.contains("1 loop, 4 guards, signed\n"), "{said}");
    let data = env.run(&["replay", "--json"]).ok().json();
    assert_eq!(data["equal"], true);
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    env.run(&["replay", &id]).ok();
    Env::new().run(&["replay"]).ok();
}

#[test]
fn a_changed_state_is_named_by_its_field() {
    let env = world();
    let mut ledger = Sqlite::open(&env.state().join("ledger.db"), OpenMode::ReadWrite).unwrap();
    let row = ledger.loops().unwrap().remove(0);
    let changed = row.state.replacen("\"turns\":2", "\"turns\":1", 1);
    let save = everloop_core::op::Op::SaveLoop { id: row.id, version: row.version, phase: row.phase, state: changed };
    ledger.transact(row.updated_at, &[save]).unwrap();
    drop(ledger);
    let said = env.run(&["replay"]).exits(1).stdout;
    assert!(said.contains(".turns: journal 2, stored 1"), "{said}");
}

#[test]
fn a_damaged_record_is_named() {
    let env = world();
    let path = env.state().join("ledger.db");
    // Everything into the one file, then a byte of the first record's content; free pages may hold
    // old copies of it.
    let ledger = Sqlite::open(&path, OpenMode::ReadWrite).unwrap();
    drop(ledger);
    let mut bytes = std::fs::read(&path).unwrap();
    let mark = br#"{"event":"loop_created","name":"x""#;
    let places: Vec<usize> = (0..bytes.len() - mark.len()).filter(|at| bytes[*at..].starts_with(mark)).collect();
    assert!(!places.is_empty(), "the first record is in the file");
    for at in places {
        bytes[at + mark.len() - 2] = b'y';
    }
    std::fs::write(&path, bytes).unwrap();
    let failed = env.run(&["replay"]).exits(1);
    assert!(failed.stderr.contains("journal record 1 is damaged"), "{}", failed.stderr);
    let doctor = env.run(&["doctor"]).exits(1).stdout;
    assert!(doctor.contains("journal record 1 is damaged"), "{doctor}");
}

/// As JSON: a table cuts texts at the width of the terminal, and its ages take up more or less of it.
fn tickets(env: &Env) -> String {
    env.run(&["ticket", "list", "--json"]).stdout
}

#[test]
fn a_start_finds_what_was_changed_behind_the_journal_and_opens_a_ticket() {
    let again = ["run", "y", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"];
    let env = world();
    env.run(&again).exits(3);
    assert!(!tickets(&env).contains("not what everloop wrote"), "an untouched ledger");
    forge(&env.state().join("ledger.db"), "test -f done", "true");
    let said = env.run(&["replay"]).exits(1).stderr;
    assert!(said.contains("was changed: the signature does not fit"), "{said}");
    env.run(&["run", "z", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"]).exits(3);
    let listed = tickets(&env);
    assert_eq!(listed.matches("the ledger is not what everloop wrote").count(), 1, "{listed}");
    let doctor = env.run(&["doctor"]).exits(1).stdout;
    assert!(doctor.contains("the signature does not fit"), "{doctor}");
}

#[test]
fn a_removed_record_and_a_rewritten_state_are_found_at_the_next_start() {
    let again = ["run", "y", "--check", "test -f done", "--agent-cmd", "true", "-n", "1", "--min-gap", "0"];
    for (tamper, found) in [
        (remove_last_record as fn(&Path), "the signature"),
        (|ledger| rewrite_states(ledger, "\"turns\":2", "\"turns\":1"), ".turns: journal 2, stored 1"),
    ] {
        let env = world();
        tamper(&env.state().join("ledger.db"));
        env.run(&again).exits(3);
        let listed = tickets(&env);
        assert!(listed.contains("not what everloop wrote") && listed.contains(found), "{listed}");
    }
}

/// Written by the last version before the names of the glossary: loops that were reached, stopped
/// at their limit, crashed and paused, a question, a freeze, a quarantine and a steering message.
#[test]
fn a_state_folder_of_the_version_before_the_glossary_is_equal() {
    let env = Env::new();
    std::fs::create_dir_all(env.state()).unwrap();
    let old = include_bytes!("../fixtures/state-0.1-first-words.db");
    std::fs::write(env.state().join("ledger.db"), old).unwrap();
    let said = env.run(&["replay"]).ok().stdout;
    assert!(said.starts_with("equal: 48 events, 3 loops, 6 guards, not signed"), "{said}");
    let loops = env.run(&["status", "--json"]).stdout;
    for name in ["a-file-that-greets", "never", "crash"] {
        assert!(loops.contains(name), "{loops}");
    }
}
