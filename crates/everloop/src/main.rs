//! everloop: keeps coding agents working on a goal until commands prove that it is reached.
//!
//! - `cli`: the command line, a file per verb
//! - `supervisor`: the shell around the pure loop of `everloop-core`; `api`: its HTTP port
//! - `config`: everloop.toml, layers and origins; `detect`: proposes checks for a project
//! - `caller`: person or agent; `mailbox`: messages between people and agents; `mcp`: the verbs for
//!   agents, over JSON-RPC
//! - `tickets`: answers to tickets; `notifiers`: their delivery; `hold`: guard holds set by a
//!   person; `record`: events written by processes other than a supervisor
//! - `hook`: sessions that everloop did not start; `install`: what connects their CLIs;
//!   `completion`: completion signs
//! - `state_folder`: the state folder; `board`: the next task of a loop, and the board as a file; `tally`:
//!   usage of turns
//! - `ui`: the only place that prints; `error`: the only place that knows exit codes

mod account;
mod api;
mod board;
mod caller;
mod cli;
mod completion;
mod config;
mod detect;
mod diagnostic;
mod error;
mod hold;
mod hook;
mod immune;
mod install;
mod mailbox;
mod mcp;
mod membership;
mod notifiers;
mod projects;
mod quantities;
mod record;
mod recover;
mod state_folder;
mod supervisor;
mod tally;
mod text;
mod tickets;
mod ui;
mod unit;

use std::process::ExitCode;

use clap::Parser;
use everloop_agents::api::API_ARG;
use everloop_agents::job;

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
    let (ui, result) = cli::perform(cli::Cli::parse());
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
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).init();
}
