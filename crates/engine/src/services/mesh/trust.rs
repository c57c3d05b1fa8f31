//! The keys whose loops this node runs and whose reports it merges, and the signature of this
//! node's own key.

use everloop_core::ids::NodeId;
use everloop_core::mesh::MeshLoop;
use everloop_core::mesh::keys::{Keyring, Listing, PublicKey, TrustedKey, sealed};
use everloop_store::{Ledger, Postgres};
use serde::Serialize;

use super::loops::find;
use crate::error::Failure;
use crate::node_keys::{FormerKey, NodeKeys};
use crate::services::ServiceContext;

/// Which listed keys are trusted from now on.
#[derive(Clone, Debug)]
pub enum KeyChoice {
    /// The one of this node, key or fingerprint.
    Named(String),
    All,
}

/// A key of the mesh as this node sees it.
#[derive(Clone, Debug, Serialize)]
pub struct MeshKey {
    pub node: NodeId,
    /// Whether this node trusts it, in words.
    pub trust: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PublicKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Why the listing is not valid; untrusted text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether the hub lists it.
    #[serde(skip)]
    pub is_listed: bool,
}

/// The keys of this node, with its own listed in the hub.
fn open(context: &ServiceContext) -> Result<(NodeKeys, Postgres), Failure> {
    let (membership, mut hub) = context.hub()?;
    let keys = NodeKeys::open(&context.home()?, &membership.node)?;
    keys.announce(&mut hub, FormerKey::Keep)?;
    Ok((keys, hub))
}

/// Puts listed keys on the trust list.
pub fn trust(context: &ServiceContext, choice: &KeyChoice) -> Result<Vec<TrustedKey>, Failure> {
    let (mut keys, hub) = open(context)?;
    let listed = listed(&keys, &hub)?;
    let wanted = match choice {
        KeyChoice::Named(named) => vec![one(&listed, named)?],
        KeyChoice::All => listed,
    };
    let trusted = add(context, &mut keys, &wanted)?;
    context.home()?.wake();
    Ok(trusted)
}

/// Takes a node, key or fingerprint off the trust list; returns what was there.
pub fn revoke(context: &ServiceContext, named: &str) -> Result<Vec<TrustedKey>, Failure> {
    let (mut keys, _) = open(context)?;
    let own = keys.trust().node_of(keys.public()).is_some_and(|node| node.as_str() == named);
    if own || keys.public().is_named(named) {
        return Err(Failure::usage("a node always trusts its own key")
            .hint("draw another one with `everloop mesh join --new-key`, or leave: everloop mesh leave"));
    }
    let gone = keys.change(|list| list.revoke(named))?;
    if gone.is_empty() {
        return Err(
            Failure::usage(format!("`{named}` is not on the trust list")).hint("`everloop mesh trust` shows what is")
        );
    }
    context.home()?.wake();
    Ok(gone)
}

/// All keys that the hub lists, then those that only this node knows.
pub fn list(context: &ServiceContext) -> Result<Vec<MeshKey>, Failure> {
    let (keys, hub) = open(context)?;
    let found = keys.listed(&hub)?;
    let of_hub = |(node, listing): &(NodeId, Result<Listing, String>)| {
        let node = node.clone();
        match listing {
            Ok(listing) => MeshKey {
                node,
                trust: standing(&keys, listing),
                key: Some(listing.seal.key.clone()),
                fingerprint: Some(listing.seal.key.fingerprint()),
                why: None,
                is_listed: true,
            },
            Err(why) => MeshKey {
                node,
                trust: "not valid",
                key: None,
                fingerprint: None,
                why: Some(why.clone()),
                is_listed: true,
            },
        }
    };
    let mut all: Vec<MeshKey> = found.iter().map(of_hub).collect();
    let is_unlisted = |known: &&TrustedKey| !found.iter().any(|(node, _)| *node == known.node);
    all.extend(keys.trust().keys.iter().filter(is_unlisted).map(|known| MeshKey {
        node: known.node.clone(),
        trust: "trusted",
        key: Some(known.key.clone()),
        fingerprint: Some(known.key.fingerprint()),
        why: None,
        is_listed: false,
    }));
    Ok(all)
}

/// A loop of the hub that a person looks at before signing it.
#[derive(Debug)]
pub struct UnsignedLoop {
    pub state: MeshLoop,
    version: u64,
    keys: NodeKeys,
    hub: Postgres,
}

/// Reads the loop that is to be signed.
pub fn to_sign(context: &ServiceContext, id: &str) -> Result<UnsignedLoop, Failure> {
    let (keys, hub) = open(context)?;
    let (version, state) = find(&hub, id)?;
    Ok(UnsignedLoop { state, version, keys, hub })
}

impl UnsignedLoop {
    /// Signs the loop as it was read: its commands and its state. Returns the fingerprint of the
    /// key.
    pub fn sign(mut self, context: &ServiceContext) -> Result<String, Failure> {
        self.state.sign(&self.keys);
        let shown = self.keys.public().fingerprint();
        let note = format!("signed by {shown}");
        self.hub.transact(context.now(), &sealed(self.state.save(self.version, &[note]), &self.keys))?;
        context.home()?.wake();
        Ok(shown)
    }
}

/// The keys that the hub lists, without those that no key signed for.
pub(super) fn listed(keys: &NodeKeys, hub: &dyn Ledger) -> Result<Vec<Listing>, Failure> {
    Ok(keys.listed(hub)?.into_iter().filter_map(|(_, listing)| listing.ok()).collect())
}

/// The listed key that a person means.
pub fn one(listed: &[Listing], named: &str) -> Result<Listing, Failure> {
    let found = listed.iter().find(|listing| listing.is_named(named));
    found.cloned().ok_or_else(|| {
        Failure::usage(format!("the hub lists no node, key or fingerprint `{named}`"))
            .hint("`everloop mesh trust` shows them; a node lists its key when it joins or starts")
    })
}

/// Puts keys on the trust list.
pub(super) fn add(
    context: &ServiceContext,
    keys: &mut NodeKeys,
    wanted: &[Listing],
) -> Result<Vec<TrustedKey>, Failure> {
    let trusted =
        |listing: &Listing| TrustedKey { key: listing.seal.key.clone(), node: listing.node.clone(), at: context.now() };
    let added: Vec<TrustedKey> = wanted.iter().map(trusted).collect();
    keys.change(|list| added.iter().cloned().for_each(|one| list.add(one)))?;
    Ok(added)
}

/// Whether this node trusts a listed key, in words.
pub(super) fn standing(keys: &NodeKeys, listing: &Listing) -> &'static str {
    let trust = keys.trust();
    match trust.node_of(&listing.seal.key) {
        Some(_) if listing.seal.key == *keys.public() => "this node",
        Some(node) if *node == listing.node => "trusted",
        Some(_) => "trusted under another name",
        None if trust.keys.iter().any(|known| known.node == listing.node) => "ANOTHER KEY is trusted",
        None => "not trusted",
    }
}
