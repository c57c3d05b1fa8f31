//! Removes this node from its mesh.

use crate::error::Failure;
use crate::membership::Membership;
use crate::node_keys::NodeKeys;
use crate::services::ServiceContext;

/// Leaves the mesh; tasks that this node holds go to other nodes. Returns the membership that is
/// over.
pub fn leave(context: &ServiceContext) -> Result<Membership, Failure> {
    let home = context.home()?;
    let Some(membership) = Membership::read(&home)? else {
        return Err(
            Failure::usage("this machine is not a node of a mesh").hint("join one: everloop mesh join postgres://…")
        );
    };
    Membership::remove(&home)?;
    NodeKeys::forget_trust(&home)?;
    home.wake();
    Ok(membership)
}
