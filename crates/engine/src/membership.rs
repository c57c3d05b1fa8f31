//! The mesh that this state folder belongs to, and the node's name there. A private file: the
//! address holds a password.

use everloop_agents::clock;
use everloop_core::ids::NodeId;
use everloop_core::time::Time;
use everloop_store::Postgres;
use everloop_store::postgres::{HubClock, HubOptions, Url, listen};
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::state_folder::{StateFolder, write_whole};

/// A node's part in a mesh.
#[derive(Clone, Serialize, Deserialize)]
pub struct Membership {
    /// Drawn when the node joined.
    pub node: NodeId,
    /// Id of the hub: another one at the same address is refused.
    pub hub: String,
    /// Tasks that the node works on at once.
    #[serde(rename = "slots")]
    pub max_parallel_turns: u32,
    #[serde(flatten)]
    address: HubAddress,
}

/// Where a hub is, as a person wrote it. It may hold a password: it goes nowhere but into the
/// connection and a private file.
#[derive(Clone, Serialize, Deserialize)]
pub struct HubAddress {
    #[serde(rename = "url")]
    pub text: String,
    /// The person accepts a hub beyond this machine whose identity is not verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
}

impl HubAddress {
    /// The address, read.
    pub fn url(&self) -> Result<Url, Failure> {
        let url = Url::parse(&self.text)?;
        Ok(if self.unverified { url.accept_unverified() } else { url })
    }
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("node", &self.node).field("hub", &self.hub).finish_non_exhaustive()
    }
}

impl Membership {
    /// Joins the hub at `address`, which must be there, under `node`.
    pub fn new(address: HubAddress, node: NodeId, max_parallel_turns: u32) -> Result<Self, Failure> {
        let options = HubOptions { url: address.url()?, clock: HubClock::Hub, hub: None };
        let hub = Postgres::open(options)?.id().to_owned();
        Ok(Self { node, hub, max_parallel_turns, address })
    }

    /// Reads the state folder's membership; `None` when it belongs to no mesh.
    pub fn read(home: &StateFolder) -> Result<Option<Self>, Failure> {
        let path = home.membership();
        let broken = |e: &(dyn std::error::Error + 'static)| {
            Failure::failed(format!("cannot read `{}`", path.display()))
                .because(e)
                .hint("everloop mesh leave, then join again")
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| broken(&e)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(broken(&e)),
        }
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, home: &StateFolder) -> Result<(), Failure> {
        let path = home.membership();
        let text = serde_json::to_vec(self).expect("a membership is plain data and always has a JSON form");
        write_whole(&path, &text, 0o600)
            .map_err(|e| Failure::failed(format!("cannot write `{}`", path.display())).because(&e))
    }

    /// Removes the file; a missing one is no error.
    pub fn remove(home: &StateFolder) -> Result<(), Failure> {
        let path = home.membership();
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::failed(format!("cannot remove `{}`", path.display())).because(&e))
            }
            _ => Ok(()),
        }
    }

    /// The current time by the hub's clock.
    pub fn hub_now(&self) -> Result<Time, Failure> {
        Ok(Time(clock::machine_now().0 + Postgres::probe(&self.address.url()?)?.clock_offset_ms))
    }

    /// Listens for hints of other nodes until `heard` returns false, or the hub is away.
    pub fn listen(&self, heard: impl FnMut(&str) -> bool + Send) -> Result<(), Failure> {
        Ok(listen(&self.address.url()?, heard)?)
    }

    /// Opens whatever hub is at the address: one that was lost and created anew has another id.
    pub fn open_any(&self) -> Result<Postgres, Failure> {
        Ok(Postgres::open(HubOptions { url: self.address.url()?, clock: HubClock::Hub, hub: None })?)
    }

    /// Opens the hub with the known id.
    pub fn open(&self) -> Result<Postgres, Failure> {
        let options = HubOptions { url: self.address.url()?, clock: HubClock::Hub, hub: Some(self.hub.clone()) };
        Ok(Postgres::open(options)?)
    }
}
