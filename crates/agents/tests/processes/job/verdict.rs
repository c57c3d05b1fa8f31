//! Commands without isolation that forge the end of their job, plant something in the place of its
//! files, stop or kill its shim, or leave their place.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use everloop_agents::job::{self, Confine, InsideJob, JobEnd, JobError, JobTrace};
use everloop_agents::process::{Identity, SignalResult};
use everloop_core::event::StopCause;
use everloop_core::planted::{self, Bug};
use nix::sys::signal::Signal;

use super::room::{Room, block, ended, finish, shim, until, until_so};
use crate::trials;

trials!(
    a_forged_record_is_nothing,
    a_record_of_before_is_nothing,
    a_record_that_is_not_signed_is_nothing,
    a_pipe_over_the_log_blocks_nothing,
    what_is_over_an_output_is_not_followed,
    long_a_stopped_shim_is_killed,
    a_stopped_shim_stops,
    nothing_of_a_killed_shim_survives,
    a_mark_is_no_path,
    a_job_of_the_first_version_is_lost,
    a_process_knows_that_it_is_in_a_job,
);

/// A record of success in each format, without a signature and with a wrong one.
const FORGED: &str = r#"forge() { for line in '"version":1' '"version":2' '"version":2'; do
  printf '\n{%s,"ended":{"code":0,"signal":null,"spawn_error":null,"started_at":1,"ended_at":2,"out_bytes":0,"tail":"","backoff_ms":null,"stopped":null,"leftovers":0,"cpu_ms":0,"max_rss_kb":0,"shim_rss_kb":0,"survivors":0,"capture_error":null}%s}\n' "$line" "$1" >> ../job/job.jsonl
done; }; forge ""; forge ',"mac":"0000000000000000000000000000000000000000000000000000000000000000"';"#;

fn a_forged_record_is_nothing() {
    let killed = Room::sh(&format!("{FORGED} kill -9 $PPID; exit 1"));
    assert_eq!(ended(&mut killed.start()), JobEnd::Gone);
    assert_eq!(job::inspect(&killed.dir()).unwrap(), JobTrace::Gone);
    assert_eq!(job::foreign_lines(&killed.dir()), 6);
    let alone = Room::sh(&format!("{FORGED} exit 1"));
    assert_eq!(finish(&mut alone.start()).code, Some(1));
    assert!(matches!(job::inspect(&alone.dir()).unwrap(), JobTrace::Exited(exit) if exit.code == Some(1)));
    assert_eq!(job::foreign_lines(&alone.dir()), 6);
}

/// The end of an honest job, written again by the next one in the same folder: its signature holds.
fn a_record_of_before_is_nothing() {
    let replayed = || {
        let mut room = Room::sh("exit 0");
        room.run();
        let log = fs::read_to_string(room.dir().join("job.jsonl")).unwrap();
        fs::write(room.file("old"), log.lines().find(|line| line.contains("\"ended\"")).unwrap()).unwrap();
        job::clear(&room.dir()).unwrap();
        let script = "echo >> ../job/job.jsonl; cat old >> ../job/job.jsonl; kill -9 $PPID; exit 1";
        room.spec.argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        ended(&mut room.start())
    };
    assert_eq!(replayed(), JobEnd::Gone);
    planted::plant(Some(Bug::BelievesTheLog));
    let believed = replayed();
    planted::plant(None);
    assert!(matches!(believed, JobEnd::Exited(exit) if exit.ok()), "a supervisor that reads the log believes it");
}

fn a_record_that_is_not_signed_is_nothing() {
    let room = Room::sh(&format!("{FORGED} kill -9 $PPID; exit 1"));
    job::prepare(&room.dir(), &room.spec).unwrap();
    fs::write(room.file("run"), FORGED).unwrap();
    let status = Command::new("sh").arg("run").current_dir(room.file("")).status().unwrap();
    assert!(status.success());
    planted::plant(Some(Bug::BelievesUnsignedLines));
    let believed = job::inspect(&room.dir()).unwrap();
    planted::plant(None);
    assert!(matches!(believed, JobTrace::Exited(exit) if exit.ok()));
    assert_eq!(job::inspect(&room.dir()).unwrap(), JobTrace::Gone);
}

/// Puts a named pipe in the place of the log, and waits.
const PIPE: &str = "rm ../job/job.jsonl; mkfifo ../job/job.jsonl ../job/out.tail.0; echo $$ > pid; \
    while :; do sleep 0.01; done";

fn a_pipe_over_the_log_blocks_nothing() {
    let stopped = Room::sh(PIPE);
    let mut running = stopped.start();
    stopped.process("pid");
    assert!(job::sample(&stopped.dir()).unwrap().identity.is_some(), "its shim is known at first hand");
    assert_eq!(job::stop(&stopped.dir(), StopCause::Person).unwrap(), SignalResult::Signalled);
    assert_eq!(finish(&mut running).stopped, Some(StopCause::Person));

    let mut limited = Room::sh(PIPE);
    limited.spec.wall = Duration::from_millis(300);
    assert_eq!(finish(&mut limited.start()).stopped, Some(StopCause::Wall));
    assert_eq!(job::output(&limited.dir(), job::Stream::Out, 100).unwrap(), "");
    job::clear(&limited.dir()).unwrap();

    let killed = Room::sh(PIPE);
    let mut running = killed.start();
    let command = killed.process("pid");
    let folder = killed.dir();
    let found = std::thread::spawn(move || job::kill(&folder)).join().unwrap().unwrap();
    assert!(!matches!(found, JobTrace::Alive { .. }) && !command.is_alive(), "{found:?}");
    let end = ended(&mut running);
    assert!(!matches!(&end, JobEnd::Exited(exit) if exit.signal != Some(9)), "{end:?}");

    let waited = Room::sh(PIPE);
    fs::create_dir(waited.dir()).unwrap();
    nix::unistd::mkfifo(&waited.dir().join("job.jsonl"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (sender, receiver) = mpsc::channel();
    let dir = waited.dir();
    let planted = std::thread::spawn(move || {
        planted::plant(Some(Bug::FollowsStrangeLogs));
        job::sample(&dir).ok();
        sender.send(()).ok();
    });
    assert!(receiver.recv_timeout(Duration::from_millis(500)).is_err(), "a careless open waits for a writer");
    drop(fs::OpenOptions::new().read(true).write(true).open(waited.dir().join("job.jsonl")).unwrap());
    planted.join().unwrap();
}

fn what_is_over_an_output_is_not_followed() {
    for plant in ["ln -s ../work/precious", "ln ../work/precious", "mkfifo"] {
        let room = Room::sh(&format!("{plant} ../job/out.head; {plant} ../job/err.head; echo said; echo bad >&2"));
        fs::write(room.file("precious"), "kept").unwrap();
        assert_eq!(room.run().exit.code, Some(0));
        assert_eq!(fs::read_to_string(room.file("precious")).unwrap(), "kept", "{plant}");
        assert_eq!(room.out(), "said\n", "{plant}");
    }
}

/// Within the limit of the job, its grace period and eight seconds.
fn long_a_stopped_shim_is_killed() {
    let start = || {
        let mut room = Room::sh("setsid sleep 1000 & echo $! > far; kill -STOP $PPID; echo $$ > pid; sleep 1000");
        room.spec.wall = Duration::from_millis(100);
        room
    };
    let planted = std::thread::spawn(move || {
        planted::plant(Some(Bug::WaitsForEver));
        let room = start();
        let mut running = room.start();
        let given_up = block(async { tokio::time::timeout(Duration::from_secs(11), running.wait()).await.is_err() });
        job::kill(&room.dir()).unwrap();
        given_up
    });
    let room = start();
    let mut running = room.start();
    let (near, far) = (room.process("pid"), room.process("far"));
    assert_eq!(ended(&mut running), JobEnd::Overdue);
    assert!(!near.is_alive() && !far.is_alive());
    assert_eq!(job::inspect(&room.dir()).unwrap(), JobTrace::Gone);
    assert!(planted.join().unwrap(), "a supervisor without a deadline waits for ever");
}

/// A person's stop does not wait for that.
fn a_stopped_shim_stops() {
    let room = Room::sh("kill -STOP $PPID; echo $$ > pid; sleep 1000");
    let mut running = room.start();
    room.process("pid");
    job::stop(&room.dir(), StopCause::Person).unwrap();
    assert_eq!(finish(&mut running).stopped, Some(StopCause::Person));
}

/// Neither a session of its own, nor a cleared environment, nor both.
fn nothing_of_a_killed_shim_survives() {
    let far = |name: &str| format!("sh -c 'echo $$ > {name}; exec sleep 1000' > /dev/null 2>&1 &");
    let script = format!(
        "setsid {} env -i PATH=\"$PATH\" {} env -i PATH=\"$PATH\" setsid {} \
         while [ ! -e go ]; do sleep 0.01; done; kill -9 $PPID; sleep 1000",
        far("a"),
        far("b"),
        far("c")
    );
    let room = Room::sh(&script).confined(Confine::Tree);
    let mut running = room.start();
    let left: Vec<Identity> = ["a", "b", "c"].iter().map(|name| room.process(name)).collect();
    fs::write(room.file("go"), "").unwrap();
    assert_eq!(ended(&mut running), JobEnd::Gone);
    let alive: Vec<bool> = left.iter().map(Identity::is_alive).collect();
    assert_eq!(alive, [false; 3]);
}

fn a_mark_is_no_path() {
    let room = Room::sh("env");
    room.run();
    let out = room.out();
    let mark = out.lines().find_map(|line| line.strip_prefix("EVERLOOP_JOB=")).unwrap();
    assert_eq!(mark, job::mark(&room.dir()).unwrap());
    assert!(!out.contains(room.dir().to_str().unwrap()) && !mark.contains('/'), "{out}");
    assert!(!out.contains("JOB_KEY"), "{out}");
}

/// A shim of a supervisor without keys: it runs its job as before, and the next supervisor, which
/// cannot believe it, ends it.
fn a_job_of_the_first_version_is_lost() {
    let room = Room::sh("echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; exit 4");
    fs::create_dir(room.dir()).unwrap();
    let dir = room.dir().canonicalize().unwrap();
    let spec = serde_json::json!({"version": 1, "job": room.spec});
    let begin = || {
        fs::write(dir.join("job.jsonl"), format!("{spec}\n")).unwrap();
        fs::write(
            room.file("vars"),
            format!("PATH={}\0EVERLOOP_JOB={}\0", std::env::var("PATH").unwrap(), dir.display()),
        )
        .unwrap();
        let script = "exec 3< vars; exec \"$0\" __job \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(shim().exe).arg(&dir).current_dir(room.file(""));
        command.stdin(Stdio::null()).spawn().unwrap()
    };
    let mut old = begin();
    let command = room.process("pid");
    assert!(matches!(block(job::adopt(&dir)), Err(JobError::Silent { .. })));
    assert!(!command.is_alive());
    old.wait().unwrap();
    assert_eq!(job::inspect(&dir).unwrap(), JobTrace::Gone);

    fs::write(room.file("go"), "").unwrap();
    assert!(begin().wait().unwrap().success());
    let log = fs::read_to_string(dir.join("job.jsonl")).unwrap();
    assert!(log.contains("\"ended\"") && !log.contains("\"mac\""), "{log}");
    assert_eq!(job::record(&dir).unwrap().unwrap().exit.code, Some(4), "it is shown");
    assert_eq!(job::inspect(&dir).unwrap(), JobTrace::Gone, "and decides nothing");
}

/// Prints what a process finds out about itself.
pub fn inside(root: &Path, planted: &str) -> ExitCode {
    planted::plant((planted == "planted").then_some(Bug::CallersByVariable));
    let text = match job::inside_job(root) {
        Some(InsideJob::Of(dir)) => dir.display().to_string(),
        Some(InsideJob::Unknown) => "unknown".to_owned(),
        None => "none".to_owned(),
    };
    std::io::stdout().write_all(format!("{text}\n").as_bytes()).unwrap();
    ExitCode::SUCCESS
}

fn a_process_knows_that_it_is_in_a_job() {
    let other = tempfile::tempdir().unwrap();
    let exe = shim().exe.display().to_string();
    let mut room = Room::sh("true").confined(Confine::Tree);
    let root = room.root().display().to_string();
    let script = format!(
        "env -i setsid {exe} __inside {root} x > plain; (env -i setsid {exe} __inside {root} planted > planted &); \
         env -i {exe} __inside {} x > other; \
         env -i setsid sh -c 'echo up > waits; while grep -q . /proc/'$PPID'/cmdline; do sleep 0.01; done; {exe} __inside {root} x > orphan' 2> /dev/null & \
         while [ ! -s planted ] || [ ! -s waits ]; do sleep 0.01; done; echo $$ > pid; while :; do sleep 0.01; done",
        other.path().display(),
    );
    room.spec.argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let mut running = room.start();
    room.process("pid");
    let said = |name: &str| fs::read_to_string(room.file(name)).unwrap_or_default();
    assert_eq!(said("plain").trim(), room.dir().canonicalize().unwrap().display().to_string());
    assert_eq!((said("planted").trim(), said("other").trim()), ("none", "none"));
    // Without its supervisor's help, for as long as that takes.
    job::started(&room.dir()).unwrap().unwrap().shim.signal(Signal::SIGKILL).unwrap();
    let orphan = until("what the orphan found", || Some(said("orphan")).filter(|text| text.ends_with('\n')));
    assert_eq!(orphan.trim(), "unknown");
    assert_eq!(ended(&mut running), JobEnd::Gone);
    until_so("nothing is left", || job::inspect(&room.dir()).is_ok_and(|trace| trace == JobTrace::Gone));
    assert_eq!(job::inside_job(&room.root()), None, "this process is in no job of that folder");
}
