//! The keys of this state folder in its mesh: its own key pair, with which the node and the person
//! on it sign, and the list of keys that it trusts. Both are private files.

use std::path::{Path, PathBuf};

use everloop_core::ids::NodeId;
use everloop_core::mesh::keys::{KIND, Keyring, Listing, PublicKey, Seal, TrustList, TrustedKey};
use everloop_core::time::Time;
use everloop_store::key_pair::{KeyPair, is_signed};
use everloop_store::{Ledger, Postgres};

use crate::error::Failure;
use crate::state_folder::{StateFolder, write_whole};

/// The keys of a node.
#[derive(Debug)]
pub struct NodeKeys {
    node: NodeId,
    pair: KeyPair,
    trust: TrustList,
    path: PathBuf,
}

/// A node of the hub, and its key there, or why that is not valid.
pub type ListedKey = (NodeId, Result<Listing, String>);

/// What happens when the hub lists another key for the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerKey {
    /// It stays, and this node is refused: another machine may have the name.
    Keep,
    /// This node's key takes its place.
    Replace,
}

impl NodeKeys {
    /// The keys of `node`; draws a key pair when there is none. A node trusts itself.
    pub fn open(home: &StateFolder, node: &NodeId) -> Result<Self, Failure> {
        let pair = KeyPair::read_or_draw(&home.mesh_key())?;
        let mut keys = Self { node: node.clone(), pair, trust: TrustList::default(), path: home.mesh_trust() };
        keys.trust = keys.read()?;
        Ok(keys)
    }

    /// Throws the key pair away: the next one is another. What it signed stays signed.
    pub fn forget_pair(home: &StateFolder) -> Result<(), Failure> {
        remove(&home.mesh_key())
    }

    /// Throws the trust list away.
    pub fn forget_trust(home: &StateFolder) -> Result<(), Failure> {
        remove(&home.mesh_trust())
    }

    /// The key that others know.
    pub fn public(&self) -> &PublicKey {
        self.pair.public()
    }

    fn read(&self) -> Result<TrustList, Failure> {
        let path = self.path.display();
        let broken = || Failure::failed(format!("cannot read the trust list `{path}`"));
        let mut list = match std::fs::read_to_string(&self.path) {
            Ok(text) => {
                TrustList::read(&text).map_err(|why| Failure::failed(format!("{}: {why}", broken().message)))?
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => TrustList::default(),
            Err(e) => return Err(broken().because(&e)),
        };
        list.add(TrustedKey { key: self.public().clone(), node: self.node.clone(), at: Time::default() });
        Ok(list)
    }

    /// Reads the trust list again; whether it changed. One that cannot be read trusts only itself.
    pub fn reload(&mut self) -> bool {
        let found = self.read().unwrap_or_else(|failure| {
            tracing::warn!(error = failure.message, "no key but this node's own is trusted");
            let own = TrustedKey { key: self.public().clone(), node: self.node.clone(), at: Time::default() };
            let mut list = TrustList::default();
            list.add(own);
            list
        });
        let changed = found != self.trust;
        self.trust = found;
        changed
    }

    /// Changes the trust list, on disk first.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut TrustList) -> T) -> Result<T, Failure> {
        let mut next = self.trust.clone();
        let changed = change(&mut next);
        let text = serde_json::to_vec(&next).expect("a trust list is plain data and always has a JSON form");
        write_whole(&self.path, &text, 0o600)
            .map_err(|e| Failure::failed(format!("cannot write `{}`", self.path.display())).because(&e))?;
        self.trust = next;
        Ok(changed)
    }

    /// Lists this node's key in the hub, if it is not there.
    pub fn announce(&self, hub: &mut Postgres, former: FormerKey) -> Result<(), Failure> {
        let found = hub.doc(KIND, self.node.as_str())?;
        let listed = found.as_ref().and_then(|doc| Listing::read(&self.node, &doc.body, self).ok());
        match listed {
            Some(listing) if listing.seal.key == *self.public() => return Ok(()),
            Some(listing) if former == FormerKey::Keep => {
                let (node, shown) = (&self.node, listing.seal.key.fingerprint());
                return Err(Failure::failed(format!("the hub lists another key for node `{node}`: {shown}")).hint(
                    "choose another name (everloop mesh join --name NAME); when this machine takes the place of \
                     that one: everloop mesh join --new-key",
                ));
            }
            Some(_) | None => {}
        }
        let listing = Listing::new(&self.node, self.public(), self);
        hub.transact(Time::default(), &[listing.save(found.map_or(0, |doc| doc.version))])?;
        Ok(())
    }

    /// The keys that the hub lists, by node, and those that no key signed for.
    pub fn listed(&self, hub: &dyn Ledger) -> Result<Vec<ListedKey>, Failure> {
        let docs = hub.docs(KIND)?;
        let read = |node: NodeId, body: &str| (node.clone(), Listing::read(&node, body, self));
        Ok(docs.into_iter().map(|doc| read(NodeId::new(doc.key), &doc.body)).collect())
    }
}

fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::failed(format!("cannot remove `{}`", path.display())).because(&e))
        }
        _ => Ok(()),
    }
}

impl Keyring for NodeKeys {
    fn sign(&self, bytes: &[u8]) -> Seal {
        self.pair.sign(bytes)
    }

    fn fits(&self, seal: &Seal, bytes: &[u8]) -> bool {
        is_signed(seal, bytes)
    }

    fn trust(&self) -> &TrustList {
        &self.trust
    }
}
