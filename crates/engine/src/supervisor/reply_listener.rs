//! The listener for people's answers, on a thread of its own: one long poll to the notifier's
//! server. It ends with its notifier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everloop_agents::channel::telegram::{ChatReply, Listener};
use everloop_agents::clock::machine_period;
use everloop_core::jitter::mix;
use everloop_core::outbound::Undelivered;
use tokio::sync::mpsc;

use super::notify::{AnswersTaken, ChatReplies};
use super::outbound::OutboundReport;
use crate::projects::NotifierSender;

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
    pub(super) fn open(sender: &NotifierSender, next: i64, reports: mpsc::Sender<OutboundReport>) -> Option<Self> {
        // Without a token nothing can be received, and the first message reports it.
        let listener = Listener::new(&sender.of.receiver)?.ok()?;
        let open = Arc::new(AtomicBool::new(true));
        let (sender, is_open) = (sender.key(), Arc::clone(&open));
        let thread = std::thread::Builder::new().name("listen".to_owned());
        let started = thread.spawn(move || {
            let (mut next, mut failures) = (next, 0);
            while is_open.load(Ordering::Relaxed) && !reports.is_closed() {
                let asked = Instant::now();
                let before = next;
                match listener.listen(next) {
                    Ok(heard) if heard.is_empty() => failures = 0,
                    Ok(heard) => {
                        let Some(settled) = settle(&sender, heard, &reports) else { return };
                        failures = 0;
                        next = settled.next.max(next);
                        for (press, text) in settled.words {
                            // The confirmation is shown to the person that pressed; the message is
                            // not repeated.
                            listener.confirm(&press, &text).ok();
                        }
                    }
                    Err(failure) => {
                        failures += 1;
                        wait_after(&sender, &failure, failures);
                    }
                }
                if next == before {
                    // A server that answers at once with nothing, or with what could not be stored,
                    // is not polled in a busy loop.
                    std::thread::sleep(LEAST.saturating_sub(asked.elapsed()));
                }
            }
        });
        started.ok().map(|_| Self { open })
    }
}

/// Lets the supervisor act on the answers; `None` when it is gone.
fn settle(sender: &str, heard: Vec<ChatReply>, reports: &mpsc::Sender<OutboundReport>) -> Option<AnswersTaken> {
    let (back, answer) = std::sync::mpsc::channel();
    let replies = ChatReplies { sender: sender.to_owned(), heard };
    reports.blocking_send(OutboundReport::Heard(replies, back)).ok()?;
    answer.recv_timeout(SETTLED_WITHIN).ok()
}

fn wait_after(sender: &str, failure: &Undelivered, failures: u32) {
    if failures == 1 {
        tracing::warn!(notifier = sender, error = failure.why, "cannot receive answers; the loops go on");
    }
    let seed = mix(u64::from(std::process::id()), u64::from(failures));
    std::thread::sleep(machine_period(failure.wait(failures, seed)));
}
