//! The command line: the verbs, and the file that implements each. Doc comments here are the help
//! text.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Parser, Subcommand};
use everloop_agents::clock::{MAX_TIME_SCALE, SCALES, ScaledClock, TIME_SCALE};
use everloop_engine::caller::Caller;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::{ServiceContext, no_loops};

use crate::config::FileProjects;
use crate::ui::{Format, Ui};

pub mod acp;
mod agents;
pub mod api;
mod behind;
mod check;
mod choices;
pub mod complete;
mod config;
pub mod demo;
mod diff;
mod doctor;
mod down;
mod forget;
pub mod gate;
mod generate;
mod guard;
mod handoff;
pub mod help;
mod hook;
mod init;
mod logs;
mod mcp;
mod mesh;
mod message;
mod now;
mod pane;
mod pause;
mod persona;
mod prompt;
mod recover;
mod replay;
mod report;
mod research;
mod resume;
mod rhythm;
mod run;
mod show;
mod signal;
mod status;
mod steer;
mod stop;
mod stream;
mod take;
mod task;
mod ticket;
mod trust;
mod ui;
mod up;
mod usage;
mod wake;
mod which;
mod why;

/// Keeps coding agents working on a goal until commands prove that it is reached.
#[derive(Debug, Parser)]
#[command(name = "everloop", version, propagate_version = true, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// State folder [default: $XDG_STATE_HOME/everloop or ~/.local/state/everloop]
    #[arg(long, global = true, env = "EVERLOOP_STATE_DIR", value_name = "DIR", hide_env_values = true)]
    pub state_dir: Option<PathBuf>,

    /// Print JSON (with `schema_version`) instead of text
    #[arg(long, global = true)]
    pub json: bool,

    /// Run as if started in this folder
    #[arg(short = 'C', long = "dir", global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// The verb to run [default: show what is going on]
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

const EXIT_CODES: &str = "Exit codes: 0 reached or done · 1 failed · 2 usage · 3 not reached · 4 waiting for a person · \
5 held by the guard · 6 supervisor away · 7 bad config · 130/143 signals";

/// The verbs, one file each. `help` sorts them into groups.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Work on a goal until its checks pass
    Run(Box<run::RunArgs>),
    /// Improve a metric by experiments that are kept or discarded; list, show, apply and report them
    Research(Box<research::ResearchArgs>),
    /// List, show, start and stop personas: loops without an end that sleep until something wakes them
    Persona(persona::PersonaArgs),
    /// Show what personas did in the last day, as a strip, and how often waking found work
    Rhythm(rhythm::RhythmArgs),
    /// Send a signal to a persona
    Signal(signal::SignalArgs),
    /// Add entries to streams, read and trim them, wait for an answer
    Stream(stream::StreamArgs),
    /// Show loops and their current state
    Status(status::StatusArgs),
    /// Explain in one paragraph why a loop is in its state
    Why(why::WhyArgs),
    /// Show the journal
    Logs(logs::LogsArgs),
    /// Show a loop, a task or a turn
    Show(show::ShowArgs),
    /// Show what a loop's work changes, as a patch or by file
    Diff(diff::DiffArgs),
    /// Report what loops did: asked, proved, kept, refused, waiting and spent
    Report(report::ReportArgs),
    /// Bring a loop's work to your branch
    Take(take::TakeArgs),
    /// Add an instruction to the next turn's prompt
    Steer(steer::SteerArgs),
    /// Start no further turn until `resume`
    Pause(pause::PauseArgs),
    /// Continue a paused, stopped or exhausted loop
    Resume(resume::ResumeArgs),
    /// End a loop after its turn, or now
    Stop(stop::StopArgs),
    /// List, show, answer or acknowledge tickets, which wait for a person; list and test notifiers
    Ticket(ticket::TicketArgs),
    /// Write an everloop.toml with the checks this project seems to have, or remove all of it
    Init(init::InitArgs),
    /// Run a loop's checks now and show the scoreboard
    Check(check::CheckArgs),
    /// Show the prompt that the next turn would get; list and search earlier ones
    Prompt(prompt::PromptArgs),
    /// Make a waiting loop check again now
    Wake(wake::WakeArgs),
    /// Run the supervisor for all loops, in the foreground
    Up(up::UpArgs),
    /// Log a browser in to the dashboard of the running supervisor
    Ui(ui::UiArgs),
    /// Stop the supervisor; loops stay resumable
    Down(down::DownArgs),
    /// Run a real loop with a scripted agent in half a minute: no key, no network
    Demo(demo::DemoArgs),
    /// Show what turns used: tokens, money, and how full the accounts' windows are
    Usage(usage::UsageArgs),
    /// Show the guard's state; hold everything, release a hold; change quarantines
    Guard(guard::GuardArgs),
    /// Add, list and change tasks on the board; read and write it as a file
    Task(task::TaskArgs),
    /// Send messages to loops, tasks, people and mailboxes, and read them
    Message(message::MessageArgs),
    /// Join machines into a mesh; list and change its nodes, loops and hub
    Mesh(mesh::MeshArgs),
    /// List agents: installed, logged in, how they are billed; install the plugin for Claude Code
    Agents(agents::AgentsArgs),
    /// Start, read, type into and respawn interactive agents in tmux panes
    Pane(pane::PaneArgs),
    /// Serve agents over MCP, on standard input and output
    Mcp(mcp::McpArgs),
    /// Answer a hook of an agent's CLI: whether its session may stop, what it must know
    Hook(hook::HookArgs),
    /// Show or write the handoff from one session to the next
    Handoff(handoff::HandoffArgs),
    /// Look for what could go wrong on this machine
    Doctor(doctor::DoctorArgs),
    /// Show, check or describe the configuration
    Config(config::ConfigArgs),
    /// Let the everloop.toml of a folder take effect for hooks and `up`; list and revoke that
    Trust(trust::TrustArgs),
    /// Remove loops that are over, with their refs, folders and outputs
    Forget(forget::ForgetArgs),
    /// Rebuild every state from the journal and compare
    Replay(replay::ReplayArgs),
    /// Rebuild a lost ledger (and hub) from the mirror
    Recover(recover::RecoverArgs),
    /// Print shell completions, manual pages and the reference of commands
    Generate(generate::GenerateArgs),
}

/// What every verb gets: a context of services, and the printer.
pub struct VerbSession {
    context: ServiceContext,
    pub ui: Ui,
}

impl Deref for VerbSession {
    type Target = ServiceContext;

    fn deref(&self) -> &ServiceContext {
        &self.context
    }
}

/// Performs the parsed command line.
pub fn perform(cli: Cli) -> (Ui, Result<Code, Failure>) {
    let ui = Ui::new(if cli.json { Format::Json } else { Format::Text });
    if let Err(refused) = behind::admit(&cli) {
        return (ui, Err(refused));
    }
    if let Some(answered) = behind::forward(&cli) {
        return (ui, answered);
    }
    let dir = match &cli.dir {
        Some(dir) => dir.canonicalize(),
        None => std::env::current_dir(),
    };
    let dir = match dir {
        Ok(dir) => dir,
        // A hook never disturbs its session, whatever is wrong here.
        Err(_) if matches!(cli.verb, Some(Verb::Hook(_))) => return (ui, Ok(Code::Ok)),
        Err(e) => {
            let name = cli.dir.as_deref().unwrap_or(Path::new(".")).display().to_string();
            return (ui, Err(Failure::usage(format!("cannot work in `{name}`")).because(&e)));
        }
    };
    let caller = Caller::here(cli.state_dir.as_deref());
    let context = ServiceContext { state_dir: cli.state_dir, dir, caller, projects: Arc::new(FileProjects) };
    let mut session = VerbSession { context, ui };
    let result = match cli.verb {
        Some(verb) => check_time_scale(&verb, &session.ui).and_then(|()| dispatch(verb, &mut session)),
        None => now::now(&session),
    };
    (session.ui, result)
}

/// Scaled time is for tests: each supervisor announces it, and an unreadable value is an error.
fn check_time_scale(verb: &Verb, ui: &Ui) -> Result<(), Failure> {
    match ScaledClock::from_environment() {
        Ok(clock) if clock.scale() > 1 && matches!(verb, Verb::Run(_) | Verb::Up(_)) => {
            let scale = clock.scale();
            ui.warn(&format!("{TIME_SCALE}={scale}: all waits pass {scale} times faster; this is for tests only"));
            Ok(())
        }
        Ok(_) => Ok(()),
        // A session is not disturbed.
        Err(_) if matches!(verb, Verb::Hook(_)) => Ok(()),
        Err(text) => {
            let why = if SCALES {
                format!("`{TIME_SCALE}={text}` is no whole number from 1 to {MAX_TIME_SCALE}")
            } else {
                format!("`{TIME_SCALE}={text}`: a release does not scale time")
            };
            Err(Failure::usage(why).hint(format!("it is for tests only: unset {TIME_SCALE}")))
        }
    }
}

fn dispatch(verb: Verb, session: &mut VerbSession) -> Result<Code, Failure> {
    match verb {
        Verb::Run(args) => run::run(&args, session),
        Verb::Up(args) => up::up(&args, session),
        Verb::Ui(args) => ui::ui(&args, session),
        Verb::Down(args) => down::down(&args, session),
        Verb::Status(args) => status::status(&args, session),
        Verb::Why(args) => why::why(&args, session),
        Verb::Logs(args) => logs::logs(&args, session),
        Verb::Show(args) => show::show(&args, session),
        Verb::Diff(args) => diff::diff(&args, session),
        Verb::Take(args) => take::take(args, session),
        Verb::Research(args) => research::research(*args, session),
        Verb::Persona(args) => persona::persona(args, session),
        Verb::Rhythm(args) => rhythm::rhythm(&args, session),
        Verb::Signal(args) => signal::signal(args, session),
        Verb::Stream(args) => stream::stream(args, session),
        Verb::Report(args) => report::report(&args, session),
        Verb::Pause(args) => pause::pause(args, session),
        Verb::Resume(args) => resume::resume(&args, session),
        Verb::Stop(args) => stop::stop(args, session),
        Verb::Steer(args) => steer::steer(args, session),
        Verb::Wake(args) => wake::wake(args, session),
        Verb::Ticket(args) => ticket::ticket(args, session),
        Verb::Task(args) => task::task(args, session),
        Verb::Mcp(args) => mcp::mcp(args, session),
        Verb::Pane(args) => pane::pane(args, session),
        Verb::Guard(args) => guard::guard(args, session),
        Verb::Message(args) => message::message(args, session),
        Verb::Mesh(args) => mesh::mesh(&args, session),
        Verb::Agents(args) => agents::agents(&args, session),
        Verb::Usage(args) => usage::usage(&args, session),
        Verb::Check(args) => check::check(&args, session),
        Verb::Prompt(args) => prompt::prompt(&args, session),
        Verb::Recover(args) => recover::recover(&args, session),
        Verb::Replay(args) => replay::replay(&args, session),
        Verb::Forget(args) => forget::forget(args, session),
        Verb::Init(args) => init::init(&args, session),
        Verb::Hook(args) => Ok(hook::hook(&args, session)),
        Verb::Handoff(args) => handoff::handoff(&args, session),
        Verb::Config(args) => config::config(args, session),
        Verb::Trust(args) => trust::trust(&args, session),
        Verb::Doctor(args) => doctor::doctor(&args, session),
        Verb::Generate(args) => generate::generate(&args, session),
        Verb::Demo(args) => demo::demo(&args, session),
    }
}
