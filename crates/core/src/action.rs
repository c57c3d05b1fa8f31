//! What the shell is asked to do, and the inputs with which it answers. The core performs nothing.

use serde::{Deserialize, Serialize};

use crate::event::{Exit, Integrated, Judgement, StopCause};
use crate::ids::{TaskId, TurnId};
use crate::op::Trust;
use crate::scoreboard::Scoreboard;
use crate::spec::Bounds;
use crate::time::Time;
use crate::watch::WatchReading;

/// Something the shell is to do. Every action may be asked twice (after a crash) and must bear it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Run the checks where the loop starts. Answer: [`Input::Baselined`].
    Baseline,
    /// Prepare the workspace and start the agent. Answer: [`Input::Exited`], sooner or later.
    Spawn {
        /// Which turn.
        turn: TurnId,
        /// The task it works on.
        task: TaskId,
    },
    /// Wait for a turn that outlived its supervisor. Answer: [`Input::Exited`].
    Adopt {
        /// Which turn.
        turn: TurnId,
    },
    /// Stop the agent: interrupt, terminate, kill, with everything it started.
    Stop {
        /// Which turn.
        turn: TurnId,
        /// Why.
        cause: StopCause,
    },
    /// Keep the work under a pin, look at it, run the checks on it. Answer: [`Input::Judged`].
    Judge {
        /// Which turn.
        turn: TurnId,
        /// The task, for the commit's trailer.
        task: TaskId,
    },
    /// Move the work onto the target, once. Answer: [`Input::Integrated`].
    Integrate {
        /// Which turn.
        turn: TurnId,
        /// The task, for the commit's trailer.
        task: TaskId,
        /// The judged commit.
        commit: String,
    },
    /// Tell a person.
    Tell {
        /// One ticket per cause.
        key: String,
        /// What to say.
        text: String,
    },
    /// Look at all monitors soon. Answer: [`Input::Beat`].
    Look,
    /// The loop ended: remove what it no longer needs (worktrees, never refs).
    Cleanup,
}

/// What comes in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// A timer or a wake: look again.
    Tick,
    /// First input after a restart.
    Recovered {
        /// What was found of the turn that the state says is under way.
        found: TurnTrace,
    },
    /// The checks before the first turn.
    Baselined {
        /// What they said, or why they could not be run.
        result: Result<(Scoreboard, Option<String>), String>,
    },
    /// The agent is gone.
    Exited {
        /// Which turn.
        turn: TurnId,
        /// How.
        exit: Exit,
    },
    /// The agent was never there, or vanished without a record.
    Vanished {
        /// Which turn.
        turn: TurnId,
    },
    /// Signs of life were looked for.
    Evidence {
        /// Which turn.
        turn: TurnId,
        /// What was seen.
        sample: crate::evidence::Sample,
    },
    /// The work was judged.
    Judged {
        /// Which turn.
        turn: TurnId,
        /// The result.
        judgement: Judgement,
    },
    /// The work was moved, or not.
    Integrated {
        /// Which turn.
        turn: TurnId,
        /// How it went.
        result: Integration,
    },
    /// Monitors were looked at.
    Beat {
        /// What was seen.
        looks: Vec<WatchReading>,
        /// Beats in a row that brought nothing, this one included.
        empty: u32,
    },
    /// A person's or another program's wish.
    Command {
        /// Who.
        by: String,
        /// What.
        command: LoopCommand,
    },
    /// The supervisor goes down: stop the turn, start nothing.
    Shutdown,
}

/// Answer to [`Action::Integrate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Integration {
    /// Done, or left aside for a reason.
    Done(Integrated),
    /// The target is not where it was when the work was judged.
    Moved(String),
}

/// What was found of a turn after a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TurnTrace {
    /// Its process runs.
    Alive,
    /// It ended meanwhile and left its record.
    Exited(Exit),
    /// No process, no record.
    Gone,
    /// No turn was under way.
    Idle,
}

/// What people and programs can ask of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum LoopCommand {
    /// Start no turn until resumed, or until a time.
    Pause {
        /// Why.
        reason: String,
        /// It goes on by itself then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
    },
    /// Go on; with new bounds if the old ones ended it.
    Resume {
        /// New bounds.
        bounds: Option<Bounds>,
    },
    /// End after this turn, or now.
    Stop {
        /// Stop the agent too.
        now: bool,
    },
    /// A message for the next turn.
    Steer {
        /// The message.
        message: String,
        /// Whose word it is.
        #[serde(default, skip_serializing_if = "Trust::is_operator")]
        trust: Trust,
    },
    /// Do it differently from now on.
    Reconfigure {
        /// What the loop is to do.
        spec: Box<crate::spec::LoopSpec>,
    },
    /// Look again now: a wait of a rhythm ends, a wait of the guard does not.
    Wake,
}
