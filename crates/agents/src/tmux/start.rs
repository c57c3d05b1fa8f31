//! Starts and restarts a program in a pane of everloop.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::call::{TmuxCall, TmuxCommand};
use super::files::is_folder;
use super::pane::{ListedPane, Pane, PaneName, PaneOrigin, PaneProgram, PaneVariable, Program};
use super::{PaneError, TmuxServer};

/// What tmux prints about a new pane: see [`Found::parse`].
const MADE: &str = "#{pane_id} #{pane_pid} #{pid}";

/// Wide enough that agents do not shorten their status lines; an attached client brings its own
/// size.
const SIZE: &str = "-x 160 -y 50";

/// Removes the variables by which the program could reach the private server and the other panes.
/// It also ensures that tmux never gets a single word to run, which it would pass to a shell.
const BARE: [&str; 6] = ["env", "-u", "TMUX", "-u", "TMUX_PANE", "--"];

impl TmuxServer {
    /// Starts a program in a new pane.
    pub fn start(&self, name: PaneName, kind: PaneProgram, program: Program) -> Result<Pane, PaneError> {
        valid(&program)?;
        let _lock = self.files.lock(&name)?;
        if self.files.read(&name)?.is_some() {
            return Err(PaneError::Taken { name: name.to_string() });
        }
        self.create(name, kind, program)
    }

    /// Restarts the same program, in the same pane if it still exists. What runs in it is ended
    /// first.
    pub fn respawn(&self, name: &str) -> Result<Pane, PaneError> {
        let _lock = self.files.lock(&self.pane(name)?.name)?;
        let pane = self.pane(name)?;
        let PaneOrigin::Started(program) = &pane.origin else {
            return Err(PaneError::Adopted { name: name.to_owned() });
        };
        self.again(&pane, program.clone())
    }

    /// Runs a program in a locked pane, instead of what ran in it.
    pub(super) fn again(&self, pane: &Pane, program: Program) -> Result<Pane, PaneError> {
        valid(&program)?;
        if self.snapshot(pane)?.is_none() {
            return self.create(pane.name.clone(), pane.kind, program);
        }
        self.end_program(pane)?;
        let script = TmuxCommand::new(&format!("respawn-pane -k -t {} -c", pane.id())).literal(&program.cwd);
        with_program(script, &program).run(self.socket(), "start the program again")?;
        let args = ["display-message", "-p", "-t", pane.id(), MADE];
        let said = TmuxCall { socket: self.socket(), what: "look at a pane", args: &args, stdin: &[] }.run()?;
        let again = Pane::new(pane.name.clone(), pane.kind, found(&said)?, PaneOrigin::Started(program));
        self.files.write(&again)?;
        Ok(again)
    }

    /// A crash between tmux and the file leaves a pane without a record: nothing types into it, and
    /// since its session has this name, the next start under that name ends it.
    fn create(&self, name: PaneName, kind: PaneProgram, program: Program) -> Result<Pane, PaneError> {
        self.ensure()?;
        let left = TmuxCommand::new("kill-session -t").word(format!("={name}"));
        match left.run(self.socket(), "end a session that was left behind") {
            // Usually there is none.
            Ok(_) | Err(PaneError::Refused { .. }) => {}
            Err(e) => return Err(e),
        }
        let script = TmuxCommand::new(&format!("new-session -d -P {SIZE} -F")).word(MADE);
        let script = script.word("-s").word(name.as_str()).word("-c").literal(&program.cwd);
        let said = with_program(script, &program).run(self.socket(), "make a pane")?;
        let pane = Pane::new(name, kind, found(&said)?, PaneOrigin::Started(program));
        self.files.write(&pane)?;
        Ok(pane)
    }
}

fn found(said: &str) -> Result<ListedPane, PaneError> {
    let refused = || PaneError::Refused { what: "name the pane it made", said: said.trim().to_owned() };
    ListedPane::parse(said).ok_or_else(refused)
}

/// Adds the environment and the words of the program. tmux takes both literally.
fn with_program(script: TmuxCommand, program: &Program) -> TmuxCommand {
    let mut script = script;
    for (name, value) in variables(program) {
        let mut pair = OsString::from(name);
        pair.push("=");
        pair.push(value);
        script = script.word("-e").word(pair);
    }
    let words = BARE.into_iter().chain(program.argv.iter().map(String::as_str));
    words.fold(script.word("--"), TmuxCommand::word)
}

/// A variable that is not set is left out, as in a shell.
fn variables(program: &Program) -> Vec<(&str, OsString)> {
    let mut known = Vec::new();
    for variable in &program.env {
        match variable {
            PaneVariable::Outside { name } => known.extend(std::env::var_os(name).map(|value| (name.as_str(), value))),
            PaneVariable::Fixed { name, value } => known.push((name.as_str(), value.into())),
        }
    }
    known
}

/// tmux would start nothing, or something else, without an error.
fn valid(program: &Program) -> Result<(), PaneError> {
    let first = program.argv.first().map_or("", String::as_str);
    let bad = |why| Err(PaneError::BadProgram { program: first.to_owned(), why });
    let names = program.env.iter().map(|v| match v {
        PaneVariable::Outside { name } => (name, ""),
        PaneVariable::Fixed { name, value } => (name, value.as_str()),
    });
    let has_nul = |text: &str| text.contains('\0');
    if first.is_empty() {
        return bad("no program is named");
    }
    if first.contains('=') {
        return bad("a name with `=` would be taken for a variable");
    }
    if program.argv.iter().any(|a| has_nul(a)) || names.clone().any(|(n, v)| has_nul(n) || has_nul(v)) {
        return bad("a word contains a NUL byte");
    }
    if names.clone().any(|(name, _)| name.is_empty() || name.contains('=')) {
        return bad("a variable has no name");
    }
    if !is_folder(&program.cwd) {
        return bad("its folder does not exist");
    }
    if !is_executable(first, &program.cwd) {
        return bad("it does not exist, or cannot be executed");
    }
    Ok(())
}

fn is_executable(program: &str, cwd: &Path) -> bool {
    let able = |path: &Path| std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return able(&cwd.join(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(AsRef::<OsStr>::as_ref(&path)).any(|dir| able(&dir.join(program)))
}
