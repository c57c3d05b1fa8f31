//! Reflections and dreams of a whole persona: thirty days with nothing to do, with signals, with
//! budgets and under a freeze. The budgets are counted here in another way than in the product.

use std::time::Duration;

use everloop_core::action::{Action, Input, LoopCommand};
use everloop_core::decide::{Context, Decision, PersonaContext, Ready, decide};
use everloop_core::event::{Event, Exit, Judgement};
use everloop_core::guard::{Freeze, Guards, Scope};
use everloop_core::ids::{Fence, LoopId, NodeId, TurnId};
use everloop_core::immune::Immune;
use everloop_core::isolation::IsolationSpec;
use everloop_core::judge_files::JudgeFiles;
use everloop_core::rhythm::bucket::WakeAllowance;
use everloop_core::rhythm::cadence::Profile;
use everloop_core::rhythm::calendar::TableCalendar;
use everloop_core::rhythm::inward::memory::{Memory, MemoryChange, StoredMemory};
use everloop_core::rhythm::inward::plan::{IfWoken, first};
use everloop_core::rhythm::inward::{Inward, InwardSpec, ReflectOn};
use everloop_core::rhythm::persona::PersonaSpec;
use everloop_core::rhythm::reflex::SignalPattern;
use everloop_core::rhythm::row::{WAITING, WaitingSignal, row_id};
use everloop_core::rhythm::signal::{Signal, SignalClass};
use everloop_core::scoreboard::Scoreboard;
use everloop_core::spec::{
    AgentSpec, Bounds, CommitAuthor, GuardSpec, Integrate, LoopSpec, WorkspaceMode, WorkspaceSpec,
};
use everloop_core::state::{LoopState, Phase};
use everloop_core::time::Time;
use everloop_core::watch::WatchSpec;

/// Days of a promise: enough for each budget to be empty and full again.
const DAYS: u32 = 6;
const DAY: Duration = Duration::from_secs(86_400);
const START: Time = Time(1_700_000_000_000);
/// A loop without checks, in a folder.
fn spec(persona: PersonaSpec) -> LoopSpec {
    LoopSpec {
        goal: "look after the deploys".to_owned(),
        checks: Vec::new(),
        agent: AgentSpec { name: "agent".to_owned(), account: "default".to_owned(), ..AgentSpec::default() },
        others: Vec::new(),
        workspace: WorkspaceSpec {
            dir: "/folder".to_owned(),
            mode: WorkspaceMode::InPlace,
            integrate: Integrate::Progress,
            setup: None,
            include_dirty: false,
            protect: Vec::new(),
            judge: JudgeFiles::default(),
            cache: Vec::new(),
            author: CommitAuthor::Everloop,
            origin: None,
        },
        bounds: Bounds::default(),
        guard: GuardSpec::default(),
        watch: WatchSpec::default(),
        isolation: IsolationSpec::default(),
        research: None,
        persona: Some(Box::new(persona)),
        routes: Vec::new(),
    }
}

/// A persona with its rows, its memory and a clock.
struct Bench {
    state: LoopState,
    guards: Guards,
    now: Time,
    waiting: Vec<WaitingSignal>,
    memory: StoredMemory,
    wake_at: Option<Time>,
    /// Turns that began, with what they are, if they are inward.
    turns: Vec<(Time, Option<Inward>)>,
    /// A promise that was broken.
    broken: Option<&'static str>,
    events: usize,
    sent: u64,
}

impl Bench {
    fn new(inward: InwardSpec) -> Self {
        let cadence = Profile::Interlaced.cadence();
        let spec = spec(PersonaSpec { cadence, inward, ..PersonaSpec::default() });
        let state = LoopState::new(LoopId::new("k"), "echo".to_owned(), spec, START);
        let mut bench = Self {
            state,
            guards: Guards::new(),
            now: START,
            waiting: Vec::new(),
            memory: StoredMemory::default(),
            wake_at: None,
            turns: Vec::new(),
            broken: None,
            events: 0,
            sent: 0,
        };
        bench.give(&Input::Baselined {
            result: Ok((Scoreboard(Vec::new()), None)),
            notes: Vec::new(),
            samples: Vec::new(),
        });
        bench
    }

    fn decide(&self, input: &Input) -> Decision {
        let (node, calendar, immune) = (NodeId::new("here"), TableCalendar::new(), Immune::default());
        let row = |id| Ready { id, fence: self.state.task.fence, kind: "batch".to_owned(), priority: 0 };
        let ctx = Context {
            now: self.now,
            seed: 1,
            node: &node,
            guards: &self.guards,
            immune: (0, &immune),
            shared: None,
            lease: Duration::from_secs(90),
            draining: false,
            attended: true,
            missing: Vec::new(),
            current_task: self.state.task.id.clone().map(row),
            board_task: None,
            keepalive: None,
            persona: PersonaContext {
                calendar: &calendar,
                waiting: self.waiting.clone(),
                known: false,
                related: Vec::new(),
                memory: self.memory.clone(),
            },
        };
        decide(&self.state, input, &ctx)
    }

    /// Decides, and lets what follows from it happen.
    fn give(&mut self, input: &Input) {
        let before = self.waiting.len();
        let decision = self.decide(input);
        self.state = decision.state.clone();
        self.guards = decision.guards.clone();
        self.wake_at = decision.wake_at;
        self.events += decision.events.len();
        let begins = decision.events.iter().any(|event| matches!(event, Event::TurnStarted { .. }));
        if begins {
            let inward = self.state.inward();
            self.turns.push((self.now, inward));
            match inward {
                Some(_) if before > 0 => self.broken = Some("an inward turn begins while a signal waits"),
                Some(_) if self.is_frozen() => self.broken = Some("an inward turn begins under a freeze"),
                Some(_) => {}
                None => self.waiting.clear(),
            }
        }
        for action in decision.actions {
            match action {
                Action::Spawn { turn, .. } => self.exit(turn),
                Action::Baseline => {
                    let result = Ok((Scoreboard(Vec::new()), None));
                    self.give(&Input::Baselined { result, notes: Vec::new(), samples: Vec::new() });
                }
                Action::Judge { turn, .. } => self.give(&Input::Judged { turn, judgement: Judgement::default() }),
                _ => {}
            }
        }
    }

    /// The agent works for a minute and answers in every form at once.
    fn exit(&mut self, turn: TurnId) {
        let started_at = self.now;
        self.now = self.now + Duration::from_secs(60);
        let tail = r#"{"notes": ["n"], "memory": "m", "plans": []}"#.to_owned();
        let exit = Exit { code: Some(0), started_at, ended_at: self.now, tail, ..Exit::default() };
        self.give(&Input::Exited { turn, exit });
    }

    fn is_frozen(&self) -> bool {
        self.guards.values().any(|guard| guard.state.freeze.is_some())
    }

    fn freeze(&mut self) {
        let freeze = Freeze::by_person("ann".to_owned(), "a rest", self.now, None);
        self.guards.entry(Scope::All).or_default().state.freeze = Some(freeze);
    }

    fn signal(&mut self, class: SignalClass) {
        self.sent += 1;
        let signal = signal(&self.sent.to_string(), class, "deploy.eu");
        let row = Ready { id: row_id(&self.state.id, &signal), fence: Fence(0), kind: WAITING.to_owned(), priority: 0 };
        self.waiting.push(WaitingSignal { row, signal: signal.clone() });
        self.give(&Input::Command { by: String::new(), command: LoopCommand::Signal { signal: Box::new(signal) } });
    }

    /// Lives for so many days; `each` happens every so often.
    fn live(&mut self, days: u32, every: Duration, each: impl Fn(&mut Self)) {
        let end = START + DAY * days;
        let mut next = START + every;
        while self.now < end {
            let due = self.wake_at.unwrap_or(next).min(next);
            self.now = self.now.max(due);
            if due == next {
                next = next + every;
                each(self);
            } else {
                self.give(&Input::Tick);
            }
        }
    }

    /// Inward turns of a kind.
    fn of(&self, kind: fn(Inward) -> bool) -> Vec<Time> {
        self.turns.iter().filter(|(_, inward)| inward.is_some_and(kind)).map(|(at, _)| *at).collect()
    }
}

fn signal(id: &str, class: SignalClass, topic: &str) -> Signal {
    let to = "echo".parse().expect("a name");
    let (id, topic, source) = (id.to_owned(), topic.to_owned(), "cli".to_owned());
    let (tags, body, from) = ([].into(), String::new(), String::new());
    Signal { id, to, class, tags, topic, body, from, at: Time(0), source, passed_by: None, reply_to: None }
}

fn budget(reflect: &str, dream: &str) -> InwardSpec {
    let read = |text| Some(WakeAllowance::parse(text).expect("a budget"));
    InwardSpec { reflect: read(reflect), dream: read(dream), dream_microusd: None }
}

fn is_reflection(inward: Inward) -> bool {
    matches!(inward, Inward::Reflection { .. })
}

fn is_dream(inward: Inward) -> bool {
    inward == Inward::Dream
}

const HOUR: Duration = Duration::from_secs(3600);

// ------------------------------------------------------------------------------- promises

/// In any stretch of time no more than a full budget and what refills in it.
pub fn budget_is_kept() -> bool {
    let mut bench = Bench::new(budget("3/day", "2/day"));
    bench.live(DAYS, HOUR, |bench| bench.signal(SignalClass::Medium));
    let kept = |turns: &[Time], most: u64| {
        let within = |from: usize, to: usize| {
            let refill = turns[to].since(turns[from]).as_secs_f64() / DAY.as_secs_f64() * most as f64;
            (to - from + 1) as f64 <= most as f64 + refill + 0.01
        };
        (0..turns.len()).all(|from| (from..turns.len()).all(|to| within(from, to)))
    };
    let (reflections, dreams) = (bench.of(is_reflection), bench.of(is_dream));
    let enough = reflections.len() > 12 && dreams.len() > 8;
    enough && kept(&reflections, 3) && kept(&dreams, 2)
}

/// Faint signals wait for the next look, and nothing inward begins before it.
pub fn work_comes_first() -> bool {
    // Their refill falls into times in which a faint signal waits.
    let mut bench = Bench::new(budget("4/day", "4/day"));
    bench.live(DAYS, Duration::from_secs(7_000), |bench| {
        let class = if bench.sent.is_multiple_of(5) { SignalClass::Medium } else { SignalClass::Low };
        bench.signal(class);
    });
    bench.broken.is_none() && !bench.of(is_dream).is_empty()
}

/// Work is there to reflect on, and then everything is frozen.
pub fn none_while_frozen() -> bool {
    let mut bench = Bench::new(budget("12/day", "4/day"));
    bench.signal(SignalClass::Medium);
    let before = bench.turns.len();
    bench.freeze();
    bench.live(DAYS, HOUR, |_| {});
    before > 0 && bench.turns.len() == before && bench.broken.is_none()
}

pub fn every_fifth_is_on_self() -> bool {
    let mut bench = Bench::new(budget("1000/day", "1000/day"));
    bench.live(DAYS, HOUR, |bench| bench.signal(SignalClass::Medium));
    let on = bench.turns.iter().filter_map(|(_, inward)| match inward {
        Some(Inward::Reflection { on }) => Some(*on == ReflectOn::OnSelf),
        _ => None,
    });
    let on: Vec<bool> = on.collect();
    on.len() > 20 && on.iter().enumerate().all(|(n, on_self)| *on_self == ((n + 1) % 5 == 0))
}

pub fn plans_match_their_signals() -> bool {
    let plan = IfWoken {
        when: Some(SignalPattern::new("topic:deploy.*")),
        class: Some(SignalClass::High),
        text: "begin".to_owned(),
    };
    let found = |class, topic| first(std::slice::from_ref(&plan), &[signal("1", class, topic)]).is_some();
    found(SignalClass::High, "deploy.eu") && !found(SignalClass::High, "mail") && !found(SignalClass::Low, "deploy.eu")
}

pub fn protected_lines_stay() -> bool {
    let mut memory = Memory::default();
    memory.keep("never touch billing", "ann", Time(0));
    let refused = memory.dream(Some("all is well"), Time(1));
    matches!(refused, MemoryChange::Refused { .. }) && memory.text().contains("never touch billing")
}

// ---------------------------------------------------------------------------------- tests

#[test]
fn thirty_days_with_nothing_to_do_are_no_turn_and_no_writes_beyond_its_looks() {
    for inward in [InwardSpec::default(), budget("12/day", "4/day")] {
        let mut bench = Bench::new(inward);
        let before = bench.events;
        bench.live(30, DAY * 60, |_| {});
        let looks = bench.state.persona.as_ref().map_or(0, |persona| persona.yields.looks);
        assert!(bench.turns.is_empty() && looks > 6 * 29, "{looks} looks");
        assert_eq!(
            bench.events - before,
            2 * (usize::try_from(looks).expect("few") - 1),
            "a look and until when it sleeps"
        );
    }
}

#[test]
fn one_signal_in_thirty_days_is_reflected_on_and_dreamt_of_once() {
    let mut bench = Bench::new(budget("12/day", "4/day"));
    bench.signal(SignalClass::Medium);
    bench.live(30, DAY * 60, |_| {});
    let kinds: Vec<&str> = bench.turns.iter().map(|(_, inward)| inward.map_or("work", Inward::as_str)).collect();
    assert_eq!(kinds, ["work", "reflection", "dream"]);
    assert!(matches!(bench.state.phase, Phase::Waiting { .. }), "it sleeps");
}
