//! Sends what happens to a collector of OpenTelemetry, if one is configured: a thread that follows
//! the journal. Without a collector there is no thread, and nothing leaves.
//!
//! The fold and its place in the journal are a document of the ledger, written after a collector
//! took everything: a crash between sends the same spans again, under the same ids. A collector
//! that is away is tried again more and more rarely, and disturbs nothing.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use everloop_agents::clock::{self, machine_period};
use everloop_agents::otlp::{OtlpClient, OtlpKind, OtlpReceiver};
use everloop_core::op::Op;
use everloop_core::otlp::wire::{self, OtlpSender};
use everloop_core::otlp::{OtlpBatch, OtlpState};
use everloop_store::{Ledger, OpenMode, Sqlite};

use crate::error::Failure;
use crate::record::read_state;
use crate::state_folder::{StateFolder, node_id};

/// Kind and key of the document.
const DOC: (&str, &str) = ("otlp", "journal");
/// What happens is with the collector after this time; a busy time is one batch.
const REST: Duration = Duration::from_secs(1);
/// The collector is away: the next attempts.
const AWAY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// Records of the journal in one batch.
const PAGE: usize = 500;
/// How long an ending supervisor waits for the last batch.
const LAST_PASS: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Messages to the thread.
enum News {
    Changed,
    /// Send once more and end.
    Go,
}

/// The thread that sends.
pub(super) struct Exporter {
    news: Sender<News>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Begins to follow the journal of this state folder, from where it was left or from now.
    pub(super) fn start(home: &StateFolder, receiver: OtlpReceiver) -> Option<Self> {
        let (news, arrived) = mpsc::channel();
        let begun = Sqlite::open(&home.database(), OpenMode::ReadWrite).map_err(Failure::from);
        let (state, version) = begun
            .and_then(|mut ledger| begin(&mut ledger))
            .inspect_err(|e| tracing::warn!(error = %e.message, "cannot begin to send telemetry"))
            .ok()?;
        let sender = OtlpSender { version: env!("CARGO_PKG_VERSION").to_owned(), instance: node_id().to_string() };
        let mut thread = Thread { home: home.clone(), receiver, sender, state, version, client: None, away: None };
        let run = move || thread.run(&arrived);
        let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(run);
        thread
            .map(|thread| Self { news, thread })
            .inspect_err(|e| tracing::warn!(error = %e, "cannot start the thread for the collector"))
            .ok()
    }

    /// Reports a commit.
    pub(super) fn changed(&self) {
        // A thread that ended has logged why.
        self.news.send(News::Changed).ok();
    }

    /// Waits until everything is sent, within bounds.
    pub(super) async fn gone(self) {
        self.news.send(News::Go).ok();
        let end = tokio::time::Instant::now() + LAST_PASS;
        while !self.thread.is_finished() && tokio::time::Instant::now() < end {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

struct Thread {
    home: StateFolder,
    receiver: OtlpReceiver,
    sender: OtlpSender,
    /// What a collector has, and the version of the document that says so.
    state: OtlpState,
    version: u64,
    client: Option<OtlpClient>,
    /// The collector is away: the wait before the next attempt.
    away: Option<Duration>,
}

impl Thread {
    fn run(&mut self, arrived: &Receiver<News>) {
        // What came before this thread may be unsent.
        let mut next = Some(Instant::now());
        loop {
            let news = match next {
                Some(at) => arrived.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => arrived.recv().map_err(RecvTimeoutError::from),
            };
            match news {
                Ok(News::Changed) => next = next.or(Some(Instant::now() + machine_period(REST))),
                Err(RecvTimeoutError::Timeout) => {
                    next = self.attempt().map(|wait| Instant::now() + machine_period(wait));
                }
                Ok(News::Go) | Err(RecvTimeoutError::Disconnected) => {
                    self.attempt();
                    return;
                }
            }
        }
    }

    /// Sends what is new; returns when to try again, if something is left.
    fn attempt(&mut self) -> Option<Duration> {
        match self.pass() {
            Ok(()) => {
                if self.away.take().is_some() {
                    tracing::info!("the collector of telemetry is back");
                }
                None
            }
            Err(failure) => {
                if self.away.is_none() {
                    tracing::warn!(error = %failure.message, "cannot send telemetry; it is tried again");
                }
                let wait = self.away.map_or(AWAY.0, |before| (before * 2).min(AWAY.1));
                self.away = Some(wait);
                self.client = None;
                Some(wait)
            }
        }
    }

    fn pass(&mut self) -> Result<(), Failure> {
        let mut ledger = Sqlite::open(&self.home.database(), OpenMode::ReadWrite)?;
        loop {
            let page = ledger.journal(self.state.after, None, PAGE)?;
            if page.is_empty() {
                return Ok(());
            }
            let (mut state, mut batch) = (self.state.clone(), OtlpBatch::default());
            for record in &page {
                state.take(record, &mut batch);
            }
            self.send(&state, &batch).map_err(Failure::away)?;
            ledger.transact(clock::now(), &[save(&state, self.version)])?;
            (self.state, self.version) = (state, self.version + 1);
        }
    }

    fn send(&mut self, state: &OtlpState, batch: &OtlpBatch) -> Result<(), String> {
        let client = match self.client.take() {
            Some(client) => client,
            None => OtlpClient::new(&self.receiver)?,
        };
        if !batch.spans.is_empty() {
            client.post(OtlpKind::Traces, &wire::traces(&batch.spans, &self.sender))?;
        }
        if !batch.logs.is_empty() {
            client.post(OtlpKind::Logs, &wire::logs(&batch.logs, &self.sender))?;
        }
        client.post(OtlpKind::Metrics, &wire::metrics(&state.sums, (state.since, clock::now()), &self.sender))?;
        self.client = Some(client);
        Ok(())
    }
}

/// The fold as it was sent last, with its version. The first one begins now: what happened before a
/// collector was named is not sent. An unreadable one begins again.
fn begin(ledger: &mut Sqlite) -> Result<(OtlpState, u64), Failure> {
    let doc = ledger.doc(DOC.0, DOC.1)?;
    let version = doc.as_ref().map_or(0, |doc| doc.version);
    if let Some(state) = doc.and_then(|doc| serde_json::from_str(&doc.body).ok()) {
        return Ok((state, version));
    }
    let after = ledger.last_seq()?;
    let loops = ledger.loops()?.iter().map(read_state).collect::<Result<Vec<_>, _>>()?;
    let state = OtlpState::beginning(after, clock::now(), &loops);
    ledger.transact(clock::now(), &[save(&state, version)])?;
    Ok((state, version + 1))
}

fn save(state: &OtlpState, version: u64) -> Op {
    let body = serde_json::to_string(state).expect("the fold is plain data and always has a JSON form");
    Op::SaveDoc { kind: DOC.0.to_owned(), key: DOC.1.to_owned(), version, body }
}
