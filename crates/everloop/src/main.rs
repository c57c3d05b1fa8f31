//! everloop: keeps coding agents working on a goal until commands prove that it is reached.
//!
//! - `cli`: the command line, a file per verb
//! - `config`: everloop.toml, layers and origins; `detect`: what a project seems to need
//! - `http`: the routes of the supervisor's port; `mcp`: tools for agents; `readings`: verbs that
//!   read, for both
//! - `png`: charts as pictures; `ui`: the only place that prints
//!
//! Everything that runs is in `everloop-engine`; this crate parses, calls it and shows its answer.

mod cli;
mod config;
mod detect;
mod http;
mod mcp;
mod png;
mod readings;
mod ui;

use std::process::ExitCode;

use everloop_agents::acp::ACP_ARG;
use everloop_agents::api::API_ARG;
use everloop_agents::job;
use everloop_core::planted;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    if planted::POSSIBLE {
        planted::plant_everywhere(&std::env::var(planted::VARIABLE).unwrap_or_default());
    }
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
    if args.next().is_some_and(|a| a == cli::demo::proposer::PROPOSER_ARG) {
        let played = args.next().zip(args.next()).map(|(acts, prompt)| cli::demo::proposer::play(&acts, &prompt));
        return if matches!(played, Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if let Some(cli) = cli::gate::started_as() {
        return cli::gate::pass(cli);
    }
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|a| a == cli::gate::GATE_ARG) {
        return args.next().map_or(ExitCode::from(2), |cli| cli::gate::admit(&cli));
    }
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|a| a == API_ARG) {
        return cli::api::api(args).into();
    }
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|a| a == ACP_ARG) {
        return cli::acp::acp(args).into();
    }
    if let Some(code) = cli::complete::answer() {
        return code;
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
