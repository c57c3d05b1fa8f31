//! The cost of everloop beside the floor under it: `just bench`. Builds nothing and asserts
//! nothing; a missed goal is printed as such and the exit code stays 0, so that a busy machine
//! never breaks a build.
//!
//! - `turn`, `idle`, `journal`, `cold`, `flood`, `size`, `stream`, `parsers`, `hub`, `hook`,
//!   `mesh`, `personas`, `wake`, `noise`, `research`, `research-workers`,
//!   `convergence`, `ui`: one section each, chosen with `--only`
//! - `compare`: two builds in turns, as one table: `--before`
//! - `agent`: the tiny programs that this binary becomes when everloop starts it
//! - `scene`: a temporary home, state folder and project; `measure`: clocks, quantiles, /proc;
//!   `report`: the lines

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what a tool prints is its purpose")]

mod agent;
mod cold;
mod compare;
mod convergence;
mod flood;
mod hook;
mod hub;
mod idle;
mod journal;
mod measure;
mod mesh;
mod noise;
mod parsers;
mod personas;
mod report;
mod research;
mod scene;
mod size;
mod stream;
mod turn;
mod ui;
mod workers;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Failures while measuring; they are only printed.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str =
"usage: everloop-bench [--everloop PATH] [--before DIR] [--dir DIR] [--only turn,idle,journal,cold,flood,size,stream,parsers,hub,hook,mesh,personas,wake,noise,research,research-workers,convergence,ui] [--quick] [--peers]

  --everloop PATH  the binary to measure [default: `everloop` next to this program]
  --before DIR     an earlier build, `everloop` and `everloop-bench` in one folder: both are measured in turns,
                   and printed as one table
  --dir DIR        where the throw-away folders are made; its disk is measured [default: the temporary folder]
  --only LIST      only these sections
  --quick          fewer turns, shorter waits: for a first look
  --peers          in `hub`: also other queues in PostgreSQL, which are fetched and built first; needs npm";

/// The command line.
struct Options {
    everloop: PathBuf,
    /// The folder of the build to compare with.
    before: Option<PathBuf>,
    dir: PathBuf,
    only: Vec<String>,
    length: BenchLength,
    /// Whether other queues are measured too.
    peers: bool,
}

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BenchLength {
    /// The figures that count.
    Full,
    /// A first impression.
    Quick,
}

impl BenchLength {
    fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            BenchLength::Full => full,
            BenchLength::Quick => quick,
        }
    }
}

type Section = fn(&Options) -> Result<()>;

const SECTIONS: &[(&str, Section)] = &[
    ("turn", turn::run),
    ("idle", idle::run),
    ("journal", journal::run),
    ("cold", cold::run),
    ("flood", flood::run),
    ("size", size::run),
    ("stream", stream::run),
    ("parsers", parsers::run),
    ("hub", hub::run),
    ("hook", hook::run),
    ("mesh", mesh::run),
    ("personas", personas::run),
    ("wake", personas::wake),
    ("noise", noise::run),
    ("research-workers", workers::run),
    ("research", research::run),
    ("convergence", convergence::run),
    ("ui", ui::run),
];

fn main() -> ExitCode {
    // Before everything else: an agent's first action is reading the clock.
    let began = measure::monotonic();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(result) = agent::play(&args, began) {
        return finish(result);
    }
    match parse(&args) {
        Ok(Some(options)) => finish(match &options.before {
            Some(before) => compare::run(&options, before),
            None => measure_all(&options),
        }),
        Ok(None) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn finish(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(options: &Options) -> Result<()> {
    println!("everloop: {}", options.everloop.display());
    println!("machine: {}", measure::machine());
    println!("numbers of peers were measured elsewhere, on another machine, and are quoted for scale");
    for (name, section) in SECTIONS {
        if options.only.is_empty() || options.only.iter().any(|o| o == name) {
            section(options).map_err(|e| format!("section `{name}`: {e}"))?;
        }
    }
    Ok(())
}

/// `None` when only help was requested.
fn parse(args: &[String]) -> Result<Option<Options>> {
    let mut options = Options {
        everloop: std::env::current_exe()?.with_file_name("everloop"),
        before: None,
        dir: std::env::temp_dir(),
        only: Vec::new(),
        length: BenchLength::Full,
        peers: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
        match arg.as_str() {
            "--everloop" => options.everloop = PathBuf::from(value()?),
            "--before" => options.before = Some(PathBuf::from(value()?)),
            "--dir" => options.dir = PathBuf::from(value()?),
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            "--peers" => options.peers = true,
            "--quick" => options.length = BenchLength::Quick,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("`{arg}` is not an option").into()),
        }
    }
    if let Some(unknown) = options.only.iter().find(|o| !SECTIONS.iter().any(|(name, _)| name == o)) {
        return Err(format!("there is no section `{unknown}`").into());
    }
    let missing =
        |path: &Path| format!("`{}` is not there; build it first: cargo build --release -p everloop", path.display());
    options.everloop = options.everloop.canonicalize().map_err(|_| missing(&options.everloop))?;
    Ok(Some(options))
}
