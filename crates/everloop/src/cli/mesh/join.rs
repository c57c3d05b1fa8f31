//! `everloop mesh join`: makes this machine a node of a mesh.

use std::hash::{BuildHasher, RandomState};

use everloop_core::ids::NodeId;
use everloop_core::mesh::keys::{Keyring, Listing};
use everloop_core::mesh::rights::Rights;
use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::{HubAddress, Membership};
use everloop_engine::node_keys::{FormerKey, NodeKeys};
use everloop_engine::state_folder::node_id;
use serde_json::json;

use super::{hub, trust};
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
    let home = session.home()?;
    let before = Membership::read(&home)?;
    let text = hub::address_text(args.url.as_deref(), session)?;
    let name = args.name.clone().or_else(|| before.as_ref().map(|m| m.node.to_string())).unwrap_or_else(drawn);
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(Failure::usage(format!("invalid node name `{name}`"))
            .hint("letters, digits, `-`, `_` and `.`: everloop mesh join --name builder-2"));
    }
    let address = HubAddress { text, unverified: args.insecure_hub };
    let membership = Membership::new(address, NodeId::new(name), args.max_parallel_turns)?;
    if let Some(before) = before.filter(|b| b.hub != membership.hub) {
        return Err(Failure::failed(format!("this machine is a node of the hub `{}` already", before.hub))
            .hint("leave it first: everloop mesh leave"));
    }
    if args.new_key {
        NodeKeys::forget_pair(&home)?;
    }
    let mut keys = NodeKeys::open(&home, &membership.node)?;
    let mut hub = membership.open()?;
    keys.announce(&mut hub, if args.new_key { FormerKey::Replace } else { FormerKey::Keep })?;
    let shown = keys.public().fingerprint();
    let mut lines =
        vec![format!("node `{}` joined the hub `{}` with the key {shown}", membership.node, membership.hub)];
    if hub.rights() == Rights::Worker {
        lines.push("its login has the rights of a worker: it works on tasks, and never leads".to_owned());
    }
    let others = trust::listed(&keys, &hub)?;
    let others: Vec<Listing> = others.into_iter().filter(|one| one.seal.key != *keys.public()).collect();
    let trusted = trust::add(&mut keys, &wanted(args, &others, session)?, session)?;
    membership.save(&home)?;
    home.wake();
    for other in &others {
        let (node, key, how) = (&other.node, other.seal.key.fingerprint(), trust::standing(&keys, other));
        lines.push(format!("  key {key} of node `{}`: {how}", clean(node.as_str())));
    }
    if others.iter().any(|other| !keys.trust().has(&other.seal.key)) {
        lines.push("compare a fingerprint on its machine, then trust it: everloop mesh trust NODE".to_owned());
    }
    if !others.is_empty() {
        lines.push(format!("there this key has to be trusted, too: everloop mesh trust {}", membership.node));
    }
    if home.owner().is_none_or(|owner| owner.role != "up") {
        lines.push("start it: everloop up".to_owned());
    }
    session.ui.answer(
        &lines,
        &json!({ "node": membership.node, "hub": membership.hub, "max_parallel_turns": membership.max_parallel_turns,
            "rights": hub.rights(), "key": keys.public(), "fingerprint": shown, "trusted": trusted }),
    )?;
    Ok(Code::Ok)
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

/// The machine's name and four letters: two state folders on one machine are two nodes.
fn drawn() -> String {
    let bits = RandomState::new().hash_one(std::process::id());
    let letter = |i: u32| char::from(b'a' + ((bits >> (8 * i)) % 26) as u8);
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = node_id().as_str().chars().map(plain).collect();
    format!("{name}-{}", (0..4).map(letter).collect::<String>())
}
