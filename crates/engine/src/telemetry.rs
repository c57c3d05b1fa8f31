//! Telemetry of agents, summed up by turn. Kept in memory only: a supervisor that is killed loses
//! this second source of a turn's use and nothing else.
//!
//! Each turn's agent gets a header of its own. It can send for its own turn alone, and only make
//! that one dearer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everloop_agents::agent::{Receiver, otlp};
use everloop_core::ids::TurnId;
use everloop_core::stream::Usage;
use everloop_core::telemetry::TelemetrySum;
use tokio::time::sleep;

use crate::token::Token;

/// Names the turn.
pub const HEADER: &str = "x-everloop-turn";
/// What an agent sent in its last moment is read within this, on a busy machine too.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Between two looks whether that is done.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Which of the two was sent.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    /// Sent to `/v1/metrics`.
    Counters,
    /// Sent to `/v1/logs`.
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
pub struct TurnTelemetry {
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
    /// Records that are not needed here.
    pub ignored: u64,
}

impl Sums {
    fn add(&mut self, heard: &TelemetrySum) {
        self.requests += heard.requests();
        self.errors += heard.errors();
        self.ignored += heard.unknowns();
    }
}

impl TurnTelemetry {
    fn turns(&self) -> MutexGuard<'_, BTreeMap<TurnId, Entry>> {
        // Nothing is left half done under this lock.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes telemetry of this turn from now on.
    pub fn open(&self, turn: &TurnId, address: SocketAddr, token: &Token) -> TelemetryLine {
        self.turns().entry(turn.clone()).or_default();
        TelemetryLine {
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
    pub fn visit(&self, turn: &TurnId) -> Option<Visit> {
        self.turns().get_mut(turn)?.visits += 1;
        Some(Visit { sender: self.clone(), turn: turn.clone() })
    }
}

/// A request that is being read; until it is dropped, its turn waits for it.
pub struct Visit {
    sender: TurnTelemetry,
    turn: TurnId,
}

impl Visit {
    /// Adds a request's body to the turn's sums. A turn that ended meanwhile takes nothing.
    pub fn read(self, signal: Signal, body: &[u8]) -> Result<(), String> {
        let parsed = self.sender.turns().get_mut(&self.turn).map(|entry| match signal {
            Signal::Counters => otlp::metrics(body, &mut entry.heard),
            Signal::Events => otlp::logs(body, &mut entry.heard),
        });
        parsed.unwrap_or(Ok(())).map_err(|e| e.to_string())
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
pub struct TelemetryLine {
    sender: TurnTelemetry,
    turn: TurnId,
    endpoint: String,
    header: String,
}

impl TelemetryLine {
    /// Where the agent sends to, and with which header.
    pub fn receiver(&self) -> Receiver<'_> {
        Receiver { endpoint: &self.endpoint, header: &self.header }
    }

    /// The usage that arrived, once the agent is gone. Its last requests may still be on their way
    /// through the kernel.
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

impl Drop for TelemetryLine {
    fn drop(&mut self) {
        let entry = self.sender.turns().remove(&self.turn);
        if let Some(entry) = entry {
            self.sender.past.lock().unwrap_or_else(PoisonError::into_inner).add(&entry.heard);
        }
    }
}
