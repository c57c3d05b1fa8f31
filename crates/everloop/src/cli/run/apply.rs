//! Applies a changed everloop.toml to existing loops. The ledger holds the last good one; a wrong
//! file changes nothing.

use std::path::Path;

use everloop_core::action::LoopCommand;
use everloop_core::event::LoopEnd;
use everloop_core::state::{LoopState, Phase};
use everloop_engine::error::{Code, Failure};
use everloop_engine::projects::ProjectFile;
use everloop_engine::record::read_state;
use everloop_engine::services::{create, trust};
use everloop_store::Ledger;
use serde_json::json;

use super::create::make;
use crate::cli::message::send;
use crate::cli::{VerbSession, config as verb, up};

/// Sends every loop of the file its new settings; creates those that are new.
pub fn apply(session: &VerbSession) -> Result<Code, Failure> {
    let config = verb::load(session)?;
    let wanted = config.check(&verb::this_moment(session))?;
    let home = session.home()?;
    put_in_force(session, config.project_file().as_ref())?;
    let mut ledger = session.writer(&home)?;
    let known: Vec<LoopState> = ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?;
    let (mut made, mut changed, mut same) = (Vec::new(), Vec::new(), Vec::new());
    for one in &wanted {
        let mine = |s: &&LoopState| s.name == one.name && Path::new(&s.spec.workspace.dir) == one.workspace.dir;
        let over = |s: &&LoopState| matches!(&s.phase, Phase::Ended { ending: LoopEnd::Reached, .. });
        match known.iter().filter(mine).find(|s| !over(s)) {
            None if known.iter().any(|s| mine(&s)) => same.push(one.name.clone()),
            None => {
                make(one, session, &mut ledger, create::Attachment::Background)?;
                made.push(one.name.clone());
            }
            Some(state) => {
                let mut spec = up::block_on(create::complete(&home, &one.new_loop(), &state.id))??.spec;
                spec.workspace.origin.clone_from(&state.spec.workspace.origin);
                if spec == state.spec {
                    same.push(one.name.clone());
                } else {
                    send::send(session, Some(state.id.as_str()), &LoopCommand::Reconfigure { spec: Box::new(spec) })?;
                    changed.push(one.name.clone());
                }
            }
        }
    }
    home.wake();
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let text = format!("new: {}; changed: {}; unchanged: {}", list(&made), list(&changed), list(&same));
    session.ui.said(&text, &json!({ "new": made, "changed": changed, "same": same }))?;
    Ok(Code::Ok)
}

/// What was read is in force from now on; without a file, nothing is.
fn put_in_force(session: &VerbSession, file: Option<&ProjectFile>) -> Result<(), Failure> {
    match (file, trust::in_force(session)?) {
        (Some(file), _) => trust::accept(session, file, "config apply").map(drop),
        (None, Some(gone)) => trust::revoke(session, &gone.root).map(drop),
        (None, None) => Ok(()),
    }
}
