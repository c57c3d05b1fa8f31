//! Where a project wants its board to be written, if it does, and where its inbox folder is.

use std::path::{Path, PathBuf};

use crate::config::{self, OutboundKeys, Overrides};
use crate::error::Failure;

/// Where a board is written on request when the project names no file.
pub const USUAL: &str = "tasks/board.json";

/// The file that `[board] file` of the project names. A project without the section wants none.
pub fn of(dir: &Path) -> Result<Option<PathBuf>, Failure> {
    Ok(outside(dir)?.board)
}

/// The project's settings for outbound files and endpoints.
pub fn outside(dir: &Path) -> Result<OutboundKeys, Failure> {
    match config::find(dir) {
        None => Ok(OutboundKeys::default()),
        Some(root) => Ok(config::load(root, None, &Overrides::default())?.outside()?),
    }
}

/// The inbox folder beside a board.
pub fn inbox(board: &Path) -> PathBuf {
    board.with_file_name("inbox")
}
