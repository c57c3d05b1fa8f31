//! The agents of a loop: resolves `agent`, `agents` or `agent_cmd` to agents, each under its
//! account.

use std::path::Path;

use everloop_agents::agent::limits::TEXT_DIALECTS;
pub use everloop_core::spec::DEFAULT_ACCOUNT;
use everloop_core::spec::{AgentKind, AgentSpec, Tasks, Telemetry, TextLimit};
use everloop_engine::diagnostic::{ConfigError, Diagnostic};

use super::account::{self, Account};
use super::keys::{AgentKeys, LoopKeys};
use super::layer::{Layer, Origin};
use super::settings::built_in as built_in_keys;
use super::value::{AgentKindName, ApiFormat, DialectName, LimitRules, nearest};
use super::{Config, ResolveContext, naming, program};

/// The agents that are there without a section.
pub const BUILT_IN: [AgentKind; 6] =
    [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini, AgentKind::Opencode, AgentKind::Copilot, AgentKind::Api];

/// CLIs with an adapter of their own.
const CLIS: [AgentKind; 5] =
    [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini, AgentKind::Opencode, AgentKind::Copilot];

/// One agent of a loop.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub spec: AgentSpec,
    /// Its keys; `None` for a bare command.
    pub layer: Option<Layer>,
    /// The keys of its account, if that has a section.
    pub account: Option<Layer>,
    pub is_free: bool,
    pub warnings: Vec<String>,
}

/// What agents are chosen from.
pub(super) struct AgentChoices<'a> {
    /// Name of the loop.
    pub name: &'a str,
    /// Settings of the loop.
    pub values: &'a Layer,
    /// Where it stands.
    pub place: &'a Origin,
    pub config: &'a Config,
    pub moment: &'a ResolveContext,
}

/// The kind of an agent without the key `kind`, by its name.
pub fn kind_of(name: &str) -> AgentKind {
    AgentKind::ALL.into_iter().find(|kind| kind.label() == name).unwrap_or_default()
}

/// An agent that exists without a section, with its defaults.
pub fn built_in(kind: AgentKind) -> AgentSpec {
    let keys = AgentKeys { kind: Some(AgentKindName(kind)), ..AgentKeys::default() };
    let mut agent = spec(kind.label(), keys, &Account::default());
    agent.login = login_env(&agent);
    agent
}

/// The key that an agent cannot be without.
pub(super) fn needs(name: &str, kind: Option<&str>) -> Option<&'static str> {
    match kind_of(kind.unwrap_or(name)) {
        AgentKind::Command | AgentKind::Acp => Some("command"),
        AgentKind::Pane => Some("pane"),
        AgentKind::Claude
        | AgentKind::Codex
        | AgentKind::Gemini
        | AgentKind::Opencode
        | AgentKind::Copilot
        | AgentKind::Api => None,
    }
}

/// Whether a key means something for a kind.
pub(super) fn concerns(kind: AgentKind, key: &str) -> bool {
    let cli = CLIS.contains(&kind);
    match key {
        "command" => cli || matches!(kind, AgentKind::Command | AgentKind::Acp),
        "model" | "permission" | "allow" | "session_turns" => cli || matches!(kind, AgentKind::Api | AgentKind::Acp),
        "api_base" => cli || kind == AgentKind::Api,
        "dialect" | "limit_rules" => kind == AgentKind::Command,
        "api_format" | "key_env" | "ca_file" => kind == AgentKind::Api,
        "pane" => kind == AgentKind::Pane,
        "telemetry" => kind == AgentKind::Claude,
        _ => true,
    }
}

/// The variables in which a CLI finds its own login and settings.
fn login(kind: AgentKind) -> &'static [&'static str] {
    match kind {
        AgentKind::Claude => &[
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
        ],
        AgentKind::Codex => &["OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME", "OPENAI_BASE_URL"],
        AgentKind::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT"],
        // Its folders are found by `XDG_…`, which every command sees.
        AgentKind::Opencode => &["OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR"],
        AgentKind::Copilot => &[
            "COPILOT_GITHUB_TOKEN",
            "GH_TOKEN",
            "GITHUB_TOKEN",
            "COPILOT_HOME",
            "COPILOT_MODEL",
            "COPILOT_OFFLINE",
            "COPILOT_PROVIDER_BASE_URL",
            "COPILOT_PROVIDER_API_KEY",
        ],
        AgentKind::Api | AgentKind::Acp | AgentKind::Command | AgentKind::Pane => &[],
    }
}

/// All agents that may work on the loop, in the operator's order.
pub(super) fn choose(choice: &AgentChoices<'_>) -> Result<Vec<Chosen>, Vec<Diagnostic>> {
    let keys: LoopKeys = choice.values.typed().map_err(|one| vec![one])?;
    if let Some(command) = &keys.agent_cmd {
        return Ok(vec![bare(&command.0, &keys, &choice.config.dir)]);
    }
    let (key, words) = match (keys.agents.as_ref(), keys.agent.as_ref()) {
        (Some(list), _) => ("agents", list.0.clone()),
        (None, Some(one)) => ("agent", vec![one.0.clone()]),
        (None, None) => return Err(vec![nobody(choice)]),
    };
    let origin = choice.values.origin(key);
    let (mut chosen, mut wrong) = (Vec::new(), Vec::new());
    if words.is_empty() {
        wrong.push(origin.blame("`agents` is empty").hint("name at least one agent"));
    }
    for (i, word) in words.iter().enumerate() {
        if words[..i].contains(word) {
            wrong.push(origin.blame(format!("`{word}` is there twice")).hint("keep one of them"));
            continue;
        }
        match one(choice, word, origin) {
            Ok(agent) => chosen.push(agent),
            Err(mut found) => wrong.append(&mut found),
        }
    }
    if wrong.is_empty() {
        wrong.extend(uncovered(&chosen, origin));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    override_by_loop(&mut chosen, &keys);
    Ok(chosen)
}

/// A loop must have an agent for every task, or it would stop at the first task that no agent
/// takes.
fn uncovered(chosen: &[Chosen], origin: &Origin) -> Option<Diagnostic> {
    let tasks: Vec<&Tasks> = chosen.iter().map(|agent| &agent.spec.tasks).collect();
    let priority = Tasks::gap(&tasks)?;
    let message = format!("none of these agents takes a task of any kind with priority {priority}");
    let hint = "add one that has neither `kinds` nor priorities, as the last of `agents`";
    Some(origin.blame(message).hint(hint))
}

fn nobody(choice: &AgentChoices<'_>) -> Diagnostic {
    let diagnostic = choice.place.blame(format!("loop `{}` has no agent", choice.name));
    diagnostic.hint(match choice.config.agents().first() {
        Some(known) => format!("add `agent = \"{known}\"`, or pass `--agent {known}`"),
        None => "pass `--agent claude` (`everloop agents` lists what is there), or `--agent-cmd 'my-agent {prompt}'`"
            .to_owned(),
    })
}

/// A command that stands in the loop itself.
fn bare(argv: &[String], keys: &LoopKeys, dir: &Path) -> Chosen {
    let spec = AgentSpec {
        name: naming::file_name(&argv[0]).to_owned(),
        argv: argv.to_vec(),
        account: DEFAULT_ACCOUNT.to_owned(),
        program: Some(program::identity(argv, dir)),
        ..AgentSpec::default()
    };
    let mut chosen = Chosen { spec, layer: None, account: None, is_free: false, warnings: Vec::new() };
    override_by_loop(std::slice::from_mut(&mut chosen), keys);
    chosen
}

/// One agent by its word, `NAME` or `NAME@ACCOUNT`.
fn one(choice: &AgentChoices<'_>, word: &str, origin: &Origin) -> Result<Chosen, Vec<Diagnostic>> {
    let (name, wanted) = match word.split_once('@') {
        Some((name, account)) => (name, Some(account)),
        None => (word, None),
    };
    let Some(layer) = choice.config.agent(name) else {
        return Err(vec![unknown_agent(choice.config, name, origin)]);
    };
    let keys: AgentKeys = layer.typed().map_err(|one| vec![one])?;
    let mut wrong = misplaced(name, &keys, &layer);
    let own = keys.account.as_ref().map_or(DEFAULT_ACCOUNT, |text| text.0.as_str());
    let (account, said) = wanted.map_or_else(|| (own, layer.origin("account")), |account| (account, origin));
    let account = account::find(choice.config, account, said, choice.moment).unwrap_or_else(|mut found| {
        wrong.append(&mut found);
        Account::default()
    });
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut spec = spec(name, keys, &account);
    spec.program = (spec.kind == AgentKind::Command).then(|| program::identity(&spec.argv, &choice.config.dir));
    let warnings = keyless(&spec, &account).into_iter().collect();
    if account.layer.is_none() {
        spec.login = login_env(&spec);
    }
    let is_free = layer.0.get("free").and_then(|free| free.value.as_bool()).unwrap_or(false);
    Ok(Chosen { spec, layer: Some(layer), account: account.layer, is_free, warnings })
}

fn unknown_agent(config: &Config, name: &str, origin: &Origin) -> Diagnostic {
    let known = config.known_agents();
    let hint = match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known agents: {}; or add `[agent.{name}]` with its `command`", known.join(", ")),
    };
    origin.blame(format!("there is no agent `{name}`")).hint(hint)
}

/// Keys that mean nothing for this kind of agent: a limit that is not kept is worse than none.
fn misplaced(name: &str, keys: &AgentKeys, layer: &Layer) -> Vec<Diagnostic> {
    let kind = keys.kind.map(|kind| kind.0).unwrap_or_default();
    let mut wrong = Vec::new();
    for key in layer.0.keys().filter(|key| layer.is_explicit(key) && !concerns(kind, key)) {
        let message = format!("`{key}` means nothing for agent `{name}` of kind `{}`", kind.label());
        let fitting = AgentKind::ALL.into_iter().filter(|k| concerns(*k, key)).map(AgentKind::label);
        let hint = format!("remove it, or set `kind` to one of: {}", fitting.collect::<Vec<_>>().join(", "));
        wrong.push(layer.origin(key).blame(message).hint(hint));
    }
    // The agent works in a folder that its model can write to, so the model would choose the target
    // of a relative path.
    let from_there = |text: &str| !text.starts_with('/') && !text.starts_with("~/");
    if keys.ca_file.as_ref().is_some_and(|text| from_there(&text.0)) {
        let diagnostic = layer.origin("ca_file").blame("`ca_file` has to begin with `/` or `~/`");
        wrong.push(diagnostic.hint("write the whole path"));
    }
    let words = keys.command.iter().flat_map(|command| &command.0);
    let with_prompt = words.into_iter().any(|word| word.contains("{prompt}") || word.contains("{prompt_file}"));
    if kind != AgentKind::Command && with_prompt {
        let message = format!("everloop hands the prompt to `{}` by itself", kind.label());
        let hint = "remove it from the command, or set `kind = \"command\"` to drive it as any other command";
        wrong.push(layer.origin("command").blame(message).hint(hint));
    }
    wrong
}

fn spec(name: &str, keys: AgentKeys, account: &Account) -> AgentSpec {
    let kind = keys.kind.map(|kind| kind.0).unwrap_or_default();
    let argv = match kind {
        AgentKind::Api => api(&keys),
        AgentKind::Pane => vec!["pane".to_owned(), keys.pane.map(|pane| pane.0).unwrap_or_default()],
        AgentKind::Command
        | AgentKind::Claude
        | AgentKind::Codex
        | AgentKind::Gemini
        | AgentKind::Opencode
        | AgentKind::Copilot
        | AgentKind::Acp => keys.command.map_or_else(|| vec![kind.label().to_owned()], |command| command.0),
    };
    AgentSpec {
        name: name.to_owned(),
        kind,
        argv,
        model: keys.model.map(|text| text.0),
        permission: keys.permission.map(|permission| permission.0).unwrap_or_default(),
        allow: keys.allow.map(|list| list.0).unwrap_or_default(),
        pass_env: keys.pass_env.map(|list| list.0).unwrap_or_default(),
        login: Vec::new(),
        account: account.name.clone(),
        env: account.env.clone(),
        api_base: keys.api_base.map(|text| text.0),
        session_turns: keys.session_turns.map_or(0, |count| count.0),
        turn_microusd: keys.usd_per_turn.map_or(0, |price| price.0),
        turn_tokens: keys.tokens_per_turn.map_or(0, |amount| amount.0),
        prices: keys.prices.map(|list| list.0),
        tasks: Tasks {
            kinds: keys.kinds.map(|list| list.0).unwrap_or_default(),
            min_priority: keys.min_priority.map(|n| n.0),
            max_priority: keys.max_priority.map(|n| n.0),
        },
        dialect: match keys.dialect {
            Some(DialectName::Stream(kind)) => Some(kind),
            Some(DialectName::Text(_)) | None => None,
        },
        limit_rules: limit_rules(keys.dialect, keys.limit_rules),
        telemetry: keys.telemetry.filter(|wanted| !wanted.0).map_or(Telemetry::On, |_| Telemetry::Off),
        program: None,
    }
}

/// The configured sentences, then those of a program that everloop knows.
fn limit_rules(dialect: Option<DialectName>, own: Option<LimitRules>) -> Vec<TextLimit> {
    let known =
        TEXT_DIALECTS.iter().filter(|(name, _)| matches!(dialect, Some(DialectName::Text(text)) if text == *name));
    let known =
        known.flat_map(|(_, rules)| *rules).map(|(class, says)| TextLimit { says: (*says).to_owned(), class: *class });
    own.map(|rules| rules.0).unwrap_or_default().into_iter().chain(known).collect()
}

/// The CLI that an agent runs: for one that speaks a protocol, by the name of its program.
fn cli_of(spec: &AgentSpec) -> AgentKind {
    match spec.kind {
        AgentKind::Acp => spec.argv.first().map(|program| kind_of(naming::file_name(program))).unwrap_or_default(),
        kind => kind,
    }
}

/// The words for our own agent.
fn api(keys: &AgentKeys) -> Vec<String> {
    let (format, key) = match keys.api_format.unwrap_or(ApiFormat::Messages) {
        ApiFormat::Messages => ("messages", "ANTHROPIC_API_KEY"),
        ApiFormat::Responses => ("responses", "OPENAI_API_KEY"),
    };
    let key = keys.key_env.as_ref().map_or(key, |text| text.0.as_str());
    let trusted = keys.ca_file.iter().flat_map(|text| ["--ca-file", text.0.as_str()]);
    ["api", "--api-format", format].into_iter().chain(trusted).chain(["--key-env", key]).map(str::to_owned).collect()
}

/// The variable in which our own agent looks for its key: its last word.
fn key_env(spec: &AgentSpec) -> Option<&String> {
    (spec.kind == AgentKind::Api).then(|| spec.argv.last()).flatten()
}

/// What an agent needs to find the login of this machine.
fn login_env(spec: &AgentSpec) -> Vec<String> {
    let known = login(cli_of(spec)).iter().map(|name| (*name).to_owned());
    let mut names: Vec<String> = known.chain(key_env(spec).cloned()).collect();
    names.retain(|name| !spec.pass_env.contains(name));
    names.sort();
    names.dedup();
    names
}

fn keyless(spec: &AgentSpec, account: &Account) -> Option<String> {
    let key = key_env(spec).filter(|_| account.layer.is_some())?;
    let there = spec.env.iter().any(|v| v.name == *key) || spec.pass_env.contains(key);
    (!there).then(|| {
        format!("account `{}` does not set `{key}`, where agent `{}` looks for its key", account.name, spec.name)
    })
}

/// The loop's settings for its agents override the settings of the agents.
fn override_by_loop(chosen: &mut [Chosen], keys: &LoopKeys) {
    let first = chosen.first().map(|agent| agent.spec.kind).unwrap_or_default();
    for agent in chosen.iter_mut() {
        let (kind, name) = (agent.spec.kind, agent.spec.name.clone());
        let mut fits = |key: &str, is_set: bool| {
            if is_set && !concerns(kind, key) {
                agent.warnings.push(format!("`{key}` has no effect on agent `{name}`: it runs as it is"));
            }
            is_set && concerns(kind, key)
        };
        let model = fits("model", keys.model.is_some() && kind == first);
        let permission = fits("permission", keys.permission.is_some());
        let allow = fits("allow", keys.allow.is_some());
        if let (Some(text), true) = (&keys.model, model) {
            agent.spec.model = Some(text.0.clone());
        }
        if let (Some(wanted), true) = (keys.permission, permission) {
            agent.spec.permission = wanted.0;
        }
        if let (Some(list), true) = (&keys.allow, allow) {
            agent.spec.allow.clone_from(&list.0);
        }
    }
}

/// What is wrong with agents and accounts of the files, also with those that no loop uses.
pub(super) fn check_all(config: &Config, moment: &ResolveContext) -> Vec<Diagnostic> {
    let (values, place) = (Layer::default(), Origin::BuiltIn);
    let choice = AgentChoices { name: "", values: &values, place: &place, config, moment };
    let agents = config.agents();
    let agents = agents.iter().filter_map(|name| one(&choice, name, &place).err());
    let accounts = config.accounts();
    let accounts = accounts.iter().filter_map(|name| account::find(config, name, &place, moment).err());
    agents.chain(accounts).flatten().collect()
}

impl Config {
    /// The keys of an agent, the project's over the user's.
    pub(super) fn agent(&self, name: &str) -> Option<Layer> {
        let mine = [&self.user, &self.project].map(|file| file.agents.get(name));
        let is_known = mine.iter().any(Option::is_some) || BUILT_IN.iter().any(|kind| kind.label() == name);
        is_known.then(|| {
            let mut layer = built_in_keys::<AgentKeys>();
            layer.set("kind", kind_of(name).label(), Origin::BuiltIn);
            mine.into_iter().flatten().for_each(|upper| layer.lay(upper));
            let kind = kind_of(layer.0["kind"].value.as_str().unwrap_or_default());
            layer.0.retain(|key, sourced| concerns(kind, key) || sourced.origin != Origin::BuiltIn);
            layer
        })
    }

    /// Every agent that can be selected, under its own account, and those that loops of the file
    /// use under other accounts.
    pub fn all_agents(&self, moment: &ResolveContext) -> Result<Vec<AgentSpec>, ConfigError> {
        let (values, place) = (Layer::default(), Origin::BuiltIn);
        let choice = AgentChoices { name: "", values: &values, place: &place, config: self, moment };
        let mut all: Vec<AgentSpec> = Vec::new();
        for name in self.known_agents() {
            let chosen = one(&choice, &name, &place).map_err(|diagnostics| ConfigError { diagnostics })?;
            all.push(chosen.spec);
        }
        for resolved in self.check(moment)? {
            for agent in resolved.agents() {
                if !all.iter().any(|a| (&a.name, &a.account) == (&agent.name, &agent.account)) {
                    all.push(agent.clone());
                }
            }
        }
        all.sort_by(|a, b| (&a.name, &a.account).cmp(&(&b.name, &b.account)));
        Ok(all)
    }

    /// The names of the agents in the files.
    pub fn agents(&self) -> Vec<String> {
        let mut names: Vec<String> = self.user.agents.keys().chain(self.project.agents.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// The names of all agents that can be selected.
    pub fn known_agents(&self) -> Vec<String> {
        let mut names = self.agents();
        names.extend(BUILT_IN.iter().map(|kind| kind.label().to_owned()));
        names.sort();
        names.dedup();
        names
    }
}
