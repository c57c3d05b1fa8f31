//! What `init` writes into a project besides everloop.toml, and how `init --remove` removes it:
//! sections of instructions, hooks, MCP entries. Files of others are edited as texts, so that
//! nothing else in them changes.
//!
//! - [`json`]: members of a JSON file, put in and taken out by their place in the text
//! - [`section`]: a part of a Markdown or TOML file between two marks
//! - [`plan`]: which agent reads what; [`plugin`]: the same as a plugin of Claude Code
//! - [`record`]: the original content of files, to restore it; [`watch`]: whether hooks are still
//!   there

pub mod json;
pub mod plan;
pub mod plugin;
pub mod record;
pub mod section;
pub mod watch;

use std::io;
use std::path::{Path, PathBuf};

/// A change to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub path: PathBuf,
    /// The current content; `None` when it does not exist.
    pub before: Option<String>,
    /// The new content; `None` to remove it.
    pub after: Option<String>,
}

impl FileChange {
    /// Reads the file; no change yet.
    pub fn of(path: PathBuf) -> io::Result<Self> {
        let before = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        Ok(Self { path, after: before.clone(), before })
    }

    /// Whether there is anything to do.
    pub fn is_real(&self) -> bool {
        self.before != self.after
    }

    /// Performs the change. A file is written whole or not at all; folders that become empty are
    /// removed with it.
    pub fn perform(&self, root: &Path) -> io::Result<()> {
        let Some(text) = &self.after else {
            std::fs::remove_file(&self.path)?;
            let inside = self.path.ancestors().skip(1).take_while(|folder| *folder != root);
            for folder in inside {
                // A folder that is not empty stays.
                if std::fs::remove_dir(folder).is_err() {
                    break;
                }
            }
            return Ok(());
        };
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let aside = self.path.with_file_name(format!(".{name}.{}", std::process::id()));
        std::fs::write(&aside, text)?;
        if let Ok(meta) = std::fs::metadata(&self.path) {
            std::fs::set_permissions(&aside, meta.permissions())?;
        }
        std::fs::rename(&aside, &self.path)
    }

    /// The changed lines: equal lines at both ends are left out.
    pub fn lines(&self, root: &Path) -> Vec<String> {
        let shown = self.path.strip_prefix(root).unwrap_or(&self.path).display();
        let (old, new) = (self.before.as_deref().unwrap_or_default(), self.after.as_deref().unwrap_or_default());
        let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
        let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
        let rest = old.len().min(new.len()) - same;
        let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
        let mut lines = vec![match (&self.before, &self.after) {
            (None, _) => format!("new file {shown}"),
            (_, None) => format!("remove {shown}"),
            _ => format!("change {shown} from line {}", same + 1),
        }];
        lines.extend(old[same..old.len() - tail].iter().map(|line| format!("- {line}")));
        lines.extend(new[same..new.len() - tail].iter().map(|line| format!("+ {line}")));
        lines
    }
}
