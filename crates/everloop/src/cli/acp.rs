//! The hidden part `everloop __acp`: one turn of a CLI that speaks the Agent Client Protocol, started
//! as a job by the supervisor. The protocol is in `everloop_agents::acp`; here are the command line,
//! the records on stdout, and the way to a person.
//!
//! Not a verb, like `__api`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use everloop_agents::acp::{self, ACP_ARG, AcpEnd, AcpOutlet, AcpTurn, PermissionAnswer, PermissionRequest};
use everloop_core::spec::Permission;
use everloop_core::stream::AgentEvent;
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use serde_json::Value;

use super::ticket::PERMISSION_ARG;
use crate::ui::{Format, Ui};

/// A longer prompt was not written for a turn.
const LONGEST_PROMPT: u64 = 4 << 20;

/// One turn of an agent that speaks the Agent Client Protocol, reported as JSON lines. The prompt is
/// on standard input.
#[derive(Debug, Parser)]
#[command(name = ACP_ARG, disable_version_flag = true)]
struct Args {
    /// The state folder, for requests to a person
    #[arg(long, value_name = "DIR")]
    state: PathBuf,

    /// Name of the model
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// The session to continue
    #[arg(long, value_name = "ID")]
    resume: Option<String>,

    /// What it may do without a person
    #[arg(long, value_enum, default_value_t = PermissionName::Edits)]
    permission: PermissionName,

    /// A command that it may run, as a beginning
    #[arg(long, value_name = "COMMAND", allow_hyphen_values = true)]
    allow: Vec<String>,

    /// How long a person may take to answer a request
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    answer_within: Duration,

    /// The agent's command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<String>,
}

/// Names of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PermissionName {
    /// Change files in the workspace, and run the allowed commands
    Edits,
    /// Everything, without a request
    Full,
}

/// Takes one turn in the current folder; `args` is everything after the name of this part.
pub fn acp(args: impl Iterator<Item = OsString>) -> Code {
    let args = match Args::try_parse_from(std::iter::once(OsString::from(ACP_ARG)).chain(args)) {
        Ok(args) => args,
        Err(error) => {
            // There is no other way to report that stderr is gone.
            error.print().ok();
            return if error.use_stderr() { Code::Usage } else { Code::Ok };
        }
    };
    match turn(args) {
        Ok(AcpEnd::Finished) => Code::Ok,
        Ok(AcpEnd::Short) => Code::Failed,
        Err(failure) => {
            Ui::new(Format::Text).failure(&failure);
            failure.code
        }
    }
}

fn turn(args: Args) -> Result<AcpEnd, Failure> {
    let mut prompt = Vec::new();
    io::stdin().take(LONGEST_PROMPT).read_to_end(&mut prompt)?;
    if prompt.trim_ascii().is_empty() {
        return Err(Failure::usage("the prompt on standard input is empty"));
    }
    let turn = AcpTurn {
        argv: args.argv,
        cwd: std::env::current_dir()?,
        prompt: String::from_utf8_lossy(&prompt).into_owned(),
        resume: args.resume,
        model: args.model,
        permission: match args.permission {
            PermissionName::Edits => Permission::Edits,
            PermissionName::Full => Permission::Full,
        },
        allow: args.allow,
    };
    let mut say = |said: &AgentEvent| {
        let line = serde_json::to_string(said).map_err(io::Error::other)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    };
    let mut ask = |request: &PermissionRequest| ask(request, &args.state, args.answer_within);
    let program = turn.argv.first().cloned().unwrap_or_default();
    acp::run(&turn, &mut AcpOutlet { say: &mut say, ask: &mut ask })
        .map_err(|e| Failure::failed(format!("the turn with `{program}` broke off")).because(&e))
}

/// Gets an answer through everloop's own command line: inside of an isolated turn the shim runs it,
/// outside, where the ledger can be written. Without an answer the request is refused.
fn ask(request: &PermissionRequest, state: &std::path::Path, within: Duration) -> PermissionAnswer {
    let deny = |why: &str| PermissionAnswer::Deny { why: why.to_owned() };
    let Ok(ours) = std::env::current_exe() else { return deny("everloop cannot find its own program") };
    let asked = Command::new(ours)
        .arg("--state-dir")
        .arg(state)
        .args(["ticket", PERMISSION_ARG, "--tool", &request.call.tool])
        .arg(format!("--input={}", request.call.input))
        .arg(format!("--within={}ms", within.as_millis()))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let reply: Option<Value> = asked.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok());
    match reply.as_ref().map(|reply| (reply["answer"].as_str(), reply["why"].as_str())) {
        Some((Some("allow"), _)) => PermissionAnswer::Allow,
        Some((_, Some(why))) => deny(why),
        _ => deny("no person could be asked"),
    }
}
