//! Delivers tickets to people: `core::notify` decides what is due, this keeps the outboxes and
//! sends. Each notifier sends one message at a time, apart from the owner; its failures disturb no
//! loop and are logged once.
//!
//! Crash windows: a message is in its outbox before it is sent and leaves it afterwards. Between
//! the two it is sent again, under the same key. A person's answer takes effect in the transaction
//! that moves the cursor, so it takes effect once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use everloop_agents::notify::telegram::ChatReply;
use everloop_core::event::Event;
use everloop_core::ids::LoopId;
use everloop_core::jitter::mix;
use everloop_core::notify::{Alert, Notification, Outbox, ReplyAction, Undelivered, plan};
use everloop_core::time::Time;
use everloop_store::{Ledger, LoopRow};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::reply_listener::ReplyListener;
use super::{Supervisor, Until, Watcher};
use crate::error::Failure;
use crate::notifiers;
use crate::projects::{NotifierSender, ProjectFile};
use crate::record::read_state;
use crate::tickets::{self, Doer};

/// Reports of notifiers under way; each has one message and one poll.
const REPORTS: usize = 64;
/// Ended loops with notifiers of their project that are still known.
const HOMES: usize = 20;
/// How long an ending supervisor waits for deliveries.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Reports of senders and listeners.
pub(super) enum DeliveryReport {
    /// A message arrived or did not.
    Sent { sender: String, message: Box<Notification>, result: Result<(), Undelivered> },
    /// Answers of people; the results go back.
    Heard { sender: String, heard: Vec<ChatReply>, back: std::sync::mpsc::Sender<AnswersTaken> },
}

/// Results of people's answers.
pub(super) struct AnswersTaken {
    /// The cursor of the next poll.
    pub next: i64,
    /// Confirmations of pressed buttons.
    pub words: Vec<(String, String)>,
}

/// A notifier at work.
struct Post {
    sender: NotifierSender,
    outbox: Outbox,
    version: u64,
    /// The key of the message that is being sent.
    sending: Option<String>,
    /// The failure to reach it was logged.
    told: bool,
    /// The listener for answers; it ends with this value.
    _listener: Option<ReplyListener>,
}

/// What decides which notifiers there are.
#[derive(PartialEq, Eq)]
struct NotifierSources {
    /// When the user's files were last written.
    of_user: Vec<Option<SystemTime>>,
    /// What is in force, by folder.
    files: BTreeMap<PathBuf, Option<ProjectFile>>,
}

pub(super) struct NotifierRuns {
    posts: BTreeMap<String, Post>,
    /// Where loops work, also those that are over.
    homes: BTreeMap<LoopId, PathBuf>,
    /// What the notifiers were read from.
    sources: Option<NotifierSources>,
    complaints: BTreeSet<String>,
    /// Whether messages may have become due.
    stale: bool,
    wake_at: Option<Time>,
    sender: mpsc::Sender<DeliveryReport>,
    reports: mpsc::Receiver<DeliveryReport>,
}

impl Default for NotifierRuns {
    fn default() -> Self {
        let (sender, reports) = mpsc::channel(REPORTS);
        Self {
            posts: BTreeMap::new(),
            homes: BTreeMap::new(),
            sources: None,
            complaints: BTreeSet::new(),
            stale: false,
            wake_at: None,
            sender,
            reports,
        }
    }
}

impl NotifierRuns {
    /// Checks whether events may make messages due.
    pub(super) fn see(&mut self, events: &[Event]) {
        let of_ticket = |e: &Event| matches!(e, Event::TicketOpened { .. } | Event::TicketClosed { .. });
        self.stale |= events.iter().any(of_ticket);
    }

    /// The next time at which a message may be due.
    pub(super) fn wake_at(&self) -> Option<Time> {
        self.wake_at.filter(|_| !self.posts.is_empty())
    }

    /// The next report; never, without notifiers.
    pub(super) async fn report(&mut self) -> DeliveryReport {
        match self.reports.recv().await {
            Some(report) => report,
            // Cannot be: a sender is kept here.
            None => std::future::pending().await,
        }
    }

    fn complain(&mut self, failure: &Failure) {
        if self.complaints.insert(failure.message.clone()) {
            tracing::warn!(error = failure.message, "cannot update notifiers; the loops go on");
        }
    }
}

impl Supervisor {
    /// Reads the notifiers again when another configuration is in force.
    pub(super) fn find_notifiers(&mut self, loops: &[LoopRow]) {
        if self.until == Until::Idle {
            return;
        }
        self.find_homes(loops);
        let mut dirs: BTreeSet<PathBuf> = self.notify.homes.values().cloned().collect();
        dirs.insert(self.home.root().to_owned());
        let written = |path: &PathBuf| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let of_user = self.projects.user_files().iter().map(written).collect();
        let in_force = |dir: PathBuf| (dir.clone(), self.configuration.in_force(&*self.projects, &dir));
        let sources = NotifierSources { of_user, files: dirs.into_iter().map(in_force).collect() };
        self.notify.stale = true;
        if self.notify.sources.as_ref() == Some(&sources) {
            return;
        }
        let mut senders: BTreeMap<String, NotifierSender> = BTreeMap::new();
        for (dir, file) in &sources.files {
            match self.projects.notifiers(file.as_ref(), self.clock.now()) {
                Ok(found) => senders.extend(found.into_iter().map(|sender| (sender.key(), sender))),
                Err(failure) => {
                    // A file that is being written must not silence a notifier: the known ones
                    // stay.
                    self.notify.complain(&failure);
                    let kept = self
                        .notify
                        .posts
                        .iter()
                        .filter(|(_, post)| post.sender.dir.as_ref().is_none_or(|of| dir.starts_with(of)));
                    senders.extend(kept.map(|(key, post)| (key.clone(), post.sender.clone())));
                }
            }
        }
        self.notify.sources = Some(sources);
        self.take_posts(senders);
    }

    /// The folders of loops: of those that go on, and of the latest that do not, since their
    /// tickets may still be open.
    fn find_homes(&mut self, loops: &[LoopRow]) {
        let mut known: Vec<&LoopRow> = loops.iter().collect();
        known.sort_by_key(|row| std::cmp::Reverse((!row.is_over(), row.updated_at)));
        let open = known.iter().filter(|row| !row.is_over()).count();
        for row in known.into_iter().take(open + HOMES) {
            if !self.notify.homes.contains_key(&row.id)
                && let Ok(state) = read_state(row)
            {
                self.notify.homes.insert(row.id.clone(), PathBuf::from(state.spec.workspace.dir));
            }
        }
    }

    fn take_posts(&mut self, senders: BTreeMap<String, NotifierSender>) {
        self.notify.posts.retain(|key, post| senders.get(key) == Some(&post.sender));
        for (key, sender) in senders {
            if self.notify.posts.contains_key(&key) {
                continue;
            }
            match notifiers::outbox(&self.ledger, &key) {
                Ok((version, outbox)) => {
                    let listener = ReplyListener::open(&key, &sender.of.notifier, outbox.cursor, &self.notify.sender);
                    let post = Post { sender, outbox, version, sending: None, told: false, _listener: listener };
                    self.notify.posts.insert(key, post);
                }
                Err(failure) => self.notify.complain(&failure),
            }
        }
    }

    /// Sends what is due. Without notifiers, and when nothing happened, this costs nothing.
    pub(super) fn keep_notifying(&mut self) {
        let now = self.clock.now();
        let due = self.notify.stale || self.notify.wake_at.is_some_and(|at| at <= now);
        if !due || self.notify.posts.is_empty() {
            return;
        }
        self.notify.stale = false;
        self.notify.wake_at = None;
        let keys: Vec<String> = self.notify.posts.keys().cloned().collect();
        let done = tickets::alerts(&self.ledger)
            .and_then(|alerts| keys.iter().try_for_each(|key| self.keep_post(key, &alerts, now)));
        if let Err(failure) = done {
            self.notify.complain(&failure);
        }
    }

    fn keep_post(&mut self, key: &str, alerts: &[Alert], now: Time) -> Result<(), Failure> {
        let mine = self.heard_by(key, alerts);
        let Some(post) = self.notify.posts.get_mut(key) else { return Ok(()) };
        let plan = plan(&mine, &post.sender.of.route, &post.outbox, notifiers::moment(now));
        if plan.outbox != post.outbox {
            post.keep(key, plan.outbox, &mut self.ledger, now)?;
        }
        let sooner = [self.notify.wake_at, plan.wake_at].into_iter().flatten().min();
        self.notify.wake_at = sooner;
        post.send(key, now, &self.notify.sender);
        Ok(())
    }

    /// Those of these tickets that a notifier is for.
    fn heard_by(&self, key: &str, alerts: &[Alert]) -> Vec<Alert> {
        let Some(post) = self.notify.posts.get(key) else { return Vec::new() };
        let home = |alert: &Alert| alert.owner.as_ref().and_then(|id| self.notify.homes.get(id)).map(PathBuf::as_path);
        alerts.iter().filter(|alert| post.sender.hears(alert, home(alert))).cloned().collect()
    }

    /// Handles a report of a sender or listener.
    pub(super) async fn reported(&mut self, report: DeliveryReport, watcher: &mut impl Watcher) -> Result<(), Failure> {
        match report {
            DeliveryReport::Sent { sender, message, result } => {
                if let Err(failure) = self.sent(&sender, &message, result) {
                    self.notify.complain(&failure);
                }
            }
            DeliveryReport::Heard { sender, heard, back } => {
                let settled = self.settle(&sender, &heard);
                // The listener is gone when the notifier was taken out of the configuration
                // meanwhile.
                back.send(settled).ok();
                self.woken(watcher).await?;
            }
        }
        Ok(())
    }

    fn sent(&mut self, key: &str, message: &Notification, result: Result<(), Undelivered>) -> Result<(), Failure> {
        let now = self.clock.now();
        let alerts = tickets::alerts(&self.ledger)?;
        self.notify.stale = true;
        let Some(post) = self.notify.posts.get_mut(key) else { return Ok(()) };
        post.sending = None;
        let mut outbox = post.outbox.clone();
        match result {
            Ok(()) => {
                post.told = false;
                outbox.delivered(message, &alerts, now);
            }
            Err(how) => {
                if !post.told {
                    tracing::warn!(notifier = key, error = how.why, "cannot deliver a message; the loops go on");
                    post.told = true;
                }
                let seed = mix(now.0.unsigned_abs(), u64::from(std::process::id()));
                outbox.undelivered(&message.key, &alerts, (&how, now, seed));
            }
        }
        post.keep(key, outbox, &mut self.ledger, now)
    }

    /// Performs people's answers, each once: the effect and the cursor behind it are one
    /// transaction.
    fn settle(&mut self, key: &str, heard: &[ChatReply]) -> AnswersTaken {
        let now = self.clock.now();
        let mut words = Vec::new();
        let Some(post) = self.notify.posts.get_mut(key) else { return AnswersTaken { next: 0, words } };
        for one in heard {
            if one.number < post.outbox.cursor {
                continue;
            }
            let mut outbox = post.outbox.clone();
            outbox.cursor = one.number + 1;
            let save = [notifiers::save(key, post.version, &outbox)];
            let doer = Doer { by: &one.by, now, with: &save };
            let done = one.action.as_ref().map(|action| do_it(&mut self.ledger, action, doer));
            let text = match done {
                Some(Ok(text)) => {
                    post.outbox = outbox;
                    post.version += 1;
                    text
                }
                other => {
                    // Not for everloop, or not possible: it is skipped, and the confirmation gives
                    // the reason.
                    let why = other.and_then(Result::err).map(|failure| failure.message);
                    if let Err(failure) = post.keep(key, outbox, &mut self.ledger, now) {
                        tracing::warn!(notifier = key, error = failure.message, "cannot store an answer");
                        break;
                    }
                    why.unwrap_or_else(|| "this is not for everloop".to_owned())
                }
            };
            words.extend(one.press.clone().map(|press| (press, text)));
        }
        self.notify.stale = true;
        let next = self.notify.posts.get(key).map_or(0, |post| post.outbox.cursor);
        AnswersTaken { next, words }
    }

    /// At the end of the supervisor: messages under way may arrive, if that is quick. The rest is
    /// in the outboxes.
    pub(super) async fn last_messages(&mut self) {
        self.keep_notifying();
        let all = async {
            while self.notify.posts.values().any(|post| post.sending.is_some()) {
                if let DeliveryReport::Sent { sender, message, result } = self.notify.report().await {
                    self.sent(&sender, &message, result).ok();
                }
            }
        };
        if timeout(LAST_WORDS, all).await.is_err() {
            tracing::debug!("the last messages are still under way");
        }
    }
}

fn do_it(ledger: &mut everloop_store::Sqlite, action: &ReplyAction, doer: Doer<'_>) -> Result<String, Failure> {
    match action {
        ReplyAction::Ack { ticket } => {
            let (_, first) = tickets::ack(ledger, &ticket.to_string(), doer)?;
            Ok(first.map_or_else(
                || format!("#{ticket} is not repeated any more"),
                |by| format!("#{ticket} was seen already by {by}"),
            ))
        }
        ReplyAction::Answer { ticket, text } => {
            let text = crate::mailbox::checked(text)?;
            tickets::answer(ledger, &ticket.to_string(), text, doer).map(|_| format!("#{ticket} is answered: {text}"))
        }
    }
}

impl Post {
    fn keep(&mut self, key: &str, outbox: Outbox, ledger: &mut impl Ledger, now: Time) -> Result<(), Failure> {
        match ledger.transact(now, &[notifiers::save(key, self.version, &outbox)]) {
            Ok(_) => {
                self.outbox = outbox;
                self.version += 1;
                Ok(())
            }
            Err(e) => {
                // Another process wrote it: the stored one counts.
                if let Ok((version, there)) = notifiers::outbox(ledger, key) {
                    (self.version, self.outbox) = (version, there);
                }
                Err(e.into())
            }
        }
    }

    /// Sends the first message that may go, apart from the owner.
    fn send(&mut self, key: &str, now: Time, reports: &mpsc::Sender<DeliveryReport>) {
        if self.sending.is_some() {
            return;
        }
        let Some(message) = self.outbox.ready(now).cloned() else { return };
        self.sending = Some(message.key.clone());
        let (notifier, sender, reports) = (self.sender.of.notifier.clone(), key.to_owned(), reports.clone());
        tokio::spawn(async move {
            let result = notifier.deliver(message.clone()).await;
            // The receiver is gone only when the supervisor is; its successor finds the message in
            // the outbox.
            reports.send(DeliveryReport::Sent { sender, message: Box::new(message), result }).await.ok();
        });
    }
}
