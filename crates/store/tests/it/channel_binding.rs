//! SCRAM with channel binding against a real server: bound to its certificate, refused without TLS,
//! and refused when a proxy in between presents a certificate of its own.

use std::error::Error as _;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use everloop_store::postgres::Url;
use everloop_store::{Error, Postgres};
use everloop_testkit::postgres::{Login, PostgresServer, ServerSetup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const PASSWORD: &str = "b0und";
/// What a client of PostgreSQL sends before TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

fn server(tls: bool) -> PostgresServer {
    PostgresServer::start(ServerSetup { login: Login::Password(PASSWORD), tls, ..ServerSetup::default() })
}

/// A hub at `url` with this query: whether its connection is encrypted.
fn probed(url: &str, query: &str) -> Result<bool, Error> {
    Postgres::probe(&Url::parse(&format!("{url}?{query}")).unwrap()).map(|findings| findings.encrypted)
}

/// An error with all its causes.
fn causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Ends TLS with a certificate of its own and opens another TLS connection to the server: it can
/// read every byte.
struct Swapped {
    port: u16,
}

impl Swapped {
    fn new(server: &PostgresServer, dir: &Path) -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let (acceptor, connector, target) = (acceptor(dir), connector(&server.authority()), server.port());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((client, _)) = listener.accept().await {
                    let (acceptor, connector) = (acceptor.clone(), connector.clone());
                    // A client that hangs up is what most of these tests are about.
                    tokio::spawn(async move { relay(client, &acceptor, &connector, target).await.ok() });
                }
            });
        });
        Self { port }
    }

    fn through(&self, server: &PostgresServer, url: &str) -> String {
        url.replace(&format!(":{}/", server.port()), &format!(":{}/", self.port))
    }
}

fn acceptor(dir: &Path) -> TlsAcceptor {
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=localhost \
                  -keyout key.pem -out cert.pem";
    let made = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let chain = vec![CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
}

fn connector(authority: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

async fn relay(
    mut client: TcpStream,
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
    target: u16,
) -> std::io::Result<()> {
    let mut request = [0; 8];
    client.read_exact(&mut request).await?;
    assert_eq!(request, SSL_REQUEST);
    client.write_all(b"S").await?;
    let mut client = acceptor.accept(client).await?;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
    server.write_all(&SSL_REQUEST).await?;
    assert_eq!(server.read_u8().await?, b'S');
    let name = ServerName::try_from("localhost").expect("a name");
    let mut server = connector.connect(name, server).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

#[test]
fn a_login_is_bound_to_the_certificate_and_only_where_there_is_one() {
    let tls = server(true);
    let url = tls.database();
    Postgres::init(&Url::parse(&url).unwrap()).unwrap();
    let root = tls.authority().display().to_string();
    let named = url.replace("127.0.0.1", "localhost");
    assert!(probed(&url, "channel_binding=require").unwrap(), "TLS although `sslmode` does not demand it");
    assert!(probed(&url, "channel_binding=require&sslmode=require").unwrap());
    let checked = format!("channel_binding=require&sslmode=verify-full&sslrootcert={root}");
    assert!(probed(&named, &checked).unwrap());
    assert!(probed(&url, "channel_binding=disable&sslmode=require").unwrap());
    let wrong = probed(&url.replace(PASSWORD, "wr0ng"), "channel_binding=require").unwrap_err();
    assert!(matches!(wrong, Error::Denied { doing: "connect", .. }), "{wrong:?}");

    let open = server(false);
    let url = open.database();
    Postgres::init(&Url::parse(&url).unwrap()).unwrap();
    assert!(!probed(&url, "channel_binding=prefer").unwrap());
    let error = probed(&url, "channel_binding=require").unwrap_err();
    assert!(causes(&error).contains("server does not support TLS"), "{}", causes(&error));
}

#[test]
fn a_server_that_wants_no_password_is_refused_where_binding_is_required() {
    let trusting = PostgresServer::start(ServerSetup { tls: true, ..ServerSetup::default() });
    let url = trusting.database();
    Postgres::init(&Url::parse(&url).unwrap()).unwrap();
    assert!(probed(&url, "sslmode=require").unwrap());
    let error = probed(&url, "channel_binding=require").unwrap_err();
    assert!(matches!(error, Error::Denied { doing: "connect", .. }), "{error:?}");
    assert!(causes(&error).contains("channel binding"), "{}", causes(&error));
}

#[test]
fn a_proxy_with_a_certificate_of_its_own_is_found_out() {
    let server = server(true);
    let url = server.database();
    Postgres::init(&Url::parse(&url).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let between = Swapped::new(&server, dir.path()).through(&server, &url);
    assert!(probed(&between, "sslmode=require&channel_binding=disable").unwrap(), "it passes everything on");
    for query in ["sslmode=require&channel_binding=require", "sslmode=require", ""] {
        let error = probed(&between, query).unwrap_err();
        assert!(matches!(error, Error::Denied { doing: "connect", .. }), "{query}: {error:?}");
        assert!(causes(&error).contains("channel binding"), "{query}: {}", causes(&error));
    }
    let root = server.authority().display().to_string();
    let error = probed(&between, &format!("sslmode=verify-ca&sslrootcert={root}")).unwrap_err();
    assert!(matches!(error, Error::Away { doing: "connect", .. }), "{error:?}");
}
