//! The connection as hyper writes to it, extended to send spans of files by `sendfile`.
//!
//! hyper polls a body for buffers and writes them. The buffer of a file span is a slice of [`PLACEHOLDER`] of the
//! same length, and the span itself is queued in the connection's [`SpanQueue`]. When hyper writes bytes of
//! `PLACEHOLDER`, [`ConnectionIo`] sends the span at the head of the queue instead. hyper thus orders, counts and
//! flushes spans like all bytes, and handles the rest of HTTP/1.1.
//!
//! This depends on how hyper writes buffers, so `Cargo.toml` pins its version exactly. Three guards:
//!
//! - Bytes of `PLACEHOLDER` are never sent: [`ConnectionIo`] reports vectored writes, so hyper keeps buffers separate
//!   rather than copying them. If it ever copies a placeholder or drops a partly sent one, the queue detects that more
//!   bytes were consumed than `sendfile` sent ([`SpanQueue::check`]), and fails the connection before its next byte.
//! - The tests `it::http::files` compare the bytes of local files that were sent in this way.
//! - For a new version of hyper: change the pin, and run these tests and `bench/run --jobs large-down`.
//!
//! Network threads do not wait for the disk: before each `sendfile` the page cache is probed for its bytes, and
//! missing ones are read by a disk thread.

use std::{
    collections::VecDeque,
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

use towpath_store::{Error, Fault, LocalPart, ReadHandle};

use super::{connection_state::ConnectionState, http10::StatusLine, watchdog::ConnectionWatchdog};
use crate::{
    Socket,
    fair_pool::{Lease, PeerProgress},
    socket::is_of_connection,
};

/// Distance between the bytes probed in the page cache before a `sendfile`; readahead and eviction work on larger
/// ranges.
const PROBE_BYTES: usize = 128 * 1024;

/// Placeholder for the bytes of spans. Its length bounds one `sendfile`, so that connections share the thread.
pub(super) static PLACEHOLDER: [u8; 512 * 1024] = [0; 512 * 1024];

/// The spans that a connection has yet to send, in order.
#[derive(Debug, Default)]
pub(super) struct SpanQueue(Mutex<Spans>);

#[derive(Debug, Default)]
struct Spans {
    waiting: VecDeque<FileSpan>,
    /// The read that brings the next bytes of the first span into memory.
    fetching: Option<PageCacheRead>,
    /// Bytes sent by `sendfile` that hyper has not yet consumed.
    ahead: u64,
    broken: bool,
    /// The fault of a failed file read.
    failure: Option<Fault>,
}

/// A span of a file.
#[derive(Debug, Clone)]
pub(super) struct FileSpan {
    /// The open file, pinned to one version.
    pub(super) handle: Arc<dyn ReadHandle>,
    /// The lease of the open file.
    pub(super) _lease: Option<Arc<Lease>>,
    /// The file.
    pub(super) part: LocalPart,
    /// Offset of the first byte.
    pub(super) offset: u64,
    /// Number of bytes, at least one.
    pub(super) length: u64,
}

/// A read that fills the page cache; its data are discarded.
struct PageCacheRead(BoxFuture<'static, towpath_store::Result<Vec<u8>>>);

impl std::fmt::Debug for PageCacheRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PageCacheRead")
    }
}

impl FileSpan {
    /// Returns how many bytes to send next, at most `limit`. The last byte is sent alone, after checking that the
    /// file is still the opened version ([`SpanQueue::send`]): a client that receives all bytes has one version.
    fn next_bytes(&self, limit: usize) -> usize {
        let but_last = usize::try_from(self.length - 1).unwrap_or(usize::MAX);
        but_last.clamp(1, limit)
    }

    /// Whether the next `count` bytes are in the page cache, judged by samples.
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

    fn fetch(&self, count: usize) -> PageCacheRead {
        let (handle, offset) = (Arc::clone(&self.handle), self.offset);
        PageCacheRead(Box::pin(async move { handle.read_into(offset, count, Vec::with_capacity(count)).await }))
    }
}

impl SpanQueue {
    fn spans(&self) -> std::sync::MutexGuard<'_, Spans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a span.
    pub(super) fn push(&self, span: FileSpan) {
        self.spans().waiting.push_back(span);
    }

    /// Records that hyper consumed `bytes` of a span.
    pub(super) fn record_consumed(&self, bytes: u64) {
        let mut spans = self.spans();
        match spans.ahead.checked_sub(bytes) {
            Some(ahead) => spans.ahead = ahead,
            None => spans.broken = true,
        }
    }

    /// Records that a span was dropped before it was sent.
    pub(super) fn record_dropped(&self) {
        self.spans().broken = true;
    }

    /// Returns the fault of a failed file read; the connection then ends.
    pub(super) fn failure(&self) -> Option<Fault> {
        self.spans().failure
    }

    fn check(&self) -> io::Result<()> {
        if self.spans().broken {
            return Err(io::Error::other("a file span was dropped: the connection cannot continue"));
        }
        Ok(())
    }

    /// Waits until the bytes that [`Self::send`] sends next are in memory, so that `sendfile` does not block this
    /// thread on the disk.
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
        let Some(PageCacheRead(read)) = fetching else { return Poll::Ready(Ok(())) };
        let read = ready!(read.poll_unpin(cx));
        *fetching = None;
        Poll::Ready(read.map(drop).map_err(|error| fail(failure, error)))
    }

    /// Sends at most `limit` bytes of the first span.
    fn send(&self, socket: &TcpStream, limit: usize) -> io::Result<usize> {
        let Spans { waiting, ahead, failure, .. } = &mut *self.spans();
        let Some(first) = waiting.front_mut() else {
            return Err(io::Error::other("no file span is queued for the marker bytes"));
        };
        if first.length == 1 {
            first.handle.check_version().map_err(|error| fail(failure, error))?;
        }
        let count = first.next_bytes(limit);
        let mut offset = first.offset;
        let sent = match rustix::fs::sendfile(socket, &first.part.file, Some(&mut offset), count)
            .map_err(io::Error::from)
        {
            Ok(0) => {
                return Err(fail(failure, Error::new(Fault::Truncated, "the file was truncated while it was sent")));
            }
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_of_connection(&error) => return Err(error),
            Err(error) => return Err(fail(failure, Error::new(Fault::Io, format!("reading: {error}")))),
        };
        first.part.record_sent(first.offset, sent as u64);
        first.offset = offset;
        first.length -= sent as u64;
        if first.length == 0 {
            waiting.pop_front();
        }
        *ahead += sent as u64;
        Ok(sent)
    }
}

/// Records the fault for the tracker of the response that it cuts short.
fn fail(failure: &mut Option<Fault>, error: Error) -> io::Error {
    tracing::warn!(%error, "response aborted: reading the file failed");
    *failure = Some(error.fault());
    io::Error::other(error)
}

/// The first bytes of a connection, which distinguish HTTP/2 (`PRI * HTTP/2.0`, RFC 9113 §3.4) from HTTP/1.1: no
/// method begins with them.
#[derive(Debug, Default)]
struct ConnectionPreface {
    bytes: [u8; 3],
    length: usize,
}

impl ConnectionPreface {
    fn take(&mut self, received: &[u8]) {
        for (slot, byte) in self.bytes[self.length..].iter_mut().zip(received) {
            *slot = *byte;
            self.length += 1;
        }
    }

    fn is_of_http2(&self) -> bool {
        self.bytes == *b"PRI"
    }
}

/// A connection that sends file spans and reports progress to its watchdog.
#[derive(Debug)]
pub(super) struct ConnectionIo {
    socket: Socket,
    span_queue: Arc<SpanQueue>,
    watchdog: Arc<ConnectionWatchdog>,
    status_line: Arc<StatusLine>,
    activity: Arc<PeerProgress>,
    header_bytes: u64,
    preface: ConnectionPreface,
}

impl ConnectionIo {
    /// Creates the I/O of `connection` over `socket`. Spans may be queued only if the socket is plain. An HTTP/1.1
    /// request header of more than twice `header_bytes` ends the connection; a shorter one is rejected by its handler
    /// with a response. (In HTTP/2 the body may arrive before the header is processed; hyper limits the header's size.)
    pub(super) fn new(socket: Socket, connection: &ConnectionState, header_bytes: u64) -> Self {
        Self {
            socket,
            span_queue: Arc::clone(&connection.span_queue),
            watchdog: Arc::clone(&connection.watchdog),
            status_line: Arc::clone(&connection.status_line),
            activity: Arc::clone(&connection.activity),
            header_bytes,
            preface: ConnectionPreface::default(),
        }
    }

    fn note(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &outcome {
            Poll::Ready(sent) => {
                self.watchdog.record_sent();
                self.activity.record_progress(*sent.as_ref().unwrap_or(&0));
            }
            Poll::Pending => self.watchdog.record_blocked(),
        }
        outcome
    }

    fn poll_send(&self, cx: &mut Context<'_>, limit: usize) -> Poll<io::Result<usize>> {
        let Socket::Plain(stream) = &self.socket else {
            return Poll::Ready(Err(io::Error::other("a file span was queued on an encrypted connection")));
        };
        loop {
            ready!(stream.poll_write_ready(cx))?;
            ready!(self.span_queue.poll_in_memory(cx, limit))?;
            match stream.try_io(Interest::WRITABLE, || self.span_queue.send(stream, limit)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

/// Whether these bytes are a placeholder for a span.
fn is_mark(bytes: &[u8]) -> bool {
    !bytes.is_empty() && PLACEHOLDER.as_ptr_range().contains(&bytes.as_ptr())
}

impl AsyncRead for ConnectionIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        let received = buffer.filled().get(before..).unwrap_or_default();
        self.preface.take(received);
        self.activity.record_progress(received.len());
        let is_too_long =
            !received.is_empty() && self.watchdog.record_received(received.len()) > self.header_bytes.saturating_mul(2);
        if is_too_long && !self.preface.is_of_http2() {
            return Poll::Ready(Err(io::Error::other("the request header is too long")));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ConnectionIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.span_queue.check()?;
        let plain = slices.iter().take_while(|slice| !is_mark(slice)).count();
        let (before, rest) = slices.split_at(plain);
        let outcome = match rest.first() {
            Some(mark) if before.iter().all(|slice| slice.is_empty()) => self.poll_send(cx, mark.len()),
            _ => match self.status_line.replacement(before) {
                None => Pin::new(&mut self.socket).poll_write_vectored(cx, before),
                Some(head) => {
                    let outcome = Pin::new(&mut self.socket).poll_write(cx, &head);
                    self.status_line.record_replaced(if let Poll::Ready(Ok(sent)) = outcome { sent } else { 0 });
                    outcome
                }
            },
        };
        self.note(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        // Also for sockets that write one buffer at a time (TLS): see the module documentation.
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.status_line.record_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

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
            let span_queue = SpanQueue::default();
            span_queue.push(FileSpan {
                handle: Arc::clone(&handle),
                _lease: None,
                part: LocalPart::new(Arc::clone(file)),
                offset: 0,
                length,
            });
            span_queue.send(&stream, 7).map_err(|_| span_queue.failure())
        };
        let readable = handle.local_part(0, 7).unwrap().file;
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
