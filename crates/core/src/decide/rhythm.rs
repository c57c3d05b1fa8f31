//! A persona between turns: what a signal does, whether it sleeps, and with what it begins.

use super::Step;
use super::advance::Next;
use crate::action::LoopCommand;
use crate::event::{Event, Outcome};
use crate::ids::Fence;
use crate::op::streams::{KEEP, NewStreamEntry, StreamOp};
use crate::op::{Op, TaskEnd};
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::rhythm::factor::Hold;
use crate::rhythm::inward::Inward;
use crate::rhythm::metabolism::{Channel, TurnOutcome};
use crate::rhythm::next::{Hints, Next as NextLook, next};
use crate::rhythm::row;
use crate::rhythm::signal::{ReplyTo, Signal};
use crate::rhythm::state::{PersonaState, RhythmStep};
use crate::rhythm::wish::WishLine;
use crate::state::Phase;
use crate::watch::SIGNAL;

/// The source of answers.
const ANSWER: &str = "answer";
/// Longest words of an answer, in characters: a stream is no place for a report.
const WORDS_MAX: usize = 2_000;

/// How the turn that just ended left off.
#[derive(Debug, Default)]
pub(super) struct LastTurn {
    /// The agent's last line, if it is a wish.
    pub(super) wish: Option<WishLine>,
    /// Its last words.
    pub(super) words: String,
    /// The work that is kept.
    pub(super) commit: Option<String>,
}

/// What a loop does that has nothing under way.
pub(super) enum Rest {
    /// Nothing until this ends.
    Sleep(Reason),
    /// Its checks run on the present branch, and then it goes on.
    Checks,
    /// It turns inward instead, if the guard permits that now; else it sleeps.
    Inward(Inward, Reason),
    /// It goes on to the guard.
    Works,
}

impl Step<'_> {
    pub(super) fn persona(&self) -> Option<&PersonaState> {
        self.state().persona.as_deref().filter(|_| self.state().is_persona())
    }

    pub(super) fn rhythm(&mut self, step: RhythmStep) {
        self.emit(Event::Rhythm { step: Box::new(step) });
    }

    /// A person wants a persona to look now.
    pub(super) fn summon(&mut self) {
        if self.state().is_persona() {
            self.rhythm(RhythmStep::Summoned { at: self.ctx.now });
        }
    }

    /// Takes a signal once: its row, what it does and its copies are one transaction.
    pub(super) fn take_signal(&mut self, by: &str, signal: &Signal) {
        let Some(spec) = self.state().spec.persona.clone() else { return };
        if self.ctx.persona.known && !planted::is(Bug::RhythmTakesTwice) {
            return;
        }
        let persona = self.state().persona.as_deref().cloned().unwrap_or_default();
        let (effect, copies) = persona.receive(&spec.reflex, signal, self.ctx.now);
        self.out.ops.push(Op::Enqueue(row::row(&self.state().id, signal, effect)));
        self.rhythm(RhythmStep::Received { at: self.ctx.now, key: signal.key(), effect });
        for copy in copies {
            let to = self.ctx.persona.related.iter().find(|(name, _)| *name == copy.to).map(|(_, id)| id.to_string());
            let command = LoopCommand::Signal { signal: Box::new(copy) };
            let body = serde_json::to_string(&command).expect("a command is plain data and always has a JSON form");
            self.out.ops.extend(to.map(|to| Op::Signal { to, by: by.to_owned(), body }));
        }
    }

    /// Whether signals are a reason for the next turn.
    pub(super) fn has_signals(&self) -> bool {
        self.persona().is_some_and(PersonaState::has_signals)
    }

    /// Whether a persona sleeps. Every other loop goes on.
    pub(super) fn rest(&mut self) -> Rest {
        if !self.state().is_persona() {
            return Rest::Works;
        }
        // What was begun is finished first; that is no new look.
        if self.state().task.retry && self.ctx.current_task.is_some() {
            return Rest::Works;
        }
        self.end_work();
        self.notice_work();
        let next = self.next_look();
        if next.at > self.ctx.now {
            return self.sleep();
        }
        let works = self.has_signals() || self.own_work().is_some();
        match &self.state().phase {
            _ if !works => {
                self.rhythm(RhythmStep::Looked { at: self.ctx.now });
                self.sleep()
            }
            // The branch may have moved while it slept.
            Phase::Waiting { reason, .. } if reason.rule == RuleId::Resting => {
                let before = self.state().phase.label();
                self.emit(Event::Woken { by: "its rhythm".to_owned() });
                self.check_again_since(before);
                Rest::Checks
            }
            Phase::New | Phase::Ready | Phase::Waiting { .. } | Phase::Turn(_) | Phase::Ended { .. } => Rest::Works,
        }
    }

    fn sleep(&self) -> Rest {
        let resting = resting(&self.next_look());
        match self.inward_due() {
            Some(inward) => Rest::Inward(inward, resting),
            None => Rest::Sleep(resting),
        }
    }

    /// The work of a look is over.
    pub(super) fn end_work(&mut self) {
        if self.persona().is_none_or(|persona| persona.work.is_none()) {
            return;
        }
        let outcome = match self.state().progress.tries.last().map(|last| &last.outcome) {
            Some(Outcome::AgentFailed { .. } | Outcome::TaskFailed { .. }) => TurnOutcome::Failed,
            _ => TurnOutcome::Good,
        };
        self.answer();
        let wish = match self.last.wish.take() {
            Some(WishLine::Wish(wish)) => Some(wish),
            Some(WishLine::Unreadable(text)) => {
                let text = format!("the agent's last line `<WAKE {text}>` cannot be read and has no effect");
                self.emit(Event::Note { text });
                None
            }
            None => None,
        };
        self.rhythm(RhythmStep::Rested { at: self.ctx.now, outcome, wish });
    }

    /// One entry for each answer that the work owes, in the transaction that ends it.
    fn answer(&mut self) {
        let owed = self.persona().map(|persona| persona.replies.clone()).unwrap_or_default();
        let outcome = self.state().progress.tries.last().map_or("ended", |last| last.outcome.label()).to_owned();
        let words: String = self.last.words.trim().chars().take(WORDS_MAX).collect();
        for ReplyTo { stream, correlation } in owed {
            let parts = [
                ("correlation", Some(correlation)),
                ("outcome", Some(outcome.clone())),
                ("from", Some(self.state().name.clone())),
                ("commit", self.last.commit.clone()),
                ("words", Some(words.clone())),
            ];
            let fields = parts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
            let entry = NewStreamEntry { stream, source: ANSWER.to_owned(), key: None, fields, keep: KEEP };
            self.out.ops.push(Op::Stream(StreamOp::Add(entry)));
        }
    }

    /// Messages and tasks wake like a signal of class medium.
    fn notice_work(&mut self) {
        let asleep = self.persona().is_some_and(|persona| persona.history.pending.is_none());
        if let Some(channel) = self.own_work().filter(|_| asleep) {
            self.rhythm(RhythmStep::Arrived { at: self.ctx.now, channel });
        }
    }

    /// Work besides signals.
    pub(super) fn own_work(&self) -> Option<Channel> {
        match self.ctx.board_task.as_ref().or(self.signalled.as_ref()) {
            Some(task) if task.kind == SIGNAL => Some(Channel::Monitor),
            Some(_) => Some(Channel::Task),
            None if !self.state().people.notes.is_empty() => Some(Channel::Message),
            None => None,
        }
    }

    /// The guard is asked before every start, so no hold counts here.
    pub(super) fn next_look(&self) -> NextLook {
        let (state, no_hold): (_, Option<&Hold>) = (self.state(), None);
        let cadence = state.spec.persona.as_ref().map(|spec| spec.cadence.clone()).unwrap_or_default();
        let history = state.persona.as_ref().map(|persona| persona.history.clone()).unwrap_or_default();
        let hints = Hints { calendar: self.ctx.persona.calendar, hold: no_hold };
        next(&cadence, &history, &hints, self.ctx.now)
    }

    /// The step with which a persona's turn begins; a task that goes on is no new look.
    pub(super) fn begins(&self, next: &Next) -> Option<RhythmStep> {
        let cause = self.persona()?.history.pending.clone();
        let taken = match next {
            Next::Again(_) | Next::Inward(_) => return None,
            Next::Board(_) => &[],
            Next::Own => row::at_once(&self.ctx.persona.waiting),
        };
        let ignored = taken.iter().filter(|waiting| waiting.is_ignored()).count() as u64;
        let signals: Vec<Signal> = taken.iter().map(|waiting| waiting.signal.clone()).collect();
        let plan = self.plan_use(&signals);
        let replies = taken.iter().filter_map(|waiting| waiting.signal.reply_to.clone()).collect();
        Some(RhythmStep::Began { at: self.ctx.now, cause, taken: taken.len() as u64, ignored, plan, replies })
    }

    /// Ends the rows of the signals that the next turn takes; returns how many, and the text that
    /// its task holds. In one transaction with the turn, so a signal is in one prompt.
    pub(super) fn take_rows(&mut self) -> (usize, String) {
        let taken = row::at_once(&self.ctx.persona.waiting).to_vec();
        if taken.is_empty() || !self.state().is_persona() {
            return (0, String::new());
        }
        for waiting in &taken {
            let (task, fence): (_, Fence) = (waiting.row.id.clone(), waiting.row.fence.next());
            let take = Op::Take { task: task.clone(), fence, node: self.ctx.node.clone(), lease: self.ctx.lease };
            let result = "a turn has it".to_owned();
            self.out.ops.extend([take, Op::Finish { task, fence, state: TaskEnd::Done, result }]);
        }
        let signals: Vec<&Signal> = taken.iter().map(|waiting| &waiting.signal).collect();
        let text = serde_json::to_string(&signals).expect("signals are plain data and always have a JSON form");
        (taken.len(), text)
    }
}

pub(super) fn resting(next: &NextLook) -> Reason {
    let reason = Reason::new(RuleId::Resting).until(next.at);
    let reason = next.flag.iter().fold(reason, |reason, flag| reason.with("flag", flag));
    next.topic.iter().fold(reason, |reason, topic| reason.with("topic", topic))
}
