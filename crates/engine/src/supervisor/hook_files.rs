//! Watches the files that name everloop's hooks in trusted folders. A session that lost its hooks
//! calls none, so the supervisor looks: a loss is an event and a ticket, which closes when the hooks
//! are back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use everloop_core::event::Event;
use everloop_core::op::Op;
use everloop_store::{Ledger, Tickets};

use super::{Supervisor, Until};
use crate::error::Failure;
use crate::install::watch::{self, LostHooks};

/// How a file looked when it was examined.
type Stamp = Option<(SystemTime, u64)>;

/// What was seen of the files.
#[derive(Default)]
pub(super) struct HookFiles {
    seen: BTreeMap<PathBuf, Stamp>,
}

fn stamp(file: &Path) -> Stamp {
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

/// The ticket about a file.
fn key(file: &Path) -> String {
    format!("hooks:{}", file.display())
}

impl Supervisor {
    /// Compares the files of hooks with what `init` wrote. Without a change this reads the record of
    /// `init` and costs a `stat` of each.
    pub(super) fn report_hook_files(&mut self) {
        if self.until == Until::Idle {
            return;
        }
        if let Err(failure) = self.try_report_hooks() {
            tracing::warn!(error = failure.message, "cannot look at the files of hooks; the loops go on");
        }
    }

    fn try_report_hooks(&mut self) -> Result<(), Failure> {
        for root in self.configuration.folders() {
            let files: Vec<PathBuf> = watch::files(&self.home, &root)?.into_iter().map(|(_, file)| file).collect();
            let now: BTreeMap<PathBuf, Stamp> = files.iter().map(|file| (file.clone(), stamp(file))).collect();
            if now.iter().all(|(file, stamp)| self.hook_files.seen.get(file) == Some(stamp)) {
                continue;
            }
            let lost = watch::lost(&self.home, &root)?;
            self.report_losses(&files, &lost)?;
            self.hook_files.seen.extend(now);
        }
        Ok(())
    }

    fn report_losses(&mut self, files: &[PathBuf], lost: &[LostHooks]) -> Result<(), Failure> {
        let open: Vec<String> = self.ledger.tickets(Tickets::Open)?.into_iter().map(|ticket| ticket.key).collect();
        let mut ops = Vec::new();
        let mut events = Vec::new();
        for one in lost.iter().filter(|one| !open.contains(&key(&one.file))) {
            let (key, text) = (key(&one.file), format!("{} (`{}` puts them back)", one.describe(), one.remedy()));
            ops.push(Op::OpenTicket { key: key.clone(), owner: None, text: text.clone() });
            events.push(Event::TicketOpened { key, text });
        }
        let is_back = |file: &&PathBuf| open.contains(&key(file)) && !lost.iter().any(|one| one.file == **file);
        for file in files.iter().filter(is_back) {
            ops.push(Op::CloseTicket { key: key(file), answer: "the hooks are there again".to_owned() });
            events.push(Event::TicketClosed { key: key(file) });
        }
        if ops.is_empty() {
            return Ok(());
        }
        ops.push(Op::Append { owner: None, events: events.clone() });
        self.ledger.transact(self.clock.now(), &ops)?;
        self.outbound.see(&events);
        Ok(())
    }
}
