//! Where a project wants its board to be written, if it does, and where its inbox folder is.

use std::path::{Path, PathBuf};

use crate::error::Failure;
use crate::projects::{ProjectFile, Projects};

/// Where a board is written on request when the project names no file.
pub const USUAL: &str = "tasks/board.json";

/// The file that `[board] file` of the project names. A project without the section wants none.
pub fn of(projects: &dyn Projects, file: Option<&ProjectFile>) -> Result<Option<PathBuf>, Failure> {
    Ok(projects.outbound(file)?.board)
}

/// The inbox folder beside a board.
pub fn inbox(board: &Path) -> PathBuf {
    board.with_file_name("inbox")
}
