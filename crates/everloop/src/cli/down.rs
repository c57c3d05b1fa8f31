//! `everloop down`: stops the supervisor; loops stay resumable.

use std::time::{Duration, Instant};

use everloop_engine::error::{Code, Failure};
use everloop_engine::unit::{Manager, is_ours};
use nix::sys::signal::Signal;

use super::VerbSession;
use super::up::perform;

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

/// How often to check whether the process is gone.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub fn down(args: &DownArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    session.for_a_person("stop the supervisor")?;
    let home = session.home()?;
    if args.uninstall {
        uninstall(session)?;
        if !home.is_owned() {
            return Ok(Code::Ok);
        }
    }
    let Some(owner) = home.owner() else {
        return Err(Failure::away("no supervisor is running").hint("`everloop status` shows the loops"));
    };
    let sent = owner.process.signal(Signal::SIGTERM);
    sent.map_err(|e| Failure::failed(format!("cannot stop process {}", owner.process.pid)).because(&e))?;
    let begun = Instant::now();
    // The lock is free a moment before the process is gone.
    while home.is_owned() || owner.process.is_alive() {
        if begun.elapsed() > args.timeout {
            return Err(Failure::failed(format!(
                "process {} is still there after {:?}",
                owner.process.pid, args.timeout
            ))
            .hint(format!("inspect it, or kill it: kill -9 {}; nothing is lost by that", owner.process.pid)));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    session.ui.said("stopped", &serde_json::json!({ "stopped": owner.process.pid }))?;
    Ok(Code::Ok)
}

/// Stops the service and removes its unit, if it is ours.
fn uninstall(session: &VerbSession) -> Result<(), Failure> {
    let manager = Manager::here();
    let path = manager.path()?;
    let ours = std::fs::read_to_string(&path).is_ok_and(|text| is_ours(&text));
    if !ours {
        return Err(Failure::failed(format!("`{}` is missing, or was not written by everloop", path.display()))
            .hint("without --uninstall the supervisor is stopped and nothing is removed"));
    }
    let (done, rest) = perform(manager.end(&path));
    std::fs::remove_file(&path)
        .map_err(|e| Failure::failed(format!("cannot remove `{}`", path.display())).because(&e))?;
    let told = serde_json::json!({ "removed": path.display().to_string(), "done": done, "failed": rest });
    session.ui.said(&format!("removed the unit `{}`", path.display()), &told)
}
