//! `everloop agents`: which agents are installed, logged in, and how they are billed. Reads no
//! credential. `plugin`: everloop as a plugin of an agent.

use everloop_agents::agent::probe::Installed;
use everloop_core::spec::AgentSpec;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::agents::{is_there, look_at};
use serde_json::{Value, json};

use super::{VerbSession, config as config_verb};
use crate::ui::agents::{agents_table, billing, login};

mod plugin;

const HELP: &str = "Examples:
  everloop agents
  everloop agents --json
  everloop agents plugin install
  everloop run \"GOAL\" --check 'CMD' --agent claude";

/// Lists the agents that everloop knows and those of everloop.toml, each under its account:
/// installed, version, logged in, billing.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct AgentsArgs {
    /// What to do with agents [default: list them]
    #[command(subcommand)]
    what: Option<What>,
}

/// Subcommands of `agents`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Install, print or remove the plugin for Claude Code
    Plugin(plugin::PluginArgs),
}

impl AgentsArgs {
    /// Whether it only lists agents.
    pub(super) fn is_list(&self) -> bool {
        self.what.is_none()
    }
}

pub fn agents(args: &AgentsArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match &args.what {
        None => list(session),
        Some(What::Plugin(args)) => plugin::plugin(args, session),
    }
}

fn list(session: &VerbSession) -> Result<Code, Failure> {
    let specs = config_verb::load(session)?.all_agents(&config_verb::this_moment(session))?;
    let found = look_at(specs);
    let rows: Vec<Value> = found.iter().map(as_json).collect();
    let lines = agents_table(&found, session.ui.paint(), session.ui.width());
    session.ui.answer(&lines, &json!({ "agents": rows }))?;
    Ok(Code::Ok)
}

fn as_json((agent, found): &(AgentSpec, Installed)) -> Value {
    let word = |text: &str| (text != "-").then(|| text.replace(' ', "_"));
    json!({
        "name": agent.name,
        "kind": agent.kind,
        "account": agent.account,
        "model": agent.model,
        "permission": agent.permission,
        "installed": is_there(agent, found),
        "path": found.path,
        "version": found.version,
        "login": word(login(found.login)),
        "billing": word(billing(found.billing)),
        "hint": found.hint,
    })
}
