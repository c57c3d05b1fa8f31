//! The agent CLIs that everloop supports: how each is started and what its output means. One small
//! file per program.
//!
//! - [`Order`] → [`invocation`] → [`Invocation`]: a turn as a command line
//! - [`Reader`]: bytes of its output → [`AgentEvent`](everloop_core::stream::AgentEvent), one model
//!   for all
//! - `claude`, `codex`, `gemini`, `opencode`, `copilot`: the programs; `native`: everloop's own format;
//!   `command`: everything else
//! - [`otlp`]: the telemetry that a CLI sends while it works
//! - `provider`: which vendor codex would connect to
//! - [`limits`]: which refusal of a vendor is which limit; `reset`: when it ends; `rollout`:
//!   codex's own session files
//! - [`probe`]: what is installed and logged in; `lines`, `record`: splitting and reading lines
//!
//! Nothing here decides, waits or keeps a turn's state: the supervisor feeds, the core decides.

mod claude;
mod codex;
mod command;
mod copilot;
mod gemini;
pub mod limits;
mod lines;
mod native;
mod opencode;
pub mod otlp;
pub mod probe;
mod provider;
mod reader;
pub(crate) mod record;
mod reset;
mod rollout;
mod steps;

use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_core::spec::{AgentKind, AgentSpec, Telemetry};

pub(crate) use claude::usage_of as claude_usage;
pub(crate) use codex::usage as codex_usage;
pub use lines::LINE_CAP;
pub(crate) use lines::{Lines, OutputLine};
pub use native::pane_of;
pub(crate) use reader::zone_of;
pub use reader::{ProcessEnd, Reader, Unsaid};
pub use steps::TranscriptReader;

/// How often a CLI may retry a failed request by itself. Enough for a short network failure;
/// waiting that survives a restart is everloop's.
const RETRIES: u32 = 2;

/// A turn that is to be started.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The agent that takes the turn.
    pub agent: &'a AgentSpec,
    pub prompt: &'a str,
    /// The prompt again, as a file.
    pub prompt_file: &'a Path,
    /// The session that the turn continues.
    pub resume: Option<&'a str>,
    /// What the turn may cost, in millionths of a dollar; used only by CLIs with a cap of their
    /// own.
    pub left_microusd: Option<u64>,
    /// Tokens that the turn may use; used only by CLIs with a cap of their own.
    pub left_tokens: Option<u64>,
    /// everloop's own program, which the agents `api` and `pane` are a part of.
    pub ours: &'a Path,
    /// Where those two keep state that outlives a turn.
    pub state_dir: &'a Path,
    /// The part of everloop's environment and of the account's variables that the CLI sees.
    pub env: &'a [(String, String)],
    /// How long a question of the CLI may wait for a person.
    pub answer_within: Duration,
    /// Where a CLI that has telemetry sends it.
    pub telemetry: Option<Receiver<'a>>,
}

/// The endpoint that collects telemetry.
#[derive(Clone, Copy, Debug)]
pub struct Receiver<'a> {
    /// Base URL without a path: `http://127.0.0.1:9300`.
    pub endpoint: &'a str,
    /// The header that identifies this turn, as `name=value`.
    pub header: &'a str,
}

/// The variable that holds [`Receiver::header`]. Its value is a secret of the CLI and the receiver.
pub const TELEMETRY_SECRET: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Whether an agent can send telemetry and is not configured to send it elsewhere.
pub fn has_telemetry(agent: &AgentSpec) -> bool {
    let elsewhere = |name: &str| name.starts_with("OTEL_") || name == claude::TELEMETRY;
    let told = agent.pass_env.iter().map(String::as_str).chain(agent.env.iter().map(|v| v.name.as_str()));
    agent.kind == AgentKind::Claude && agent.telemetry == Telemetry::On && !told.into_iter().any(elsewhere)
}

/// A command line without secrets: the account's variables are added where the job is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Settings of the CLI that it only takes from its environment.
    pub env: Vec<(String, String)>,
    /// The file on its standard input; `None` means empty.
    pub stdin: Option<PathBuf>,
    /// Files that it reads, to be written before it starts.
    pub files: Vec<(PathBuf, &'static str)>,
}

impl Invocation {
    /// The configured program, or the default one, with the prompt on its standard input.
    fn of(order: &Order<'_>, default_program: &str) -> Self {
        let program = order.agent.argv.first().map_or(default_program, String::as_str);
        let stdin = Some(order.prompt_file.to_owned());
        Self { argv: vec![program.to_owned()], stdin, ..Self::default() }
    }

    fn arg(&mut self, arg: impl Into<String>) {
        self.argv.push(arg.into());
    }

    fn args<const N: usize>(&mut self, args: [&str; N]) {
        self.argv.extend(args.map(str::to_owned));
    }

    /// An option with a value, in one word: a value that begins with a dash stays a value.
    fn option(&mut self, name: &str, value: &str) {
        self.argv.push(format!("{name}={value}"));
    }

    /// Appends the arguments that the configuration adds.
    fn extra(&mut self, order: &Order<'_>) {
        self.argv.extend(order.agent.argv.iter().skip(1).cloned());
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.push((name.to_owned(), value.into()));
    }
}

/// The command line of a turn.
pub fn invocation(order: &Order<'_>) -> Invocation {
    match order.agent.kind {
        AgentKind::Command => command::invocation(order),
        AgentKind::Claude => claude::invocation(order),
        AgentKind::Codex => codex::invocation(order),
        AgentKind::Gemini => gemini::invocation(order),
        AgentKind::Opencode => opencode::invocation(order),
        AgentKind::Copilot => copilot::invocation(order),
        AgentKind::Acp => native::acp(order),
        AgentKind::Api => native::api(order),
        AgentKind::Pane => native::pane(order),
    }
}
