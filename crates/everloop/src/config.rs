//! everloop.toml and the layers over it. Owns which value wins and where it came from.
//!
//! - [`settings`]: how a key is declared, once; [`keys`], [`guard`]: the keys; [`value`]: the kinds
//!   of values; [`shell`]: commands that need a shell
//! - [`read`]: a file into layers, with the place of every mistake ([`diagnostic`]); [`renamed`]:
//!   former names of keys
//! - [`layer`]: built-in < user file < project file < environment < flags ([`overrides`])
//! - [`resolve`]: one loop, typed and validated; [`agent`], [`account`]: its agents and their
//!   accounts; [`isolation`]: what its commands may reach; [`hub`]; [`show`]: its values and their
//!   origins; [`commands`]: what a file would run
//! - [`research`]: experiments on a metric; [`persona`]: loops without an end; [`route`]: streams
//!   that lead to them
//! - [`projects`]: the answers of files to the engine
//! - [`notify`]: recipients of tickets; [`hook`]: sessions that everloop did not start;
//!   [`completion`]: signs that are signals; [`outbound`]: board, mailbox and tracker; [`watch`]:
//!   monitors; [`naming`]: generated names
//! - [`otel`]: the collector of telemetry
//! - [`schema`]: the JSON Schema and the reference in `docs/config.md`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everloop_core::rhythm::persona::RouteSpec;
use everloop_core::time::Time;
use everloop_engine::diagnostic::SourceText;
use everloop_engine::projects::ProjectFile;
use jiff::tz::TimeZone;

mod account;
mod agent;
mod check_line;
mod commands;
mod completion;
mod guard;
mod hook;
mod hub;
mod isolation;
mod keys;
mod layer;
mod naming;
mod notify;
mod otel;
mod outbound;
mod overrides;
mod persona;
mod program;
mod projects;
mod read;
mod renamed;
mod research;
mod resolve;
mod route;
mod schema;
mod settings;
mod shell;
mod show;
#[cfg(test)]
mod tests;
mod value;
mod watch;

pub use agent::{BUILT_IN, built_in};
pub use commands::commands;
pub use everloop_engine::diagnostic::{ConfigError, Diagnostic};
pub use overrides::{Flags, Overrides};
pub use projects::FileProjects;
pub use research::{PLAN, plan};
pub use resolve::ResolvedLoop;
pub use schema::schema;
pub use show::{WithOrigin, render};
pub use value::{Deadline, ListenAddress};

use keys::{GatewayKeys, NodeKeys};
use layer::{Layer, Origin};
use read::{FileOwner, Sections, read};
use resolve::LoopKind;

/// What a project's file is called.
pub const PROJECT_FILE: &str = "everloop.toml";
/// What the user's file is called, in their folder of everloop.
pub const USER_FILE: &str = "config.toml";
/// A larger file is not a configuration.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// What resolving needs to know about the world.
#[derive(Clone, Debug)]
pub struct ResolveContext {
    /// The time, to refuse deadlines in the past.
    pub now: Time,
    /// The zone in which deadlines without zone are meant.
    pub zone: TimeZone,
    /// What `~/` stands for.
    pub home: Option<PathBuf>,
}

impl ResolveContext {
    /// At `now`, as this process sees the world.
    pub fn at(now: Time) -> Self {
        Self { now, zone: TimeZone::system(), home: std::env::var_os("HOME").map(PathBuf::from) }
    }
}

/// All settings of loops, before they are combined.
#[derive(Clone, Debug)]
pub struct Config {
    dir: PathBuf,
    user: Sections,
    project: Sections,
    env: Layer,
    flags: Layer,
    files: Vec<PathBuf>,
    /// The project's file, as it was read.
    text: Option<String>,
}

/// What a command line leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub checks: bool,
    pub agent: bool,
}

impl Lacking {
    pub fn anything(self) -> bool {
        self.checks || self.agent
    }
}

/// A point in time as people write it; without a zone it is local.
pub fn point_in_time(text: &str) -> Result<Option<Time>, String> {
    value::Deadline(Some(text.to_owned())).time(&TimeZone::system())
}

/// The folder of the user's file: `$XDG_CONFIG_HOME/everloop`, or `~/.config/everloop`.
pub fn user_dir(var: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    base.map(|base| base.join("everloop"))
}

/// The nearest folder from `dir` upwards that has an everloop.toml.
pub fn find(dir: &Path) -> Option<&Path> {
    dir.ancestors().find(|folder| folder.join(PROJECT_FILE).is_file())
}

/// Reads the files of a project and of the user; either may be missing. All mistakes are returned
/// at once.
pub fn load(dir: &Path, user_dir: Option<&Path>, overrides: &Overrides) -> Result<Config, ConfigError> {
    load_with(dir, &ProjectText::OnDisk, user_dir, overrides)
}

/// Where the text of a project's file comes from.
#[derive(Clone, Debug)]
pub enum ProjectText {
    /// The file as it is now.
    OnDisk,
    /// What is in force, whatever the file contains now; `None` where nothing is.
    Given(Option<String>),
}

/// As [`load`], with this text of the project.
pub fn load_with(
    dir: &Path,
    project: &ProjectText,
    user_dir: Option<&Path>,
    overrides: &Overrides,
) -> Result<Config, ConfigError> {
    let (env, flags, mut diagnostics) = overrides.layers();
    let mut files = Vec::new();
    let mut project_text = None;
    let mut sections = |path: PathBuf, name: String, owner| {
        let found = match (owner, project) {
            (FileOwner::Project, ProjectText::Given(text)) => Ok(text.clone()),
            _ => text_of(&path),
        };
        let text = match found {
            Ok(None) => return Sections::default(),
            Ok(Some(text)) => text,
            Err(diagnostic) => {
                diagnostics.push(diagnostic);
                return Sections::default();
            }
        };
        files.push(path);
        if owner == FileOwner::Project {
            project_text = Some(text.clone());
        }
        let (sections, mut found) = read(&Arc::new(SourceText { name, text }), owner);
        diagnostics.append(&mut found);
        sections
    };
    let user = user_dir.map(|dir| dir.join(USER_FILE));
    let user = user.map_or_else(Sections::default, |path| {
        let name = path.display().to_string();
        sections(path, name, FileOwner::User)
    });
    let project = sections(dir.join(PROJECT_FILE), PROJECT_FILE.to_owned(), FileOwner::Project);
    let config = Config { dir: dir.to_owned(), user, project, env, flags, files, text: project_text };
    diagnostics.extend(config.lacking());
    diagnostics.extend(config.notifiers(&ResolveContext::at(Time(0))).err().into_iter().flat_map(|e| e.diagnostics));
    ConfigError::unless_empty(diagnostics)?;
    Ok(config)
}

/// The text of a file, `None` if it does not exist. Any other file that is not readable text is a
/// mistake.
fn text_of(path: &Path) -> Result<Option<String>, Diagnostic> {
    let unreadable =
        |why: &dyn std::fmt::Display| Diagnostic::new(format!("could not read `{}`: {why}", path.display()));
    let length = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&error)),
        Ok(meta) if !meta.is_file() => return Err(unreadable(&"it is not a file")),
        Ok(meta) => meta.len(),
    };
    if length > FILE_MAX_BYTES {
        return Err(unreadable(&format!("it is larger than {FILE_MAX_BYTES} bytes")));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(&error))?;
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let source = SourceText { name: path.display().to_string(), text };
        Diagnostic::new("not valid UTF-8").at(&source, &(good..good)).hint("save the file as UTF-8")
    })
}

impl Config {
    /// The names of the loops in the project's file.
    pub fn loops(&self) -> Vec<String> {
        self.project.loops.keys().cloned().collect()
    }

    /// The names of the research runs in the project's file.
    pub fn research_runs(&self) -> Vec<String> {
        self.project.research.keys().cloned().collect()
    }

    /// The names of the personas in the project's file.
    pub fn personas(&self) -> Vec<String> {
        self.project.personas.keys().cloned().collect()
    }

    /// The files that were read.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The project's file, as it was read: what a person accepts is what was read, even if the file
    /// changed since.
    pub fn project_file(&self) -> Option<ProjectFile> {
        Some(ProjectFile { root: self.dir.clone(), text: self.text.clone()? })
    }

    /// The address at which a supervisor serves, if one is configured; the project's value
    /// overrides the user's.
    pub fn listen(&self) -> Result<Option<ListenAddress>, ConfigError> {
        let mut node = self.user.node.clone();
        node.lay(&self.project.node);
        Ok(node.typed::<NodeKeys>()?.listen)
    }

    /// The routes of the file, each with its persona or loop.
    fn routes(&self) -> Result<Vec<(String, RouteSpec)>, ConfigError> {
        let targets = route::Targets { personas: self.personas(), loops: self.loops() };
        route::routes(&self.project.routes, &targets).or_else(|wrong| {
            ConfigError::unless_empty(wrong)?;
            Ok(Vec::new())
        })
    }

    fn routes_to(&self, name: &str) -> Result<Vec<RouteSpec>, ConfigError> {
        Ok(self.routes()?.into_iter().filter(|(to, _)| to == name).map(|(_, route)| route).collect())
    }

    /// Whether signals over the port need no token; the project's value overrides the user's.
    pub fn gateway_is_open(&self) -> Result<bool, ConfigError> {
        let mut gateway = self.user.gateway.clone();
        gateway.lay(&self.project.gateway);
        Ok(gateway.typed::<GatewayKeys>()?.open.is_some_and(|open| open.0))
    }

    /// One loop or research run of the file, with all settings that apply to it.
    pub fn resolve(&self, name: &str, moment: &ResolveContext) -> Result<ResolvedLoop, ConfigError> {
        if let Some((own, metric, place)) = self.project.research.get(name) {
            let mut research = settings::built_in::<research::ResearchKeys>();
            research.lay(metric);
            let kind = LoopKind { research: Some(research), persona: None };
            return self.put_together((name, kind), own, place, moment);
        }
        if let Some((own, rhythm, place)) = self.project.personas.get(name) {
            let mut persona = settings::built_in::<persona::PersonaKeys>();
            persona.lay(rhythm);
            let kind = LoopKind { research: None, persona: Some(persona) };
            let mut resolved = self.put_together((name, kind), own, place, moment)?;
            let routes = self.routes_to(name)?;
            if let Some(spec) = &mut resolved.persona {
                spec.routes = routes;
            }
            return Ok(resolved);
        }
        let Some((own, place)) = self.project.loops.get(name) else {
            let known = [self.loops(), self.research_runs(), self.personas()].concat();
            let hint = match value::nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => format!("add `[loop.{name}]` to {PROJECT_FILE}, or run `everloop init`"),
                None => format!("there are: {}", known.join(", ")),
            };
            return Err(Diagnostic::new(format!("there is no loop `{name}`")).hint(hint).into());
        };
        let mut resolved = self.put_together((name, LoopKind::default()), own, place, moment)?;
        resolved.routes = self.routes_to(name)?;
        Ok(resolved)
    }

    /// A loop that stands in no file: the goal and its flags, over the defaults.
    pub fn one_off(&self, goal: &str, moment: &ResolveContext) -> Result<ResolvedLoop, ConfigError> {
        let mut own = Layer::default();
        own.set("goal", goal, Origin::Flag("GOAL".to_owned()));
        self.put_together((&naming::slug(goal), LoopKind::default()), &own, &Origin::Flag("GOAL".to_owned()), moment)
    }

    /// What a loop that stands in no file would lack.
    pub fn one_off_lacks(&self) -> Lacking {
        let layers = [&self.user.defaults, &self.project.defaults, &self.env, &self.flags];
        let lacks = |keys: &[&str]| !layers.iter().any(|layer| keys.iter().any(|key| layer.0.contains_key(*key)));
        Lacking { checks: lacks(&["checks", "check"]), agent: lacks(&layer::AGENT_KEYS) }
    }

    /// Resolves every loop of the file; all mistakes are returned at once.
    pub fn check(&self, moment: &ResolveContext) -> Result<Vec<ResolvedLoop>, ConfigError> {
        let mut diagnostics = agent::check_all(self, moment);
        diagnostics.extend(self.outbound().err().into_iter().flat_map(|error| error.diagnostics));
        if self.project.personas.is_empty() && self.project.loops.is_empty() {
            // Otherwise each of them names what is wrong with them.
            diagnostics.extend(self.routes().err().into_iter().flat_map(|error| error.diagnostics));
        }
        let mut resolved = Vec::new();
        let sections = &self.project;
        for name in sections.loops.keys().chain(sections.research.keys()).chain(sections.personas.keys()) {
            match self.resolve(name, moment) {
                Ok(one) => resolved.push(one),
                Err(error) => diagnostics.extend(error.diagnostics),
            }
        }
        // A mistake in `[defaults]` is one mistake, however many loops inherit it.
        let mut seen: Vec<Diagnostic> = Vec::new();
        for diagnostic in diagnostics {
            if !seen.contains(&diagnostic) {
                seen.push(diagnostic);
            }
        }
        ConfigError::unless_empty(seen)?;
        Ok(resolved)
    }

    fn put_together(
        &self,
        (name, kind): (&str, LoopKind),
        own: &Layer,
        place: &Origin,
        moment: &ResolveContext,
    ) -> Result<ResolvedLoop, ConfigError> {
        let mut values = layer::built_in();
        for upper in [&self.user.defaults, &self.project.defaults, own, &self.env, &self.flags] {
            values.lay(upper);
        }
        resolve::resolve(resolve::Given { name, dir: &self.dir, values, kind, place, agents: self, moment })
    }

    /// What agents lack in all files together.
    fn lacking(&self) -> Vec<Diagnostic> {
        let told = self.user.lacking.iter().chain(&self.project.lacking);
        let lacks = |name: &str| {
            let layer = self.agent(name).unwrap_or_default();
            let kind = layer.0.get("kind").and_then(|kind| kind.value.as_str());
            agent::needs(name, kind).is_some_and(|key| !layer.0.contains_key(key))
        };
        told.filter(|(name, _)| lacks(name)).map(|(_, diagnostic)| diagnostic.clone()).collect()
    }
}
