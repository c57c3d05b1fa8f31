//! What is new, for open tabs: `GET /events`, a stream of server-sent events. Each is a record of the
//! journal under its number, so a tab that comes back names the last one it saw and misses nothing.
//!
//! One task reads the journal for all tabs, when the supervisor has done something and a tab is open.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use everloop_engine::port::PortState;
use everloop_engine::services::ServiceContext;
use everloop_engine::services::views::log::{NewRecord, news};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc};
use tokio::time::timeout;

use super::super::answer::Answer;
use super::super::serve::Seat;
use super::super::{App, text};
use super::call;
use super::form::Form;

/// Tabs at once.
const MAX_TABS: usize = 256;
/// A tab that was away for longer loads its page anew.
const MAX_RECORDS: usize = 500;
/// News that wait for a slow tab; a slower one loads its page anew.
const BACKLOG: usize = 64;
/// A stream ends after this and the browser opens the next one, so nothing lives for ever.
const LIFE: Duration = Duration::from_secs(15 * 60);
const FORMAT: &str = "text/event-stream";

/// News for tabs.
pub struct Feed {
    news: broadcast::Sender<Arc<Vec<NewRecord>>>,
    /// The last record that was read, while a tab is open.
    seq: Mutex<Option<u64>>,
    tabs: Arc<Semaphore>,
}

impl Feed {
    /// Begins to wait for the supervisor. Needs the runtime.
    pub fn start(port: &Arc<PortState>) -> Arc<Self> {
        let feed = Arc::new(Self {
            news: broadcast::channel(BACKLOG).0,
            seq: Mutex::default(),
            tabs: Arc::new(Semaphore::new(MAX_TABS)),
        });
        let (own, port) = (Arc::downgrade(&feed), Arc::clone(port));
        tokio::spawn(async move {
            let mut beats = port.figures.beats();
            while beats.changed().await.is_ok() {
                let Some(feed) = own.upgrade() else { return };
                feed.read(&port).await;
            }
        });
        feed
    }

    fn seq(&self) -> std::sync::MutexGuard<'_, Option<u64>> {
        self.seq.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, port: &PortState) {
        if self.news.receiver_count() == 0 {
            *self.seq() = None;
            return;
        }
        let Some(after) = *self.seq() else { return };
        let context = reader(port);
        let found = tokio::task::spawn_blocking(move || news(&context, after, MAX_RECORDS)).await;
        let Ok(Ok((records, _))) = found else { return };
        if let Some(last) = records.last() {
            *self.seq() = Some(last.seq);
            // Without a tab nothing is lost.
            self.news.send(Arc::new(records)).ok();
        }
    }

    /// Has open tabs load their page again, for what is in no journal.
    pub fn nudge(&self) {
        self.news.send(Arc::default()).ok();
    }
}

/// The journal is read as by anything else; nothing is written.
fn reader(port: &PortState) -> ServiceContext {
    let root = port.home.root().to_owned();
    let caller = everloop_engine::caller::Caller::client("dashboard");
    let projects = Arc::new(crate::config::FileProjects);
    ServiceContext { state_dir: Some(root.clone()), dir: root, caller, projects }
}

/// `GET /events?after=N`: everything after the record that the tab saw last.
pub async fn events(State(app): State<Arc<App>>, request: Request) -> Response {
    let Ok(tab) = Arc::clone(&app.dashboard.feed.tabs).try_acquire_owned() else {
        return Answer::error(503, "too many tabs are open").into_response();
    };
    // A tab does not take the place of a request.
    if let Some(seat) = request.extensions().get::<Seat>() {
        seat.leave();
    }
    let query = Form::parse(request.uri().query().unwrap_or_default());
    let seen = text(request.headers(), "last-event-id").unwrap_or(query.get("after")).parse::<u64>().ok();
    let mut live = app.dashboard.feed.news.subscribe();
    let missed = call(&app, move |context| match seen {
        Some(seen) => news(context, seen, MAX_RECORDS),
        None => news(context, u64::MAX, 0),
    });
    let (missed, last) = match missed.await {
        Ok(found) => found,
        Err(failure) => return Answer::error(500, &failure.message).into_response(),
    };
    let mut after = missed.last().map_or(seen.unwrap_or(last).min(last), |record| record.seq);
    app.dashboard.feed.seq().get_or_insert(after);
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let first = if missed.len() >= MAX_RECORDS { reload(last) } else { lines(&missed) };
    after = if missed.len() >= MAX_RECORDS { last } else { after };
    tokio::spawn(async move {
        let stream = async {
            sender.send(Bytes::from(format!("retry: 2000\n\n{first}"))).await.ok()?;
            loop {
                let text = tokio::select! {
                    found = live.recv() => match found {
                        Ok(records) if records.is_empty() => reload(after),
                        Ok(records) => lines(records.iter().filter(|record| record.seq > after)),
                        Err(broadcast::error::RecvError::Lagged(_)) => reload(after),
                        Err(broadcast::error::RecvError::Closed) => return None,
                    },
                    () = sender.closed() => return None,
                };
                if !text.is_empty() {
                    sender.send(Bytes::from(text)).await.ok()?;
                }
            }
        };
        let ended: Option<Option<()>> = timeout(LIFE, stream).await.ok();
        tracing::trace!(?ended, "a stream of events ended");
    });
    let body = Body::new(EventStream { receiver, _tab: tab });
    ([(CONTENT_TYPE, FORMAT)], body).into_response()
}

/// Records as events.
fn lines<'a>(records: impl IntoIterator<Item = &'a NewRecord>) -> String {
    let one = |record: &NewRecord| {
        let data = serde_json::to_string(record).expect("plain data always has a JSON form");
        format!("id: {}\ndata: {data}\n\n", record.seq)
    };
    records.into_iter().map(one).collect()
}

fn reload(seq: u64) -> String {
    format!("id: {seq}\nevent: reload\ndata: {{}}\n\n")
}

/// The body of a stream; its place among the tabs ends with it.
struct EventStream {
    receiver: mpsc::Receiver<Bytes>,
    _tab: OwnedSemaphorePermit,
}

impl hyper::body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
