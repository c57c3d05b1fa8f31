//! Sends deliveries: to notifiers (`notify` finds what they get), trackers and mailboxes
//! (`reports`). Each channel sends in order and apart from the owner, for a bounded time; its
//! failures disturb no loop and are logged once. `core::outbound` decides what is due and when it
//! is tried again.
//!
//! Crash window: between sending and its record the same is sent again, under the same key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everloop_agents::channel::Receiver;
use everloop_core::event::Event;
use everloop_core::isolation::Isolation;
use everloop_core::jitter::mix;
use everloop_core::outbound::{Delivery, Record, Refusal, Undelivered};
use everloop_core::time::Time;
use everloop_store::Ledger;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::notify::{AnswersTaken, ChatReplies, NotifierSources};
use super::reply_listener::ReplyListener;
use super::{Supervisor, Watcher};
use crate::error::Failure;
use crate::outboxes::{self, RecordId};
use crate::projects::NotifierSender;
use crate::tickets;

/// Results that wait for the owner; each channel has one batch and one poll.
const REPORTS: usize = 64;
/// How long an ending supervisor waits for deliveries.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Results of deliveries and polls.
pub(super) enum OutboundReport {
    /// Deliveries were tried, in this order; all but the last one arrived.
    Sent(RecordId, Vec<(Delivery, Result<(), Undelivered>)>),
    /// Answers of people; the results go back.
    Heard(ChatReplies, std::sync::mpsc::Sender<AnswersTaken>),
}

/// A channel at work.
pub(super) struct Line {
    pub record: Record,
    version: u64,
    /// Something is being sent now.
    sending: bool,
    /// The failure to reach it was logged.
    logged: bool,
    /// The notifier that it belongs to, and its listener for answers, which ends with this value.
    pub notifier: Option<(NotifierSender, Option<ReplyListener>)>,
}

/// All channels, and when the next one may have something to send.
pub(super) struct Outbound {
    pub lines: BTreeMap<RecordId, Line>,
    /// What decides which notifiers there are.
    pub notifiers: NotifierSources,
    /// Whether something may have become due.
    pub stale: bool,
    /// Whether loops that ended without a supervisor were checked.
    pub looked_back: bool,
    pub wake_at: Option<Time>,
    complaints: BTreeSet<String>,
    pub sender: mpsc::Sender<OutboundReport>,
    reports: mpsc::Receiver<OutboundReport>,
}

impl Default for Outbound {
    fn default() -> Self {
        let (sender, reports) = mpsc::channel(REPORTS);
        let (lines, notifiers, complaints) = Default::default();
        Self { lines, notifiers, stale: false, looked_back: false, wake_at: None, complaints, sender, reports }
    }
}

impl Outbound {
    /// Checks whether events may make messages due.
    pub(super) fn see(&mut self, events: &[Event]) {
        let of_ticket = |e: &Event| matches!(e, Event::TicketOpened { .. } | Event::TicketClosed { .. });
        self.stale |= events.iter().any(of_ticket);
    }

    /// The next result; never, without channels.
    pub(super) async fn report(&mut self) -> OutboundReport {
        match self.reports.recv().await {
            Some(report) => report,
            // Cannot be: a sender is kept here.
            None => std::future::pending().await,
        }
    }

    /// Wakes the owner at this time, or sooner.
    pub(super) fn wake(&mut self, at: Option<Time>) {
        self.wake_at = [self.wake_at, at].into_iter().flatten().min();
    }

    pub(super) fn complain(&mut self, failure: &Failure) {
        if self.complaints.insert(failure.message.clone()) {
            tracing::warn!(error = failure.message, "cannot update channels; the loops go on");
        }
    }

    /// The channel with its record. That of a new one is `first` and written at once, so that a
    /// later supervisor knows from where on reports are due.
    pub(super) fn line(
        &mut self,
        id: &RecordId,
        first: impl FnOnce() -> Record,
        (ledger, now): (&mut impl Ledger, Time),
    ) -> Result<&mut Line, Failure> {
        if !self.lines.contains_key(id) {
            let found = outboxes::find(ledger, id)?;
            let is_new = found.is_none();
            let (version, record) = found.unwrap_or_else(|| (0, first()));
            let mut line = Line { record, version, sending: false, logged: false, notifier: None };
            if is_new {
                line.keep(id, line.record.clone(), (ledger, now))?;
            }
            self.lines.insert(id.clone(), line);
        }
        Ok(self.lines.get_mut(id).expect("it was put there if it was not"))
    }
}

impl Line {
    /// Whether something may be sent now.
    pub(super) fn is_free(&mut self, now: Time) -> bool {
        !self.sending && !self.record.queue().rests(now)
    }

    /// The operation that writes this record.
    pub(super) fn save(&self, id: &RecordId, record: &Record) -> everloop_core::op::Op {
        outboxes::save(id, self.version, record)
    }

    /// What [`Line::save`] writes is in the ledger.
    pub(super) fn saved(&mut self, record: Record) {
        self.record = record;
        self.version += 1;
    }

    /// Writes a new record.
    pub(super) fn keep(
        &mut self,
        id: &RecordId,
        record: Record,
        (ledger, now): (&mut impl Ledger, Time),
    ) -> Result<(), Failure> {
        match ledger.transact(now, &[self.save(id, &record)]) {
            Ok(_) => {
                self.saved(record);
                Ok(())
            }
            Err(e) => {
                // Another process wrote it: the stored one counts.
                if let Ok(Some((version, there))) = outboxes::find(ledger, id) {
                    (self.version, self.record) = (version, there);
                }
                // What was sent is not recorded: without a rest it would be sent again at once.
                self.record.queue().rest(&Undelivered::away(e.to_string()), (now, seed(now)));
                Err(e.into())
            }
        }
    }

    /// Sends what may go, one after the other, apart from the owner; the rest waits for a channel
    /// that fails.
    pub(super) fn send(
        &mut self,
        id: &RecordId,
        (to, isolation): (Receiver, Isolation),
        (now, reports): (Time, &mpsc::Sender<OutboundReport>),
    ) {
        let ready = self.record.queue().ready(now).to_vec();
        if self.sending || ready.is_empty() {
            return;
        }
        self.sending = true;
        let (id, reports) = (id.clone(), reports.clone());
        tokio::spawn(async move {
            let mut sent = Vec::new();
            for delivery in ready {
                let result = to.deliver(&delivery, &isolation).await;
                let failed = result.is_err();
                sent.push((delivery, result));
                if failed {
                    break;
                }
            }
            // The other end is gone only when the supervisor is; its successor sends it again.
            reports.send(OutboundReport::Sent(id, sent)).await.ok();
        });
    }

    fn log(&mut self, id: &RecordId, result: &Result<(), Undelivered>) {
        let Err(how) = result else {
            self.logged = false;
            return;
        };
        if how.refused == Some(Refusal::Content) || !std::mem::replace(&mut self.logged, true) {
            tracing::warn!(channel = %id, error = how.why, "cannot deliver a message; the loops go on");
        }
    }
}

impl Supervisor {
    /// Sends what is due. When nothing happened, this costs nothing.
    pub(super) fn keep_outbound(&mut self) {
        let now = self.clock.now();
        if !self.outbound.stale && self.outbound.wake_at.is_none_or(|at| at > now) {
            return;
        }
        self.outbound.stale = false;
        self.outbound.wake_at = None;
        let done = self.send_tickets(now).and_then(|()| self.send_reports(now));
        if let Err(failure) = done {
            self.outbound.complain(&failure);
        }
        let resting = self.outbound.lines.values_mut().filter_map(|line| line.record.queue().wake_at(now)).min();
        self.outbound.wake(resting);
    }

    /// Handles the result of a delivery or poll.
    pub(super) async fn reported(&mut self, report: OutboundReport, watcher: &mut impl Watcher) -> Result<(), Failure> {
        match report {
            OutboundReport::Sent(id, sent) => self.sent(&id, &sent),
            OutboundReport::Heard(replies, back) => {
                let settled = self.take_answers(&replies);
                // The listener is gone when the notifier was taken out of the configuration
                // meanwhile.
                back.send(settled).ok();
                self.woken(watcher).await?;
            }
        }
        Ok(())
    }

    /// Records what was sent; the next planning goes on with the rest.
    fn sent(&mut self, id: &RecordId, sent: &[(Delivery, Result<(), Undelivered>)]) {
        self.outbound.stale = true;
        if let Err(failure) = self.try_sent(id, sent) {
            self.outbound.complain(&failure);
        }
    }

    fn try_sent(&mut self, id: &RecordId, sent: &[(Delivery, Result<(), Undelivered>)]) -> Result<(), Failure> {
        let now = self.clock.now();
        let Some(line) = self.outbound.lines.get_mut(id) else { return Ok(()) };
        line.sending = false;
        let alerts = tickets::alerts(&self.ledger)?;
        let mut record = line.record.clone();
        let mut changed = false;
        for (delivery, result) in sent {
            line.log(id, result);
            changed |= record.settle(delivery, result, (&alerts, now, seed(now)));
        }
        if changed {
            line.keep(id, record, (&mut self.ledger, now))?;
        } else {
            line.record = record;
        }
        // An ended loop is no longer followed; if it goes on, the ledger knows what was sent.
        if matches!(&line.record, Record::Status(told) if told.over) {
            self.outbound.lines.remove(id);
        }
        Ok(())
    }

    /// At the end of the supervisor: what is due may arrive, if that is quick. The next supervisor
    /// sends the rest.
    pub(super) async fn last_words(&mut self) {
        self.keep_boards().await;
        let all = async {
            self.keep_outbound();
            while self.outbound.lines.values().any(|line| line.sending) {
                if let OutboundReport::Sent(id, sent) = self.outbound.report().await {
                    self.sent(&id, &sent);
                    self.keep_outbound();
                }
            }
        };
        if timeout(LAST_WORDS, all).await.is_err() {
            tracing::debug!("the last messages are still under way");
        }
    }
}

fn seed(now: Time) -> u64 {
    mix(now.0.unsigned_abs(), u64::from(std::process::id()))
}

#[cfg(test)]
mod tests {
    use everloop_core::outbound::tickets::Outbox;
    use everloop_store::Model;

    use super::*;

    #[test]
    fn a_channel_rests_when_what_was_sent_cannot_be_recorded() {
        let (mut ledger, now) = (Model::default(), Time(1_000));
        let id = RecordId::Notifier("phone".to_owned());
        let mut outbound = Outbound::default();
        let first = || Record::Tickets(Outbox::default());
        let line = outbound.line(&id, first, (&mut ledger, now)).expect("the model can be written");
        assert!(line.is_free(now));
        // Another process moves the cursor.
        let theirs = Record::Tickets(Outbox { cursor: 7, ..Outbox::default() });
        ledger.transact(now, &[line.save(&id, &theirs)]).expect("it is the next version");
        line.keep(&id, first(), (&mut ledger, now)).expect_err("it was written meanwhile");
        assert!(matches!(&line.record, Record::Tickets(outbox) if outbox.cursor == 7), "the stored one counts");
        assert!(!line.is_free(now), "and nothing is sent again at once");
        let again = line.record.queue().wake_at(now).expect("it rests until then");
        assert!(line.is_free(again));
        line.keep(&id, theirs, (&mut ledger, again)).expect("nothing was written meanwhile");
    }
}
