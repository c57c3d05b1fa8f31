//! `everloop handoff`: what one session leaves for the next. What hooks make of it is in `hook`.

use std::io::Write;
use std::process::Stdio;

use crate::env::Env;

/// Writes a handoff from standard input; the exit code.
pub fn write(env: &Env, args: &[&str], text: &str) -> i32 {
    let mut command = env.command(&[&["handoff", "write"], args].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary was built for this test");
    let mut stdin = child.stdin.take().expect("it was piped");
    stdin.write_all(text.as_bytes()).expect("a handoff is read");
    drop(stdin);
    child.wait().expect("it is our child").code().expect("it was not killed")
}

#[test]
fn the_latest_one_of_a_folder_counts_and_a_session_keeps_its_own() {
    let env = Env::new();
    assert_eq!(write(&env, &["--session", "s1"], "done: the parser\n"), 0);
    assert_eq!(write(&env, &["--session", "s2"], "next: the printer\n"), 0);
    let here = env.run(&["handoff", "show"]).ok().stdout;
    assert!(here.contains("next: the printer") && here.contains("s2") && !here.contains("the parser"), "{here}");
    let first = env.run(&["handoff", "show", "s1", "--json"]).ok().json();
    assert_eq!((&first["handoff"]["text"], &first["handoff"]["session"]), (&"done: the parser".into(), &"s1".into()));
}

#[test]
fn nothing_to_show_and_nothing_to_write_get_hints() {
    let env = Env::new();
    let none = env.run(&["handoff", "show"]).exits(1);
    assert!(none.stderr.contains("no session left a handoff here"), "{}", none.stderr);
    assert_eq!(write(&env, &[], "  \n"), 2);
    assert!(env.run(&["handoff", "show", "s9"]).code != 0);
}

#[test]
fn control_characters_of_a_handoff_do_not_reach_the_terminal() {
    let env = Env::new();
    assert_eq!(write(&env, &[], "red \u{1b}[31malert\u{7}\n"), 0);
    let shown = env.run(&["handoff", "show"]).ok().stdout;
    assert!(shown.contains("alert") && !shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
}
