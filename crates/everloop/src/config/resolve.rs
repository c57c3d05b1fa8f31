//! One loop, put together from its layers: typed, with the rules that concern more than one value.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::check::evidence_pattern;
use everloop_agents::prices;
use everloop_core::isolation::IsolationSpec;
use everloop_core::judge_files::JudgeFiles;
use everloop_core::research::ResearchSpec;
use everloop_core::rhythm::persona::{PersonaSpec, RouteSpec};
use everloop_core::spec::{
    AgentKind, AgentSpec, Bounds, CheckSpec, CommitAuthor, GuardSpec, Integrate, LoopSpec, WorkspaceMode, WorkspaceSpec,
};
use everloop_core::test_evidence::Proof;
use everloop_core::time::Time;
use everloop_core::watch::WatchSpec;
use everloop_engine::diagnostic::{ConfigError, Diagnostic};
use everloop_engine::services::create::{NewLoop, PlaceWish};

use super::agent::{self, AgentChoices};
use super::guard::guard_layer;
use super::isolation;
use super::keys::{CheckKeys, LoopKeys, WorkspaceKey};
use super::layer::{Layer, Origin};
use super::naming;
use super::persona;
use super::research;
use super::show::{self, Effective};
use super::watch;
use super::{Config, ResolveContext, check_line};

/// A check that takes longer hangs more often than it works.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(600);

/// Globs of files that no turn may change unless the operator unprotects them: files that judge the
/// work.
pub const PROTECTED: [&str; 16] = [
    "everloop.toml",
    ".ci/**",
    ".circleci/**",
    ".github/**",
    ".gitlab-ci.yml",
    "**/__tests__/**",
    "**/conftest.py",
    "**/pytest.ini",
    "**/test/**",
    "**/test_*.py",
    "**/tests/**",
    "**/*.spec.*",
    "**/*.test.*",
    "**/*_spec.rb",
    "**/*_test.go",
    "**/*_test.py",
];

/// Everything a loop needs, except what depends on the folder: the mode of its workspace and the
/// pins of its checks.
#[derive(Clone, Debug)]
pub struct ResolvedLoop {
    /// What people call it.
    pub name: String,
    /// What is to be reached.
    pub goal: String,
    /// Its checks; their `pin` is empty.
    pub checks: Vec<CheckSpec>,
    /// The agent that works on it.
    pub agent: AgentSpec,
    /// The agents that work on it while the first one's account is held, in the operator's order.
    pub others: Vec<AgentSpec>,
    /// Where the work happens.
    pub workspace: WorkspacePlan,
    /// When it ends without having reached its goal.
    pub bounds: Bounds,
    /// When a turn may start.
    pub guard: GuardSpec,
    /// What is watched besides the checks.
    pub watch: WatchSpec,
    /// What its commands may reach.
    pub isolation: IsolationSpec,
    /// Set for a research run.
    pub research: Option<ResearchSpec>,
    /// Set for a persona; its charter is the goal.
    pub persona: Option<PersonaSpec>,
    /// Entries of streams that become its tasks.
    pub routes: Vec<RouteSpec>,
    /// What is allowed but perhaps not meant; lower-case fragments.
    pub warnings: Vec<String>,
    /// Every value and where it comes from.
    pub values: Vec<Effective>,
}

/// Where turns work, before the folder was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkspacePlan {
    /// The operator's folder.
    pub dir: PathBuf,
    /// The configured kind of workspace.
    pub kind: WorkspaceKey,
    /// When work moves onto the operator's branch.
    pub integrate: Integrate,
    /// A command run in every new checkout.
    pub setup: Option<String>,
    /// Start from the uncommitted state.
    pub include_dirty: bool,
    /// Globs of files that a turn may not change.
    pub protect: Vec<String>,
    /// Globs of files that a turn may change although `protect` names them.
    pub unprotect: Vec<String>,
    /// Folders of the checks that survive between them.
    pub cache: Vec<String>,
    /// The author of its commits.
    pub author: CommitAuthor,
}

impl ResolvedLoop {
    /// All agents that may work on it, in the operator's order.
    pub fn agents(&self) -> impl Iterator<Item = &AgentSpec> {
        std::iter::once(&self.agent).chain(&self.others)
    }

    /// The same, to change them.
    pub fn agents_mut(&mut self) -> impl Iterator<Item = &mut AgentSpec> {
        std::iter::once(&mut self.agent).chain(&mut self.others)
    }

    /// The loop before its folder was looked at.
    pub fn new_loop(&self) -> NewLoop {
        let place = match self.workspace.kind {
            WorkspaceKey::Auto => PlaceWish::Auto,
            WorkspaceKey::Git => PlaceWish::Clones,
            WorkspaceKey::InPlace => PlaceWish::Folder,
        };
        NewLoop { name: self.name.clone(), spec: self.spec(WorkspaceMode::InPlace), place }
    }

    /// The loop for the core. A glob of `unprotect` follows as `!glob`; the caller adds the pins of
    /// the checks.
    pub(super) fn spec(&self, mode: WorkspaceMode) -> LoopSpec {
        let plan = &self.workspace;
        let except = plan.unprotect.iter().map(|glob| format!("!{glob}"));
        LoopSpec {
            goal: self.goal.clone(),
            checks: self.checks.clone(),
            agent: self.agent.clone(),
            others: self.others.clone(),
            workspace: WorkspaceSpec {
                dir: plan.dir.display().to_string(),
                mode,
                integrate: plan.integrate,
                setup: plan.setup.clone(),
                include_dirty: plan.include_dirty,
                protect: plan.protect.iter().cloned().chain(except).collect(),
                judge: JudgeFiles::default(),
                cache: plan.cache.clone(),
                author: plan.author.clone(),
                origin: None,
            },
            bounds: self.bounds.clone(),
            guard: self.guard.clone(),
            watch: self.watch.clone(),
            isolation: self.isolation.clone(),
            research: self.research.clone().map(Box::new),
            persona: self.persona.clone().map(Box::new),
            routes: self.routes.clone(),
        }
    }
}

/// The keys that make a loop more than one.
#[derive(Default)]
pub(super) struct LoopKind {
    /// The keys of its metric, for a research run.
    pub research: Option<Layer>,
    /// The keys of its rhythm, for a persona.
    pub persona: Option<Layer>,
}

/// What a loop is made from.
pub(super) struct Given<'a> {
    pub name: &'a str,
    pub dir: &'a Path,
    pub values: Layer,
    pub kind: LoopKind,
    pub place: &'a Origin,
    pub agents: &'a Config,
    pub moment: &'a ResolveContext,
}

pub(super) fn resolve(given: Given<'_>) -> Result<ResolvedLoop, ConfigError> {
    let Given { name, dir, mut values, kind: LoopKind { research, persona }, place, agents, moment } = given;
    let mut wrong = Vec::new();
    let choice = AgentChoices { name, values: &values, place, config: agents, moment };
    let chosen = agent::choose(&choice).unwrap_or_else(|mut found| {
        wrong.append(&mut found);
        Vec::new()
    });
    let all_free = !chosen.is_empty() && chosen.iter().all(|agent| agent.is_free);
    relax(&mut values, all_free);
    let keys: LoopKeys = values.typed()?;

    let (goal, rhythm) = goal((name, dir), &keys, persona.as_ref(), (place, moment)).unwrap_or_else(|mut found| {
        wrong.append(&mut found);
        (String::new(), None)
    });
    let checks = checks(name, &keys, &values, &mut wrong);
    if checks.is_empty() && research.is_none() && persona.is_none() {
        let diagnostic = place.blame(format!("loop `{name}` has no check, so nothing could prove it reached"));
        wrong.push(diagnostic.hint("add `checks = [\"cargo test\"]`, or pass `--check 'cargo test'`"));
    }
    let measured = research.as_ref().map(|own| research::spec(name, dir, own, place));
    let measured = measured.transpose().unwrap_or_else(|mut found| {
        wrong.append(&mut found);
        None
    });
    let deadline = deadline(&keys, &values, moment, &mut wrong);
    if let Some(text) = keys.commit_author.as_ref().filter(|text| CommitAuthor::parse(&text.0).is_none()) {
        let diagnostic = values.origin("commit_author").blame(format!("`{}` is no author of commits", text.0));
        wrong.push(diagnostic.hint("use `everloop`, `person` or `NAME <EMAIL>`"));
    }
    let guard = guard(&keys, &values, &mut wrong);
    let watch = watch::watch(&keys, &values, &mut wrong);
    let isolation = isolation::isolation(&keys, &values, (agents, chosen.as_slice(), moment), &mut wrong);
    ConfigError::unless_empty(wrong)?;

    let bounds = Bounds {
        max_turns: keys.max_turns.and_then(|l| l.0).map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        max_time: keys.max_time.and_then(|l| l.0),
        deadline,
    };
    let mut warnings: Vec<String> = chosen.iter().flat_map(|agent| agent.warnings.clone()).collect();
    let values_shown = show::effective(name, (&values, research.as_ref(), persona.as_ref()), &chosen);
    let mut agents = chosen.into_iter().map(|agent| agent.spec);
    let agent = agents.next().expect("without an agent there is a diagnostic above");
    let others: Vec<AgentSpec> = agents.collect();
    warnings.extend(blind_spots(std::iter::once(&agent).chain(&others), &guard, &values));
    let mut seen: Vec<String> = Vec::new();
    warnings.retain(|warning| {
        !seen.contains(warning) && {
            seen.push(warning.clone());
            true
        }
    });
    let (name, workspace) = (name.to_owned(), workspace(&keys, dir));
    Ok(ResolvedLoop {
        name,
        goal,
        checks,
        agent,
        others,
        workspace,
        bounds,
        guard,
        watch,
        isolation,
        research: measured,
        persona: rhythm,
        routes: Vec::new(),
        warnings,
        values: values_shown,
    })
}

fn deadline(keys: &LoopKeys, values: &Layer, moment: &ResolveContext, wrong: &mut Vec<Diagnostic>) -> Option<Time> {
    let deadline = keys.deadline.as_ref().map_or(Ok(None), |d| d.time(&moment.zone));
    let deadline = deadline.unwrap_or_else(|why| {
        wrong.push(values.origin("deadline").blame(why));
        None
    });
    if deadline.is_some_and(|at| at <= moment.now) {
        let diagnostic = values.origin("deadline").blame("the deadline is in the past");
        wrong.push(diagnostic.hint("give a later one, or remove it"));
    }
    deadline
}

/// The goal, or the charter of a persona with what makes it one.
fn goal(
    (name, dir): (&str, &Path),
    keys: &LoopKeys,
    persona: Option<&Layer>,
    (place, moment): (&Origin, &ResolveContext),
) -> Result<(String, Option<PersonaSpec>), Vec<Diagnostic>> {
    if let Some(own) = persona {
        return persona::spec((name, dir), own, (place, moment)).map(|(charter, spec)| (charter, Some(spec)));
    }
    match &keys.goal {
        Some(text) if !text.0.is_empty() => Ok((text.0.clone(), None)),
        Some(_) | None => Err(vec![place.blame(format!("loop `{name}` has no goal")).hint("add `goal = \"…\"`")]),
    }
}

/// Turns that cost nothing need neither gap nor caps; values that were set explicitly stay.
fn relax(values: &mut Layer, all_free: bool) {
    let gap_zero = values.is_explicit("guard.min_gap")
        && values.0["guard.min_gap"]
            .value
            .as_str()
            .is_some_and(|text| everloop_core::time::parse_duration(text).is_ok_and(|gap| gap.is_zero()));
    if !all_free && !gap_zero {
        return;
    }
    for (key, free) in guard_layer(&GuardSpec::default().free(), &Origin::Free).0 {
        let differs = values.0.get(&key).is_none_or(|now| now.value != free.value);
        if differs && !values.is_explicit(&key) {
            values.0.insert(key, free);
        }
    }
}

fn checks(name: &str, keys: &LoopKeys, values: &Layer, wrong: &mut Vec<Diagnostic>) -> Vec<CheckSpec> {
    let plain = keys.checks.iter().flat_map(|list| &list.0);
    let mut read = |text: &String| {
        check_line::read(text).unwrap_or_else(|why| {
            let hint = "write `NAME, TIME, parallel :: COMMAND`, or only the command";
            wrong.push(values.origin("checks").blame(format!("check `{text}`: {why}")).hint(hint));
            CheckKeys::default()
        })
    };
    let plain: Vec<CheckKeys> = plain.map(&mut read).collect();
    let mut specs: Vec<CheckSpec> = Vec::new();
    let full: Vec<&CheckKeys> = keys.check.iter().flatten().collect();
    let given: Vec<&str> = full.iter().filter_map(|c| c.name.as_ref()).map(|text| text.0.as_str()).collect();
    for check in plain.iter().chain(full.iter().copied()) {
        let run = check.run.as_ref().map(|text| text.0.clone()).unwrap_or_default();
        let taken = |name: &str| specs.iter().any(|c| c.name == name) || given.contains(&name);
        let own = check.name.as_ref().map(|text| text.0.trim().to_owned());
        if let Some(own) = own.as_ref().filter(|own| specs.iter().any(|c| c.name == **own)) {
            let diagnostic = values.origin("check").blame(format!("two checks of `{name}` are called `{own}`"));
            wrong.push(diagnostic.hint("give each check a name of its own"));
        }
        let name = own.unwrap_or_else(|| naming::unique(&naming::short(&run), taken));
        let timeout = check.timeout.map_or(CHECK_TIMEOUT, |span| span.0);
        let weight = check.weight.map_or(1, |count| count.0);
        let evidence = check.evidence.as_ref().map(|text| text.0.clone());
        if let Some(error) = evidence.as_ref().and_then(|pattern| evidence_pattern(pattern).err()) {
            wrong.push(values.origin("check").blame(error.to_string()).hint("see `evidence` in docs/config.md"));
        }
        let proof = Proof { evidence, min_tests: check.min_tests.map(|count| count.0) };
        let parallel = check.parallel.is_some_and(|flag| flag.0);
        specs.push(CheckSpec { name, run, timeout, weight, pin: String::new(), proof, parallel });
    }
    specs
}

fn workspace(keys: &LoopKeys, dir: &Path) -> WorkspacePlan {
    let own = keys.protect.iter().flat_map(|list| list.0.iter().cloned());
    let mut protect: Vec<String> = PROTECTED.iter().map(|glob| (*glob).to_owned()).chain(own).collect();
    let mut unprotect = keys.unprotect.as_ref().map(|list| list.0.clone()).unwrap_or_default();
    // Taking back a glob by its own text is the same as never having it; other globs are
    // exceptions.
    let named = |glob: &String| unprotect.contains(glob);
    let dropped: Vec<String> = protect.iter().filter(|glob| named(glob)).cloned().collect();
    protect.retain(|glob| !dropped.contains(glob));
    unprotect.retain(|glob| !dropped.contains(glob));
    let inside = keys.dir.as_ref().map_or(".", |text| text.0.as_str());
    WorkspacePlan {
        dir: if inside == "." { dir.to_owned() } else { dir.join(inside) },
        kind: keys.workspace.unwrap_or(WorkspaceKey::Auto),
        integrate: keys.integrate.map_or(Integrate::Progress, Integrate::from),
        setup: keys.setup.as_ref().map(|text| text.0.clone()),
        include_dirty: keys.include_dirty.is_some_and(|flag| flag.0),
        protect,
        unprotect,
        cache: keys.check_cache.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
        author: keys.commit_author.as_ref().and_then(|text| CommitAuthor::parse(&text.0)).unwrap_or_default(),
    }
}

fn guard(keys: &LoopKeys, values: &Layer, wrong: &mut Vec<Diagnostic>) -> GuardSpec {
    let mut spec = GuardSpec::default();
    let applied = keys.guard.as_ref().map_or(Ok(()), |set| set.apply(&mut spec));
    wrong.extend(applied.err().map(Diagnostic::new));
    spec.budget.calls = keys.max_calls.and_then(|l| l.0);
    spec.budget.tokens = keys.max_tokens.and_then(|l| l.0);
    spec.budget.microusd = keys.max_usd.and_then(|d| d.0);
    let starting = &mut spec.phases.starting;
    starting.soft = starting.soft.min(starting.hard);
    if let Some(bucket) = &spec.bucket
        && (bucket.burst == 0 || bucket.every.is_zero())
    {
        let (there, missing) =
            if bucket.burst > 0 { ("bucket_burst", "bucket_every") } else { ("bucket_every", "bucket_burst") };
        let diagnostic = values.origin(&format!("guard.{there}")).blame(format!("`{there}` needs `{missing}`"));
        wrong.push(diagnostic.hint(format!("set `{missing}` too")));
    }
    ordered(&spec, values, wrong);
    spec
}

/// A doubling wait with a cap below its first step is a mistake.
fn ordered(spec: &GuardSpec, values: &Layer, wrong: &mut Vec<Diagnostic>) {
    for (low, low_is, high, high_is) in [
        ("backoff_first", spec.backoff_first, "backoff_cap", spec.backoff_cap),
        ("cooldown_first", spec.cooldown.first, "cooldown_cap", spec.cooldown.cap),
    ] {
        if low_is > high_is {
            let set = if values.is_explicit(&format!("guard.{high}")) { high } else { low };
            let diagnostic = values.origin(&format!("guard.{set}")).blame(format!("`{high}` is shorter than `{low}`"));
            wrong.push(diagnostic.hint(format!("raise `{high}` or lower `{low}`")));
        }
    }
}

/// What is allowed, but takes a protection away or cannot bite.
fn blind_spots<'a>(
    agents: impl Iterator<Item = &'a AgentSpec> + Clone,
    guard: &GuardSpec,
    values: &Layer,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if guard.min_gap.is_zero() {
        let why = match values.origin("guard.min_gap") {
            Origin::Free => {
                let names: Vec<String> = agents.clone().map(|agent| format!("`{}`", agent.name)).collect();
                format!("agent {} is marked `free`", names.join(", "))
            }
            origin => origin.to_string(),
        };
        warnings.push(format!("turns start without a minimum gap ({why})"));
    }
    for agent in agents {
        let (tokens, dollars) = reports(agent);
        let blind = [
            (guard.budget.microusd.is_some() && agent.turn_microusd == 0 && !dollars, "max_usd", "usd_per_turn"),
            (guard.budget.tokens.is_some() && agent.turn_tokens == 0 && !tokens, "max_tokens", "tokens_per_turn"),
        ];
        for (_, bound, price) in blind.iter().filter(|(is_blind, _, _)| *is_blind) {
            let unless = format!("unless agent `{}` reports what it used; set `{price}`", agent.name);
            warnings.push(format!("`{bound}` cannot end the loop {unless}"));
        }
    }
    warnings
}

/// Whether the tokens that an agent used are known, and the dollars that they cost: by its own report
/// or by prices. Which model a CLI takes by itself is known only once it works.
fn reports(agent: &AgentSpec) -> (bool, bool) {
    let priced = agent.model.is_none() || prices::rates(agent, None).is_some();
    match agent.stream_kind() {
        AgentKind::Claude | AgentKind::Opencode => (true, true),
        AgentKind::Codex | AgentKind::Gemini | AgentKind::Copilot | AgentKind::Api => (true, priced),
        AgentKind::Command | AgentKind::Acp | AgentKind::Pane => (false, false),
    }
}
