//! MCP on standard input and output: one message per line, bounded; an invalid message gets an
//! answer too.

use std::io::{self, BufRead, Read, Write};

use everloop_engine::error::Failure;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, ServerJsonRpcMessage};
use rmcp::service::{ServerInitializeError, serve_server};
use rmcp::transport::Transport;
use serde_json::error::Category;
use tokio::sync::mpsc;

use super::{MAX_MESSAGE_BYTES, Server};

/// Serves one client until its input ends.
pub async fn serve(server: Server) -> Result<(), Failure> {
    let transport = Stdio { lines: spawn_reader()?, started: false };
    match serve_server(server, transport).await {
        Ok(running) => {
            let ended = running.waiting().await;
            ended.map(drop).map_err(|e| Failure::failed("the server ended").because(&e))
        }
        // The client left before it began.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(e) => Err(Failure::failed("cannot serve this client").because(&e)),
    }
}

struct Stdio {
    lines: mpsc::Receiver<Line>,
    /// Whether a request arrived. Messages before the first one belong to no session and are
    /// dropped.
    started: bool,
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        std::future::ready(write(&message))
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        while let Some(line) = self.lines.recv().await {
            match parse(&line) {
                Ok(Some(message)) if self.started || matches!(message, ClientJsonRpcMessage::Request(_)) => {
                    self.started = true;
                    return Some(message);
                }
                Ok(_) => {}
                // A client that does not read any more has left.
                Err(error) => write(&ServerJsonRpcMessage::error(error, None)).ok()?,
            }
        }
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.lines.close();
        Ok(())
    }
}

/// The message on a line; `None` for an empty line.
fn parse(line: &Line) -> Result<Option<ClientJsonRpcMessage>, ErrorData> {
    let text = match line {
        Line::Whole(text) => text.trim_ascii(),
        Line::TooLong => {
            let why = format!("a message has at most {MAX_MESSAGE_BYTES} bytes");
            return Err(ErrorData::invalid_request(why, None));
        }
    };
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(text).map(Some).map_err(|e| match e.classify() {
        Category::Syntax | Category::Eof | Category::Io => {
            ErrorData::new(ErrorCode::PARSE_ERROR, format!("not JSON: {e}"), None)
        }
        Category::Data => ErrorData::invalid_request("this is neither a request nor a notification", None),
    })
}

fn write(message: &ServerJsonRpcMessage) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

/// Reads lines on a thread of its own: reading standard input cannot be cancelled. The next line is
/// read when the one before was taken.
fn spawn_reader() -> Result<mpsc::Receiver<Line>, Failure> {
    let (sender, lines) = mpsc::channel(1);
    let read = move || {
        let mut input = io::stdin().lock();
        while let Ok(Some(line)) = next_line(&mut input) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("mcp-input".to_owned()).spawn(read);
    thread.map(|_| lines).map_err(|e| Failure::failed("cannot start a thread").because(&e))
}

/// The next message; one that is too long is skipped to its end without being kept.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut read = |line: &mut Vec<u8>| {
        line.clear();
        input.by_ref().take(MAX_MESSAGE_BYTES as u64 + 1).read_until(b'\n', line)
    };
    if read(&mut line)? == 0 {
        return Ok(None);
    }
    if line.len() <= MAX_MESSAGE_BYTES {
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
        let flood = [vec![b'x'; 3 * MAX_MESSAGE_BYTES], b"\n{}\n".to_vec(), b"rest".to_vec()].concat();
        let mut input = flood.as_slice();
        assert!(matches!(next_line(&mut input), Ok(Some(Line::TooLong))));
        assert!(matches!(next_line(&mut input), Ok(Some(Line::Whole(text))) if text == b"{}\n"));
        assert!(matches!(next_line(&mut input), Ok(Some(Line::Whole(text))) if text == b"rest"));
        assert!(matches!(next_line(&mut input), Ok(None)));
    }

    #[test]
    fn what_is_no_message_is_told_apart() {
        let code = |text: &str| parse(&Line::Whole(text.as_bytes().to_vec())).map_err(|e| e.code);
        assert!(matches!(code(" \r\n"), Ok(None)));
        assert!(matches!(code(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), Ok(Some(_))));
        assert!(matches!(code(r#"{"jsonrpc":"2.0","method":"notifications/else"}"#), Ok(Some(_))));
        for broken in ["{", "{ this is no JSON", "\u{0}", &"[".repeat(200_000)] {
            assert_eq!(code(broken).err(), Some(ErrorCode::PARSE_ERROR), "{}", &broken[..broken.len().min(20)]);
        }
        for invalid in ["[]", "7", r#"{"id":1}"#, r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#] {
            assert_eq!(code(invalid).err(), Some(ErrorCode::INVALID_REQUEST), "{invalid}");
        }
    }
}
