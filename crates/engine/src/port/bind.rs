//! The socket of the port: which address is taken, and where the state folder records it.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;

use serde::{Deserialize, Serialize};

use crate::state_folder::StateFolder;

/// The record of the port in the state folder.
#[derive(Serialize, Deserialize)]
struct Note {
    schema_version: u32,
    address: SocketAddr,
}

/// A socket that listens and is not served yet.
pub struct BoundPort {
    pub listener: TcpListener,
    pub address: SocketAddr,
}

impl BoundPort {
    /// Takes the wanted address, else the last one of this state folder, because agents of earlier
    /// turns may still send there, else any that is free. Port 0 is no wish.
    pub fn bind(wanted: Option<SocketAddr>, home: &StateFolder) -> Result<Self, String> {
        let free = SocketAddr::new(wanted.map_or(Ipv4Addr::LOCALHOST.into(), |w| w.ip()), 0);
        let wanted = wanted.filter(|w| w.port() != 0);
        let mut why = String::new();
        for address in wanted.into_iter().chain(last(home)).chain([free]) {
            let bound = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (address, listener) = match bound {
                Ok(bound) => bound,
                Err(e) => {
                    why = format!("{address}: {e}");
                    continue;
                }
            };
            if let Some(wanted) = wanted.filter(|w| *w != address) {
                tracing::warn!("{wanted} is taken by another program; listening on {address} instead");
            }
            if let Err(e) = note(home, address) {
                tracing::warn!(error = %e, "the address of the port cannot be written to the state folder");
            }
            return Ok(Self { listener, address });
        }
        Err(why)
    }
}

fn last(home: &StateFolder) -> Option<SocketAddr> {
    let note: Note = serde_json::from_slice(&std::fs::read(home.http()).ok()?).ok()?;
    Some(note.address).filter(|address| address.ip().is_loopback())
}

/// Records the address, whole or not at all, and only when it changed.
fn note(home: &StateFolder, address: SocketAddr) -> std::io::Result<()> {
    if last(home) == Some(address) {
        return Ok(());
    }
    let text = serde_json::to_string(&Note { schema_version: 1, address })?;
    let (path, new) = (home.http(), home.http().with_extension("new"));
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{text}")?;
    std::fs::rename(new, path)
}
