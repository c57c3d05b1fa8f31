//! What a loop of the mesh may use, over all nodes. Only the leader makes reservations: a part of
//! the budget is set aside for each attempt at a task before any node can begin it, and the unused
//! rest comes back with the attempt's report. So the sum holds whatever happens to nodes, and a
//! node without a hub has its share: the reservations of its own tasks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MeshLoop, MeshSpec, Said};
use crate::guard::Spend;
use crate::ids::{Fence, NodeId, TaskId};
use crate::op::{TaskRow, TaskState};
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::spec::Budget;
use crate::time::Time;

/// An attempt without a report for so long after its reservation, at a task that is over or was
/// taken away, counts as having used the whole reservation.
pub const SILENT: Duration = Duration::from_secs(24 * 3600);

/// A part of the budget, set aside for one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// At which task.
    pub task: TaskId,
    /// Under which fence.
    pub fence: Fence,
    /// What it may use.
    pub most: Budget,
    /// When the reservation was made.
    pub at: Time,
    /// The node that holds the task under this fence, once that is known.
    pub to: Option<NodeId>,
    /// When the attempt's report came, and how many turns it took; they count until they are out of
    /// every window.
    pub over: Option<(Time, u64)>,
}

impl Reservation {
    fn calls(&self) -> u64 {
        self.over.map_or(self.most.calls.unwrap_or(0), |(_, calls)| calls)
    }

    /// What is set aside.
    fn held(&self) -> Spend {
        if self.over.is_some() {
            return Spend::default();
        }
        let most = &self.most;
        let or_none = |limit: Option<u64>| limit.unwrap_or(0);
        Spend { calls: or_none(most.calls), tokens: or_none(most.tokens), microusd: or_none(most.microusd) }
    }
}

/// Whether the attempt under `fence` was given back in good order: then its report is there, or
/// nothing was used. If the leader or a person took the task away, there is another fence in
/// between.
fn is_untouched(row: &TaskRow, fence: Fence) -> bool {
    match row.state {
        TaskState::Queued => row.fence == fence,
        TaskState::Leased { .. } => row.fence == fence.next(),
        TaskState::Done | TaskState::Dead | TaskState::Blocked => false,
    }
}

/// Whether the task was taken from its holder under the reservation's fence. While the task is open
/// it may need the very part that was reserved for a node which never comes back.
fn is_past(rows: &[TaskRow], reservation: &Reservation) -> bool {
    rows.iter().any(|row| row.task.id == reservation.task && row.fence > reservation.fence)
}

/// The node that holds a task under a fence.
fn holder<'a>(row: &'a TaskRow, task: &TaskId, fence: Fence) -> Option<&'a NodeId> {
    match &row.state {
        TaskState::Leased { node, .. } if row.task.id == *task && row.fence == fence => Some(node),
        _ => None,
    }
}

/// Whether anything is limited, so that no attempt may begin without a reservation.
pub fn is_limited(spec: &MeshSpec) -> bool {
    let budget = &spec.wanted.guard.budget;
    budget.calls.is_some()
        || budget.tokens.is_some()
        || budget.microusd.is_some()
        || spec.wanted.guard.caps.windows().next().is_some()
}

impl MeshLoop {
    /// What an attempt may use; `None` when it may not begin yet.
    pub fn reservation(&self, task: &TaskId, fence: Fence) -> Option<Budget> {
        if !is_limited(&self.spec) {
            return Some(Budget::default());
        }
        let of = |reservation: &&Reservation| {
            reservation.task == *task && reservation.fence == fence && reservation.over.is_none()
        };
        self.reservations.iter().find(of).map(|reservation| reservation.most.clone())
    }

    /// When it was set aside for an attempt.
    pub(super) fn reserved_at(&self, task: &TaskId, fence: Fence) -> Option<Time> {
        let of = |reservation: &&Reservation| reservation.task == *task && reservation.fence == fence;
        self.reservations.iter().find(of).map(|reservation| reservation.at)
    }

    /// What was used and what is set aside.
    pub fn used(&self) -> Spend {
        self.reservations.iter().fold(self.spent, |sum, reservation| sum.plus(reservation.held()))
    }

    /// Attempts without a report so far.
    pub fn unsettled(&self) -> Vec<(TaskId, Fence)> {
        let open = self.reservations.iter().filter(|reservation| reservation.over.is_none());
        open.map(|reservation| (reservation.task.clone(), reservation.fence)).collect()
    }

    /// Attempts that may be under way.
    pub fn under_way(&self) -> usize {
        self.unsettled().len()
    }

    /// Sets a part aside for an attempt, if there is enough.
    pub(super) fn reserve(&mut self, task: &TaskId, fence: Fence, now: Time) -> Result<(), Reason> {
        if !is_limited(&self.spec) || self.reservation(task, fence).is_some() {
            return Ok(());
        }
        let most = self.part(now)?;
        self.reservations.push(Reservation { task: task.clone(), fence, most, at: now, to: None, over: None });
        Ok(())
    }

    /// A fair part of what is left: enough for one turn at least.
    fn part(&self, now: Time) -> Result<Budget, Reason> {
        let (limits, used) = (&self.spec.wanted.guard.budget, self.used());
        let agents = || self.spec.wanted.agents();
        let price = agents().map(|a| a.turn_microusd).max().unwrap_or(0);
        let tokens = agents().map(|a| a.turn_tokens).max().unwrap_or(0);
        let others = (self.spec.width as usize).saturating_sub(self.under_way()).max(1) as u64;
        let part = |name: &str, limit: Option<u64>, used: u64, one: u64| {
            let Some(limit) = limit else { return Ok(None) };
            let left = limit.saturating_sub(used);
            if left == 0 || left < one {
                return Err(Reason::new(RuleId::GuardBudget)
                    .with("bound", name)
                    .with("budget", limit)
                    .with("used", used));
            }
            Ok(Some((left / others).max(one.max(1))))
        };
        let mut calls = limits.calls.map(|limit| limit.saturating_sub(used.calls));
        part("calls", limits.calls, used.calls, 1)?;
        for (name, window, cap) in self.spec.wanted.guard.caps.windows() {
            let (starts, cap) = (self.starts_within(window, now), u64::from(cap));
            let room = if planted::is(Bug::LendsPastCaps) { cap } else { cap.saturating_sub(starts) };
            if room == 0 {
                let reason = Reason::new(RuleId::GuardCap).with("window", name).with("cap", cap).with("used", starts);
                return Err(Reason { until: self.room_at(window), ..reason });
            }
            calls = Some(calls.map_or(room, |calls| calls.min(room)));
        }
        Ok(Budget {
            calls: calls.map(|calls| calls.min(u64::from(self.spec.task_turns)).max(1)),
            tokens: part("tokens", limits.tokens, used.tokens, tokens)?,
            microusd: part("dollars", limits.microusd, used.microusd, price)?,
        })
    }

    /// Starts that may have been made in a window that ends now: those of attempts under way count
    /// as if all were made.
    fn starts_within(&self, window: Duration, now: Time) -> u64 {
        let counts = |reservation: &&Reservation| reservation.over.is_none_or(|(at, _)| now.since(at) < window);
        self.reservations.iter().filter(counts).map(Reservation::calls).sum()
    }

    /// When the first of them is out of the window; unknown while all are under way.
    fn room_at(&self, window: Duration) -> Option<Time> {
        self.reservations.iter().filter_map(|reservation| reservation.over.map(|(at, _)| at + window)).min()
    }

    /// Takes back what attempts did not use. `reports`: the known reports of attempts at tasks with
    /// a reservation.
    pub(super) fn collect(&mut self, rows: &[TaskRow], reports: &[Said], now: Time) -> bool {
        let longest = self.spec.wanted.guard.caps.windows().map(|(_, window, _)| window).max().unwrap_or_default();
        let before = self.reservations.clone();
        let mut spent = self.spent;
        for reservation in self.reservations.iter_mut().filter(|reservation| reservation.over.is_none()) {
            if let Some(holder) = rows.iter().find_map(|row| holder(row, &reservation.task, reservation.fence)) {
                reservation.to = Some(holder.clone());
            }
            let said = reports.iter().find(|(task, report)| {
                *task == reservation.task
                    && report.fence == reservation.fence
                    && reservation.to.as_ref().is_none_or(|to| *to == report.node)
            });
            let is_open = self.open.iter().any(|open| open.task == reservation.task);
            if let Some((_, report)) = said {
                spent = spent.plus(report.spend());
                reservation.over = Some((now, u64::from(report.turns)));
            } else if rows.iter().any(|row| row.task.id == reservation.task && is_untouched(row, reservation.fence)) {
                reservation.over = Some((now, 0));
            } else if (!is_open || is_past(rows, reservation)) && now.since(reservation.at) >= SILENT {
                spent = spent.plus(reservation.held());
                reservation.over = Some((now, reservation.calls()));
            }
        }
        self.spent = spent;
        self.reservations.retain(|reservation| reservation.over.is_none_or(|(at, _)| now.since(at) < longest));
        self.reservations != before
    }

    /// When reports about attempts at a loop that is over are no longer expected; `None` when
    /// nothing is reserved.
    pub(super) fn settles_at(&self) -> Option<Time> {
        self.reservations.iter().map(|reservation| reservation.at + SILENT).max()
    }

    /// Settles all of them then: with their reports, or as if all was used.
    pub fn settle(&mut self, rows: &[TaskRow], reports: &[Said], now: Time) {
        self.collect(rows, reports, now);
        self.spent = self.used();
        self.reservations.clear();
    }

    /// Gives back the reservation of the attempt under `fence`, which was not begun and cannot be
    /// begun any more.
    pub(super) fn call_off(&mut self, task: &TaskId, fence: Fence) {
        self.reservations
            .retain(|reservation| reservation.task != *task || reservation.fence < fence || reservation.over.is_some());
    }
}
