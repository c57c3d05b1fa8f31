//! Personas in a ledger, as the product makes and decides them, with every profile in turn: each has
//! looked in vain for hours and sleeps.

use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, SystemTime};

use everloop_core::action::Input;
use everloop_core::decide::{Context, PersonaContext, decide};
use everloop_core::guard::Guards;
use everloop_core::ids::{LoopId, NodeId};
use everloop_core::immune::Immune;
use everloop_core::jitter::mix;
use everloop_core::op::Op;
use everloop_core::rhythm::cadence::Profile;
use everloop_core::rhythm::calendar::TableCalendar;
use everloop_core::rhythm::persona::PersonaSpec;
use everloop_core::scoreboard::Scoreboard;
use everloop_core::spec::{AgentSpec, GuardSpec, LoopSpec, WorkspaceMode, WorkspaceSpec};
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::shell::LEASE;
use everloop_store::{Ledger, OpenMode};
use everloop_testkit::sample;

use crate::Result;
use crate::scene::Scene;

/// Personas in one transaction.
const BATCH: usize = 500;
/// They were made within these hours, so their looks are spread.
const OLDEST: Duration = Duration::from_secs(6 * 3600);
const YOUNGEST: Duration = Duration::from_secs(2 * 3600);

/// The name of a persona.
pub fn name(number: usize) -> String {
    format!("persona-{number}")
}

/// The wall clock.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Makes so many; returns their loops.
pub fn create(scene: &Scene, count: usize) -> Result<Vec<LoopId>> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(scene.state())?;
    let mut ledger = scene.ledger(OpenMode::ReadWrite)?;
    let numbers: Vec<usize> = (0..count).collect();
    let mut ids = Vec::with_capacity(count);
    for part in numbers.chunks(BATCH) {
        let mut ops = Vec::new();
        for number in part {
            let (id, made) = one(scene, *number)?;
            ops.extend(made);
            ids.push(id);
        }
        ledger.transact(now(), &ops)?;
    }
    Ok(ids)
}

/// One that was born hours ago: all its looks until now, as its supervisor would have decided them.
fn one(scene: &Scene, number: usize) -> Result<(LoopId, Vec<Op>)> {
    let span = OLDEST.saturating_sub(YOUNGEST).as_millis() as u64;
    let age = YOUNGEST + Duration::from_millis(mix(number as u64, 1) % span);
    let (present, mut at) = (now(), now() - age);
    let id = LoopId::new(format!("p{number:05}"));
    let born = LoopState::new(id.clone(), name(number), spec(scene, number)?, at);
    let mut ops = born.birth();
    let (calendar, node, guards) = (TableCalendar::new(), NodeId::new("bench"), Guards::default());
    let immune = Immune::default();
    let mut context = Context {
        now: at,
        seed: 0,
        node: &node,
        guards: &guards,
        immune: (0, &immune),
        shared: None,
        lease: LEASE,
        draining: false,
        attended: false,
        missing: Vec::new(),
        current_task: None,
        board_task: None,
        keepalive: None,
        persona: PersonaContext::quiet(&calendar),
    };
    let result = Ok((Scoreboard::default(), None));
    let mut input = Input::Baselined { result, notes: Vec::new(), samples: Vec::new() };
    let (mut state, mut version) = (born, 1);
    loop {
        context.now = at;
        let decision = decide(&state, &input, &context);
        let batch = decision.batch(version);
        version += u64::from(!batch.is_empty());
        ops.extend(batch);
        (state, input) = (decision.state, Input::Tick);
        match decision.wake_at {
            Some(next) if next <= present => at = next,
            Some(_) => return Ok((id, ops)),
            None => return Err(format!("{} has no next look", state.name).into()),
        }
    }
}

fn spec(scene: &Scene, number: usize) -> Result<LoopSpec> {
    let sample = sample::spec();
    let dir =
        scene.project().into_os_string().into_string().map_err(|path| format!("{} is no text", path.display()))?;
    let cadence = Profile::ALL[number % Profile::ALL.len()].cadence();
    Ok(LoopSpec {
        goal: "look after our deploys: find the cause of a failure, mend it, or say what is needed".to_owned(),
        agent: AgentSpec { argv: vec!["true".to_owned()], turn_microusd: 0, ..sample.agent },
        workspace: WorkspaceSpec { dir, mode: WorkspaceMode::InPlace, ..sample.workspace },
        bounds: everloop_core::spec::Bounds::default(),
        guard: GuardSpec { max_parallel_turns: 2, ..GuardSpec::default().free() },
        persona: Some(Box::new(PersonaSpec { cadence, ..PersonaSpec::default() })),
        ..sample
    })
}
