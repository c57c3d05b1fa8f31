//! The model server as a program, for shell scripts and for trying an agent by hand:
//! `fake-model --script 'edit:path=a.txt:text=hi,text' --log requests.jsonl --port-file port`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everloop_testkit::fake_model::script::Script;
use everloop_testkit::fake_model::{FakeModel, FakeModelOptions};
use nix::sys::signal::{SigSet, Signal};

const USAGE: &str = "usage: fake-model --script STEPS|@FILE [--log FILE] [--port-file FILE] [--port N]";

struct Args {
    options: FakeModelOptions,
    port_file: Option<PathBuf>,
}

fn args() -> Result<Args, String> {
    let (mut script, mut log, mut port_file, mut port) = (None, None, None, 0);
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match name.as_str() {
            "--script" => script = Some(value),
            "--log" => log = Some(PathBuf::from(value)),
            "--port-file" => port_file = Some(PathBuf::from(value)),
            "--port" => port = value.parse().map_err(|_| format!("`{value}` is not a port\n{USAGE}"))?,
            _ => return Err(format!("`{name}` is not an option\n{USAGE}")),
        }
    }
    let script = script.ok_or(USAGE)?;
    let script = match script.strip_prefix('@') {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read `{file}`: {e}"))?;
            Script::parse_lines(&text)
        }
        None => Script::parse(&script),
    };
    let script = script.map_err(|e| e.to_string())?;
    Ok(Args { options: FakeModelOptions { script, port, log }, port_file })
}

/// Written atomically: a waiting process reads it as soon as it exists.
fn write_port(path: &Path, port: u16) -> std::io::Result<()> {
    let draft = path.with_extension("new");
    std::fs::write(&draft, format!("{port}\n"))?;
    std::fs::rename(draft, path)
}

fn run() -> Result<(), String> {
    let Args { options, port_file } = args()?;
    // Before any thread starts, so that all of them leave these signals to the wait below.
    let mut ends = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        ends.add(signal);
    }
    ends.thread_block().map_err(|e| format!("cannot block signals: {e}"))?;
    let model = FakeModel::with(options).map_err(|e| format!("cannot serve: {e}"))?;
    if let Some(path) = port_file {
        write_port(&path, model.port()).map_err(|e| format!("cannot write `{}`: {e}", path.display()))?;
    }
    // A failure means that the reader is gone.
    drop(writeln!(std::io::stdout(), "{}", model.base_url()));
    ends.wait().map(drop).map_err(|e| format!("cannot wait for a signal: {e}"))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            drop(writeln!(std::io::stderr(), "error: {message}"));
            ExitCode::from(2)
        }
    }
}
