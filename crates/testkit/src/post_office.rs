//! Servers that take messages for people, on loopback: Telegram's bot API as far as everloop uses
//! it, and anything else that takes a POST (Slack, ntfy, gateways, webhooks). It behaves like the
//! real ones where that matters: limits, long polling, numbers of updates, and oversized texts.

use std::collections::{BTreeSet, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fake_model::http::{HttpRequest, ResponseHead, answer};

/// Telegram's limit of a text.
const TEXT_MOST: usize = 4096;
/// Telegram's limit of a button's data.
const DATA_MOST: usize = 64;

/// The response to the next message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Too many messages: retry after this many seconds.
    TooMany(u64),
    /// This status and nothing more.
    Status(u16),
    /// It is received, and never answered.
    Hang,
}

/// A received message.
#[derive(Clone, Debug)]
pub struct ReceivedMail {
    /// The path it was sent to.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub at: Instant,
}

impl ReceivedMail {
    /// The first header with this name, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v.as_str())
    }

    /// The body as JSON; null when it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

#[derive(Default)]
struct State {
    letters: Vec<ReceivedMail>,
    acts: VecDeque<Act>,
    /// Messages of people, with their numbers.
    updates: Vec<Value>,
    number: i64,
    /// Updates are delivered again although they were confirmed.
    forgetful: bool,
    confirmed: Vec<String>,
    polls: usize,
    closed: bool,
}

/// A message server; it closes with the test.
pub struct PostOffice {
    address: SocketAddr,
    token: String,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Drop for PostOffice {
    fn drop(&mut self) {
        self.state().closed = true;
        self.shared.1.notify_all();
    }
}

impl PostOffice {
    /// Opens one on a free port with a bot of this token.
    pub fn open(token: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let (theirs, bot) = (Arc::clone(&shared), format!("/bot{token}/"));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if lock(&theirs).closed {
                    return;
                }
                let (shared, bot) = (Arc::clone(&theirs), bot.clone());
                // A client may disconnect in the middle.
                std::thread::spawn(move || serve(&stream, &shared, &bot).ok());
            }
        });
        Self { address, token: token.to_owned(), shared }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared)
    }

    /// Its address with this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sets the next responses, in this order; then all messages are accepted.
    pub fn meet(&self, acts: &[Act]) {
        self.state().acts.extend(acts.iter().cloned());
    }

    /// Every message received, also those that were not accepted.
    pub fn letters(&self) -> Vec<ReceivedMail> {
        self.state().letters.clone()
    }

    /// The texts that the bot wrote.
    pub fn chat(&self) -> Vec<Value> {
        let path = format!("/bot{}/sendMessage", self.token);
        self.state().letters.iter().filter(|l| l.path == path).map(ReceivedMail::json).collect()
    }

    /// How many different messages there were, by their keys.
    pub fn counted(&self) -> usize {
        let letters = self.letters();
        letters.iter().map(|l| l.header("idempotency-key").to_owned()).collect::<BTreeSet<_>>().len()
    }

    /// A person in this chat presses a button.
    pub fn press(&self, chat: i64, data: &str) {
        let query = json!({ "id": format!("press {data}"), "data": data, "from": { "username": "ann" },
            "message": { "message_id": 1, "chat": { "id": chat } } });
        self.update("callback_query", query);
    }

    /// A person in this chat replies to a message.
    pub fn reply(&self, chat: i64, text: &str, to: &str) {
        let message = json!({ "message_id": 2, "chat": { "id": chat }, "text": text, "from": { "username": "ann" },
            "reply_to_message": { "message_id": 1, "text": to } });
        self.update("message", message);
    }

    fn update(&self, kind: &str, what: Value) {
        let mut state = self.state();
        state.number += 1;
        let mut update = json!({ "update_id": state.number });
        update[kind] = what;
        state.updates.push(update);
        drop(state);
        self.shared.1.notify_all();
    }

    /// From now on all earlier updates are delivered again to every poll.
    pub fn forget(&self) {
        self.state().forgetful = true;
        self.shared.1.notify_all();
    }

    /// The confirmations that people got for a pressed button.
    pub fn confirmed(&self) -> Vec<String> {
        self.state().confirmed.clone()
    }

    /// How often it was polled for updates.
    pub fn polls(&self) -> usize {
        self.state().polls
    }
}

fn lock(shared: &(Mutex<State>, Condvar)) -> MutexGuard<'_, State> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, shared: &(Mutex<State>, Condvar), bot: &str) -> std::io::Result<()> {
    let Some(request) = HttpRequest::read(stream)? else { return Ok(()) };
    let method = match request.target.strip_prefix(bot) {
        Some(method) => method,
        None if request.target.starts_with("/bot") => {
            return say(stream, 401, &json!({ "ok": false, "error_code": 401, "description": "Unauthorized" }));
        }
        None => "",
    };
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    match method {
        "getUpdates" => return say(stream, 200, &json!({ "ok": true, "result": updates(shared, &body) })),
        "answerCallbackQuery" => {
            lock(shared).confirmed.push(body["text"].as_str().unwrap_or_default().to_owned());
            return say(stream, 200, &json!({ "ok": true, "result": true }));
        }
        _ => {}
    }
    let letter = ReceivedMail {
        path: request.target.clone(),
        headers: request.headers.clone(),
        body: String::from_utf8_lossy(&request.body).into_owned(),
        at: Instant::now(),
    };
    let act = {
        let mut state = lock(shared);
        state.letters.push(letter);
        state.acts.pop_front()
    };
    match act {
        Some(Act::TooMany(after)) => {
            let said = json!({ "ok": false, "error_code": 429, "description": format!("Too Many Requests: retry after {after}"),
                "parameters": { "retry_after": after } });
            let head = ResponseHead::new(429).with("retry-after", after.to_string());
            answer(stream, &head, said.to_string().as_bytes())
        }
        Some(Act::Status(status)) => answer(stream, &ResponseHead::new(status), b"{}"),
        Some(Act::Hang) => {
            let state = shared.1.wait_while(lock(shared), |state| !state.closed);
            drop(state);
            Ok(())
        }
        None if method == "sendMessage" => say(stream, 200, &sent(&body)),
        None => answer(stream, &ResponseHead::new(200), b"ok"),
    }
}

/// Telegram's response to a message.
fn sent(body: &Value) -> Value {
    let text = body["text"].as_str().unwrap_or_default();
    let rows = body["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
    let mut buttons = rows.iter().flat_map(|row| row.as_array().cloned().unwrap_or_default());
    let too_long = buttons.any(|b| b["callback_data"].as_str().is_none_or(|d| d.is_empty() || d.len() > DATA_MOST));
    if text.is_empty() || text.chars().count() > TEXT_MOST || too_long {
        return json!({ "ok": false, "error_code": 400, "description": "Bad Request" });
    }
    json!({ "ok": true, "result": { "message_id": 1, "text": text } })
}

/// Waits until there is an update from `offset` on; earlier ones are confirmed and removed.
fn updates(shared: &(Mutex<State>, Condvar), body: &Value) -> Vec<Value> {
    let offset = body["offset"].as_i64().unwrap_or(0);
    let patience = Duration::from_secs(body["timeout"].as_u64().unwrap_or(0));
    let number = |update: &Value| update["update_id"].as_i64().unwrap_or(0);
    let mut state = lock(shared);
    state.polls += 1;
    if std::mem::take(&mut state.forgetful) {
        return state.updates.clone();
    }
    let waits = |state: &mut State| {
        !state.closed && !state.forgetful && !state.updates.iter().any(|update| number(update) >= offset)
    };
    let (mut state, _) = shared.1.wait_timeout_while(state, patience, waits).unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut state.forgetful) {
        return state.updates.clone();
    }
    state.updates.iter().filter(|update| number(update) >= offset).cloned().collect()
}

fn say(stream: &TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let head = ResponseHead::new(status).with("content-type", "application/json");
    answer(stream, &head, body.to_string().as_bytes())
}
