//! The connection as hyper writes to it, with a side door: spans of files go by `sendfile`.
//!
//! hyper asks a body for buffers, and writes what they show. A span of a file has nothing to show; it shows a piece of [`MARK`]
//! as long as itself, and stands in the connection's [`Outbox`]. When [`Wire`] is asked to write bytes of `MARK` it sends the
//! span at the head of the outbox in their place. hyper orders, counts and flushes spans as it does all bytes, and the rest
//! of HTTP/1.1 stays its affair.
//!
//! (So hyper 1.12 does it. Should another version do otherwise, tests that fetch local files fail.)
//!
//! Bytes of `MARK` never leave: [`Wire`] tells hyper that it writes vectors, so hyper keeps buffers apart rather than
//! copying them together. Should it ever copy one, or drop one half sent, the outbox notices that bytes were taken which no
//! `sendfile` sent, and the connection fails before its next byte.
//!
//! A network thread does not wait for the disk: what a `sendfile` is to send is looked for in memory right before it, and fetched by a
//! disk thread if it is not there.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use towpath_store::{Error, Fault, ReadHandle};

use super::{http10::StatusLine, link::Link, pulse::Pulse};
use crate::{
    Socket,
    shares::{Lease, Standing},
    socket::is_of_connection,
};

/// How far apart the bytes are that are looked for in memory before a `sendfile`: readahead and eviction work on larger ranges.
const PROBE_BYTES: usize = 128 * 1024;

/// What spans show in place of their bytes. Its length bounds one `sendfile`, so that connections take turns.
pub(super) static MARK: [u8; 512 * 1024] = [0; 512 * 1024];

/// The spans that a connection has still to send, in order.
#[derive(Debug, Default)]
pub(super) struct Outbox(Mutex<Spans>);

#[derive(Debug, Default)]
struct Spans {
    waiting: VecDeque<FileSpan>,
    /// What brings the next bytes of the first span into memory.
    fetching: Option<Fetching>,
    /// Bytes sent by `sendfile` that hyper does not yet know of.
    ahead: u64,
    broken: bool,
    /// How a file failed on its way.
    failure: Option<Fault>,
}

/// A piece of a file.
#[derive(Debug, Clone)]
pub(super) struct FileSpan {
    /// The version of the file.
    pub(super) handle: Arc<dyn ReadHandle>,
    /// That of the open file.
    pub(super) _lease: Option<Arc<Lease>>,
    /// The file itself.
    pub(super) file: Arc<File>,
    /// Its first byte.
    pub(super) offset: u64,
    /// Number of bytes, at least one.
    pub(super) length: u64,
}

/// A read for the sake of the page cache: what it gives is not looked at.
struct Fetching(BoxFuture<'static, towpath_store::Result<Vec<u8>>>);

impl std::fmt::Debug for Fetching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fetching")
    }
}

impl FileSpan {
    /// How much to send next, at most `limit` bytes. The last byte goes alone, once the file was found to be still the version that was
    /// opened ([`Outbox::send`]): whoever gets all bytes has got one version.
    fn next_bytes(&self, limit: usize) -> usize {
        let but_last = usize::try_from(self.length - 1).unwrap_or(usize::MAX);
        but_last.clamp(1, limit)
    }

    /// Whether the next `count` bytes are in the page cache, as far as a look at some of them shows.
    fn is_in_memory(&self, count: usize) -> towpath_store::Result<bool> {
        let mut byte = Vec::with_capacity(1);
        for at in (0..count).step_by(PROBE_BYTES).chain([count - 1]) {
            byte.clear();
            match self.handle.read_now(self.offset + at as u64, 1, &mut byte) {
                None => return Ok(false),
                Some(read) => drop(read?),
            }
        }
        Ok(true)
    }

    fn fetch(&self, count: usize) -> Fetching {
        let (handle, offset) = (Arc::clone(&self.handle), self.offset);
        Fetching(Box::pin(async move { handle.read_into(offset, count, Vec::with_capacity(count)).await }))
    }
}

impl Outbox {
    fn spans(&self) -> std::sync::MutexGuard<'_, Spans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a span at the end.
    pub(super) fn push(&self, span: FileSpan) {
        self.spans().waiting.push_back(span);
    }

    /// hyper has been told that `bytes` of a span were written.
    pub(super) fn taken(&self, bytes: u64) {
        let mut spans = self.spans();
        match spans.ahead.checked_sub(bytes) {
            Some(ahead) => spans.ahead = ahead,
            None => spans.broken = true,
        }
    }

    /// A span is given up before it was sent.
    pub(super) fn dropped(&self) {
        self.spans().broken = true;
    }

    /// How a file failed on its way, if one did: then the connection ends.
    pub(super) fn failure(&self) -> Option<Fault> {
        self.spans().failure
    }

    fn check(&self) -> io::Result<()> {
        if self.spans().broken {
            return Err(io::Error::other("a span of a file was given up: the connection cannot go on"));
        }
        Ok(())
    }

    /// Waits until what [`Self::send`] sends next is in memory: `sendfile` would else wait for the disk on this thread.
    fn poll_in_memory(&self, cx: &mut Context<'_>, limit: usize) -> Poll<io::Result<()>> {
        let Spans { waiting, fetching, failure, .. } = &mut *self.spans();
        let Some(first) = waiting.front() else { return Poll::Ready(Ok(())) };
        let count = first.next_bytes(limit);
        if fetching.is_none() {
            if first.is_in_memory(count).map_err(|error| fail(failure, error))? {
                return Poll::Ready(Ok(()));
            }
            *fetching = Some(first.fetch(count));
        }
        let Some(Fetching(read)) = fetching else { return Poll::Ready(Ok(())) };
        let read = ready!(read.poll_unpin(cx));
        *fetching = None;
        Poll::Ready(read.map(drop).map_err(|error| fail(failure, error)))
    }

    /// Sends at most `limit` bytes of the first span.
    fn send(&self, socket: &TcpStream, limit: usize) -> io::Result<usize> {
        let Spans { waiting, ahead, failure, .. } = &mut *self.spans();
        let Some(first) = waiting.front_mut() else {
            return Err(io::Error::other("a span of a file was announced that is not there"));
        };
        if first.length == 1 {
            first.handle.check_version().map_err(|error| fail(failure, error))?;
        }
        let count = first.next_bytes(limit);
        let mut offset = first.offset;
        let sent = match rustix::fs::sendfile(socket, &first.file, Some(&mut offset), count).map_err(io::Error::from) {
            Ok(0) => {
                return Err(fail(failure, Error::new(Fault::Truncated, "the file became shorter while it was sent")));
            }
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_of_connection(&error) => return Err(error),
            Err(error) => return Err(fail(failure, Error::new(Fault::Io, format!("reading: {error}")))),
        };
        first.offset = offset;
        first.length -= sent as u64;
        if first.length == 0 {
            waiting.pop_front();
        }
        *ahead += sent as u64;
        Ok(sent)
    }
}

/// Keeps how a file failed, for the account of the answer that it cuts short.
fn fail(failure: &mut Option<Fault>, error: Error) -> io::Error {
    tracing::warn!(%error, "an answer had to be cut short");
    *failure = Some(error.fault());
    io::Error::other(error)
}

/// The first bytes of a connection, which tell HTTP/2 (`PRI * HTTP/2.0`, RFC 9113 §3.4) from HTTP/1.1: no method begins with them.
#[derive(Debug, Default)]
struct Opening {
    bytes: [u8; 3],
    length: usize,
}

impl Opening {
    fn take(&mut self, received: &[u8]) {
        for (place, byte) in self.bytes[self.length..].iter_mut().zip(received) {
            *place = *byte;
            self.length += 1;
        }
    }

    fn is_of_http2(&self) -> bool {
        self.bytes == *b"PRI"
    }
}

/// A connection that knows spans of files, and tells its pulse what happens.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    outbox: Arc<Outbox>,
    pulse: Arc<Pulse>,
    status_line: Arc<StatusLine>,
    activity: Arc<Standing>,
    header_bytes: u64,
    opening: Opening,
}

impl Wire {
    /// The wire of `link` over `socket`. Spans may be put into its outbox only if the socket is plain. A request header of HTTP/1.1 of more than
    /// twice `header_bytes` ends the connection; a shorter one is refused in words, by whoever reads it. (In HTTP/2 the body of a request may come
    /// before anybody has looked at its header, whose length hyper bounds.)
    pub(super) fn new(socket: Socket, link: &Link, header_bytes: u64) -> Self {
        Self {
            socket,
            outbox: Arc::clone(&link.outbox),
            pulse: Arc::clone(&link.pulse),
            status_line: Arc::clone(&link.status_line),
            activity: Arc::clone(&link.activity),
            header_bytes,
            opening: Opening::default(),
        }
    }

    fn note(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &outcome {
            Poll::Ready(sent) => {
                self.pulse.sent();
                self.activity.moved(*sent.as_ref().unwrap_or(&0));
            }
            Poll::Pending => self.pulse.filled(),
        }
        outcome
    }

    fn poll_send(&self, cx: &mut Context<'_>, limit: usize) -> Poll<io::Result<usize>> {
        let Socket::Plain(stream) = &self.socket else {
            return Poll::Ready(Err(io::Error::other("a span of a file was put on an encrypted connection")));
        };
        loop {
            ready!(stream.poll_write_ready(cx))?;
            ready!(self.outbox.poll_in_memory(cx, limit))?;
            match stream.try_io(Interest::WRITABLE, || self.outbox.send(stream, limit)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

/// Whether these bytes stand for a span.
fn is_mark(bytes: &[u8]) -> bool {
    !bytes.is_empty() && MARK.as_ptr_range().contains(&bytes.as_ptr())
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        let received = buffer.filled().get(before..).unwrap_or_default();
        self.opening.take(received);
        self.activity.moved(received.len());
        let is_too_long =
            !received.is_empty() && self.pulse.received(received.len()) > self.header_bytes.saturating_mul(2);
        if is_too_long && !self.opening.is_of_http2() {
            return Poll::Ready(Err(io::Error::other("the request header is far too long")));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.outbox.check()?;
        let plain = slices.iter().take_while(|slice| !is_mark(slice)).count();
        let (before, rest) = slices.split_at(plain);
        let outcome = match rest.first() {
            Some(mark) if before.iter().all(|slice| slice.is_empty()) => self.poll_send(cx, mark.len()),
            _ => match self.status_line.replacement(before) {
                None => Pin::new(&mut self.socket).poll_write_vectored(cx, before),
                Some(head) => {
                    let outcome = Pin::new(&mut self.socket).poll_write(cx, &head);
                    self.status_line.replaced(if let Poll::Ready(Ok(sent)) = outcome { sent } else { 0 });
                    outcome
                }
            },
        };
        self.note(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        // Also where the socket itself takes one buffer at a time (TLS): see the head of this file.
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.status_line.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use towpath_store::{
        Caller, Store as _, StorePath,
        local::LocalStore,
        sys::{disk, net},
    };

    use super::*;

    #[tokio::test]
    async fn a_file_that_fails_is_told_from_a_client_that_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let store = LocalStore::open(directory.path(), Default::default()).unwrap();
        let path = directory.path().join("file");
        disk::write(&path, b"content").unwrap();
        let at = StorePath::parse(b"/file").unwrap();
        let handle = store.open(&Caller::local(), &at, Default::default()).await.unwrap();
        let write_only = Arc::new(disk::append(&path).unwrap());
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let stream = net::connect(listener.local_addr().unwrap()).await.unwrap();
        let failure_of = |file: &Arc<File>, length| {
            let outbox = Outbox::default();
            outbox.push(FileSpan {
                handle: Arc::clone(&handle),
                _lease: None,
                file: Arc::clone(file),
                offset: 0,
                length,
            });
            outbox.send(&stream, 7).map_err(|_| outbox.failure())
        };
        let readable = handle.local_file().unwrap();
        assert_eq!(failure_of(&readable, 7), Ok(6), "the last byte goes alone");
        assert_eq!(failure_of(&write_only, 7), Err(Some(Fault::Io)));
        (&*write_only).write_all(b"more").unwrap();
        assert_eq!(failure_of(&readable, 1), Err(Some(Fault::Changed)));
        drop(listener);
        while let Ok(sent) = failure_of(&readable, 7) {
            assert_eq!(sent, 6);
        }
        assert_eq!(failure_of(&readable, 7), Err(None));
    }
}
