//! `everloop init`: writes an everloop.toml with the checks that this project seems to have.

use std::path::Path;

use everloop_core::spec::AgentKind;
use everloop_engine::error::{Code, Failure};
use everloop_engine::install::FileChange;
use everloop_engine::install::plan::{self, AgentCli};
use everloop_engine::install::record::Originals;
use everloop_engine::services::{agents, trust};
use serde_json::json;
use toml::Value;

use super::choices;
use super::{VerbSession, config as config_verb, run};
use crate::config::{Config, PROJECT_FILE};
use crate::detect::{Proposal, detect, render_toml};
use crate::ui::text::clean;

mod remove;

const HELP: &str = "Examples:
  everloop init
  everloop init --goal \"port it to Python 3\" --agent-cmd 'my-agent {prompt}' --yes
  everloop init --agent claude --agent codex
  everloop init --print
  everloop init --remove          # what it wrote, and only that

With `--remove` the state folder with its journal stays; loops of this project are not stopped.";

/// The placeholder of `detect` for an unknown agent.
const PLACEHOLDER: &str = "command = [\"my-agent\", \"{prompt}\"]";

/// Looks at the project, proposes checks, and writes everloop.toml into this folder; with `--agent`
/// or `--hooks` it also connects the agents' CLIs. Shows what it changes. Starts nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct InitArgs {
    /// The goal of the loop
    #[arg(long, default_value = "make all checks pass", value_name = "TEXT")]
    goal: String,
    /// The command that takes a turn; {prompt} or {prompt_file} is replaced, else the prompt comes
    /// on stdin
    #[arg(long, value_name = "CMD")]
    agent_cmd: Option<String>,
    /// Agent CLIs to connect to everloop: instructions, hooks and MCP server, in the files of the
    /// project that they read; repeat for several. The first one works on the loop
    #[arg(long, value_name = "AGENT", value_parser = choices::agent_cli(), conflicts_with = "agent_cmd")]
    agent: Vec<AgentCli>,
    /// Connect all installed CLIs the same way
    #[arg(long, conflicts_with = "no_hooks")]
    hooks: bool,
    /// Write everloop.toml only
    #[arg(long)]
    no_hooks: bool,
    /// Overwrite an existing everloop.toml
    #[arg(long)]
    force: bool,
    /// Remove everloop's instructions, hooks and MCP entries from the files of this project, and
    /// files that `init` made and that were not changed since; everything else keeps every byte
    #[arg(long, conflicts_with_all = ["goal", "agent_cmd", "agent", "hooks", "no_hooks", "force"])]
    remove: bool,
    /// Write or remove without confirmation
    #[arg(short, long)]
    yes: bool,
    /// Only print what would be written or removed
    #[arg(long)]
    print: bool,
}

pub fn init(args: &InitArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    if args.remove { remove::remove(args, session) } else { write(args, session) }
}

fn write(args: &InitArgs, session: &VerbSession) -> Result<Code, Failure> {
    let proposals = detect(&session.dir);
    let clis = args.clis();
    let cli = match (&args.agent_cmd, clis.first()) {
        (Some(_), _) => None,
        (None, Some(first)) => Some(first.kind()),
        (None, None) => run::installed_clis().first().map(|(agent, _)| agent.kind),
    };
    let text = render_toml(&proposals, &args.goal);
    let text = match cli {
        Some(kind) => with_cli(&text, kind, &proposals),
        None => with_agent(text, args.agent_cmd.as_deref())?,
    };
    let path = session.dir.join(PROJECT_FILE);
    let kept = path.exists() && !args.force;
    let mut changes = plan::put(&session.dir, if args.no_hooks { &[] } else { &clis }).map_err(|e| cannot_edit(&e))?;
    if !kept || args.print {
        let mut change = FileChange::of(path.clone()).map_err(|e| cannot_edit(&e))?;
        change.after = Some(text.clone());
        changes.insert(0, change);
    }
    if args.print {
        let mut lines = vec![text.trim_end().to_owned()];
        lines.extend(changes.iter().skip(1).flat_map(|change| change.lines(&session.dir)));
        session.ui.answer(&lines, &json!({ "path": path, "text": text, "checks": proposals }))?;
        return Ok(Code::Ok);
    }
    if kept && clis.is_empty() {
        return Err(Failure::failed(format!("`{}` exists already", path.display()))
            .hint("change it by hand, see what would be written with --print, or overwrite it with --force"));
    }
    let found = if kept { Vec::new() } else { found(&proposals) };
    let mut lines = found;
    lines.extend(changes.iter().filter(|change| change.path != path).flat_map(|change| change.lines(&session.dir)));
    let asks = !args.yes && session.ui.asks() && !changes.is_empty();
    if asks {
        for line in lines.drain(..) {
            session.ui.talk(&clean(&line));
        }
        let names: Vec<String> = changes.iter().map(|change| change.path.display().to_string()).collect();
        if !session.ui.agrees(&format!("write {}?", names.join(", ")))? {
            session.ui.talk("nothing was written");
            return Ok(Code::Ok);
        }
    }
    perform(&changes, session)?;
    let mut next: Vec<String> = clis.iter().filter_map(|cli| cli.by_hand().map(str::to_owned)).collect();
    // A generated file with a mistake in it is our own mistake; it is reported, not hidden.
    let config = config_verb::load(session).and_then(|config| {
        config.check(&config_verb::this_moment(session))?;
        Ok(config)
    });
    let mistake = config.and_then(|config| accept(&config, session)).err();
    lines.extend(changes.iter().map(|change| format!("wrote {}", change.path.display())));
    if changes.is_empty() {
        lines.push("everything is there already".to_owned());
    }
    next.extend(commit_step(&changes, &session.dir));
    next.extend(next_steps(args, cli, &proposals));
    lines.extend(next.into_iter().map(|step| format!("next: {step}")));
    let written: Vec<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
    session.ui.answer(&lines, &json!({ "written": path, "files": written, "checks": proposals }))?;
    match mistake {
        Some(failure) => Err(failure),
        None => Ok(Code::Ok),
    }
}

/// The person that types `init` here accepts the file that it wrote, or found and connected.
fn accept(config: &Config, session: &VerbSession) -> Result<(), Failure> {
    match config.project_file() {
        Some(file) => trust::accept(session, &file, "init").map(drop),
        None => Ok(()),
    }
}

impl InitArgs {
    /// The CLIs to connect.
    fn clis(&self) -> Vec<AgentCli> {
        let mut clis = self.agent.clone();
        if clis.is_empty() && self.hooks {
            clis = AgentCli::ALL.into_iter().filter(|cli| agents::is_installed(cli.kind())).collect();
        }
        clis.sort();
        clis.dedup();
        clis
    }
}

/// Records the previous content, then writes.
fn perform(changes: &[FileChange], session: &VerbSession) -> Result<(), Failure> {
    let home = session.home()?;
    let mut originals = Originals::load(&home, &session.dir).map_err(|e| cannot_edit(&e))?;
    for change in changes {
        originals.add(change, &session.dir);
    }
    originals.save(&home, &session.dir).map_err(|e| cannot_edit(&e))?;
    for change in changes {
        let written = change.perform(&session.dir);
        written.map_err(|e| Failure::failed(format!("cannot write `{}`", change.path.display())).because(&e))?;
    }
    Ok(())
}

fn cannot_edit(error: &std::io::Error) -> Failure {
    Failure::failed("cannot connect the agents' CLIs in this project").because(error)
}

/// Names an installed CLI instead of the placeholder, and lets it run the checks: everloop runs
/// them anyway.
fn with_cli(text: &str, kind: AgentKind, proposals: &[Proposal]) -> String {
    let Some((before, rest)) = text.split_once("[agent.default]") else { return text.to_owned() };
    let Some((_, after)) = rest.split_once("[loop.main]") else { return text.to_owned() };
    let plain = |run: &&str| !run.contains(['&', '|', ';', '(', '$', '>', '<']);
    let runs = proposals.iter().filter(|p| !p.optional).map(|p| p.run.as_str()).filter(plain);
    let allow = Value::from(runs.map(Value::from).collect::<Vec<_>>());
    let agent = format!(
        "# Installed here; `everloop agents` lists what else there is.\nagent = \"{}\"\n\
         # What it may run besides changing files; `permission = \"full\"` lets it run everything as your user.\nallow = {allow}",
        kind.label()
    );
    format!("{before}[loop.main]{}", after.replacen("agent = \"default\"", &agent, 1))
}

/// Replaces the placeholder by the agent's command.
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

/// Turns see commits only: instructions and hooks that are not committed reach no agent.
fn commit_step(changes: &[FileChange], dir: &Path) -> Option<String> {
    let in_git = dir.ancestors().any(|folder| folder.join(".git").exists());
    let name = |change: &FileChange| {
        let path = change.path.strip_prefix(dir).unwrap_or(&change.path).display().to_string();
        shlex::try_quote(&path).map_or_else(|_| path.clone(), std::borrow::Cow::into_owned)
    };
    let names: Vec<String> = changes.iter().map(name).collect();
    (in_git && !names.is_empty())
        .then(|| format!("git add {} && git commit -m 'Set up everloop' (turns see commits only)", names.join(" ")))
}

fn next_steps(args: &InitArgs, cli: Option<AgentKind>, proposals: &[Proposal]) -> Vec<String> {
    let mut steps = Vec::new();
    if args.agent_cmd.is_none() && cli.is_none() {
        steps.push(format!("set the agent's command in {PROJECT_FILE}"));
    }
    if proposals.iter().all(|p| p.optional) {
        steps.push(format!("write a check into {PROJECT_FILE}"));
    }
    steps.push("everloop check (which checks pass now?)".to_owned());
    steps.push("everloop run".to_owned());
    steps
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
        let moment = crate::config::ResolveContext::at(everloop_core::time::Time(0));
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
