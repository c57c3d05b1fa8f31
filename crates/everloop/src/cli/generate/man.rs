//! `everloop generate man`: the manual, made from the same text as the help.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_mangen::Man;
use everloop_engine::error::{Code, Failure};
use serde_json::json;

use crate::cli::{Cli, VerbSession};
use crate::ui::text::count;

const HELP: &str = "Examples:
  everloop generate man | man -l -
  everloop generate man --to ~/.local/share/man/man1";

/// Prints the main page, or writes a page per verb.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct ManArgs {
    /// Write a page per verb into this folder instead
    #[arg(long = "to", value_name = "DIR")]
    to: Option<PathBuf>,
}

pub fn man(args: &ManArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let Some(dir) = &args.to else {
        let page = page(Cli::command())?;
        session.ui.answer(&[page.trim_end().to_owned()], &json!({ "page": page }))?;
        return Ok(Code::Ok);
    };
    let dir = session.dir.join(dir);
    std::fs::create_dir_all(&dir).map_err(|e| cannot("make", &dir, &e))?;
    let mut written = Vec::new();
    for (name, text) in pages()? {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| cannot("write", &path, &e))?;
        written.push(path.display().to_string());
    }
    let said = format!("wrote {} to {}", count(written.len() as u64, "page"), dir.display());
    session.ui.answer(&[said], &json!({ "written": written }))?;
    Ok(Code::Ok)
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot {what} `{}`", path.display())).because(error)
}

/// File names and texts: the main page and one for each verb, those below a verb included.
fn pages() -> Result<Vec<(String, String)>, Failure> {
    let mut root = Cli::command().disable_help_subcommand(true);
    // Gives each verb its full name, `everloop-task-add`.
    root.build();
    let mut open = vec![root];
    let mut pages = Vec::new();
    while let Some(command) = open.pop() {
        open.extend(command.get_subcommands().filter(|c| !c.is_hide_set()).cloned());
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        pages.push((format!("{name}.1"), page(command)?));
    }
    pages.sort();
    Ok(pages)
}

fn page(command: clap::Command) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let rendered = Man::new(command).render(&mut bytes);
    rendered.map_err(|e| Failure::failed("cannot render the manual page").because(&e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_page() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["everloop.1", "everloop-status.1", "everloop-task-add.1", "everloop-guard-release.1"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        let main = pages.iter().find(|(name, _)| name == "everloop.1").map(|(_, text)| text.as_str());
        assert!(main.is_some_and(|text| text.contains("Keeps coding agents")), "{main:?}");
    }
}
