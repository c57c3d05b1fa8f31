//! The socket: where it is found again, how many may connect and for how long. Which answer is given is not its business.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::{ReadBufCursor, Sleep};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::answer::Answer;
use super::{Shared, route};
use crate::state_folder::StateFolder;

/// Connections at once, each for one request. Whoever comes on top waits in the kernel until one is free.
const CONNECTIONS_MOST: usize = 32;
/// The head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// A whole request with its body, and our answer.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// Heads that are longer are refused; hyper wants at least 8 KiB.
const HEAD_MOST_BYTES: usize = 16 << 10;
/// Out of file descriptors, most likely: not the supervisor's work may suffer from it.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);
/// Read at once.
const READ_BYTES: usize = 4 << 10;

/// What the state folder says about the port.
#[derive(Serialize, Deserialize)]
struct Note {
    schema_version: u32,
    address: SocketAddr,
}

/// A port that was taken.
pub struct Port {
    listener: TcpListener,
    /// Where it is.
    pub address: SocketAddr,
}

impl Port {
    /// Takes the wanted port, else the one that this state folder had last, because agents of then may still send there, else
    /// any that is free. Port 0 is no wish.
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
                tracing::warn!("{wanted} is taken by somebody else; listening on {address} instead");
            }
            if let Err(e) = note(home, address) {
                tracing::warn!(error = %e, "the port cannot be written down; nobody will find it");
            }
            return Ok(Self { listener, address });
        }
        Err(why)
    }

    /// Answers until the runtime ends.
    pub fn serve(self, shared: Arc<Shared>) {
        let listener =
            self.listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(self.listener));
        match listener {
            Ok(listener) => drop(tokio::spawn(accept(listener, shared))),
            Err(error) => tracing::warn!(%error, "the port cannot be listened to"),
        }
    }
}

fn last(home: &StateFolder) -> Option<SocketAddr> {
    let note: Note = serde_json::from_slice(&std::fs::read(home.http()).ok()?).ok()?;
    Some(note.address).filter(|address| address.ip().is_loopback())
}

/// Writes the port down, whole or not at all, and only when it is another one.
fn note(home: &StateFolder, address: SocketAddr) -> std::io::Result<()> {
    use std::io::Write;
    if last(home) == Some(address) {
        return Ok(());
    }
    let text = serde_json::to_string(&Note { schema_version: 1, address })?;
    let (path, new) = (home.http(), home.http().with_extension("new"));
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{text}")?;
    std::fs::rename(new, path)
}

async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MOST));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    attend(stream, shared).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be taken");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// One connection for one request: an idle supervisor has none, and no agent sends into one that was just closed.
async fn attend(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let answer = timeout(REQUEST_WITHIN, route(&shared, request)).await;
            let answer = answer.unwrap_or_else(|_| Answer::error(408, "the request took too long"));
            Ok::<_, std::convert::Infallible>(answer.into_response())
        }
    });
    let mut http = http1::Builder::new();
    http.timer(Timer).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_MOST_BYTES).keep_alive(false);
    if let Err(error) = http.serve_connection(Io(stream), service).await {
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// tokio's socket, as hyper wants it.
struct Io(TcpStream);

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut bytes = [0; READ_BYTES];
        let room = into.remaining().min(READ_BYTES);
        let mut buffer = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
        into.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// tokio's time, as hyper wants it.
struct Timer;

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Nap(Box::pin(sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Nap(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }
}

struct Nap(Pin<Box<tokio::time::Sleep>>);

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl Sleep for Nap {}
