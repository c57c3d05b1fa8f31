//! Telemetry of agents: `POST /v1/metrics` and `/v1/logs` (OTLP in JSON), sorted by turn. Kept in memory only: a supervisor that
//! is killed loses this second source and nothing else.
//!
//! Each turn's agent is told a header of its own. It can send for itself alone, and only make its own turn dearer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everloop_agents::agent::{Receiver, otlp};
use everloop_core::ids::TurnId;
use everloop_core::stream::Usage;
use everloop_core::telemetry::TelemetrySum;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::{HeaderMap, Request};
use serde_json::json;
use tokio::time::sleep;

use super::Shared;
use super::access::{Token, same};
use super::answer::{Answer, read};

/// Names the turn.
const HEADER: &str = "x-everloop-turn";
/// What an exporter puts into one request by default is far below.
const BODY_MOST_BYTES: usize = 4 << 20;
/// What is longer is read on another thread: the owner's has other things to do.
const AT_ONCE_BYTES: usize = 64 << 10;
/// What an agent sent in its last moment is read within this, on a busy machine too.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Between two looks whether that is done.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Which of the two was sent.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    /// `/v1/metrics`.
    Counters,
    /// `/v1/logs`.
    Events,
}

#[derive(Default)]
struct Entry {
    heard: TelemetrySum,
    /// Requests that are being read.
    visits: u32,
}

/// What the running turns' agents sent so far.
#[derive(Clone, Default)]
pub struct Desk {
    turns: Arc<Mutex<BTreeMap<TurnId, Entry>>>,
    /// Of turns that are over.
    past: Arc<Mutex<Sums>>,
}

/// How much telemetry came, since the supervisor began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Requests to models that were answered.
    pub requests: u64,
    /// Requests to models that failed.
    pub errors: u64,
    /// Records that nobody here needs.
    pub ignored: u64,
}

impl Sums {
    fn add(&mut self, heard: &TelemetrySum) {
        self.requests += heard.requests();
        self.errors += heard.errors();
        self.ignored += heard.unknowns();
    }
}

impl Desk {
    fn turns(&self) -> MutexGuard<'_, BTreeMap<TurnId, Entry>> {
        // Nothing is left half done under this lock.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes telemetry of this turn from now on.
    pub fn open(&self, turn: &TurnId, address: SocketAddr, token: &Token) -> Line {
        self.turns().entry(turn.clone()).or_default();
        Line {
            sender: self.clone(),
            turn: turn.clone(),
            endpoint: format!("http://{address}"),
            header: format!("{HEADER}={turn}.{}", token.sign(turn)),
        }
    }

    /// How much came.
    pub fn sums(&self) -> Sums {
        let mut sums = *self.past.lock().unwrap_or_else(PoisonError::into_inner);
        self.turns().values().for_each(|entry| sums.add(&entry.heard));
        sums
    }

    /// Begins to read a request of a turn that is under way.
    fn visit(&self, turn: &TurnId) -> Option<Visit> {
        self.turns().get_mut(turn)?.visits += 1;
        Some(Visit { sender: self.clone(), turn: turn.clone() })
    }
}

/// A request that is being read; until it is dropped, its turn waits for it.
struct Visit {
    sender: Desk,
    turn: TurnId,
}

impl Visit {
    fn read(self, signal: Signal, body: &[u8]) -> Answer {
        let parsed = self.sender.turns().get_mut(&self.turn).map(|entry| match signal {
            Signal::Counters => otlp::metrics(body, &mut entry.heard),
            Signal::Events => otlp::logs(body, &mut entry.heard),
        });
        match parsed {
            Some(Err(e)) => Answer::error(400, &format!("not OTLP in JSON: {e}")),
            // Nothing was turned down, in the words of OTLP.
            Some(Ok(())) | None => Answer::json(200, &json!({})),
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(entry) = self.sender.turns().get_mut(&self.turn) {
            entry.visits = entry.visits.saturating_sub(1);
        }
    }
}

/// The way from one turn's agent to here; open until it is dropped.
pub struct Line {
    sender: Desk,
    turn: TurnId,
    endpoint: String,
    header: String,
}

impl Line {
    /// What the agent is told.
    pub fn receiver(&self) -> Receiver<'_> {
        Receiver { endpoint: &self.endpoint, header: &self.header }
    }

    /// What arrived, when the agent is gone. Its last words may still be on their way through the kernel.
    pub async fn close(self) -> Option<Usage> {
        let begun = tokio::time::Instant::now();
        loop {
            sleep(POLL_INTERVAL).await;
            let busy = self.sender.turns().get(&self.turn).is_some_and(|entry| entry.visits > 0);
            if !busy || begun.elapsed() > LAST_WORDS {
                return self.sender.turns().get(&self.turn).and_then(|entry| entry.heard.used());
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let entry = self.sender.turns().remove(&self.turn);
        if let Some(entry) = entry {
            self.sender.past.lock().unwrap_or_else(PoisonError::into_inner).add(&entry.heard);
        }
    }
}

/// One request of an exporter.
pub async fn take(shared: &Shared, signal: Signal, request: Request<Incoming>) -> Answer {
    let Some(turn) = sender(request.headers(), &shared.token) else {
        return Answer::error(401, "this is for the agents of this supervisor");
    };
    let Some(visit) = shared.sender.visit(&turn) else {
        return Answer::error(404, "the turn is over");
    };
    if let Err(refused) = readable(request.headers()) {
        return refused;
    }
    let body = match read(request.into_body(), BODY_MOST_BYTES).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    if body.len() <= AT_ONCE_BYTES {
        return visit.read(signal, &body);
    }
    let read = tokio::task::spawn_blocking(move || visit.read(signal, &body));
    read.await.unwrap_or_else(|_| Answer::error(500, "it could not be read"))
}

/// The turn whose agent this is.
fn sender(headers: &HeaderMap, token: &Token) -> Option<TurnId> {
    let (turn, proof) = headers.get(HEADER)?.to_str().ok()?.rsplit_once('.')?;
    let turn = turn.parse().ok()?;
    same(proof, &token.sign(&turn)).then_some(turn)
}

fn readable(headers: &HeaderMap) -> Result<(), Answer> {
    let text = |name| headers.get(name).map_or("", |value| value.to_str().unwrap_or_default());
    let kind = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(Answer::error(415, "send OTLP as JSON: OTEL_EXPORTER_OTLP_PROTOCOL=http/json"));
    }
    if !matches!(text(CONTENT_ENCODING), "" | "identity") {
        return Err(Answer::error(415, "send it without compression: OTEL_EXPORTER_OTLP_COMPRESSION=none"));
    }
    Ok(())
}
