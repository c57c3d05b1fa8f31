//! The engine's view of a folder's configuration, as typed data. The front end reads the files and
//! implements [`Projects`]; the engine never parses a configuration itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::channel::Receiver;
use everloop_core::completion::CompletionRule;
use everloop_core::hook::{Rules, Shrink};
use everloop_core::isolation::IsolationSpec;
use everloop_core::outbound::tickets::{Alert, Route};
use everloop_core::spec::{AgentSpec, CheckSpec};
use everloop_core::time::Time;

use crate::error::Failure;

/// The text of a project's file and its folder. Which text is in force is decided in
/// [`crate::trust`], not by what the folder contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFile {
    /// The folder of the file.
    pub root: PathBuf,
    pub text: String,
}

/// The meaning of configuration: of the texts that are given, and of the user's own files, which
/// are read anew at every call.
pub trait Projects: Send + Sync + std::fmt::Debug {
    /// The user's own files; an answer holds until one of them changes.
    fn user_files(&self) -> Vec<PathBuf>;

    /// The project's file that is nearest to `dir`, in it or above; it may be in force or not.
    fn file(&self, dir: &Path) -> Option<PathBuf>;

    /// The folder of the project that `dir` belongs to; `dir` itself without one.
    fn root(&self, dir: &Path) -> PathBuf;

    /// Refuses a file with mistakes.
    fn check(&self, file: &ProjectFile, now: Time) -> Result<(), Failure>;

    /// The commands, addresses and secrets that a text names, one line each; untrusted text.
    fn commands(&self, text: &str) -> Vec<String>;

    /// Where a project publishes its board, statuses and task changes. A folder without
    /// configuration publishes nothing.
    fn outbound(&self, file: Option<&ProjectFile>) -> Result<OutboundSpec, Failure>;

    /// The notifiers of the user and of a project.
    fn notifiers(&self, file: Option<&ProjectFile>, now: Time) -> Result<Vec<NotifierSender>, Failure>;

    /// The loop that holds sessions in a project, with its checks; `None` without one clear loop.
    fn session(&self, file: &ProjectFile, now: Time) -> Result<Option<SessionSpec>, Failure>;
}

/// What a project publishes, and where.
#[derive(Clone, Debug, Default)]
pub struct OutboundSpec {
    /// The file of the board.
    pub board: Option<PathBuf>,
    /// Turns between two statuses.
    pub every: u32,
    /// Receives the status of loops.
    pub mailbox: Option<Receiver>,
    /// Receives every change of tasks.
    pub tracker: Option<Receiver>,
    /// Signs of being complete.
    pub completions: Vec<CompletionRule>,
}

/// A notifier and its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifierSpec {
    /// The channel and its credentials.
    pub receiver: Receiver,
    /// Severities, quiet hours and repeats.
    pub route: Route,
}

/// A notifier and the project it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifierSender {
    /// The folder of the project with the loops that it reports; `None`: all.
    pub dir: Option<PathBuf>,
    /// How, of what and when.
    pub of: NotifierSpec,
}

impl NotifierSender {
    /// The name of its outbox.
    pub fn key(&self) -> String {
        match &self.dir {
            None => self.of.receiver.name.clone(),
            Some(dir) => format!("{}@{}", self.of.receiver.name, dir.display()),
        }
    }

    /// Whether it reports a ticket; `home` is where the ticket's loop works.
    pub fn hears(&self, alert: &Alert, home: Option<&Path>) -> bool {
        match (&self.dir, &alert.owner) {
            (None, _) | (Some(_), None) => true,
            (Some(dir), Some(_)) => home.is_some_and(|home| home.starts_with(dir)),
        }
    }
}

/// What a project wants of sessions that everloop did not start.
#[derive(Clone, Debug)]
pub struct HookSpec {
    /// Name of the loop with the checks that hold them.
    pub name: Option<String>,
    /// How far they are held.
    pub rules: Rules,
    /// Time that all checks together may take.
    pub check_timeout: Duration,
    /// Configured size of their context window, in tokens.
    pub context_tokens: Option<u64>,
    /// Globs of files that may not shrink.
    pub guarded: Vec<String>,
    /// By how much guarded files may shrink.
    pub shrink: Shrink,
    /// Signs of being complete.
    pub completions: Vec<CompletionRule>,
}

/// The loop of a folder as its configuration describes it.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The folder of the configuration.
    pub root: PathBuf,
    /// The folder in which the checks run.
    pub dir: PathBuf,
    /// The name of the loop.
    pub name: String,
    /// The goal of the loop.
    pub goal: String,
    /// The checks of the loop.
    pub checks: Vec<CheckSpec>,
    /// What the checks may reach.
    pub isolation: IsolationSpec,
    /// What the project wants of sessions.
    pub hook: HookSpec,
    /// Globs of protected files; those after `!` are not protected.
    pub protect: Vec<String>,
    /// The agents of the loop, for their secrets and variables.
    pub agents: Vec<AgentSpec>,
}
