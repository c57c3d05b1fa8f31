//! `everloop agents plugin`: everloop as a plugin of Claude Code.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use everloop_core::spec::AgentKind;
use everloop_engine::error::{Code, Failure};
use everloop_engine::install::FileChange;
use everloop_engine::install::plugin::{NAME, files};
use everloop_engine::services::agents;
use serde_json::json;

use crate::cli::VerbSession;

const HELP: &str = "Examples:
  everloop agents plugin install
  everloop agents plugin install ~/plugins/everloop   # write it there, without installing
  everloop agents plugin print
  everloop agents plugin remove";

/// Hooks, MCP server and skills for every session of Claude Code, whatever the project.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct PluginArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Write the plugin and let Claude Code install it
    Install {
        /// Write it into this folder only
        #[arg(value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
    /// Print every file of it
    Print,
    /// Remove it from Claude Code, with its folder
    Remove,
}

pub fn plugin(args: &PluginArgs, session: &VerbSession) -> Result<Code, Failure> {
    match &args.what {
        What::Install { into: Some(folder) } => {
            let dir = session.dir.join(folder);
            write(&dir)?;
            let said = format!("wrote {}; try it with `claude --plugin-dir {0}`", dir.display());
            session.ui.said(&said, &json!({ "dir": dir, "installed": false }))?;
        }
        What::Install { into: None } => install(session)?,
        What::Print => {
            let lines: Vec<String> =
                files().iter().map(|(path, text)| format!("--- {path}\n{}", text.trim_end())).collect();
            let content: serde_json::Map<String, serde_json::Value> =
                files().into_iter().map(|(path, text)| (path, text.into())).collect();
            session.ui.answer(&lines, &json!({ "files": content }))?;
        }
        What::Remove => remove(session)?,
    }
    Ok(Code::Ok)
}

/// The folder from which Claude Code installs it.
fn folder(session: &VerbSession) -> Result<PathBuf, Failure> {
    Ok(session.home()?.root().join("claude-plugin"))
}

fn install(session: &VerbSession) -> Result<(), Failure> {
    let dir = folder(session)?;
    write(&dir)?;
    let place = dir.display().to_string();
    let id = format!("{NAME}@{NAME}");
    let steps: [&[&str]; 2] = [&["plugin", "marketplace", "add", &place], &["plugin", "install", &id]];
    let known = agents::is_installed(AgentKind::Claude);
    if known {
        // An earlier version is replaced.
        tell_claude(&["plugin", "marketplace", "remove", NAME]).ok();
        for step in steps {
            tell_claude(step)?;
        }
        let said = format!("installed the plugin {id} from {place}; the next session of claude uses it");
        return session.ui.said(&said, &json!({ "dir": dir, "installed": true }));
    }
    let mut lines = vec![format!("wrote {place}; claude is not on the path. When it is:")];
    lines.extend(steps.iter().map(|step| format!("  claude {}", step.join(" "))));
    session.ui.answer(&lines, &json!({ "dir": dir, "installed": false }))
}

fn remove(session: &VerbSession) -> Result<(), Failure> {
    let dir = folder(session)?;
    if agents::is_installed(AgentKind::Claude) {
        // Either may be gone already.
        tell_claude(&["plugin", "uninstall", &format!("{NAME}@{NAME}")]).ok();
        tell_claude(&["plugin", "marketplace", "remove", NAME]).ok();
    }
    let removed = match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        done => {
            done.map_err(|e| Failure::failed(format!("cannot remove `{}`", dir.display())).because(&e))?;
            true
        }
    };
    let said = if removed { "removed the plugin" } else { "there was no plugin" };
    session.ui.said(said, &json!({ "removed": removed }))
}

fn tell_claude(words: &[&str]) -> Result<(), Failure> {
    let said = format!("`claude {}` failed", words.join(" "));
    let out = Command::new("claude").args(words).stdin(Stdio::null()).output();
    let out = out.map_err(|e| Failure::failed(said.clone()).because(&e))?;
    if out.status.success() {
        return Ok(());
    }
    let words = [out.stdout, out.stderr].concat();
    Err(Failure::failed(said).hint(String::from_utf8_lossy(&words).trim().to_owned()))
}

fn write(dir: &Path) -> Result<(), Failure> {
    for (path, text) in files() {
        let path = dir.join(path);
        let change = FileChange { path: path.clone(), before: None, after: Some(text) };
        change.perform(dir).map_err(|e| Failure::failed(format!("cannot write `{}`", path.display())).because(&e))?;
    }
    Ok(())
}
