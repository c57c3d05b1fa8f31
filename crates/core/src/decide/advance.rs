//! Between turns: end, wait or start the next one.

use super::rhythm::Rest;
use super::{Ready, Step};
use crate::action::Action;
use crate::event::{Event, LoopEnd, Outcome};
use crate::guard::permit::{PermitRequest, SLOT_POLL, SLOTS, common, over, permit};
use crate::guard::{Permit, PermitDecision, Scope, Spend};
use crate::ids::{Fence, TaskId, TurnId};
use crate::op::{NewTask, Op, Trust};
use crate::planted::{self, Bug};
use crate::reason::{Reason, RuleId};
use crate::research::sample::Sample;
use crate::rhythm::inward::{self, Inward, ReflectOn};
use crate::rhythm::state::RhythmStep;
use crate::scoreboard::{CheckResult, NOT_RUN, Scoreboard, Verdict};
use crate::spec::{AgentSpec, CheckSpec};
use crate::state::{LoopState, PREFLIGHT, Pause, Phase, worker};
use crate::time::Time;

/// Maximum number of turns in one session: enough to use what was learned, too few for stale
/// context to dominate.
const SESSION_TURNS: u32 = 8;
/// Context fullness in percent from which on a fresh session is better than a full one.
const CONTEXT_FULL: u32 = 85;
/// The kind of the tasks that a loop makes for itself.
const OWN: &str = "batch";
/// Tickets about waits for a person, besides that of [`PREFLIGHT`].
const VARIABLES: &str = "variables";
const BROKEN: &str = "checks.broken";

impl Step<'_> {
    /// Handles the result of the checks before the first turn.
    pub(super) fn baselined(
        &mut self,
        result: &Result<(Scoreboard, Option<String>), String>,
        notes: &[String],
        samples: &[Sample],
    ) {
        if self.state().phase != Phase::New {
            return;
        }
        match result {
            // The checks were changed meanwhile.
            Ok((board, _)) if !is_about(board, &self.state().spec.checks) => self.request_baseline(),
            Ok((board, work)) => {
                self.emit(Event::Baselined { board: board.clone(), work: work.clone() });
                for text in notes {
                    self.emit(Event::Note { text: text.clone() });
                }
                self.begin_research(samples);
                self.advance();
            }
            Err(why) => self.end(LoopEnd::Failed { why: why.clone() }),
        }
    }

    /// Has the checks run before the first turn; a further worker of a run takes over what the first
    /// one found.
    pub(super) fn request_baseline(&mut self) {
        if self.state().is_helper() { self.join_run() } else { self.act(Action::Baseline) }
    }

    /// A further worker begins once the baseline of its run is measured, and ends where that failed.
    pub(super) fn join_run(&mut self) {
        let Some(shared) = self.out.shared.clone() else { return };
        if self.state().people.stop.is_some() {
            return self.advance();
        }
        if self.ctx.draining || self.is_unattended() {
            return;
        }
        match (shared.baseline, shared.failed) {
            (_, Some(why)) => self.end(LoopEnd::Failed { why }),
            (Some((board, work)), None) if shared.found.is_some() && is_about(&board, &self.state().spec.checks) => {
                self.emit(Event::Baselined { board, work });
                self.advance();
            }
            _ => {}
        }
    }

    /// Decides what comes next for a loop without a turn under way.
    pub(super) fn advance(&mut self) {
        self.close_alerts();
        self.close_refusals();
        self.report_preflight();
        if let Some(ending) = self.ending() {
            return self.end(ending);
        }
        if self.ctx.draining {
            return;
        }
        match self.state().people.paused.clone() {
            Some(Pause { until: Some(at), .. }) if at <= self.ctx.now => {
                let by = "the clock".to_owned();
                self.emit(Event::Resumed { by, bounds: None, budget: None, keeps_clock: true });
            }
            Some(Pause { by, reason, until: Some(at), .. }) => {
                return self.wait(Reason::new(RuleId::Asleep).with("by", by).with("reason", reason).until(at));
            }
            Some(Pause { by, reason, until: None, .. }) => {
                return self.wait(Reason::new(RuleId::Paused).with("by", by).with("reason", reason));
            }
            None => {}
        }
        if self.is_unattended() {
            return self.wait(Reason::new(RuleId::Unattended));
        }
        if let Some(reason) = self.lacks_variables() {
            return self.wait(reason);
        }
        if let Some(reason) = self.broken() {
            return self.wait(reason);
        }
        if let Some(reason) = self.idle() {
            return self.wait(reason);
        }
        if let Some(reason) = self.others_suffice() {
            return self.wait(reason);
        }
        match self.rest() {
            Rest::Sleep(reason) => return self.wait(reason),
            Rest::Checks => return,
            Rest::Inward(inward, resting) => return self.turn_inward(inward, resting),
            Rest::Works => {}
        }
        let state = self.state().clone();
        let next = self.next();
        let candidates = self.candidates(&state, next.kind(), next.priority());
        let mut held: Option<Reason> = None;
        for agent in &candidates.asked {
            if let Some(reason) = refused(&state, agent) {
                held = Some(sooner(held, reason));
                continue;
            }
            match self.ask(&state, agent, next.priority()) {
                PermitDecision::Go(permit) => {
                    let why =
                        held.or_else(|| candidates.passed_over(agent)).unwrap_or_else(|| chosen(&state, agent, &next));
                    return self.start(agent, permit, (next, why));
                }
                // Another listed agent or account may take over, unless the loop itself has to
                // wait.
                PermitDecision::Wait(reason) if concerns_account(&reason) => held = Some(sooner(held, reason)),
                PermitDecision::Wait(reason) => return self.wait(reason),
                PermitDecision::Spent(reason) => {
                    return self.end(LoopEnd::Exhausted { bound: reason.input("bound").to_owned() });
                }
            }
        }
        let held = candidates.held().fold(held, |known, reason| Some(sooner(known, reason)));
        self.wait(held.unwrap_or_else(|| next.named(RuleId::AgentNone)));
    }

    /// Whether the loop belongs to a terminal that is gone.
    pub(super) fn is_unattended(&self) -> bool {
        self.state().people.attached && !self.ctx.attended
    }

    /// A loop of which no agent can start waits for a person: a ticket, as long as it does.
    fn report_preflight(&mut self) {
        let key = self.wait_key(PREFLIGHT);
        match self.state().people.paused.clone().filter(|pause| pause.by == PREFLIGHT) {
            Some(pause) => self.ticket(key, format!("no turn starts: {}", pause.reason)),
            None => self.close_ticket(&key, "it goes on"),
        }
    }

    /// Why no turn may start: the supervisor lacks variables that the loop was started with. A ticket,
    /// as long as it does.
    fn lacks_variables(&mut self) -> Option<Reason> {
        let (key, names) = (self.wait_key(VARIABLES), self.ctx.missing.join(", "));
        if names.is_empty() {
            self.close_ticket(&key, "they are there again");
            return None;
        }
        self.ticket(key, format!("no turn starts: the supervisor lacks {names}, which the loop was started with"));
        Some(Reason::new(RuleId::Variables).with("names", names))
    }

    /// The key of the ticket about a wait for a person.
    fn wait_key(&self, cause: &str) -> String {
        format!("{cause}:{}", self.state().id)
    }

    /// Why no turn can help: all checks that do not pass cannot run. A ticket, as long as it is so.
    fn broken(&mut self) -> Option<Reason> {
        let key = self.wait_key(BROKEN);
        let broken = |row: &CheckResult| match &row.verdict {
            // What did not run yet may well run.
            Verdict::Broken { why } if why != NOT_RUN => Some((row.name.clone(), why.clone())),
            Verdict::Broken { .. }
            | Verdict::Pass
            | Verdict::Fail
            | Verdict::Flaky { .. }
            | Verdict::Suspicious { .. } => None,
        };
        let failing: Vec<_> = self.state().progress.board.failing().map(broken).collect();
        let all: Option<Vec<_>> = failing.into_iter().collect();
        let first = all.and_then(|all| all.into_iter().next()).filter(|_| !self.state().spec.guard.start_broken);
        let Some((check, why)) = first else {
            self.close_ticket(&key, "not every check that fails is broken");
            return None;
        };
        self.ticket(key, format!("no turn starts: every check that does not pass is broken: {check}: {why}"));
        Some(Reason::new(RuleId::ChecksBroken).with("check", check).with("why", why))
    }

    /// Requests a permit for one of the loop's agents.
    pub(super) fn ask(&mut self, state: &LoopState, agent: &AgentSpec, priority: i32) -> PermitDecision {
        let account = agent.guard_account();
        let request = PermitRequest {
            owner: &state.id,
            account: &account,
            node: self.ctx.node,
            spec: &state.spec.guard,
            reserve: reserve(state, agent),
            // A turn of a persona may well have nothing to change.
            noops: if state.is_persona() { 0 } else { state.progress.noops },
            priority,
        };
        let scopes: Vec<Scope> = request.scopes().into_iter().chain(common(&account)).collect();
        for scope in over(&self.out.guards, &scopes, self.ctx.now) {
            let key = format!("guard.freeze:{scope}");
            self.emit(Event::Released { scope, by: "booked".to_owned(), reason: "the booked time is over".to_owned() });
            self.close_ticket(&key, "the booked time is over");
        }
        self.close_released(&scopes);
        match permit(&self.out.guards, &request, self.ctx.now) {
            PermitDecision::Wait(_) if planted::is(Bug::SpawnsWithoutPermit) => {
                let (scopes, reserve) = (request.scopes(), request.reserve);
                PermitDecision::Go(Permit { scopes, reserve, canary: None, bucket: None })
            }
            answer => answer,
        }
    }

    /// Releasing a freeze changes the guard only; the loop that opened its ticket closes it here.
    fn close_released(&mut self, scopes: &[Scope]) {
        for scope in scopes {
            if self.out.guards.get(scope).is_none_or(|v| v.state.freeze.is_none()) {
                self.close_ticket(&format!("guard.freeze:{scope}"), "released");
            }
        }
    }

    /// How the loop ends, if it is over.
    fn ending(&self) -> Option<LoopEnd> {
        let state = self.state();
        let (bounds, now) = (&state.spec.bounds, self.ctx.now);
        let exhausted = |bound: &str| Some(LoopEnd::Exhausted { bound: bound.to_owned() });
        // Work that passes but could not be landed (the target moved too often) does not count as
        // reached.
        let landed = state.progress.landed.all_pass() || planted::is(Bug::ReachedWithoutLanding);
        // The checks of a research run are guards, which pass from the beginning; a persona has no
        // end.
        let endless = state.spec.research.is_some() || state.is_persona();
        let reached = !endless && state.progress.board.all_pass() && landed;
        if reached && !self.watches() {
            return Some(LoopEnd::Reached);
        }
        if let Some(stop) = &state.people.stop
            && !planted::is(Bug::StopIgnored)
        {
            return Some(LoopEnd::Stopped { by: stop.by.clone() });
        }
        if let Some(ending) = self.research_ending() {
            return Some(ending);
        }
        // A loop that watches with all checks passing has exhausted nothing when its time is over.
        let over = |bound: &str| if reached && !state.task.retry { Some(LoopEnd::Reached) } else { exhausted(bound) };
        let more = u32::from(planted::is(Bug::OneExperimentTooMany) && state.research.is_some());
        if bounds.max_turns.is_some_and(|n| state.counted() >= n + more) {
            return over("turns");
        }
        match self.time_limit() {
            Some((at, bound)) if at <= now => over(bound),
            _ => None,
        }
    }

    /// The time bound that ends the loop.
    fn time_limit(&self) -> Option<(Time, &'static str)> {
        self.state().spec.bounds.end(self.state().spend.clock_from)
    }

    /// The time at which the loop decides again without other input.
    pub(super) fn wake_time(&self) -> Option<Time> {
        let Phase::Waiting { reason, .. } = &self.state().phase else { return None };
        if planted::is(Bug::WaitWithoutTimer) && reason.rule == RuleId::GuardCooldown {
            return None;
        }
        // A parallel turn may end at any time; this poll moves on with the clock and is not worth a
        // journal line.
        let until = if matches!(reason.rule, SLOTS | RuleId::ResearchOthers) {
            Some(self.ctx.now + SLOT_POLL)
        } else {
            reason.until
        };
        [until, self.time_limit().map(|(at, _)| at), self.stalls_at()].into_iter().flatten().min()
    }

    /// Records why nothing starts, once per reason.
    pub(super) fn wait(&mut self, reason: Reason) {
        let known = match &self.state().phase {
            Phase::Waiting { reason: known, .. } => *known == reason || (known.rule == SLOTS && reason.rule == SLOTS),
            _ => false,
        };
        if known {
            return self.say_stalled();
        }
        self.moved();
        self.emit(Event::Waiting { reason });
    }

    fn end(&mut self, ending: LoopEnd) {
        self.moved();
        self.close_questions(|_| true, "the loop ended");
        for cause in [PREFLIGHT, VARIABLES, BROKEN] {
            self.close_ticket(&self.wait_key(cause), "the loop ended");
        }
        self.emit(Event::Ended { ending });
        self.act(Action::Cleanup);
    }

    pub(super) fn start(&mut self, agent: &AgentSpec, permit: Permit, (next, why): (Next, Reason)) {
        self.moved();
        let new = worker(&agent.name, &agent.account);
        let old = self.state().task.worker.clone();
        // The one who works goes on afterwards.
        if !old.is_empty() && old != new && !next.is_inward() {
            self.emit(Event::AgentSwitched { from: old, to: new.clone(), reason: why.clone() });
        }
        let chosen = Some(why).filter(|_| !self.state().spec.others.is_empty());
        let going_on = self.state().task.id.clone();
        let kind = next.kind().to_owned();
        let began = self.begins(&next);
        if let Next::Inward(inward) = next {
            self.rhythm(RhythmStep::TurnedInward { at: self.ctx.now, inward });
        }
        let (task, fence) = self.take(next);
        let resume = self.session(agent, &new, going_on.as_ref() == Some(&task));
        let turn = TurnId::of(&task, fence);
        let number = self.state().task.started + 1;
        let take = Op::Take { task: task.clone(), fence, node: self.ctx.node.clone(), lease: self.ctx.lease };
        self.out.ops.push(take);
        self.try_out(agent, &kind, &turn);
        let (agent, account) = (agent.name.clone(), agent.account.clone());
        let started = Event::TurnStarted {
            turn: turn.clone(),
            task: task.clone(),
            fence,
            number,
            permit,
            agent,
            account,
            resume,
            chosen,
        };
        self.emit(started);
        if let Some(step) = began {
            self.emit(Event::Rhythm { step: Box::new(step) });
        }
        self.act(Action::Spawn { turn, task });
    }

    /// The session to continue: the loop's own, with the same agent, neither too long nor too full.
    fn session(&self, agent: &AgentSpec, worker: &str, same_task: bool) -> Option<String> {
        if self.state().inward().is_some() {
            return None;
        }
        let session = self.state().task.session.as_ref().filter(|s| s.worker == worker)?;
        let most = if agent.session_turns == 0 { SESSION_TURNS } else { agent.session_turns };
        // A turn that was cut off continues whatever the count; a task of another author starts a
        // fresh session.
        let cut_off = matches!(self.state().progress.tries.last().map(|t| &t.outcome), Some(Outcome::Limited { .. }));
        let own = self.ctx.board_task.is_none() || same_task;
        // Each experiment begins without the opinions of those before; only a crash is mended in the
        // session that made it.
        let mends = self.state().research.as_ref().is_none_or(|research| research.open.is_some());
        let short = session.turns < most || cut_off;
        let roomy = session.context_percent.unwrap_or(0) < CONTEXT_FULL;
        (own && short && roomy && mends).then(|| session.id.clone())
    }

    /// The task that goes on, one from the board, or a new one of the loop's own. A task that was
    /// begun is finished first, however urgent the board is: the loop's own task would not be found
    /// there again.
    fn next(&self) -> Next {
        let again = self.ctx.current_task.clone().filter(|_| self.state().task.retry);
        // A signal may be urgent, and tasks of the board are not lost.
        let board = self.ctx.board_task.as_ref().filter(|_| !self.has_signals());
        match (again, board.or(self.signalled.as_ref())) {
            (Some(task), _) => Next::Again(task),
            (None, Some(task)) => Next::Board(task.clone()),
            (None, None) => Next::Own,
        }
    }

    /// The task and the fence under which it is taken.
    fn take(&mut self, next: Next) -> (TaskId, Fence) {
        match next {
            Next::Again(task) if planted::is(Bug::FenceRestartsAtRetry) => (task.id, Fence(1)),
            Next::Again(task) | Next::Board(task) => (task.id, task.fence.next()),
            Next::Own => self.own_task(),
            Next::Inward(inward) => self.inward_task(inward),
        }
    }

    fn own_task(&mut self) -> (TaskId, Fence) {
        let state = self.state().clone();
        let (id, is_persona) = (TaskId::of_loop(&state.id, state.task.number + 1), state.is_persona());
        let experiment = state.research.as_ref().map(|research| research.number + research.others() + 1);
        let unmet: Vec<&str> = state.progress.board.failing().map(|r| r.name.as_str()).collect();
        let (signals, prompt) = self.take_rows();
        let title = match unmet.as_slice() {
            _ if signals == 1 => "see to a signal".to_owned(),
            _ if signals > 1 => format!("see to {signals} signals"),
            _ if is_persona => "see to the messages".to_owned(),
            _ if let Some(number) = experiment => format!("experiment {number}"),
            [] => "see to the messages".to_owned(),
            unmet => format!("make these checks pass: {}", unmet.join(", ")),
        };
        self.enqueue((&id, OWN), title, prompt, 0)
    }

    /// The task of a reflection or a dream.
    fn inward_task(&mut self, inward: Inward) -> (TaskId, Fence) {
        let id = TaskId::of_loop(&self.state().id, self.state().task.number + 1);
        let title = match inward {
            Inward::Reflection { on: ReflectOn::OnCycle } => "reflect on the latest looks",
            Inward::Reflection { on: ReflectOn::OnSelf } => "reflect on the latest reflections",
            Inward::Dream => "dream",
        };
        self.enqueue((&id, inward.kind()), title.to_owned(), String::new(), inward::PRIORITY)
    }

    fn enqueue(
        &mut self,
        (id, kind): (&TaskId, &str),
        title: String,
        prompt: String,
        priority: i32,
    ) -> (TaskId, Fence) {
        let task = NewTask {
            id: id.clone(),
            owner: Some(self.state().id.clone()),
            kind: kind.to_owned(),
            title,
            prompt,
            priority,
            deps: Vec::new(),
            author: "everloop".to_owned(),
            trust: Trust::Operator,
            ready_at: self.ctx.now,
        };
        self.out.ops.push(Op::Enqueue(task));
        (id.clone(), Fence(1))
    }
}

/// Contender of the next turn.
pub(super) enum Next {
    /// The current task, which was given back.
    Again(Ready),
    /// A task from the board.
    Board(Ready),
    /// A new task of the loop's own.
    Own,
    /// A reflection or a dream.
    Inward(Inward),
}

impl Next {
    pub(super) fn kind(&self) -> &str {
        match self {
            Next::Again(task) | Next::Board(task) => &task.kind,
            Next::Own => OWN,
            Next::Inward(inward) => inward.kind(),
        }
    }

    pub(super) fn priority(&self) -> i32 {
        match self {
            Next::Again(task) | Next::Board(task) => task.priority,
            Next::Own => 0,
            Next::Inward(_) => inward::PRIORITY,
        }
    }

    fn is_inward(&self) -> bool {
        matches!(self, Next::Inward(_))
    }

    pub(super) fn named(&self, rule: RuleId) -> Reason {
        Reason::new(rule).with("kind", self.kind()).with("priority", self.priority())
    }
}

/// The vendor's refusal of an agent as it is configured.
pub(super) fn refused(state: &LoopState, agent: &AgentSpec) -> Option<Reason> {
    let said = state.task.refused.get(&worker(&agent.name, &agent.account))?;
    Some(Reason::new(RuleId::AgentRefused).with("agent", &agent.name).with("said", said))
}

/// Why an agent that nothing holds was chosen.
fn chosen(state: &LoopState, agent: &AgentSpec, next: &Next) -> Reason {
    if let Some(change) = state.progress.strategy.as_ref().filter(|c| c.agent != agent.name)
        && state.candidates(next.kind(), next.priority()).iter().any(|a| a.name == change.agent)
    {
        return Reason::new(RuleId::AgentChange).with("agent", &change.agent);
    }
    let mut before = state.spec.agents().take_while(|a| *a != agent);
    let passed_over = before.any(|a| !a.tasks.include(next.kind(), next.priority()));
    if passed_over || !agent.tasks.all() { next.named(RuleId::AgentFits) } else { Reason::new(RuleId::AgentPreferred) }
}

/// The reservation of a turn: the configured cost, or that of the dearest turn so far.
fn reserve(state: &LoopState, agent: &AgentSpec) -> Spend {
    let said = Spend { calls: 1, tokens: agent.turn_tokens, microusd: agent.turn_microusd };
    let seen = Spend { calls: 1, ..state.spend.dearest };
    if said.tokens == 0 && said.microusd == 0 { seen } else { said }
}

/// Whether a wait concerns the account and not the loop.
fn concerns_account(reason: &Reason) -> bool {
    let by_rule =
        matches!(reason.rule, RuleId::GuardLimit | RuleId::GuardPace | RuleId::GuardSpread | RuleId::GuardBucket);
    by_rule || reason.input("scope").starts_with("account:")
}

/// The wait that ends first.
fn sooner(known: Option<Reason>, new: Reason) -> Reason {
    match known {
        Some(known) if known.until.is_some_and(|at| new.until.is_none_or(|n| at <= n)) => known,
        Some(known) if new.until.is_none() => known,
        _ => new,
    }
}

/// Whether a board covers exactly these checks.
fn is_about(board: &Scoreboard, checks: &[CheckSpec]) -> bool {
    board.0.iter().map(|r| &r.name).eq(checks.iter().map(|c| &c.name))
}
