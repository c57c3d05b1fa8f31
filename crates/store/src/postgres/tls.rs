//! TLS to the hub: rustls with `ring`, the roots of this machine or of a file, and the modes of
//! libpq.
//!
//! The handshake and channel binding (`tls-server-end-point`) are those of `tokio-postgres-rustls`;
//! this file decides which certificates are trusted and remembers whether the server took the offer
//! of TLS.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::{Roots, TlsMode};
use crate::Error;

/// Makes encrypted connections; knows whether the last one was.
#[derive(Clone)]
pub(super) struct Tls {
    connect: MakeRustlsConnect,
    used: Arc<AtomicBool>,
}

impl Tls {
    pub(super) fn new(trust: &TlsMode) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => Arc::new(Anybody(Arc::clone(&provider))),
            TlsMode::VerifyCa(roots) => Arc::new(AnyName(authorities(roots, &provider)?)),
            TlsMode::VerifyFull(roots) => authorities(roots, &provider)?,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::BadUrl { why: e.to_string() })?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self { connect: MakeRustlsConnect::new(config), used: Arc::default() })
    }

    /// Whether a connection made with this was encrypted.
    pub(super) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

fn authorities(roots: &Roots, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let bad = |why: String| Error::BadUrl { why };
    let mut store = RootCertStore::empty();
    match roots {
        Roots::System => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(bad(
                    "this machine has no root certificates (install `ca-certificates`, or name a file with \
                                `sslrootcert`)"
                        .to_owned(),
                ));
            }
        }
        Roots::File(path) => {
            let unreadable = |e: &dyn std::fmt::Display| bad(format!("`sslrootcert` `{}`: {e}", path.display()));
            let found = CertificateDer::pem_file_iter(path).map_err(|e| unreadable(&e))?;
            for cert in found {
                store.add(cert.map_err(|e| unreadable(&e))?).map_err(|e| unreadable(&e))?;
            }
            if store.is_empty() {
                return Err(unreadable(&"there is no certificate in it"));
            }
        }
    }
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider)).build();
    built.map_err(|e| bad(e.to_string()))
}

type Inner = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;
type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Infallible> {
        let inner = MakeTlsConnect::<Socket>::make_tls_connect(&mut self.connect, host)?;
        Ok(Handshake { inner, used: Arc::clone(&self.used) })
    }
}

/// The library's handshake, with a note that it took place.
pub(super) struct Handshake {
    inner: Inner,
    used: Arc<AtomicBool>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let stream = self.inner.connect(socket).await?;
            self.used.store(true, Ordering::Relaxed);
            Ok(stream)
        })
    }
}

/// `prefer` and `require`: against eavesdroppers, not against a proxy in between. Signatures have
/// to be valid all the same.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// `verify-ca`: everything but the name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.0.verify_server_cert(cert, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
