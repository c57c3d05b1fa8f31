//! Which loop a command is for, where several loops have the name that was typed.

use everloop_core::state::LoopState;
use everloop_engine::error::Failure;
use everloop_engine::services::loops;

use super::VerbSession;
use crate::ui::quantities::relative;
use crate::ui::text::clean;

/// The word for the loop of a command. A name that several open loops have is replaced by the id
/// that a person at the terminal chooses; without a terminal the command itself refuses it.
pub fn which(session: &VerbSession, word: Option<String>) -> Result<Option<String>, Failure> {
    let Some(name) = word.as_deref().filter(|_| session.ui.asks()) else { return Ok(word) };
    let rivals = loops::rivals(session, name)?;
    if rivals.is_empty() {
        return Ok(word);
    }
    session.ui.talk(&format!("{} loops are called `{}`:", rivals.len(), clean(name)));
    let lines: Vec<String> = rivals.iter().map(|state| line(state, session)).collect();
    match session.ui.chooses("which one?", &lines)? {
        Some(i) => Ok(Some(rivals[i].id.to_string())),
        None => Err(Failure::usage("none of them was chosen").hint("type its number, or name it by its id")),
    }
}

fn line(state: &LoopState, session: &VerbSession) -> String {
    let made = relative(state.created_at, session.now());
    clean(&format!("{} in {}: {}, made {made}", state.id, state.spec.workspace.dir, state.phase.label()))
}
