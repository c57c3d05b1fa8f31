//! TLS connections: which certificates are trusted, and the errors for those that are not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use everloop_agents::api::ApiFormat;
use everloop_core::stream::{AgentEvent, LimitClass};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::server::Act;
use super::world::{CANARY, WIRES, World, text};
use crate::trials;

trials![
    a_root_of_ones_own_is_trusted,
    a_trust_store_of_ones_own_is_as_good,
    what_is_not_trusted_is_a_network_that_does_not_work,
    a_file_without_certificates_is_a_mistake,
];

/// A file of the folder in which `make.sh` created them.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/api/certificates").join(name)
}

/// Terminates TLS before the scripted server; it ends with the test.
struct Front {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Front {
    /// With this certificate.
    fn start(certificate: &str, behind: &str) -> Self {
        let chain: Vec<_> = CertificateDer::pem_file_iter(file(certificate)).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (seen, behind) = (Arc::clone(&connections), behind.trim_start_matches("http://").to_owned());
        thread::spawn(move || {
            for stream in listener.incoming() {
                seen.fetch_add(1, Ordering::SeqCst);
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                // A client that does not trust the certificate disconnects, which some tests
                // provoke.
                relay(&mut StreamOwned::new(connection, stream.unwrap()), &behind).ok();
            }
        });
        Self { address, connections }
    }

    fn base(&self, host: &str) -> String {
        format!("https://{host}:{}", self.address.port())
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Relays one request and its response.
fn relay(tls: &mut StreamOwned<ServerConnection, TcpStream>, behind: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 16 << 10];
    while !is_whole(&request) {
        match tls.read(&mut buffer)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&buffer[..n]),
        }
    }
    let mut server = TcpStream::connect(behind)?;
    server.write_all(&request)?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    tls.write_all(&answer)?;
    tls.conn.send_close_notify();
    tls.flush()
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    body.len() >= length
}

/// A world with a server that is reached only over TLS.
fn world(wire: ApiFormat, certificate: &str, ca_file: Option<&str>) -> (World, Front) {
    let mut world = World::new(wire, vec![Act::Events(text(wire, "done"))]);
    let front = Front::start(certificate, &world.options.base);
    world.options.base = front.base("127.0.0.1");
    world.options.ca_file = ca_file.map(file);
    (world, front)
}

fn a_root_of_ones_own_is_trusted() {
    for wire in WIRES {
        let (mut world, front) = world(wire, "good.pem", Some("root.pem"));
        world.options.base = front.base(if wire == ApiFormat::Messages { "127.0.0.1" } else { "localhost" });
        world.works("hello");
        assert_eq!((world.requests().len(), front.connections()), (1, 1));
        assert!(world.requests()[0].head.contains(CANARY), "the key arrives");
    }
}

fn a_trust_store_of_ones_own_is_as_good() {
    let (mut world, _front) = world(ApiFormat::Messages, "good.pem", None);
    world.vars.push(("SSL_CERT_FILE".to_owned(), file("root.pem").display().to_string()));
    world.works("hello");
}

/// Neither the key nor the account is at fault: no account is frozen for it, and it is not retried
/// at once.
fn what_is_not_trusted_is_a_network_that_does_not_work() {
    for (certificate, trusted, why) in [
        ("good.pem", "stranger.pem", "UnknownIssuer"),
        ("expired.pem", "root.pem", "expired"),
        ("elsewhere.pem", "root.pem", "not valid for name"),
    ] {
        let (world, front) = world(ApiFormat::Messages, certificate, Some(trusted));
        let ran = world.run("hello");
        let limit = ran.limit();
        assert_eq!((limit.rule.as_str(), limit.class), ("api.tls", LimitClass::Network), "{}", ran.raw);
        assert!(limit.text.contains(why) && limit.text.contains("hint: `ca_file`"), "{certificate}: {}", limit.text);
        assert_eq!(front.connections(), 1, "one try, not more");
        assert!(world.requests().is_empty() && !ran.raw.contains(CANARY));
        assert!(!ran.said.iter().any(|s| matches!(s, AgentEvent::Retrying { .. })));
    }
}

fn a_file_without_certificates_is_a_mistake() {
    for (name, why) in [("nowhere.pem", "cannot be read"), ("make.sh", "holds no certificate")] {
        let (world, front) = world(ApiFormat::Messages, "good.pem", Some(name));
        let ran = world.run("hello");
        let report = ran.report();
        assert_eq!((ran.code, report.ok, report.limit), (1, Some(false), None), "{}", ran.raw);
        assert!(report.last_text.contains(why) && report.last_text.contains("hint: "), "{}", report.last_text);
        assert_eq!(front.connections(), 0);
    }
}
