//! `everloop mesh join`: makes this machine a node of a mesh.

use std::hash::{BuildHasher, RandomState};

use everloop_core::ids::NodeId;
use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::Membership;
use everloop_engine::state_folder::node_id;
use serde_json::json;

use super::hub;
use crate::cli::VerbSession;

const HELP: &str = "Examples:
  EVERLOOP_HUB_URL=postgres://node:…@db.example.com/loops everloop mesh join && everloop up
  everloop mesh join --name builder-2 --max-parallel-turns 2

The address is taken from URL, EVERLOOP_HUB_URL, or `[hub]` of everloop.toml, in this order, and kept in the state folder in a
file that only you can read. Others on this machine can see URL in the list of processes.
A node runs what the loops of the mesh name, with this machine's own accounts: join only hubs of people you trust.";

/// Makes this machine a node of the mesh of a hub. `everloop up` then takes tasks of its loops.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct JoinArgs {
    /// The address of the hub: postgres://USER:PASSWORD@HOST:PORT/DATABASE
    #[arg(env = "EVERLOOP_HUB_URL", value_name = "URL", hide_env_values = true)]
    url: Option<String>,
    /// Name of this node [default: the machine's name and four letters]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Tasks that it works on at once
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    max_parallel_turns: u32,
}

pub fn join(args: &JoinArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let before = Membership::read(&home)?;
    let text = hub::address_text(args.url.as_deref(), session)?;
    let name = args.name.clone().or_else(|| before.as_ref().map(|m| m.node.to_string())).unwrap_or_else(drawn);
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(Failure::usage(format!("invalid node name `{name}`"))
            .hint("letters, digits, `-`, `_` and `.`: everloop mesh join --name builder-2"));
    }
    let membership = Membership::new(&text, NodeId::new(name), args.max_parallel_turns)?;
    if let Some(before) = before.filter(|b| b.hub != membership.hub) {
        return Err(Failure::failed(format!("this machine is a node of the hub `{}` already", before.hub))
            .hint("leave it first: everloop mesh leave"));
    }
    membership.save(&home)?;
    home.wake();
    let mut lines = vec![format!("node `{}` joined the hub `{}`", membership.node, membership.hub)];
    if home.owner().is_none_or(|owner| owner.role != "up") {
        lines.push("start it: everloop up".to_owned());
    }
    session.ui.answer(
        &lines,
        &json!({ "node": membership.node, "hub": membership.hub, "max_parallel_turns": membership.max_parallel_turns }),
    )?;
    Ok(Code::Ok)
}

/// The machine's name and four letters: two state folders on one machine are two nodes.
fn drawn() -> String {
    let bits = RandomState::new().hash_one(std::process::id());
    let letter = |i: u32| char::from(b'a' + ((bits >> (8 * i)) % 26) as u8);
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = node_id().as_str().chars().map(plain).collect();
    format!("{name}-{}", (0..4).map(letter).collect::<String>())
}
