//! `everloop task edit`: changes the text, priority and dependencies of a task.

use std::path::{Path, PathBuf};
use std::process::Command;

use everloop_core::ids::TaskId;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::tasks::{self, EditTask};
use everloop_engine::state_folder::write_whole;

use super::VerbSession;
use super::add::read_prompt;

const HELP: &str = "Examples:
  everloop task edit x7k2m                    # in $EDITOR: the title, an empty line, the prompt
  everloop task edit x7k2m --title \"port the lexer first\" --priority 5
  everloop task edit x7k2m --file notes.md

A task that is held takes a new priority only.";

/// Changes a task; without options in your editor. Its next turn has the new text.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct TaskEditArgs {
    /// Id of the task
    task: String,
    /// New title, in one line
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// New text for the agent besides the title; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Take the text for the agent from this file
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    file: Option<PathBuf>,
    /// New priority; higher is sooner
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    priority: Option<i32>,
    /// Not before this task is done, instead of those so far; may be repeated
    #[arg(long, value_name = "TASK")]
    after: Vec<String>,
    /// Wait for no other task
    #[arg(long, conflicts_with = "after")]
    no_after: bool,
}

pub fn edit(args: TaskEditArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let Some((request, typed)) = request(args, session)? else {
        session.ui.talk("nothing was changed");
        return Ok(Code::Ok);
    };
    let edited = tasks::edit(session, request).map_err(|failure| match &typed {
        Some(path) => kept(failure, path),
        None => failure,
    })?;
    if let Some(path) = typed {
        std::fs::remove_file(path).ok();
    }
    let said = match edited.changed.as_slice() {
        [] => format!("task {} is like that already", edited.task),
        changed => format!("task {}: changed {}", edited.task, changed.join(", ")),
    };
    session.ui.answer(&[said], &edited)?;
    Ok(Code::Ok)
}

/// The failure with the place of the text that a person typed.
fn kept(failure: Failure, path: &Path) -> Failure {
    let place = format!("your text is in `{}`", path.display());
    let hint = failure.hint.as_ref().map_or_else(|| place.clone(), |hint| format!("{hint}; {place}"));
    failure.hint(hint)
}

/// The edit that the options describe, or the text that a person leaves in the editor, with its file.
fn request(args: TaskEditArgs, session: &VerbSession) -> Result<Option<(EditTask, Option<PathBuf>)>, Failure> {
    let task = TaskId::new(&args.task);
    let prompt = match (args.prompt, args.file) {
        (Some(text), _) if text == "-" => Some(read_prompt()?),
        (Some(text), _) => Some(text),
        (None, Some(file)) => Some(text_of(&session.dir.join(file))?),
        (None, None) => None,
    };
    let after = if args.no_after || !args.after.is_empty() { Some(args.after) } else { None };
    let request = EditTask { task, title: args.title, prompt, priority: args.priority, after };
    let EditTask { title, prompt, priority, after, .. } = &request;
    if title.is_some() || prompt.is_some() || priority.is_some() || after.is_some() {
        return Ok(Some((request, None)));
    }
    if !session.ui.asks() {
        return Err(Failure::usage("nothing to change is named, and there is no terminal for an editor")
            .hint(format!("everloop task edit {} --title TEXT --prompt TEXT --priority N", request.task)));
    }
    let row = tasks::editable(session, &request.task)?;
    let form = format!("{}\n\n{}\n", row.task.title, row.task.prompt.trim_end());
    let path = in_editor(&form, session)?;
    let text = text_of(&path).map_err(|failure| kept(failure, &path))?;
    if text == form {
        std::fs::remove_file(path).ok();
        return Ok(None);
    }
    let (title, prompt) = text.split_once('\n').unwrap_or((&text, ""));
    let (title, prompt) = (Some(title.to_owned()), Some(prompt.trim_matches('\n').to_owned()));
    Ok(Some((EditTask { title, prompt, ..request }, Some(path))))
}

fn text_of(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| Failure::usage(format!("cannot read `{}`", path.display())).because(&e))
}

/// Opens the text in a person's editor; returns its file.
fn in_editor(text: &str, session: &VerbSession) -> Result<PathBuf, Failure> {
    let path = session.home()?.root().join(format!("edit-{}.txt", std::process::id()));
    let written = write_whole(&path, text.as_bytes(), 0o600);
    written.map_err(|e| Failure::failed(format!("cannot write `{}`", path.display())).because(&e))?;
    let name = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    let editor = name.into_iter().find(|command| !command.trim().is_empty()).unwrap_or_else(|| "vi".to_owned());
    // As git does it: the variable may hold a command with arguments.
    let status = Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&path).status();
    match status {
        Ok(status) if status.success() => Ok(path),
        Ok(_) => Err(kept(Failure::failed(format!("the editor `{editor}` failed")).hint("nothing was changed"), &path)),
        Err(e) => Err(Failure::failed(format!("cannot start the editor `{editor}`")).because(&e)),
    }
}
