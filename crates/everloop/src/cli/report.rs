//! `everloop report`: what loops did in a period, for the morning after.

use std::path::{Path, PathBuf};

use everloop_core::morning::document::ReaderClock;
use everloop_core::time::Time;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::report::{ReportRequest, report as read};
use serde_json::json;

use super::{VerbSession, logs};
use crate::png::png;
use crate::ui::Format;
use crate::ui::quantities::here;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop report                             # the last 24 hours of all loops
  everloop report k3f9 --html report.html     # one loop from its beginning, as a page to mail or print
  everloop report --since 21:00 --md | mail -s everloop ann@example.org
  everloop report --png night.png --json

The page is one file without scripts, and prints on a few sheets.";

/// Reports what was asked, proved, kept and refused, what waits for you, and what it cost.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct ReportArgs {
    /// Loop id or name [default: all loops that are open or did something]
    id: Option<String>,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the picture alone
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Print plain text, which is the default without a file
    #[arg(long, conflicts_with = "md")]
    text: bool,
    /// Print Markdown instead of plain text
    #[arg(long)]
    md: bool,
    /// Where the period begins: `24h` (ago), `21:00`, `2026-11-15`, `2026-11-15 21:00`
    /// [default: 24h, or the whole life of the one loop]
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

pub fn report(args: &ReportArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let since = args.since.as_deref().map(|text| logs::past(text, session)).transpose()?;
    let found = read(session, &ReportRequest { word: args.id.as_deref(), since, stamp: &here })?;
    let clock = ReaderClock { stamp: &here, utc_offset: utc_offset(session.now()) };
    let document = found.document(&clock);
    let mut written = Vec::new();
    if let Some(file) = &args.html {
        written.push(write(&session.dir.join(file), document.html().as_bytes())?);
    }
    if let Some(file) = &args.png {
        written.push(write(&session.dir.join(file), &png(&found.svg(&clock))?)?);
    }
    if session.ui.format() == Format::Json {
        session.ui.json(&json!({ "report": found, "files": written }))?;
        return Ok(Code::Ok);
    }
    if args.md {
        session.ui.out(&document.markdown())?;
    } else if args.text || written.is_empty() {
        session.ui.out(&document.text())?;
    }
    if !written.is_empty() {
        session.ui.talk(&format!("wrote {}", clean(&written.join(" and "))));
    }
    Ok(Code::Ok)
}

/// Seconds between the zone of this machine and UTC.
fn utc_offset(at: Time) -> i64 {
    let zone = jiff::tz::TimeZone::system();
    jiff::Timestamp::from_millisecond(at.0).map_or(0, |at| i64::from(zone.to_offset(at).seconds()))
}

/// Writes a file for a person, and gives its name.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<String, Failure> {
    std::fs::write(path, bytes)
        .map_err(|e| Failure::failed(format!("cannot write `{}`", path.display())).because(&e))?;
    Ok(path.display().to_string())
}
