//! Follows what an agent's CLI says: while it works for signs of life, in the end for the turn's record.

use std::path::PathBuf;

use everloop_agents::agent::{ProcessEnd, Reader};
use everloop_agents::clock;
use everloop_agents::job::{Stream, Tail, TailChunk};
use everloop_core::event::Exit;
use everloop_core::phase::{PhaseLiveness, Phases};
use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::state::{LoopState, Turn};
use everloop_core::stream::{AgentEvent, TurnReport};
use everloop_core::time::Time;

/// What is known of a stream, and as of when.
pub(super) type Sighting = Option<(PhaseLiveness, Time)>;

/// Who has a turn.
pub(super) fn agent_of<'a>(state: &'a LoopState, turn: &Turn) -> &'a AgentSpec {
    let named = |a: &&AgentSpec| a.name == turn.agent && a.account == turn.account;
    state.spec.agents().find(named).unwrap_or(&state.spec.agent)
}

/// The stream of one turn.
pub(super) struct Follow {
    dir: PathBuf,
    reader: Reader,
    out: Tail,
    err: Tail,
    heard: Heard,
    kind: AgentKind,
    /// A command that does not speak our own format, as its first byte tells: the rest need not be read.
    plain: bool,
    env: Vec<(String, String)>,
}

struct Heard {
    /// Something was understood.
    any: bool,
    report: TurnReport,
    phases: Phases,
}

impl Heard {
    fn take(&mut self, said: &AgentEvent, at: Time) {
        self.any = true;
        self.report.take(said);
        self.phases.take(said, at);
    }
}

impl Follow {
    /// `env` is the agent's own.
    pub fn new(dir: PathBuf, agent: &AgentSpec, turn: &Turn, env: Vec<(String, String)>) -> Self {
        Self {
            dir,
            reader: Reader::new(agent.kind, turn.resume.is_some()),
            out: Tail::new(Stream::Out),
            err: Tail::new(Stream::Err),
            heard: Heard { any: false, report: TurnReport::default(), phases: Phases::new(turn.started_at) },
            kind: agent.kind,
            plain: false,
            env,
        }
    }

    /// Reads what came since the last time, apart from everybody who must not wait.
    pub async fn catch_up(self) -> Option<Self> {
        let read = |mut follow: Follow| {
            follow.read(clock::now());
            follow
        };
        tokio::task::spawn_blocking(move || read(self)).await.ok()
    }

    /// What the stream shows now; nothing for a command of which only its work and its exit code are looked at.
    pub fn sighting(&self) -> Sighting {
        if !self.speaks() {
            return None;
        }
        let now = clock::now();
        Some((self.heard.phases.phase_liveness(now), now))
    }

    /// Reads to the end and puts the sum into the turn's record.
    pub fn finish(mut self, exit: &mut Exit) {
        let now = exit.ended_at;
        self.read(now);
        let end = ProcessEnd { code: exit.code, signal: exit.signal, now, env: &self.env };
        let heard = &mut self.heard;
        self.reader.end(&end, &mut |said| heard.take(&said, now));
        if !self.speaks() {
            return;
        }
        let mut report = self.heard.report;
        report.gaps = self.heard.phases.gaps().clone();
        exit.report = Some(Box::new(report));
    }

    /// A known CLI always; a command once a record of ours was understood. JSON of its own makes no stream of it.
    fn speaks(&self) -> bool {
        self.kind != AgentKind::Command || self.heard.any
    }

    fn read(&mut self, now: Time) {
        if self.plain {
            return;
        }
        let fresh = self.kind == AgentKind::Command && !self.heard.any;
        let Self { dir, reader, out, err, heard, plain, .. } = self;
        let mut hear = |said: AgentEvent| heard.take(&said, now);
        let mut first = out.is_at_start();
        let read = out.read(dir, &mut |piece| match piece {
            TailChunk::Bytes(bytes) => {
                *plain |= fresh && first && !bytes.starts_with(b"{");
                first = false;
                if !*plain {
                    reader.out(bytes, now, &mut hear);
                }
            }
            TailChunk::Gap => reader.gap(),
        });
        let read = read.and(err.read(dir, &mut |piece| match piece {
            TailChunk::Bytes(bytes) => reader.err(bytes, now, &mut hear),
            TailChunk::Gap => reader.gap_err(),
        }));
        if let Err(e) = read {
            tracing::debug!(dir = %dir.display(), error = %e, "the agent's output cannot be read");
        }
    }
}
