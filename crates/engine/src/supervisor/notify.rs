//! The notifiers, the tickets that each delivers, and people's answers. `core::outbound::tickets`
//! decides what is due; `outbound` sends it. A person's answer takes effect in the transaction that
//! moves the cursor, so it takes effect once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use everloop_agents::channel::telegram::ChatReply;
use everloop_core::ids::LoopId;
use everloop_core::outbound::Record;
use everloop_core::outbound::tickets::{Alert, Outbox, ReplyAction, plan};
use everloop_core::time::Time;
use everloop_store::LoopRow;

use super::reply_listener::ReplyListener;
use super::{Supervisor, Until};
use crate::error::Failure;
use crate::isolation;
use crate::outboxes::{self, RecordId};
use crate::projects::{NotifierSender, ProjectFile};
use crate::record::read_state;
use crate::tickets::{self, Doer};

/// Ended loops with notifiers of their project that are still known.
pub(super) const HOMES: usize = 20;

/// Answers that a notifier received.
pub(super) struct ChatReplies {
    /// The notifier's key.
    pub sender: String,
    pub heard: Vec<ChatReply>,
}

/// Results of people's answers.
pub(super) struct AnswersTaken {
    /// The cursor of the next poll.
    pub next: i64,
    /// Confirmations of pressed buttons.
    pub words: Vec<(String, String)>,
}

/// What decides which notifiers there are, and which tickets they deliver.
#[derive(Default)]
pub(super) struct NotifierSources {
    /// Where loops work, also those that are over.
    homes: BTreeMap<LoopId, Arc<Path>>,
    folders: BTreeSet<Arc<Path>>,
    /// What the notifiers were read from.
    read: Option<SourceFiles>,
}

impl NotifierSources {
    /// Remembers where a loop works.
    pub(super) fn add_home(&mut self, id: &LoopId, dir: &Path) {
        if self.homes.contains_key(id) {
            return;
        }
        let known = self.folders.get(dir).map(Arc::clone);
        let dir = known.unwrap_or_else(|| Arc::from(dir));
        self.folders.insert(Arc::clone(&dir));
        self.homes.insert(id.clone(), dir);
    }
}

#[derive(PartialEq, Eq)]
struct SourceFiles {
    /// When the user's files were last written.
    of_user: Vec<Option<SystemTime>>,
    /// What is in force, by folder.
    in_force: BTreeMap<PathBuf, Option<ProjectFile>>,
}

impl Supervisor {
    /// Reads the notifiers again when another configuration is in force.
    pub(super) fn find_notifiers(&mut self) {
        if self.until == Until::Idle {
            return;
        }
        let mut dirs: BTreeSet<PathBuf> = self.outbound.notifiers.folders.iter().map(|dir| dir.to_path_buf()).collect();
        dirs.insert(self.home.root().to_owned());
        let written = |path: &PathBuf| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let of_user = self.projects.user_files().iter().map(written).collect();
        let in_force = |dir: PathBuf| (dir.clone(), self.configuration.in_force(&*self.projects, &dir));
        let read = SourceFiles { of_user, in_force: dirs.into_iter().map(in_force).collect() };
        self.outbound.stale = true;
        if self.outbound.notifiers.read.as_ref() == Some(&read) {
            return;
        }
        let mut senders: BTreeMap<RecordId, NotifierSender> = BTreeMap::new();
        let of = |sender: NotifierSender| (RecordId::Notifier(sender.key()), sender);
        for (dir, file) in &read.in_force {
            match self.projects.notifiers(file.as_ref(), self.clock.now()) {
                Ok(found) => senders.extend(found.into_iter().map(of)),
                Err(failure) => {
                    // A file that is being written must not silence a notifier: the known ones
                    // stay.
                    self.outbound.complain(&failure);
                    let known = self.outbound.lines.values().filter_map(|line| Some(&line.notifier.as_ref()?.0));
                    let kept = known.filter(|sender| sender.dir.as_ref().is_none_or(|of| dir.starts_with(of)));
                    senders.extend(kept.cloned().map(of));
                }
            }
        }
        self.outbound.notifiers.read = Some(read);
        self.take_notifiers(senders);
    }

    /// The folders of loops: of those that go on, and of the latest that do not, since their
    /// tickets may still be open.
    pub(super) fn find_homes(&mut self, loops: &[LoopRow]) {
        let mut known: Vec<&LoopRow> = loops.iter().collect();
        known.sort_by_key(|row| std::cmp::Reverse((!row.is_over(), row.updated_at)));
        let open = known.iter().filter(|row| !row.is_over()).count();
        for row in known.into_iter().take(open + HOMES) {
            if !self.outbound.notifiers.homes.contains_key(&row.id)
                && let Ok(state) = read_state(row)
            {
                self.outbound.notifiers.add_home(&row.id, Path::new(&state.spec.workspace.dir));
            }
        }
    }

    fn take_notifiers(&mut self, senders: BTreeMap<RecordId, NotifierSender>) {
        self.outbound.lines.retain(|id, line| match &line.notifier {
            Some((sender, _)) => senders.get(id) == Some(sender),
            None => true,
        });
        for (id, sender) in senders {
            if self.outbound.lines.contains_key(&id) {
                continue;
            }
            let reports = self.outbound.sender.clone();
            let (now, first) = (self.clock.now(), || Record::Tickets(Outbox::default()));
            match self.outbound.line(&id, first, (&mut self.ledger, now)) {
                Ok(line) => {
                    let Record::Tickets(outbox) = &line.record else { continue };
                    let listener = ReplyListener::open(&sender, outbox.cursor, reports);
                    line.notifier = Some((sender, listener));
                }
                Err(failure) => self.outbound.complain(&failure),
            }
        }
    }

    /// Sends the tickets that are due.
    pub(super) fn send_tickets(&mut self, now: Time) -> Result<(), Failure> {
        let is_notifier = |id: &&RecordId| matches!(id, RecordId::Notifier(_));
        let ids: Vec<RecordId> = self.outbound.lines.keys().filter(is_notifier).cloned().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let alerts = tickets::alerts(&self.ledger)?;
        ids.iter().try_for_each(|id| self.send_tickets_to(id, &alerts, now))
    }

    fn send_tickets_to(&mut self, id: &RecordId, alerts: &[Alert], now: Time) -> Result<(), Failure> {
        let Some(line) = self.outbound.lines.get_mut(id) else { return Ok(()) };
        let (Record::Tickets(outbox), Some((sender, _))) = (&line.record, &line.notifier) else { return Ok(()) };
        let homes = &self.outbound.notifiers.homes;
        let home = |alert: &Alert| alert.owner.as_ref().and_then(|id| homes.get(id)).map(|dir| &**dir);
        let mine: Vec<Alert> = alerts.iter().filter(|alert| sender.hears(alert, home(alert))).cloned().collect();
        let plan = plan(&mine, &sender.of.route, outbox, outboxes::moment(now));
        let (changed, to) = (plan.outbox != *outbox, sender.of.receiver.clone());
        if changed {
            line.keep(id, Record::Tickets(plan.outbox), (&mut self.ledger, now))?;
        }
        let isolation = isolation::of_receiver(&to, self.home.root());
        line.send(id, (to, isolation), (now, &self.outbound.sender));
        self.outbound.wake(plan.wake_at);
        Ok(())
    }

    /// Performs people's answers, each once: the effect and the cursor behind it are one
    /// transaction.
    pub(super) fn take_answers(&mut self, ChatReplies { sender, heard }: &ChatReplies) -> AnswersTaken {
        let (now, id) = (self.clock.now(), RecordId::Notifier(sender.clone()));
        let mut taken = AnswersTaken { next: 0, words: Vec::new() };
        let Some(line) = self.outbound.lines.get_mut(&id) else { return taken };
        self.outbound.stale = true;
        for one in heard {
            let Record::Tickets(outbox) = &line.record else { break };
            if one.number < outbox.cursor {
                continue;
            }
            let moved = Record::Tickets(Outbox { cursor: one.number + 1, ..outbox.clone() });
            let save = [line.save(&id, &moved)];
            let doer = Doer { by: &one.by, now, with: &save };
            let done = one.action.as_ref().map(|action| do_it(&mut self.ledger, action, doer));
            let text = match done {
                Some(Ok(text)) => {
                    line.saved(moved);
                    text
                }
                other => {
                    // Not for everloop, or not possible: it is skipped, and the confirmation gives
                    // the reason.
                    let why = other.and_then(Result::err).map(|failure| failure.message);
                    if let Err(failure) = line.keep(&id, moved, (&mut self.ledger, now)) {
                        tracing::warn!(channel = %id, error = failure.message, "cannot store an answer");
                        break;
                    }
                    why.unwrap_or_else(|| "this is not for everloop".to_owned())
                }
            };
            taken.words.extend(one.press.clone().map(|press| (press, text)));
        }
        if let Record::Tickets(outbox) = &line.record {
            taken.next = outbox.cursor;
        }
        taken
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
            tickets::answer(ledger, &ticket.to_string(), &text, doer).map(|_| format!("#{ticket} is answered: {text}"))
        }
    }
}
