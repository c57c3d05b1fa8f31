//! Rules for an agent's session that everloop did not start: its record, and whether it may stop.
//! The caller parses the CLI's payload and runs the checks.

#![expect(missing_docs, reason = "fields and variants are named after what they hold")]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::LoopId;
use crate::scoreboard::Scoreboard;
use crate::time::Time;

/// Version of the stored record. A newer one is refused, never guessed at.
pub const SESSION_VERSION: u32 = 1;
/// Kind of the documents that hold sessions.
pub const SESSION: &str = "session";
/// Kind of the documents that hold handoffs.
pub const HANDOFF: &str = "handoff";
/// The key of a session's handoff begins with this; all others are those of folders.
pub const OF_SESSION: &str = "session:";
/// For how long records of sessions and handoffs are kept after they were last written. What a
/// folder's next session is to read stays as long as the folder does.
pub const RECORD_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long a verdict on the same tree stays valid: a check may also read things outside of the
/// tree.
const VERDICT_LASTS: Duration = Duration::from_secs(300);

/// Limits for holding a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Holds in a row without any change of the tree.
    pub max_holds: u32,
    /// Holds in all between two prompts of a person.
    pub holds_in_all: u32,
    /// Context fullness in percent at which a handoff is requested.
    pub handoff_at: u32,
}

impl Default for Rules {
    fn default() -> Self {
        // Claude Code itself ends a turn at the ninth block in a row; a handoff needs room to be
        // written in.
        Self { max_holds: 8, holds_in_all: 30, handoff_at: 85 }
    }
}

/// Stored record of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookSession {
    /// Format of this record.
    pub session_version: u32,
    /// CLI of the session: `claude`, `codex`, `gemini`.
    pub agent: String,
    pub dir: String,
    /// Name of the loop that provides the checks.
    pub name: String,
    /// Id of that loop, where the ledger has one.
    pub owner: Option<LoopId>,
    pub started_at: Time,
    /// Time of its latest hook call.
    pub seen_at: Time,
    /// The CLI reported the end of the session.
    pub ended: bool,
    /// Holds in a row without any change of the tree.
    pub holds: u32,
    /// Holds since the last prompt of a person.
    pub holds_in_all: u32,
    /// Latest verdict of the checks.
    pub verdict: Option<SessionVerdict>,
    /// No hold before this time: the vendor does not serve the session.
    pub parked_until: Option<Time>,
    /// Background tasks and timers that the session reported as pending.
    pub pending: Vec<String>,
    pub context_percent: Option<u32>,
    /// A handoff was requested at this fullness.
    pub handoff_asked: bool,
    /// Fingerprints of the loop's messages that were delivered.
    pub told: Vec<u64>,
    /// Fingerprint of the reason that was given with the latest hold.
    #[serde(default)]
    pub reason: Option<u64>,
    /// A stop was refused; whether the session went on shows at its next hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedToGoOn>,
    /// Latest decision and its time.
    #[serde(default)]
    pub last: Option<(Time, SessionAct)>,
}

/// A refused stop that the session did not react to yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedToGoOn {
    pub at: Time,
    /// Holds in a row, with this one.
    pub holds: u32,
    /// Checks that do not pass.
    pub failing: Vec<String>,
}

/// Verdict of the checks on a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionVerdict {
    /// Signature of the tree; `None` when it is too large to be signed.
    pub tree: Option<String>,
    pub at: Time,
    pub board: Scoreboard,
}

/// A session event for the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "snake_case")]
pub enum SessionAct {
    /// The session began or was resumed.
    Began {
        agent: String,
        /// `startup`, `resume`, `compact`.
        source: String,
        dir: String,
    },
    /// A person entered a prompt.
    Prompted {
        /// Capped, without secrets.
        text: String,
    },
    /// A stop was refused, and the session went on.
    Held {
        /// Holds in a row.
        holds: u32,
        /// Checks that do not pass.
        failing: Vec<String>,
    },
    /// A stop was refused, and the session ended all the same.
    NotHeld {
        /// Checks that do not pass.
        failing: Vec<String>,
    },
    /// A stop was allowed.
    LetGo { why: Why },
    /// A tool call was refused.
    Refused { tool: String, path: String, why: String },
    /// A guarded file was lost or cut, and was restored.
    Restored {
        path: String,
        /// Remaining bytes before the restore; `None` when it was gone.
        left_bytes: Option<u64>,
    },
    /// The vendor does not serve the session now.
    Parked {
        /// The vendor's message.
        text: String,
        /// Reset time, where it is known.
        until: Option<Time>,
    },
    /// The state of the work was written down for the next session.
    HandedOff { at: String },
    /// The work shows a sign of completion; the checks decide whether it is complete.
    LooksComplete { rule: String, text: String },
    /// It is over.
    Ended {
        /// Reason that the CLI gave.
        reason: String,
    },
}

/// Why a session may stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Why {
    /// All checks pass.
    Passes,
    /// The session waits for something of its own that will wake it.
    Pending { what: Vec<String> },
    /// The guard or a person holds the loop.
    Guard { what: String },
    /// The vendor does not serve the session.
    Parked { until: Time },
    /// The checks could not be evaluated.
    Unjudged { why: String },
    /// The maximum number of holds is reached; a person has to look.
    Cap {
        /// Number of holds so far.
        holds: u32,
    },
}

/// Facts at the moment in which a session wants to stop.
#[derive(Clone, Debug, Default)]
pub struct StopRequest<'a> {
    /// Signature of the present tree.
    pub tree: Option<String>,
    /// What holds the loop.
    pub guard: Option<String>,
    pub pending: &'a [String],
    /// The session was held before and has continued since.
    pub again: bool,
}

/// Decision about a session that wants to stop.
#[derive(Clone, Debug, PartialEq)]
pub enum StopDecision {
    /// Run the checks and pass their result to [`HookSession::judged`].
    Ask,
    /// The session must continue.
    Hold,
    /// The session may stop.
    LetGo(Why),
}

impl HookSession {
    /// Decides as far as possible without running anything.
    pub fn wants_to_stop(&mut self, stop: &StopRequest<'_>, rules: &Rules, now: Time) -> StopDecision {
        self.pending = stop.pending.to_vec();
        if !stop.again {
            self.holds = 0;
        }
        if !stop.pending.is_empty() {
            return StopDecision::LetGo(Why::Pending { what: stop.pending.to_vec() });
        }
        if let Some(what) = &stop.guard {
            return StopDecision::LetGo(Why::Guard { what: what.clone() });
        }
        if let Some(until) = self.parked_until.filter(|until| *until > now) {
            return StopDecision::LetGo(Why::Parked { until });
        }
        self.parked_until = None;
        let same = stop.tree.is_some() && self.verdict.as_ref().is_some_and(|v| v.tree == stop.tree);
        if !same && self.verdict.as_ref().is_some_and(|v| v.tree.is_some()) {
            // Something was done since: a stop on another tree starts the count anew.
            self.holds = 0;
        }
        match &self.verdict {
            Some(v) if same && now.since(v.at) < VERDICT_LASTS => self.weigh(v.board.all_pass(), rules),
            _ => StopDecision::Ask,
        }
    }

    /// Decides after the checks have run. `tree` is signed after them, since checks may write files
    /// of their own.
    pub fn judged(&mut self, board: Scoreboard, tree: Option<String>, rules: &Rules, now: Time) -> StopDecision {
        let passes = board.all_pass();
        self.verdict = Some(SessionVerdict { tree, at: now, board });
        self.weigh(passes, rules)
    }

    fn weigh(&mut self, passes: bool, rules: &Rules) -> StopDecision {
        if passes {
            self.holds = 0;
            return StopDecision::LetGo(Why::Passes);
        }
        if self.holds >= rules.max_holds || self.holds_in_all >= rules.holds_in_all {
            let holds = self.holds_in_all;
            self.holds = 0;
            return StopDecision::LetGo(Why::Cap { holds });
        }
        self.holds += 1;
        self.holds_in_all += 1;
        StopDecision::Hold
    }

    /// Records a refused stop and its reason.
    pub fn ask_to_go_on(&mut self, failing: Vec<String>, reason: &str, now: Time) {
        self.reason = Some(words(reason));
        self.asked = Some(AskedToGoOn { at: now, holds: self.holds, failing });
    }

    /// The session shows a sign of life after a refused stop: only now it was held.
    pub fn went_on(&mut self, now: Time) -> Option<SessionAct> {
        let AskedToGoOn { holds, failing, .. } = self.asked.take()?;
        let held = SessionAct::Held { holds, failing };
        self.last = Some((now, held.clone()));
        Some(held)
    }

    /// The session ended after a refused stop, or waits for its next prompt.
    pub fn did_not_go_on(&mut self, now: Time) -> Option<SessionAct> {
        let AskedToGoOn { failing, .. } = self.asked.take()?;
        let not_held = SessionAct::NotHeld { failing };
        self.last = Some((now, not_held.clone()));
        Some(not_held)
    }

    /// Whether a prompt only repeats the reason of the latest hold: Gemini reports both to its
    /// hooks in the same way.
    pub fn echoes(&self, prompt: &str) -> bool {
        self.reason == Some(words(prompt))
    }

    /// A person entered a prompt: all counts start anew.
    pub fn prompted(&mut self) {
        self.holds = 0;
        self.holds_in_all = 0;
        self.parked_until = None;
        self.ended = false;
    }

    /// Records the fullness of the context; true when a handoff must be requested, once per
    /// filling.
    pub fn fills(&mut self, percent: Option<u32>, rules: &Rules) -> bool {
        let Some(percent) = percent else { return false };
        self.context_percent = Some(percent);
        let full = percent >= rules.handoff_at;
        let ask = full && !self.handoff_asked;
        self.handoff_asked = full;
        ask
    }

    /// The messages that were not delivered yet; marks them as delivered.
    pub fn untold<'a>(&mut self, notes: &'a [String]) -> Vec<&'a str> {
        let new: Vec<&str> =
            notes.iter().filter(|n| !self.told.contains(&fingerprint(n))).map(String::as_str).collect();
        self.told = notes.iter().map(|n| fingerprint(n)).collect();
        new
    }
}

/// Fingerprint that ignores how lines are broken.
fn words(text: &str) -> u64 {
    fingerprint(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn fingerprint(text: &str) -> u64 {
    u64::from(crc32fast::hash(text.as_bytes()))
}

/// Notes that one session leaves for the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handoff {
    /// Format of this record.
    pub handoff_version: u32,
    pub session: String,
    pub at: Time,
    /// Text of the notes; data.
    pub text: String,
    /// Written by the agent itself; otherwise collected from outside.
    pub by_agent: bool,
}

/// How much a guarded file may shrink at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrink {
    /// Percent of its bytes.
    pub percent: u32,
}

impl Shrink {
    /// In smaller files every edit changes a large share, so only their removal counts.
    const SMALL_BYTES: u64 = 200;

    /// Whether a guarded file lost too much: it had `before` bytes and has `after` (`None`: it is
    /// gone).
    pub fn is_too_much(self, before: u64, after: Option<u64>) -> bool {
        match after {
            None => true,
            Some(0) => before > 0,
            Some(after) if before < Self::SMALL_BYTES || after >= before => false,
            Some(after) => (before - after) * 100 > before * u64::from(self.percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scoreboard::{CheckResult, Verdict};

    const NOW: Time = Time(1_000_000);

    fn board(passes: bool) -> Scoreboard {
        let verdict = if passes { Verdict::Pass } else { Verdict::Fail };
        let row = CheckResult {
            name: "a".into(),
            verdict,
            weight: 1,
            millis: 1,
            output: String::new(),
            fingerprint: 0,
            reference: None,
        };
        Scoreboard(vec![row])
    }

    fn stop(tree: &str, again: bool) -> StopRequest<'static> {
        StopRequest { tree: Some(tree.into()), again, ..StopRequest::default() }
    }

    #[test]
    fn it_is_held_until_the_checks_pass_and_the_same_tree_is_not_judged_twice() {
        let (mut session, rules) = (HookSession::default(), Rules::default());
        assert_eq!(session.wants_to_stop(&stop("t1", false), &rules, NOW), StopDecision::Ask);
        assert_eq!(session.judged(board(false), Some("t2".into()), &rules, NOW), StopDecision::Hold);
        assert_eq!(session.wants_to_stop(&stop("t2", true), &rules, NOW), StopDecision::Hold);
        assert_eq!(session.holds, 2);
        assert_eq!(session.wants_to_stop(&stop("t3", true), &rules, NOW), StopDecision::Ask);
        assert_eq!(session.holds, 0, "something was done");
        assert_eq!(session.judged(board(true), None, &rules, NOW), StopDecision::LetGo(Why::Passes));
    }

    #[test]
    fn a_verdict_does_not_last_for_ever_and_an_unsigned_tree_has_none() {
        let (mut session, rules) = (HookSession::default(), Rules::default());
        session.judged(board(false), Some("t".into()), &rules, NOW);
        assert_eq!(session.wants_to_stop(&stop("t", true), &rules, NOW + VERDICT_LASTS), StopDecision::Ask);
        session.judged(board(false), None, &rules, NOW);
        let unsigned = StopRequest { again: true, ..StopRequest::default() };
        assert_eq!(session.wants_to_stop(&unsigned, &rules, NOW), StopDecision::Ask);
        assert_eq!(session.holds, 2, "no change of the tree is known");
    }

    #[test]
    fn it_is_never_held_past_a_cap() {
        let (mut session, rules) =
            (HookSession::default(), Rules { max_holds: 2, holds_in_all: 5, ..Rules::default() });
        session.wants_to_stop(&stop("t", false), &rules, NOW);
        assert_eq!(session.judged(board(false), Some("t".into()), &rules, NOW), StopDecision::Hold);
        assert_eq!(session.wants_to_stop(&stop("t", true), &rules, NOW), StopDecision::Hold);
        assert_eq!(session.wants_to_stop(&stop("t", true), &rules, NOW), StopDecision::LetGo(Why::Cap { holds: 2 }));
        for round in 0..3 {
            let tree = format!("t{round}");
            assert_eq!(session.wants_to_stop(&stop(&tree, true), &rules, NOW), StopDecision::Ask);
            assert_eq!(session.judged(board(false), Some(tree), &rules, NOW), StopDecision::Hold);
        }
        assert_eq!(session.wants_to_stop(&stop("t9", true), &rules, NOW), StopDecision::Ask);
        assert_eq!(session.judged(board(false), None, &rules, NOW), StopDecision::LetGo(Why::Cap { holds: 5 }));
        session.prompted();
        assert_eq!(session.judged(board(false), None, &rules, NOW), StopDecision::Hold);
    }

    #[test]
    fn it_was_held_only_if_it_went_on() {
        let (mut session, rules) = (HookSession::default(), Rules::default());
        assert_eq!(session.judged(board(false), None, &rules, NOW), StopDecision::Hold);
        session.ask_to_go_on(vec!["a".into()], "go on", NOW);
        assert_eq!(session.last, None, "nothing is known yet");
        assert_eq!(session.went_on(NOW), Some(SessionAct::Held { holds: 1, failing: vec!["a".into()] }));
        assert_eq!((session.went_on(NOW), session.did_not_go_on(NOW)), (None, None), "it is told once");
        session.ask_to_go_on(vec!["a".into()], "go on", NOW);
        assert_eq!(session.did_not_go_on(NOW), Some(SessionAct::NotHeld { failing: vec!["a".into()] }));
    }

    #[test]
    fn what_waits_or_is_held_may_stop_unasked() {
        let (mut session, rules) = (HookSession::default(), Rules::default());
        let pending = ["build".to_owned()];
        let waits = StopRequest { pending: &pending, ..stop("t", false) };
        assert!(matches!(session.wants_to_stop(&waits, &rules, NOW), StopDecision::LetGo(Why::Pending { .. })));
        assert_eq!(session.pending, pending);
        let held = StopRequest { guard: Some("frozen".into()), ..stop("t", false) };
        assert!(matches!(session.wants_to_stop(&held, &rules, NOW), StopDecision::LetGo(Why::Guard { .. })));
        session.parked_until = Some(Time(NOW.0 + 1));
        assert!(matches!(
            session.wants_to_stop(&stop("t", false), &rules, NOW),
            StopDecision::LetGo(Why::Parked { .. })
        ));
        assert_eq!(session.wants_to_stop(&stop("t", false), &rules, Time(NOW.0 + 1)), StopDecision::Ask);
    }

    #[test]
    fn its_own_reason_is_no_word_of_a_person() {
        let mut session = HookSession::default();
        assert!(!session.echoes("") && !session.echoes("go on"));
        session.ask_to_go_on(Vec::new(), "everloop: not yet\n> it fails\n", NOW);
        assert!(session.echoes("everloop: not yet\r\n> it fails") && !session.echoes("everloop: not yet"));
    }

    #[test]
    fn a_handoff_is_asked_for_once_per_filling() {
        let (mut session, rules) = (HookSession::default(), Rules::default());
        let asks: Vec<bool> =
            [None, Some(84), Some(85), Some(99), Some(20), Some(90)].map(|p| session.fills(p, &rules)).into();
        assert_eq!(asks, [false, false, true, false, false, true]);
    }

    #[test]
    fn a_message_is_told_once() {
        let mut session = HookSession::default();
        let notes = ["a".to_owned(), "b".to_owned()];
        assert_eq!(session.untold(&notes[..1]), ["a"]);
        assert_eq!(session.untold(&notes), ["b"]);
        assert_eq!(session.untold(&notes), [""; 0]);
    }

    #[test]
    fn a_guarded_file_may_grow_and_be_trimmed_but_not_be_gutted() {
        let third = Shrink { percent: 30 };
        for (before, after, too_much) in [
            (1000, Some(1200), false),
            (1000, Some(700), false),
            (1000, Some(699), true),
            (1000, None, true),
            (150, Some(10), false),
            (150, Some(0), true),
            (0, Some(0), false),
            (u64::from(u32::MAX), Some(1), true),
        ] {
            assert_eq!(third.is_too_much(before, after), too_much, "{before} {after:?}");
        }
    }
}
