//! What comes from outside: people with commands, the operator's own commits, clocks, sleep.

use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::event::{Event, LoopEnd};
use everloop_core::guard::{Freeze, Scope};
use everloop_core::ids::LoopId;
use everloop_core::op::{Amendment, Op};
use everloop_core::spec::Bounds;
use everloop_core::state::{LoopState, Phase};
use everloop_store::Ledger as _;

use super::agent::{Kind, Script};
use super::scenario::{self, Happening, PERSON};
use super::world::{Flow, Site, World, violated};

/// Turns that a person grants when everything is well again.
const FRESH_TURNS: u32 = 60;
/// A loop that watches would never end by itself.
const WATCH_ON: Duration = Duration::from_secs(48 * 3600);

impl World {
    /// Makes the loops, as `everloop run` does.
    pub(super) fn submit(&mut self) {
        let now = self.wall();
        let setups: Vec<_> = self.sites.values().map(|s| s.setup.clone()).collect();
        for setup in setups {
            let name = format!("loop {}", setup.id);
            let state = LoopState::new(setup.id, name, setup.spec, now);
            self.outside(&state.birth());
        }
    }

    /// A transaction of another process; it takes part in no crash. The person has to deal with
    /// refusals.
    fn outside(&mut self, ops: &[Op]) -> bool {
        let now = self.wall();
        self.ledger.transact(now, ops).is_ok()
    }

    /// What comes from outside.
    pub(super) fn happen(&mut self, happening: Happening) -> Flow {
        self.to_come -= 1;
        self.say("happens", &format!("{happening:?}"));
        // The first process that opens the ledger after a crash repairs it.
        if let Err(e) = self.ledger.reopen() {
            return violated("durability", format!("the ledger cannot be opened: {e}"));
        }
        match happening {
            Happening::Ask(id, command) => self.ask(&id, &command),
            Happening::Hold(scope) => self.hold(&scope),
            Happening::Release(scope) => self.release(&scope),
            Happening::Amend(id, change) => self.amend(&id, change),
            Happening::Enqueue(id) => self.enqueue(&id),
            Happening::OperatorCommits(id) => self.at_site(&id, |site| site.git.operator_commits()),
            Happening::OperatorAmends(id) => self.at_site(&id, |site| site.git.operator_amends()),
            Happening::News(id) => self.at_site(&id, |site| site.news += 1),
            Happening::Meddles => self.meddling = true,
            Happening::ClockJumps(ms) => self.wall_ms += ms,
            Happening::Sleeps(ms) => self.sleep_ms(ms),
            Happening::Restarts => return self.leave(),
            Happening::Heals(cure) => self.heal(cure),
        }
        Ok(())
    }

    /// A scenario of random happenings may name a loop that it does not have.
    fn at_site(&mut self, id: &LoopId, change: impl FnOnce(&mut Site)) {
        if let Some(site) = self.sites.get_mut(id) {
            change(site);
        }
    }

    fn ask(&mut self, id: &LoopId, command: &LoopCommand) {
        let body = serde_json::to_string(command).expect("a command is plain data");
        if self.outside(&[Op::Signal { to: id.to_string(), by: PERSON.to_owned(), body }]) {
            self.ring();
        }
    }

    /// The bell is a hint: sometimes it is lost, and the box is read later.
    fn ring(&mut self) {
        if !self.random.one_in(4) {
            let ms = self.random.below(2_000);
            self.mine(ms, Self::read_box);
        }
    }

    fn change_guard(&mut self, scope: &Scope, event: Event, ticket: Option<Op>) {
        let now = self.wall();
        let mut guard = self.ledger.model().guard(scope).expect("the model always answers");
        guard.state.apply(scope, &event, now);
        let mut ops = vec![
            Op::SaveGuard { scope: scope.clone(), version: guard.version, state: Box::new(guard.state) },
            Op::Append { owner: None, events: vec![event] },
        ];
        ops.extend(ticket);
        self.outside(&ops);
        let ids: Vec<LoopId> = self.sites.keys().cloned().collect();
        for id in ids {
            self.ask(&id, &LoopCommand::Wake);
        }
    }

    /// A person writes to the guard between a decision and its commit.
    pub(super) fn meddle(&mut self) {
        if std::mem::take(&mut self.meddling) {
            self.release(&Scope::All);
        }
    }

    fn hold(&mut self, scope: &Scope) {
        let freeze = Freeze::by_person(PERSON.to_owned(), "said so", self.wall(), None);
        self.change_guard(scope, Event::Frozen { scope: scope.clone(), freeze }, None);
    }

    fn release(&mut self, scope: &Scope) {
        let (by, reason) = (PERSON.to_owned(), "looked at".to_owned());
        let close = Op::CloseTicket { key: format!("guard.freeze:{scope}"), answer: reason.clone() };
        self.change_guard(scope, Event::Released { scope: scope.clone(), by, reason }, Some(close));
    }

    fn amend(&mut self, id: &LoopId, change: Amendment) {
        let Some(task) = self.stored(id).and_then(|s| s.task.id) else { return };
        if self.outside(&[Op::Amend { task: task.clone(), change }]) {
            self.watch.amended.insert(task);
        }
    }

    fn enqueue(&mut self, id: &LoopId) {
        self.watch.board_used = true;
        let name = format!("{id}-board{}", self.random.below(1_000_000));
        let task = scenario::task(name, id.clone(), "request", self.wall());
        self.outside(&[Op::Enqueue(task)]);
    }

    /// The loop as it is stored.
    pub(super) fn stored(&self, id: &LoopId) -> Option<LoopState> {
        let row = self.ledger.model().get_loop(id).expect("the model always answers")?;
        serde_json::from_str(&row.state).ok()
    }

    /// Nothing fails any more, holds are lifted, all loops go on.
    fn heal(&mut self, cure: Option<Kind>) {
        self.faults.heal();
        self.watch.healed = true;
        self.wall_ms = 0;
        if let Some(kind) = cure {
            for site in self.sites.values_mut() {
                site.setup.script = Script::always(kind);
                site.setup.flaky = None;
                site.setup.bad_account = None;
            }
        }
        let held = |freeze: &Freeze| freeze.by.is_some();
        let guards = self.ledger.guards();
        for scope in guards.iter().filter(|(_, v)| v.state.freeze.as_ref().is_some_and(held)).map(|(s, _)| s) {
            self.release(scope);
        }
        let ids: Vec<LoopId> = self.sites.keys().cloned().collect();
        for id in ids {
            let Some(state) = self.stored(&id) else { continue };
            let reached = matches!(&state.phase, Phase::Ended { ending: LoopEnd::Reached, .. });
            // Also when it is running: an earlier wish to stop may still be in the box.
            if !reached {
                let watches = !state.spec.watch.is_empty();
                let deadline = watches.then(|| self.wall() + WATCH_ON);
                let bounds = Bounds { max_turns: Some(state.task.turns + FRESH_TURNS), deadline, ..Bounds::default() };
                self.ask(&id, &LoopCommand::Resume { bounds: Some(bounds), budget: None });
            }
        }
    }
}
