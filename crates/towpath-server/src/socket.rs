//! A connection, plain or in TLS, whose first bytes can be inspected before they are consumed.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, RawFd},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// A connection. The plain variant exposes its [`TcpStream`] for `sendfile` and for a later upgrade to TLS.
#[derive(Debug)]
pub enum Socket {
    /// Without TLS.
    Plain(TcpStream),
    /// In TLS. The buffer lets the listener peek at the first bytes.
    Tls(Box<BufReader<TlsStream<TcpStream>>>),
}

impl Socket {
    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// Returns the local address of the connection.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Plain(stream) => stream.local_addr(),
            Socket::Tls(stream) => stream.get_ref().get_ref().0.local_addr(),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Socket::Plain(stream) => stream.as_raw_fd(),
            Socket::Tls(stream) => stream.get_ref().get_ref().0.as_raw_fd(),
        }
    }
}

/// Whether a `sendfile` error is about the connection rather than the file.
pub(crate) fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable, NotConnected,
        TimedOut,
    };
    matches!(
        error.kind(),
        BrokenPipe
            | ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | NetworkDown
            | NetworkUnreachable
            | NotConnected
            | TimedOut
    )
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
