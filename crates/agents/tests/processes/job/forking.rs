//! Shims that a server forks: the same as those that were executed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use everloop_agents::job;
use everloop_agents::process::{self, Identity};
use nix::sys::signal::Signal;

use super::room::{Room, ended, finish, shim, until, until_so};
use crate::trials;

trials!(
    jobs_in_a_row_are_forked,
    a_forked_shim_is_as_an_executed_one,
    a_stopped_server_stops_nothing,
    a_server_ends_with_its_supervisor,
);

/// The server among the children of a process.
fn server_of(pid: i32) -> Option<Identity> {
    let is_server = |child: &i32| {
        process::command_line(*child).last().is_some_and(|word| word.to_string_lossy().starts_with("--serve"))
    };
    let children = process::descendants(pid).into_iter().filter(|stat| stat.parent == pid && stat.is_alive());
    children.map(|stat| stat.pid).find(is_server).and_then(Identity::of)
}

fn own_server() -> Option<Identity> {
    server_of(std::process::id() as i32)
}

/// Two jobs, after which there is a server.
fn warmed_up() -> Identity {
    for _ in 0..2 {
        Room::sh("true").run();
    }
    until("the server", own_server)
}

fn jobs_in_a_row_are_forked() {
    Room::sh("true").run();
    warmed_up();
    for _ in 0..3 {
        let room = Room::sh("echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done");
        let mut running = room.start();
        room.process("pid");
        let shim = job::started(&room.dir()).unwrap().unwrap().shim;
        let stat = process::stat(shim.pid).unwrap();
        assert_eq!(
            (stat.parent, stat.session),
            (std::process::id() as i32, shim.pid),
            "a child in a session of its own"
        );
        let words = process::command_line(shim.pid);
        let shown = words.last().unwrap().to_string_lossy().into_owned();
        assert!(shown.starts_with("//") && shown.ends_with(&*room.dir().to_string_lossy()), "{shown}");
        let mark = format!("{}={}", job::JOB_VAR, job::mark(&room.dir()).unwrap());
        let environment = fs::read(format!("/proc/{}/environ", shim.pid)).unwrap();
        assert!(environment.split(|b| *b == 0).any(|variable| variable == mark.as_bytes()), "{mark}");
        fs::write(room.file("go"), "").unwrap();
        assert_eq!(finish(&mut running).code, Some(0));
    }
    assert!(own_server().is_some(), "one server for all");
}

fn a_forked_shim_is_as_an_executed_one() {
    // What a command sees of itself, without what is the job's own.
    let script = "env | sed 's/=.*//' | sort; ls /proc/self/fd | wc -l; umask; ulimit -n; cat /proc/self/status | \
        grep -E '^(Sig(Blk|Ign|Cgt)|NoNewPrivs|Seccomp|Cap)'; pwd > /dev/null; tty; ps -o nice= -p $$";
    let executed = Room::sh(script).run().exit;
    warmed_up();
    let forked = Room::sh(script).run().exit;
    assert_eq!(forked.tail, executed.tail);
    assert_eq!(forked.code, executed.code);
}

fn a_stopped_server_stops_nothing() {
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        let server = warmed_up();
        server.signal(signal).unwrap();
        assert_eq!(Room::sh("exit 4").run().exit.code, Some(4), "{signal}");
        until_so("it is gone", || !server.is_alive());
        assert_eq!(Room::sh("exit 5").run().exit.code, Some(5), "{signal}");
    }
}

fn a_server_ends_with_its_supervisor() {
    let (first, second) = (Room::sh("true"), Room::sh("echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; exit 6"));
    for room in [&first, &second] {
        job::prepare(&room.dir(), &room.spec).unwrap();
    }
    let mut command = Command::new(shim().exe);
    command.arg("__supervisor").args([first.dir(), second.dir()]).process_group(0).stdout(Stdio::null());
    let mut supervisor = command.spawn().unwrap();
    second.process("pid");
    let server = until("the server", || server_of(supervisor.id() as i32));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    until_so("the server is gone", || !server.is_alive());
    let mut running = super::room::block(job::adopt(&second.dir())).unwrap();
    fs::write(second.file("go"), "").unwrap();
    assert!(matches!(ended(&mut running), job::JobEnd::Exited(exit) if exit.code == Some(6)), "its shims go on");
}
