//! The ledger as plain files: readable for people and scripts, and the source for a lost database.
//!
//! - [`Mirror`] (`mirror/follow.rs`): follows a ledger, pass by pass, and writes only what changed
//! - [`found`] and [`MirrorContents`] (`mirror/found.rs`): the content of a mirror, file by file,
//!   and the files that are refused
//! - `page`: one file, with its version and its checksum; `line`: one record of the journal
//! - `change`: writes a pass to disk, whole or not at all; `source`: the changes of a ledger
//!
//! ```text
//! mirror.json                     id and position of the mirror; written with every pass
//! scoreboard.json                 every loop in a few words
//! loops/ID.json                   the state of a loop
//! queue/STATE/ID.json             a task with its late results, in pending, claimed or completed;
//!                                 finished ones up to a limit
//! docs/KIND/KEY.json guards/SCOPE.json tickets.json messages.json
//! log/YYYY-MM-DD.jsonl            the journal; never pruned, since the ledger's is not either
//! supervisor.heartbeat            a heartbeat, never restored
//! ```
//!
//! All files together show one moment of the ledger. Only people and `recover` read them.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

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
/// Number of finished tasks that are kept as files, and of dead ones: the newest. A ledger may hold
/// a million, and no folder should.
pub const COMPLETED_MOST: usize = 1_000;

/// Why a mirror cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// Access to a file or folder failed.
    #[error("cannot {doing} `{path}`")]
    Files {
        /// What was tried.
        doing: &'static str,
        path: String,
        source: std::io::Error,
    },
    /// The mirrored ledger failed.
    #[error(transparent)]
    Ledger(#[from] crate::Error),
    /// The files belong to different mirrors, and it is unknown which of them counts.
    #[error("`{path}` holds files of different mirrors, and its `mirror.json` does not name the one that counts")]
    Mixed { path: String },
    /// The folder contains no mirror.
    #[error("there is no mirror in `{path}`")]
    None { path: String },
}

/// Everything that a mirror can restore.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    pub loops: Vec<LoopRow>,
    pub tasks: Vec<TaskRow>,
    /// Late results, in the order in which they came.
    pub late_results: Vec<LateResult>,
    /// Stored guard states.
    pub guards: Guards,
    /// Documents with their kinds.
    pub docs: Vec<(String, DocRow)>,
    /// Messages that were not consumed yet.
    pub messages: Vec<Message>,
    pub tickets: Vec<Ticket>,
    /// The journal, oldest first.
    pub journal: Vec<Stored>,
    pub leader: Option<Leader>,
}

fn files(doing: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> MirrorError {
    let path = path.display().to_string();
    move |source| MirrorError::Files { doing, path, source }
}

/// File name for an id: ids of agents' tasks may be anything, and no name may lead out of its
/// folder, be hidden, or be too long for a file system.
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
