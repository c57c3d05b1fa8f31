//! The configuration that is in force in the folders of loops. It is read from the ledger, where a
//! person's verb put it; a file that differs from it is reported with a ticket, once per content.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use everloop_core::event::Event;
use everloop_core::op::Op;
use everloop_store::{Error, Ledger};

use super::{Supervisor, Until};
use crate::error::Failure;
use crate::projects::{ProjectFile, Projects};
use crate::trust::{FileHashes, TrustStore, canonical};

#[derive(Default)]
pub(super) struct Configuration {
    store: TrustStore,
    hashes: FileHashes,
    /// Complaints that were logged, so that each is logged once.
    told: BTreeSet<String>,
}

impl Configuration {
    /// The file that is in force in `dir`.
    pub(super) fn in_force(&self, projects: &dyn Projects, dir: &Path) -> Option<ProjectFile> {
        self.store.in_force(projects, dir)
    }

    /// The folders with a configuration that a person accepted.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        self.store.folders().map(|(root, _)| root.to_owned()).collect()
    }

    fn complain(&mut self, failure: &Failure) {
        if self.told.insert(failure.message.clone()) {
            tracing::warn!(error = failure.message, "cannot compare the configuration; the loops go on");
        }
    }
}

impl Supervisor {
    /// Reads what people accepted. What cannot be read leaves the last known in force.
    pub(super) fn read_configuration(&mut self) {
        match TrustStore::read(&self.ledger) {
            Ok(store) => self.configuration.store = store,
            Err(failure) => self.configuration.complain(&failure),
        }
    }

    /// Opens tickets for files that are not what is in force. Without a change this costs a `stat`
    /// of each everloop.toml.
    pub(super) fn report_configuration(&mut self) {
        if self.until == Until::Idle {
            return;
        }
        if let Err(failure) = self.try_report() {
            self.configuration.complain(&failure);
        }
    }

    fn try_report(&mut self) -> Result<(), Failure> {
        let own = canonical(self.home.root());
        // Clones of a mesh lie in the state folder; no person works there.
        let dirs: BTreeSet<PathBuf> =
            self.folders().iter().map(|dir| canonical(dir)).filter(|dir| !dir.starts_with(&own)).collect();
        let Configuration { store, hashes, .. } = &mut self.configuration;
        let found = store.differences(&*self.projects, dirs.iter().map(PathBuf::as_path), hashes);
        for difference in found {
            let ops = self.configuration.store.report(&difference);
            if ops.is_empty() {
                continue;
            }
            let opened = ops.iter().filter_map(|op| match op {
                Op::OpenTicket { key, text, .. } => Some(Event::TicketOpened { key: key.clone(), text: text.clone() }),
                _ => None,
            });
            let opened: Vec<Event> = opened.collect();
            match self.ledger.transact(self.clock.now(), &ops) {
                Ok(_) => self.outbound.see(&opened),
                // Accepted or reported by another process meanwhile: what is there counts.
                Err(Error::Refused(refusal)) => tracing::debug!(%refusal, "the configuration was decided meanwhile"),
                Err(e) => return Err(e.into()),
            }
            self.read_configuration();
        }
        Ok(())
    }
}
