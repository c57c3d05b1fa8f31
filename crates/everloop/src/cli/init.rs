//! `everloop init`: an everloop.toml with the checks that this project seems to have.

use std::io::Write;
use std::path::Path;

use everloop_core::spec::AgentKind;
use serde_json::json;
use toml::Value;

use super::{Session, agents, config as config_verb};
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
    let cli = if args.agent_cmd.is_none() { agents::installed() } else { None };
    let text = render_toml(&proposals, &args.goal);
    let text = match cli {
        Some(kind) => with_cli(&text, kind, &proposals),
        None => with_agent(text, args.agent_cmd.as_deref())?,
    };
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
    lines.extend(next_steps(args, cli, &proposals).into_iter().map(|step| format!("next: {step}")));
    session.ui.answer(&lines, &json!({ "written": path, "checks": proposals }))?;
    match mistake {
        Some(failure) => Err(failure),
        None => Ok(Code::Ok),
    }
}

/// Names a CLI that is installed here instead of the placeholder, and lets it run the checks: everloop runs them anyway.
fn with_cli(text: &str, kind: AgentKind, proposals: &[Proposal]) -> String {
    let Some((before, rest)) = text.split_once("[agent.default]") else { return text.to_owned() };
    let Some((_, after)) = rest.split_once("[loop.main]") else { return text.to_owned() };
    let plain = |run: &&str| !run.contains(['&', '|', ';', '(', '$', '>', '<']);
    let runs = proposals.iter().filter(|p| !p.optional).map(|p| p.run.as_str()).filter(plain);
    let allow = Value::from(runs.map(Value::from).collect::<Vec<_>>());
    let agent = format!(
        "# Installed here; `everloop agents` lists what else there is.\nagent = \"{}\"\n\
         # What it may run besides changing files; `permission = \"full\"` lets it run everything as you.\nallow = {allow}",
        kind.label()
    );
    format!("{before}[loop.main]{}", after.replacen("agent = \"default\"", &agent, 1))
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

fn next_steps(args: &Args, cli: Option<AgentKind>, proposals: &[Proposal]) -> Vec<String> {
    let mut steps = Vec::new();
    if args.agent_cmd.is_none() && cli.is_none() {
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
    fn an_installed_cli_takes_the_agents_place_and_may_run_the_checks() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Cargo.toml"), "[package]\nname = \"x\"\n").unwrap();
        let proposals = detect(dir.path());
        let text = with_cli(&render_toml(&proposals, "x"), AgentKind::Claude, &proposals);
        assert!(text.contains("agent = \"claude\"") && text.contains("allow = [\"cargo test\"]"), "{text}");
        assert!(!text.contains("[agent.") && !text.contains("my-agent"), "{text}");
        std::fs::write(dir.path().join(PROJECT_FILE), &text).unwrap();
        let config = crate::config::load(dir.path(), None, &crate::config::Overrides::default()).unwrap();
        let moment = crate::config::Moment::at(everloop_core::time::Time(0));
        assert_eq!(config.resolve("main", &moment).unwrap().agent.kind, AgentKind::Claude);
    }

    #[test]
    fn the_agents_command_takes_the_placeholders_place() {
        let plain = render_toml(&[], "x");
        assert!(plain.contains(PLACEHOLDER), "{plain}");
        let text = with_agent(plain, Some("my-tool --model 'big one' {prompt_file}")).unwrap();
        assert!(text.contains(r#"command = ["my-tool", "--model", "big one", "{prompt_file}"]"#), "{text}");
        assert!(with_agent(String::new(), Some("'unclosed")).is_err());
    }
}
