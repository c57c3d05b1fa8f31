//! Follows the output of an agent's CLI: for liveness while it works, for the turn's record in the
//! end.

use std::path::PathBuf;
use std::time::Duration;

use everloop_agents::agent::{ProcessEnd, Reader};
use everloop_agents::clock;
use everloop_agents::job::{Stream, Tail, TailChunk};
use everloop_core::event::Exit;
use everloop_core::marker;
use everloop_core::phase::{PhaseLiveness, Phases};
use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::state::{LoopState, Turn};
use everloop_core::stream::{AgentEvent, TurnReport};
use everloop_core::time::Time;

/// A turn's prompt in the turn's folder.
pub(super) const PROMPT_FILE: &str = "prompt.md";

/// The liveness of a stream at a time.
pub(super) type Sighting = Option<(PhaseLiveness, Time)>;

/// The agent of a turn.
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
    /// A command without our own format, known by its first byte: the rest need not be read.
    plain: bool,
    env: Vec<(String, String)>,
}

struct Heard {
    /// Whether a record was understood.
    any: bool,
    report: TurnReport,
    phases: Phases,
    /// The delay that the agent's latest words request.
    delay: Option<Duration>,
}

impl Heard {
    fn take(&mut self, said: &AgentEvent, at: Time) {
        self.any = true;
        if let AgentEvent::Text { text } | AgentEvent::Result { text, .. } = said
            && !text.is_empty()
        {
            self.delay = marker::last(text);
        }
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
            heard: Heard {
                any: false,
                report: TurnReport::default(),
                phases: Phases::new(turn.started_at),
                delay: None,
            },
            kind: agent.kind,
            plain: false,
            env,
        }
    }

    /// Reads what came since the last time, on a blocking thread.
    pub async fn catch_up(self) -> Option<Self> {
        let read = |mut follow: Follow| {
            follow.read(clock::now());
            follow
        };
        tokio::task::spawn_blocking(move || read(self)).await.ok()
    }

    /// The stream's current liveness; none for a command that is judged by its work and its exit
    /// code only.
    pub fn sighting(&self) -> Sighting {
        if !self.speaks() {
            return None;
        }
        let now = clock::now();
        Some((self.heard.phases.phase_liveness(now), now))
    }

    /// Reads to the end and puts the sum into the turn's record.
    pub fn finish(mut self, exit: &mut Exit) {
        let prompt = std::fs::read_to_string(self.dir.join(PROMPT_FILE)).unwrap_or_default();
        let asked = exit.backoff_ms.map(Duration::from_millis);
        exit.backoff_ms = asked.filter(|delay| !marker::quotes(&prompt, *delay)).and(exit.backoff_ms);
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
        // Of a CLI's records only the agent's last words count, never what its tools printed.
        let asked = self.heard.delay.filter(|delay| !marker::quotes(&prompt, *delay));
        exit.backoff_ms = asked.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        exit.report = Some(Box::new(report));
    }

    /// A known CLI always; a command once one of our records was understood. Other JSON does not
    /// count.
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
            tracing::debug!(dir = %dir.display(), error = %e, "cannot read the agent's output");
        }
    }
}
