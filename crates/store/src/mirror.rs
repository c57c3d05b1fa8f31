//! The ledger as plain files, for people, for scripts, and for the day on which the database is gone.
//!
//! - [`Mirror`] (`mirror/follow.rs`): follows a ledger, pass by pass, and writes only what changed
//! - [`found`] and [`MirrorContents`] (`mirror/found.rs`): what a mirror holds, file by file, and which files are not believed
//! - `page`: one file, with its version and its checksum; `line`: one record of the journal
//! - `change`: how a pass comes to the disk, whole or not at all; `source`: what a ledger has to tell for it
//!
//! ```text
//! mirror.json                     whose mirror this is and how far it is; written with every pass
//! scoreboard.json                 every loop in a few words
//! loops/ID.json                   the state of a loop
//! queue/pending|claimed|completed/ID.json   a task with its shelf; finished ones only as far as [`COMPLETED_MOST`]
//! docs/KIND/KEY.json guards/SCOPE.json tickets.json messages.json
//! log/YYYY-MM-DD.jsonl            the journal; never pruned, since the ledger's is not either
//! supervisor.heartbeat            a sign of life, of no importance to anybody who reads the rest
//! ```
//!
//! All of it stands for one moment of the ledger. Nothing reads it but people and `recover`.

mod change;
mod follow;
mod found;
mod line;
mod page;
mod source;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use everloop_core::guard::Guards;
use everloop_core::journal::Stored;
use everloop_core::op::{LateResult, Message, TaskRow, Ticket};

use crate::rows::{DocRow, Leader, LoopRow};

pub use follow::{Mirror, Passed, Scores};
pub use found::{Lost, MirrorContents, found};
pub use source::{MirrorSource, TaskMark};

/// Version of the files. A newer one is refused, never guessed at.
pub const VERSION: u64 = 1;
/// Finished tasks that are kept as files, and as many that were given up: the newest. A ledger may hold a million, and no
/// folder should.
pub const COMPLETED_MOST: usize = 1_000;

/// Why a mirror cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// A file or folder.
    #[error("cannot {doing} `{path}`")]
    Files {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The ledger that is mirrored.
    #[error(transparent)]
    Ledger(#[from] crate::Error),
    /// The files belong to different mirrors, and which of them counts cannot be told.
    #[error("`{path}` holds files of different mirrors, and its `mirror.json` does not say which of them counts")]
    Mixed {
        /// The folder.
        path: String,
    },
    /// There is none.
    #[error("there is no mirror in `{path}`")]
    None {
        /// The folder.
        path: String,
    },
}

/// Everything that a mirror can give back to a ledger.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The loops.
    pub loops: Vec<LoopRow>,
    /// The tasks.
    pub tasks: Vec<TaskRow>,
    /// Results that came too late, in the order in which they came.
    pub late_results: Vec<LateResult>,
    /// What the guard remembers.
    pub guards: Guards,
    /// Documents with their kinds.
    pub docs: Vec<(String, DocRow)>,
    /// Messages that nobody took yet.
    pub messages: Vec<Message>,
    /// Tickets by id.
    pub tickets: Vec<Ticket>,
    /// The journal, oldest first.
    pub journal: Vec<Stored>,
    /// The last supervisor.
    pub leader: Option<Leader>,
}

fn files(doing: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> MirrorError {
    let path = path.display().to_string();
    move |source| MirrorError::Files { doing, path, source }
}

/// The name of a file for an id: ids of agents' tasks may be anything, and no name may lead out of its folder, be hidden, or
/// be too long for a disk.
fn name_of(id: &str) -> String {
    const LONGEST: usize = 150;
    let mut name = String::with_capacity(id.len());
    for (place, byte) in id.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte as char),
            b'.' if place > 0 => name.push('.'),
            other => write!(name, "%{other:02x}").expect("a text takes everything"),
        }
    }
    if name.len() > LONGEST {
        name.truncate(LONGEST);
        let sum = everloop_core::journal::sum(id.as_bytes());
        write!(name, "%{sum:08x}").expect("a text takes everything");
    }
    name
}
