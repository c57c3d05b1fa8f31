//! Killed supervisors, killed shims, jobs that were never started, reused pids.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use everloop_agents::environment::Environment;
use everloop_agents::job::{self, Confine, JobEnd, JobError, JobTrace};
use everloop_agents::process::{Identity, SignalResult};
use everloop_core::event::StopCause;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;

use super::room::{Room, block, ended, finish, shim, until_so};
use crate::trials;

trials!(
    a_killed_supervisor_loses_nothing,
    limits_hold_without_a_supervisor,
    a_killed_shim_leaves_nothing,
    a_killed_shim_leaves_nothing_in_its_cgroup,
    what_is_cancelled_never_runs,
    a_second_shim_gives_way,
    a_job_runs_once,
    an_exit_is_found_later,
    nothing_was_ever_there,
    a_damaged_record_is_no_record,
    a_forged_start_signals_nothing,
    waiting_can_be_given_up,
    marks_spare_the_one_who_looks,
);

/// The supervisor of a test: starts jobs and hangs until it is killed.
pub fn supervisor(dirs: &[&str]) -> ExitCode {
    let start = |dir: &&str| job::start(&shim(), Path::new(dir), Environment::from_ours(&[]).into_vars()).unwrap();
    let running: Vec<_> = dirs.iter().map(start).collect();
    loop {
        std::thread::sleep(Duration::from_secs(1000));
        assert!(running.iter().all(|job| job.dir().exists()));
    }
}

/// Kills the processes with a mark, from inside a process that carries it too.
pub fn reap(name: &str, value: &str) -> ExitCode {
    ExitCode::from(job::reap_marked(name, value.as_ref()) as u8)
}

/// A job after its supervisor was killed once the command ran, with its whole process group, as a
/// terminal does it.
fn orphaned(room: &Room) {
    job::prepare(&room.dir(), &room.spec).unwrap();
    let mut command = Command::new(shim().exe);
    let mut supervisor = command.arg("__supervisor").arg(room.dir()).process_group(0).spawn().unwrap();
    room.process("pid");
    killpg(Pid::from_raw(supervisor.id() as i32), Signal::SIGKILL).unwrap();
    supervisor.wait().unwrap();
}

fn a_killed_supervisor_loses_nothing() {
    let room = Room::sh("echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; echo done; exit 6");
    orphaned(&room);
    assert!(matches!(job::inspect(&room.dir()).unwrap(), JobTrace::Alive { shim: Some(_) }));
    let mut running = block(job::adopt(&room.dir())).unwrap();
    fs::write(room.file("go"), "").unwrap();
    let exit = finish(&mut running);
    assert_eq!((exit.code, exit.tail.as_str()), (Some(6), "done\n"));
}

fn limits_hold_without_a_supervisor() {
    let mut room = Room::sh("trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done");
    room.spec.wall = Duration::from_millis(1500);
    orphaned(&room);
    let exit = finish(&mut block(job::adopt(&room.dir())).unwrap());
    assert_eq!((exit.stopped, exit.signal), (Some(StopCause::Wall), Some(9)));
}

fn a_killed_shim_leaves_nothing() {
    let script =
        "setsid sh -c 'echo $$ > far; while :; do sleep 1000; done' & echo $$ > pid; while :; do sleep 0.01; done";
    let room = Room::sh(script).confined(Confine::Tree);
    let mut running = room.start();
    let (near, far) = (room.process("pid"), room.process("far"));
    job::started(&room.dir()).unwrap().unwrap().shim.signal(Signal::SIGKILL).unwrap();
    // Even without recovery: the command dies with its shim.
    until_so("the command's death", || !near.is_alive());
    assert!(far.is_alive(), "a grandchild in its own session has to be found");
    assert_eq!(ended(&mut running), JobEnd::Gone);
    assert!(!far.is_alive());
    assert_eq!(job::inspect(&room.dir()).unwrap(), JobTrace::Gone);
}

fn a_killed_shim_leaves_nothing_in_its_cgroup() {
    // Without its environment the grandchild carries no mark: only the group can find it.
    let script = "env -i PATH=\"$PATH\" setsid sh -c 'echo $$ > far; exec sleep 1000' & echo $$ > pid; sleep 1000";
    let room = Room::sh(script).confined(Confine::Cgroup);
    let mut running = room.start();
    let far = room.process("far");
    let started = job::started(&room.dir()).unwrap().unwrap();
    started.shim.signal(Signal::SIGKILL).unwrap();
    assert_eq!(ended(&mut running), JobEnd::Gone);
    if let Some(cgroup) = started.cgroup {
        assert!(!far.is_alive() && !cgroup.exists());
    } else {
        far.signal(Signal::SIGKILL).unwrap();
    }
}

fn what_is_cancelled_never_runs() {
    let room = Room::sh("echo ran > ran");
    job::prepare(&room.dir(), &room.spec).unwrap();
    assert_eq!(job::inspect(&room.dir()).unwrap(), JobTrace::Gone);
    // A shim that was forked before the cancellation and starts late.
    assert_eq!(ended(&mut room.start_prepared(&shim())), JobEnd::Gone);
    assert!(!room.file("ran").exists());
    assert!(matches!(job::prepare(&room.dir(), &room.spec), Err(JobError::Used { .. })));
}

fn a_second_shim_gives_way() {
    let room = Room::sh("echo x >> runs; echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done");
    let mut first = room.start();
    room.process("pid");
    let mut second = room.start_prepared(&shim());
    assert!(matches!(block(second.wait()), Err(JobError::Taken { .. })));
    fs::write(room.file("go"), "").unwrap();
    assert!(finish(&mut first).ok());
    assert_eq!(fs::read_to_string(room.file("runs")).unwrap(), "x\n");
}

fn a_job_runs_once() {
    let room = Room::sh("echo x >> runs");
    let exit = room.run().exit;
    assert_eq!(finish(&mut room.start_prepared(&shim())), exit);
    assert_eq!(fs::read_to_string(room.file("runs")).unwrap(), "x\n");
}

fn an_exit_is_found_later() {
    let room = Room::sh("exit 3");
    let exit = room.run().exit;
    assert_eq!(job::inspect(&room.dir()).unwrap(), JobTrace::Exited(exit.clone()));
    assert_eq!(finish(&mut block(job::adopt(&room.dir())).unwrap()), exit);
}

fn nothing_was_ever_there() {
    let room = Room::sh("true");
    assert_eq!(job::inspect(&room.dir()).unwrap(), JobTrace::Gone);
}

fn a_damaged_record_is_no_record() {
    let room = Room::sh("true");
    room.run();
    // What a power cut may leave of a file that was not synced.
    let book = room.dir().join("job.jsonl");
    let whole = fs::read_to_string(&book).unwrap();
    let until = |word: &str| whole[..whole.find(word).unwrap()].to_owned();
    for left in [String::new(), "\0".repeat(whole.len()), until("\"started\""), until("\"ended\"")] {
        fs::write(&book, left).unwrap();
        assert_eq!(job::inspect(&room.dir()).unwrap(), JobTrace::Gone);
    }
}

/// With its right number, and forged: no other process is signalled on the word of a log.
fn a_forged_start_signals_nothing() {
    let room = Room::sh("true");
    room.run();
    let mut stranger = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let real = Identity::of(stranger.id() as i32).unwrap();
    let path = room.dir().join("job.jsonl");
    for version in [1, 2] {
        let line = json!({"version": version, "started": {
            "pid": real.pid, "start_ticks": real.start_ticks, "boot": real.boot, "cgroup": null, "started_at": 0,
        }});
        let mut book = fs::OpenOptions::new().append(true).open(&path).unwrap();
        writeln!(book, "{line}").unwrap();
        assert_ne!(job::started(&room.dir()).unwrap().unwrap().shim.pid, real.pid);
        assert_eq!(job::stop(&room.dir(), StopCause::Person).unwrap(), SignalResult::NotThere);
        assert_eq!(job::interrupt(&room.dir()).unwrap(), SignalResult::NotThere);
        job::kill(&room.dir()).unwrap();
        assert_eq!(job::sample(&room.dir()).unwrap().identity, None);
        assert!(real.is_alive());
    }
    drop(stranger.stdin.take());
    assert!(stranger.wait().unwrap().success());
}

fn waiting_can_be_given_up() {
    let room = Room::sh("echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; exit 2");
    let mut running = room.start();
    block(async {
        let given_up = tokio::time::timeout(Duration::from_millis(50), running.wait()).await;
        assert!(given_up.is_err());
        fs::write(room.file("go"), "").unwrap();
        assert!(matches!(running.wait().await.unwrap(), JobEnd::Exited(exit) if exit.code == Some(2)));
        assert!(matches!(running.wait().await.unwrap(), JobEnd::Exited(_)));
    });
}

fn marks_spare_the_one_who_looks() {
    let room = Room::sh("true");
    let value = room.dir().to_str().unwrap().to_owned();
    fs::create_dir(room.dir()).unwrap();
    let script = "setsid sleep 1000 & echo $! > pid; \"$0\" __reap EVERLOOP_TURN \"$EVERLOOP_TURN\"; echo $? > killed";
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(shim().exe)
        .env("EVERLOOP_TURN", value)
        .current_dir(room.file(""))
        .status()
        .unwrap();
    assert!(status.success(), "the shell that carries the mark is an ancestor and lives");
    assert_eq!(fs::read_to_string(room.file("killed")).unwrap(), "1\n");
}
