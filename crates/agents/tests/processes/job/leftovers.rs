//! What commands leave behind, with and without a control group.

use std::time::{Duration, Instant};

use everloop_agents::job::{Confine, JobRecord};
use everloop_agents::process;

use super::room::Room;
use crate::trials;

trials!(
    a_grandchild_in_its_own_session_that_holds_the_pipe,
    a_double_fork,
    a_grandchild_that_ignores_sigterm,
    a_grandchild_may_tidy_up,
    two_hundred_processes,
    a_fork_bomb,
    no_leftovers_no_delay,
    no_cgroup_stays_behind,
);

/// A background process that writes its pid and then stays; `$1` is run first.
const STAY: &str = "stay() { setsid sh -c \"$1 echo \\$\\$ > pid; while :; do sleep 1000; done\" & }
    ready() { while [ ! -s pid ]; do sleep 0.01; done; }";

/// Both ways to contain processes must work.
fn both(script: &str, look: impl Fn(&Room, &JobRecord)) {
    for confine in [Confine::Tree, Confine::Cgroup] {
        let room = Room::sh(&format!("{STAY}\n{script}")).confined(confine);
        let begun = Instant::now();
        let record = room.run();
        assert!(begun.elapsed() < Duration::from_secs(15), "{confine:?} took {:?}", begun.elapsed());
        assert_eq!((record.exit.code, record.survivors), (Some(0), 0), "{confine:?} {record:?}");
        assert_eq!(alive_in(&room), Vec::<i32>::new(), "{confine:?}");
        look(&room, &record);
    }
}

/// Every process that works in the room's folder: the folder is new, so they all belong to the job.
fn alive_in(room: &Room) -> Vec<i32> {
    let work = room.file("").canonicalize().unwrap();
    let here = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&work));
    process::all().into_iter().filter(here).collect()
}

fn a_grandchild_in_its_own_session_that_holds_the_pipe() {
    both("stay ''; ready; echo done", |_, record| {
        assert_eq!(record.exit.tail, "done\n");
        assert!(record.exit.leftovers >= 1);
        assert!(record.exit.ended_at.since(record.exit.started_at) < Duration::from_secs(10));
    });
}

fn a_double_fork() {
    both("(stay '') >/dev/null 2>&1; ready", |_, record| assert!(record.exit.leftovers >= 1));
}

fn a_grandchild_that_ignores_sigterm() {
    both("stay 'trap \\\"\\\" TERM HUP INT;' >/dev/null 2>&1; ready", |_, record| {
        assert!(record.exit.leftovers >= 1);
    });
}

fn a_grandchild_may_tidy_up() {
    let script =
        "setsid sh -c 'trap \"echo tidy > tidy; exit\" TERM; echo $$ > pid; while :; do sleep 0.01; done' & ready";
    both(script, |room, _| assert!(room.file("tidy").exists(), "it was killed without SIGTERM"));
}

fn two_hundred_processes() {
    both("i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done", |_, record| {
        assert!(record.exit.leftovers >= 200, "{record:?}");
    });
}

fn a_fork_bomb() {
    // Every process forks two more before it waits, 511 in all; the sweep runs while they fork.
    let bomb =
        "bomb() { if [ $1 -gt 0 ]; then bomb $(($1-1)) & bomb $(($1-1)) & fi; sleep 1000; }; bomb 8 & sleep 0.05";
    both(bomb, |_, record| assert!(record.exit.leftovers >= 2, "{record:?}"));
}

fn no_leftovers_no_delay() {
    let took = || {
        let begun = Instant::now();
        assert_eq!(Room::sh("true").run().exit.leftovers, 0);
        begun.elapsed()
    };
    // The best of many, because the machine may be busy. A needless wait would take 300 ms each
    // time.
    let best = (0..20).map(|_| took()).min();
    assert!(best < Some(Duration::from_millis(200)), "{best:?}");
}

fn no_cgroup_stays_behind() {
    let room = Room::sh("cat /proc/self/cgroup | grep ^0");
    room.run();
    let started = everloop_agents::job::started(&room.dir()).unwrap().unwrap();
    // Where groups are not permitted there is none to check.
    if let Some(cgroup) = started.cgroup {
        let name = cgroup.file_name().unwrap().to_str().unwrap();
        assert!(room.out().contains(name), "{} is not in {name}", room.out());
        assert!(!cgroup.exists());
    }
}
