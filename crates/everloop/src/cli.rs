//! The command line: what can be typed and which file does it. Doc comments here are the help text.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use everloop_agents::clock::{self, MAX_TIME_SCALE, ScaledClock, TIME_SCALE};
use everloop_core::ids::LoopId;
use everloop_core::state::LoopState;
use everloop_core::time::Time;
use everloop_store::{Error, Ledger, LoopRow, OpenMode, Sqlite};

use crate::caller::Caller;
use crate::error::{Code, Failure};
use crate::state_folder::StateFolder;
use crate::supervisor::read_state;
use crate::ui::{Format, Ui};

mod agents;
pub mod api;
mod board;
mod check;
mod comment;
mod completions;
mod config;
pub mod demo;
mod doctor;
mod down;
mod guard;
mod handoff;
mod hook;
mod hub;
mod inbox;
mod init;
mod join;
mod leave;
mod logs;
mod man;
mod mcp;
mod mesh;
mod node;
mod notify;
mod pane;
mod pause;
mod plugin;
mod prompt;
mod prompts;
mod quarantine;
mod recover;
mod replay;
mod resume;
mod run;
mod send;
mod show;
mod status;
mod steer;
mod stop;
mod task;
mod ticket;
mod uninstall;
mod up;
mod usage;
mod wake;
mod why;

/// Keeps coding agents working on a goal until commands prove that it is reached.
#[derive(Debug, Parser)]
#[command(name = "everloop", version, propagate_version = true, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// Where everloop keeps its state [default: $XDG_STATE_HOME/everloop or ~/.local/state/everloop]
    #[arg(long, global = true, env = "EVERLOOP_STATE_DIR", value_name = "DIR", hide_env_values = true)]
    pub state_dir: Option<PathBuf>,

    /// Print JSON (with `schema_version`) instead of text
    #[arg(long, global = true)]
    pub json: bool,

    /// Do as if started in this folder
    #[arg(short = 'C', long = "dir", global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 reached or done · 1 failed · 2 usage · 3 not reached · 4 waiting for a person · \
5 held by the guard · 6 daemon away · 7 bad config · 130/143 signals";

/// Everything everloop can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Work on a goal until its checks pass
    Run(Box<run::RunArgs>),
    /// Run the supervisor for all loops, in the foreground
    Up(up::UpArgs),
    /// Stop the supervisor; loops stay resumable
    Down(down::DownArgs),
    /// Show loops and what they are doing
    Status(status::StatusArgs),
    /// Explain in one paragraph why a loop is as it is
    Why(why::WhyArgs),
    /// Show the journal
    Logs(logs::LogsArgs),
    /// Show a loop, a task or a turn
    Show(show::ShowArgs),
    /// Start no further turn until `resume`
    Pause(pause::PauseArgs),
    /// Go on with a paused, stopped or exhausted loop
    Resume(resume::ResumeArgs),
    /// End a loop after its turn, or now
    Stop(stop::StopArgs),
    /// Tell the next turn something
    Steer(steer::SteerArgs),
    /// Make a waiting loop look again now
    Wake(wake::WakeArgs),
    /// Leave a message for a loop, a task, a person or somebody with a name
    Send(send::SendArgs),
    /// Read messages
    Inbox(inbox::InboxArgs),
    /// Write something beneath a task
    Comment(comment::CommentArgs),
    /// What waits for a person: list, show, answer, acknowledge
    Ticket(ticket::TicketArgs),
    /// Who is told of tickets: list, test
    Notify(notify::NotifyArgs),
    /// The board: add, list and change tasks
    Task(task::TaskArgs),
    /// The board as a file: write, import, export, merge; what an agent has to know about it
    Board(board::BoardArgs),
    /// Serve agents over MCP, on standard input and output
    Mcp(mcp::McpArgs),
    /// Interactive agents in tmux panes: start, look, type, respawn
    Pane(pane::PaneArgs),
    /// What the guard remembers; hold everything, release a hold
    Guard(guard::GuardArgs),
    /// Who is quarantined because turns fail with it, and why; do not use somebody for a while
    Quarantine(quarantine::QuarantineArgs),
    /// The hub of a mesh, in PostgreSQL: make it, check it, bring it up to date
    Hub(hub::HubArgs),
    /// Make this machine a node of a mesh
    Join(join::JoinArgs),
    /// Leave the mesh
    Leave(leave::LeaveArgs),
    /// The machines of the mesh: list, drain, remove
    Node(node::NodeArgs),
    /// The loops of the mesh: list, show, stop
    Mesh(mesh::MeshArgs),
    /// List agents: installed, logged in, how they are billed
    Agents(agents::AgentsArgs),
    /// What turns used: tokens, money, and how full the accounts' windows are
    Usage(usage::UsageArgs),
    /// Run a loop's checks now and show the scoreboard
    Check(check::CheckArgs),
    /// Show the prompt that the next turn would get
    Prompt(prompt::PromptArgs),
    /// Find what agents were told, in sessions and in turns
    Prompts(prompts::PromptsArgs),
    /// Make a lost ledger (and hub) again from the mirror
    Recover(recover::RecoverArgs),
    /// Rebuild every state from the journal and compare
    Replay(replay::ReplayArgs),
    /// Write an everloop.toml with the checks this project seems to have
    Init(init::InitArgs),
    /// Take back what `init` wrote into this project
    Uninstall(uninstall::UninstallArgs),
    /// everloop as a plugin of Claude Code: install, print, remove
    Plugin(plugin::PluginArgs),
    /// Answer an agent's CLI in its own session: may it stop, what must it know
    Hook(hook::HookArgs),
    /// What one session leaves for the next: show it, write it
    Handoff(handoff::HandoffArgs),
    /// Show, check or describe the configuration
    Config(config::ConfigArgs),
    /// Look for what could go wrong on this machine
    Doctor(doctor::DoctorArgs),
    /// A real loop with a scripted agent in half a minute: no key, no network
    Demo(demo::DemoArgs),
    /// Print shell completions
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    Man(man::ManArgs),
}

/// What every verb gets.
pub struct Invocation {
    /// The state folder the user named.
    pub state_dir: Option<PathBuf>,
    /// The folder the user is in.
    pub dir: PathBuf,
    /// The printer.
    pub ui: Ui,
    /// Who acts.
    pub caller: Caller,
}

impl Invocation {
    /// The state folder; made if it is not there.
    pub fn home(&self) -> Result<StateFolder, Failure> {
        StateFolder::open(self.state_dir.as_deref())
    }

    /// Refuses what only a person decides: whatever an agent was talked into, it does not change its own limits, its checks, or what
    /// others hold. What it does with another state folder than the one that it works for is its own affair.
    pub fn for_a_person(&self, what: &str) -> Result<(), Failure> {
        let theirs = std::env::var_os("EVERLOOP_STATE_DIR").map(PathBuf::from);
        if self.caller.is_person() || self.state_dir != theirs {
            return Ok(());
        }
        let hint = "tell a person what you need: everloop send person \"TEXT\"";
        Err(Failure::usage(format!("{what} is for a person, and you are {}", self.caller.name())).hint(hint))
    }

    /// The time.
    #[expect(clippy::unused_self, reason = "verbs take everything from the outside world through the session")]
    pub fn now(&self) -> Time {
        clock::now()
    }

    /// The ledger, to read only; `None` when nothing was ever written.
    #[expect(clippy::unused_self, reason = "as for `now`")]
    pub fn reader(&self, home: &StateFolder) -> Result<Option<Sqlite>, Failure> {
        match Sqlite::open(&home.database(), OpenMode::ReadOnly) {
            Ok(ledger) => Ok(Some(ledger)),
            Err(Error::Missing { .. }) => Ok(None),
            // An older everloop wrote it; whoever reads first brings it up to date.
            Err(Error::Older { .. }) => {
                drop(Sqlite::open(&home.database(), OpenMode::ReadWrite)?);
                Ok(Some(Sqlite::open(&home.database(), OpenMode::ReadOnly)?))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The ledger, to write.
    #[expect(clippy::unused_self, reason = "as for `now`")]
    pub fn writer(&self, home: &StateFolder) -> Result<Sqlite, Failure> {
        Ok(Sqlite::open(&home.database(), OpenMode::ReadWrite)?)
    }

    /// The loop that the user means: by id, by name, by the beginning of the id; without a word the one that works in
    /// this folder, or the only one there is.
    pub fn find_loop(&self, ledger: &Sqlite, word: Option<&str>) -> Result<(LoopRow, LoopState), Failure> {
        let mut all = Vec::new();
        for row in ledger.loops()? {
            let state = read_state(&row)?;
            all.push((row, state));
        }
        all.sort_by_key(|(_, s)| std::cmp::Reverse((!s.is_over(), s.created_at)));
        match word {
            Some(word) => named(all, word),
            None => nearest(all, &self.dir),
        }
    }
}

fn named(all: Vec<(LoopRow, LoopState)>, word: &str) -> Result<(LoopRow, LoopState), Failure> {
    let exact = all.iter().position(|(r, s)| r.id == LoopId::new(word) || s.name == word);
    let begins: Vec<usize> =
        all.iter().enumerate().filter(|(_, (r, _))| r.id.as_str().starts_with(word)).map(|(i, _)| i).collect();
    let ids: Vec<String> = all.iter().map(|(r, s)| format!("{} ({})", r.id, s.name)).take(8).collect();
    match (exact, begins.as_slice()) {
        (Some(i), _) | (None, &[i]) => Ok(all.into_iter().nth(i).expect("the position was just found")),
        (None, []) if ids.is_empty() => Err(no_loops()),
        (None, []) => {
            Err(Failure::usage(format!("there is no loop `{word}`")).hint(format!("there are: {}", ids.join(", "))))
        }
        (None, _) => {
            Err(Failure::usage(format!("`{word}` fits several loops")).hint(format!("there are: {}", ids.join(", "))))
        }
    }
}

fn nearest(mut all: Vec<(LoopRow, LoopState)>, dir: &Path) -> Result<(LoopRow, LoopState), Failure> {
    if all.is_empty() {
        return Err(no_loops());
    }
    let here = all.iter().position(|(_, s)| dir.starts_with(&s.spec.workspace.dir));
    let active = all.iter().filter(|(_, s)| !s.is_over()).count();
    match here {
        Some(i) => Ok(all.swap_remove(i)),
        None if all.len() == 1 || active == 1 => Ok(all.swap_remove(0)),
        None => {
            let ids: Vec<String> = all.iter().map(|(r, s)| format!("{} ({})", r.id, s.name)).take(8).collect();
            Err(Failure::usage("no loop works in this folder, and there are several others")
                .hint(format!("name one: {}", ids.join(", "))))
        }
    }
}

fn no_loops() -> Failure {
    Failure::usage("there is no loop yet")
        .hint("start one: everloop run \"GOAL\" --check 'CMD' --agent claude (`everloop agents` lists what is here)")
}

/// Does what was typed.
pub fn perform(cli: Cli) -> (Ui, Result<Code, Failure>) {
    let ui = Ui::new(if cli.json { Format::Json } else { Format::Text });
    let dir = match &cli.dir {
        Some(dir) => dir.canonicalize(),
        None => std::env::current_dir(),
    };
    let dir = match dir {
        Ok(dir) => dir,
        // Whatever is wrong, a session is not disturbed.
        Err(_) if matches!(cli.verb, Verb::Hook(_)) => return (ui, Ok(Code::Ok)),
        Err(e) => {
            let name = cli.dir.as_deref().unwrap_or(Path::new(".")).display().to_string();
            return (ui, Err(Failure::usage(format!("cannot work in `{name}`")).because(&e)));
        }
    };
    let mut session = Invocation { state_dir: cli.state_dir, dir, ui, caller: Caller::here() };
    let result = check_time_scale(&cli.verb, &session.ui).and_then(|()| dispatch(cli.verb, &mut session));
    (session.ui, result)
}

/// Scaled time is for tests: it is announced by each supervisor, and a value that cannot be read is an error.
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
            Err(Failure::usage(format!("`{TIME_SCALE}={text}` is no whole number from 1 to {MAX_TIME_SCALE}"))
                .hint(format!("it is for tests only: unset {TIME_SCALE}")))
        }
    }
}

/// Does what a program inside this process asks for, as if it had been typed with `--json`; returns what was printed.
pub fn call(words: &[String], session: &mut Invocation) -> Result<String, Failure> {
    let all = ["everloop", "--json"].into_iter().map(str::to_owned).chain(words.iter().cloned());
    let cli = Cli::try_parse_from(all).map_err(|e| {
        let said = e.to_string();
        let what = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Failure::usage(what)
    })?;
    session.ui = Ui::keeping();
    dispatch(cli.verb, session)?;
    Ok(session.ui.kept())
}

fn dispatch(verb: Verb, session: &mut Invocation) -> Result<Code, Failure> {
    match verb {
        Verb::Run(args) => run::run(&args, session),
        Verb::Up(args) => up::up(&args, session),
        Verb::Down(args) => down::down(&args, session),
        Verb::Status(args) => status::status(&args, session),
        Verb::Why(args) => why::why(&args, session),
        Verb::Logs(args) => logs::logs(&args, session),
        Verb::Show(args) => show::show(&args, session),
        Verb::Pause(args) => pause::pause(args, session),
        Verb::Resume(args) => resume::resume(&args, session),
        Verb::Stop(args) => stop::stop(&args, session),
        Verb::Steer(args) => steer::steer(args, session),
        Verb::Wake(args) => wake::wake(&args, session),
        Verb::Send(args) => send::verb(&args, session),
        Verb::Inbox(args) => inbox::inbox(&args, session),
        Verb::Comment(args) => comment::comment(&args, session),
        Verb::Ticket(args) => ticket::ticket(args, session),
        Verb::Notify(args) => notify::notify(args, session),
        Verb::Task(args) => task::task(args, session),
        Verb::Board(args) => board::board(args, session),
        Verb::Mcp(args) => mcp::mcp(args, session),
        Verb::Pane(args) => pane::pane(args, session),
        Verb::Guard(args) => guard::guard(args, session),
        Verb::Quarantine(args) => quarantine::quarantine(args, session),
        Verb::Hub(args) => hub::hub(&args, session),
        Verb::Join(args) => join::join(&args, session),
        Verb::Leave(args) => leave::leave(&args, session),
        Verb::Node(args) => node::node(&args, session),
        Verb::Mesh(args) => mesh::mesh(&args, session),
        Verb::Agents(args) => agents::agents(&args, session),
        Verb::Usage(args) => usage::usage(&args, session),
        Verb::Check(args) => check::check(&args, session),
        Verb::Prompt(args) => prompt::prompt(&args, session),
        Verb::Prompts(args) => prompts::prompts(&args, session),
        Verb::Recover(args) => recover::recover(&args, session),
        Verb::Replay(args) => replay::replay(&args, session),
        Verb::Init(args) => init::init(&args, session),
        Verb::Uninstall(args) => uninstall::uninstall(&args, session),
        Verb::Plugin(args) => plugin::plugin(&args, session),
        Verb::Hook(args) => Ok(hook::hook(&args, session)),
        Verb::Handoff(args) => handoff::handoff(&args, session),
        Verb::Config(args) => config::config(args, session),
        Verb::Doctor(args) => doctor::doctor(&args, session),
        Verb::Demo(args) => demo::demo(&args, session),
        Verb::Completions(args) => completions::completions(&args, session),
        Verb::Man(args) => man::man(&args, session),
    }
}
