//! Plan of a restarted supervisor for a loop. The same path as any other decision; safe when it
//! crashes again.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use crate::action::{Action, TurnTrace};
use crate::event::Exit;
use crate::planted::{self, Bug};
use crate::state::{LoopState, Phase, TurnStage};

/// The first step after a restart.
#[derive(Clone, Debug, PartialEq)]
pub enum RecoveryPlan {
    /// Run the baseline (again).
    Baseline,
    /// Nothing was under way: go on.
    Advance,
    /// The turn's process is alive: wait for it.
    Adopt,
    /// It ended meanwhile: take its record.
    TakeExit(Box<Exit>),
    /// It is gone without a record: give the task back.
    GiveBack,
    /// An experiment was being measured: decide again what it needs.
    Weigh,
    /// An interrupted action that may be repeated.
    Redo(Action),
    Nothing,
}

/// The plan for a loop, given the state of its turn.
pub fn plan(state: &LoopState, found: &TurnTrace) -> RecoveryPlan {
    let turn = match &state.phase {
        Phase::New => return RecoveryPlan::Baseline,
        Phase::Ready | Phase::Waiting { .. } => return RecoveryPlan::Advance,
        Phase::Ended { .. } => return RecoveryPlan::Nothing,
        Phase::Turn(turn) => turn,
    };
    match turn.stage {
        TurnStage::Running => match found {
            TurnTrace::Alive if planted::is(Bug::RecoveryRestartsLiveTurn) => RecoveryPlan::GiveBack,
            TurnTrace::Alive => RecoveryPlan::Adopt,
            TurnTrace::Exited(_) if planted::is(Bug::RecoveryForgetsExited) => RecoveryPlan::GiveBack,
            TurnTrace::Exited(exit) => RecoveryPlan::TakeExit(Box::new(exit.clone())),
            TurnTrace::Gone | TurnTrace::Idle => RecoveryPlan::GiveBack,
        },
        TurnStage::Judging => RecoveryPlan::Redo(Action::Judge { turn: turn.id.clone(), task: turn.task.clone() }),
        // The decision that follows from what is recorded, once more.
        TurnStage::Measuring => RecoveryPlan::Weigh,
        TurnStage::Integrating => {
            match turn.judgement.as_ref().and_then(|j| j.commit.clone()).or(state.progress.work.clone()) {
                Some(commit) => {
                    RecoveryPlan::Redo(Action::Integrate { turn: turn.id.clone(), task: turn.task.clone(), commit })
                }
                None => RecoveryPlan::Redo(Action::Judge { turn: turn.id.clone(), task: turn.task.clone() }),
            }
        }
    }
}
