//! `everloop init --remove`: removes what `init` wrote into a project, and only that.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::init::plan_removal;
use serde_json::json;

use super::InitArgs;
use crate::cli::VerbSession;
use crate::config::PROJECT_FILE;
use crate::ui::text::clean;

pub fn remove(args: &InitArgs, session: &VerbSession) -> Result<Code, Failure> {
    let plan = plan_removal(session, PROJECT_FILE)?;
    let mut lines = plan.lines(session);
    if args.print {
        session.ui.answer(&lines, &json!({ "files": plan.files() }))?;
        return Ok(Code::Ok);
    }
    if !args.yes && session.ui.asks() && !plan.changes.is_empty() {
        for line in lines.drain(..) {
            session.ui.talk(&clean(&line));
        }
        if !session.ui.agrees("do this?")? {
            session.ui.talk("nothing was changed");
            return Ok(Code::Ok);
        }
    }
    plan.perform(session, PROJECT_FILE)?;
    lines.extend(plan.kept.iter().map(|path| format!("kept {}, which was changed since", path.display())));
    if lines.is_empty() {
        lines.push("nothing of everloop was found here".to_owned());
    }
    session.ui.answer(&lines, &json!({ "files": plan.files(), "kept": plan.kept }))?;
    Ok(Code::Ok)
}
