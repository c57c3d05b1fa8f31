//! everloop's own agent, which calls a model's API directly and needs no CLI. It runs as a job like
//! all others.
//!
//! - [`ApiTurnOptions`]: its configuration; [`run`]: one turn, with
//!   [`AgentEvent`](everloop_core::stream::AgentEvent) as JSON lines on a writer
//! - `conversation`: send a request, perform the calls of the reply, repeat; `session`: what is
//!   kept for the next turn
//! - `messages`, `responses`: the two API formats; `reply`: their common result; `sse`, `http`: the
//!   transport
//! - [`get`]: one plain GET, for monitors
//! - `limit`: which refusal of a vendor is which limit; `tools`: what the model may do;
//!   `output_stream`: the output
//!
//! It waits for one response or one tool at a time, and it retries a request only if its response
//! never began: waiting that survives a restart is the supervisor's.

mod conversation;
mod get;
mod http;
mod limit;
mod messages;
mod options;
mod output_stream;
mod reply;
mod responses;
mod session;
mod sse;
mod tools;

use std::io::Write;

use everloop_core::stream::{AgentEvent, LimitClass, VendorLimit};
use nix::sys::prctl;

pub use get::{Got, get};
pub use options::{ApiFormat, ApiTurnOptions, Timeouts, usual_prices};

use conversation::Conversation;
use http::Client;
use output_stream::OutputStream;
use reply::ApiRefusal;
use session::ApiSession;

/// The argument with which the main binary becomes this agent.
pub const API_ARG: &str = "__api";

/// How a turn ended, for the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiTurnEnd {
    /// The model finished its answer.
    Finished,
    /// Anything else; the output contains the reason.
    Short,
}

/// Runs one turn with `prompt`. All results go to `out`; `key` never does.
pub fn run(options: &ApiTurnOptions, key: Option<&str>, prompt: &str, out: &mut dyn Write) -> ApiTurnEnd {
    harden();
    let mut output = OutputStream::new(out, &options.secret(key));
    match turn(options, key, prompt, &mut output) {
        Ok(text) => {
            output.say(&AgentEvent::Result { ok: true, text });
            if output.is_heard() { ApiTurnEnd::Finished } else { ApiTurnEnd::Short }
        }
        Err(refusal) => {
            output.flush();
            if let Some(limit) = refusal.limit {
                output.say(&AgentEvent::Limit(limit));
            }
            output.say(&AgentEvent::Result { ok: false, text: refusal.text });
            ApiTurnEnd::Short
        }
    }
}

/// The key is in this process's environment, and shell tools run as the same user: they must not
/// read it there. Processes that a tool leaves behind become children of this one, so that a
/// timeout finds them.
fn harden() {
    // On a kernel that refuses this the process is as readable as any other; the redaction still
    // holds.
    prctl::set_dumpable(false).ok();
    prctl::set_child_subreaper(true).ok();
}

fn turn(
    options: &ApiTurnOptions,
    key: Option<&str>,
    prompt: &str,
    output: &mut OutputStream<'_>,
) -> Result<String, ApiRefusal> {
    let key = options.checked_key(key)?;
    let client = Client::new(options, key)?;
    let secret = options.secret(key);
    let session = match &options.resume {
        Some(id) => ApiSession::resume(options, id, &secret)?.ok_or_else(|| {
            output.say(&AgentEvent::SessionLost);
            ApiRefusal::plain(format!("there is no session `{}` to resume", clip(id)))
        })?,
        None => ApiSession::begin(options, &secret)?,
    };
    output.say(&AgentEvent::Session { id: session.id().to_owned(), model: Some(options.model.clone()) });
    Conversation::new(options, client, session, output).hold(prompt)
}

/// Shortens an external id for a message.
pub(crate) fn clip(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

impl ApiTurnOptions {
    /// The key, if it is well-formed; `None` where none is configured.
    fn checked_key<'k>(&self, key: Option<&'k str>) -> Result<Option<&'k str>, ApiRefusal> {
        let Some(name) = &self.key_env else { return Ok(None) };
        let auth = |rule: &str, text: String| ApiRefusal {
            limit: Some(VendorLimit {
                rule: rule.to_owned(),
                class: LimitClass::Auth,
                reset_at: None,
                text: text.clone(),
            }),
            text,
        };
        match key.map(str::trim).filter(|k| !k.is_empty()) {
            None => Err(auth("api.no-key", format!("the variable `{name}` with the key is not set"))),
            // The key becomes a header. Text is only split at blanks, so a key without any is never
            // split.
            Some(key) if !key.bytes().all(|b| b.is_ascii_graphic()) => {
                Err(auth("api.bad-key", format!("the variable `{name}` holds no key: blanks or unusual characters")))
            }
            key => Ok(key),
        }
    }
}
