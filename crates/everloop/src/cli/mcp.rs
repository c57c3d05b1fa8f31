//! `everloop mcp`: serves one agent over standard input and output, a JSON message per line.

use std::io::{self, BufRead, Read};

use super::Invocation;
use crate::error::{Code, Failure};
use crate::mcp::{REQUEST_MAX_BYTES, Server, too_long};

const HELP: &str = "Examples:
  claude --mcp-config '{\"mcpServers\":{\"everloop\":{\"command\":\"everloop\",\"args\":[\"mcp\"]}}}'
  codex -c 'mcp_servers.everloop.command=\"everloop\"' -c 'mcp_servers.everloop.args=[\"mcp\"]'

Tools: status, next_task, add_task, complete_task, report_metric, ask_human, sleep_until, wake, send_message, why.
Each does what the verb of the command line does. `everloop up` serves the same at `POST /mcp`, with the token of the state folder.";

/// Serves one agent until its input ends. What the agent writes is data and never has a person's
/// trust.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct McpArgs {
    /// Loop of calls that name none [default: the loop of the turn that started this]
    #[arg(long = "loop", env = "EVERLOOP_LOOP", value_name = "ID")]
    owner: Option<String>,
}

pub fn mcp(args: McpArgs, session: &mut Invocation) -> Result<Code, Failure> {
    let owner = args.owner.filter(|id| !id.is_empty());
    let mut server = Server::new(session.dir.clone(), session.state_dir.clone(), owner);
    let mut input = io::stdin().lock();
    while let Some(line) = next_line(&mut input)? {
        let answer = match &line {
            Line::Whole(text) if text.trim_ascii().is_empty() => None,
            Line::Whole(text) => server.answer(text),
            Line::TooLong => Some(too_long(REQUEST_MAX_BYTES)),
        };
        if let Some(answer) = answer {
            session.ui.out(&answer.to_string())?;
        }
        if session.ui.closed() {
            break;
        }
    }
    Ok(Code::Ok)
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// The next message; one that is too long is skipped to its end without being kept.
fn next_line(input: &mut impl BufRead) -> Result<Option<Line>, Failure> {
    let cannot = |e: &io::Error| Failure::failed("cannot read standard input").because(e);
    let mut line = Vec::new();
    let mut read = |line: &mut Vec<u8>| {
        line.clear();
        input.by_ref().take(REQUEST_MAX_BYTES as u64 + 1).read_until(b'\n', line).map_err(|e| cannot(&e))
    };
    if read(&mut line)? == 0 {
        return Ok(None);
    }
    if line.len() <= REQUEST_MAX_BYTES {
        return Ok(Some(Line::Whole(line)));
    }
    while line.last() != Some(&b'\n') && read(&mut line)? > 0 {}
    Ok(Some(Line::TooLong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_without_a_line_break_is_skipped_and_the_next_line_is_read() {
        let flood = [vec![b'x'; 3 * REQUEST_MAX_BYTES], b"\n{}\n".to_vec(), b"rest".to_vec()].concat();
        let mut input = flood.as_slice();
        assert!(matches!(next_line(&mut input), Ok(Some(Line::TooLong))));
        assert!(matches!(next_line(&mut input), Ok(Some(Line::Whole(text))) if text == b"{}\n"));
        assert!(matches!(next_line(&mut input), Ok(Some(Line::Whole(text))) if text == b"rest"));
        assert!(matches!(next_line(&mut input), Ok(None)));
    }
}
