//! What the supervisor does after a commit, cut into the sub-steps between which it can die. Each
//! sub-step can be repeated.

use everloop_core::action::{Action, Input, Integration};
use everloop_core::event::{Exit, Judgement};
use everloop_core::ids::{LoopId, TaskId, TurnId};
use everloop_core::landing::{self, LandingStep};
use everloop_core::scoreboard::{CheckResult, CheckRun, Scoreboard, run_again, verdict};
use everloop_core::state::{LoopState, Phase};

use super::git::{Commit, Tree, Worktree};
use super::world::{Flow, Plans, World};
use crate::sample;

/// How long the checks take, in milliseconds.
const CHECKS_TAKE: (u64, u64) = (500, 20_000);
/// How long every other sub-step takes.
const STEP_TAKES: (u64, u64) = (1, 400);

impl World {
    /// Begins an action. An idle machine starts an agent before the owner takes its next input.
    pub(super) fn begin(&mut self, id: &LoopId, action: Action) -> Flow {
        let id = id.clone();
        match action {
            Action::Baseline => self.go_on(CHECKS_TAKE, move |w| w.baseline(&id)),
            Action::Spawn { turn, .. } if self.random.one_in(2) => return self.start(&id, &turn),
            Action::Spawn { turn, .. } => self.go_on(STEP_TAKES, move |w| w.start(&id, &turn)),
            Action::Adopt { turn } => self.deliver_in(0, &turn),
            Action::Stop { turn, cause } => {
                self.go_on(STEP_TAKES, move |w| w.must("stop", turn.as_str(), |w| w.stop_shim(&turn, cause)));
            }
            Action::Judge { turn, task } => self.go_on(STEP_TAKES, move |w| w.collect(id, turn, &task)),
            Action::Integrate { turn, task, commit } => {
                self.go_on(STEP_TAKES, move |w| w.look_up(id, turn, &task, commit));
            }
            // A notifier that is down is ignored here; the ticket stands in the ledger.
            Action::Tell { key, .. } => {
                self.go_on(STEP_TAKES, move |w| w.step("tell", &key, |w| w.watch.tell(&key)).map(drop));
            }
            Action::Look => {
                self.held_mut(&id).into_iter().for_each(|held| held.rounds.monitors.look_soon());
                self.plan_beat(&id);
            }
            // The simulated loops are neither research runs nor personas.
            Action::Measure { .. } | Action::Replay { .. } | Action::Record | Action::Remember => {}
            Action::Cleanup => {
                self.go_on(STEP_TAKES, move |w| w.must("cleanup", id.as_str(), |w| w.clean_up(&id)));
            }
        }
        Ok(())
    }

    /// A sub-step that is to come.
    fn go_on(&mut self, (least, most): (u64, u64), step: impl FnOnce(&mut Self) -> Flow + 'static) {
        let ms = self.random.between(least, most);
        self.plan(ms, Plans::Action(self.incarnation), step);
    }

    fn state_of(&self, id: &LoopId) -> Option<&LoopState> {
        self.held(id).map(|held| &held.state)
    }

    fn baseline(&mut self, id: &LoopId) -> Flow {
        let run = |w: &mut World| {
            let site = &w.sites[id];
            let (tree, work) = (site.result(), (!site.setup.in_place()).then(|| site.git.target.clone()));
            (w.run_checks(id, &tree, true), work)
        };
        let found = self.must("baseline", id.as_str(), run)?;
        self.answer(id, &Input::Baselined { result: Ok(found), notes: Vec::new(), samples: Vec::new() })
    }

    /// A private worktree where the work stands; the one that is there already is kept.
    fn prepare(&mut self, id: &LoopId, turn: &TurnId) {
        let start = self.state_of(id).and_then(|s| s.progress.work.clone());
        let site = self.sites.get_mut(id).expect("every loop has a site");
        if site.setup.in_place() {
            site.began.entry(turn.clone()).or_insert_with(|| site.folder.clone());
        } else if let Some(start) = start {
            let tree = site.git.tree(&start);
            site.git.worktrees.entry(turn.clone()).or_insert(Worktree { start, tree });
        }
    }

    /// The turn's folder with its prompt.
    fn describe(&mut self, id: &LoopId, turn: &TurnId) {
        let told =
            self.state_of(id).map_or_else(Vec::new, |s| s.people.notes.iter().map(|n| n.text().to_owned()).collect());
        self.watch.prompts.insert(turn.clone(), told);
    }

    /// Prepares a turn and starts its shim.
    fn start(&mut self, id: &LoopId, turn: &TurnId) -> Flow {
        if self.step("prepare", turn.as_str(), |w| w.prepare(id, turn))?.is_err() {
            return self.not_started(id, turn, "no worktree");
        }
        if self.step("job", turn.as_str(), |w| w.describe(id, turn))?.is_err() {
            return self.not_started(id, turn, "no folder");
        }
        let starts = |w: &mut World| {
            // Mostly at once; on a busy machine a supervisor can die and come back before its shim
            // begins.
            let ms = if w.random.one_in(8) { w.random.below(60_000) } else { w.random.below(100) };
            let turn = turn.clone();
            w.plan(ms, Plans::Machine(w.boot), move |w| w.shim_starts(&turn));
        };
        match self.step("fork", turn.as_str(), starts)? {
            Ok(()) => Ok(()),
            Err(_) => self.not_started(id, turn, "no process"),
        }
    }

    fn not_started(&mut self, id: &LoopId, turn: &TurnId, why: &str) -> Flow {
        let now = self.clock();
        let exit = Exit { spawn_error: Some(why.to_owned()), started_at: now, ended_at: now, ..Exit::default() };
        self.answer(id, &Input::Exited { turn: turn.clone(), exit })
    }

    fn not_judged(&mut self, id: &LoopId, turn: TurnId) -> Flow {
        let judgement = Judgement { error: Some("the workspace cannot be read".to_owned()), ..Judgement::default() };
        self.answer(id, &Input::Judged { turn, judgement })
    }

    /// Collects the turn's work, holds it by a name, runs the checks on it.
    fn collect(&mut self, id: LoopId, turn: TurnId, task: &TaskId) -> Flow {
        match self.step("collect", turn.as_str(), |w| w.work_of(&id, &turn, task))? {
            Ok((judgement, tree)) => self.go_on(STEP_TAKES, move |w| w.keep(id, turn, judgement, tree)),
            Err(_) => return self.not_judged(&id, turn),
        }
        Ok(())
    }

    fn keep(&mut self, id: LoopId, turn: TurnId, judgement: Judgement, tree: Tree) -> Flow {
        match self.step("pin", turn.as_str(), |w| w.pin(&id, &turn, judgement))? {
            Ok(judgement) => self.go_on(CHECKS_TAKE, move |w| w.run_checks_on(&id, turn, judgement, &tree)),
            Err(_) => return self.not_judged(&id, turn),
        }
        Ok(())
    }

    /// The turn's work as a commit, on top of the target where that moved.
    fn work_of(&mut self, id: &LoopId, turn: &TurnId, task: &TaskId) -> (Judgement, Tree) {
        let site = self.sites.get_mut(id).expect("every loop has a site");
        let tampered = |yes: bool| if yes { vec!["checks/run".to_owned()] } else { Vec::new() };
        if site.setup.in_place() {
            let changed = site.began.get(turn).is_some_and(|before| *before != site.folder);
            let found = Judgement { changed, violations: tampered(site.folder.tampered), ..Judgement::default() };
            return (found, site.folder.clone());
        }
        let Some(Worktree { start, tree }) = site.git.worktrees.get(turn).cloned() else {
            let error = Some("the worktree is gone".to_owned());
            return (Judgement { error, ..Judgement::default() }, Tree::default());
        };
        let changed = tree != site.git.tree(&start);
        let mut head = start.clone();
        if changed {
            let (tree, task) = (tree.clone(), Some(task.clone()));
            head = site.git.commit(Commit { parent: Some(head), tree, task, ..Commit::default() });
        }
        if !site.git.contains(&head, &site.git.target) {
            head = site.git.rebase(&head, &site.git.target.clone(), task);
        }
        let violations = tampered(tree.tampered);
        let commit = (head != start).then(|| head.clone());
        (Judgement { changed, commit, violations, ..Judgement::default() }, site.git.tree(&head))
    }

    /// Whatever was collected is held by a name before anything else happens to it.
    fn pin(&mut self, id: &LoopId, turn: &TurnId, mut found: Judgement) -> Judgement {
        let git = &mut self.sites.get_mut(id).expect("every loop has a site").git;
        let Some(commit) = found.commit.clone() else { return found };
        let names = (0..).map(|n| format!("refs/everloop/{turn}-{n}"));
        let free = names.into_iter().find(|name| git.pins.get(name).is_none_or(|held| *held == commit));
        let name = free.expect("there is always a further number");
        git.pins.insert(name.clone(), commit);
        found.pin = Some(name);
        found
    }

    fn run_checks_on(&mut self, id: &LoopId, turn: TurnId, mut judgement: Judgement, tree: &Tree) -> Flow {
        let changed = judgement.changed;
        match self.step("check", turn.as_str(), |w| w.run_checks(id, tree, changed))? {
            Ok(board) => {
                judgement.board = board;
                self.answer(id, &Input::Judged { turn, judgement })
            }
            Err(_) => self.not_judged(id, turn),
        }
    }

    fn run_checks(&mut self, id: &LoopId, tree: &Tree, changed: bool) -> Scoreboard {
        let setup = self.sites[id].setup.clone();
        let known =
            self.state_of(id).filter(|s| s.phase != Phase::New).map(|s| s.progress.board.clone()).unwrap_or_default();
        let mut rows = Vec::new();
        for (n, check) in setup.spec.checks.iter().enumerate() {
            let before = known.0.iter().find(|r| r.name == check.name).map(|r| &r.verdict);
            let mut runs = Vec::new();
            while run_again(before, changed, &runs) {
                let trips = setup.flaky.is_some_and(|one_in| self.random.one_in(one_in));
                runs.push(if tree.passes(n as u32) && !trips { CheckRun::Passed } else { CheckRun::Failed });
            }
            let result = sample::check_result(check.name.clone(), verdict(&runs), 10);
            rows.push(CheckResult { weight: check.weight, fingerprint: n as u64 + 1, ..result });
        }
        Scoreboard(rows)
    }

    /// Before anything is moved: is it there already?
    fn look_up(&mut self, id: LoopId, turn: TurnId, task: &TaskId, commit: String) -> Flow {
        let looked = self.must("look up", turn.as_str(), |w| {
            let git = &w.sites[&id].git;
            let before = match landing::step(git.relation(&commit), &git.target, &commit) {
                LandingStep::Move => return Ok(git.target.clone()),
                LandingStep::Landed => landing::landed(&git.target),
                LandingStep::LookUp => landing::looked_up(git.landed_before(task), || "somebody committed".to_owned()),
            };
            if matches!(before, Integration::Done(_)) {
                w.watch.mark("landed before");
            }
            Err(before)
        })?;
        match looked {
            Ok(expected) => self.go_on(STEP_TAKES, move |w| w.swap(&id, turn, &commit, &expected)),
            Err(result) => return self.answer(&id, &Input::Integrated { turn, result }),
        }
        Ok(())
    }

    fn swap(&mut self, id: &LoopId, turn: TurnId, commit: &str, expected: &str) -> Flow {
        let swapped = self.must("update-ref", turn.as_str(), |w| {
            w.sites.get_mut(id).expect("every loop has a site").git.swap(expected, commit)
        })?;
        let moved = || Integration::Moved("somebody committed".to_owned());
        let result = if swapped { landing::landed(commit) } else { moved() };
        self.answer(id, &Input::Integrated { turn, result })
    }

    /// Removes worktrees that are not needed; what is in them and was not kept is pinned first.
    fn clean_up(&mut self, id: &LoopId) {
        let current = match self.state_of(id).map(|s| &s.phase) {
            Some(Phase::Turn(turn)) => Some(turn.id.clone()),
            _ => None,
        };
        let git = &mut self.sites.get_mut(id).expect("every loop has a site").git;
        let old: Vec<TurnId> = git.worktrees.keys().filter(|t| Some(*t) != current.as_ref()).cloned().collect();
        for turn in old {
            let Some(Worktree { start, tree }) = git.worktrees.remove(&turn) else { continue };
            if tree != git.tree(&start) {
                let commit =
                    git.commit(Commit { parent: Some(start), tree, task: Some(turn.task().clone()), amended: false });
                git.pins.entry(format!("refs/everloop/{turn}-left")).or_insert(commit);
            }
        }
    }
}
