//! Attempts by an agent, or by code that it wrote, to be accepted without the work, to read what is
//! not its own, to act as a person, or to outlive its turn.
//!
//! - `documented`: what succeeds under isolation, and under which means
//! - `reach`: commands in a turn and in a check, under each means of isolation; each of them succeeds
//!   without isolation, so that a refusal proves something
//! - `own_commands`: the same in commands of monitors, notifiers, mailboxes and trackers
//! - `holes`: the defences of isolation taken away one by one, and what is then reached
//! - `judge`: whole loops whose agent wants to pass a check without doing what it checks
//! - `verdict`: whole loops without isolation, against the records of commands, and as callers

mod documented;
#[path = "../it/env.rs"]
#[expect(dead_code, reason = "the worlds of the other tests need more of it")]
mod env;
mod holes;
mod judge;
mod own_commands;
mod reach;
mod verdict;

/// A new folder inside of one that bubblewrap hides. The outer one stays: a command of another test
/// that is being isolated at this moment would miss it.
fn hidden_folder() -> tempfile::TempDir {
    let outer = format!("/tmp/tmux-everloop-{}", nix::unistd::geteuid());
    std::fs::create_dir_all(&outer).expect("`/tmp` can be written");
    tempfile::tempdir_in(outer).expect("a folder")
}

/// An attempt that is not refused, and why that is no hole.
struct Documented {
    name: &'static str,
    reason: &'static str,
}

/// At most five; each is a sentence of docs/security.md too.
const DOCUMENTED: [Documented; 4] = [
    Documented { name: "names", reason: "names in hidden folders can be listed; their contents cannot be read" },
    Documented {
        name: "caches",
        reason: "a turn that changes a cached dependency changes it for its checks and for you",
    },
    Documented { name: "modes", reason: "Modes and times of your files can be changed under Landlock" },
    Documented { name: "sockets", reason: "sockets of other programs can be connected to under Landlock" },
];

#[test]
#[expect(clippy::print_stdout, reason = "a test has no other way to show its table")]
fn the_table() {
    let reach = reach::ATTEMPTS.iter().map(|a| (a.area, a.name, "refused, in turns and checks"));
    let judge = judge::ATTEMPTS.iter().map(|a| (a.area, a.name, "not accepted"));
    let verdict = verdict::ATTEMPTS.iter().map(|a| ("verdict", a.name, "not accepted, without isolation"));
    let own = own_commands::attempts();
    let own = own.map(|a| ("own command", a.name, "refused, of monitors, notifiers, mailboxes, trackers"));
    let rows: Vec<(&str, &str, &str)> = reach.chain(own).chain(judge).chain(verdict).collect();
    let mut table = String::new();
    for (area, name, result) in &rows {
        table.extend([format!("{area:<12} {name:<28} {result}\n")]);
    }
    for Documented { name, reason } in DOCUMENTED {
        table.extend([format!("{:<12} {name:<28} {reason}\n", "documented")]);
    }
    let mut names: Vec<(&str, &str)> = rows.iter().map(|(area, name, _)| (*area, *name)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len(), "each attempt has a name of its own");
    println!("{table}{} attempts", rows.len());
    let security = include_str!("../../../../docs/security.md");
    for Documented { reason, .. } in DOCUMENTED {
        let words = security.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(reason), "docs/security.md does not say: {reason}");
    }
}
