//! The loops of a configuration in the ledger: those that are not known yet, and the settings of
//! the others.

use std::path::Path;

use everloop_core::action::LoopCommand;
use everloop_core::event::LoopEnd;
use everloop_core::state::{LoopState, Phase};
use everloop_store::{Ledger, Sqlite};
use serde::Serialize;

use crate::error::Failure;
use crate::projects::ProjectFile;
use crate::record::read_state;
use crate::services::create::{self, Attachment, CreatedLoop, NewLoop};
use crate::services::runtime::block_on;
use crate::services::{ServiceContext, loops, trust};

/// What applying a configuration did, by the names of its loops.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AppliedLoops {
    #[serde(rename = "new")]
    pub made: Vec<String>,
    pub changed: Vec<String>,
    pub same: Vec<String>,
}

fn known(ledger: &Sqlite) -> Result<Vec<LoopState>, Failure> {
    ledger.loops()?.iter().map(read_state).collect()
}

fn is_of(state: &LoopState, wanted: &NewLoop) -> bool {
    state.name == wanted.name && Path::new(&state.spec.workspace.dir) == Path::new(&wanted.spec.workspace.dir)
}

/// Adds the loops that are not known yet; those of terminals go on without them. `added` gets each
/// one as soon as it is made.
pub fn add(
    context: &ServiceContext,
    ledger: &mut Sqlite,
    wanted: &[NewLoop],
    added: &mut dyn FnMut(&CreatedLoop),
) -> Result<(), Failure> {
    let known = known(ledger)?;
    for wanted in wanted {
        // A loop that has reached its goal is known, too: `up` does not start it a second time.
        let known: Vec<&LoopState> = known.iter().filter(|state| is_of(state, wanted)).collect();
        if known.is_empty() {
            added(&create::create(context, ledger, wanted, Attachment::Background)?);
        }
        for state in known.into_iter().filter(|state| state.people.attached && !state.is_over()) {
            loops::detach(context, ledger, &state.id)?;
        }
    }
    Ok(())
}

/// Puts the file in force, sends each of its loops the new settings, and makes those that are new.
/// `added` gets each one as soon as it is made.
pub fn apply(
    context: &ServiceContext,
    file: Option<&ProjectFile>,
    wanted: &[NewLoop],
    added: &mut dyn FnMut(&CreatedLoop),
) -> Result<AppliedLoops, Failure> {
    let home = context.home()?;
    put_in_force(context, file)?;
    let mut ledger = context.writer(&home)?;
    let known = known(&ledger)?;
    let mut applied = AppliedLoops::default();
    for one in wanted {
        let mine = |s: &&LoopState| is_of(s, one);
        let over = |s: &&LoopState| matches!(&s.phase, Phase::Ended { ending: LoopEnd::Reached, .. });
        match known.iter().filter(mine).find(|s| !over(s)) {
            None if known.iter().any(|s| mine(&s)) => applied.same.push(one.name.clone()),
            None => {
                added(&create::create(context, &mut ledger, one, Attachment::Background)?);
                applied.made.push(one.name.clone());
            }
            Some(state) => {
                let mut spec = block_on(create::complete(&home, one, &state.id))??.spec;
                spec.workspace.origin.clone_from(&state.spec.workspace.origin);
                if spec == state.spec {
                    applied.same.push(one.name.clone());
                } else {
                    let command = LoopCommand::Reconfigure { spec: Box::new(spec) };
                    loops::send(context, Some(state.id.as_str()), &command)?;
                    applied.changed.push(one.name.clone());
                }
            }
        }
    }
    home.wake();
    Ok(applied)
}

/// What was read is in force from now on; without a file, nothing is.
fn put_in_force(context: &ServiceContext, file: Option<&ProjectFile>) -> Result<(), Failure> {
    match (file, trust::in_force(context)?) {
        (Some(file), _) => trust::accept(context, file, "config apply").map(drop),
        (None, Some(gone)) => trust::revoke(context, &gone.root).map(drop),
        (None, None) => Ok(()),
    }
}
