//! `everloop down`: stops the supervisor; loops stay resumable.

use std::time::Duration;

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::down as service;
use serde_json::json;

use super::VerbSession;

/// Interrupts running turns; the next supervisor takes them again.
#[derive(Debug, clap::Args)]
pub struct DownArgs {
    /// Give up waiting after this long
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = everloop_core::time::parse_duration)]
    timeout: Duration,
    /// Also remove what `up --install` made
    #[arg(long)]
    uninstall: bool,
}

pub fn down(args: &DownArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    if args.uninstall {
        let removed = service::uninstall(session)?;
        let path = removed.path.display().to_string();
        let told = json!({ "removed": path, "done": removed.done, "failed": removed.failed });
        session.ui.said(&format!("removed the unit `{path}`"), &told)?;
        if !removed.is_supervised {
            return Ok(Code::Ok);
        }
    }
    let pid = service::stop(session, args.timeout)?;
    session.ui.said("stopped", &json!({ "stopped": pid }))?;
    Ok(Code::Ok)
}
