//! everloop: keeps coding agents working on a goal until commands prove that it is reached.
//!
//! - `cli`: the command line, a file per verb
//! - `services`: what verbs and tools do, as typed requests and answers
//! - `supervisor`: the shell around the pure loop of `everloop-core`; `figures`, `telemetry`, `port`: what it publishes and where; `http`: the face of its port
//! - `config`: everloop.toml, layers and origins; `detect`: what a project seems to need
//! - `caller`: who acts; `mailbox`: messages between people and agents; `mcp`: tools for agents
//! - `tickets`: answering what a person was asked; `notifiers`: who is told of it; `hold`: the guard in a person's hands; `record`: events that others than a supervisor write
//! - `hook`: sessions that everloop did not start; `install`: what makes their CLIs know of it; `completion`: signs of being complete
//! - `state_folder`: the state folder; `board`: which task of a loop is next, and the board as a file; `tally`: what turns used
//! - `ui`: the only place that prints; `error`: the only place that knows exit codes

mod cli;
mod config;
mod detect;
mod http;
mod mcp;
mod ui;

use std::process::ExitCode;

use everloop_agents::api::API_ARG;
use everloop_agents::job;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    // A job's shim is this same binary; it must start fast and small, so nothing else comes before.
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|a| a == job::SHIM_ARG) {
        let Some(dir) = args.next() else { return ExitCode::from(2) };
        let code = job::run_shim(dir.as_ref());
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|a| a == cli::demo::AGENT_ARG) {
        let played = args.next().map(|acts| cli::demo::agent::play(&acts));
        return if matches!(played, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|a| a == API_ARG) {
        return cli::api::api(args).into();
    }
    log();
    let (ui, result) = cli::perform(cli::help::parse());
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            ui.failure(&failure);
            failure.code.into()
        }
    }
}

/// Logs problems beside the work itself to stderr; `EVERLOOP_LOG=debug` adds detail.
fn log() {
    let level = match std::env::var("EVERLOOP_LOG").as_deref() {
        Ok("debug") => tracing::Level::DEBUG,
        Ok("info") => tracing::Level::INFO,
        _ => tracing::Level::WARN,
    };
    // The SDK of MCP logs what clients send, as warnings.
    let levels = Targets::new().with_default(level).with_target("rmcp", tracing::Level::ERROR);
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    lines.finish().with(levels).init();
}
