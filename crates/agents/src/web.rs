//! What all who talk HTTP share: whom one may talk to, whom one trusts, and one POST with its answer, with a deadline. Addresses
//! may hold secrets, so no text shows one.

use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use everloop_core::notify::Undelivered;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

/// Everything about one request that is answered at once.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);
/// The connection itself.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Answers say what they have to say in less.
const ANSWER_CAP: u64 = 1 << 20;
/// What is told of an answer that says no.
const SHOWN_CHARS: usize = 200;

/// What is asked.
pub(crate) struct WebRequest<'a> {
    pub url: &'a str,
    pub headers: Vec<(&'static str, String)>,
    pub body: &'a [u8],
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct WebResponse {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: String,
}

impl WebResponse {
    /// A refusal in the words of HTTP, unless it is none.
    pub fn good(&self) -> Result<(), Undelivered> {
        if (200..300).contains(&self.status) {
            return Ok(());
        }
        Err(self.refusal(&self.body))
    }

    /// A refusal, with what the other side says about it.
    pub fn refusal(&self, said: &str) -> Undelivered {
        let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect();
        let why = format!("it answered {}: {}", self.status, said.trim());
        let passing = matches!(self.status, 408 | 425 | 429 | 500..);
        let why = why.trim_end_matches([':', ' ']).to_owned();
        Undelivered { why, retry_after: self.retry_after, refused: !passing }
    }
}

/// How everloop talks: every status is an answer, and nobody is followed to where no one pointed with what opens a door.
pub(crate) fn quiet() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("everloop/", env!("CARGO_PKG_VERSION")))
}

/// Whether something may be sent to this address: encrypted, or to this machine.
pub fn check_address(url: &str) -> Result<(), String> {
    let uri: Uri = url.trim().parse().map_err(|_| "the address cannot be read".to_owned())?;
    let authority = uri.authority().ok_or("the address names no host")?;
    if authority.as_str().contains('@') {
        return Err("the address holds a password; name it by a variable or a file".to_owned());
    }
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_loopback(authority.host()) => Ok(()),
        Some("http") => {
            Err("what is sent to the address would go over the network in the open; use `https://`".to_owned())
        }
        _ => Err("the address is neither https nor http".to_owned()),
    }
}

/// Somebody to talk to; it keeps its connection for the next request.
pub(crate) struct Web(Agent);

impl Web {
    /// For this address; everything about a request is over within this time.
    pub fn new(url: &str, ca_file: Option<&Path>, within: Duration) -> Result<Self, Undelivered> {
        let refused = |why| Undelivered { why, retry_after: None, refused: true };
        check_address(url).map_err(refused)?;
        let config = quiet()
            .timeout_resolve(Some(CONNECT_WITHIN))
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(within));
        let config = if url.trim().starts_with("https:") {
            config.tls_config(tls(ca_file).map_err(refused)?)
        } else {
            config.proxy(None)
        };
        Ok(Self(config.build().new_agent()))
    }

    pub fn post(&self, request: &WebRequest<'_>) -> Result<WebResponse, Undelivered> {
        let mut call = self.0.post(request.url.trim());
        for (name, value) in &request.headers {
            call = call.header(*name, value);
        }
        let (head, body) = call.send(request.body).map_err(|e| lost(&e))?.into_parts();
        let number = |name| head.headers.get(name).and_then(|v| v.to_str().ok()?.trim().parse::<u64>().ok());
        let retry_after = number("retry-after").map(Duration::from_secs);
        let mut bytes = Vec::new();
        let read = body.into_reader().take(ANSWER_CAP).read_to_end(&mut bytes);
        read.map_err(|e| lost(&ureq::Error::from(e)))?;
        let body = String::from_utf8_lossy(&bytes).into_owned();
        Ok(WebResponse { status: head.status.as_u16(), retry_after, body })
    }
}

/// One request to somebody who is not asked again soon.
pub(crate) fn post(request: &WebRequest<'_>, ca_file: Option<&Path>) -> Result<WebResponse, Undelivered> {
    Web::new(request.url, ca_file, WITHIN)?.post(request)
}

fn lost(error: &ureq::Error) -> Undelivered {
    // An address that cannot be used is shown by the error itself, and it may be a secret.
    let why = match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => "the address or a header cannot be used".to_owned(),
        other => other.to_string(),
    };
    Undelivered { why, retry_after: None, refused: false }
}

/// A value for a header: one line of visible ASCII; anything else would be another header or none.
pub(crate) fn header(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// Whether a host is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// With a provider that is named: rustls would panic over two.
pub(crate) fn tls(ca_file: Option<&Path>) -> Result<TlsConfig, String> {
    let trusted = trusted(ca_file)?;
    let roots: Vec<Certificate<'static>> = trusted.iter().map(|c| Certificate::from_der(c).to_owned()).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

/// The operator's own trust store and what is trusted besides.
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

/// A file that says nothing is a mistake: whoever named it wants it to count.
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
    use super::*;

    #[test]
    fn nothing_is_told_in_the_open() {
        for good in ["https://example.org/x", "http://localhost:80/x", "http://127.0.0.1:9/"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        for bad in ["http://example.org/x", "ftp://localhost/x", "x", "", "https://me:pw@example.org/"] {
            let why = check_address(bad).expect_err(bad);
            assert!(!why.contains("pw"), "{why}");
        }
    }
}
