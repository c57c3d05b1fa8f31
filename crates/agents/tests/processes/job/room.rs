//! One builder for all tests: a room with a job's folder, a working folder, and helpers that wait
//! with a deadline.

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use everloop_agents::environment::Environment;
use everloop_agents::job::{self, Confine, JobEnd, JobRecord, Running, ShimProgram, Spec};
use everloop_agents::process::Identity;
use everloop_testkit::wait;

/// Nothing here takes this long unless it hangs.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(150);

/// A job with its folders.
pub struct Room {
    temp: tempfile::TempDir,
    pub spec: Spec,
    pub env: Environment,
}

impl Room {
    /// A job that runs `script` in a shell, in a working folder of its own.
    pub fn sh(script: &str) -> Self {
        Self::with_argv(&["sh", "-c", script])
    }

    /// A job that runs a program directly.
    pub fn with_argv(argv: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let work = temp.path().join("work");
        fs::create_dir(&work).unwrap();
        // The secret of a state folder, from which all processes derive the keys of its jobs.
        fs::write(temp.path().join("ledger.key"), temp.path().to_str().unwrap()).unwrap();
        let argv = argv.iter().map(|&a| a.to_owned()).collect();
        let spec = Spec { grace: Duration::from_millis(300), wall: WAIT_TIMEOUT, ..Spec::new(argv, &work) };
        Self { temp, spec, env: Environment::from_ours(&[]) }
    }

    /// The same with another way to contain processes.
    pub fn confined(mut self, confine: Confine) -> Self {
        self.spec.confine = confine;
        self
    }

    pub fn dir(&self) -> PathBuf {
        self.temp.path().join("job")
    }

    /// The folder above the job's, as a state folder is.
    pub fn root(&self) -> PathBuf {
        self.temp.path().canonicalize().unwrap()
    }

    /// A file in the working folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.temp.path().join("work").join(name)
    }

    /// Writes the job and starts it.
    pub fn start(&self) -> Running {
        job::prepare(&self.dir(), &self.spec).unwrap();
        self.start_prepared(&shim())
    }

    /// Starts a job that is already written.
    pub fn start_prepared(&self, shim: &ShimProgram) -> Running {
        job::start(shim, &self.dir(), self.vars()).unwrap()
    }

    /// The environment as `start` takes it.
    pub fn vars(&self) -> Vec<(OsString, OsString)> {
        self.env.clone().into_vars()
    }

    /// Runs the job to its end.
    pub fn run(&self) -> JobRecord {
        finish(&mut self.start());
        job::record(&self.dir()).unwrap().unwrap()
    }

    /// Waits for a file that the command writes, and returns the process with the pid in it.
    pub fn process(&self, name: &str) -> Identity {
        let path = self.file(name);
        until(&format!("a process in `{name}`"), || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n').then(|| Identity::of(text.trim().parse().ok()?)).flatten()
        })
    }

    /// The kept part of standard output.
    pub fn out(&self) -> String {
        job::output(&self.dir(), job::Stream::Out, 1 << 20).unwrap()
    }
}

/// This binary as shim.
pub fn shim() -> ShimProgram {
    ShimProgram::current().unwrap()
}

/// Waits for a job that leaves a record.
pub fn finish(running: &mut Running) -> everloop_core::event::Exit {
    match ended(running) {
        JobEnd::Exited(exit) => exit,
        JobEnd::Gone => panic!("the job is gone"),
        JobEnd::Overdue => panic!("the job is overdue"),
    }
}

/// Waits for a job.
pub fn ended(running: &mut Running) -> JobEnd {
    block(running.wait()).unwrap()
}

/// Runs a future with a deadline.
pub fn block<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(WAIT_TIMEOUT, future).await.expect("it hangs") })
}

/// Looks until there is something, with a deadline.
#[track_caller]
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait::wait_for(what, WAIT_TIMEOUT, look)
}

/// Looks until it is so, with a deadline.
#[track_caller]
pub fn until_so(what: &str, look: impl FnMut() -> bool) {
    wait::wait_until(what, WAIT_TIMEOUT, look);
}
