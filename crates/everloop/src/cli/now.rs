//! `everloop` alone: what is going on, in at most ten lines, or the first commands to try.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::status;

use super::VerbSession;
use crate::ui::answers;
use crate::ui::now::{first_steps, now_lines};

pub fn now(session: &VerbSession) -> Result<Code, Failure> {
    let seen = status::status(session, None)?;
    let look = session.ui.look(session.now());
    let lines = if seen.loops.is_empty() { first_steps() } else { now_lines(&seen, &session.dir, &look) };
    session.ui.answer(&lines, &answers::status(&seen, look.now))?;
    Ok(Code::Ok)
}
