//! Signals that wait for a persona, as rows of the ledger. A row is a task that is never due, so
//! nothing claims it; its id is derived from source and id, so a signal has one row for ever,
//! however often it is delivered.

use std::fmt::Write as _;

use super::signal::Signal;
use super::state::Effect;
use crate::decide::Ready;
use crate::ids::{LoopId, TaskId};
use crate::op::{NewTask, TaskRow, Trust};
use crate::watch::NEVER;

/// Kind of the tasks that hold a signal.
pub const WAITING: &str = "persona-signal";
/// Most signals that one turn takes: they go into one prompt.
pub const TAKEN_AT_ONCE: usize = 100;
/// Most bytes of signals that one turn takes, unless the first alone is larger: a prompt is cut at
/// 100 kB and has to hold more than signals.
pub const TAKEN_MAX_BYTES: usize = 64 * 1024;
/// Behind all other tasks of the loop.
const PRIORITY: i32 = i32::MIN + 1;
/// Behind the signals that are a reason for a turn: a storm of ignored ones must not take the place
/// of these in a prompt.
const IGNORED_PRIORITY: i32 = i32::MIN;

/// A signal that waits, with its row.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingSignal {
    pub row: Ready,
    pub signal: Signal,
}

impl WaitingSignal {
    /// The signal of a row; `None` for any other task.
    pub fn read(row: &TaskRow) -> Option<Self> {
        let signal = (row.task.kind == WAITING).then(|| serde_json::from_str(&row.task.prompt).ok())??;
        Some(Self { row: Ready::from(row), signal })
    }

    /// Whether the signal is no reason for a turn.
    pub fn is_ignored(&self) -> bool {
        self.row.priority == IGNORED_PRIORITY
    }
}

/// The id of a signal's row.
pub fn row_id(owner: &LoopId, signal: &Signal) -> TaskId {
    let mut id = format!("{owner}-signal-");
    for byte in signal.key().bytes() {
        // Ids of tasks stand in commands and paths.
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' {
            id.push(char::from(byte));
        } else {
            write!(id, "_{byte:02x}").expect("writing to a string cannot fail");
        }
    }
    TaskId::new(id)
}

/// The row of a signal that did this.
pub fn row(owner: &LoopId, signal: &Signal, effect: Effect) -> NewTask {
    let by = if signal.from.is_empty() { &signal.source } else { &signal.from };
    NewTask {
        id: row_id(owner, signal),
        owner: Some(owner.clone()),
        kind: WAITING.to_owned(),
        title: format!("{} signal from {by}", signal.class.as_str()),
        prompt: serde_json::to_string(signal).expect("a signal is plain data and always has a JSON form"),
        priority: if effect == Effect::Ignored { IGNORED_PRIORITY } else { PRIORITY },
        deps: Vec::new(),
        author: by.clone(),
        trust: Trust::Agent,
        ready_at: NEVER,
    }
}

/// The signals of a task that a persona made for itself, as its prompt holds them.
pub fn taken_by(task: &NewTask) -> Vec<Signal> {
    serde_json::from_str(&task.prompt).unwrap_or_default()
}

/// As many of these signals, in their order, as one turn takes.
pub fn at_once(waiting: &[WaitingSignal]) -> &[WaitingSignal] {
    let mut bytes = 0;
    let fits = |one: &&WaitingSignal| {
        bytes += one.signal.body.len();
        bytes <= TAKEN_MAX_BYTES
    };
    let fitting = waiting.iter().take(TAKEN_AT_ONCE).take_while(fits).count();
    &waiting[..fitting.max(1).min(waiting.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Fence;
    use crate::rhythm::signal::{BODY_MAX_BYTES, SignalClass};
    use crate::rhythm::tests_support::signal;

    fn waiting(id: usize, body: usize) -> WaitingSignal {
        let signal = Signal { body: "x".repeat(body), ..signal(&id.to_string(), SignalClass::Low) };
        let id = row_id(&LoopId::new("k3f9"), &signal);
        WaitingSignal { row: Ready { id, fence: Fence(0), kind: WAITING.to_owned(), priority: PRIORITY }, signal }
    }

    #[test]
    fn two_signals_never_share_a_row() {
        let owner = LoopId::new("k3f9");
        let at = |source: &str, id: &str| {
            let signal = Signal { source: source.to_owned(), ..signal(id, SignalClass::Low) };
            row_id(&owner, &signal).to_string()
        };
        assert_eq!(at("cli", "deploy-1"), "k3f9-signal-cli_2fdeploy-1");
        for (a, b) in [(("a", "b_2fc"), ("a", "b/c")), (("a", "ä"), ("a", "a")), (("a_2fb", "c"), ("a/b", "c"))] {
            assert_ne!(at(a.0, a.1), at(b.0, b.1));
        }
    }

    #[test]
    fn what_is_ignored_stands_behind_the_rest() {
        let owner = LoopId::new("k3f9");
        let priority = |effect| row(&owner, &signal("1", SignalClass::High), effect).priority;
        assert!(priority(Effect::Ignored) < priority(Effect::Faint));
        assert_eq!(priority(Effect::Faint), priority(Effect::Wakes { class: SignalClass::High }));
    }

    #[test]
    fn one_turn_takes_what_a_prompt_can_hold() {
        let many: Vec<WaitingSignal> = (0..250).map(|n| waiting(n, 10)).collect();
        assert_eq!(at_once(&many).len(), TAKEN_AT_ONCE);
        let large: Vec<WaitingSignal> = (0..5).map(|n| waiting(n, BODY_MAX_BYTES)).collect();
        assert_eq!(at_once(&large).len(), 2);
        assert_eq!(at_once(&large[..1]).len(), 1);
        assert!(at_once(&[]).is_empty());
    }
}
