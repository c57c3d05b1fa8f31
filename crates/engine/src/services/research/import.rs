//! Reads the results table of another tool, or of an older version.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use everloop_core::research::Direction;
use everloop_core::research::import::{History, MAX_BYTES, PastRow, read};
use serde::Serialize;

use crate::error::Failure;

/// A table in a few numbers.
#[derive(Clone, Debug, Serialize)]
pub struct ImportAnswer {
    pub direction: Option<Direction>,
    pub rows: usize,
    pub keeps: usize,
    pub best: Option<PastRow>,
}

/// The summary of a table.
pub fn import(path: &Path) -> Result<ImportAnswer, Failure> {
    let found = history(path)?;
    let (rows, keeps, best) = (found.rows.len(), found.keeps(), found.best().cloned());
    Ok(ImportAnswer { direction: found.direction, rows, keeps, best })
}

/// The rows of a table. More than the cap is not even read into memory.
pub fn history(path: &Path) -> Result<History, Failure> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(|e| Failure::usage(format!("cannot read the table `{shown}`")).because(&e))?;
    // The words are data; a letter that is none is shown as such.
    read(&String::from_utf8_lossy(&bytes))
        .map_err(|wrong| Failure::usage(format!("cannot read the table `{shown}`: {wrong}")).hint(wrong.hint))
}
