//! What can go wrong with a ledger, naming what was tried on what.

use std::path::PathBuf;

use everloop_core::journal::Damage;
use everloop_core::op::Refusal;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The rules say no; nothing of the batch happened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The journal is not what was written.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// There is no ledger at this path.
    #[error("there is no ledger at `{}`", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A newer everloop wrote this ledger.
    #[error(
        "the ledger `{}` has format {found}, newer than this everloop understands ({known})",
        path.display()
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The ledger has to be brought up to date first, and a reader may not.
    #[error("the ledger `{}` has the old format {found}; a writer has to bring it to {known} first", path.display())]
    Older {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format needed.
        known: u32,
    },
    /// The file could not be opened or made.
    #[error("could not open the ledger `{}`", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The disk is full; nothing of the batch happened.
    #[error("the disk is full: could not {doing}")]
    Full {
        /// What was tried.
        doing: &'static str,
    },
    /// Another process held the ledger for longer than the busy timeout; nothing of the batch happened.
    #[error("another process holds the ledger: could not {doing}")]
    Busy {
        /// What was tried.
        doing: &'static str,
    },
    /// The database refused.
    #[error("could not {doing}")]
    Sql {
        /// What was tried.
        doing: &'static str,
        /// Why.
        source: rusqlite::Error,
    },
    /// The hub cannot be reached, or its connection broke before anything was decided: nothing happened.
    #[error("the hub is away: could not {doing}")]
    Away {
        /// What was tried.
        doing: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection to the hub broke after the commit was sent: it happened or it did not. Read back by key.
    #[error("the hub went away while it was asked to {doing}; whether it did is unknown")]
    Unknown {
        /// What was tried.
        doing: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The hub does not let us in, or not do this; nothing of the batch happened.
    #[error("the hub does not allow this login to {doing}")]
    Denied {
        /// What was tried.
        doing: &'static str,
        /// Why.
        source: Box<tokio_postgres::Error>,
    },
    /// The hub refused; nothing of the batch happened.
    #[error("the hub refused to {doing}")]
    Hub {
        /// What was tried.
        doing: &'static str,
        /// Why.
        source: Box<tokio_postgres::Error>,
    },
    /// Another hub than the one that was there before.
    #[error("this is the hub `{found}`, not `{expected}`")]
    OtherHub {
        /// The one that was expected.
        expected: String,
        /// The one that is there.
        found: String,
    },
    /// The hub knows less than it did: somebody restored an older copy.
    #[error("the hub was set back: its journal ends at {found}, but {seen} was there already")]
    SetBack {
        /// The last number that was seen.
        seen: u64,
        /// The last number that it knows.
        found: u64,
    },
    /// The address of a hub cannot be understood. Never shows the address: it may hold a password.
    #[error("the address of the hub cannot be used: {why}")]
    BadUrl {
        /// Why.
        why: String,
    },
    /// A stored row is not what everloop writes.
    #[error("{what} in the ledger cannot be read: {why}")]
    Unreadable {
        /// Which row.
        what: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// The refusal, if the rules said no.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            Error::Damaged(_)
            | Error::Missing { .. }
            | Error::Newer { .. }
            | Error::Older { .. }
            | Error::Open { .. }
            | Error::Full { .. }
            | Error::Busy { .. }
            | Error::Sql { .. }
            | Error::Away { .. }
            | Error::Unknown { .. }
            | Error::Denied { .. }
            | Error::Hub { .. }
            | Error::OtherHub { .. }
            | Error::SetBack { .. }
            | Error::BadUrl { .. }
            | Error::Unreadable { .. } => None,
        }
    }
}
