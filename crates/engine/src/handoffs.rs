//! The documents of handoffs in the ledger: one per project folder, session and loop; the latest
//! counts. What is in them is data.

use std::path::Path;

use everloop_core::hook::{HANDOFF, Handoff, OF_SESSION};
use everloop_core::ids::LoopId;
use everloop_core::op::Op;
use everloop_store::Ledger;

use crate::error::Failure;

/// Whose handoff a document is.
#[derive(Clone, Copy, Debug)]
pub enum HandoffOf<'a> {
    Folder(&'a Path),
    Session(&'a str),
    /// Written in one of its turns, for those after it.
    Loop(&'a LoopId),
}

impl HandoffOf<'_> {
    /// The key of the document.
    pub fn key(self) -> String {
        match self {
            HandoffOf::Folder(dir) => dir.display().to_string(),
            HandoffOf::Session(id) => format!("{OF_SESSION}{id}"),
            HandoffOf::Loop(id) => format!("loop:{id}"),
        }
    }

    /// The latest one.
    pub fn read(self, ledger: &impl Ledger) -> Result<Option<Handoff>, Failure> {
        let Some(row) = ledger.doc(HANDOFF, &self.key())? else { return Ok(None) };
        let left = serde_json::from_str(&row.body);
        Ok(Some(left.map_err(|e| Failure::failed("cannot read the handoff").because(&e))?))
    }

    /// The operation that replaces it.
    pub fn save(self, ledger: &impl Ledger, left: &Handoff) -> Result<Op, Failure> {
        let (key, body) = (self.key(), serde_json::to_string(left).expect("a handoff is plain data"));
        let version = ledger.doc(HANDOFF, &key)?.map_or(0, |row| row.version);
        Ok(Op::SaveDoc { kind: HANDOFF.to_owned(), key, version, body })
    }
}
