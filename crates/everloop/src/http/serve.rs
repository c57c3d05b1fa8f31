//! The accept loop: how many may connect, for how long, and with how long a head. axum's own
//! listener has no settings for any of these, so connections are handed to hyper here.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Connections at once, each for one request. More of them wait in the kernel until one is free.
const MAX_CONNECTIONS: usize = 32;
/// The head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer heads are refused; hyper wants at least 8 KiB.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Out of file descriptors, most likely: the supervisor's work must not suffer from it.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// The other end of a request's connection.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// The place of a connection among all connections.
#[derive(Clone, Debug)]
pub struct Seat(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Seat {
    /// Gives the place to another connection: this one is counted elsewhere from now on.
    pub fn leave(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Serves on this runtime until it ends.
pub fn spawn(listener: TcpListener, router: Router) {
    let listener = listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener));
    match listener {
        Ok(listener) => drop(tokio::spawn(accept(listener, router))),
        Err(error) => tracing::warn!(%error, "the port cannot be listened to"),
    }
}

async fn accept(listener: tokio::net::TcpListener, router: Router) {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone();
                let seat = Seat(Arc::new(Mutex::new(Some(permit))));
                tokio::spawn(async move {
                    attend(stream, peer, (router, seat.clone())).await;
                    seat.leave();
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// One connection for one request: an idle supervisor has none, and no agent sends into one that
/// was just closed.
async fn attend(stream: TcpStream, peer: SocketAddr, (router, seat): (Router, Seat)) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD_BYTES).keep_alive(false);
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(peer));
        request.extensions_mut().insert(seat.clone());
        service.call(request)
    });
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended badly");
    }
}
