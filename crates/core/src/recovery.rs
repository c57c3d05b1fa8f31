//! What a restarted supervisor does about a loop. The same path as any other decision; safe when it crashes again.

use crate::action::{Action, Found};
use crate::event::Exit;
use crate::planted::{self, Bug};
use crate::state::{LoopState, Phase, Stage};

/// What is to be done first.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Run the baseline (again).
    Baseline,
    /// Nothing was under way: go on.
    Advance,
    /// The turn's process lives: wait for it.
    Adopt,
    /// It ended meanwhile: take its record.
    TakeExit(Box<Exit>),
    /// It is gone without a record: give the task back.
    GiveBack,
    /// An action was under way that bears being done twice.
    Redo(Action),
    /// Over.
    Nothing,
}

/// The plan for a loop, given what was found of its turn.
pub fn plan(state: &LoopState, found: &Found) -> Plan {
    let turn = match &state.phase {
        Phase::New => return Plan::Baseline,
        Phase::Ready | Phase::Waiting { .. } => return Plan::Advance,
        Phase::Ended { .. } => return Plan::Nothing,
        Phase::Turn(turn) => turn,
    };
    match turn.stage {
        Stage::Running => match found {
            Found::Alive if planted::is(Bug::RecoveryRestartsLiveTurn) => Plan::GiveBack,
            Found::Alive => Plan::Adopt,
            Found::Exited(_) if planted::is(Bug::RecoveryForgetsExited) => Plan::GiveBack,
            Found::Exited(exit) => Plan::TakeExit(Box::new(exit.clone())),
            Found::Gone | Found::Idle => Plan::GiveBack,
        },
        Stage::Judging => Plan::Redo(Action::Judge { turn: turn.id.clone(), task: turn.task.clone() }),
        Stage::Integrating => match turn.judgement.as_ref().and_then(|j| j.commit.clone()).or(state.work.clone()) {
            Some(commit) => Plan::Redo(Action::Integrate { turn: turn.id.clone(), task: turn.task.clone(), commit }),
            None => Plan::Redo(Action::Judge { turn: turn.id.clone(), task: turn.task.clone() }),
        },
    }
}
