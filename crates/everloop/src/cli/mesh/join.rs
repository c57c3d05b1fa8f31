//! `everloop mesh join`: makes this machine a node of a mesh.

use everloop_core::mesh::keys::Listing;
use everloop_core::mesh::rights::Rights;
use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::HubAddress;
use everloop_engine::node_keys::FormerKey;
use everloop_engine::services::mesh::join::{self as service, JoinRequest, JoinedNode};
use everloop_engine::services::mesh::trust;
use serde_json::json;

use super::hub;
use crate::cli::VerbSession;
use crate::ui::text::clean;

const HELP: &str = "Examples:
  EVERLOOP_HUB_URL='postgres://node:…@db.example.com/loops?sslmode=verify-full' everloop mesh join && everloop up
  everloop mesh join --name builder-2 --max-parallel-turns 2

The address is taken from URL, EVERLOOP_HUB_URL, or `[hub]` of everloop.toml, in this order, and kept in the state folder in a
file that only you can read. Others on this machine can see URL in the list of processes.

A node runs what loops name that a key on its trust list signed, with this machine's own accounts. `join` draws the key of
this node (kept in the state folder), lists it in the hub, and shows the keys of the others: compare the fingerprints
before you trust them. Without --trust and --trust-all, and without a terminal, only this node's own key is trusted.";

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
    /// Trust this node, key or fingerprint; can be repeated
    #[arg(long, value_name = "NODE|KEY", conflicts_with = "trust_all")]
    trust: Vec<String>,
    /// Trust all keys that the hub lists now
    #[arg(long)]
    trust_all: bool,
    /// Draw another key for this node; the others have to trust it again
    #[arg(long)]
    new_key: bool,
    /// Accept a hub beyond this machine although its identity is not verified
    #[arg(long)]
    insecure_hub: bool,
}

pub fn join(args: &JoinArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let request = JoinRequest {
        address: HubAddress { text: hub::address_text(args.url.as_deref(), session)?, unverified: args.insecure_hub },
        name: args.name.clone(),
        max_parallel_turns: args.max_parallel_turns,
        former: if args.new_key { FormerKey::Replace } else { FormerKey::Keep },
    };
    let joining = service::begin(session, request)?;
    let wanted = wanted(args, &joining.others, session)?;
    let joined = joining.finish(session, &wanted)?;
    let (membership, shown) = (&joined.membership, joined.key.fingerprint());
    session.ui.answer(
        &lines(&joined),
        &json!({ "node": membership.node, "hub": membership.hub, "max_parallel_turns": membership.max_parallel_turns,
            "rights": joined.rights, "key": joined.key, "fingerprint": shown, "trusted": joined.trusted }),
    )?;
    Ok(Code::Ok)
}

fn lines(joined: &JoinedNode) -> Vec<String> {
    let membership = &joined.membership;
    let shown = joined.key.fingerprint();
    let mut lines =
        vec![format!("node `{}` joined the hub `{}` with the key {shown}", membership.node, membership.hub)];
    if joined.rights == Rights::Worker {
        lines.push("its login has the rights of a worker: it works on tasks, and never leads".to_owned());
    }
    for other in &joined.others {
        let (key, how) = (&other.fingerprint, other.standing);
        lines.push(format!("  key {key} of node `{}`: {how}", clean(other.node.as_str())));
    }
    if joined.others.iter().any(|other| !other.is_trusted) {
        lines.push("compare a fingerprint on its machine, then trust it: everloop mesh trust NODE".to_owned());
    }
    if !joined.others.is_empty() {
        lines.push(format!("there this key has to be trusted, too: everloop mesh trust {}", membership.node));
    }
    if !joined.is_up {
        lines.push("start it: everloop up".to_owned());
    }
    lines
}

/// The keys that the person trusts, of those that the hub lists.
fn wanted(args: &JoinArgs, others: &[Listing], session: &VerbSession) -> Result<Vec<Listing>, Failure> {
    if args.trust_all || others.is_empty() {
        return Ok(others.to_vec());
    }
    if !args.trust.is_empty() {
        return args.trust.iter().map(|named| trust::one(others, named)).collect();
    }
    if !session.ui.asks() {
        return Ok(Vec::new());
    }
    for other in others {
        session.ui.talk(&format!("  key {} of node `{}`", other.seal.key.fingerprint(), clean(other.node.as_str())));
    }
    let agreed = session.ui.agrees("run what these keys sign?")?;
    Ok(if agreed { others.to_vec() } else { Vec::new() })
}
