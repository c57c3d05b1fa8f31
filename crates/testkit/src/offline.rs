//! A test in a private network namespace, with nothing but loopback: a real agent program cannot
//! reach any external host. Owns the namespace and the processes left in it at the end.
//!
//! The test starts itself once more inside of the namespace, so everything in its body (the model
//! server, the programs, `everloop` itself) is in there, and needs nothing special.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Set inside of the namespace.
const INSIDE: &str = "EVERLOOP_TEST_OFFLINE";
/// Stopped programs need a moment, on a busy machine a longer one.
const FAREWELL: Duration = Duration::from_secs(10);
/// Poll interval for leftover processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the rest of a test without a network. It has to be all of the test: outside, `body` is not
/// run at all.
///
/// Fails when a process is still alive in the namespace ten seconds after `body`; it is killed in
/// any case.
pub fn offline<F: FnOnce()>(body: F) {
    if !is_inside() {
        return enter(&test_name::<F>());
    }
    assert_eq!(interfaces(), BTreeSet::from(["lo".to_owned()]), "there is more than loopback");
    let leftovers = Leftovers;
    body();
    let deadline = Instant::now() + FAREWELL;
    while !neighbours().is_empty() && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    let left: Vec<String> = neighbours().into_iter().map(command_line).collect();
    drop(leftovers);
    assert!(left.is_empty(), "left behind: {left:#?}");
}

/// Whether this process is in a private network namespace.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program once more, with the same arguments, in a private network namespace.
pub fn again() -> ExitCode {
    let program = std::env::current_exe().expect("a program knows itself");
    let mut command = unshared();
    command.arg(program).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let status = command.status().expect("`unshare` of util-linux is there");
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// A closure is named after its function, and a test by its path without the crate.
fn test_name<F>() -> String {
    let full = std::any::type_name::<F>();
    let function = full.split("::{{closure}}").next().unwrap_or(full);
    function.split_once("::").map_or(function, |(_, path)| path).to_owned()
}

/// Runs the added words in a private network namespace.
fn unshared() -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    // `ip` is often not in the PATH of a user.
    let up = "PATH=$PATH:/usr/sbin:/sbin ip link set lo up && exec \"$@\"";
    command.args(["--net", "--", "sh", "-c", up, "sh"]);
    command
}

fn enter(test: &str) {
    let program = std::env::current_exe().expect("a test knows its own program");
    let mut command = unshared();
    command.arg(program).args(["--exact", test, "--nocapture"]);
    let output = command.env(INSIDE, "1").output().expect("`unshare` of util-linux is there");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A wrong name would run nothing and succeed.
    assert!(output.status.success() && said.contains("1 passed"), "inside of the namespace:\n{said}");
    pass_on(&said);
}

/// Prints the inner test's output, which may contain figures.
fn pass_on(said: &str) {
    // A closed output loses nothing important.
    std::io::stdout().write_all(said.as_bytes()).ok();
}

fn interfaces() -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/self/net/dev").expect("Linux lists the interfaces of a process");
    table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned()).collect()
}

/// The other processes in this namespace; an ended one has no namespace.
pub fn neighbours() -> Vec<Pid> {
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let ours = space("self");
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let others = pids.filter(|pid| Pid::from_raw(*pid) != Pid::this());
    others.filter(|pid| space(&pid.to_string()) == ours).map(Pid::from_raw).collect()
}

fn command_line(pid: Pid) -> String {
    let bytes = std::fs::read(PathBuf::from(format!("/proc/{pid}/cmdline"))).unwrap_or_default();
    format!("{pid} {}", String::from_utf8_lossy(&bytes).replace('\0', " "))
}

/// Kills leftovers, also when the test fails: the namespace is private, so no other process is hit.
struct Leftovers;

impl Drop for Leftovers {
    fn drop(&mut self) {
        for pid in neighbours() {
            // It may have ended by itself in the meantime.
            kill(pid, Signal::SIGKILL).ok();
        }
    }
}
