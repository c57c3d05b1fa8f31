//! What an agent said and did in a turn, as steps: for `show`, `logs --turn` and a dashboard alike.

use std::path::{Path, PathBuf};

use everloop_agents::agent::{ProcessEnd, TranscriptReader};
use everloop_agents::clock;
use everloop_agents::job::{self, JobError};
use everloop_core::ids::TurnId;
use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::state::{LoopState, Phase};
use everloop_core::transcript::Transcript;
use serde::Serialize;

use super::ServiceContext;
use super::show::owner;
use crate::error::Failure;

/// The steps of a turn so far.
#[derive(Debug, Serialize)]
pub struct TurnTranscript {
    pub turn: TurnId,
    /// The agent that took it, where that is still known.
    pub agent: Option<String>,
    pub running: bool,
    #[serde(flatten)]
    pub transcript: Transcript,
}

/// Reads a turn step by step, also while it runs.
pub struct TurnFollower {
    turn: TurnId,
    agent: Option<String>,
    dir: PathBuf,
    reader: TranscriptReader,
    over: bool,
}

/// The steps of a turn.
pub fn transcript(context: &ServiceContext, turn: &TurnId) -> Result<TurnTranscript, Failure> {
    let mut follower = follow(context, turn)?;
    follower.read()?;
    let TurnFollower { turn, agent, reader, over, .. } = follower;
    Ok(TurnTranscript { turn, agent, running: !over, transcript: reader.transcript().clone() })
}

/// The turn, to be read again and again.
pub fn follow(context: &ServiceContext, turn: &TurnId) -> Result<TurnFollower, Failure> {
    let home = context.home()?;
    let dir = home.turn(turn);
    if !dir.is_dir() {
        return Err(Failure::usage(format!("there is no output of turn `{turn}`"))
            .hint("`everloop show ID` lists the turns of a loop; the output of old ones is removed"));
    }
    let state = context.reader(&home)?.map(|ledger| owner(turn, &ledger)).transpose()?.flatten();
    let agent = state.as_ref().and_then(|state| agent_of(state, turn));
    let kind = agent.map_or(AgentKind::Command, AgentSpec::stream_kind);
    let reader = TranscriptReader::new(dir.clone(), kind);
    Ok(TurnFollower { turn: turn.clone(), agent: agent.map(|a| a.name.clone()), dir, reader, over: false })
}

impl TurnFollower {
    /// Takes what was written since the last call.
    pub fn read(&mut self) -> Result<(), Failure> {
        if self.over {
            return Ok(());
        }
        // Read before the output: what comes in between is taken the next time.
        let record = job::record(&self.dir).map_err(|e| self.unreadable(&e))?;
        let over = record.is_some() || is_gone(&self.dir).map_err(|e| self.unreadable(&e))?;
        let now = record.as_ref().map_or_else(clock::now, |record| record.exit.ended_at);
        self.reader.read(now).map_err(|e| self.unreadable(&e))?;
        if over {
            let exit = record.map(|record| record.exit).unwrap_or_default();
            // Files of a CLI in its home are not looked for: they may have changed since.
            self.reader.finish(&ProcessEnd { code: exit.code, signal: exit.signal, now, env: &[] });
            self.over = true;
        }
        Ok(())
    }

    /// Whether the turn has ended and all of it was read.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The steps so far.
    pub fn transcript(&self) -> &Transcript {
        self.reader.transcript()
    }

    fn unreadable(&self, error: &JobError) -> Failure {
        Failure::failed(format!("cannot read the output of turn `{}`", self.turn)).because(error)
    }
}

/// Whether the shim ended without a record.
fn is_gone(dir: &Path) -> Result<bool, JobError> {
    Ok(job::started(dir)?.is_some_and(|s| !s.shim.is_alive()) && job::record(dir)?.is_none())
}

fn agent_of<'a>(state: &'a LoopState, turn: &TurnId) -> Option<&'a AgentSpec> {
    let running = match &state.phase {
        Phase::Turn(now) if now.id == *turn => Some(&now.agent),
        _ => None,
    };
    let ended = || state.progress.tries.iter().find(|t| t.turn == *turn).map(|t| &t.agent);
    let name = running.or_else(ended)?;
    state.spec.agents().find(|agent| agent.name == *name)
}
