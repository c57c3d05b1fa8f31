//! `everloop down`: stop the supervisor; loops stay resumable.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::Session;
use crate::error::{Code, Failure};

/// Turns that are under way are interrupted and tried again by the next supervisor.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Give up waiting after this long
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = everloop_core::time::parse_duration)]
    timeout: Duration,
}

/// How often to look whether it is gone.
const LOOK: Duration = Duration::from_millis(20);

pub fn down(args: &Args, session: &mut Session) -> Result<Code, Failure> {
    session.for_a_person("to stop the supervisor")?;
    let home = session.home()?;
    let Some(owner) = home.owner() else {
        return Err(Failure::away("no supervisor is running").hint("`everloop status` shows the loops"));
    };
    let sent = owner.process.signal(Signal::SIGTERM);
    sent.map_err(|e| Failure::failed(format!("cannot stop process {}", owner.process.pid)).because(&e))?;
    let begun = Instant::now();
    while home.is_owned() {
        if begun.elapsed() > args.timeout {
            return Err(Failure::failed(format!(
                "process {} is still there after {:?}",
                owner.process.pid, args.timeout
            ))
            .hint(format!("look at it, or kill it: kill -9 {}; nothing is lost by that", owner.process.pid)));
        }
        std::thread::sleep(LOOK);
    }
    session.ui.said("stopped", &serde_json::json!({ "stopped": owner.process.pid }))?;
    Ok(Code::Ok)
}
