//! The files of this machine as a node of a mesh. The supervisor writes them, services read them.
//!
//! - `claims`: tasks that the node holds; `replica`: what it knows of the hub, for work offline
//! - `contact`: when the hub last answered
//! - `copy`: the mirror of the hub, as a ledger to read

pub(crate) mod claims;
pub(crate) mod contact;
pub mod copy;
pub(crate) mod replica;
