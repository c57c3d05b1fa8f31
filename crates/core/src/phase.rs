//! Phases of an agent with a stream: what it is busy with, for how long, and how long that usually
//! takes; whether it is slow, stuck or spinning.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::{PhaseLimit, PhaseLimits};
use crate::stream::AgentEvent;
use crate::time::Time;

/// The same call this often in a row is no work any more.
const SAME_CALL: u32 = 5;
/// The same error this often in a row neither.
const SAME_ERROR: u32 = 3;
/// Maximum number of remembered open calls; a stream that opens more without closing any is broken.
const OPEN: usize = 64;
/// Minimum number of gaps from which on learned limits apply.
const ENOUGH: u32 = 50;
/// A histogram with more entries is halved, so that it follows changes.
const PLENTY: u32 = 2_000;
/// Buckets of a histogram: powers of two of milliseconds, the last one is about nine hours.
const BUCKETS: usize = 26;

/// Phase of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// No record was read yet.
    #[default]
    Starting,
    /// The model thinks or writes.
    Model,
    /// A tool runs.
    Tool,
    /// A subagent is at work.
    Subagent,
    /// The CLI announced the retry of a request.
    Retry,
    /// It waits for a person.
    Asking,
    /// The final record was read.
    AfterResult,
    /// The final record was read, and tasks of the agent still run in the background.
    Background,
}

impl Doing {
    /// Clause after "it is" for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Doing::Starting => "starting",
            Doing::Model => "waiting for the model",
            Doing::Tool => "running a tool",
            Doing::Subagent => "waiting for a subagent",
            Doing::Retry => "waiting to try a request again",
            Doing::Asking => "waiting for a person",
            Doing::AfterResult => "finished and has not ended",
            Doing::Background => "waiting for its background tasks",
        }
    }
}

/// Summary of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseLiveness {
    pub doing: Doing,
    /// Time since the latest record.
    #[serde(with = "crate::time::millis")]
    pub quiet: Duration,
    /// The open tool's own limit, or the announced delay of a retry, in milliseconds.
    pub allowed_ms: Option<u64>,
    /// The retry under way has a limit of the vendor as its announced cause.
    #[serde(default)]
    pub limited: bool,
    /// The same call or error repeats.
    pub spinning: bool,
    /// Number of records with text or tool calls of the model.
    pub said: u64,
    /// Time with such records but without a change of the workspace; see [`Barren`].
    #[serde(with = "crate::time::millis")]
    pub barren: Duration,
}

/// Follows a stream.
#[derive(Clone, Debug)]
pub struct Phases {
    doing: Doing,
    since: Time,
    open: BTreeMap<String, Open>,
    retry_ms: Option<u64>,
    limited: bool,
    background: u32,
    last_call: (u64, u32),
    last_error: (u64, u32),
    said: u64,
    gaps: Gaps,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    timeout_ms: Option<u64>,
    subagent: bool,
}

impl Phases {
    /// A stream that begins now.
    pub fn new(at: Time) -> Self {
        Self {
            doing: Doing::Starting,
            since: at,
            open: BTreeMap::new(),
            retry_ms: None,
            limited: false,
            background: 0,
            last_call: (0, 0),
            last_error: (0, 0),
            said: 0,
            gaps: Gaps::default(),
        }
    }

    /// Processes a record.
    pub fn take(&mut self, said: &AgentEvent, at: Time) {
        self.gaps.add(self.doing, at.since(self.since));
        self.since = at;
        self.retry_ms = None;
        self.limited = false;
        // Text and tool calls use tokens, also where the CLI counts them only at the end.
        let speaks = matches!(
            said,
            AgentEvent::Text { .. } | AgentEvent::ToolStarted { .. } | AgentEvent::Used(_) | AgentEvent::UsedInAll(_)
        );
        self.said += u64::from(speaks);
        match said {
            AgentEvent::ToolStarted { id, fingerprint, timeout_ms, subagent, .. } => {
                self.last_call = counted(self.last_call, *fingerprint);
                if self.open.len() < OPEN {
                    self.open.insert(id.clone(), Open { timeout_ms: *timeout_ms, subagent: *subagent });
                }
            }
            AgentEvent::ToolEnded { id, error, .. } => {
                self.open.remove(id);
                self.last_error = error.map_or((0, 0), |e| counted(self.last_error, e));
            }
            AgentEvent::Retrying { delay_ms, class, .. } => {
                self.retry_ms = Some(delay_ms.unwrap_or(0));
                self.limited = class.is_some_and(super::stream::LimitClass::holds_account);
            }
            AgentEvent::Result { .. } => self.open.clear(),
            AgentEvent::Background { running } => self.background = *running,
            _ => {}
        }
        self.doing = match said {
            AgentEvent::Result { .. } if self.background > 0 => Doing::Background,
            AgentEvent::Result { .. } => Doing::AfterResult,
            // Once they are over, the CLI calls the model again.
            AgentEvent::Background { running: 0 } if self.doing == Doing::Background => Doing::Model,
            _ if self.doing == Doing::Background && !resumes(said) => Doing::Background,
            // Usage and quotas may follow the final record.
            AgentEvent::Used(_)
            | AgentEvent::UsedInAll(_)
            | AgentEvent::Quota(_)
            | AgentEvent::Context { .. }
            | AgentEvent::Unknown
                if self.doing == Doing::AfterResult =>
            {
                Doing::AfterResult
            }
            AgentEvent::Asking { .. } => Doing::Asking,
            AgentEvent::Retrying { .. } => Doing::Retry,
            _ if self.open.values().any(|o| o.subagent) => Doing::Subagent,
            _ if !self.open.is_empty() => Doing::Tool,
            _ => Doing::Model,
        };
    }

    /// Summary at `now`.
    pub fn phase_liveness(&self, now: Time) -> PhaseLiveness {
        let allowed_ms = match self.doing {
            Doing::Retry => self.retry_ms,
            Doing::Tool => self.open.values().map(|o| o.timeout_ms).max().flatten(),
            _ => None,
        };
        let spinning = self.last_call.1 >= SAME_CALL || self.last_error.1 >= SAME_ERROR;
        let (quiet, said) = (now.since(self.since), self.said);
        PhaseLiveness {
            doing: self.doing,
            quiet,
            allowed_ms,
            limited: self.limited,
            spinning,
            said,
            barren: Duration::ZERO,
        }
    }

    /// Lengths of the gaps, for the next turns.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }
}

/// Whether a record shows that the agent works again after its result.
fn resumes(said: &AgentEvent) -> bool {
    matches!(
        said,
        AgentEvent::Text { .. }
            | AgentEvent::ToolStarted { .. }
            | AgentEvent::Retrying { .. }
            | AgentEvent::Asking { .. }
            | AgentEvent::Session { .. }
    )
}

fn counted((known, times): (u64, u32), new: u64) -> (u64, u32) {
    if known == new { (new, times.saturating_add(1)) } else { (new, 1) }
}

/// Activity without a change: for how long an agent has produced output while its workspace stayed
/// the same. The time between two samples counts when there was output in it; a long tool that runs
/// by itself does not.
#[derive(Clone, Debug)]
pub struct Barren {
    sign: Option<u64>,
    said: u64,
    looked: Time,
    every: Duration,
    total: Duration,
}

impl Barren {
    /// A turn that begins now and is sampled about this often.
    pub fn new(every: Duration, now: Time) -> Self {
        Self { sign: None, said: 0, looked: now, every, total: Duration::ZERO }
    }

    /// Records the workspace, as a number that differs after every change; `None`: it cannot be
    /// known. Returns the time of activity without a change.
    pub fn look(&mut self, sign: Option<u64>, said: u64, now: Time) -> Duration {
        let same = sign.is_some() && sign == self.sign;
        let spoke = said > self.said;
        // A sample that comes much later is the supervisor's own delay: the node slept.
        let since = now.since(self.looked).min(self.every * 2);
        self.total = match (same, spoke) {
            (false, _) => Duration::ZERO,
            (true, true) => self.total + since,
            (true, false) => self.total,
        };
        (self.sign, self.said, self.looked) = (sign, said, now);
        self.total
    }

    /// Time of activity without a change at the latest sample.
    pub fn total(&self) -> Duration {
        self.total
    }
}

/// Usual gaps between records, by phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gaps(BTreeMap<Doing, Vec<u32>>);

impl Gaps {
    /// Whether nothing was learned yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, doing: Doing, gap: Duration) {
        let ms = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - ms.leading_zeros()) as usize;
        let row = self.0.entry(doing).or_insert_with(|| vec![0; BUCKETS]);
        // A stored row that is too short must not cause a panic.
        if let Some(count) = row.get_mut(bucket.min(BUCKETS - 1)) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds the gaps of another turn.
    pub fn learn(&mut self, other: &Gaps) {
        for (doing, counts) in &other.0 {
            let row = self.0.entry(*doing).or_insert_with(|| vec![0; BUCKETS]);
            for (known, new) in row.iter_mut().zip(counts) {
                *known = known.saturating_add(*new);
            }
            while row.iter().fold(0_u32, |sum, n| sum.saturating_add(*n)) > PLENTY {
                for count in row.iter_mut() {
                    *count /= 2;
                }
            }
        }
    }

    /// A gap that 99 of 100 do not exceed; `None` before there are enough.
    fn p99(&self, doing: Doing) -> Option<Duration> {
        let row = self.0.get(&doing)?;
        let all = row.iter().fold(0_u32, |sum, n| sum.saturating_add(*n));
        if all < ENOUGH {
            return None;
        }
        let mut left = all / 100;
        for (bucket, count) in row.iter().enumerate().rev() {
            if *count > left {
                return Some(Duration::from_millis(1_u64 << bucket));
            }
            left -= count;
        }
        None
    }

    /// The limits for a pulse: the configured ones, moved by what was learned, at most threefold.
    pub fn limit(&self, phase_liveness: &PhaseLiveness, limits: &PhaseLimits) -> Option<PhaseLimit> {
        let plain = match phase_liveness.doing {
            Doing::Starting => limits.starting,
            Doing::Model => limits.model,
            Doing::Tool => match phase_liveness.allowed_ms.map(Duration::from_millis) {
                Some(own) => return Some(PhaseLimit { soft: own + TOOL_GRACE, hard: own * 2 + TOOL_GRACE }),
                None => limits.tool,
            },
            Doing::Subagent => limits.subagent,
            Doing::Retry => {
                let delay = Duration::from_millis(phase_liveness.allowed_ms.unwrap_or(0));
                return Some(PhaseLimit { soft: delay + RETRY_GRACE, hard: delay + RETRY_GRACE * 2 });
            }
            Doing::Asking => return None,
            Doing::AfterResult => limits.after_result,
            Doing::Background => return Some(PhaseLimit { soft: limits.background, hard: limits.background }),
        };
        let Some(p99) = self.p99(phase_liveness.doing) else { return Some(plain) };
        let near = |learned: Duration, plain: Duration| learned.clamp(plain / 3, plain * 3);
        match phase_liveness.doing {
            // This limit is configured, not learned.
            Doing::AfterResult => Some(plain),
            _ => Some(PhaseLimit { soft: near(p99 * 3, plain.soft), hard: near(p99 * 10, plain.hard) }),
        }
    }
}

/// Time that a tool may take beyond its own limit.
const TOOL_GRACE: Duration = Duration::from_secs(60);
/// Time that a retry may take beyond the announced delay.
const RETRY_GRACE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time(0) + Duration::from_secs(secs)
    }

    fn call(id: &str, fingerprint: u64) -> AgentEvent {
        let name = "Bash".to_owned();
        AgentEvent::ToolStarted {
            id: id.to_owned(),
            name,
            fingerprint,
            timeout_ms: None,
            subagent: false,
            input: String::new(),
        }
    }

    fn done(id: &str, error: Option<u64>) -> AgentEvent {
        AgentEvent::ToolEnded { id: id.to_owned(), error, output: String::new() }
    }

    fn words() -> AgentEvent {
        AgentEvent::Text { text: "x".to_owned() }
    }

    #[test]
    fn phases_follow_the_stream() {
        let mut phases = Phases::new(at(0));
        assert_eq!(phases.phase_liveness(at(9)).doing, Doing::Starting);
        let story = [
            (AgentEvent::Session { id: "s".to_owned(), model: None }, Doing::Model),
            (call("1", 1), Doing::Tool),
            (call("2", 2), Doing::Tool),
            (done("1", None), Doing::Tool),
            (done("2", None), Doing::Model),
            (
                AgentEvent::Retrying { attempt: 1, delay_ms: Some(500), class: None, until: None, text: String::new() },
                Doing::Retry,
            ),
            (words(), Doing::Model),
            (AgentEvent::Result { ok: true, text: String::new() }, Doing::AfterResult),
            (AgentEvent::Unknown, Doing::AfterResult),
        ];
        for (n, (said, doing)) in story.into_iter().enumerate() {
            phases.take(&said, at(10 + n as u64));
            assert_eq!(phases.phase_liveness(at(10 + n as u64)).doing, doing, "{said:?}");
        }
        assert_eq!(phases.phase_liveness(at(30)).said, 3, "two calls and a text");
    }

    #[test]
    fn background_tasks_are_waited_for_after_the_result() {
        let mut phases = Phases::new(at(0));
        let result = || AgentEvent::Result { ok: true, text: String::new() };
        let story = [
            (AgentEvent::Background { running: 1 }, Doing::Model),
            (words(), Doing::Model),
            (result(), Doing::Background),
            (AgentEvent::Used(crate::stream::Usage::default()), Doing::Background),
            (AgentEvent::Background { running: 0 }, Doing::Model),
            (words(), Doing::Model),
            (result(), Doing::AfterResult),
        ];
        for (n, (said, doing)) in story.into_iter().enumerate() {
            phases.take(&said, at(n as u64));
            assert_eq!(phases.phase_liveness(at(n as u64)).doing, doing, "{said:?}");
        }
        let waits = PhaseLiveness { doing: Doing::Background, ..PhaseLiveness::default() };
        let limit = Gaps::default().limit(&waits, &PhaseLimits::default()).expect("it is bounded");
        assert_eq!((limit.soft, limit.hard), (Duration::from_secs(900), Duration::from_secs(900)));
    }

    #[test]
    fn the_same_again_and_again_is_spinning() {
        let mut phases = Phases::new(at(0));
        for n in 0..4 {
            phases.take(&call(&n.to_string(), 7), at(n));
            phases.take(&done(&n.to_string(), None), at(n));
        }
        assert!(!phases.phase_liveness(at(5)).spinning);
        phases.take(&call("x", 7), at(6));
        assert!(phases.phase_liveness(at(6)).spinning);
        phases.take(&call("y", 8), at(7));
        assert!(!phases.phase_liveness(at(7)).spinning);
        for n in 0..3 {
            phases.take(&done(&format!("e{n}"), Some(3)), at(8 + n));
        }
        assert!(phases.phase_liveness(at(12)).spinning);
    }

    #[test]
    fn talk_without_a_change_is_counted_and_a_change_forgives() {
        let mut barren = Barren::new(Duration::from_secs(300), at(0));
        let mut look = |sign, said, secs: u64| barren.look(sign, said, at(secs)).as_secs();
        assert_eq!(look(Some(1), 1, 5), 0, "nothing is known before the first look");
        assert_eq!(look(Some(1), 2, 305), 300);
        assert_eq!(look(Some(1), 2, 605), 300, "a tool runs without output");
        assert_eq!(look(Some(1), 9, 905), 600);
        assert_eq!(look(Some(1), 10, 9905), 1200, "the node slept for most of it");
        assert_eq!(look(Some(2), 11, 10_205), 0, "a file was changed");
        assert_eq!(look(Some(2), 12, 10_505), 300);
        assert_eq!(look(None, 13, 10_805), 0, "what cannot be seen is not held against it");
        assert_eq!(look(None, 14, 11_105), 0);
    }

    #[test]
    fn limits_are_learned_within_bounds() {
        let limits = PhaseLimits::default();
        let model = PhaseLiveness { doing: Doing::Model, ..PhaseLiveness::default() };
        let mut known = Gaps::default();
        assert_eq!(known.limit(&model, &limits), Some(limits.model));
        let mut phases = Phases::new(at(0));
        for n in 0..100 {
            phases.take(&words(), at(n * 2));
        }
        known.learn(phases.gaps());
        let learned = known.limit(&model, &limits).unwrap();
        assert_eq!(learned, PhaseLimit { soft: limits.model.soft / 3, hard: limits.model.hard / 3 });
        for _ in 0..1000 {
            known.learn(phases.gaps());
        }
        assert!(known.0[&Doing::Model].iter().sum::<u32>() <= PLENTY);
    }
}
