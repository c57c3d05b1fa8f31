//! The scenarios that are crashed at every step, and the storm.

use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::guard::Scope;
use everloop_core::ids::LoopId;
use everloop_core::op::{Amendment, Trust};
use everloop_core::spec::{Bounds, Integrate, WorkspaceMode};

use super::{HOUR_MS, Happening, Scenario};
use crate::sim::agent::{Kind, Script};

/// All scenarios that are crashed at every step.
pub fn known() -> Vec<Scenario> {
    vec![
        Scenario::new("good", 3),
        Scenario::new("lies and cheats", 3)
            .with(|l| l.script = Script::first(&[Kind::Liar, Kind::Cheater, Kind::Good, Kind::Cheater])),
        Scenario::new("breaks what passed", 3).with(|l| {
            l.tree.fixed = 0b001;
            l.script = Script::first(&[Kind::Breaker, Kind::Good, Kind::Breaker, Kind::Clumsy]);
        }),
        Scenario::new("dies young", 2).with(|l| {
            l.script = Script { tasks: vec![(Kind::Crasher, 4), (Kind::DiesYoung, 2)], rest: (Kind::Good, 1) };
        }),
        Scenario::new("hangs and vanishes", 3)
            .with(|l| l.script = Script::first(&[Kind::Vanish, Kind::Hang, Kind::Missing])),
        Scenario::new("only when reached", 3)
            .with(|l| {
                l.spec.workspace.integrate = Integrate::Reached;
                l.script = Script::first(&[Kind::Good, Kind::Busy, Kind::Good]);
            })
            .at(100, Happening::OperatorCommits(LoopId::new("a"))),
        Scenario::new("in place", 2).with(|l| {
            l.spec.workspace.mode = WorkspaceMode::InPlace;
            l.script = Script::first(&[Kind::Cheater, Kind::Good, Kind::Liar]);
        }),
        Scenario::new("asks for time", 2).with(|l| l.script = Script::first(&[Kind::Asks, Kind::Busy])),
        Scenario::new("the account is limited", 2)
            .with(|l| l.script = Script::first(&[Kind::Limited, Kind::Overloaded]))
            .and(1, |l| {
                super::second_account(&mut l.spec);
                l.script = Script::first(&[Kind::Limited]);
            }),
        Scenario::new("paced", 1).with(|l| {
            l.spec.guard.pace = true;
            l.script = Script { tasks: vec![(Kind::Metered, u32::MAX); 3], rest: (Kind::Good, 1) };
        }),
        Scenario::new("a task that is poison", 2).with(|l| {
            l.spec.guard.turn_timeout = Duration::from_secs(1200);
            l.script = Script { tasks: vec![(Kind::Slow, u32::MAX)], rest: (Kind::Good, 1) };
        }),
        Scenario::new("gives up", 2)
            .with(|l| {
                l.spec.bounds.max_turns = Some(7);
                l.spec.guard.stagnation_turns = 2;
                l.script = Script::always(Kind::Liar);
            })
            .ends("exhausted"),
        // In place, because a start that failed counts as well, so that a fault changes which task
        // brings the progress.
        Scenario::new("stagnates", 2).with(|l| {
            super::three_agents(&mut l.spec);
            l.spec.workspace.mode = WorkspaceMode::InPlace;
            l.spec.guard.stagnation_turns = 2;
            l.script = Script::always(Kind::Stubborn);
        }),
        Scenario::new("two loops, one slot", 2)
            .with(|l| l.spec.guard.max_parallel_turns = 1)
            .and(2, |l| l.spec.guard.max_parallel_turns = 1),
        target_moves("the target moves", 2_500, Happening::OperatorCommits),
        target_moves("the target is rewritten", 700, Happening::OperatorAmends),
        people(),
        watches(),
        watches_and_works(),
    ]
}

/// The first of three agents has an account under which nothing works; the goal is far enough away
/// for that to be noticed. The agent of a turn is chosen at random, so a crash may change the
/// choice; therefore this scenario is not among those above.
pub fn bad_account() -> Scenario {
    Scenario::new("one bad account", 2).with(|l| {
        super::three_agents(&mut l.spec);
        l.bad_account = Some("default");
        l.spec.guard = l.spec.guard.clone().free();
        // Otherwise the other agents go on without it, and it is never detected.
        l.spec.guard.stagnation_change = false;
        l.spec.bounds.max_turns = Some(80);
        l.script = Script { tasks: vec![(Kind::Busy, u32::MAX); 24], rest: (Kind::Good, 1) };
    })
}

/// The operator is on the same branch all the time, so that the work has to be judged again and
/// again.
fn target_moves(name: &str, every_ms: u64, how: fn(LoopId) -> Happening) -> Scenario {
    let moves = (1..300).map(|n| (n * every_ms, how(LoopId::new("a"))));
    Scenario { happenings: moves.collect(), ..Scenario::new(name, 2) }
}

/// A person pauses, resumes, stops and releases, some of it twice.
fn people() -> Scenario {
    let pause = || LoopCommand::Pause { reason: "lunch".to_owned(), until: None };
    let resume = |bounds| LoopCommand::Resume { bounds, budget: None };
    let id = || LoopId::new("a");
    Scenario::new("people", 4)
        .ask(5, LoopCommand::Steer { message: "mind the tests".to_owned(), trust: Trust::Operator })
        .ask(20, pause())
        .ask(21, pause())
        .ask(22, LoopCommand::Steer { message: "and the docs".to_owned(), trust: Trust::Operator })
        .ask(90, resume(None))
        .ask(91, resume(None))
        .at(130, Happening::Hold(Scope::All))
        .ask(140, LoopCommand::Wake)
        .at(200, Happening::Release(Scope::All))
        .ask(240, LoopCommand::Stop { now: true })
        .ask(241, LoopCommand::Stop { now: true })
        .ask(300, resume(None))
        .at(330, Happening::Restarts)
        .at(350, Happening::Amend(id(), Amendment::Retry))
        .ask(380, LoopCommand::Stop { now: false })
        .ask(600, resume(Some(Bounds { max_turns: Some(60), ..Bounds::default() })))
}

/// All checks pass; something happens three times, then nothing for so long that it is parked, then
/// a person wakes it.
fn watches() -> Scenario {
    let news = || Happening::News(LoopId::new("a"));
    Scenario::new("watches", 1)
        .with(|l| {
            l.tree.fixed = 1;
            l.script = Script::always(Kind::Liar);
            super::watchful(&mut l.spec, 120, 4);
        })
        .at(100, news())
        .at(1_500, news())
        .at(1_501, news())
        .ask(5_000, LoopCommand::Wake)
        .at(6_000, news())
        .ask(9_000, LoopCommand::Stop { now: false })
        .ends("stopped")
}

/// Checks to work on, an agent that dies, a message, and things that happen meanwhile; its time
/// ends it.
fn watches_and_works() -> Scenario {
    let news = || Happening::News(LoopId::new("a"));
    Scenario::new("watches and works", 2)
        .with(|l| {
            l.spec.workspace.mode = WorkspaceMode::InPlace;
            l.spec.bounds.max_time = Some(Duration::from_secs(2 * 3600));
            l.script = Script::first(&[Kind::Good, Kind::Crasher, Kind::Good]);
            super::watchful(&mut l.spec, 180, 0);
        })
        .at(90, news())
        .at(400, Happening::Restarts)
        .at(700, news())
        .ask(3_000, LoopCommand::Steer { message: "look around".to_owned(), trust: Trust::Operator })
        .at(4_000, news())
}

/// An agent that exits 1 at once, for a day; then a person repairs and releases it.
pub fn storm() -> Scenario {
    let day = 24 * HOUR_MS / 1000;
    let mut storm = Scenario::new("storm", 2)
        .with(|l| {
            l.script = Script::always(Kind::Crasher);
            l.spec.bounds.max_turns = None;
        })
        .at(day, Happening::Heals(Some(Kind::Good)))
        .at(day + 1, Happening::Release(Scope::Loop(LoopId::new("a"))));
    storm.limit_ms = 26 * HOUR_MS;
    storm
}
