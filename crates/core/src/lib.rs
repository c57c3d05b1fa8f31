//! The part of everloop that decides. Pure: no clock, no files, no processes, no randomness of its
//! own.
//!
//! - [`ids`], [`time`]: identities and times
//! - [`spec`]: the specification of a loop: goal, checks, agent, limits, guard
//! - [`event`]: what happened, the only thing that changes a [`state`]
//! - [`decide`](mod@decide): state + input + time in; events, ledger operations and actions out
//! - [`action`]: actions for the shell, and the inputs that report their results
//! - [`guard`]: whether a turn may start now, and if not, when and why
//! - [`immune`]: which subject makes turns fail: smaller share, quarantine, trial
//! - [`isolation`]: what a command may read, write and connect to
//! - [`landing`]: whether work is on the target already, or may be moved there
//! - [`hex`]: bytes as text
//! - [`hook`]: an agent's session that everloop did not start, and whether it may stop
//! - [`mesh`]: a loop that many nodes work on
//! - [`op`]: the operations of a ledger, in atomic batches
//! - [`otlp`]: spans, figures and log records for a collector of OpenTelemetry
//! - [`outbound`]: what notifiers, trackers and mailboxes are sent, when and how often
//! - [`scoreboard`]: verdicts of checks, and which scoreboard is better
//! - [`entry`]: which tasks an agent may put on the board
//! - [`completion`]: signs of completion, as signals
//! - [`judge`]: the result of a finished turn; [`commit_message`]: the message of its commit
//! - [`judge_files`]: the files that decide a check, which no turn may change
//! - [`test_evidence`]: whether the output of a passed check shows that its tests ran
//! - [`evidence`]: slow, stuck or healthy
//! - [`correlated_stalls`]: correlated stalls, which point to the node itself
//! - [`pane`]: whether the CLI in a pane began to work by itself
//! - [`permission`]: what a CLI wants to be allowed, and what a person's answer covers
//! - [`phase`]: the phase of an agent with a stream, and whether it is stuck or spinning
//! - [`stream`]: the records of every agent's CLI in one model; [`transcript`]: the same as steps
//!   for people
//! - [`telemetry`]: usage from a CLI's telemetry, as a second source
//! - [`pacing`]: how fast an allowance is used, and where that leads
//! - [`recovery`]: what a restarted supervisor does about a turn it finds
//! - [`prompt`]: the content of the next turn's prompt
//! - [`morning`]: what loops did in a period, for a person
//! - [`picture`]: charts and pages, as SVG and HTML
//! - [`research`]: experiments on a metric, kept or discarded
//! - [`rhythm`]: when a persona sleeps, what wakes it, when it looks next
//! - [`watch`]: what a loop watches, and when
//! - [`why`]: any state in one paragraph
//! - [`journal`]: records with checksums

pub mod action;
pub mod commit_message;
pub mod completion;
pub mod correlated_stalls;
pub mod decide;
pub mod entry;
pub mod event;
pub mod evidence;
pub mod guard;
pub mod hex;
pub mod hook;
pub mod ids;
pub mod immune;
pub mod isolation;
pub mod jitter;
pub mod journal;
pub mod judge;
pub mod judge_files;
pub mod landing;
pub mod marker;
pub mod mesh;
pub mod morning;
pub mod op;
pub mod otlp;
pub mod outbound;
pub mod pacing;
pub mod pane;
pub mod permission;
pub mod phase;
pub mod picture;
pub mod planted;
pub mod prices;
pub mod prompt;
pub mod raise;
pub mod reason;
pub mod recovery;
pub mod research;
pub mod rhythm;
pub mod scoreboard;
pub mod spec;
pub mod state;
pub mod stream;
pub mod telemetry;
pub mod test_evidence;
pub mod time;
pub mod transcript;
pub mod watch;
pub mod why;
