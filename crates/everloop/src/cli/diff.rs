//! `everloop diff`: what the work of a loop changes.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::diff::{ChangedFile, DiffAnswer, DiffDetail, diff as compare};

use super::VerbSession;
use crate::ui::Format;
use crate::ui::paint::Paint;
use crate::ui::table::Table;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop diff               # the loop in this folder, as a patch
  everloop diff k3f9 --stat   # files and lines
  everloop diff --json        # the same for programs

Control characters are left out of the patch; `git diff BASE HEAD` with the commits of --json prints it exactly.";

/// Shows what a loop's work changes: from the commit it began at to the last work that was kept.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct DiffArgs {
    /// Loop id or name [default: the loop in this folder]
    id: Option<String>,
    /// Print files and counts of lines instead of the patch
    #[arg(long)]
    stat: bool,
}

pub fn diff(args: &DiffArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let patch = !args.stat && session.ui.format() == Format::Text;
    let detail = if patch { DiffDetail::Patch } else { DiffDetail::Files };
    let found = compare(session, args.id.as_deref(), detail)?;
    let lines = match &found.patch {
        _ if found.files.is_empty() => vec![format!("Loop {} ({}) has changed nothing.", found.id, clean(&found.name))],
        Some(patch) => patch.lines().map(|line| painted(line, session.ui.paint())).collect(),
        None => stat(&found, session.ui.width()),
    };
    session.ui.answer(&lines, &found)?;
    Ok(Code::Ok)
}

/// A line of a patch. Its content is data; tabs are the only control characters that stay.
pub(super) fn painted(line: &str, paint: Paint) -> String {
    let safe = line.split('\t').map(clean).collect::<Vec<_>>().join("\t");
    match line.as_bytes().first() {
        Some(b'+') => paint.good(&safe),
        Some(b'-') => paint.bad(&safe),
        Some(b'd') => paint.strong(&safe),
        _ => safe,
    }
}

fn stat(found: &DiffAnswer, width: usize) -> Vec<String> {
    let mut table = Table::new(&["FILE", "ADDED", "REMOVED"]);
    let count = |lines: Option<u64>| lines.map_or("binary".to_owned(), |n| n.to_string());
    for file in &found.files {
        table.row([clean(&file.path), count(file.added), count(file.removed)]);
    }
    let sum = |of: fn(&ChangedFile) -> Option<u64>| found.files.iter().filter_map(of).sum::<u64>();
    table.row([format!("{} in all", found.files.len()), sum(|f| f.added).to_string(), sum(|f| f.removed).to_string()]);
    table.lines(width)
}
