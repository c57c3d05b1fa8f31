//! Runs the checks of a loop and reports their verdicts. Owns how one run of a command becomes a
//! verdict; when a verdict is surprising enough for another run is the core's rule.
//!
//! A check is a configured command, but it runs the agent's work: it may hang, flood, leave
//! processes behind or edit the check itself. So each run is a job like a turn, in its own folder,
//! contained and capped.

mod evidence;
mod go;
mod output;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_core::event::{Exit, StopCause};
use everloop_core::isolation::Isolation;
use everloop_core::planted::{self, Bug};
use everloop_core::research::sample::{Measured, Sample, crash_kind};
use everloop_core::research::{MetricSpec, metric};
use everloop_core::scoreboard::{self, CheckResult, CheckRun, Scoreboard, Verdict};
use everloop_core::spec::CheckSpec;
use everloop_core::test_evidence::{self, Reading, Reference};
use everloop_core::time::human;
use tokio::task::JoinSet;

use crate::environment::{Environment, Hidden, Outside};
use crate::job::{self, Errors, JobEnd, OutputCaps, ShimProgram, Spec, Stream};
use crate::protect;

pub use evidence::{EvidenceError, evidence_pattern};

/// Both ends of a check's output; a person and a prompt see the last 4 KB of it.
const CAPS: OutputCaps = OutputCaps { head_bytes: 256 << 10, tail_bytes: 256 << 10 };

/// Everything that is kept.
const READ_BYTES: u64 = CAPS.head_bytes + CAPS.tail_bytes;

/// A check has nothing to save: SIGKILL follows SIGTERM soon.
const GRACE: Duration = Duration::from_secs(2);

/// Checks that run beside each other at a time; more would wait for the processors anyway.
const BESIDE: usize = 8;

/// Exit codes of a shell that did not find the program or could not run it.
const CANNOT_START: [i32; 2] = [126, 127];

/// Runs of a command whose shims vanish: one may be an accident, three are the command's doing.
const VANISHED_RUNS: usize = 3;

/// A check could not be run for a reason that is not about the check itself.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The job runner failed.
    #[error("could not run the check `{name}`")]
    Job { name: String, source: job::JobError },
    /// The folder for jobs is not usable.
    #[error("could not clear `{}`", .path.display())]
    Files { path: PathBuf, source: io::Error },
}

/// Runs the checks of a loop as jobs.
#[derive(Clone, Debug)]
pub struct Checker {
    /// The program that becomes a shim.
    pub shim: ShimProgram,
    /// A folder for this loop's check jobs alone; its contents are cleared before every use.
    pub jobs: PathBuf,
    /// The environment that they are given parts of.
    pub outside: Outside,
    /// Names of variables that checks may see besides the allow list. Their values are redacted
    /// from the output.
    pub pass_env: Vec<String>,
    /// What checks may reach.
    pub isolation: Option<Isolation>,
    /// Secrets to redact although checks cannot see them: an agent may have written one to a file.
    pub hide: Vec<Hidden>,
}

/// The input of one round of checks.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The checks, in order.
    pub checks: &'a [CheckSpec],
    /// The folder in which they run.
    pub cwd: &'a Path,
    /// The verdicts of the round before.
    pub before: Option<&'a Scoreboard>,
    /// Whether the tree differs from the one of those verdicts.
    pub changed: bool,
}

/// One run with its output.
struct Attempt {
    run: CheckRun,
    output: String,
    took: Duration,
    reading: Reading,
}

impl Checker {
    /// Runs all checks: those that may run beside each other first, then the others one by one.
    pub async fn run(&self, question: Question<'_>) -> Result<Scoreboard, CheckError> {
        self.clear().await?;
        let mut rows = self.run_beside(question).await?;
        for (number, check) in question.checks.iter().enumerate().filter(|(_, check)| !check.parallel) {
            rows.push((number, self.judge(check, number, question).await?));
        }
        rows.sort_by_key(|(number, _)| *number);
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        // The jobs have ended, so this does not wait.
        self.clear_now()?;
        Ok(Scoreboard(rows))
    }

    /// Runs the checks that may run beside each other, at most `BESIDE` at once.
    async fn run_beside(&self, question: Question<'_>) -> Result<Vec<(usize, CheckResult)>, CheckError> {
        let mut todo = question.checks.iter().enumerate().filter(|(_, check)| check.parallel);
        let (mut running, mut rows) = (JoinSet::new(), Vec::new());
        loop {
            while running.len() < BESIDE
                && let Some((number, check)) = todo.next()
            {
                let (checker, check, cwd) = (self.clone(), check.clone(), question.cwd.to_owned());
                let (before, changed) = (question.before.cloned(), question.changed);
                running.spawn(async move {
                    let question = Question { checks: &[], cwd: &cwd, before: before.as_ref(), changed };
                    Ok((number, checker.judge(&check, number, question).await?))
                });
            }
            let Some(row) = running.join_next().await else { return Ok(rows) };
            rows.push(
                row.unwrap_or_else(|e| {
                    Err(CheckError::Files { path: self.jobs.clone(), source: io::Error::other(e) })
                })?,
            );
        }
    }

    /// Ends check jobs that an earlier supervisor left, and removes their output.
    pub async fn clear(&self) -> Result<(), CheckError> {
        // By far the usual case, and not worth a thread.
        if fs::read_dir(&self.jobs).is_ok_and(|entries| entries.flatten().all(|e| job::is_clear(&e.path()))) {
            return Ok(());
        }
        let checker = self.clone();
        let cleared = tokio::task::spawn_blocking(move || checker.clear_now()).await;
        cleared.unwrap_or_else(|e| Err(CheckError::Files { path: self.jobs.clone(), source: io::Error::other(e) }))
    }

    fn clear_now(&self) -> Result<(), CheckError> {
        let failed = |source| CheckError::Files { path: self.jobs.clone(), source };
        let entries = match fs::read_dir(&self.jobs) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        for dir in entries.flatten().map(|e| e.path()) {
            job::clear(&dir).map_err(|source| CheckError::Job { name: dir.display().to_string(), source })?;
        }
        Ok(())
    }

    /// Runs one check as often as the verdict needs.
    async fn judge(&self, check: &CheckSpec, number: usize, question: Question<'_>) -> Result<CheckResult, CheckError> {
        let row = question.before.and_then(|b| b.0.iter().find(|r| r.name == check.name));
        let before = row.map(|r| &r.verdict);
        // Without a round before, these are the first counts; without any in it, nothing is compared.
        let known = row.map(|r| r.reference);
        let mut reading = Reading::default();
        let mut runs = Vec::new();
        let mut shown = String::new();
        let mut took = Duration::ZERO;
        while scoreboard::run_again(before, question.changed, &runs) {
            let dir = self.jobs.join(format!("{number}-{}", runs.len()));
            let attempt = self.attempt(check, question.cwd, &dir, known.flatten().as_ref()).await?;
            took += attempt.took;
            // Of several runs, the output of a failed one is more useful.
            if attempt.run != CheckRun::Passed || runs.iter().all(|run| *run == CheckRun::Passed) {
                shown = go::without_passes(attempt.output);
            }
            reading = attempt.reading;
            runs.push(attempt.run);
        }
        let verdict = scoreboard::verdict(&runs);
        let reference = test_evidence::reference(known, &reading, verdict.passes());
        let fingerprint = match &verdict {
            Verdict::Pass => 0,
            Verdict::Fail | Verdict::Flaky { .. } => output::fingerprint(&shown, question.cwd),
            Verdict::Broken { why } | Verdict::Suspicious { why } => output::fingerprint(why, question.cwd),
        };
        Ok(CheckResult {
            name: check.name.clone(),
            verdict,
            weight: check.weight,
            millis: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            output: output::both_ends(&shown),
            fingerprint,
            reference,
        })
    }

    /// One run. The pin is verified before and after it: a check that edits itself proves nothing.
    async fn attempt(
        &self,
        check: &CheckSpec,
        cwd: &Path,
        dir: &Path,
        known: Option<&Reference>,
    ) -> Result<Attempt, CheckError> {
        if let Err(why) = protect::pin_holds(&check.pin, &check.run, cwd) {
            let (run, reading) = (CheckRun::Broken(why), Reading::default());
            return Ok(Attempt { run, output: String::new(), took: Duration::ZERO, reading });
        }
        let failed = |source| CheckError::Job { name: check.name.clone(), source };
        let ended = self.finish(check, cwd, dir).await.map_err(failed)?;
        let output = job::both_ends(dir, Stream::Out, READ_BYTES).map_err(failed)?;
        let (run, took) = match ended {
            JobEnd::Gone => (CheckRun::Broken("the process vanished".to_owned()), Duration::ZERO),
            JobEnd::Overdue => {
                let why = format!("timed out after {}; its shim did not respond and was killed", human(check.timeout));
                (CheckRun::Broken(why), check.timeout)
            }
            JobEnd::Exited(exit) => (reading(&exit, check, &output), exit.ended_at.since(exit.started_at)),
        };
        let run = match protect::pin_holds(&check.pin, &check.run, cwd) {
            Err(why) if !matches!(run, CheckRun::Broken(_)) => CheckRun::Broken(why),
            _ => run,
        };
        let (doubt, reading) = evidence::weigh(&check.proof, known, &output);
        let doubt = doubt.or_else(|| tampering(dir));
        let run = match (run, doubt) {
            (CheckRun::Passed, Some(why)) => CheckRun::Suspicious(why),
            (run, _) => run,
        };
        Ok(Attempt { run, output, took, reading })
    }

    /// Measures: one run of a metric's command, within its limit.
    pub async fn measure(&self, metric: &MetricSpec, cwd: &Path, limit: Duration) -> Result<Sample, CheckError> {
        self.clear().await?;
        let check = CheckSpec { timeout: limit, ..metric.check.clone() };
        let sample = self.sample(metric, &check, cwd).await?;
        self.clear_now()?;
        Ok(sample)
    }

    async fn sample(&self, metric: &MetricSpec, check: &CheckSpec, cwd: &Path) -> Result<Sample, CheckError> {
        let unreadable = |why: String, millis| Sample { result: Measured::Unreadable { why }, millis };
        if let Err(why) = protect::pin_holds(&check.pin, &check.run, cwd) {
            return Ok(unreadable(why, 0));
        }
        let (dir, failed) = (self.jobs.join("metric"), |source| CheckError::Job { name: check.name.clone(), source });
        let ended = self.finish(check, cwd, &dir).await.map_err(failed)?;
        let output = job::both_ends(&dir, Stream::Out, READ_BYTES).map_err(failed)?;
        let limit_ms = u64::try_from(check.timeout.as_millis()).unwrap_or(u64::MAX);
        let exit = match ended {
            JobEnd::Gone => return Ok(unreadable("the process vanished".to_owned(), 0)),
            JobEnd::Overdue => return Ok(Sample { result: Measured::Timeout { limit_ms }, millis: limit_ms }),
            JobEnd::Exited(exit) => exit,
        };
        let millis = u64::try_from(exit.ended_at.since(exit.started_at).as_millis()).unwrap_or(u64::MAX);
        if let Err(why) = protect::pin_holds(&check.pin, &check.run, cwd) {
            return Ok(unreadable(why, millis));
        }
        if let Some(why) = tampering(&dir) {
            return Ok(unreadable(why, millis));
        }
        let result = match (&exit.spawn_error, exit.stopped, exit.code) {
            (Some(why), _, _) => Measured::Unreadable { why: format!("cannot start: {why}") },
            (None, Some(StopCause::Wall), _) => Measured::Timeout { limit_ms },
            (None, Some(cause), _) => Measured::Unreadable { why: format!("stopped: {}", cause.describe()) },
            (None, None, Some(0)) => match metric::read(&output, metric) {
                Ok(reading) => Measured::Value { value: reading.value, others: reading.others },
                Err(error) => Measured::Unreadable { why: error.to_string() },
            },
            (None, None, code) => {
                let (kind, text) = (crash_kind(code, exit.signal, &output), output::both_ends(&output));
                Measured::Crash { kind, text }
            }
        };
        Ok(Sample { result, millis })
    }

    /// Runs a command until a run has an end. A run without one says nothing about the command: its
    /// shim was killed. A command that kills its own shim does so every time.
    async fn finish(&self, check: &CheckSpec, cwd: &Path, dir: &Path) -> Result<JobEnd, job::JobError> {
        let runs = if planted::is(Bug::VanishedRunsCount) { 1 } else { VANISHED_RUNS };
        for _ in 1..runs {
            match self.execute(check, cwd, dir).await? {
                JobEnd::Gone => job::clear(dir)?,
                ended @ (JobEnd::Overdue | JobEnd::Exited(_)) => return Ok(ended),
            }
        }
        self.execute(check, cwd, dir).await
    }

    async fn execute(&self, check: &CheckSpec, cwd: &Path, dir: &Path) -> Result<JobEnd, job::JobError> {
        let argv = ["sh", "-c", &check.run].map(str::to_owned).to_vec();
        let spec = Spec {
            wall: check.timeout,
            grace: GRACE,
            caps: CAPS,
            secrets: self.pass_env.clone(),
            backoff_word: None,
            errors: Errors::WithOutput,
            isolation: self.isolation.clone(),
            ..Spec::new(argv, cwd)
        };
        job::prepare(dir, &spec)?;
        let mut env = Environment::from(&self.outside, &self.pass_env).hiding(&self.hide);
        if protect::judge_files([check.run.as_str()], cwd, Path::new("")).tests_go() {
            env = go::naming_tests(env);
        }
        let env = env.into_vars();
        job::start(&self.shim, dir, env)?.wait().await
    }
}

/// Why a pass is not believed although the lines have no effect: no honest command writes into the
/// log of its job.
fn tampering(dir: &Path) -> Option<String> {
    let lines = job::foreign_lines(dir);
    (lines > 0).then(|| format!("the log of its job holds what everloop did not write ({lines} lines)"))
}

/// The verdict of one run.
fn reading(exit: &Exit, check: &CheckSpec, output: &str) -> CheckRun {
    match (&exit.spawn_error, exit.stopped, exit.code) {
        (Some(why), _, _) => CheckRun::Broken(format!("cannot start: {why}")),
        (None, Some(StopCause::Wall), _) => CheckRun::Broken(format!("timed out after {}", human(check.timeout))),
        (None, Some(cause), _) => CheckRun::Broken(format!("stopped: {}", cause.describe())),
        (None, None, Some(0)) => CheckRun::Passed,
        (None, None, Some(code)) if CANNOT_START.contains(&code) => CheckRun::Broken(format!(
            "cannot start: {}",
            output::last_line(output).unwrap_or("the shell gives no reason")
        )),
        (None, None, _) => CheckRun::Failed,
    }
}
