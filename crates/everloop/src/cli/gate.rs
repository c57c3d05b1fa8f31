//! The gate in front of agents' CLIs in turns of plain commands. A script may start `claude` a
//! hundred times in a minute, and each is a call of the vendor: so links with the names of the CLIs
//! stand first in its `PATH`, lead here, and let the guard count before the CLI itself is started.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use everloop_agents::job::turn_socket;
use everloop_core::reason::Reason;
use everloop_engine::caller::{self, Caller};
use everloop_engine::gate;
use everloop_engine::services::{ServiceContext, guard};

use crate::config::FileProjects;
use crate::ui::{Format, Ui};

/// First argument of the call to the guard.
pub const GATE_ARG: &str = "__gate";

/// No start, and not soon (`EX_TEMPFAIL`).
const REFUSED: u8 = 75;
/// No start now, but soon.
const WAIT: u8 = 76;
/// The guard has no answer now: its ledger is busy.
const UNANSWERED: u8 = 77;
/// Questions without an answer, one after the other, before a guard counts as out of reach. A
/// script that starts many CLIs at once must not get past the guard by keeping it busy.
const MAX_UNANSWERED: u32 = 30;
/// What "soon" is.
const SOON: Duration = Duration::from_secs(120);
/// Between two questions.
const POLL: Duration = Duration::from_secs(1);

/// The CLI that this process was started as, if it was through the gate.
pub fn started_as() -> Option<&'static str> {
    let name = std::env::args_os().next()?;
    let name = Path::new(&name).file_name()?.to_str()?;
    gate::CLIS.iter().find(|cli| **cli == name).copied()
}

/// Waits for the guard, then becomes the CLI.
pub fn pass(cli: &'static str) -> ExitCode {
    let ui = Ui::new(Format::Text);
    let Some(program) = real(cli) else {
        ui.talk(&format!("everloop: `{cli}` is not installed"));
        return ExitCode::from(127);
    };
    let mut unanswered = 0;
    // A guard that cannot be reached stops nothing.
    while unanswered < MAX_UNANSWERED {
        match ask(cli) {
            Some(REFUSED) => return ExitCode::from(REFUSED),
            Some(WAIT) => unanswered = 0,
            Some(UNANSWERED) => unanswered += 1,
            _ => break,
        }
        std::thread::sleep(POLL);
    }
    let mut command = Command::new(&program);
    command.arg0(cli).args(std::env::args_os().skip(1));
    let failed = command.exec();
    ui.talk(&format!("everloop: cannot start `{}`: {failed}", program.display()));
    ExitCode::from(126)
}

/// The CLI behind the gate.
fn real(cli: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().and_then(|exe| exe.canonicalize()).ok();
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|dir| dir.join(cli));
    files.find(|file| file.is_file() && file.canonicalize().ok() != own)
}

/// The guard's answer, through the shim of an isolated turn; `None` outside of turns.
fn ask(cli: &str) -> Option<u8> {
    let args = [OsString::from(GATE_ARG), OsString::from(cli)];
    if let Some(socket) = turn_socket::find() {
        let dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        return Some(turn_socket::call(&socket, &dir, &args).unwrap_or(UNANSWERED));
    }
    std::env::var_os(caller::TURN)?;
    let status = Command::new(std::env::current_exe().ok()?).args(args).status().ok()?;
    u8::try_from(status.code()?).ok()
}

/// Counts a start for the turn of this process; the exit code is the answer.
pub fn admit(cli: &OsStr) -> ExitCode {
    let Some(cli) = gate::CLIS.iter().find(|known| cli == **known) else { return ExitCode::from(2) };
    let state_dir = std::env::var_os("EVERLOOP_STATE_DIR").map(PathBuf::from);
    let caller = Caller::here(state_dir.as_deref());
    let dir = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let context = ServiceContext { state_dir, dir, caller, projects: Arc::new(FileProjects) };
    match guard::admit_cli(&context, cli) {
        Ok(Some(reason)) => refuse(cli, &reason, &context),
        Ok(None) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::debug!("cannot ask the guard: {}", failure.render());
            ExitCode::from(UNANSWERED)
        }
    }
}

fn refuse(cli: &str, reason: &Reason, context: &ServiceContext) -> ExitCode {
    let now = context.now();
    if reason.until.is_some_and(|until| until.since(now) <= SOON) {
        return ExitCode::from(WAIT);
    }
    let until =
        reason.until.map_or_else(String::new, |until| format!(" for {}", everloop_core::time::human(until.since(now))));
    let text =
        format!("everloop: this loop starts no `{cli}`{until}: its cap on starts is used up (`everloop guard status`)");
    Ui::new(Format::Text).talk(&text);
    ExitCode::from(REFUSED)
}
