//! Listens to what people answer, on a thread of its own: one connection that waits at the other end, nothing in between. It ends
//! with the notifier that it belongs to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everloop_agents::clock::machine_period;
use everloop_agents::notify::Notifier;
use everloop_agents::notify::telegram::{ChatReply, Listener};
use everloop_core::jitter::{between, doubled, mix};
use everloop_core::notify::Undelivered;
use tokio::sync::mpsc;

use super::notify::{AnswersTaken, DeliveryReport};

/// First and longest wait after the other side could not be asked.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15 * 60));
/// Least time between two questions, whatever the other side does.
const LEAST: Duration = Duration::from_secs(1);
/// The owner answers within this, unless he is gone.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// An open ear; it closes when this is dropped.
pub(super) struct ReplyListener {
    open: Arc<AtomicBool>,
}

impl Drop for ReplyListener {
    fn drop(&mut self) {
        self.open.store(false, Ordering::Relaxed);
    }
}

impl ReplyListener {
    /// Opens one, if anybody answers there.
    pub(super) fn open(
        sender: &str,
        notifier: &Notifier,
        next: i64,
        reports: &mpsc::Sender<DeliveryReport>,
    ) -> Option<Self> {
        // Without a token nothing is heard, and the first message says so.
        let listener = Listener::new(notifier)?.ok()?;
        let open = Arc::new(AtomicBool::new(true));
        let (sender, reports, is_open) = (sender.to_owned(), reports.clone(), Arc::clone(&open));
        let thread = std::thread::Builder::new().name("listen".to_owned());
        let started = thread.spawn(move || {
            let mut waits = Waits::default();
            let mut next = next;
            while is_open.load(Ordering::Relaxed) && !reports.is_closed() {
                let asked = Instant::now();
                match listener.listen(next) {
                    Ok(heard) if heard.is_empty() => waits.rest(asked),
                    Ok(heard) => match settle(&sender, heard, &reports) {
                        None => return,
                        Some(settled) => {
                            waits = Waits::default();
                            if settled.next <= next {
                                // Nothing could be written down; it will be said again.
                                waits.rest(asked);
                            }
                            next = settled.next.max(next);
                            for (press, text) in settled.words {
                                // Whoever pressed sees it in the end: the message is not repeated.
                                listener.confirm(&press, &text).ok();
                            }
                        }
                    },
                    Err(failure) => waits.fail(&sender, &failure),
                }
            }
        });
        started.ok().map(|_| Self { open })
    }
}

/// Lets the owner do what was said; `None` when there is none any more.
fn settle(sender: &str, heard: Vec<ChatReply>, reports: &mpsc::Sender<DeliveryReport>) -> Option<AnswersTaken> {
    let (back, answer) = std::sync::mpsc::channel();
    reports.blocking_send(DeliveryReport::Heard { sender: sender.to_owned(), heard, back }).ok()?;
    answer.recv_timeout(SETTLED_WITHIN).ok()
}

/// How often the other side could not be asked, in a row.
#[derive(Default)]
struct Waits {
    failures: u32,
}

impl Waits {
    /// A server that answers nothing at once is not asked without end.
    fn rest(&mut self, asked: Instant) {
        self.failures = 0;
        std::thread::sleep(LEAST.saturating_sub(asked.elapsed()));
    }

    fn fail(&mut self, sender: &str, failure: &Undelivered) {
        if self.failures == 0 {
            tracing::warn!(notifier = sender, error = failure.why, "answers cannot be heard; the loops go on");
        }
        let seed = mix(u64::from(std::process::id()), u64::from(self.failures));
        let wait = failure.retry_after.map_or_else(
            || between(RETRY.0, doubled(RETRY.0, self.failures, RETRY.1), seed),
            |asked| asked.min(RETRY.1),
        );
        self.failures += 1;
        std::thread::sleep(machine_period(wait).max(LEAST));
    }
}
