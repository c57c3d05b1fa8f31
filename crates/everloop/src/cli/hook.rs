//! `everloop hook`: answers an agent's CLI at the moments of a session that everloop did not start.
//!
//! It exits with 0 (no objection) or 2 (refused, with the reason), nothing else: any internal
//! failure is 0, and so is every call while no supervisor runs. It reads the ledger first and
//! writes at most once, because a person waits behind every call.

use everloop_engine::error::{Code, Failure};
use everloop_engine::hook::payload::Payload;
use everloop_engine::services::hook::{HookReply, HookRequest, HookVerdict, hook as answer};

use super::VerbSession;

const HELP: &str =
    "Events: SessionStart, UserPromptSubmit, PreToolUse, PostToolUse, Stop, StopFailure, SubagentStop, PreCompact,
Notification, SessionEnd; Gemini's names for the same moments are understood, too.

`everloop init` writes these hooks. Exit codes: 0 go on, 2 refused (the reason is on stderr).";

/// The exit code that agents' CLIs take as a refusal with a reason.
const NO: Code = Code::Usage;
/// Reads the CLI's JSON on stdin and answers in its format. Does nothing while no supervisor runs.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct HookArgs {
    /// Moment of the session
    event: String,
    /// Agent of the session: claude, codex or gemini [default: detected from its JSON]
    #[arg(long = "for", value_name = "AGENT")]
    agent: Option<String>,
}

pub fn hook(args: &HookArgs, session: &VerbSession) -> Code {
    // Read in any case: a CLI may take a closed pipe for a failure.
    let payload = Payload::read(std::io::stdin().lock());
    let request = HookRequest { event: &args.event, agent: args.agent.as_deref(), payload };
    match answer(session, request, &mut |reply| print(&reply, session)) {
        Ok(HookVerdict::GoOn) => Code::Ok,
        Ok(HookVerdict::Refused) => NO,
        Err(failure) => {
            tracing::debug!(event = args.event, "cannot answer a hook: {}", failure.render());
            Code::Ok
        }
    }
}

fn print(reply: &HookReply<'_>, session: &VerbSession) -> Result<(), Failure> {
    match reply {
        HookReply::Answer(answer) => session.ui.out(&answer.to_string()),
        HookReply::Reason(why) => {
            session.ui.talk(why);
            Ok(())
        }
    }
}
