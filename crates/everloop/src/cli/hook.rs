//! `everloop hook`: answers an agent's CLI at the moments of a session that everloop did not start.
//!
//! It always exits with 0: a refusal is JSON on standard output, which every CLI understands. It
//! reads the ledger first and writes at most once, because a person waits behind every call.

use everloop_engine::error::Code;
use everloop_engine::hook::payload::Payload;
use everloop_engine::services::hook::{HookRequest, HookSource, hook as answer};

use super::VerbSession;

const HELP: &str =
    "Events: SessionStart, UserPromptSubmit, PreToolUse, PostToolUse, Stop, StopFailure, SubagentStop, PreCompact,
Notification, SessionEnd; Gemini's names for the same moments are understood, too.

`everloop init` writes these hooks. The exit code is always 0; a refusal is JSON on stdout.";

/// Reads the CLI's JSON on stdin and answers in its format. Does nothing while no supervisor runs.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct HookArgs {
    /// Moment of the session
    event: String,
    /// Agent of the session: claude, codex or gemini [default: detected from its JSON]
    #[arg(long = "for", value_name = "AGENT")]
    agent: Option<String>,
    /// The plugin calls: nothing is done where the project's own settings call, too
    #[arg(long)]
    plugin: bool,
}

pub fn hook(args: &HookArgs, session: &VerbSession) -> Code {
    // Read in any case: a CLI may take a closed pipe for a failure.
    let payload = Payload::read(std::io::stdin().lock());
    let source = if args.plugin { HookSource::Plugin } else { HookSource::Settings };
    let request = HookRequest { event: &args.event, agent: args.agent.as_deref(), payload, source };
    if let Err(failure) = answer(session, request, &mut |reply| session.ui.out(&reply.to_string())) {
        tracing::debug!(event = args.event, "cannot answer a hook: {}", failure.render());
    }
    Code::Ok
}
