//! Beats and the keepalive: what a monitor's probe means, when a loop is parked, and that exactly
//! one keepalive is open.

use super::{Ready, Step};
use crate::action::Action;
use crate::event::Event;
use crate::ids::{Fence, LoopId, TaskId};
use crate::op::{NewTask, Op, TaskEnd, Trust};
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::spec::WorkspaceMode;
use crate::state::Phase;
use crate::watch::{
    self, BLIND, Blind, CHANGE_MAX_CHARS, PARKED, SIGNAL, SUMMARY_MAX_CHARS, WATCHING, WatchReading, WatchedContent,
};

impl Step<'_> {
    /// Handles the probes of some monitors; `empty` counts the beats in a row without news, this
    /// one included.
    pub(super) fn beat(&mut self, looks: &[WatchReading], empty: u32) {
        if matches!(self.state().phase, Phase::Ended { .. }) {
            return;
        }
        let before = self.state().phase.label();
        for look in looks {
            match &look.found {
                Ok(found) => self.take_look(look, found),
                Err(blind) => self.is_blind(&look.monitor, blind),
            }
        }
        let after = self.state().spec.watch.park_after;
        self.in_vain = (after > 0 && empty >= after).then_some(empty);
        self.check_again_since(before);
        self.tick();
    }

    /// Runs the checks of a loop that was satisfied and has to check again. A caller that only
    /// delivers a message leaves that to the next supervisor, which finds the loop in the same
    /// phase.
    pub(super) fn check_again_since(&mut self, before: &str) {
        if self.state().phase == Phase::New && before != Phase::New.label() && !self.ctx.draining {
            self.act(Action::Baseline);
        }
    }

    fn take_look(&mut self, look: &WatchReading, found: &WatchedContent) {
        self.close_ticket(&self.blind_key(&look.monitor), "it sees again");
        let known = self.state().watch.seen.get(&look.monitor).map(|seen| &seen.cursor);
        // The loop was changed, or this probe was handled before: it is not newer than what is
        // known.
        if known != look.from.as_ref() || !look.is_news() {
            return;
        }
        let Some(monitor) = self.state().spec.watch.get(&look.monitor).cloned() else { return };
        let first = look.from.is_none();
        let task = (!first).then(|| signal_id(&self.state().id, self.state().watch.signals + 1));
        if let Some(id) = &task {
            let ready_at = self.ctx.now;
            self.out.ops.push(Op::Enqueue(NewTask {
                id: id.clone(),
                owner: Some(self.state().id.clone()),
                kind: SIGNAL.to_owned(),
                title: monitor.title(),
                prompt: cut(&found.text, CHANGE_MAX_CHARS),
                priority: 0,
                deps: Vec::new(),
                author: format!("monitor {}", monitor.name),
                // The monitored source may have untrusted writers: its content is never an
                // instruction.
                trust: Trust::Agent,
                ready_at,
            }));
            let new = Ready { id: id.clone(), fence: Fence(0), kind: SIGNAL.to_owned(), priority: 0 };
            self.signalled.get_or_insert(new);
            self.renew = Some(format!("signal of {}", monitor.name));
        }
        let (monitor, cursor) = (monitor.name, cut(&found.cursor, SUMMARY_MAX_CHARS));
        let what = if first { String::new() } else { cut(&found.summary, SUMMARY_MAX_CHARS) };
        self.emit(Event::Signalled { monitor, cursor, task, what });
    }

    /// A monitor that cannot probe is worse than none: its silence would be taken for peace.
    fn is_blind(&mut self, monitor: &str, blind: &Blind) {
        if blind.times >= BLIND && self.state().spec.watch.get(monitor).is_some() {
            let text = format!("monitor `{monitor}` could not look {} times in a row: {}", blind.times, blind.why);
            self.ticket(self.blind_key(monitor), cut(&text, 4 * SUMMARY_MAX_CHARS));
        }
    }

    fn blind_key(&self, monitor: &str) -> String {
        format!("monitor.blind:{}:{monitor}", self.state().id)
    }

    /// Requests a probe of all monitors now.
    pub(super) fn look_now(&mut self) {
        if self.watches() {
            self.renew = Some("woken".to_owned());
            self.act(Action::Look);
        }
    }

    /// Whether the loop has monitors.
    pub(super) fn watches(&self) -> bool {
        !self.state().spec.watch.is_empty()
    }

    /// Why a loop with monitors waits when nothing else is to be done; `None` when there is work.
    pub(super) fn idle(&mut self) -> Option<Reason> {
        let state = self.state();
        let reached = state.progress.board.all_pass() && state.progress.landed.all_pass();
        // A turn in the folder itself that was not judged may have left changes there, even if its
        // task was taken away.
        let in_place = state.spec.workspace.mode == WorkspaceMode::InPlace;
        let again = state.task.retry && (in_place || self.ctx.current_task.is_some());
        let nothing = !again && self.ctx.board_task.is_none() && self.signalled.is_none();
        if !self.watches() || state.is_persona() || !reached || !nothing || !state.people.notes.is_empty() {
            return None;
        }
        let monitors = state.spec.watch.monitors.len();
        if let Phase::Waiting { reason, .. } = &state.phase
            && reason.rule == PARKED
        {
            return Some(reason.clone());
        }
        if let Some(beats) = self.in_vain {
            self.renew = Some(format!("nothing new in {beats} beats"));
            return Some(Reason::new(PARKED).with("monitors", monitors).with("beats", beats));
        }
        Some(Reason::new(WATCHING).with("monitors", monitors))
    }

    /// Exactly one keepalive is open while there are monitors and the loop is not over. Derived at
    /// the end of every decision, so that no path can forget it; the end of one and the start of
    /// the next are one transaction.
    pub(super) fn keep_alive(&mut self) {
        let dropped = self.recovering && planted::is(Bug::RecoveryDropsKeepalive);
        let wanted = self.watches() && !matches!(self.state().phase, Phase::Ended { .. }) && !dropped;
        let open =
            self.ctx.keepalive.clone().filter(|_| !self.recovering || !planted::is(Bug::RecoveryDoublesKeepalive));
        if wanted && open.is_some() && self.renew.is_none() {
            return;
        }
        let after = self.renew.take().unwrap_or_default();
        // A loop that was over before this decision has none: its last event ended it.
        if let Some(open) = open.filter(|_| wanted || !self.out.events.is_empty()) {
            let (task, fence) = (open.id, open.fence.next());
            let take = Op::Take { task: task.clone(), fence, node: self.ctx.node.clone(), lease: self.ctx.lease };
            let result = if wanted { after.clone() } else { "nothing is watched any more".to_owned() };
            self.out.ops.extend([take, Op::Finish { task, fence, state: TaskEnd::Done, result }]);
        }
        if wanted {
            let number = self.state().watch.keepalive + 1;
            self.emit(Event::Keepalive { number, after });
            self.out.ops.push(watch::keepalive(self.state(), number));
        }
    }
}

/// The id of a loop's task about a change: derived, so that the same change makes the same task.
fn signal_id(owner: &LoopId, number: u32) -> TaskId {
    TaskId::new(format!("{owner}-signal-{number}"))
}

/// At most this many characters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}
