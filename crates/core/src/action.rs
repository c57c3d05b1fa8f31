//! Actions for the shell to perform, and the inputs that report their results. The core performs
//! nothing.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use serde::{Deserialize, Serialize};

use crate::event::{Exit, Integrated, Judgement, StopCause};
use crate::ids::{TaskId, TurnId};
use crate::op::Trust;
use crate::research::sample::{Contender, Sample};
use crate::scoreboard::Scoreboard;
use crate::spec::{Bounds, Budget};
use crate::time::Time;
use crate::watch::WatchReading;

/// An effect for the shell to carry out. After a crash an action may be returned a second time, so
/// each one must be repeatable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Run the checks where the loop starts. Answer: [`Input::Baselined`].
    Baseline,
    /// Prepare the workspace and start the agent. Answer: [`Input::Exited`], sooner or later.
    Spawn { turn: TurnId, task: TaskId },
    /// Wait for a turn that outlived its supervisor. Answer: [`Input::Exited`].
    Adopt { turn: TurnId },
    /// Stop the agent: interrupt, terminate, kill, with everything it started.
    Stop { turn: TurnId, cause: StopCause },
    /// Pin the work, inspect it, run the checks on it. Answer: [`Input::Judged`].
    Judge {
        turn: TurnId,
        /// The task, for the commit's trailer.
        task: TaskId,
    },
    /// Measure a commit of an experiment. Answer: [`Input::Measured`].
    Measure {
        turn: TurnId,
        subject: Contender,
        /// `None` without git.
        commit: Option<String>,
    },
    /// Make the change of an experiment again on a new champion, run the guards there and measure it.
    /// Answer: [`Input::Replayed`].
    Replay {
        turn: TurnId,
        /// The task, for the commit's trailer.
        task: TaskId,
        commit: String,
        /// The commit that the change was made on.
        base: String,
        /// The champion that it is made on now.
        onto: String,
    },
    /// Append the rows of the journal that the table of results lacks.
    Record,
    /// Write the memory of a persona as files.
    Remember,
    /// Move the work onto the target, once. Answer: [`Input::Integrated`].
    Integrate {
        turn: TurnId,
        /// The task, for the commit's trailer.
        task: TaskId,
        /// The judged commit.
        commit: String,
    },
    /// Notify a person.
    Tell {
        /// Deduplication key: one ticket per cause.
        key: String,
        text: String,
    },
    /// Probe all monitors soon. Answer: [`Input::Beat`].
    Look,
    /// The loop ended: remove what it no longer needs (checkouts, never refs).
    Cleanup,
}

/// An input of [`decide`](crate::decide::decide): the result of an action, a timer or a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// A timer or a wake: decide again.
    Tick,
    /// First input after a restart.
    Recovered {
        /// State of the turn that the loop's state records as under way.
        found: TurnTrace,
    },
    /// The checks before the first turn.
    Baselined {
        /// The scoreboard and the commit it belongs to, or why the checks could not run.
        result: Result<(Scoreboard, Option<String>), String>,
        /// What a person should know about these results; sentences.
        notes: Vec<String>,
        /// Of a research run: the metric, as often as its spread needed.
        samples: Vec<Sample>,
    },
    /// The agent's process ended.
    Exited { turn: TurnId, exit: Exit },
    /// The agent never started, or vanished without a record.
    Vanished { turn: TurnId },
    /// A liveness sample of the running turn.
    Evidence { turn: TurnId, sample: crate::evidence::Sample },
    /// The work was judged.
    Judged { turn: TurnId, judgement: Judgement },
    /// Candidate or champion of an experiment was measured again.
    Measured { turn: TurnId, subject: Contender, sample: Sample },
    /// The change of an experiment was made again on a new champion, or conflicts with it.
    Replayed {
        turn: TurnId,
        onto: String,
        /// What was found, or the conflicting files.
        result: Result<Box<Judgement>, Vec<String>>,
    },
    /// The work reached the target branch, or did not.
    Integrated {
        turn: TurnId,
        /// How it went.
        result: Integration,
    },
    /// Monitors were probed.
    Beat {
        /// One result per monitor that was due.
        looks: Vec<WatchReading>,
        /// Beats in a row without news, this one included.
        empty: u32,
    },
    /// A command of a person or of another program.
    Command { by: String, command: LoopCommand },
    /// The supervisor shuts down: stop the turn, start nothing.
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

/// Commands that people and programs can give to a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum LoopCommand {
    /// Start no turn until resumed, or until a time.
    Pause {
        reason: String,
        /// The pause ends by itself at this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
    },
    /// Go on; with new bounds or a new budget if the old ones ended it.
    Resume {
        bounds: Option<Bounds>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<Budget>,
    },
    /// End after this turn, or now.
    Stop {
        /// Stop the running agent too.
        now: bool,
    },
    /// Go on without a terminal.
    Detach,
    /// A message for the next turn.
    Steer {
        message: String,
        /// Trust of the author: decides whether the prompt presents the message as an instruction.
        #[serde(default, skip_serializing_if = "Trust::is_operator")]
        trust: Trust,
    },
    /// Replace the specification from now on.
    Reconfigure { spec: Box<crate::spec::LoopSpec> },
    /// Decide again now: a wait of a rhythm ends, a wait of the guard does not.
    Wake,
    /// Take a signal; for personas.
    Signal { signal: Box<crate::rhythm::signal::Signal> },
    /// Add a line to the memory of a persona, which no dream may drop.
    Remember { line: String },
    /// A person has the work: it waits for nothing any more.
    Taken {
        /// The commit that holds the work.
        commit: String,
    },
}
