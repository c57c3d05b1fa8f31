//! The listener for people's answers, on a thread of its own: one long poll to the notifier's
//! server. It ends with its notifier.

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

/// First and longest wait after a failed poll.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15 * 60));
/// Least time between two polls, whatever the server does.
const LEAST: Duration = Duration::from_secs(1);
/// The supervisor answers within this, unless it is gone.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// A running listener; it ends when this is dropped.
pub(super) struct ReplyListener {
    open: Arc<AtomicBool>,
}

impl Drop for ReplyListener {
    fn drop(&mut self) {
        self.open.store(false, Ordering::Relaxed);
    }
}

impl ReplyListener {
    /// Starts one, if the notifier takes answers.
    pub(super) fn open(
        sender: &str,
        notifier: &Notifier,
        next: i64,
        reports: &mpsc::Sender<DeliveryReport>,
    ) -> Option<Self> {
        // Without a token nothing can be received, and the first message reports it.
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
                                // Nothing could be stored; the server will deliver it again.
                                waits.rest(asked);
                            }
                            next = settled.next.max(next);
                            for (press, text) in settled.words {
                                // The confirmation is shown to the person that pressed; the message
                                // is not repeated.
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

/// Lets the supervisor act on the answers; `None` when it is gone.
fn settle(sender: &str, heard: Vec<ChatReply>, reports: &mpsc::Sender<DeliveryReport>) -> Option<AnswersTaken> {
    let (back, answer) = std::sync::mpsc::channel();
    reports.blocking_send(DeliveryReport::Heard { sender: sender.to_owned(), heard, back }).ok()?;
    answer.recv_timeout(SETTLED_WITHIN).ok()
}

/// Failed polls in a row.
#[derive(Default)]
struct Waits {
    failures: u32,
}

impl Waits {
    /// Keeps a server that answers at once with nothing from being polled in a busy loop.
    fn rest(&mut self, asked: Instant) {
        self.failures = 0;
        std::thread::sleep(LEAST.saturating_sub(asked.elapsed()));
    }

    fn fail(&mut self, sender: &str, failure: &Undelivered) {
        if self.failures == 0 {
            tracing::warn!(notifier = sender, error = failure.why, "cannot receive answers; the loops go on");
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
