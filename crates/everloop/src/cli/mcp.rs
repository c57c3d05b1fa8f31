//! `everloop mcp`: serve one agent over standard input and output.

use std::time::Duration;

use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};

use super::{VerbSession, up};
use crate::mcp::{Identity, Server, stdio};

const HELP: &str = "Examples:
  claude --mcp-config '{\"mcpServers\":{\"everloop\":{\"command\":\"everloop\",\"args\":[\"mcp\"]}}}'
  codex -c 'mcp_servers.everloop.command=\"everloop\"' -c 'mcp_servers.everloop.args=[\"mcp\"]'

Tools: status, why, diff, next_task, add_task, complete_task, report_metric, ask_human, sleep_until, wake, send_message.
Each does what the verb of the command line does. `everloop up` serves the same at `POST /mcp`, with the token of the state folder.";

/// Serves one agent until its input ends. What the agent writes is data and never has a person's
/// trust.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct McpArgs {
    /// Loop of calls that name none [default: the loop of the turn that started this]
    #[arg(long = "loop", env = "EVERLOOP_LOOP", value_name = "ID")]
    owner: Option<String>,
    /// Serve only the tool by which the CLI of a turn requests permissions; a person may take this
    /// long
    #[arg(long, value_name = "TIME", hide = true, value_parser = parse_duration)]
    permission_within: Option<Duration>,
}

pub fn mcp(args: McpArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let owner = args.owner.filter(|id| !id.is_empty());
    let server = Server::new(session.dir.clone(), session.state_dir.clone(), owner, Identity::Connection);
    let server = match args.permission_within {
        Some(within) => server.only_permissions(within),
        None => server,
    };
    up::block_on(stdio::serve(server))??;
    Ok(Code::Ok)
}
