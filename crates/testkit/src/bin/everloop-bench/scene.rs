//! A temporary home, state folder and project, and everloop in it with a cleared environment.
//! Removed when dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everloop_store::{Ledger, LoopRow, OpenMode, Sqlite};
use tempfile::TempDir;

use crate::research::METRIC_STAMPS;
use crate::{Options, Result};

/// Longest wait for something that takes milliseconds; beyond it something is broken.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait for thousands of them.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);

/// Where programs are looked for.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The file in which agents leave their times.
pub const STAMPS: &str = "stamps";

/// The kind of project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Project {
    /// A folder without git.
    Plain,
    /// A git repository with one commit.
    Git,
    /// A git repository with this many files.
    Large(u32),
}

impl Project {
    pub fn label(self) -> &'static str {
        match self {
            Project::Plain => "folder without git",
            Project::Git => "git repository",
            Project::Large(_) => "large git repository",
        }
    }
}

/// The folders of one measurement.
pub struct Scene {
    root: TempDir,
    everloop: PathBuf,
    bench: PathBuf,
}

impl Scene {
    pub fn new(options: &Options, project: Project) -> Result<Self> {
        let root = tempfile::Builder::new().prefix("everloop-bench.").tempdir_in(&options.dir)?;
        for name in ["home", "project"] {
            std::fs::create_dir(root.path().join(name))?;
        }
        std::fs::write(root.path().join(STAMPS), "")?;
        let scene = Self { root, everloop: options.everloop.clone(), bench: std::env::current_exe()? };
        match project {
            Project::Plain => {}
            Project::Git => scene.make_repository()?,
            Project::Large(files) => {
                scene.fill(files)?;
                scene.make_repository()?;
            }
        }
        Ok(scene)
    }

    /// This many small files, a hundred in each folder.
    fn fill(&self, files: u32) -> Result<()> {
        for number in 0..files {
            let folder = self.project().join(format!("part-{}/folder-{}", number / 2500, number / 100));
            if number % 100 == 0 {
                std::fs::create_dir_all(&folder)?;
            }
            std::fs::write(folder.join(format!("file-{number}.txt")), format!("the text of file {number}\n"))?;
        }
        Ok(())
    }

    fn make_repository(&self) -> Result<()> {
        std::fs::write(self.project().join("README"), "a project\n")?;
        self.git(&[&["init", "-q", "-b", "main"]])?;
        self.commit("begin")
    }

    /// Makes `metric.sh` of the project, and the file in which it leaves its times.
    pub fn measured_by(&self, script: &str) -> Result<()> {
        std::fs::write(self.path(METRIC_STAMPS), "")?;
        std::fs::write(self.project().join("metric.sh"), format!("{script}\n"))?;
        self.commit("a metric")
    }

    /// Commits everything in the project.
    pub fn commit(&self, message: &str) -> Result<()> {
        self.git(&[&["add", "-A"], &["commit", "-q", "-m", message]])
    }

    fn git(&self, calls: &[&[&str]]) -> Result<()> {
        let me = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        for args in calls {
            let status = self.clean(Path::new("git")).args(me).args(*args).current_dir(self.project()).status()?;
            if !status.success() {
                return Err(format!("git {args:?} ended with {status}").into());
            }
        }
        Ok(())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn project(&self) -> PathBuf {
        self.path("project")
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// A program with nothing in its environment but a path and the temporary home.
    pub fn clean(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", PATH).env("HOME", self.path("home"));
        command.stdin(Stdio::null());
        command
    }

    /// everloop in the project; its stderr is dropped.
    pub fn everloop(&self, args: &[&str]) -> Command {
        let mut command = self.clean(&self.everloop);
        command.arg("--state-dir").arg(self.state()).args(args).current_dir(self.project());
        if matches!(args, ["run" | "research", ..]) {
            // Turns are isolated, and agents leave their times here.
            command.arg("--writable").arg(self.path(STAMPS));
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// The shell words with which this binary becomes an agent.
    pub fn agent(&self, words: &str) -> String {
        format!("'{}' {words}", self.bench.display())
    }

    /// Runs everloop to its end; any exit code but `wanted` is an error with its last output.
    pub fn finish(&self, args: &[&str], wanted: i32) -> Result<Duration> {
        let start = Instant::now();
        let done = self.everloop(args).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        let took = start.elapsed();
        if done.status.code() == Some(wanted) {
            return Ok(took);
        }
        let words = [done.stdout, done.stderr].concat();
        let words = String::from_utf8_lossy(&words);
        let from = words.char_indices().rev().nth(2000).map_or(0, |(i, _)| i);
        Err(format!("everloop {args:?} ended with {}, not {wanted}:\n{}", done.status, &words[from..]).into())
    }

    /// Opens the ledger.
    pub fn ledger(&self, mode: OpenMode) -> Result<Sqlite> {
        Ok(Sqlite::open(&self.state().join("ledger.db"), mode)?)
    }

    /// The only loop of the ledger.
    pub fn only_loop(&self) -> Result<LoopRow> {
        let rows = self.ledger(OpenMode::ReadOnly)?.loops()?;
        rows.into_iter().next().ok_or_else(|| "there is no loop".into())
    }
}

/// A supervisor that is ended with the scene, by its pid.
pub struct Supervised(Child);

impl Supervised {
    /// Starts `everloop up` and waits until it supervises.
    pub fn start(scene: &Scene) -> Result<Self> {
        let mut supervised = Self(scene.everloop(&["up"]).spawn()?);
        let wake_pipe = scene.state().join("bell");
        wait_until("the supervisor to start", || Ok(wake_pipe.exists()))?;
        match supervised.0.try_wait()? {
            None => Ok(supervised),
            Some(status) => Err(format!("`everloop up` ended with {status}").into()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // No clean shutdown is needed here. An error means that it is already gone.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Polls until the condition holds.
pub fn wait_until(what: &str, holds: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(WAIT_TIMEOUT, what, holds)
}

/// The same for what takes thousands of steps.
pub fn wait_long(what: &str, holds: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(LONG_TIMEOUT, what, holds)
}

fn wait_for(timeout: Duration, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !holds()? {
        if start.elapsed() > timeout {
            return Err(format!("waited {} s for {what}", timeout.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
