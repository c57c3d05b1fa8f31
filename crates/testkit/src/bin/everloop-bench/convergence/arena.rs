//! The program with the problems, the scripted proposer and the other methods: `arena.py`, run by
//! the Python in which openevolve and gepa are installed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;

use crate::Result;

/// The program with the problems and the other methods.
pub const ARENA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/research/arena.py");
/// Names the folder that `research-peers.sh` printed.
const VARIABLE: &str = "EVERLOOP_RESEARCH_PEERS";

/// The best value after each evaluation of a run.
#[derive(Debug, Deserialize)]
pub struct Curve {
    pub best: Vec<f64>,
    /// Of the whole run, and of its evaluations.
    pub seconds: f64,
    pub evaluating: f64,
}

impl Curve {
    pub fn after(&self, evaluations: usize) -> Option<f64> {
        self.best.get(evaluations.checked_sub(1)?).copied()
    }

    /// Milliseconds per evaluation that were not spent in it.
    pub fn beyond_ms(&self) -> f64 {
        1e3 * (self.seconds - self.evaluating).max(0.0) / self.best.len().max(1) as f64
    }
}

/// Where the packages are installed.
pub struct Place {
    python: PathBuf,
}

impl Place {
    /// `None` without the packages.
    pub fn find() -> Option<Self> {
        let python = PathBuf::from(std::env::var_os(VARIABLE)?).join("bin/python3");
        python.exists().then_some(Self { python })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        // One thread, and no help from outside: every method computes in the same way.
        command.env_clear().env("PATH", crate::scene::PATH).env("OMP_NUM_THREADS", "1").env("HOME", "/nonexistent");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub fn versions(&self) -> Result<String> {
        let script = "from importlib.metadata import version\n\
            print(', '.join(f'{name} {version(name)}' for name in ('openevolve', 'gepa', 'scipy')))";
        let done = self.command().args(["-c", script]).output()?;
        Ok(String::from_utf8(done.stdout)?.trim().to_owned())
    }

    /// Lets another method play.
    pub fn play(&self, method: &str, landscape: &str, seed: u32, budget: usize) -> Result<Curve> {
        let (seed, budget) = (seed.to_string(), budget.to_string());
        let done = self.command().args([ARENA, "play", method, landscape, &seed, &budget]).output()?;
        if !done.status.success() {
            return Err(format!("{method} on {landscape} with seed {seed} ended with {}", done.status).into());
        }
        Ok(serde_json::from_slice(&done.stdout)?)
    }

    /// Proposals one at a time.
    pub fn serve(&self, landscape: &str, seed: u32) -> Result<Proposals> {
        let mut command = self.command();
        command.args([ARENA, "serve", landscape, &seed.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("it has an output")?);
        Ok(Proposals { child, input, output })
    }
}

/// A program that makes and evaluates one proposal at a time.
pub struct Proposals {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Proposals {
    /// The value of the next candidate: the first one is the start, all others have a parent.
    pub fn next(&mut self, parent: Option<u32>) -> Result<f64> {
        if let (Some(parent), Some(input)) = (parent, &mut self.input) {
            writeln!(input, "{parent}")?;
        }
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Proposals {
    fn drop(&mut self) {
        self.input = None;
        self.child.wait().ok();
    }
}
