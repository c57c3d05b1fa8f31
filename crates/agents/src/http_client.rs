//! The HTTP client of everything in this crate: the API agent, channels and monitors. Owns which
//! addresses may be used, trust, timeouts, the cap on bodies, and that redirects are not followed.
//! Knows nothing of what is sent; errors in the words of a feature are made by the callers.

use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// Resolving a name and connecting, for requests that are answered at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A request is at most some megabytes; a network that needs longer for it does not work.
const SEND_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest stream: an answer of the slowest model takes minutes.
const STREAM_TIMEOUT: Duration = Duration::from_secs(3600);

/// What a request carries, which decides where it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Credentials or texts of a loop: encrypted, or on this machine and past every proxy.
    Private,
    /// Nothing but the address: unencrypted too.
    Public,
}

/// Why an address cannot be used. Never shows the address: it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAddress {
    #[error("the address cannot be read")]
    Unreadable,
    #[error("the address names no host")]
    NoHost,
    #[error("the address holds a password; name it by a variable or a file")]
    Password,
    #[error("what is sent to the address would go over the network in the open; use `https://`")]
    Unencrypted,
    #[error("the address is neither https nor http")]
    Scheme,
}

/// An address that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) uri: Uri,
    access: Access,
}

impl Address {
    pub(crate) fn parse(text: &str, access: Access) -> Result<Self, BadAddress> {
        let uri: Uri = text.trim().parse().map_err(|_| BadAddress::Unreadable)?;
        let authority = uri.authority().ok_or(BadAddress::NoHost)?;
        if authority.as_str().contains('@') {
            return Err(BadAddress::Password);
        }
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if access == Access::Public || is_loopback(authority.host()) => {}
            Some("http") => return Err(BadAddress::Unencrypted),
            _ => return Err(BadAddress::Scheme),
        }
        Ok(Self { uri, access })
    }

    fn is_encrypted(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }
}

/// How long each part of a request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timeouts {
    /// Everything about it together.
    Whole(Duration),
    /// An answer that arrives piece by piece.
    Stream { connect: Duration, first_byte: Duration, idle: Duration },
}

/// A client for one address; it keeps its connection for the next request.
pub(crate) struct HttpClient(Agent);

impl HttpClient {
    /// An error is a sentence about the trust store.
    pub(crate) fn new(address: &Address, ca_file: Option<&Path>, timeouts: Timeouts) -> Result<Self, String> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("everloop/", env!("CARGO_PKG_VERSION")))
            // Redirects are not followed, so credentials never reach another host: they are answers
            // like any other.
            .max_redirects(0);
        let config = match timeouts {
            Timeouts::Whole(whole) => config
                .timeout_resolve(Some(CONNECT_TIMEOUT))
                .timeout_connect(Some(CONNECT_TIMEOUT))
                .timeout_global(Some(whole)),
            Timeouts::Stream { connect, first_byte, idle } => config
                .timeout_resolve(Some(connect))
                .timeout_connect(Some(connect))
                .timeout_send_request(Some(SEND_TIMEOUT))
                .timeout_send_body(Some(SEND_TIMEOUT))
                .timeout_recv_response(Some(first_byte))
                .timeout_per_read(Some(idle))
                .timeout_per_call(Some(STREAM_TIMEOUT)),
        };
        let config = if address.is_encrypted() {
            config.tls_config(tls(ca_file)?)
        } else if address.access == Access::Private {
            // Nothing private leaves this machine unencrypted, not even to a proxy.
            config.proxy(None)
        } else {
            config
        };
        Ok(Self(config.build().new_agent()))
    }

    pub(crate) fn post(
        &self,
        url: &str,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> Result<Response<Body>, ureq::Error> {
        let call = headers.iter().fold(self.0.post(url.trim()), |call, (name, value)| call.header(*name, value));
        call.send(body)
    }

    pub(crate) fn get(&self, address: &Address) -> Result<Response<Body>, ureq::Error> {
        self.0.get(&address.uri).call()
    }
}

/// A header as text; empty when it is missing or no text.
pub(crate) fn header_of<'a>(headers: &'a ureq::http::HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Appends at most `cap` bytes of a body; after an error `bytes` holds what came before it.
pub(crate) fn read_body(body: Body, cap: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    body.into_reader().take(cap).read_to_end(bytes).map(drop)
}

/// Whether something private may be sent to this address: encrypted, or to this machine.
pub fn check_address(url: &str) -> Result<(), String> {
    Address::parse(url, Access::Private).map(drop).map_err(|e| e.to_string())
}

/// Whether a host is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// With a provider that is named: rustls would panic over two.
fn tls(ca_file: Option<&Path>) -> Result<TlsConfig, String> {
    let trusted = trusted(ca_file)?;
    let roots: Vec<Certificate<'static>> = trusted.iter().map(|c| Certificate::from_der(c).to_owned()).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

/// The trust store of this machine, and the certificates of `ca_file`.
pub(crate) fn trusted(ca_file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut trusted = rustls_native_certs::load_native_certs().certs;
    if let Some(path) = ca_file {
        trusted.extend(read_certificates(path)?);
    }
    if trusted.is_empty() {
        let text = "this machine has no root certificates; hint: install `ca-certificates` or set SSL_CERT_FILE";
        return Err(text.to_owned());
    }
    Ok(trusted)
}

/// A file without certificates is a mistake: it was named to count.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bad = |why: &str| {
        let path = crate::api::clip(&path.display().to_string());
        format!("`ca_file` `{path}` {why}; hint: it has to be a PEM file with certificates")
    };
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(bad("holds no certificate")),
        Ok(certificates) => Ok(certificates),
        Err(e) => Err(bad(&format!("cannot be read: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    /// A server that gives one answer; its address, and the request that it got.
    fn serving(answer: &'static str) -> (String, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/x", listener.local_addr().expect("it is bound"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut request = Vec::new();
            let mut part = [0; 1024];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                let n = stream.read(&mut part).expect("it sends a request");
                request.extend_from_slice(&part[..n]);
            }
            stream.write_all(answer.as_bytes()).expect("the client reads");
            String::from_utf8_lossy(&request).to_ascii_lowercase()
        });
        (url, server)
    }

    fn client(url: &str, access: Access) -> (HttpClient, Address) {
        let address = Address::parse(url, access).expect("it is an address");
        let client = HttpClient::new(&address, None, Timeouts::Whole(Duration::from_secs(20)));
        (client.expect("it needs no certificates"), address)
    }

    #[test]
    fn a_redirect_is_not_followed() {
        const MOVED: &str = "HTTP/1.1 302 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        let (url, server) = serving(MOVED);
        let (public, address) = client(&url, Access::Public);
        assert_eq!(public.get(&address).expect("an answer").status(), 302);
        assert!(server.join().expect("it ends").contains("user-agent: everloop/"));
        let (url, server) = serving(MOVED);
        let (private, _) = client(&url, Access::Private);
        let answer = private.post(&url, &[("authorization", "Bearer x".to_owned())], b"").expect("an answer");
        assert_eq!(answer.status(), 302);
        assert!(server.join().expect("it ends").contains("authorization: bearer x"));
    }

    #[test]
    fn a_body_is_read_up_to_its_cap() {
        let (url, server) = serving("HTTP/1.1 500 x\r\nEtag: \"v\"\r\nContent-Length: 10\r\n\r\n0123456789");
        let (public, address) = client(&url, Access::Public);
        let (head, body) = public.get(&address).expect("every status is an answer").into_parts();
        assert_eq!((head.status.as_u16(), header_of(&head.headers, "etag")), (500, "\"v\""));
        assert_eq!(header_of(&head.headers, "retry-after"), "");
        let mut bytes = Vec::new();
        read_body(body, 4, &mut bytes).expect("it is there");
        assert_eq!(bytes, b"0123");
        server.join().expect("it ends");
    }

    #[test]
    fn nothing_is_sent_in_the_open() {
        for good in ["https://example.org/x", "http://localhost:80/x", "http://127.0.0.1:9/"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        for bad in ["http://example.org/x", "ftp://localhost/x", "x", "", "https://me:pw@example.org/"] {
            let why = check_address(bad).expect_err(bad);
            assert!(!why.contains("pw"), "{why}");
        }
    }

    #[test]
    fn what_is_public_may_go_anywhere_but_not_with_a_password() {
        let parse = |text| Address::parse(text, Access::Public).map(drop);
        assert_eq!(parse("http://example.org/x"), Ok(()));
        assert_eq!(parse("http://me:pw@example.org/x"), Err(BadAddress::Password));
        assert_eq!(parse("ftp://example.org/x"), Err(BadAddress::Scheme));
        assert_eq!(parse("/x"), Err(BadAddress::NoHost));
    }
}
