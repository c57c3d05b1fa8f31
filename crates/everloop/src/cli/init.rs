//! `everloop init`: an everloop.toml with the checks that this project seems to have.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use toml::Value;

use super::{Session, config as config_verb};
use crate::config::PROJECT_FILE;
use crate::detect::{Proposal, detect, render_toml};
use crate::error::{Code, Failure};
use crate::ui::text::clean;

const HELP: &str = "Examples:
  everloop init
  everloop init --goal \"port it to Python 3\" --agent-cmd 'my-agent {prompt}' --yes
  everloop init --print";

/// What `detect` writes where it cannot know the agent.
const PLACEHOLDER: &str = "command = [\"my-agent\", \"{prompt}\"]";

/// Looks at the project, proposes checks, and writes everloop.toml into this folder. Starts nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// What is to be reached
    #[arg(long, default_value = "make all checks pass", value_name = "TEXT")]
    goal: String,
    /// The command that takes a turn; {prompt} or {prompt_file} is replaced, else the prompt comes on stdin
    #[arg(long, value_name = "CMD")]
    agent_cmd: Option<String>,
    /// Overwrite a file that is there
    #[arg(long)]
    force: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Only print what would be written
    #[arg(long)]
    print: bool,
}

pub fn init(args: &Args, session: &mut Session) -> Result<Code, Failure> {
    let proposals = detect(&session.dir);
    let text = with_agent(render_toml(&proposals, &args.goal), args.agent_cmd.as_deref())?;
    let path = session.dir.join(PROJECT_FILE);
    if args.print {
        session
            .ui
            .answer(&[text.trim_end().to_owned()], &json!({ "path": path, "text": text, "checks": proposals }))?;
        return Ok(Code::Ok);
    }
    if path.exists() && !args.force {
        return Err(Failure::failed(format!("`{}` is there already", path.display()))
            .hint("change it by hand, see what would be written with --print, or overwrite it with --force"));
    }
    let found = found(&proposals);
    let asks = !args.yes && session.ui.asks();
    if asks {
        for line in &found {
            session.ui.talk(line);
        }
        if !session.ui.agrees(&format!("write {}?", path.display()))? {
            session.ui.talk("nothing was written");
            return Ok(Code::Ok);
        }
    }
    write_whole(&path, &text).map_err(|e| Failure::failed(format!("cannot write `{}`", path.display())).because(&e))?;
    // A file of ours with a mistake in it would be our mistake; it is said, not hidden.
    let mistake = config_verb::load(session).and_then(|c| Ok(c.check(&config_verb::this_moment(session))?)).err();
    let mut lines = if asks { Vec::new() } else { found };
    lines.push(format!("wrote {}", path.display()));
    lines.extend(next_steps(args, &proposals).into_iter().map(|step| format!("next: {step}")));
    session.ui.answer(&lines, &json!({ "written": path, "checks": proposals }))?;
    match mistake {
        Some(failure) => Err(failure),
        None => Ok(Code::Ok),
    }
}

/// Puts the agent's command where the placeholder is.
fn with_agent(text: String, command: Option<&str>) -> Result<String, Failure> {
    let Some(command) = command else { return Ok(text) };
    let example = "--agent-cmd 'my-agent {prompt}'";
    let words = shlex::split(command).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| Failure::usage(format!("`{command}` is not a command")).hint(example))?;
    let list = Value::from(words.into_iter().map(Value::from).collect::<Vec<_>>());
    Ok(text.replace(PLACEHOLDER, &format!("command = {list}")))
}

fn found(proposals: &[Proposal]) -> Vec<String> {
    if proposals.is_empty() {
        return vec!["found nothing that looks like a test: write a check of your own into the file".to_owned()];
    }
    let line = |p: &Proposal| {
        let note = if p.optional { " (as a comment)" } else { "" };
        format!("found {}: {}{note}, because {}", clean(&p.name), clean(&p.run), clean(&p.reason))
    };
    proposals.iter().map(line).collect()
}

fn next_steps(args: &Args, proposals: &[Proposal]) -> Vec<String> {
    let mut steps = Vec::new();
    if args.agent_cmd.is_none() {
        steps.push(format!("set the agent's command in {PROJECT_FILE}"));
    }
    if proposals.iter().all(|p| p.optional) {
        steps.push(format!("write a check into {PROJECT_FILE}"));
    }
    steps.push("everloop check (what do the checks say now?)".to_owned());
    steps.push("everloop run".to_owned());
    steps
}

/// The file is there whole or not at all, also after a power cut.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let aside = path.with_file_name(format!(".{PROJECT_FILE}.{}", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, path)
    };
    let written = write();
    if written.is_err() {
        // Best effort: the first error is the one worth telling.
        std::fs::remove_file(&aside).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_command_takes_the_placeholders_place() {
        let plain = render_toml(&[], "x");
        assert!(plain.contains(PLACEHOLDER), "{plain}");
        let text = with_agent(plain, Some("my-tool --model 'big one' {prompt_file}")).unwrap();
        assert!(text.contains(r#"command = ["my-tool", "--model", "big one", "{prompt_file}"]"#), "{text}");
        assert!(with_agent(String::new(), Some("'unclosed")).is_err());
    }
}
