//! `everloop pane`: interactive agents in tmux panes. `everloop_agents::tmux` talks to tmux.
//!
//! - `start`: a program in a new pane; `list`, `read`: looking at panes
//! - `typing`: a prompt; `key`: answers to dialogs
//! - `turn`: one prompt and its end, for the supervisor

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::ValueEnum;
use everloop_agents::tmux::{Pane, PaneError, PaneOrigin, PaneProgram, PaneSelector, State, TmuxServer};
use everloop_engine::error::{Code, Failure};
use serde_json::json;

use super::VerbSession;
use crate::ui::text::clean;

mod key;
mod list;
mod read;
mod start;
mod turn;
mod typing;

const HELP: &str = "Examples:
  everloop pane start helper -- claude --permission-mode acceptEdits
  everloop pane list
  everloop pane type helper \"what is left to do?\"
  everloop pane read helper
  everloop pane key helper down enter     # answers a dialog
  everloop pane attach helper             # detach with Ctrl-b d

Panes live on a private tmux server in the state folder and outlive everloop. A pane of your own tmux is typed into only
after `everloop pane adopt`.";

/// Interactive agents in tmux panes, on a private server.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct PaneArgs {
    /// What to do with panes
    #[command(subcommand)]
    what: What,
}

/// Subcommands of `pane`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Start a program in a new pane
    Start(start::PaneStartArgs),
    /// Show all panes and what their programs are doing
    List,
    /// Print the screen of a pane
    Read(read::PaneReadArgs),
    /// Type text into a pane and press Enter
    Type(typing::PaneTypingArgs),
    /// Press keys in a pane, to answer a dialog or to interrupt
    Key(key::PaneKeyArgs),
    /// End the program of a pane and start it again, also after the tmux server was killed
    Respawn {
        /// Name of the pane
        name: String,
    },
    /// End the program of a pane and close it; an adopted pane is only given back
    Kill {
        /// Name of the pane
        name: String,
    },
    /// Show a pane in this terminal and type by hand; Ctrl-b d detaches
    Attach {
        /// Name of the pane
        name: String,
    },
    /// Let everloop type into a pane of your own tmux, as long as the program that is in it now
    /// runs
    Adopt(AdoptArgs),
    /// Type one prompt and wait for its end
    #[command(name = "__turn", hide = true)]
    Turn(turn::PaneTurnArgs),
}

/// Lets everloop type into a pane of your own tmux.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  everloop pane adopt mine --target main:1.0 --kind claude\n  \
    everloop pane adopt mine --target %3 --socket /tmp/tmux-1000/default")]
struct AdoptArgs {
    /// Name of the pane in everloop
    name: String,
    /// `%3`, or `session:window.pane` as `tmux list-panes -a` shows it
    #[arg(long, value_name = "PANE")]
    target: String,
    /// The socket of your tmux server [default: the one of this terminal, else tmux's default]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Program that runs in it; decides how its screen is read [default: by the name of the
    /// program]
    #[arg(long)]
    kind: Option<KindName>,
}

/// Programs with a known screen.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindName {
    /// Screens of Claude Code
    Claude,
    /// Screens of Codex
    Codex,
    /// Any other program
    Plain,
}

impl From<KindName> for PaneProgram {
    fn from(name: KindName) -> Self {
        match name {
            KindName::Claude => PaneProgram::Claude,
            KindName::Codex => PaneProgram::Codex,
            KindName::Plain => PaneProgram::Plain,
        }
    }
}

pub fn pane(args: PaneArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let server = TmuxServer::open(session.home()?.root()).map_err(failure)?;
    match args.what {
        What::Start(args) => start::start(args, &server, session),
        What::List => list::list(&server, session),
        What::Read(args) => read::read(&args, &server, session),
        What::Type(args) => typing::type_text(&args, &server, session),
        What::Key(args) => key::press(&args, &server, session),
        What::Respawn { name } => respawn(&name, &server, session),
        What::Kill { name } => kill(&name, &server, session),
        What::Attach { name } => attach(&name, &server),
        What::Adopt(args) => adopt(args, &server, session),
        What::Turn(args) => turn::turn(&args, &server, session),
    }
}

fn respawn(name: &str, server: &TmuxServer, session: &VerbSession) -> Result<Code, Failure> {
    let pane = server.respawn(name).map_err(failure)?;
    session.ui.said(&format!("`{}` runs again as process {}", pane.name, pane.process.pid), &view(&pane))?;
    Ok(Code::Ok)
}

fn kill(name: &str, server: &TmuxServer, session: &VerbSession) -> Result<Code, Failure> {
    let pane = server.kill(name).map_err(failure)?;
    let said = match pane.origin {
        PaneOrigin::Started(_) => format!("`{}` is closed", pane.name),
        PaneOrigin::Adopted { .. } => format!("`{}` is yours again; its program goes on", pane.name),
    };
    session.ui.said(&said, &view(&pane))?;
    Ok(Code::Ok)
}

fn attach(name: &str, server: &TmuxServer) -> Result<Code, Failure> {
    let pane = server.pane(name).map_err(failure)?;
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::usage("a pane can only be attached to a terminal")
            .hint(format!("`everloop pane read {name}` shows it anywhere")));
    }
    Err(failure(server.attach(&pane)))
}

fn adopt(args: AdoptArgs, server: &TmuxServer, session: &VerbSession) -> Result<Code, Failure> {
    let socket = args.socket.map_or_else(usual_socket, |socket| Ok(session.dir.join(socket)))?;
    let name = args.name.parse().map_err(failure)?;
    let wanted = PaneSelector { socket, target: args.target };
    let pane = server.adopt(name, args.kind.map(PaneProgram::from), &wanted).map_err(failure)?;
    let said = format!(
        "everloop may type into {} as `{}` while its program runs; `everloop pane kill {}` ends that",
        pane.id(),
        pane.name,
        pane.name
    );
    session.ui.said(&said, &view(&pane))?;
    Ok(Code::Ok)
}

/// The server of this terminal, else tmux's default.
fn usual_socket() -> Result<PathBuf, Failure> {
    let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    if let Some(tmux) = var("TMUX") {
        return Ok(tmux.split(',').next().unwrap_or_default().into());
    }
    let base = var("TMUX_TMPDIR").unwrap_or_else(|| "/tmp".to_owned());
    let user = std::fs::metadata("/proc/self").map_err(|e| Failure::failed("cannot read the user id").because(&e))?;
    Ok(PathBuf::from(base).join(format!("tmux-{}/default", std::os::unix::fs::MetadataExt::uid(&user))))
}

/// A pane as JSON; without its environment.
fn view(pane: &Pane) -> serde_json::Value {
    let mut view = json!({
        "name": pane.name,
        "kind": pane.kind,
        "id": pane.id(),
        "pid": pane.process.pid,
    });
    match &pane.origin {
        PaneOrigin::Started(program) => {
            view["origin"] = "started".into();
            view["argv"] = json!(program.argv);
            view["cwd"] = json!(program.cwd);
        }
        PaneOrigin::Adopted { socket, .. } => {
            view["origin"] = "adopted".into();
            view["socket"] = json!(socket);
        }
    }
    json!({ "pane": view })
}

/// Maps every error about panes to a failure with a hint.
#[expect(clippy::needless_pass_by_value, reason = "handed to `map_err`, which gives it away")]
fn failure(error: PaneError) -> Failure {
    let code = match &error {
        PaneError::BadName { .. }
        | PaneError::NoPane { .. }
        | PaneError::Taken { .. }
        | PaneError::BadTarget { .. }
        | PaneError::BadProgram { .. }
        | PaneError::BadKey { .. }
        | PaneError::Adopted { .. }
        | PaneError::LongPath { .. } => Code::Usage,
        PaneError::NoTmux
        | PaneError::Io { .. }
        | PaneError::Refused { .. }
        | PaneError::Silent { .. }
        | PaneError::Damaged { .. }
        | PaneError::InsideJob
        | PaneError::Occupied { .. }
        | PaneError::Busy { .. }
        | PaneError::NotIdle { state: State::Working, .. } => Code::Failed,
        PaneError::NotIdle { state: State::Limited { .. }, .. } => Code::Held,
        PaneError::NotOurs { .. }
        | PaneError::Elsewhere { .. }
        | PaneError::TooOften { .. }
        | PaneError::NotIdle { .. }
        | PaneError::Unsent { .. } => Code::NeedsPerson,
        PaneError::Dead { .. } => Code::Away,
    };
    let hint = error.hint();
    let said = Failure::new(code, clean(&error.to_string()));
    let said = match std::error::Error::source(&error) {
        Some(source) => said.because(source),
        None => said,
    };
    match hint {
        Some(hint) => said.hint(clean(&hint)),
        None => said,
    }
}
