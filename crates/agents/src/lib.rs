//! The part of everloop that acts: processes, checks, git workspaces.
//!
//! - [`agent`]: the agent CLIs that everloop supports: how each is started, what its output means
//! - [`job`]: one mechanism to run an agent, a check or a setup command without leaks
//! - [`acp`]: a turn of a CLI that speaks the Agent Client Protocol
//! - [`api`]: everloop's own agent, which calls a model's API without any CLI
//! - [`environment`]: what such a command may see; [`redact`]: what its output must not show
//! - [`isolation`]: what such a command may reach
//! - [`tmux`]: interactive agents in panes
//! - [`workspace`]: where turns work and how their work lands; [`git`]: how git is called
//! - [`check`]: the commands that decide whether the goal is reached; [`protect`]: what a turn may
//!   not change for that
//! - [`monitor`]: whether something that a loop watches has changed; [`folder_watch`]: notices of the
//!   kernel about the files of a folder
//! - [`channel`]: one delivery to a person or program: Telegram, Slack, ntfy, SMS, mail, a webhook,
//!   the desktop, a command
//! - [`otlp`]: documents for a collector of OpenTelemetry
//! - `short_command`: the commands of monitors and channels: isolated, bounded, without a job
//! - `http_client`: the HTTP client of channels, of the API agent, of monitors and of [`otlp`]
//! - [`prices`]: list prices and context windows of models
//! - [`process`]: identity of a process; [`peer`]: those behind a connection; [`clock`]: the clocks of this machine

pub mod acp;
pub mod agent;
pub mod api;
pub mod channel;
pub mod check;
pub mod clock;
pub mod environment;
pub mod folder_watch;
pub mod git;
mod http_client;
pub mod isolation;
pub mod job;
pub mod monitor;
pub mod otlp;
pub mod peer;
pub mod prices;
pub mod process;
pub mod protect;
pub mod redact;
mod short_command;
pub mod tmux;
pub mod workspace;
