//! Landing: whether work is already on the target, may be moved there, or has to be judged again. A
//! task lands once, also when a crash follows before that is recorded.

use crate::action::Integration;
use crate::event::Integrated;
use crate::planted::{self, Bug};

/// How two commits relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The first is the second, or an ancestor of it.
    Behind,
    /// The second is an ancestor of the first.
    Ahead,
    /// Each has commits that the other has not.
    Diverged,
}

/// The next step of work that is to land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandingStep {
    /// The target has the work.
    Landed,
    /// The target can be moved forward.
    Move,
    /// The target went another way: look there for the task's trailer.
    LookUp,
}

/// The next step of `commit`, as the target relates to it.
pub fn step(relation: Relation, target: &str, commit: &str) -> LandingStep {
    match relation {
        Relation::Behind if target != commit => LandingStep::Move,
        Relation::Behind | Relation::Ahead => LandingStep::Landed,
        Relation::Diverged => LandingStep::LookUp,
    }
}

/// The work is on the target.
pub fn landed(commit: &str) -> Integration {
    Integration::Done(Integrated::Landed { commit: commit.to_owned() })
}

/// The result of looking for the task's trailer: a commit that bears it, which is the work in
/// another shape, or none.
pub fn looked_up(found: Option<String>, why: impl FnOnce() -> String) -> Integration {
    match found {
        Some(commit) if !planted::is(Bug::IntegratesWithoutTrailerLookup) => landed(&commit),
        _ => Integration::Moved(why()),
    }
}
