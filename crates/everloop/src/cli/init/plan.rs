//! `everloop init --research`: a template for the plan of a research run. The file belongs to the
//! person: it is never written again.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};

use everloop_engine::error::{Code, Failure};
use serde_json::json;

use super::InitArgs;
use crate::cli::VerbSession;
use crate::config::PLAN;

/// List items are strategies; a comment in the file is none.
const TEMPLATE: &str = "# Research plan

Each list item is a strategy that `everloop research` tries, from top to bottom; what was tried
follows from the results, so nothing here is ever changed by everloop. Replace these:

- measure where the time goes, and improve the most expensive part
- a better algorithm or data structure for the hot path
- do less: cache, batch, skip what is not needed
- remove code that does not help
";

pub fn write(args: &InitArgs, session: &VerbSession) -> Result<Code, Failure> {
    let path = session.dir.join(PLAN);
    let shown = path.display().to_string();
    if args.print {
        session.ui.said(TEMPLATE.trim_end(), &json!({ "path": shown, "text": TEMPLATE }))?;
        return Ok(Code::Ok);
    }
    let cannot = |e: std::io::Error| Failure::failed(format!("cannot write `{shown}`")).because(&e);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(cannot)?;
    }
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => file.write_all(TEMPLATE.as_bytes()).map_err(cannot)?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            return Err(Failure::failed(format!("`{shown}` exists already")).hint("it is yours: change it by hand"));
        }
        Err(e) => return Err(cannot(e)),
    }
    let lines = [
        format!("wrote {shown}"),
        "next: write your strategies into it".to_owned(),
        "next: everloop research \"GOAL\" --metric 'CMD' --direction lower --agent claude".to_owned(),
    ];
    session.ui.answer(&lines, &json!({ "written": shown }))?;
    Ok(Code::Ok)
}
