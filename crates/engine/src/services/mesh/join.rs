//! Makes this machine a node of a mesh. The person decides in between which keys to trust.

use std::hash::{BuildHasher, RandomState};

use everloop_core::ids::NodeId;
use everloop_core::mesh::keys::{Keyring, Listing, PublicKey, TrustedKey};
use everloop_core::mesh::rights::Rights;

use super::trust;
use crate::error::Failure;
use crate::membership::{HubAddress, Membership};
use crate::node_keys::{FormerKey, NodeKeys};
use crate::services::ServiceContext;
use crate::state_folder::{StateFolder, node_id};

/// Join the mesh of a hub.
#[derive(Clone)]
pub struct JoinRequest {
    pub address: HubAddress,
    /// `None`: the name it had, or a drawn one.
    pub name: Option<String>,
    pub max_parallel_turns: u32,
    /// [`FormerKey::Replace`] draws another key for this node.
    pub former: FormerKey,
}

/// A node that the hub knows and that trusts nothing new yet.
#[derive(Debug)]
pub struct JoiningNode {
    /// Keys of the other nodes.
    pub others: Vec<Listing>,
    membership: Membership,
    rights: Rights,
    keys: NodeKeys,
    home: StateFolder,
}

/// A node of the mesh.
#[derive(Debug)]
pub struct JoinedNode {
    pub membership: Membership,
    pub rights: Rights,
    pub key: PublicKey,
    /// Keys that are trusted from now on.
    pub trusted: Vec<TrustedKey>,
    pub others: Vec<OtherKey>,
    /// Whether `up` supervises here.
    pub is_up: bool,
}

/// The key of another node.
#[derive(Clone, Debug)]
pub struct OtherKey {
    pub node: NodeId,
    pub fingerprint: String,
    /// Whether this node trusts it, in words.
    pub standing: &'static str,
    pub is_trusted: bool,
}

/// Connects to the hub and lists this node's key there.
pub fn begin(context: &ServiceContext, request: JoinRequest) -> Result<JoiningNode, Failure> {
    let home = context.home()?;
    let before = Membership::read(&home)?;
    let name = request.name.or_else(|| before.as_ref().map(|m| m.node.to_string())).unwrap_or_else(drawn);
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(Failure::usage(format!("invalid node name `{name}`"))
            .hint("letters, digits, `-`, `_` and `.`: everloop mesh join --name builder-2"));
    }
    let membership = Membership::new(request.address, NodeId::new(name), request.max_parallel_turns)?;
    if let Some(before) = before.filter(|b| b.hub != membership.hub) {
        return Err(Failure::failed(format!("this machine is a node of the hub `{}` already", before.hub))
            .hint("leave it first: everloop mesh leave"));
    }
    if request.former == FormerKey::Replace {
        NodeKeys::forget_pair(&home)?;
    }
    let keys = NodeKeys::open(&home, &membership.node)?;
    let mut hub = membership.open()?;
    keys.announce(&mut hub, request.former)?;
    let mut others = trust::listed(&keys, &hub)?;
    others.retain(|one| one.seal.key != *keys.public());
    Ok(JoiningNode { others, rights: hub.rights(), membership, keys, home })
}

impl JoiningNode {
    /// Trusts the given keys and makes the membership last.
    pub fn finish(mut self, context: &ServiceContext, wanted: &[Listing]) -> Result<JoinedNode, Failure> {
        let trusted = trust::add(context, &mut self.keys, wanted)?;
        self.membership.save(&self.home)?;
        self.home.wake();
        let other = |listing: &Listing| OtherKey {
            node: listing.node.clone(),
            fingerprint: listing.seal.key.fingerprint(),
            standing: trust::standing(&self.keys, listing),
            is_trusted: self.keys.trust().has(&listing.seal.key),
        };
        Ok(JoinedNode {
            others: self.others.iter().map(other).collect(),
            key: self.keys.public().clone(),
            is_up: self.home.owner().is_some_and(|owner| owner.role == "up"),
            membership: self.membership,
            rights: self.rights,
            trusted,
        })
    }
}

/// The machine's name and four letters: two state folders on one machine are two nodes.
fn drawn() -> String {
    let bits = RandomState::new().hash_one(std::process::id());
    let letter = |i: u32| char::from(b'a' + ((bits >> (8 * i)) % 26) as u8);
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String = node_id().as_str().chars().map(plain).collect();
    format!("{name}-{}", (0..4).map(letter).collect::<String>())
}
