//! The fake model as a program, and the folder in which tests run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use everloop_testkit::fake_model::log::{self, RequestKind};
use everloop_testkit::offline::{neighbours, offline};
use everloop_testkit::wait::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The program is there, and what it did is written down, within this.
const SOON: Duration = Duration::from_secs(30);

fn fake_model(script: &str, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-model"));
    command.args(["--script", script, "--log"]).arg(folder.join("log")).arg("--port-file").arg(folder.join("port"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn the_program_serves_until_it_is_told_to_end() {
    let scratch = tempfile::tempdir().expect("there is room");
    let mut child = fake_model("text", scratch.path()).spawn().expect("the program starts");
    let read = || std::fs::read_to_string(scratch.path().join("port")).ok()?.trim().parse().ok();
    let port: u16 = wait_for("the port is written", SOON, read);
    let answer = crate::server::answer(port, "/v1/messages", crate::server::MAIN).expect("it is answered");
    assert!(answer.contains("message_stop"), "{answer}");
    let logged = || log::read(&scratch.path().join("log")).ok().filter(|records| !records.is_empty());
    let records = wait_for("the call is logged", SOON, logged);
    assert_eq!((records.len(), records[0].kind), (1, RequestKind::Main));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("it is alive");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_script_that_cannot_be_played_is_refused() {
    let scratch = tempfile::tempdir().expect("there is room");
    let output = fake_model("text,txt", scratch.path()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot play the step `text,txt`"), "{said}");
}

#[test]
fn what_stays_alive_in_the_room_is_seen() {
    offline(|| {
        assert_eq!(neighbours(), []);
        let mut child = Command::new("sleep").arg("600").spawn().expect("`sleep` starts");
        assert_eq!(neighbours(), [Pid::from_raw(child.id() as i32)]);
        child.kill().expect("it is alive");
        child.wait().expect("it ends");
        assert_eq!(neighbours(), []);
    });
}
