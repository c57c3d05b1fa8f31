//! A scenario by chance: same seed, same scenario.

use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::guard::Scope;
use everloop_core::ids::LoopId;
use everloop_core::op::{Amendment, Trust};
use everloop_core::spec::{BucketSpec, Integrate, WorkspaceMode};

use super::{HOUR_MS, Happening, LoopSetup, Scenario};
use crate::random::Random;
use crate::sim::agent::{Kind, Script};

/// The scenario of a seed.
pub fn random(seed: u64) -> Scenario {
    let mut random = Random::new(seed ^ 0x5ce_a210);
    let checks = random.between(1, 5) as u32;
    let mut scenario = Scenario::new(&format!("seed {seed}"), checks);
    scenario.loops[0] = setup("a", &mut random);
    if random.one_in(3) {
        scenario.loops.push(setup("b", &mut random));
    }
    let heal_ms = random.pick(&[HOUR_MS / 6, HOUR_MS, 6 * HOUR_MS]);
    for _ in 0..random.below(9) {
        let at = random.below(heal_ms);
        let happening = happening(&mut random, scenario.loops.len() as u64);
        // Some people press everything twice.
        if random.one_in(3) {
            let again = (at + random.below(3_000)).min(heal_ms - 1);
            scenario.happenings.push((again, happening.clone()));
        }
        scenario.happenings.push((at, happening));
    }
    if random.one_in(6) {
        // The operator is busy on the same branch.
        let begin = random.below(heal_ms / 2);
        let commit = || Happening::OperatorCommits(LoopId::new("a"));
        scenario.happenings.extend((0..60).map(|n| (begin + n * 4_000, commit())));
    }
    let cured = !random.one_in(4);
    scenario.happenings.push((heal_ms, Happening::Heals(cured.then_some(Kind::Good))));
    scenario.limit_ms = heal_ms + 96 * HOUR_MS;
    scenario.ends = cured.then_some("reached");
    scenario
}

fn setup(id: &str, random: &mut Random) -> LoopSetup {
    let checks = random.between(1, 5) as u32;
    let mut setup = LoopSetup::new(id, checks);
    setup.tree.fixed = random.below(1 << checks) as u32;
    let tasks = (0..random.below(6)).map(|_| (Kind::draw(random), random.pick(&[1, 1, 2, 4, 12, 30]))).collect();
    let rest = if random.one_in(2) { Kind::Good } else { Kind::draw(random) };
    setup.script = Script { tasks, rest: (rest, random.between(1, 3) as u32) };
    setup.flaky = random.one_in(4).then_some(5);
    let spec = &mut setup.spec;
    if random.one_in(4) {
        spec.workspace.integrate = Integrate::Reached;
    }
    if random.one_in(6) {
        spec.workspace.mode = WorkspaceMode::InPlace;
    }
    if random.one_in(4) {
        spec.guard = spec.guard.clone().free();
    }
    if random.one_in(4) {
        spec.guard.bucket = Some(BucketSpec { burst: 2, every: Duration::from_secs(60) });
    }
    if random.one_in(4) {
        spec.guard.turn_timeout = Duration::from_secs(1200);
    }
    match random.below(8) {
        0 | 1 => super::second_account(spec),
        2 => {
            super::three_agents(spec);
            setup.bad_account = Some("default");
        }
        _ => {}
    }
    spec.guard.pace = random.one_in(3);
    spec.guard.max_parallel_turns = random.between(1, 2) as u32;
    spec.guard.stagnation_turns = random.between(2, 10) as u32;
    if random.one_in(4) {
        super::watchful(spec, 600, random.pick(&[0, 3, 20]));
    }
    setup
}

fn happening(random: &mut Random, loops: u64) -> Happening {
    let id = LoopId::new(if random.below(loops) == 0 { "a" } else { "b" });
    let scope = random.pick(&[Scope::All, Scope::Loop(id.clone()), Scope::Account("default".to_owned())]);
    match random.below(18) {
        0 => Happening::Ask(id, LoopCommand::Pause { reason: "a look".to_owned(), until: None }),
        1 | 2 => Happening::Ask(id, LoopCommand::Resume { bounds: None, budget: None }),
        3 => Happening::Ask(id, LoopCommand::Stop { now: false }),
        4 => Happening::Ask(id, LoopCommand::Stop { now: true }),
        5 => Happening::Ask(
            id,
            LoopCommand::Steer { message: format!("look at {}", random.below(1000)), trust: Trust::Operator },
        ),
        6 => Happening::Ask(id, LoopCommand::Wake),
        7 => Happening::Hold(scope),
        8 => Happening::Release(scope),
        9 => Happening::Amend(id, random.pick(&[Amendment::Retry, Amendment::Cancel, Amendment::Block])),
        10 => Happening::Enqueue(id),
        11 => Happening::OperatorCommits(id),
        12 => Happening::ClockJumps(random.pick(&[3_600_000, -3_600_000, 1_000, -1_000, -600_000])),
        13 => Happening::Sleeps(random.pick(&[60_000, 8 * HOUR_MS])),
        14 => Happening::Meddles,
        15 | 16 => Happening::News(id),
        _ => Happening::Restarts,
    }
}
