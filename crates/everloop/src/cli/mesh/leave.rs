//! `everloop mesh leave`: removes this node from its mesh.

use everloop_engine::error::{Code, Failure};
use everloop_engine::services::mesh::leave as service;
use serde_json::json;

use crate::cli::VerbSession;

/// Leaves the mesh. Tasks that this node holds go to other nodes.
#[derive(Debug, clap::Args)]
pub struct LeaveArgs {}

pub fn leave(_: &LeaveArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    let membership = service::leave(session)?;
    let said = format!("node `{}` left the hub `{}`", membership.node, membership.hub);
    session.ui.said(&said, &json!({ "node": membership.node, "hub": membership.hub }))?;
    Ok(Code::Ok)
}
