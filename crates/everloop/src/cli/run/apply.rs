//! Applies a changed everloop.toml to existing loops. The ledger holds the last good one; a wrong
//! file changes nothing.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::create::NewLoop;
use everloop_engine::services::run::configured;
use serde_json::json;

use super::create::show_unseen;
use crate::cli::{VerbSession, config as verb};
use crate::config::ResolvedLoop;

/// Sends every loop of the file its new settings; creates those that are new.
pub fn apply(session: &VerbSession) -> Result<Code, Failure> {
    let config = verb::load(session)?;
    let wanted = config.check(&verb::this_moment(session))?;
    let wanted: Vec<NewLoop> = wanted.iter().map(ResolvedLoop::new_loop).collect();
    let file = config.project_file();
    let applied = configured::apply(session, file.as_ref(), &wanted, &mut |made| show_unseen(session, made))?;
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let (made, changed, same) = (list(&applied.made), list(&applied.changed), list(&applied.same));
    session.ui.said(&format!("new: {made}; changed: {changed}; unchanged: {same}"), &json!(applied))?;
    Ok(Code::Ok)
}
