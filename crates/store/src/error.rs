//! Errors of a ledger, each naming what was tried on what.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::path::PathBuf;

use everloop_core::journal::Damage;
use everloop_core::op::Refusal;

/// Any error of a ledger.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The rules refused; no part of the batch took effect.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The journal is not what was written.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// There is no ledger at this path.
    #[error("there is no ledger at `{}`", path.display())]
    Missing { path: PathBuf },
    /// A newer everloop wrote this ledger.
    #[error(
        "the ledger `{}` has format {found}, newer than this everloop understands ({known})",
        path.display()
    )]
    Newer {
        path: PathBuf,
        found: u32,
        /// Newest format that this version supports.
        known: u32,
    },
    /// The ledger has to be migrated first, and a reader must not do that.
    #[error("the ledger `{}` has the old format {found}; a writer has to bring it to {known} first", path.display())]
    Older { path: PathBuf, found: u32, known: u32 },
    /// The file could not be opened or created.
    #[error("could not open the ledger `{}`", path.display())]
    Open { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    /// The disk is full; no part of the batch took effect.
    #[error("the disk is full: could not {doing}")]
    Full {
        /// What was tried.
        doing: &'static str,
    },
    /// Another process held the ledger for longer than the busy timeout; no part of the batch took
    /// effect.
    #[error("another process holds the ledger: could not {doing}")]
    Busy {
        /// What was tried.
        doing: &'static str,
    },
    /// The database reported an error.
    #[error("could not {doing}")]
    Sql {
        /// What was tried.
        doing: &'static str,
        source: rusqlite::Error,
    },
    /// The hub cannot be reached, or its connection broke before anything was decided: no part of
    /// the batch took effect.
    #[error("the hub cannot be reached: could not {doing}")]
    Away {
        /// What was tried.
        doing: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection to the hub broke after the commit was sent: the batch took effect or it did
    /// not. Read back by key.
    #[error("lost the hub after the request to {doing}; the outcome is unknown")]
    Unknown {
        /// What was tried.
        doing: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The hub refuses the login, or lacks a right for this operation; no part of the batch took
    /// effect.
    #[error("the hub does not allow this login to {doing}")]
    Denied {
        /// What was tried.
        doing: &'static str,
        source: Box<tokio_postgres::Error>,
    },
    /// The hub reported an error; no part of the batch took effect.
    #[error("the hub refused to {doing}")]
    Hub {
        /// What was tried.
        doing: &'static str,
        source: Box<tokio_postgres::Error>,
    },
    /// Another hub than the expected one.
    #[error("this is the hub `{found}`, not `{expected}`")]
    OtherHub { expected: String, found: String },
    /// The hub's journal is shorter than before: an older copy was restored.
    #[error("the hub was set back: its journal ends at {found}, but {seen} was there already")]
    SetBack {
        /// Last sequence number seen earlier.
        seen: u64,
        /// Last sequence number of the hub now.
        found: u64,
    },
    /// The address of a hub is invalid. Never shows the address: it may contain a password.
    #[error("the address of the hub cannot be used: {why}")]
    BadUrl { why: String },
    /// The hub is beyond this machine, and anything between could pose as it.
    #[error("the hub at {url} is beyond this machine, and its address does not ask to verify its identity")]
    Unverified {
        /// Without its password.
        url: String,
    },
    /// A stored row is not what everloop writes.
    #[error("{what} in the ledger cannot be read: {why}")]
    Unreadable { what: String, why: String },
}

impl Error {
    /// Whether the file of a ledger is there and is no database, or a damaged one.
    pub fn is_broken_file(&self) -> bool {
        let broken = |error: &rusqlite::Error| {
            let code = error.sqlite_error_code();
            matches!(code, Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase))
        };
        match self {
            Error::Sql { source, .. } => broken(source),
            Error::Open { source, .. } => source.downcast_ref::<rusqlite::Error>().is_some_and(broken),
            _ => false,
        }
    }

    /// The refusal, if the rules refused the batch.
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
            | Error::Unverified { .. }
            | Error::Unreadable { .. } => None,
        }
    }
}
