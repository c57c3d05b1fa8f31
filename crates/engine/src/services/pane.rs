//! Interactive agents in tmux panes. `everloop_agents::tmux` talks to tmux.
//!
//! - here: the panes of a state folder; `turn`: one prompt and its end, for the supervisor

use std::io::Read;
use std::path::{Path, PathBuf};

use everloop_agents::tmux::{
    Finish, Pane, PaneError, PaneKey, PaneProgram, PaneSelector, PaneVariable, Program, SafeText, ScreenCapture, State,
    TmuxServer, Typed,
};
use everloop_core::stream::Usage;

use super::ServiceContext;
use crate::error::{Code, Failure};
use crate::text::clean;

pub mod turn;

/// A prompt of more than this is a mistake; agents take a few hundred thousand characters.
const LARGEST: u64 = 16 << 20;

/// The panes of a state folder, on its private server, and those of the person that were adopted.
#[derive(Debug)]
pub struct Panes {
    server: TmuxServer,
    /// The folder of the caller.
    dir: PathBuf,
}

/// Start a program in a new pane, in the folder of the caller.
#[derive(Clone, Debug)]
pub struct StartPane {
    pub name: String,
    /// `None`: by the name of the command.
    pub kind: Option<PaneProgram>,
    /// Names of variables that are passed, or `NAME=VALUE`.
    pub env: Vec<String>,
    pub argv: Vec<String>,
}

/// Let everloop type into a pane of the person's own tmux.
#[derive(Clone, Debug)]
pub struct AdoptPane {
    pub name: String,
    pub target: String,
    /// `None`: the server of this terminal, else tmux's default.
    pub socket: Option<PathBuf>,
    /// `None`: by the name of the program.
    pub kind: Option<PaneProgram>,
}

/// A pane and what its program is doing.
#[derive(Clone, Debug)]
pub struct SeenPane {
    pub pane: Pane,
    pub state: State,
    /// What its session used, if that is known.
    pub used: Option<Usage>,
}

/// The screen of a pane.
#[derive(Clone, Debug)]
pub struct PaneScreen {
    pub pane: Pane,
    pub state: State,
    /// The title that the program set; untrusted text.
    pub title: String,
    /// Text that is not trusted.
    pub text: String,
}

impl Panes {
    /// Opens the server of the state folder; starts nothing.
    pub fn open(context: &ServiceContext) -> Result<Self, Failure> {
        let server = TmuxServer::open(context.home()?.root()).map_err(failure)?;
        Ok(Self { server, dir: context.dir.clone() })
    }

    /// The pane of this name.
    pub fn pane(&self, name: &str) -> Result<Pane, Failure> {
        self.server.pane(name).map_err(failure)
    }

    /// All panes and what their programs are doing.
    pub fn list(&self) -> Result<Vec<SeenPane>, Failure> {
        let mut all = Vec::new();
        for pane in self.server.panes().map_err(failure)? {
            let (_, state) = self.server.see(&pane).map_err(failure)?;
            let used = self.server.used(&pane);
            all.push(SeenPane { pane, state, used });
        }
        Ok(all)
    }

    /// The screen of a pane, also after its program has ended.
    pub fn read(&self, name: &str, capture: ScreenCapture) -> Result<PaneScreen, Failure> {
        let pane = self.pane(name)?;
        let (sight, state) = self.server.see(&pane).map_err(failure)?;
        let text = self.server.read(&pane, capture).map_err(failure)?.trim_end().to_owned();
        Ok(PaneScreen { pane, state, title: sight.title, text })
    }

    /// Starts a program in a new pane.
    pub fn start(&self, wanted: StartPane) -> Result<Pane, Failure> {
        let name = wanted.name.parse().map_err(failure)?;
        let of_command = || PaneProgram::of(wanted.argv.first().map_or("", String::as_str));
        let kind = wanted.kind.unwrap_or_else(of_command);
        let variable = |word: String| match word.split_once('=') {
            Some((name, value)) => PaneVariable::Fixed { name: name.to_owned(), value: value.to_owned() },
            None => PaneVariable::Outside { name: word },
        };
        let env = wanted.env.into_iter().map(variable).collect();
        let program = Program { argv: wanted.argv, cwd: self.dir.clone(), env };
        self.server.start(name, kind, program).map_err(failure)
    }

    /// Ends the program of a pane and starts it again.
    pub fn respawn(&self, name: &str) -> Result<Pane, Failure> {
        self.server.respawn(name).map_err(failure)
    }

    /// Ends the program of a pane and closes it; an adopted pane is given back.
    pub fn kill(&self, name: &str) -> Result<Pane, Failure> {
        self.server.kill(name).map_err(failure)
    }

    /// Shows a pane in this terminal; returns only when that is impossible.
    pub fn attach(&self, pane: &Pane) -> Failure {
        failure(self.server.attach(pane))
    }

    /// Lets everloop type into a pane as long as the program that is in it now runs.
    pub fn adopt(&self, wanted: AdoptPane) -> Result<Pane, Failure> {
        let socket = wanted.socket.map_or_else(usual_socket, |socket| Ok(self.dir.join(socket)))?;
        let name = wanted.name.parse().map_err(failure)?;
        let selector = PaneSelector { socket, target: wanted.target };
        self.server.adopt(name, wanted.kind, &selector).map_err(failure)
    }

    /// Types text into a pane.
    pub fn type_text(&self, pane: &Pane, text: &SafeText, finish: Finish) -> Result<Typed, Failure> {
        self.server.type_text(pane, text, finish).map_err(failure)
    }

    /// Presses keys in a pane, whatever its screen shows; returns what follows.
    pub fn press(&self, name: &str, keys: &[String]) -> Result<(Pane, State), Failure> {
        let keys: Result<Vec<PaneKey>, PaneError> = keys.iter().map(|key| key.parse()).collect();
        let keys = keys.map_err(failure)?;
        let pane = self.pane(name)?;
        self.server.press(&pane, &keys).map_err(failure)?;
        let (_, state) = self.server.see(&pane).map_err(failure)?;
        Ok((pane, state))
    }
}

/// The text of a file, or of standard input for `-`, without keys.
pub fn read_text(file: &Path) -> Result<SafeText, Failure> {
    let cannot = |e: std::io::Error| Failure::usage(format!("cannot read `{}`", file.display())).because(&e);
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|f| f.take(LARGEST + 1).read_to_end(&mut bytes))
    };
    read.map_err(cannot)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Failure::usage(format!("`{}` is longer than {} MB", file.display(), LARGEST >> 20)));
    }
    Ok(SafeText::clean(&bytes))
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
