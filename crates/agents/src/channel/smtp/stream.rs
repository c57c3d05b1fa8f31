//! The stream under the SMTP client: bounded, and always text. `lettre` looks at the length of a
//! line only when it is complete, and gives up on bytes that are no UTF-8; a server must not fill
//! the memory, nor lose a mail over a letter in its answer.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// All that a server sends in one delivery; a usual one is a hundredth of this.
const MAX_RECEIVED_BYTES: usize = 256 << 10;
/// Read in place of a greeting after STARTTLS: servers do not send a second one, and the client
/// waits for one.
const GREETING: &[u8] = b"220 \r\n";

/// A stream with a cap.
#[derive(Debug)]
pub(super) struct CappedStream<S> {
    stream: S,
    /// What is read before anything of the stream.
    first: &'static [u8],
    left: usize,
}

impl<S> CappedStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, first: b"", left: MAX_RECEIVED_BYTES }
    }

    pub(super) fn after_starttls(stream: S) -> Self {
        Self { first: GREETING, ..Self::new(stream) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CappedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let (now, later) = self.first.split_at(self.first.len().min(buf.remaining()));
            buf.put_slice(now);
            self.first = later;
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let received = &mut buf.filled_mut()[before..];
        let Some(left) = self.left.checked_sub(received.len()) else {
            return Poll::Ready(Err(io::Error::other(format!("it sent more than {MAX_RECEIVED_BYTES} bytes"))));
        };
        self.left = left;
        received.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CappedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> AsyncTokioStream for CappedStream<S> {
    /// Only a pool of connections would want it.
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
