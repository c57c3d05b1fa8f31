//! `everloop mesh leave`: removes this node from its mesh.

use everloop_engine::error::{Code, Failure};
use everloop_engine::membership::Membership;
use everloop_engine::node_keys::NodeKeys;
use serde_json::json;

use crate::cli::VerbSession;

/// Leaves the mesh. Tasks that this node holds go to other nodes.
#[derive(Debug, clap::Args)]
pub struct LeaveArgs {}

pub fn leave(_: &LeaveArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let home = session.home()?;
    let Some(membership) = Membership::read(&home)? else {
        return Err(
            Failure::usage("this machine is not a node of a mesh").hint("join one: everloop mesh join postgres://…")
        );
    };
    Membership::remove(&home)?;
    NodeKeys::forget_trust(&home)?;
    home.wake();
    let said = format!("node `{}` left the hub `{}`", membership.node, membership.hub);
    session.ui.said(&said, &json!({ "node": membership.node, "hub": membership.hub }))?;
    Ok(Code::Ok)
}
