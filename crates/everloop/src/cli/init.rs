//! `everloop init`: writes an everloop.toml with the checks that this project seems to have.

use everloop_core::spec::AgentKind;
use everloop_engine::error::{Code, Failure};
use everloop_engine::install::plan::AgentCli;
use everloop_engine::services::init::{self as service, ExistingFile, InitRequest, installed_clis};
use everloop_engine::services::trust;
use serde_json::json;

use super::choices;
use super::{VerbSession, config as config_verb, run};
use crate::config::{Config, PROJECT_FILE};
use crate::detect::agent::{with_cli, with_command};
use crate::detect::{Proposal, detect, render_toml};
use crate::ui::text::clean;

mod plan;
mod remove;

const HELP: &str = "Examples:
  everloop init
  everloop init --goal \"port it to Python 3\" --agent-cmd 'my-agent {prompt}' --yes
  everloop init --agent claude --agent codex
  everloop init --print
  everloop init --research        # a plan for `everloop research`
  everloop init --remove          # what it wrote, and only that

With `--remove` the state folder with its journal stays; loops of this project are not stopped.";

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
    /// Only write a template for the plan of a research run, `.everloop/research-plan.md`
    #[arg(long, conflicts_with_all = ["goal", "agent_cmd", "agent", "hooks", "no_hooks", "force", "remove"])]
    research: bool,
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
    match args {
        InitArgs { remove: true, .. } => remove::remove(args, session),
        InitArgs { research: true, .. } => plan::write(args, session),
        _ => write(args, session),
    }
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
        None => with_command(text, args.agent_cmd.as_deref())?,
    };
    let path = session.dir.join(PROJECT_FILE);
    let existing = if args.force || args.print { ExistingFile::Overwrite } else { ExistingFile::Keep };
    let connected = if args.no_hooks { Vec::new() } else { clis.clone() };
    let plan =
        service::plan(session, InitRequest { path: path.clone(), text: text.clone(), existing, clis: connected })?;
    if args.print {
        let mut lines = vec![text.trim_end().to_owned()];
        lines.extend(plan.lines(session));
        session.ui.answer(&lines, &json!({ "path": path, "text": text, "checks": proposals }))?;
        return Ok(Code::Ok);
    }
    if plan.kept && clis.is_empty() {
        return Err(Failure::failed(format!("`{}` exists already", path.display()))
            .hint("change it by hand, see what would be written with --print, or overwrite it with --force"));
    }
    let mut lines = if plan.kept { Vec::new() } else { found(&proposals) };
    lines.extend(plan.lines(session));
    let asks = !args.yes && session.ui.asks() && !plan.changes.is_empty();
    if asks {
        for line in lines.drain(..) {
            session.ui.talk(&clean(&line));
        }
        let names: Vec<String> = plan.files().iter().map(|path| path.display().to_string()).collect();
        if !session.ui.agrees(&format!("write {}?", names.join(", ")))? {
            session.ui.talk("nothing was written");
            return Ok(Code::Ok);
        }
    }
    plan.perform(session)?;
    let mut next: Vec<String> = clis.iter().filter_map(|cli| cli.by_hand().map(str::to_owned)).collect();
    // A generated file with a mistake in it is our own mistake; it is reported, not hidden.
    let config = config_verb::load(session).and_then(|config| {
        config.check(&config_verb::this_moment(session))?;
        Ok(config)
    });
    let mistake = config.and_then(|config| accept(&config, session)).err();
    lines.extend(plan.files().iter().map(|path| format!("wrote {}", path.display())));
    if plan.changes.is_empty() {
        lines.push("everything is there already".to_owned());
    }
    next.extend(commit_step(&plan.to_commit(session)));
    next.extend(next_steps(args, cli, &proposals));
    lines.extend(next.into_iter().map(|step| format!("next: {step}")));
    session.ui.answer(&lines, &json!({ "written": path, "files": plan.files(), "checks": proposals }))?;
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
            clis = installed_clis();
        }
        clis.sort();
        clis.dedup();
        clis
    }
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

/// The command that commits what was written.
fn commit_step(names: &[String]) -> Option<String> {
    let quoted = |name: &String| shlex::try_quote(name).map_or_else(|_| name.clone(), std::borrow::Cow::into_owned);
    let names: Vec<String> = names.iter().map(quoted).collect();
    (!names.is_empty())
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
