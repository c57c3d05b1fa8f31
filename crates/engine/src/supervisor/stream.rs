//! Follows the output of an agent's CLI: for liveness while it works, for the turn's record in the
//! end.

use std::path::PathBuf;
use std::time::Duration;

use everloop_agents::agent::{ProcessEnd, Reader, Unsaid};
use everloop_agents::clock;
use everloop_agents::job::{Stream, Tail, TailChunk};
use everloop_agents::prices;
use everloop_core::event::Exit;
use everloop_core::marker;
use everloop_core::phase::{PhaseLiveness, Phases};
use everloop_core::prices::dollars;
use everloop_core::rhythm::wish;
use everloop_core::spec::{AgentKind, AgentSpec};
use everloop_core::state::{LoopState, Turn};
use everloop_core::stream::{AgentEvent, TurnReport, Usage};
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
    /// Plain text is read, too: its last words may be a limit.
    searched: bool,
    /// A command without our own format, known by its first byte: the rest need not be read.
    plain: bool,
    unsaid: Unsaid,
    agent: AgentSpec,
    env: Vec<(String, String)>,
}

/// What a turn may use, as decided when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cap {
    pub tokens: Option<u64>,
    pub microusd: Option<u64>,
}

impl Cap {
    /// The rest of the loop's budget, and of that of its dreams in a dream, if it has one.
    pub fn of(state: &LoopState) -> Option<Self> {
        let (budget, spent) = (&state.spec.guard.budget, &state.spend.spent);
        let tokens = budget.tokens.map(|all| all.saturating_sub(spent.tokens));
        let microusd = budget.microusd.map(|all| all.saturating_sub(spent.microusd));
        let microusd = [microusd, state.dream_left()].into_iter().flatten().min();
        (tokens.is_some() || microusd.is_some()).then_some(Self { tokens, microusd })
    }
}

/// Whether usage is counted while the turn runs, which may need files of the CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    Now,
    AtTheEnd,
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
            reader: Reader::for_agent(agent, turn.resume.is_some()),
            out: Tail::new(Stream::Out),
            err: Tail::new(Stream::Err),
            heard: Heard {
                any: false,
                report: TurnReport::default(),
                phases: Phases::new(turn.started_at),
                delay: None,
            },
            kind: agent.stream_kind(),
            searched: !agent.limit_rules.is_empty(),
            plain: false,
            unsaid: Unsaid::default(),
            agent: agent.clone(),
            env,
        }
    }

    /// Reads what came since the last time, on a blocking thread.
    pub async fn catch_up(self, counting: Counting) -> Option<Self> {
        let read = move |mut follow: Follow| {
            let now = clock::now();
            follow.read(now);
            if counting == Counting::Now {
                follow.unsaid = follow.reader.unsaid(now, &follow.env);
            }
            follow
        };
        tokio::task::spawn_blocking(move || read(self)).await.ok()
    }

    /// Whether the turn has used up a cap, as of the last time that it was counted.
    pub fn is_over(&self, cap: &Cap) -> bool {
        let used = self.heard.report.used;
        let tokens = used.plus(self.unsaid.used).tokens();
        let over = |most: Option<u64>, spent: u64| most.is_some_and(|most| spent >= most);
        over(cap.tokens, tokens) || (cap.microusd.is_some() && over(cap.microusd, self.spent_microusd()))
    }

    /// Dollars so far, in millionths. A CLI with a cap of its own reports them exactly, so nothing is
    /// estimated for it.
    fn spent_microusd(&self) -> u64 {
        let model = self.heard.report.model.as_deref().or(self.unsaid.model.as_deref());
        let estimates = self.kind != AgentKind::Claude || self.agent.kind == AgentKind::Command;
        let rates = prices::rates(&self.agent, model).filter(|rates| estimates || rates.as_of.is_none());
        let cost = |used: &Usage| dollars(used, rates.as_ref()).map_or(0, |d| d.microusd);
        cost(&self.heard.report.used).saturating_add(cost(&self.unsaid.used))
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
            exit.wish = wish::find(exit.last_words(), &prompt);
            return;
        }
        let mut report = self.heard.report;
        report.gaps = self.heard.phases.gaps().clone();
        report.model = report.model.or_else(|| self.agent.model.clone());
        report.rates = prices::rates(&self.agent, report.model.as_deref());
        // Of a CLI's records only the agent's last words count, never what its tools printed.
        let asked = self.heard.delay.filter(|delay| !marker::quotes(&prompt, *delay));
        exit.backoff_ms = asked.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        exit.report = Some(Box::new(report));
        exit.wish = wish::find(exit.last_words(), &prompt);
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
        let fresh = self.kind == AgentKind::Command && !self.heard.any && !self.searched;
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
