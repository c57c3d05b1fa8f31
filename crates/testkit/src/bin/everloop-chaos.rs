//! `everloop-chaos`: a real mesh under faults, and a report. Exit 1 when an invariant does not
//! hold.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use everloop_testkit::chaos::{self, ChaosOptions};
use everloop_testkit::offline;

const USAGE: &str = "usage: everloop-chaos [--for 30m] [--tasks 200] [--seed N] [--scenario faults|hub-away] [--time-scale N] [--everloop PATH] [--dir DIR]";

#[expect(clippy::print_stderr, clippy::print_stdout, reason = "this binary talks to a terminal")]
fn main() -> ExitCode {
    let (options, scenario) = match parse(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if !offline::is_inside() {
        return offline::again();
    }
    let root = tempfile::Builder::new().prefix("everloop-chaos.").tempdir_in(&options.dir);
    let root = root.expect("a temporary folder can be made");
    let options = ChaosOptions { dir: root.path().to_owned(), ..options };
    println!(
        "{scenario:?}, seed {}, {:?}, leases {} times as fast as in production",
        options.seed, options.length, options.time_scale
    );
    let violations = match scenario {
        Scenario::FaultSchedule => {
            let report = chaos::run(&options);
            print!("{report}");
            report.violations()
        }
        Scenario::HubAway => {
            let report = chaos::outage::run(&options);
            print!("{report}");
            report.violations()
        }
    };
    if !violations.is_empty() {
        // The folder is kept for inspection.
        println!("kept in {}", root.keep().display());
    }
    ExitCode::from(u8::from(!violations.is_empty()))
}

/// The scenario of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// All kinds of faults at random.
    FaultSchedule,
    /// The hub is stopped under work.
    HubAway,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<(ChaosOptions, Scenario), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut scenario = Scenario::FaultSchedule;
    let mut length = None;
    let mut options = ChaosOptions {
        everloop: program.with_file_name("everloop"),
        dir: std::env::temp_dir(),
        seed: UNIX_EPOCH.elapsed().map_or(0, |now| now.subsec_nanos()).into(),
        length: Duration::ZERO,
        tasks: 200,
        checks: 20,
        time_scale: 1,
        tell,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
        let number = |text: String| text.parse::<u32>().map_err(|_| format!("`{text}` is not a number"));
        match arg.as_str() {
            "--for" => length = Some(duration(&value()?)?),
            "--tasks" => options.tasks = number(value()?)?,
            "--seed" => options.seed = number(value()?)?.into(),
            "--time-scale" => options.time_scale = number(value()?)?.max(1),
            "--everloop" => options.everloop = PathBuf::from(value()?),
            "--dir" => options.dir = PathBuf::from(value()?),
            "--scenario" => {
                scenario = match value()?.as_str() {
                    "faults" => Scenario::FaultSchedule,
                    "hub-away" => Scenario::HubAway,
                    other => return Err(format!("there is no scenario `{other}`")),
                }
            }
            _ => return Err(format!("`{arg}` is not an option")),
        }
    }
    let missing = format!("`{}` does not exist; build it first", options.everloop.display());
    options.everloop = options.everloop.canonicalize().map_err(|_| missing)?;
    let usual = if scenario == Scenario::FaultSchedule { 1800 } else { 180 };
    options.length = length.unwrap_or(Duration::from_secs(usual));
    Ok((options, scenario))
}

/// Parses minutes and seconds: `30m`, `90s`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a duration like 30m"))?;
    match unit {
        "m" => Ok(Duration::from_secs(number * 60)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(format!("`{text}` is not a duration like 30m")),
    }
}

#[expect(clippy::print_stdout, reason = "this binary talks to a terminal")]
fn tell(line: &str) {
    println!("{line}");
}
