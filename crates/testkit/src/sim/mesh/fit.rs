//! Who fails, as nodes tell each other through the hub, step by step as the real ones do it; and whether that does no harm: a
//! third of the machines at most is out, everything has an end, and there is always somebody.

use std::rc::Rc;
use std::time::Duration;

use everloop_core::immune::choice::Admission;
use everloop_core::immune::{BEAT, Class, DOC, Dimension, FLEET, Immune, ImmuneStep, Subject, caps};
use everloop_core::mesh::fit::{self, Attempt, Tried};
use everloop_core::mesh::work::{self, Held, Stage};
use everloop_core::op::TaskRow;
use everloop_core::time::Time;

use super::Ill;
use super::facts::STALL;
use super::line::Mood;
use super::node::{File, Local1};
use super::world::World;

/// The longest that anybody is out by the tiers.
const OUT_MOST: Duration = BEAT.saturating_mul(160);
/// A trial that is over is found out within so many looks.
const LOOKS: u32 = 20;

/// What a node may take.
pub(super) struct Offer {
    pub rows: Vec<TaskRow>,
    pub most: usize,
    pub trial: bool,
}

impl World {
    /// The record as the hub has it; read once for each version of it.
    fn record(&mut self) -> (u64, Rc<Immune>) {
        let row = self.hub.model.peek_doc(&(DOC.to_owned(), FLEET.to_owned()));
        let version = row.map_or(0, |row| row.version);
        match &self.fleet {
            Some((known, immune)) if *known == version => (version, immune.clone()),
            _ => {
                let immune = row.map_or_else(Immune::default, |row| Immune::read(&row.body).expect("we wrote it"));
                let immune = Rc::new(immune);
                self.fleet = Some((version, immune.clone()));
                (version, immune)
            }
        }
    }

    fn note(&mut self, n: usize, steps: impl FnOnce(&Immune, Time) -> Vec<ImmuneStep>) {
        let now = self.hub_now(n);
        if self.at_hub(n, |_, _| ()).is_none() {
            return;
        }
        let (version, immune) = self.record();
        let steps = steps(&immune, now);
        if steps.is_empty() {
            return;
        }
        let mut next = Immune::clone(&immune);
        let ops = next.save(version, steps, now);
        if let Some(Ok(_)) = self.transact(n, None, &ops) {
            self.does_no_harm(&next, now);
            self.fleet = Some((version + 1, Rc::new(next)));
        }
    }

    /// What an attempt that is over says about its machine; `None`: nothing.
    pub(super) fn tried(&self, n: usize, local: &Local1) -> Option<Tried> {
        let ill = self.setup.ill == Ill::All || (self.setup.ill == Ill::Machine && n == 0);
        let class = match local.over? {
            true => Class::Good,
            false if local.stopped => return None,
            false if ill => Class::AgentFailed,
            false => Class::NotYet,
        };
        Some(Tried { class, reset_at: None })
    }

    /// The hub knows what came of a task.
    pub(super) fn note_end(&mut self, n: usize, file: &File, tried: &Tried) {
        let node = self.nodes[n].id.clone();
        let members = self.nodes[n].disk.replica.members.clone();
        let spec = self.read().1.spec.wanted.clone();
        self.note(n, |immune, now| {
            let kind = Some("batch");
            let attempt = Attempt { held: &file.held, node: &node, kind, spec: Some(&spec), members: &members };
            attempt.ended(immune, tried, now)
        });
    }

    /// A task was taken as a trial.
    pub(super) fn note_trial(&mut self, n: usize, held: &Held, row: &TaskRow) {
        let (node, replica) = (self.nodes[n].id.clone(), self.nodes[n].disk.replica.clone());
        let spec = replica.loop_of(row).map(|state| &state.spec.wanted);
        self.trace.say(self.now, "trial", &format!("{node} {}", held.key()));
        self.note(n, |immune, now| {
            let attempt = Attempt { held, node: &node, kind: Some(&row.task.kind), spec, members: &[] };
            attempt.began(immune, now)
        });
    }

    /// Of what is free, what a node may take.
    pub(super) fn fitting(&mut self, n: usize, mut rows: Vec<TaskRow>, most: usize) -> Option<Offer> {
        let now = self.hub_now(n);
        rows.retain(|row| work::is_free(row, now));
        if rows.is_empty() {
            self.nodes[n].lets_others_since = None;
            return None;
        }
        self.at_hub(n, |_, _| ())?;
        let immune = self.record().1;
        self.look_at_trials(n, &immune);
        let node = &self.nodes[n];
        let hows = fit::standing(&immune, &node.disk.replica, &node.id, &rows, now);
        let holds = node.disk.held.values().filter(|file| file.held.stage == Stage::Working).count();
        let may = |(row, how): &(&TaskRow, &Admission)| {
            fit::may_take(how, now.since(node.disk.replica.free_since(row)), holds)
        };
        let oldest = rows.iter().map(|row| node.disk.replica.free_since(row)).min().unwrap_or(now);
        let fits = rows.iter().zip(&hows).filter(may);
        let (rows, hows): (Vec<TaskRow>, Vec<Admission>) = fits.map(|(row, how)| (row.clone(), how.clone())).unzip();
        if rows.is_empty() {
            self.let_others_go_first(n, holds, oldest);
            return None;
        }
        self.nodes[n].lets_others_since = None;
        self.waited(n, &rows, &hows);
        let most = if hows.iter().any(fit::is_single) { 1 } else { most };
        Some(Offer { rows, most, trial: hows.iter().any(|how| matches!(how, Admission::Trial(_))) })
    }

    /// A node leaves all that is free to others. It is not idle, as long as they come.
    fn let_others_go_first(&mut self, n: usize, holds: usize, oldest: Time) {
        let now = self.now;
        let node = &mut self.nodes[n];
        node.idle_since = now;
        if holds > 0 {
            node.lets_others_since = None;
            return;
        }
        let since = *node.lets_others_since.get_or_insert(now);
        let since = since.max(node.healthy_since);
        let fair = !self.setup.drift && now > self.hub.odd_until && self.hub.mood == Mood::Well;
        let waits = self.since(since.max(self.hub.since).max(self.moment(oldest)));
        if fair && waits > fit::NOBODY_ELSE + STALL {
            let text = format!("{} leaves what is free to others for {} s", self.nodes[n].id, waits.as_secs());
            self.violated("I5", text);
        }
    }

    /// Trials of which nobody told how they ended.
    fn look_at_trials(&mut self, n: usize, immune: &Immune) {
        let own = [Subject::new(Dimension::Node, self.nodes[n].id.as_str())];
        let mut over = false;
        for turn in fit::on_trial(immune, &own) {
            let Some((task, fence)) = fit::attempt_of(&turn) else { continue };
            let Some(row) = self.at_hub(n, |hub, _| hub.peek_task(&task).cloned()) else { continue };
            over |= row.as_ref().is_none_or(|row| row.fence != fence || row.state.label() != "leased");
            self.note(n, |immune, _| fit::given_up(immune, &turn, row.as_ref()));
        }
        let node = &mut self.nodes[n];
        node.odd_trial = if over { node.odd_trial + 1 } else { 0 };
        if node.odd_trial > LOOKS {
            let text = format!("{} is on trial in an attempt that is over", self.nodes[n].id);
            self.violated("I8", text);
        }
    }

    /// The immune system may never do more harm than good.
    fn does_no_harm(&mut self, immune: &Immune, now: Time) {
        let out = caps::out(immune, now);
        let out: Vec<&Subject> = out.iter().filter(|s| s.dimension == Dimension::Node).collect();
        let all: std::collections::BTreeSet<&Subject> =
            immune.record.live(Dimension::Node).chain(out.iter().copied()).collect();
        if out.len() > all.len() / 3 {
            self.violated("I8", format!("{} of {} machines are out", out.len(), all.len()));
        }
        self.facts.most_out = self.facts.most_out.max(out.len() as u64);
        // When clocks differ, an end that one of them saw may be far away for another.
        if self.setup.drift || self.hub.odd_until > 0 {
            return;
        }
        let late = |at: Option<Time>| at.is_some_and(|at| at.since(now) > OUT_MOST);
        let endless = immune.standings.iter().find(|(_, standing)| late(standing.tier.until()));
        if let Some(subject) = endless.map(|(subject, _)| subject.to_string()) {
            self.violated("I8", format!("{subject} is out without an end"));
        }
    }
}
