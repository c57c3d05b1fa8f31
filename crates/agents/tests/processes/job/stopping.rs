//! Stopping a job: limits, the steps from SIGTERM to SIGKILL, interrupts.

use std::time::{Duration, Instant};

use everloop_agents::job::{self, Confine, JobEnd, JobTrace, ShimProgram};
use everloop_agents::process::SignalResult;
use everloop_core::event::StopCause;
use nix::sys::signal::Signal;

use super::room::{Room, WAIT_TIMEOUT, ended, finish, shim, until_so};
use crate::trials;

trials!(
    the_wall_limit,
    a_command_that_listens,
    a_command_that_does_not_listen,
    asked_twice,
    grandchildren_are_asked_too,
    a_signal_without_a_reason_is_a_shutdown,
    an_interrupt,
    an_interrupt_although_the_shell_ignored_it,
    stopped_before_it_began,
    a_shim_that_does_not_obey,
    a_stop_after_the_end,
    signs_of_life,
);

/// Reports that it is ready, then waits for ever.
const WAIT: &str = "echo $$ > pid; while :; do sleep 0.01; done";

fn the_wall_limit() {
    let mut room = Room::sh("sleep 1000");
    room.spec.wall = Duration::from_millis(200);
    let exit = room.run().exit;
    assert_eq!((exit.stopped, exit.signal), (Some(StopCause::Wall), Some(15)));
    assert!(exit.ended_at.since(exit.started_at) >= Duration::from_millis(200));
}

fn a_command_that_listens() {
    let room = Room::sh(&format!("trap 'echo bye; exit 7' TERM; {WAIT}"));
    let mut running = room.start();
    room.process("pid");
    assert_eq!(job::stop(&room.dir(), StopCause::Person).unwrap(), SignalResult::Signalled);
    let exit = finish(&mut running);
    assert_eq!((exit.stopped, exit.code), (Some(StopCause::Person), Some(7)));
    assert_eq!(room.out(), "bye\n");
}

fn a_command_that_does_not_listen() {
    for confine in [Confine::Tree, Confine::Cgroup] {
        let room = Room::sh(&format!("trap '' TERM INT; {WAIT}")).confined(confine);
        let mut running = room.start();
        let command = room.process("pid");
        let begun = Instant::now();
        job::stop(&room.dir(), StopCause::Stuck).unwrap();
        let exit = finish(&mut running);
        assert!(begun.elapsed() >= room.spec.grace, "killed after {:?}", begun.elapsed());
        assert_eq!((exit.stopped, exit.signal), (Some(StopCause::Stuck), Some(9)));
        assert!(!command.is_alive());
    }
}

fn asked_twice() {
    let mut room = Room::sh(&format!("trap 'echo heard > heard' TERM; {WAIT}"));
    room.spec.grace = WAIT_TIMEOUT * 10;
    let mut running = room.start();
    room.process("pid");
    job::stop(&room.dir(), StopCause::Person).unwrap();
    until_so("the first SIGTERM", || room.file("heard").exists());
    job::stop(&room.dir(), StopCause::Shutdown).unwrap();
    let exit = finish(&mut running);
    assert_eq!((exit.stopped, exit.signal), (Some(StopCause::Person), Some(9)));
}

fn grandchildren_are_asked_too() {
    let script = "trap : TERM; setsid sh -c 'trap \"echo x > asked; exit\" TERM; echo $$ > pid; \
        while :; do sleep 0.01; done' & while [ ! -e asked ]; do sleep 0.01; done; exit 0";
    let mut room = Room::sh(script).confined(Confine::Tree);
    room.spec.grace = WAIT_TIMEOUT;
    let mut running = room.start();
    room.process("pid");
    job::stop(&room.dir(), StopCause::Person).unwrap();
    assert_eq!(finish(&mut running).code, Some(0));
}

fn a_signal_without_a_reason_is_a_shutdown() {
    let room = Room::sh(WAIT);
    let mut running = room.start();
    room.process("pid");
    let started = job::started(&room.dir()).unwrap().unwrap();
    started.shim.signal(Signal::SIGTERM).unwrap();
    assert_eq!(finish(&mut running).stopped, Some(StopCause::Shutdown));
}

fn an_interrupt() {
    let room = Room::sh(&format!("trap 'exit 9' INT; {WAIT}"));
    let mut running = room.start();
    room.process("pid");
    assert_eq!(job::interrupt(&room.dir()).unwrap(), SignalResult::Signalled);
    let exit = finish(&mut running);
    assert_eq!((exit.stopped, exit.code), (None, Some(9)));
}

fn an_interrupt_although_the_shell_ignored_it() {
    // `everloop run &` in a script: the shell sets SIGINT to be ignored, and that is inherited.
    let room = Room::sh(WAIT);
    job::prepare(&room.dir(), &room.spec).unwrap();
    let script = "trap '' INT HUP; exec \"$0\" __job \"$1\"";
    let ignoring = ShimProgram { exe: "/bin/sh".into(), args: vec!["-c".into(), script.into(), shim().exe.into()] };
    let mut running = room.start_prepared(&ignoring);
    room.process("pid");
    job::interrupt(&room.dir()).unwrap();
    assert_eq!(finish(&mut running).signal, Some(2));
}

fn stopped_before_it_began() {
    let room = Room::sh("echo ran > ran");
    job::prepare(&room.dir(), &room.spec).unwrap();
    assert_eq!(job::stop(&room.dir(), StopCause::Person).unwrap(), SignalResult::NotThere);
    let exit = finish(&mut room.start_prepared(&shim()));
    assert_eq!((exit.stopped, exit.code), (Some(StopCause::Person), None));
    assert!(!room.file("ran").exists());
}

fn a_shim_that_does_not_obey() {
    for confine in [Confine::Tree, Confine::Cgroup] {
        // Without its environment the grandchild carries no mark: it is found by the tree, or by
        // the group.
        let far = "env -i PATH=\"$PATH\" setsid sh -c 'echo $$ > far; exec sleep 1000'";
        let script = format!("{far} & {WAIT}");
        let room = Room::sh(&script).confined(confine);
        let mut running = room.start();
        let (near, far) = (room.process("pid"), room.process("far"));
        let shim = job::started(&room.dir()).unwrap().unwrap().shim;
        shim.signal(Signal::SIGSTOP).unwrap();
        assert_eq!(job::kill(&room.dir()).unwrap(), JobTrace::Gone);
        assert!(!near.is_alive() && !far.is_alive() && !shim.is_alive());
        assert_eq!(ended(&mut running), JobEnd::Gone);
    }
}

fn a_stop_after_the_end() {
    let room = Room::sh("exit 0");
    room.run();
    assert_eq!(job::stop(&room.dir(), StopCause::Person).unwrap(), SignalResult::NotThere);
    assert_eq!(job::interrupt(&room.dir()).unwrap(), SignalResult::NotThere);
    assert!(matches!(job::kill(&room.dir()).unwrap(), JobTrace::Exited(exit) if exit.ok()));
}

fn signs_of_life() {
    for confine in [Confine::Tree, Confine::Cgroup] {
        let script =
            "sleep 1000 & echo $$ > pid; while [ ! -e go ]; do :; done; echo hello; while :; do sleep 0.01; done";
        let room = Room::sh(script).confined(confine);
        let mut running = room.start();
        room.process("pid");
        let first = job::sample(&room.dir()).unwrap();
        assert!(first.identity.as_ref().is_some_and(everloop_agents::process::Identity::is_alive));
        assert_eq!(first.out_bytes, 0);
        until_so("CPU", || job::sample(&room.dir()).unwrap().cpu_ms > first.cpu_ms + 50);
        until_so("two processes", || job::sample(&room.dir()).unwrap().processes >= 2);
        std::fs::write(room.file("go"), "").unwrap();
        until_so("output", || job::sample(&room.dir()).unwrap().out_bytes == 6);
        job::stop(&room.dir(), StopCause::Person).unwrap();
        finish(&mut running);
        let last = job::sample(&room.dir()).unwrap();
        assert_eq!((last.out_bytes, last.processes, last.identity), (6, 0, None));
    }
}
