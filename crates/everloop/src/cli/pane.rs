//! `everloop pane`: interactive agents in tmux panes.
//!
//! - `start`: a program in a new pane; `list`, `read`: looking at panes
//! - `typing`: a prompt; `key`: answers to dialogs
//! - `turn`: one prompt and its end, for the supervisor

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::ValueEnum;
use everloop_agents::tmux::{Pane, PaneOrigin, PaneProgram};
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::pane::{AdoptPane, Panes};
use serde_json::json;

use super::VerbSession;

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
    let panes = Panes::open(session)?;
    match args.what {
        What::Start(args) => start::start(args, &panes, session),
        What::List => list::list(&panes, session),
        What::Read(args) => read::read(&args, &panes, session),
        What::Type(args) => typing::type_text(&args, &panes, session),
        What::Key(args) => key::press(&args, &panes, session),
        What::Respawn { name } => respawn(&name, &panes, session),
        What::Kill { name } => kill(&name, &panes, session),
        What::Attach { name } => attach(&name, &panes),
        What::Adopt(args) => adopt(args, &panes, session),
        What::Turn(args) => turn::turn(args, &panes, session),
    }
}

fn respawn(name: &str, panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    let pane = panes.respawn(name)?;
    session.ui.said(&format!("`{}` runs again as process {}", pane.name, pane.process.pid), &view(&pane))?;
    Ok(Code::Ok)
}

fn kill(name: &str, panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    let pane = panes.kill(name)?;
    let said = match pane.origin {
        PaneOrigin::Started(_) => format!("`{}` is closed", pane.name),
        PaneOrigin::Adopted { .. } => format!("`{}` is yours again; its program goes on", pane.name),
    };
    session.ui.said(&said, &view(&pane))?;
    Ok(Code::Ok)
}

fn attach(name: &str, panes: &Panes) -> Result<Code, Failure> {
    let pane = panes.pane(name)?;
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::usage("a pane can only be attached to a terminal")
            .hint(format!("`everloop pane read {name}` shows it anywhere")));
    }
    Err(panes.attach(&pane))
}

fn adopt(args: AdoptArgs, panes: &Panes, session: &VerbSession) -> Result<Code, Failure> {
    let AdoptArgs { name, target, socket, kind } = args;
    let pane = panes.adopt(AdoptPane { name, target, socket, kind: kind.map(PaneProgram::from) })?;
    let said = format!(
        "everloop may type into {} as `{}` while its program runs; `everloop pane kill {}` ends that",
        pane.id(),
        pane.name,
        pane.name
    );
    session.ui.said(&said, &view(&pane))?;
    Ok(Code::Ok)
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
