//! Reads a configuration file into layers. Finds as many mistakes as it can, each with its place.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use everloop_engine::diagnostic::{Diagnostic, SourceText};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::agent;
use super::guard::GuardKeys;
use super::keys::{
    AccountKeys, AgentKeys, BoardKeys, CheckKeys, CompletionKeys, GatewayKeys, GuardianKeys, HookKeys, HubKeys,
    IsolationKeys, LoopKeys, MailboxKeys, MonitorKeys, NodeKeys, OtelKeys, TrackerKeys,
};
use super::layer::{AGENT_KEYS, Layer, Origin};
use super::notify::NotifyKeys;
use super::persona::PersonaKeys;
use super::renamed;
use super::research::ResearchKeys;
use super::route::RouteKeys;
use super::settings::{Section, meaning, names};
use super::value::nearest;

/// The section of a notifier, as it stands in the file.
const NOTIFY: &str = "[notify]";

/// Names longer than this do not fit into listings.
const NAME_MAX_CHARS: usize = 40;

/// The owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// The user's: defaults, agents and accounts only.
    User,
    /// The project's file.
    Project,
}

/// The sections of a file.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    /// The section `[defaults]`.
    pub defaults: Layer,
    /// The sections `[agent.NAME]`.
    pub agents: BTreeMap<String, Layer>,
    /// The mistake in an `[agent.NAME]`, unless another file sets the key that is missing here.
    pub lacking: BTreeMap<String, Diagnostic>,
    /// The sections `[account.NAME]`.
    pub accounts: BTreeMap<String, Layer>,
    /// The section `[hub]`.
    pub hub: Layer,
    /// `[loop.NAME]`, with the place of the name.
    pub loops: BTreeMap<String, (Layer, Origin)>,
    /// `[research.NAME]`: the keys of a loop, the keys of the metric, and the place of the name.
    pub research: BTreeMap<String, (Layer, Layer, Origin)>,
    /// `[persona.NAME]`: the keys of a loop, the keys of its rhythm, and the place of the name.
    pub personas: BTreeMap<String, (Layer, Layer, Origin)>,
    /// `[[route]]`, each with its place.
    pub routes: Vec<(Layer, Origin)>,
    /// The section `[node]`.
    pub node: Layer,
    /// The section `[gateway]`.
    pub gateway: Layer,
    /// The section `[otel]`.
    pub otel: Layer,
    /// The section `[board]`.
    pub board: Layer,
    /// The section `[mailbox]`.
    pub mailbox: Layer,
    /// The section `[tracker]`.
    pub tracker: Layer,
    /// `[[notify]]`, each with its place.
    pub notify: Vec<(Layer, Origin)>,
    /// The section `[hook]`.
    pub hook: Layer,
    /// The section `[guardian]`.
    pub guardian: Layer,
    /// The sections `[completion.NAME]`.
    pub completions: BTreeMap<String, Layer>,
}

/// Reads a file; what could be read is returned beside what is wrong with the rest.
pub fn read(source: &Arc<SourceText>, owner: FileOwner) -> (Sections, Vec<Diagnostic>) {
    let (root, errors) = DeTable::parse_recoverable(&source.text);
    let mut reader = Reader { source, owner, diagnostics: Vec::new() };
    for error in &errors {
        reader.syntax(error);
    }
    // The keys of a section that is there twice are there twice too; once is enough.
    if reader.diagnostics.iter().any(|d| d.message.starts_with("section ")) {
        reader.diagnostics.retain(|d| !d.message.starts_with("key "));
    }
    // After a syntax error the rest is a guess of the parser: mistakes found in it would mislead.
    let sections = if reader.diagnostics.is_empty() { reader.file(root.get_ref()) } else { Sections::default() };
    (sections, reader.diagnostics)
}

/// Checks whether a value fits a key of a section.
pub fn fits<T: DeserializeOwned>(key: &str, value: &Value) -> Result<(), (String, Option<String>)> {
    let table = Table::from_iter([(key.to_owned(), value.clone())]);
    T::deserialize(Value::Table(table)).map(drop).map_err(|error| match error.message().split_once("; ") {
        Some((what, instead)) => (what.to_owned(), Some(instead.to_owned())),
        None => (error.message().to_owned(), None),
    })
}

/// The keys of a table that are of its own kind, and the others. A key of neither kind is where it
/// is likelier to belong.
fn parted<'i>(table: &DeTable<'i>, own: &[&str]) -> (DeTable<'i>, DeTable<'i>) {
    let is_own = |key: &str| {
        let of_loops = names::<LoopKeys>().contains(&key) || names::<GuardKeys>().contains(&key);
        own.contains(&key) || !of_loops && nearest(key, own.iter().copied()).is_some()
    };
    let (mut of_kind, mut rest) = (DeTable::new(), DeTable::new());
    for (key, value) in table {
        let part = if is_own(key.get_ref()) { &mut of_kind } else { &mut rest };
        part.insert(key.clone(), value.clone());
    }
    (of_kind, rest)
}

struct Reader<'a> {
    source: &'a Arc<SourceText>,
    owner: FileOwner,
    diagnostics: Vec<Diagnostic>,
}

type Entry<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

impl Reader<'_> {
    fn report(&mut self, span: &Range<usize>, message: impl Into<String>, hint: Option<String>) {
        let mut diagnostic = Diagnostic::new(message).at(self.source, span);
        diagnostic.hint = hint;
        self.diagnostics.push(diagnostic);
    }

    fn syntax(&mut self, error: &toml::de::Error) {
        let span = error.span().unwrap_or(0..0);
        let near = &self.source.text[span.clone()];
        let (message, hint) = match error.message() {
            "duplicate key" => {
                let line = self.source.place(&span).excerpt;
                let what = if line.trim_start().starts_with('[') { "section" } else { "key" };
                (format!("{what} `{near}` is there twice"), Some("keep one of them".to_owned()))
            }
            other => {
                let hint = if other.contains("string") {
                    "texts stand in quotes: `key = \"value\"`"
                } else {
                    "sections are written `[name]`, values `key = value`, one per line"
                };
                (format!("not valid TOML: {}", other.lines().collect::<Vec<_>>().join(", ")), Some(hint.to_owned()))
            }
        };
        self.report(&span, message, hint);
    }

    fn origin(&self, span: Range<usize>) -> Origin {
        Origin::File { source: Arc::clone(self.source), span }
    }

    fn file(&mut self, root: &DeTable<'_>) -> Sections {
        let mut sections = Sections::default();
        for (key, value) in in_order(root) {
            match key.get_ref().as_ref() {
                "defaults" => {
                    if let Some(table) = self.table("defaults", value) {
                        let layer = self.loop_section("defaults", table);
                        sections.defaults.lay(&layer);
                    }
                }
                "isolation" => self.isolation_section(value, &mut sections.defaults),
                "agent" => {
                    for (name, span, table) in self.named("agent", value) {
                        let place = format!("agent.{name}");
                        let mut layer = Layer::default();
                        self.section::<AgentKeys>(&Here::new(&place), table, &mut layer);
                        let needed = agent::needs(&name, table.get("kind").and_then(|kind| kind.get_ref().as_str()));
                        if let Some(lack) = needed.and_then(|key| self.lacks((&place, &span), table, key)) {
                            sections.lacking.insert(name.clone(), lack);
                        }
                        sections.agents.insert(name, layer);
                    }
                }
                "account" => self.account_sections(value, &mut sections),
                "hub" => {
                    if let Some(table) = self.table("hub", value) {
                        sections.hub = self.hub_section(table);
                    }
                }
                "node" => self.whole::<NodeKeys>(("node", value), &mut sections.node),
                "gateway" => self.whole::<GatewayKeys>(("gateway", value), &mut sections.gateway),
                "otel" => self.whole::<OtelKeys>(("otel", value), &mut sections.otel),
                "board" => self.whole::<BoardKeys>(("board", value), &mut sections.board),
                "mailbox" => self.whole::<MailboxKeys>(("mailbox", value), &mut sections.mailbox),
                "tracker" => self.whole::<TrackerKeys>(("tracker", value), &mut sections.tracker),
                "notify" => sections.notify = self.listed::<NotifyKeys>("notify", NOTIFY, value),
                "route" if self.owner == FileOwner::Project => {
                    sections.routes = self.listed::<RouteKeys>("route", "[route]", value);
                }
                "loop" if self.owner == FileOwner::Project => {
                    for (name, span, table) in self.named("loop", value) {
                        let layer = self.loop_section(&format!("loop.{name}"), table);
                        sections.loops.insert(name, (layer, self.origin(span)));
                    }
                }
                "research" if self.owner == FileOwner::Project => self.research_sections(value, &mut sections),
                "persona" if self.owner == FileOwner::Project => self.persona_sections(value, &mut sections),
                "hook" if self.owner == FileOwner::Project => {
                    self.whole::<HookKeys>(("hook", value), &mut sections.hook);
                }
                "guardian" if self.owner == FileOwner::Project => {
                    self.whole::<GuardianKeys>(("guardian", value), &mut sections.guardian);
                }
                "completion" if self.owner == FileOwner::Project => {
                    for (name, _, table) in self.named("completion", value) {
                        let mut layer = Layer::default();
                        self.section::<CompletionKeys>(&Here::new(&format!("completion.{name}")), table, &mut layer);
                        sections.completions.insert(name, layer);
                    }
                }
                "loop" | "research" | "persona" | "route" => {
                    let hint = "move it to the `everloop.toml` of its project".to_owned();
                    self.report(&key.span(), "a loop stands in the file of the user", Some(hint));
                }
                unknown => self.unknown_section(unknown, &key.span(), value.get_ref()),
            }
        }
        sections
    }

    /// The keys of a run are those of a loop and those of its metric; what is in neither is reported
    /// where it is likelier to belong.
    fn research_sections(&mut self, value: &Spanned<DeValue<'_>>, sections: &mut Sections) {
        let own = names::<ResearchKeys>();
        for (name, span, table) in self.named("research", value) {
            let place = format!("research.{name}");
            if sections.loops.contains_key(&name) {
                let hint = "give one of them another name".to_owned();
                self.report(&span, format!("`{name}` is the name of a loop, too"), Some(hint));
            }
            let (metric, rest) = parted(table, &own);
            let mut layer = Layer::default();
            self.section::<ResearchKeys>(&Here::new(&place), &metric, &mut layer);
            let of_loop = self.loop_section(&place, &rest);
            sections.research.insert(name, (of_loop, layer, self.origin(span)));
        }
    }

    fn account_sections(&mut self, value: &Spanned<DeValue<'_>>, sections: &mut Sections) {
        for (name, _, table) in self.named("account", value) {
            let mut layer = Layer::default();
            self.section::<AccountKeys>(&Here::new(&format!("account.{name}")), table, &mut layer);
            sections.accounts.insert(name, layer);
        }
    }

    /// The keys of a persona are those of a loop and those of its rhythm.
    fn persona_sections(&mut self, value: &Spanned<DeValue<'_>>, sections: &mut Sections) {
        let own = names::<PersonaKeys>();
        for (name, span, table) in self.named("persona", value) {
            let place = format!("persona.{name}");
            if sections.loops.contains_key(&name) || sections.research.contains_key(&name) {
                let hint = "give one of them another name".to_owned();
                self.report(&span, format!("`{name}` is the name of a loop, too"), Some(hint));
            }
            if let Some((key, _)) = table.iter().find(|(key, _)| key.get_ref() == "goal") {
                let hint = "write it as `charter`".to_owned();
                self.report(&key.span(), "a persona has no goal, because it has no end", Some(hint));
            }
            let (rhythm, rest) = parted(table, &own);
            let mut layer = Layer::default();
            self.section::<PersonaKeys>(&Here::new(&place), &rhythm, &mut layer);
            let of_loop = self.loop_section(&place, &rest);
            sections.personas.insert(name, (of_loop, layer, self.origin(span)));
        }
    }

    /// `[isolation]` stands for the section of the same name in the defaults of loops.
    fn isolation_section(&mut self, value: &Spanned<DeValue<'_>>, defaults: &mut Layer) {
        if let Some(table) = self.table("isolation", value) {
            let here = Here { place: "isolation", prefix: "isolation." };
            self.section::<IsolationKeys>(&here, table, defaults);
        }
    }

    /// A section that is there once.
    fn whole<T: Section>(&mut self, (name, value): (&str, &Spanned<DeValue<'_>>), layer: &mut Layer) {
        if let Some(table) = self.table(name, value) {
            self.section::<T>(&Here::new(name), table, layer);
        }
    }

    fn unknown_section(&mut self, name: &str, span: &Range<usize>, value: &DeValue<'_>) {
        let known = [
            "defaults",
            "isolation",
            "agent",
            "account",
            "loop",
            "research",
            "persona",
            "route",
            "node",
            "gateway",
            "otel",
            "hub",
            "board",
            "mailbox",
            "tracker",
            "notify",
            "hook",
            "guardian",
            "completion",
        ];
        if value.as_table().is_none() {
            let hint = if names::<LoopKeys>().contains(&name) {
                "put it below `[loop.NAME]`, or below `[defaults]` for all loops"
            } else {
                "every key belongs to a section: `[defaults]`, `[agent.NAME]`, `[account.NAME]` or `[loop.NAME]`"
            };
            return self.report(span, format!("key `{name}` stands outside of any section"), Some(hint.to_owned()));
        }
        let hint = match nearest(name, known) {
            Some(whole @ ("defaults" | "isolation" | "node" | "gateway" | "otel" | "hub" | "board" | "mailbox" | "tracker" | "hook" | "guardian")) => format!("did you mean `[{whole}]`?"),
            Some(list @ ("notify" | "route")) => format!("did you mean `[[{list}]]`?"),
            Some(known) => format!("did you mean `[{known}.NAME]`?"),
            None => "there are `[defaults]`, `[isolation]`, `[agent.NAME]`, `[account.NAME]`, `[loop.NAME]`, `[research.NAME]`, `[persona.NAME]`, `[[route]]`, `[node]`, `[gateway]`, `[otel]`, `[hub]`, `[board]`, `[mailbox]`, `[tracker]`, `[[notify]]`, `[hook]`, `[guardian]` and `[completion.NAME]`"
                .to_owned(),
        };
        self.report(span, format!("unknown section `{name}`"), Some(hint));
    }

    fn table<'a, 'i>(&mut self, name: &str, value: &'a Spanned<DeValue<'i>>) -> Option<&'a DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let hint = format!("write it as `[{name}]` with its keys below");
            self.report(&value.span(), format!("`{name}` must be a section"), Some(hint));
        }
        table
    }

    /// The sections `[kind.NAME]` with good names.
    fn named<'a, 'i>(
        &mut self,
        kind: &str,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Vec<(String, Range<usize>, &'a DeTable<'i>)> {
        let Some(table) = self.table(&format!("{kind}.NAME"), value) else { return Vec::new() };
        let mut found = Vec::new();
        for (key, value) in in_order(table) {
            let name = key.get_ref().to_string();
            if value.get_ref().as_table().is_none() {
                let hint = format!("sections are called `[{kind}.NAME]`; put the key below one");
                self.report(&key.span(), format!("key `{name}` stands in `[{kind}]`"), Some(hint));
                continue;
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if name.is_empty() || name.chars().count() > NAME_MAX_CHARS || !name.chars().all(plain) {
                let hint = format!("use up to {NAME_MAX_CHARS} letters, digits, `-` and `_`");
                self.report(&key.span(), format!("`{name}` is not a good name"), Some(hint));
            }
            if let Some(table) = self.table(&format!("{kind}.{name}"), value) {
                found.push((name, key.span(), table));
            }
        }
        found
    }

    fn loop_section(&mut self, place: &str, table: &DeTable<'_>) -> Layer {
        let mut layer = Layer::default();
        self.section::<LoopKeys>(&Here::new(place), table, &mut layer);
        let ways: Vec<&str> = AGENT_KEYS.into_iter().filter(|key| layer.0.contains_key(*key)).collect();
        if let [one, other, ..] = ways.as_slice() {
            let message = format!("`[{place}]` has both `{one}` and `{other}`");
            let hint = match *other {
                "agents" => "keep one of them; `agents` may have a single agent too",
                _ => "keep one of them",
            };
            self.diagnostics.push(layer.origin(other).blame(message).hint(hint));
        }
        layer
    }

    /// No diagnostic of this section shows a value: it may be the address with its password.
    fn hub_section(&mut self, table: &DeTable<'_>) -> Layer {
        let mut layer = Layer::default();
        let before = self.diagnostics.len();
        if let Some((key, _)) = in_order(table).into_iter().find(|(key, _)| key.get_ref() == "url") {
            let hint = "it holds a password: use `url_env = \"NAME\"` or `url_file = \"PATH\"`".to_owned();
            self.report(&key.span(), "the address of the hub stands in the file", Some(hint));
        } else {
            self.section::<HubKeys>(&Here::new("hub"), table, &mut layer);
        }
        if layer.0.len() > 1 {
            let message = "`[hub]` has both `url_env` and `url_file`";
            self.diagnostics.push(layer.origin("url_file").blame(message).hint("keep one of them"));
        }
        for diagnostic in &mut self.diagnostics[before..] {
            diagnostic.place.as_mut().into_iter().for_each(|place| place.hide_value());
        }
        layer
    }

    /// Reads the keys of a section into a layer; sections inside it too.
    fn section<T: Section>(&mut self, here: &Here<'_>, table: &DeTable<'_>, layer: &mut Layer) {
        let known = names::<T>();
        for (key, value) in in_order(table) {
            let name = key.get_ref().as_ref();
            match name {
                _ if !known.contains(&name) => self.unknown_key(here, name, &key.span(), &known),
                "guard" => {
                    let place = format!("{}.guard", here.place);
                    if let Some(table) = self.table(&place, value) {
                        self.section::<GuardKeys>(&Here { place: &place, prefix: "guard." }, table, layer);
                    }
                }
                // Of a loop it is a section, of a command a single key.
                "isolation" if known.contains(&"guard") => {
                    let place = format!("{}.isolation", here.place);
                    if let Some(table) = self.table(&place, value) {
                        self.section::<IsolationKeys>(&Here { place: &place, prefix: "isolation." }, table, layer);
                    }
                }
                "check" => self.tables::<CheckKeys>((here.place, "check", Some("run")), value, layer),
                "monitor" => self.tables::<MonitorKeys>((here.place, "monitor", None), value, layer),
                _ => self.key::<T>(here, (key, value), layer),
            }
        }
    }

    /// A section that may occur several times, with two brackets, and the key that each of them
    /// must have.
    fn tables<T: Section>(
        &mut self,
        (place, name, needed): (&str, &str, Option<&str>),
        value: &Spanned<DeValue<'_>>,
        layer: &mut Layer,
    ) {
        let place = format!("[{place}.{name}]");
        let Some(items) = value.get_ref().as_array() else {
            let hint = format!("write it as `[{place}]`, with two brackets and the keys below");
            return self.report(&value.span(), format!("`{name}` must be a list of sections"), Some(hint));
        };
        for item in items {
            let Some(table) = self.table(&place, item) else { continue };
            self.section::<T>(&Here::new(&place), table, &mut Layer::default());
            if let Some(key) = needed {
                self.need((&place, &item.span()), table, key);
            }
        }
        layer.set(name, plain(value), self.origin(value.span()));
    }

    fn listed<T: Section>(&mut self, name: &str, place: &str, value: &Spanned<DeValue<'_>>) -> Vec<(Layer, Origin)> {
        let Some(items) = value.get_ref().as_array() else {
            let hint = format!("write it as `[[{name}]]`, with two brackets and the keys below");
            self.report(&value.span(), format!("`{name}` must be a list of sections"), Some(hint));
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in items {
            let Some(table) = self.table(place, item) else { continue };
            let mut layer = Layer::default();
            self.section::<T>(&Here::new(place), table, &mut layer);
            found.push((layer, self.origin(item.span())));
        }
        found
    }

    fn key<T: Section>(&mut self, here: &Here<'_>, (key, value): Entry<'_, '_>, layer: &mut Layer) {
        let name = key.get_ref().as_ref();
        let plain = plain(value);
        match fits::<T>(name, &plain) {
            Ok(()) => layer.set(format!("{}{name}", here.prefix), plain, self.origin(key.span())),
            Err((what, hint)) => {
                let hint = hint.or_else(|| meaning::<T>(name).map(|words| format!("`{name}` means: {words}")));
                let secretive = here.place.starts_with("account.") || here.place == NOTIFY || name == "key_env";
                let span = if secretive { key.span() } else { value.span() };
                self.report(&span, format!("wrong value for `{name}`: {what}"), hint);
                if let Some(place) = self.diagnostics.last_mut().and_then(|d| d.place.as_mut()).filter(|_| secretive) {
                    place.hide_value();
                }
            }
        }
    }

    fn need(&mut self, place: (&str, &Range<usize>), table: &DeTable<'_>, key: &str) {
        self.diagnostics.extend(self.lacks(place, table, key));
    }

    fn lacks(&self, (place, span): (&str, &Range<usize>), table: &DeTable<'_>, key: &str) -> Option<Diagnostic> {
        // A mistyped key has been reported already.
        let meant = table.keys().any(|there| nearest(there.get_ref(), [key]).is_some());
        let diagnostic = Diagnostic::new(format!("`[{place}]` has no `{key}`")).at(self.source, span);
        (!meant).then(|| diagnostic.hint(format!("add `{key} = \"…\"`")))
    }

    fn unknown_key(&mut self, here: &Here<'_>, name: &str, span: &Range<usize>, known: &[&str]) {
        let home = || {
            let outer = here
                .place
                .trim_matches(['[', ']'])
                .trim_end_matches(".guard")
                .trim_end_matches(".check")
                .trim_end_matches(".monitor");
            let apart = outer.starts_with("agent.") || outer.starts_with("account.");
            let section = if apart { "loop.NAME" } else { outer };
            match () {
                () if names::<GuardKeys>().contains(&name) => Some(format!("it belongs into `[{section}.guard]`")),
                () if names::<AgentKeys>().contains(&name) => Some("it belongs into `[agent.NAME]`".to_owned()),
                () if names::<CheckKeys>().contains(&name) => Some(format!("it belongs into `[[{section}.check]]`")),
                () if names::<MonitorKeys>().contains(&name) => {
                    Some(format!("it belongs into `[[{section}.monitor]]`"))
                }
                () if names::<IsolationKeys>().contains(&name) => Some("it belongs into `[isolation]`".to_owned()),
                () if names::<LoopKeys>().contains(&name) => Some(format!("it belongs into `[{section}]`")),
                () if names::<AccountKeys>().contains(&name) => Some("it belongs into `[account.NAME]`".to_owned()),
                () if names::<NodeKeys>().contains(&name) => Some("it belongs into `[node]`".to_owned()),
                () => None,
            }
        };
        let hint = renamed::new_name(here.place, name)
            .map(|new| format!("this key is called `{new}` now"))
            .or_else(home)
            .or_else(|| nearest(name, known.iter().copied()).map(|k| format!("did you mean `{k}`?")))
            .unwrap_or_else(|| format!("known keys: {}", known.join(", ")));
        self.report(span, format!("unknown key `{name}` in `[{}]`", here.place), Some(hint));
    }
}

/// The section that is being read.
struct Here<'a> {
    /// As it stands in the file.
    place: &'a str,
    /// What its keys are called in the layer.
    prefix: &'a str,
}

impl<'a> Here<'a> {
    fn new(place: &'a str) -> Self {
        Self { place, prefix: "" }
    }
}

/// Tables are sorted by name; people read files from top to bottom.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<Entry<'_, '_>> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn plain(value: &Spanned<DeValue<'_>>) -> Value {
    // A number too large for TOML cannot be held: the parser's message becomes a text, which is
    // refused.
    Value::deserialize(ValueDeserializer::from(value.clone()))
        .unwrap_or_else(|error| Value::String(error.message().to_owned()))
}
