//! Applies a changed everloop.toml to existing loops. The ledger holds the last good one; a wrong
//! file changes nothing.

use std::path::Path;

use everloop_core::action::LoopCommand;
use everloop_core::event::LoopEnd;
use everloop_core::state::{LoopState, Phase};
use everloop_engine::error::{Code, Failure};
use everloop_engine::record::read_state;
use everloop_store::Ledger;
use serde_json::json;

use super::create::{complete, create};
use crate::cli::message::send;
use crate::cli::{VerbSession, config as verb, up};

/// Sends every loop of the file its new settings; creates those that are new.
pub fn apply(session: &VerbSession) -> Result<Code, Failure> {
    let wanted = verb::load(session)?.check(&verb::this_moment(session))?;
    let home = session.home()?;
    let mut ledger = session.writer(&home)?;
    let known: Vec<LoopState> = ledger.loops()?.iter().map(read_state).collect::<Result<_, _>>()?;
    let (mut made, mut changed, mut same) = (Vec::new(), Vec::new(), Vec::new());
    for one in &wanted {
        let mine = |s: &&LoopState| s.name == one.name && Path::new(&s.spec.workspace.dir) == one.workspace.dir;
        let over = |s: &&LoopState| matches!(&s.phase, Phase::Ended { ending: LoopEnd::Reached, .. });
        match known.iter().filter(mine).find(|s| !over(s)) {
            None if known.iter().any(|s| mine(&s)) => same.push(one.name.clone()),
            None => {
                create(one, session, &home, &mut ledger)?;
                made.push(one.name.clone());
            }
            Some(state) => {
                let mut spec = up::block_on(complete(one, &state.id, &home, &session.ui))??;
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
