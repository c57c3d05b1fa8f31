//! One turn of a CLI that speaks the Agent Client Protocol: JSON-RPC, a message per line, over its
//! standard input and output. What it says is reported in everloop's own format.
//!
//! - here: the exchange; `translate`: updates as records; `permission`: what is allowed by itself
//!
//! The CLI edits files and runs commands itself: this client offers it neither files nor terminals.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use everloop_core::spec::{AgentKind, Permission};
use everloop_core::stream::AgentEvent;
use serde_json::{Value, json};

use crate::agent::limits::{self, VendorRecord, VendorRefusal};
use crate::agent::record::Fields;
use crate::agent::{LINE_CAP, record};
use crate::clock;

mod permission;
mod translate;

pub use permission::{PermissionAnswer, PermissionRequest};
use translate::Translator;

/// The hidden part of everloop's program that takes such a turn.
pub const ACP_ARG: &str = "__acp";

/// Version of the protocol.
const PROTOCOL: u64 = 1;
/// A CLI that has ended its turn needs this long to write its session.
const GRACE: Duration = Duration::from_secs(5);
/// Poll interval for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The error code of an agent that wants a login.
const AUTH_REQUIRED: i64 = -32_000;
/// The error code for a method that this client does not have.
const NO_METHOD: i64 = -32_601;

/// How a turn is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpTurn {
    /// The program and its arguments.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    pub prompt: String,
    /// The session to continue, where the CLI can.
    pub resume: Option<String>,
    pub model: Option<String>,
    pub permission: Permission,
    /// Commands that are allowed by themselves, as prefixes.
    pub allow: Vec<String>,
}

/// Where a turn reports, and where it gets answers.
pub struct AcpOutlet<'a> {
    pub say: &'a mut dyn FnMut(&AgentEvent) -> io::Result<()>,
    /// Waits for a person's answer.
    pub ask: &'a mut dyn FnMut(&PermissionRequest) -> PermissionAnswer,
}

/// Whether the turn came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcpEnd {
    Finished,
    /// It was refused, limited, or broke off; the reason was reported.
    Short,
}

/// Takes one turn.
pub fn run(turn: &AcpTurn, outlet: &mut AcpOutlet<'_>) -> io::Result<AcpEnd> {
    let Some((program, args)) = turn.argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is given"));
    };
    let mut child = Command::new(program)
        .args(args)
        .current_dir(&turn.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        // Ctrl-C is the supervisor's; the shim of the turn ends everything below it.
        .process_group(0)
        .spawn()?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (stdin, stdout) = pipes.expect("both were requested as pipes");
    let mut client = Client {
        turn,
        outlet,
        stdin,
        stdout,
        lines: VecDeque::new(),
        rest: Vec::new(),
        next_id: 0,
        words: Translator::default(),
    };
    let ended = client.take_turn();
    drop(client);
    end(&mut child)?;
    ended
}

/// Closing its input ends a CLI that behaves; any other is killed.
fn end(child: &mut Child) -> io::Result<()> {
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    child.kill()?;
    child.wait().map(drop)
}

/// The exchange with the CLI.
struct Client<'a, 'o> {
    turn: &'a AcpTurn,
    outlet: &'a mut AcpOutlet<'o>,
    stdin: ChildStdin,
    stdout: ChildStdout,
    lines: VecDeque<String>,
    rest: Vec<u8>,
    next_id: u64,
    words: Translator,
}

/// A response: its result, or the error.
type Response = Result<Value, Value>;

impl Client<'_, '_> {
    fn take_turn(&mut self) -> io::Result<AcpEnd> {
        let about = json!({
            "protocolVersion": PROTOCOL,
            "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
            "clientInfo": { "name": "everloop", "version": env!("CARGO_PKG_VERSION") },
        });
        let able = match self.request("initialize", &about)? {
            Ok(result) => result,
            Err(error) => return self.refused(&error),
        };
        let session = match self.session(able.at("agentCapabilities").at("loadSession") == true)? {
            Ok(session) => session,
            Err(error) => return self.refused(&error),
        };
        if let Some(model) = &self.turn.model {
            // Not every CLI has it; one without keeps its own choice.
            drop(self.request("session/set_model", &json!({ "sessionId": session, "modelId": model }))?);
        }
        self.words.begin();
        let prompt = json!([{ "type": "text", "text": self.turn.prompt }]);
        let done = self.request("session/prompt", &json!({ "sessionId": session, "prompt": prompt }))?;
        self.flush()?;
        match done {
            Ok(result) => self.finish(&result),
            Err(error) => self.refused(&error),
        }
    }

    /// Loads the earlier session, or begins a new one; reports which.
    fn session(&mut self, can_load: bool) -> io::Result<Response> {
        let cwd = self.turn.cwd.display().to_string();
        if let Some(id) = self.turn.resume.clone().filter(|_| can_load) {
            // The history is repeated as updates, which are not this turn's.
            let place = json!({ "sessionId": id, "cwd": cwd, "mcpServers": [] });
            if self.request("session/load", &place)?.is_ok() {
                self.say(&AgentEvent::Session { id: record::name(&id), model: self.turn.model.clone() })?;
                return Ok(Ok(id.into()));
            }
        }
        let begun = self.request("session/new", &json!({ "cwd": cwd, "mcpServers": [] }))?;
        if let Ok(result) = &begun {
            let model = result.at("models").text("currentModelId").map(record::name);
            let id = record::name(result.text("sessionId").unwrap_or_default());
            self.say(&AgentEvent::Session { id, model: self.turn.model.clone().or(model) })?;
        }
        Ok(begun.map(|result| result.at("sessionId").clone()))
    }

    fn finish(&mut self, result: &Value) -> io::Result<AcpEnd> {
        if let Some(used) = translate::usage(result) {
            self.say(&AgentEvent::Used(used))?;
        }
        let reason = result.text("stopReason").unwrap_or_default();
        let last = self.words.last_text();
        let ok = reason == "end_turn" && !last.is_empty();
        let text = if reason == "end_turn" { last } else { format!("it stopped: {}", record::name(reason)) };
        self.say(&AgentEvent::Result { ok, text })?;
        Ok(if ok { AcpEnd::Finished } else { AcpEnd::Short })
    }

    fn refused(&mut self, error: &Value) -> io::Result<AcpEnd> {
        let text = translate::error_text(error);
        let code = error.at("code").as_i64().unwrap_or(0);
        let codes: &[&str] = if code == AUTH_REQUIRED { &["auth_required"] } else { &[] };
        let status = u64::try_from(code).ok().filter(|code| (100..600).contains(code));
        let refusal = VendorRefusal {
            agent: AgentKind::Acp,
            record: VendorRecord::Error,
            status,
            codes,
            text: &text,
            reset_at: None,
        };
        if let Some(limit) = limits::limit(&refusal, clock::now(), None) {
            self.say(&AgentEvent::Limit(limit))?;
        }
        self.say(&AgentEvent::Result { ok: false, text: record::saying(&text) })?;
        Ok(AcpEnd::Short)
    }

    /// Sends a request and serves the CLI until its response.
    fn request(&mut self, method: &str, params: &Value) -> io::Result<Response> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let message = self.receive()?;
            match (message.text("method"), message.get("id")) {
                (Some(method), Some(theirs)) => self.serve(method, theirs, message.at("params"))?,
                (Some("session/update"), None) => {
                    for said in self.words.update(message.at("params").at("update")) {
                        self.say(&said)?;
                    }
                }
                (None, Some(answered)) if *answered == id => {
                    let error = message.get("error").cloned();
                    return Ok(error.map_or_else(|| Ok(message.at("result").clone()), Err));
                }
                (Some(_), None) | (None, _) => {}
            }
        }
    }

    /// A request of the CLI.
    fn serve(&mut self, method: &str, id: &Value, params: &Value) -> io::Result<()> {
        let answer = if method == "session/request_permission" {
            self.flush()?;
            let outcome = self.permit(params)?;
            json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } })
        } else {
            let message = format!("everloop has no `{}`", record::name(method));
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": NO_METHOD, "message": message } })
        };
        self.send(&answer)
    }

    fn permit(&mut self, params: &Value) -> io::Result<Value> {
        if let Some(said) = self.words.asked_about(params.at("toolCall")) {
            self.say(&said)?;
        }
        let request = PermissionRequest::of(params.at("toolCall"));
        let answer = if request.is_allowed(self.turn) {
            PermissionAnswer::Allow
        } else {
            self.say(&AgentEvent::Asking { what: request.describe() })?;
            (self.outlet.ask)(&request)
        };
        if let PermissionAnswer::Deny { .. } = &answer {
            self.say(&AgentEvent::Denied { tool: request.call.tool.clone() })?;
        }
        Ok(permission::outcome(params.list("options"), &answer))
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.words.flush() {
            Some(said) => self.say(&said),
            None => Ok(()),
        }
    }

    fn say(&mut self, said: &AgentEvent) -> io::Result<()> {
        (self.outlet.say)(said)
    }

    fn send(&mut self, message: &Value) -> io::Result<()> {
        let mut line = message.to_string();
        line.push('\n');
        self.stdin.write_all(line.as_bytes())?;
        self.stdin.flush()
    }

    /// The next message; lines that are none are skipped.
    fn receive(&mut self) -> io::Result<Value> {
        loop {
            while let Some(line) = self.lines.pop_front() {
                if let Ok(message) = serde_json::from_str::<Value>(&line)
                    && message.is_object()
                {
                    return Ok(message);
                }
                self.say(&AgentEvent::Unknown)?;
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 << 10];
        let read = self.stdout.read(&mut chunk)?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the agent ended in the middle of its turn"));
        }
        self.rest.extend_from_slice(&chunk[..read]);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.lines.push_back(String::from_utf8_lossy(&line).into_owned());
        }
        if self.rest.len() > LINE_CAP {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the agent wrote a line that is too long"));
        }
        Ok(())
    }
}
