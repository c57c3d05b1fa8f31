//! Other programs with a queue in PostgreSQL, on the same server, in the same run. They are not
//! part of the workspace: `crates/testkit/peers` holds one small program per peer, with a lock file
//! of its own; their dependencies are fetched and built next to this program on demand.
//!
//! Each gets the address, what to use, the size of batches and the number of jobs; it fills its
//! queue, drains it and prints how many seconds the latter took.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use everloop_testkit::postgres::PostgresServer;

use super::race::{BATCHES, Ours, Queue, median};
use crate::report::{BenchRow, heading};
use crate::{Options, Result};

/// Folder of the programs.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// The name in the report, the program, what to use of it.
const PEERS: &[(&str, Program, &str)] = &[
    ("graphile-worker", Program::Node("graphile.js"), "default"),
    ("graphile-worker, local queue", Program::Node("graphile.js"), "batched"),
    ("pg-boss", Program::Node("pg-boss.js"), "default"),
    ("apalis", Program::Rust, "default"),
];

#[derive(Clone, Copy, Debug)]
enum Program {
    Node(&'static str),
    Rust,
}

/// Prints a row for each peer and size of batches. Blocks alternate, and in each the ledger runs
/// right before the peer.
pub fn run(options: &Options, server: &PostgresServer) -> Result<()> {
    let built = Built::make()?;
    heading("hub: next to other queues, jobs per second, each with one process that works");
    let url = server.database();
    let mut ours = Ours(super::made(&url)?);
    for batch in BATCHES {
        let jobs = options.length.pick(1, 4);
        let jobs = if batch == 100 { 10_000 } else { 1000 * batch.min(4) } / jobs;
        for &(name, program, what) in PEERS {
            let (mut here, mut there) = (Vec::new(), Vec::new());
            for block in 0..options.length.pick(5, 2) {
                ours.fill(&format!("{name}-{batch}-{block}"), jobs)?;
                here.push(f64::from(jobs) / ours.work(batch, jobs / batch)?.as_secs_f64());
                let theirs = server.database();
                there.push(
                    f64::from(jobs) / built.work(program, &[&theirs, what, &batch.to_string(), &jobs.to_string()])?,
                );
            }
            let ratio = median(here.iter().zip(&there).map(|(here, there)| here / there).collect());
            BenchRow::new(format!("batches of {batch}"), format!("{:.0} tasks/s", median(here)))
                .floor(name, &format!("{:.0} jobs/s", median(there)), ratio)
                .goal("> 1x", ratio > 1.0)
                .print();
        }
    }
    Ok(())
}

/// Paths of the built programs.
struct Built {
    node: PathBuf,
    rust: PathBuf,
}

impl Built {
    /// Fetches and builds what is missing, in the folder of this program.
    fn make() -> Result<Self> {
        let dir = std::env::current_exe()?.with_file_name("peers");
        let (node, rust) = (dir.join("node"), dir.join("apalis"));
        std::fs::create_dir_all(&node)?;
        for entry in std::fs::read_dir(Path::new(SOURCES).join("node"))? {
            let entry = entry?;
            std::fs::copy(entry.path(), node.join(entry.file_name()))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&node);
        done(&mut npm)?;
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]);
        cargo.arg(Path::new(SOURCES).join("apalis/Cargo.toml")).arg("--target-dir").arg(&rust);
        done(&mut cargo)?;
        Ok(Self { node, rust: rust.join("release/peer-apalis") })
    }

    /// Seconds that a peer worked.
    fn work(&self, program: Program, args: &[&str]) -> Result<f64> {
        let mut command = match program {
            // The version that it brings along; the machine's own may be too old.
            Program::Node(script) => {
                let mut command = Command::new(self.node.join("node_modules/.bin/node"));
                command.arg(self.node.join(script));
                command
            }
            Program::Rust => Command::new(&self.rust),
        };
        let said = command.args(args).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        if !said.status.success() {
            return Err(format!("{command:?} failed").into());
        }
        let text = String::from_utf8(said.stdout)?;
        let seconds = text.lines().last().unwrap_or_default().parse();
        Ok(seconds.map_err(|_| format!("{command:?} printed `{text}`"))?)
    }
}

/// Its output goes to stderr: stdout is for figures.
fn done(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed").into()) }
}
