//! Starting, respawning and ending: what a program sees, what is left of it, and what outlives
//! what.

use everloop_agents::process::Identity;
use everloop_agents::tmux::{Finish, PaneError, PaneProgram, PaneVariable, Program, SafeText, State};

use super::world::{World, wait_for};

/// The arguments that a program got, one per line after `ARGS`.
const SHOW: &str = "printf 'ARGS\\n'; for a; do printf '<%s>\\n' \"$a\"; done; exec cat";

#[test]
fn arguments_folder_and_variables_arrive_as_they_are() {
    let world = World::new();
    let tricky = [
        "#(touch x)",
        "#{pane_id}",
        ";",
        "a;",
        "\\;",
        "$(touch x)",
        "`touch x`",
        "'\"",
        "a b",
        "-x",
        "",
        "ü",
        "~",
        "%1",
    ];
    let cwd = world.path("work").join("#(touch x) #{pane_id};$(touch x)");
    std::fs::create_dir(&cwd).unwrap();
    let mut program = world.program(&["sh", "-c", &format!("pwd; printf '%s\\n' \"$T\"; {SHOW}"), "sh"]);
    program.argv.extend(tricky.iter().map(|t| (*t).to_owned()));
    program.cwd = cwd.clone();
    program.env = vec![PaneVariable::Fixed { name: "T".to_owned(), value: "#(touch x);\"$HOME'".to_owned() }];
    let pane = world.server.start("a".parse().unwrap(), PaneProgram::Plain, program).unwrap();
    wait_for("it prints its arguments", || world.screen(&pane).contains("<%1>"));
    let screen = world.screen(&pane);
    let lines: Vec<&str> = screen.lines().collect();
    let got: Vec<&str> = lines.iter().copied().filter_map(|l| l.strip_prefix('<')?.strip_suffix('>')).collect();
    assert_eq!(got, tricky, "{screen}");
    assert!(lines.contains(&"#(touch x);\"$HOME'"), "{screen}");
    assert_eq!(std::fs::read_link(format!("/proc/{}/cwd", pane.process.pid)).unwrap(), cwd);
    world.nothing_was_run();
}

/// The environment of a running program.
fn environment(pid: i32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    bytes.split(|b| *b == 0).map(|e| String::from_utf8_lossy(e).into_owned()).filter(|e| !e.is_empty()).collect()
}

fn command_line(pid: i32) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap()).into_owned()
}

#[test]
fn a_program_sees_the_allow_list_and_what_was_named() {
    let world = World::new();
    let mut program = world.program(&["cat"]);
    // Cargo sets this one for tests; it stands for a secret.
    program.env = vec![
        PaneVariable::Outside { name: "CARGO_MANIFEST_DIR".to_owned() },
        PaneVariable::Outside { name: "NOT_SET_ANYWHERE".to_owned() },
    ];
    let pane = world.server.start("a".parse().unwrap(), PaneProgram::Plain, program).unwrap();
    wait_for("it is `cat` itself", || command_line(pane.process.pid) == "cat\0");
    let names: Vec<String> =
        environment(pane.process.pid).iter().filter_map(|e| Some(e.split_once('=')?.0.to_owned())).collect();
    assert!(names.contains(&"CARGO_MANIFEST_DIR".to_owned()), "{names:?}");
    let strange = |n: &&String| {
        n.starts_with("CARGO_PKG") || n.starts_with("TMUX") || n.starts_with("EVERLOOP_") || *n == "NOT_SET_ANYWHERE"
    };
    assert_eq!(names.iter().find(strange), None, "{names:?}");
    // Neither in the record nor where other users of the machine can read it.
    let value = env!("CARGO_MANIFEST_DIR");
    let server = world.server.process().unwrap().unwrap();
    assert!(!command_line(server.pid).contains(value), "{}", command_line(server.pid));
    assert!(!environment(server.pid).iter().any(|e| e.contains("CARGO_MANIFEST_DIR")));
    assert!(!std::fs::read_to_string(world.path("state/panes/a.json")).unwrap().contains(value));
}

#[test]
fn what_cannot_be_started_is_said_before_tmux_is_asked() {
    let world = World::new();
    let gone = Program { cwd: world.path("not-there"), ..world.program(&["cat"]) };
    let cases = [
        (world.program(&[]), "no program"),
        (world.program(&["a=b"]), "variable"),
        (world.program(&["not-a-program-anywhere"]), "does not exist"),
        (world.program(&["cat", "a\0b"]), "NUL"),
        (gone, "folder"),
    ];
    for (program, word) in cases {
        match world.server.start("a".parse().unwrap(), PaneProgram::Plain, program) {
            Err(PaneError::BadProgram { why, .. }) => assert!(why.contains(word), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(world.server.process().unwrap().is_none(), "no server was needed for that");
}

#[test]
fn a_name_is_given_once() {
    let world = World::new();
    world.sh("a", "exec cat");
    let again = world.server.start("a".parse().unwrap(), PaneProgram::Plain, world.program(&["cat"]));
    assert!(matches!(again, Err(PaneError::Taken { .. })));
    let Err(PaneError::NoPane { others, .. }) = world.server.pane("b") else { panic!("there is no b") };
    assert_eq!(others, ["a"]);
}

#[test]
fn respawn_starts_the_same_program_again() {
    let world = World::new();
    let first = world.sh("a", "echo run >> runs; exec cat");
    wait_for("it runs", || world.path("work/runs").exists());
    let second = world.server.respawn("a").unwrap();
    assert_eq!(second.id(), first.id());
    assert_ne!(second.process, first.process);
    assert!(!first.process.is_alive());
    wait_for("it ran twice", || std::fs::read_to_string(world.path("work/runs")).unwrap() == "run\nrun\n");
    // The old handle no longer matches.
    let old = world.server.type_text(&first, &SafeText::clean(b"x"), Finish::Enter);
    assert!(matches!(old, Err(PaneError::NotOurs { .. })), "{old:?}");
    world.server.type_text(&second, &SafeText::clean(b"hello"), Finish::Enter).unwrap();
}

#[test]
fn a_killed_server_is_made_again() {
    let world = World::new();
    let first = world.sh("a", "echo run >> runs; exec cat");
    let server = world.server.process().unwrap().unwrap();
    server.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    wait_for("the server is gone", || !server.is_alive());
    assert_eq!(world.server.see(&first).unwrap().1, State::Dead { status: None });
    assert!(world.server.type_text(&first, &SafeText::clean(b"x"), Finish::Enter).is_err());
    let second = world.server.respawn("a").unwrap();
    assert_ne!(world.server.process().unwrap().unwrap(), server);
    // The new server counts from zero: the same id, another pane.
    assert_eq!(second.id(), first.id());
    assert!(world.server.type_text(&first, &SafeText::clean(b"x"), Finish::Enter).is_err());
    world.server.type_text(&second, &SafeText::clean(b"hello"), Finish::Enter).unwrap();
    world.server.start("b".parse().unwrap(), PaneProgram::Plain, world.program(&["cat"])).unwrap();
    assert_eq!(world.server.panes().unwrap().len(), 2);
}

/// Agents put their tools into sessions of their own, where tmux's SIGHUP does not reach them.
#[test]
fn kill_leaves_nothing_behind() {
    let world = World::new();
    let pane = world.sh("a", "setsid sh -c 'echo $$ > tool; trap \"\" TERM HUP; while :; do sleep 1; done' & exec cat");
    let tool = world.path("work/tool");
    wait_for("the tool runs", || std::fs::read_to_string(&tool).is_ok_and(|t| t.ends_with('\n')));
    let tool: i32 = std::fs::read_to_string(&tool).unwrap().trim().parse().unwrap();
    let tool = Identity::of(tool).unwrap();
    world.server.kill("a").unwrap();
    assert!(!pane.process.is_alive() && !tool.is_alive());
    assert!(world.server.panes().unwrap().is_empty());
    assert!(matches!(world.server.kill("a"), Err(PaneError::NoPane { .. })));
}

#[test]
fn a_dead_program_can_be_read_and_tells_its_status() {
    let world = World::new();
    let pane = world.sh("a", "echo last words; exit 7");
    wait_for("it ends", || world.server.see(&pane).unwrap().1 == State::Dead { status: Some(7) });
    wait_for("its last words are drawn", || world.screen(&pane).starts_with("last words\n"));
    let killed = world.sh("b", "kill -9 $$");
    wait_for("it ends", || world.server.see(&killed).unwrap().1 == State::Dead { status: Some(137) });
}

#[test]
fn a_plain_program_works_while_it_prints_and_is_idle_when_it_waits() {
    let world = World::new();
    let busy = world.sh("busy", "while :; do date; sleep 0.2; done");
    let waiting = world.sh("waiting", "echo '> '; exec cat");
    wait_for("it waits", || world.server.see(&waiting).unwrap().1 == State::Idle);
    wait_for("the other one works", || world.server.see(&busy).unwrap().1 == State::Working);
}

#[test]
fn the_server_is_a_session_of_its_own() {
    let world = World::new();
    world.sh("a", "exec cat");
    let server = world.server.process().unwrap().unwrap();
    let session = |pid: i32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        line.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap().to_owned()
    };
    assert_eq!(session(server.pid), server.pid.to_string());
    assert_ne!(session(server.pid), session(std::process::id() as i32));
}

#[test]
fn a_path_too_long_for_a_socket_is_an_error_with_numbers() {
    let world = World::new();
    let long = world.path(&"d".repeat(120));
    match everloop_agents::tmux::TmuxServer::open(&long) {
        Err(e @ PaneError::LongPath { .. }) => assert!(e.to_string().contains("at most 102"), "{e}"),
        other => panic!("{other:?}"),
    }
}
