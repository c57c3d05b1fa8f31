//! The processes on the other end of a connection over loopback, as the kernel lists them.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use crate::process;

/// The processes that hold the other end of a connection. None where the kernel shows none: on
/// another system, for a process that is gone, or for one whose files this user may not see.
pub fn processes_at(peer: SocketAddr, here: SocketAddr) -> Vec<i32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: Vec<String> = tables.iter().filter_map(|table| inode_in(table, peer, here)).collect();
    let names: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let holds = |pid: &i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|to| names.iter().any(|name| to.as_os_str() == name.as_str()))
    };
    if names.is_empty() { Vec::new() } else { process::all().into_iter().filter(holds).collect() }
}

/// The socket whose own address is `peer` and whose other end is `here`.
fn inode_in(table: &str, peer: SocketAddr, here: SocketAddr) -> Option<String> {
    let (own, other) = (written(peer), written(here));
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is = |field: usize, names: &[String]| names.iter().any(|name| fields.get(field) == Some(&name.as_str()));
        let found = is(1, &own) && is(2, &other);
        // Without a process any more, the number is zero.
        fields.get(9).filter(|inode| found && **inode != "0").map(|inode| (*inode).to_owned())
    })
}

/// An address as the kernel's tables have it: in words of the machine's byte order. A socket for both
/// versions of IP shows an address of version 4 as one of version 6.
fn written(address: SocketAddr) -> Vec<String> {
    let words = |bytes: &[u8]| -> String {
        let word = |four: &[u8]| u32::from_ne_bytes(four.try_into().expect("chunks of four bytes"));
        bytes.chunks_exact(4).map(|four| format!("{:08X}", word(four))).collect::<Vec<_>>().concat()
    };
    let all = match address.ip() {
        IpAddr::V4(ip) => vec![words(&ip.octets()), words(&ip.to_ipv6_mapped().octets())],
        IpAddr::V6(ip) => vec![words(&ip.octets())],
    };
    all.into_iter().map(|ip| format!("{ip}:{:04X}", address.port())).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_process_at_the_other_end_is_found() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may lack one version of IP.
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
            let (server, peer) = listener.accept().expect("it was connected");
            let here = server.local_addr().expect("it is connected");
            assert_eq!(processes_at(peer, here), [std::process::id().cast_signed()], "{host}");
            drop(client);
            assert_eq!(processes_at(SocketAddr::new(peer.ip(), 1), here), [0; 0], "{host}");
        }
    }
}
