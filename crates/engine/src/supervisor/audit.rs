//! At every start, in the background: whether the journal is what everloop wrote, and the states
//! what follows from it. A difference becomes a ticket, once.

use std::thread::JoinHandle;
use std::time::Duration;

use everloop_agents::clock;
use everloop_core::hex::hex;
use everloop_core::op::Op;
use everloop_store::{Ledger, OpenMode, Sqlite};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::Failure;
use crate::replay;
use crate::state_folder::StateFolder;

/// Kind and key of the document that holds the last finding, so that a person who has seen a
/// difference is not asked again about the same one.
const DOC: (&str, &str) = ("audit", "journal");
/// Key of the ticket about it.
const TICKET: &str = "journal";
/// Differences that the ticket lists.
const LISTED: usize = 5;
/// A supervisor that ends at once waits for the audit of a small journal, not for one of years.
const LAST_WAIT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// An audit under way.
pub(super) struct Audit(JoinHandle<()>);

impl Audit {
    /// Begins the audit of this state folder.
    pub(super) fn start(home: &StateFolder) -> Option<Self> {
        let home = home.clone();
        let run = move || {
            if let Err(failure) = audit(&home) {
                tracing::warn!(error = %failure.message, "cannot audit the journal");
            }
        };
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(run);
        thread.map(Self).inspect_err(|e| tracing::warn!(error = %e, "cannot start the audit of the journal")).ok()
    }

    /// Waits until it is finished, within bounds.
    pub(super) async fn finished(self) {
        let end = tokio::time::Instant::now() + LAST_WAIT;
        while !self.0.is_finished() && tokio::time::Instant::now() < end {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn audit(home: &StateFolder) -> Result<(), Failure> {
    let finding = match replay::audit(&Sqlite::open(&home.database(), OpenMode::ReadOnly)?, None) {
        Ok(report) if report.differences.is_empty() => return Ok(()),
        Ok(report) => report.differences.join("; "),
        Err(failure) => failure.message,
    };
    report(&mut Sqlite::open(&home.database(), OpenMode::ReadWrite)?, &finding)
}

fn report(ledger: &mut Sqlite, finding: &str) -> Result<(), Failure> {
    let sum = hex(&Sha256::digest(finding.as_bytes()));
    let known = ledger.doc(DOC.0, DOC.1)?;
    let is_same = |body: &str| serde_json::from_str::<Value>(body).is_ok_and(|body| body["finding"] == sum.as_str());
    if known.as_ref().is_some_and(|doc| is_same(&doc.body)) {
        return Ok(());
    }
    let listed: Vec<&str> = finding.split("; ").take(LISTED).collect();
    let text = format!(
        "the ledger is not what everloop wrote: {}; `everloop replay` shows all, `everloop recover` rebuilds it from \
         the mirror",
        listed.join("; ")
    );
    let version = known.map_or(0, |doc| doc.version);
    let body = json!({ "version": 1, "finding": sum }).to_string();
    let ticket = Op::OpenTicket { key: TICKET.to_owned(), owner: None, text };
    let save = Op::SaveDoc { kind: DOC.0.to_owned(), key: DOC.1.to_owned(), version, body };
    ledger.transact(clock::now(), &[ticket, save])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use everloop_store::Tickets;

    use super::*;

    #[test]
    fn the_same_difference_is_reported_once_and_another_one_again() {
        let mut ledger = Sqlite::in_memory().expect("a ledger in memory");
        report(&mut ledger, "loop k3f9: changed").expect("it is written");
        let open = ledger.tickets(Tickets::Open).expect("tickets are read");
        assert!(open.len() == 1 && open[0].text.contains("loop k3f9: changed"), "{open:?}");
        let seen = Op::CloseTicket { key: TICKET.to_owned(), answer: "known".to_owned() };
        ledger.transact(clock::now(), &[seen]).expect("it is closed");
        report(&mut ledger, "loop k3f9: changed").expect("nothing is written");
        assert_eq!(ledger.tickets(Tickets::Open).expect("tickets are read"), []);
        report(&mut ledger, "loop k3f9: changed; loop zzzz: changed").expect("it is written");
        assert_eq!(ledger.tickets(Tickets::Open).expect("tickets are read").len(), 1);
    }
}
