//! Ownership of panes: nothing is typed into one that does not belong to everloop, or has changed.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use everloop_agents::process::Identity;
use everloop_agents::tmux::{Finish, Pane, PaneError, PaneOrigin, PaneProgram, PaneSelector, SafeText, TmuxServer};

use super::world::{World, wait_for};

fn type_x(server: &TmuxServer, pane: &Pane) -> Result<(), PaneError> {
    server.type_text(pane, &SafeText::clean(b"hello"), Finish::Enter).map(drop)
}

#[track_caller]
fn refused(result: Result<(), PaneError>, why: &str) {
    match result {
        Err(PaneError::NotOurs { why: said, .. }) => assert!(said.contains(why), "{said}"),
        other => panic!("{other:?}"),
    }
}

fn with_process(pane: &Pane, process: Identity) -> Pane {
    let mut other = pane.clone();
    other.process = process;
    other
}

/// A person's pane with `cat` that writes to a file.
fn persons_pane(world: &World) -> (String, PathBuf) {
    let got = world.path("persons.got");
    let command = format!("exec cat > '{}'", got.display());
    let id = world.persons_tmux(&["new-session", "-d", "-P", "-F", "#{pane_id}", "-s", "mine", &command]);
    wait_for("the person's program runs", || got.exists());
    (id.trim().to_owned(), got)
}

fn wanted(world: &World, target: &str) -> PaneSelector {
    PaneSelector { socket: world.path("person.sock"), target: target.to_owned() }
}

#[test]
fn only_an_adopted_pane_of_a_person_is_typed_into() {
    let world = World::new();
    let (id, got) = persons_pane(&world);
    assert!(matches!(world.server.pane("mine"), Err(PaneError::NoPane { .. })));
    assert!(matches!(world.server.pane(&id), Err(PaneError::NoPane { .. })));
    for nowhere in ["%99", "mine", "mi*", "other:0.0", "#(touch x)", ""] {
        let refused = world.server.adopt("lent".parse().unwrap(), Some(PaneProgram::Plain), &wanted(&world, nowhere));
        assert!(matches!(refused, Err(PaneError::BadTarget { .. })), "{nowhere}: {refused:?}");
    }
    assert_eq!(std::fs::read(&got).unwrap(), b"");
    let pane =
        world.server.adopt("lent".parse().unwrap(), Some(PaneProgram::Plain), &wanted(&world, "mine:0.0")).unwrap();
    assert_eq!(pane.id(), id);
    type_x(&world.server, &world.server.pane("lent").unwrap()).unwrap();
    wait_for("the text arrives", || std::fs::read(&got).unwrap() == b"hello\n");
    // Releasing it ends nothing.
    world.server.kill("lent").unwrap();
    assert!(pane.process.is_alive());
    assert!(matches!(world.server.pane("lent"), Err(PaneError::NoPane { .. })));
    world.nothing_was_run();
}

#[test]
fn an_adopted_pane_is_of_the_kind_of_its_program_unless_it_is_named() {
    let world = World::new();
    let program = world.path("claude");
    std::fs::write(&program, "#!/bin/sh\nread line\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.persons_tmux(&["new-session", "-d", "-s", "mine", &format!("exec '{}'", program.display())]);
    let adopt = |name: &str, kind| world.server.adopt(name.parse().unwrap(), kind, &wanted(&world, "mine:0.0"));
    let pid = world.persons_tmux(&["display-message", "-p", "-t", "mine:0.0", "#{pane_pid}"]);
    let line = || std::fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
    wait_for("its program runs", || line().split('\0').nth(1) == program.to_str());
    assert_eq!(adopt("guessed", None).unwrap().kind, PaneProgram::Claude);
    assert_eq!(adopt("named", Some(PaneProgram::Plain)).unwrap().kind, PaneProgram::Plain);
}

#[test]
fn a_lent_pane_whose_program_changed_is_left_alone() {
    let world = World::new();
    let (id, got) = persons_pane(&world);
    let pane = world.server.adopt("lent".parse().unwrap(), Some(PaneProgram::Plain), &wanted(&world, &id)).unwrap();
    assert!(matches!(world.server.respawn("lent"), Err(PaneError::Adopted { .. })));
    world.persons_tmux(&["copy-mode", "-t", &id]);
    refused(type_x(&world.server, &pane), "copy mode");
    world.persons_tmux(&["copy-mode", "-q", "-t", &id]);
    world.persons_tmux(&["set-option", "-w", "-t", &id, "synchronize-panes", "on"]);
    refused(type_x(&world.server, &pane), "synchronize-panes");
    world.persons_tmux(&["set-option", "-w", "-t", &id, "synchronize-panes", "off"]);
    world.persons_tmux(&["select-pane", "-d", "-t", &id]);
    refused(type_x(&world.server, &pane), "switched off");
    world.persons_tmux(&["select-pane", "-e", "-t", &id]);
    let other = format!("exec cat > '{}'", world.path("other.got").display());
    world.persons_tmux(&["respawn-pane", "-k", "-t", &id, &other]);
    wait_for("another program runs", || world.path("other.got").exists());
    refused(type_x(&world.server, &pane), "another process");
    world.persons_tmux(&["kill-server"]);
    refused(type_x(&world.server, &pane), "gone");
    assert_eq!(std::fs::read(&got).unwrap(), b"");
    assert_eq!(std::fs::read(world.path("other.got")).unwrap(), b"");
}

/// An agent that a person started from a shell ends; behind it is the shell, which would run the
/// typed text.
#[test]
fn the_shell_behind_an_agent_that_ended_gets_nothing() {
    let world = World::new();
    let id = world.persons_tmux(&["new-session", "-d", "-P", "-F", "#{pane_id}", "-s", "mine", "bash --norc -i"]);
    let id = id.trim();
    world.persons_tmux(&["send-keys", "-t", id, "cat > agent.got; echo GONE", "Enter"]);
    let front = || {
        let command = world.persons_tmux(&["display-message", "-p", "-t", id, "#{pane_current_command}"]);
        command.trim().to_owned()
    };
    wait_for("the agent has the terminal", || front() == "cat");
    let pane = world.server.adopt("lent".parse().unwrap(), Some(PaneProgram::Plain), &wanted(&world, id)).unwrap();
    type_x(&world.server, &pane).unwrap();
    world.persons_tmux(&["send-keys", "-t", id, "C-d"]);
    wait_for("the shell has the terminal", || front() == "bash");
    let attack = SafeText::clean(b"touch x");
    refused(world.server.type_text(&pane, &attack, Finish::Enter).map(drop), "another program");
    assert_eq!(world.server.see(&pane).unwrap().1.label(), "dead");
    world.nothing_was_run();
}

#[test]
fn a_pane_of_ours_that_somebody_started_anew_is_not_ours() {
    let world = World::new();
    let (pane, file) = world.raw_reader("reader");
    let stolen = world.path("stolen.got");
    world.our_tmux(&["respawn-pane", "-k", "-t", pane.id(), &format!("exec cat > '{}'", stolen.display())]);
    wait_for("another program runs", || stolen.exists());
    refused(type_x(&world.server, &pane), "another process");
    // The pid alone proves nothing.
    let live = with_process(&pane, Identity { start_ticks: 1, ..pane.process.clone() });
    assert!(type_x(&world.server, &live).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"");
    assert_eq!(std::fs::read(&stolen).unwrap(), b"");
}

#[test]
fn another_start_time_is_another_process() {
    let world = World::new();
    let (pane, file) = world.raw_reader("reader");
    let early = Identity { start_ticks: pane.process.start_ticks - 1, ..pane.process.clone() };
    refused(type_x(&world.server, &with_process(&pane, early)), "same number");
    let rebooted = Identity { boot: "another".to_owned(), ..pane.process.clone() };
    refused(type_x(&world.server, &with_process(&pane, rebooted)), "same number");
    assert_eq!(std::fs::read(&file).unwrap(), b"");
    type_x(&world.server, &pane).unwrap();
}

/// tmux 3.3a crashes when text is pasted into a pane after its program has ended.
#[test]
fn typing_to_a_dead_program_is_refused_and_harms_nobody() {
    let world = World::new();
    let dead = world.sh("dead", "exit 7");
    let (alive, _) = world.raw_reader("alive");
    wait_for("it ends", || world.server.see(&dead).unwrap().1.label() == "dead");
    assert!(matches!(type_x(&world.server, &dead), Err(PaneError::Dead { .. })));
    type_x(&world.server, &alive).unwrap();
}

#[test]
fn what_is_kept_is_private() {
    let world = World::new();
    let pane = world.sh("a", "exec cat");
    let dir = world.path("state/panes");
    let mode = |p: &std::path::Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let mut seen = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        // The socket is tmux's; the folder around it keeps other users out.
        if path.extension().is_some_and(|e| e != "sock") {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 2);
    assert!(matches!(pane.origin, PaneOrigin::Started(_)));
    // A folder with wider permissions is closed again.
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    TmuxServer::open(&world.path("state")).unwrap();
    assert_eq!(mode(&dir), 0o700);
    std::fs::rename(&dir, world.path("moved")).unwrap();
    std::os::unix::fs::symlink(world.path("moved"), &dir).unwrap();
    assert!(matches!(TmuxServer::open(&world.path("state")), Err(PaneError::Io { .. })), "a link is refused");
    std::fs::remove_file(&dir).unwrap();
    std::fs::rename(world.path("moved"), &dir).unwrap();
}
