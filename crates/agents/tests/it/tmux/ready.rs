//! Panes as turns need them: restarted when they died, moved when they are elsewhere, left alone
//! when they belong to a person.

use std::path::Path;

use everloop_agents::tmux::{Pane, PaneError, PaneOrigin, PaneProgram, PaneSelector, PaneTarget, State};

use super::world::{World, wait_for};

/// Claude's screen, waiting for a prompt; then the commands in `$1`.
const IDLE: &str = r"
rule='────────────────────────────────────────'
printf '\033[2J\033[H\033]2;✳ Claude Code\007hi\n%s\n❯ \n%s\n  footer' $rule $rule
exec cat
";
/// A question of claude's.
const ASKS: &str = r"
printf '\033[2J\033[H────────────────────\n Do you want to proceed?\n ❯ 1. Yes\n\n Esc to cancel'
exec cat
";

fn agent(world: &World, script: &str) -> Pane {
    let program = world.program(&["sh", "-c", script]);
    world.server.start("agent".parse().unwrap(), PaneProgram::Claude, program).unwrap()
}

fn idle(world: &World) -> Pane {
    let pane = agent(world, IDLE);
    wait_for("it is idle", || world.server.see(&pane).unwrap().1 == State::Idle);
    pane
}

/// Waits until the pane's process is in this folder: tmux forks it and then goes there.
#[track_caller]
fn comes_to(pane: &Pane, folder: &std::path::Path) {
    let cwd = format!("/proc/{}/cwd", pane.process.pid);
    wait_for("it is in its folder", || std::fs::read_link(&cwd).is_ok_and(|at| at == folder));
}

fn folder(world: &World, name: &str) -> std::path::PathBuf {
    let path = world.path(name);
    std::fs::create_dir_all(&path).unwrap();
    path.canonicalize().unwrap()
}

fn kill_server(world: &World) {
    world.our_tmux(&["kill-server"]);
    wait_for("the server is gone", || world.server.process().unwrap().is_none());
}

#[test]
fn what_is_alive_and_in_its_place_is_left_alone() {
    let world = World::new();
    let pane = idle(&world);
    let work = folder(&world, "work");
    for place in [PaneTarget::Worktree(&work), PaneTarget::Folder(&work), PaneTarget::Folder(Path::new("/"))] {
        assert_eq!(world.server.ready("agent", place).unwrap(), None);
    }
    assert_eq!(world.server.pane("agent").unwrap(), pane);
}

#[test]
fn the_dead_are_started_again_three_times_in_an_hour() {
    let world = World::new();
    idle(&world);
    let work = folder(&world, "work");
    for (n, why) in [(1, "server is gone"), (2, "program has ended"), (3, "server is gone")] {
        if why.starts_with("server") {
            kill_server(&world);
        } else {
            let pane = world.server.pane("agent").unwrap();
            pane.process.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
            let dead = |s: &State| matches!(s, State::Dead { .. });
            wait_for("tmux has seen its end", || dead(&world.server.see(&pane).unwrap().1));
        }
        let note = world.server.ready("agent", PaneTarget::Worktree(&work)).unwrap().unwrap();
        assert!(note.contains(why) && note.contains(&format!("{n} of 3")), "{note}");
        let pane = world.server.pane("agent").unwrap();
        comes_to(&pane, &work);
        assert!(pane.process.is_alive());
    }
    kill_server(&world);
    let refused = world.server.ready("agent", PaneTarget::Worktree(&work)).unwrap_err();
    assert!(matches!(refused, PaneError::TooOften { times: 3, .. }), "{refused:?}");
    assert!(refused.hint().unwrap().contains("everloop pane respawn agent"));
    assert_eq!(world.server.process().unwrap(), None, "nothing was started");
    // A restart by a person clears the count.
    world.server.respawn("agent").unwrap();
    kill_server(&world);
    assert!(world.server.ready("agent", PaneTarget::Worktree(&work)).unwrap().unwrap().contains("1 of 3"));
}

#[test]
fn a_program_is_moved_while_it_is_idle() {
    let world = World::new();
    let before = idle(&world);
    let tree = folder(&world, "tree");
    let note = world.server.ready("agent", PaneTarget::Worktree(&tree)).unwrap().unwrap();
    assert!(note.contains("works in") && note.contains(&tree.display().to_string()), "{note}");
    let after = world.server.pane("agent").unwrap();
    assert!(!before.process.is_alive() && after.process.is_alive());
    comes_to(&after, &tree);
    assert_eq!(after.id(), before.id());
    assert!(matches!(&after.origin, PaneOrigin::Started(program) if program.cwd == tree));
    assert_eq!(world.server.ready("agent", PaneTarget::Worktree(&tree)).unwrap(), None, "once is enough");
    // A recreated worktree has the same path, and the program is still in the old one.
    wait_for("it is idle", || world.server.see(&after).unwrap().1 == State::Idle);
    std::fs::remove_dir(&tree).unwrap();
    folder(&world, "tree");
    world.server.ready("agent", PaneTarget::Worktree(&tree)).unwrap().unwrap();
    comes_to(&world.server.pane("agent").unwrap(), &tree);
    // With its folder gone for good it moves to the one of the loop, also without a worktree.
    let moved = world.server.pane("agent").unwrap();
    wait_for("it is idle", || world.server.see(&moved).unwrap().1 == State::Idle);
    std::fs::remove_dir(&tree).unwrap();
    let work = folder(&world, "work");
    world.server.ready("agent", PaneTarget::Folder(&work)).unwrap().unwrap();
    comes_to(&world.server.pane("agent").unwrap(), &work);
}

#[test]
fn a_program_that_is_at_something_is_not_moved() {
    let world = World::new();
    let pane = agent(&world, ASKS);
    wait_for("the question is shown", || matches!(world.server.see(&pane).unwrap().1, State::Asking { .. }));
    let tree = folder(&world, "tree");
    let refused = world.server.ready("agent", PaneTarget::Worktree(&tree)).unwrap_err();
    assert!(matches!(refused, PaneError::Occupied { doing: "asking", .. }), "{refused:?}");
    assert!(pane.process.is_alive());
}

#[test]
fn a_persons_pane_is_never_touched() {
    let world = World::new();
    world.persons_tmux(&["new-session", "-d", "-s", "mine", "cat"]);
    let wanted = PaneSelector { socket: world.path("person.sock"), target: "mine:0.0".to_owned() };
    let adopt = || world.server.adopt("agent".parse().unwrap(), Some(PaneProgram::Plain), &wanted);
    wait_for("its program has the terminal", || adopt().is_ok());
    let pane = world.server.pane("agent").unwrap();
    let (work, tree) = (folder(&world, "work"), folder(&world, "tree"));
    assert_eq!(world.server.ready("agent", PaneTarget::Worktree(&work)).unwrap(), None, "it is already there");
    assert_eq!(world.server.ready("agent", PaneTarget::Folder(&tree)).unwrap(), None);
    let refused = world.server.ready("agent", PaneTarget::Worktree(&tree)).unwrap_err();
    assert!(matches!(&refused, PaneError::Elsewhere { cwd, .. } if *cwd == work), "{refused:?}");
    assert!(refused.hint().unwrap().contains("--in-place"));
    assert!(pane.process.is_alive());
    world.persons_tmux(&["kill-server"]);
    wait_for("it ends with its server", || !pane.process.is_alive());
    let refused = world.server.ready("agent", PaneTarget::Worktree(&work)).unwrap_err();
    assert!(matches!(refused, PaneError::Adopted { .. }), "{refused:?}");
    assert_eq!(world.server.process().unwrap(), None, "no private server was started either");
}
