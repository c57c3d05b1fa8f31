//! The shim: a small process between supervisor and command that outlives the supervisor.
//! Single-threaded.
//!
//! Owns the order of the steps: lock, isolate, report the identity, launch, watch, sweep, write the
//! record.
//! - [`isolate`]: what a fresh process has to undo and take; [`launch`]: the command itself
//! - [`watch`]: the loop while it runs; [`pump`]: its output; [`sweep`]: what it leaves behind

mod isolate;
mod launch;
mod pump;
mod sweep;
mod watch;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use everloop_core::event::{Exit, StopCause};
use everloop_core::time::Time;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::sys::wait::WaitStatus;

use self::isolate::Signals;
pub(super) use self::isolate::stand_alone;
use self::pump::Pump;
use self::sweep::Swept;
use self::watch::ShimWatch;
use super::cgroup::Cgroup;
use super::error::JobError;
use super::job_log::{JobLogEntry, JobRecord, ShimLog, Started};
use super::link::ShimLink;
use super::spec::{Confine, Spec};
use super::tree::ProcessTree;
use super::turn_socket::TurnSocket;
use super::{carried, fork_server, temporary};
use crate::clock;
use crate::isolation::SharedRules;
use crate::process::{self, Identity};

/// The job was run (whatever its result) and its record is written.
const DONE: i32 = 0;
/// The shim failed: nothing was run, or the record could not be written.
const FAILED: i32 = 1;
/// Another shim runs the job, or it was cancelled, or it is over.
pub(super) const REFUSED: i32 = 3;

/// Entry point of `__job <dir>` in the main binary: runs the job in `dir` and returns the exit code
/// of the shim.
pub fn run_shim(dir: &Path) -> i32 {
    if fork_server::is_asked_for(dir) {
        return fork_server::serve(dir);
    }
    // There is no channel for an error: the supervisor finds no record and treats the job as gone.
    attend(dir, Birth::Executed).unwrap_or(FAILED)
}

/// The same in a process that a server forked.
pub(super) fn run_forked(dir: &Path) -> i32 {
    attend(dir, Birth::Forked).unwrap_or(FAILED)
}

/// How this process became a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Birth {
    Executed,
    Forked,
}

fn attend(dir: &Path, birth: Birth) -> Result<i32, JobError> {
    process::hide_memory();
    isolate::stand_alone();
    isolate::close_inherited_on_exec();
    let link = ShimLink::take();
    let mut vars = carried::unpack().map_err(JobError::io("read the variables of", dir))?;
    if birth == Birth::Forked {
        carried::set_open(&vars);
    }
    let key = carried::take_key(&mut vars);
    let shared = carried::take_rules(&mut vars);
    let Some(log) = ShimLog::lock(dir, key)? else { return Ok(REFUSED) };
    let known = log.read().map_err(JobError::io("read the log of", dir))?;
    if known.cancelled || known.ended.is_some() {
        return Ok(REFUSED);
    }
    let started_at = clock::now();
    let mut pump = None;
    let reporter = Reporter { log, link };
    let ran = known
        .into_spec(dir)
        .and_then(|spec| run(&Attended { dir, spec: &spec, vars, shared, started_at, reporter: &reporter }, &mut pump));
    let record = ran.unwrap_or_else(|why| never_ran(started_at, Some(why), None));
    let ended = JobLogEntry::Ended(Box::new(record));
    if reporter.report(&ended).is_err() {
        // On a full disk the record is worth more than the end of the output.
        if let Some(pump) = &mut pump {
            pump.drop_tails();
        }
        reporter.log.add(&reporter.log.line(&ended)).map_err(JobError::io("write the log of", dir))?;
    }
    Ok(DONE)
}

/// How the shim reports: to the supervisor that started it, and to the log for the next one.
#[derive(Debug)]
struct Reporter {
    log: ShimLog,
    link: ShimLink,
}

impl Reporter {
    fn report(&self, entry: &JobLogEntry) -> io::Result<()> {
        let line = self.log.line(entry);
        self.link.send(&line);
        self.log.add(&line)
    }
}

/// The job of this shim.
struct Attended<'a> {
    dir: &'a Path,
    spec: &'a Spec,
    /// The variables of the command, and those to hide from it.
    vars: Vec<(OsString, OsString)>,
    /// Rules that the supervisor made for many commands.
    shared: Option<SharedRules>,
    started_at: Time,
    reporter: &'a Reporter,
}

/// From the identity report to the exit. An error means that the command was never started.
fn run(job: &Attended<'_>, kept: &mut Option<Pump>) -> Result<JobRecord, String> {
    let Attended { dir, spec, started_at, reporter, .. } = *job;
    let signals = Signals::take().map_err(|e| format!("signals: {e}"))?;
    isolate::adopt_orphans().map_err(|e| format!("subreaper: {e}"))?;
    let shim = Identity::current().map_err(|e| e.to_string())?;
    let cgroup = match spec.confine {
        Confine::Cgroup => Cgroup::create(&format!("{}-{}", shim.pid, shim.start_ticks)),
        Confine::Tree => None,
    };
    if let (Some(cgroup), Some(isolation)) = (&cgroup, &spec.isolation) {
        cgroup.limit(isolation.max_processes, isolation.max_memory_mb);
    }
    let mut tree = ProcessTree { root: shim.pid, cgroup };
    let tmp = spec.isolation.as_ref().map(|_| temporary::make()).transpose()?;
    say_started(reporter, Started { shim, cgroup: cgroup_path(&tree), started_at, tmp: tmp.clone() })?;
    // A stop request is written before the shim is looked up; the shim reports its identity before
    // it reads stop requests. So one of the two always sees the other.
    if let Some(cause) = reporter.log.stop_cause() {
        leave(&tree, tmp.as_deref());
        return Ok(never_ran(started_at, None, Some(cause)));
    }
    let mut socket = TurnSocket::listen(tmp.as_deref(), &job.vars);
    let around = launch::Around {
        vars: &job.vars,
        tmp: tmp.as_deref(),
        socket: socket.path(),
        cgroup: tree.cgroup.as_ref(),
        shared: job.shared.as_ref(),
    };
    let launched = match launch::launch(spec, around) {
        Ok(launched) => launched,
        Err(e) => {
            leave(&tree, tmp.as_deref());
            return Err(e);
        }
    };
    if tree.cgroup.is_some() && !launched.grouped {
        leave(&tree, None);
        tree.cgroup = None;
        let shim = Identity::current().map_err(|e| e.to_string())?;
        say_started(reporter, Started { shim, cgroup: None, started_at, tmp: tmp.clone() }).ok();
    }
    let pump = kept.insert(Pump::new(dir, spec, &job.vars, (launched.out, launched.err)));
    let mut watch = ShimWatch::new(&reporter.log, spec, (&signals, &tree), launched.pid);
    watch.run(pump, &mut socket);
    socket.close();
    let gentle = if watch.is_killing() { Duration::ZERO } else { sweep::GENTLE };
    let swept = sweep::sweep(&tree, &signals, pump, gentle);
    pump.finish();
    let record = describe(&watch, pump, swept, started_at);
    leave(&tree, tmp.as_deref());
    Ok(record)
}

fn say_started(reporter: &Reporter, started: Started) -> Result<(), String> {
    reporter.report(&JobLogEntry::Started(started)).map_err(|e| format!("cannot write the job's log: {e}"))
}

fn cgroup_path(tree: &ProcessTree) -> Option<std::path::PathBuf> {
    tree.cgroup.as_ref().map(|c| c.path().to_owned())
}

/// Removes the control group, which is empty by now, and the command's temporary files.
fn leave(tree: &ProcessTree, tmp: Option<&Path>) {
    if let Some(tmp) = tmp {
        temporary::remove(tmp);
    }
    if let Some(cgroup) = &tree.cgroup {
        // A killed process leaves the group a moment after it stopped running.
        let end = Instant::now() + Duration::from_millis(200);
        while !cgroup.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        cgroup.remove();
    }
}

fn never_ran(started_at: Time, spawn_error: Option<String>, stopped: Option<StopCause>) -> JobRecord {
    let exit = Exit { spawn_error, stopped, started_at, ended_at: clock::now(), ..Exit::default() };
    JobRecord { exit, ..JobRecord::default() }
}

fn describe(watch: &ShimWatch<'_>, pump: &Pump, swept: Swept, started_at: Time) -> JobRecord {
    let (code, signal) = match watch.status() {
        Some(WaitStatus::Exited(_, code)) => (Some(code), None),
        Some(WaitStatus::Signaled(_, signal, _)) => (None, Some(signal as i32)),
        _ => (None, None),
    };
    let exit = Exit {
        code,
        signal,
        spawn_error: None,
        started_at,
        ended_at: watch.ended_at().unwrap_or_else(clock::now),
        out_bytes: pump.bytes(),
        tail: pump.last_text(),
        backoff_ms: pump.backoff().map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        stopped: watch.cause(),
        leftovers: swept.leftovers,
        report: None,
        base: None,
        wish: None,
    };
    let (cpu_ms, max_rss_kb) = getrusage(UsageWho::RUSAGE_CHILDREN).map_or((0, 0), |u| {
        let cpu = u.user_time().num_milliseconds() + u.system_time().num_milliseconds();
        (u64::try_from(cpu).unwrap_or(0), u64::try_from(u.max_rss()).unwrap_or(0))
    });
    JobRecord {
        exit,
        cpu_ms,
        max_rss_kb,
        shim_rss_kb: isolate::peak_memory_kb(),
        survivors: swept.survivors,
        capture_error: pump.capture_error(),
    }
}
