//! The sending half of a connection, shared by all tasks that respond on it.
//!
//! A task locks it, writes a whole frame and unlocks it, so frames of different responses alternate but never mix. A
//! client that accepts no data for the time `stall` is disconnected as too slow, and a connection that fails is closed:
//! all later frames fail immediately, and the writer's token stops the reader.

use std::{
    fs::File,
    io::{self, IoSlice},
    os::fd::AsFd,
    pin::Pin,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::BytesMut;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    net::SendFlags,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _, Interest, WriteHalf},
    net::{TcpStream, tcp::OwnedWriteHalf},
    sync::{Mutex, OwnedMutexGuard, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use towpath_store::sys::clock;

use crate::{
    Service, Socket,
    fair_pool::{PeerProgress, PeerWaitGuard},
    socket::is_of_connection,
};

/// Maximum time that a thread of the disk pool waits for a slow client before it leaves the waiting to the network
/// threads.
const LINGER: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Maximum size of a response that is batched with others, in bytes.
const SHORT_BYTES: usize = 16 << 10;

/// Sent in place of missing file data after the frame header has announced their length.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The sending half of a socket.
#[derive(Debug)]
pub(super) enum SocketWriter {
    /// Without TLS: `sendfile` is possible.
    Plain(OwnedWriteHalf),
    /// In TLS.
    Tls(WriteHalf<Socket>),
}

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    half: Arc<Mutex<SocketWriter>>,
    plain: bool,
    stall: Duration,
    /// Limits the threads of all connections that [`Self::send_file`] may block on disks and clients.
    threads: Arc<Semaphore>,
    short: std::sync::Mutex<ShortFrames>,
    /// Tracks the client's progress with the memory of its responses.
    progress: Arc<PeerProgress>,
    /// Tracks the client's progress in general.
    activity: Arc<PeerProgress>,
    state: State,
}

/// Short responses waiting to be sent together.
#[derive(Debug, Default)]
struct ShortFrames {
    frames: BytesMut,
    /// Total number of responses queued here, and of those sent.
    queued: u64,
    sent: u64,
}

/// Whether frames can still be sent.
#[derive(Debug)]
struct State {
    broken_off: AtomicBool,
    /// Whether the cause was a stalled client.
    stalled: AtomicBool,
    /// Cancelled once they cannot.
    end: CancellationToken,
}

impl ResponseWriter {
    /// Creates a writer that sends on `half` and cancels `end` on failure. Records the client's progress for the
    /// memory of responses and for the connection.
    pub(super) fn new(
        half: SocketWriter,
        service: &Service,
        end: CancellationToken,
        [progress, activity]: [Arc<PeerProgress>; 2],
    ) -> Self {
        let (stall, threads) = (service.limits.stall.0, Arc::clone(&service.file_senders));
        let plain = matches!(half, SocketWriter::Plain(_));
        let state = State { broken_off: AtomicBool::new(false), stalled: AtomicBool::new(false), end };
        let (half, short) = (Arc::new(Mutex::new(half)), std::sync::Mutex::default());
        Self { half, plain, stall, threads, short, progress, activity, state }
    }

    /// Whether the client stalled for too long.
    pub(super) fn has_stalled(&self) -> bool {
        self.state.stalled.load(Ordering::Acquire)
    }

    /// Whether [`Self::send_file`] is supported.
    pub(super) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether responses may be sent together. Not in TLS: of two responses in one record XRootD's client (seen with
    /// 5.5.3) notices the second only when more data arrive, because polling the socket does not show data buffered
    /// in the TLS library.
    pub(super) fn joins_answers(&self) -> bool {
        self.plain
    }

    /// Like [`Self::send`], for the responses of tasks: short ones are sent together with those of other tasks that
    /// are ready.
    pub(super) async fn send_together(&self, frames: &[u8]) -> io::Result<()> {
        if frames.len() > SHORT_BYTES || !self.joins_answers() {
            return self.send(frames).await;
        }
        let number = {
            let mut short = self.short();
            short.frames.extend_from_slice(frames);
            short.queued += 1;
            short.queued
        };
        tokio::task::yield_now().await;
        if self.short().sent < number { self.lock_in_order().await.map(drop) } else { Ok(()) }
    }

    fn short(&self) -> std::sync::MutexGuard<'_, ShortFrames> {
        self.short.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends whole frames.
    pub(super) async fn send(&self, frames: &[u8]) -> io::Result<()> {
        let mut half = self.lock_in_order().await?;
        self.send_on(&mut half, frames).await
    }

    async fn send_on(&self, half: &mut SocketWriter, mut frames: &[u8]) -> io::Result<()> {
        let mut broken_off = PartialFrameGuard::new(&self.state);
        let mut awaits = None;
        while !frames.is_empty() {
            let sent = self.with_stall_timeout(&mut awaits, half.write(frames)).await?;
            self.progress.record_progress(sent);
            frames = frames.get(sent..).unwrap_or_default();
        }
        self.with_stall_timeout(&mut awaits, half.flush()).await?;
        broken_off.whole();
        Ok(())
    }

    /// Sends whole frames from several buffers.
    pub(super) async fn send_vectored(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut half = self.lock_in_order().await?;
        let mut broken_off = PartialFrameGuard::new(&self.state);
        let mut awaits = None;
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let sent = self.with_stall_timeout(&mut awaits, half.write_vectored(slices)).await?;
            self.progress.record_progress(sent);
            IoSlice::advance_slices(&mut slices, sent);
        }
        self.with_stall_timeout(&mut awaits, half.flush()).await?;
        broken_off.whole();
        Ok(())
    }

    /// Sends `head` and then `length` bytes of `file` from `offset` without copying them to user space; other threads
    /// wait for disk and network. If reading fails or the file has shrunk, zeros replace the rest, because the frame
    /// announces its length. The inner result reports the failure.
    pub(super) async fn send_file(
        &self,
        head: &[u8],
        file: &Arc<File>,
        offset: u64,
        length: u64,
    ) -> io::Result<io::Result<()>> {
        let mut half = self.lock_in_order().await?;
        let mut broken_off = PartialFrameGuard::new(&self.state);
        let mut awaits = None;
        self.send_head(&half, head, &mut awaits).await?;
        let mut outcome_of_file = Ok(());
        let mut sent = 0;
        while sent < length {
            let (at, left) = (offset + sent, length - sent);
            let thread = Arc::clone(&self.threads).acquire_owned().await.map_err(io::Error::other)?;
            let job = SendFile { half, file: Arc::clone(file), offset: at, length: left };
            let outcome = tokio::task::spawn_blocking(move || {
                let _thread = thread;
                job.run()
            });
            let (half_again, outcome) = outcome.await.map_err(io::Error::other)?;
            half = half_again;
            match outcome? {
                SendProgress::Some(bytes) => {
                    self.progress.record_progress(usize::try_from(bytes).unwrap_or(usize::MAX));
                    sent += bytes;
                }
                SendProgress::NoRoom => self.with_stall_timeout(&mut awaits, plain(&half)?.writable()).await?,
                SendProgress::EndOfFile => {
                    let message = "the file is shorter than its size";
                    outcome_of_file = Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                    break;
                }
                SendProgress::Failed(error) => {
                    outcome_of_file = Err(error);
                    break;
                }
            }
        }
        let mut missing = length - sent;
        while missing > 0 {
            let zeros = ZEROS.get(..usize::try_from(missing).unwrap_or(usize::MAX)).unwrap_or(&ZEROS);
            missing -= self.with_stall_timeout(&mut awaits, half.write(zeros)).await? as u64;
        }
        broken_off.whole();
        Ok(outcome_of_file)
    }

    /// Sends the head of a frame so that it shares a segment with the data that follow.
    async fn send_head(
        &self,
        half: &OwnedMutexGuard<SocketWriter>,
        mut head: &[u8],
        awaits: &mut Option<PeerWaitGuard>,
    ) -> io::Result<()> {
        let socket = plain(half)?;
        while !head.is_empty() {
            let sent = socket.as_ref().try_io(Interest::WRITABLE, || {
                Ok(rustix::net::send(socket.as_ref().as_fd(), head, SendFlags::MORE | SendFlags::NOSIGNAL)?)
            });
            match sent {
                Ok(sent) => head = head.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.with_stall_timeout(awaits, socket.writable()).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends pending data and then the end of the stream.
    pub(super) async fn shut_down(&self) {
        if let Ok(mut half) = self.lock_in_order().await {
            // The client may already be gone.
            let _ = self.with_stall_timeout(&mut None, half.shutdown()).await;
        }
    }

    /// Acquires the right to send after flushing earlier short responses, which preserves the order.
    async fn lock_in_order(&self) -> io::Result<OwnedMutexGuard<SocketWriter>> {
        let mut half = Arc::clone(&self.half).lock_owned().await;
        if self.state.broken_off.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let frames = {
            let mut short = self.short();
            short.sent = short.queued;
            short.frames.split()
        };
        if !frames.is_empty() {
            self.send_on(&mut half, &frames).await?;
        }
        Ok(half)
    }

    /// Waits for one step of a frame, with the stall timeout. From the first step that blocks, the frame counts as
    /// waiting for the client.
    async fn with_stall_timeout<T>(
        &self,
        awaits: &mut Option<PeerWaitGuard>,
        step: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let mut step = std::pin::pin!(step);
        // Most steps complete immediately and need no timer.
        if let Poll::Ready(done) = futures::poll!(&mut step) {
            return done;
        }
        awaits.get_or_insert_with(|| self.progress.await_peer());
        let stepped = timeout(self.stall, step).await;
        if stepped.is_ok() {
            self.activity.touch(clock::now());
        }
        stepped.unwrap_or_else(|_| {
            self.state.stalled.store(true, Ordering::Release);
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

fn plain(half: &SocketWriter) -> io::Result<&OwnedWriteHalf> {
    match half {
        SocketWriter::Plain(half) => Ok(half),
        SocketWriter::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Marks the connection as torn unless the whole frame was sent, also if the sending task is cancelled.
struct PartialFrameGuard<'a> {
    state: Option<&'a State>,
}

impl<'a> PartialFrameGuard<'a> {
    fn new(state: &'a State) -> Self {
        Self { state: Some(state) }
    }

    fn whole(&mut self) {
        self.state = None;
    }
}

impl Drop for PartialFrameGuard<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.state {
            state.broken_off.store(true, Ordering::Release);
            state.end.cancel();
        }
    }
}

/// A transfer of a part of a file into a socket.
struct SendFile {
    half: OwnedMutexGuard<SocketWriter>,
    file: Arc<File>,
    offset: u64,
    length: u64,
}

/// Progress of a [`SendFile`].
enum SendProgress {
    Some(u64),
    NoRoom,
    EndOfFile,
    /// The file cannot be read.
    Failed(io::Error),
}

impl SendFile {
    /// Sends until all is sent, the file ends, or the client has been slow for [`LINGER`]. May block on the disk.
    fn run(self) -> (OwnedMutexGuard<SocketWriter>, io::Result<SendProgress>) {
        let outcome = plain(&self.half).and_then(|socket| self.send(socket));
        (self.half, outcome)
    }

    fn send(&self, socket: &OwnedWriteHalf) -> io::Result<SendProgress> {
        let socket = socket.as_ref();
        let end = self.offset + self.length;
        let mut offset = self.offset;
        while offset < end {
            let step = match send_some(socket, &self.file, &mut offset, end) {
                Err(Errno::AGAIN) if has_room_soon(socket)? => continue,
                // The runtime must see the `EAGAIN`, otherwise it would treat the socket as still writable.
                Err(Errno::AGAIN) => {
                    socket.try_io(Interest::WRITABLE, || Ok(send_some(socket, &self.file, &mut offset, end)?))
                }
                step => step.map_err(io::Error::from),
            };
            match step {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The cause appears again in the next call, which starts here.
                Ok(0) | Err(_) if offset > self.offset => break,
                Ok(0) => return Ok(SendProgress::EndOfFile),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(SendProgress::NoRoom),
                Err(error) if is_of_connection(&error) => return Err(error),
                Err(error) => return Ok(SendProgress::Failed(error)),
            }
        }
        Ok(SendProgress::Some(offset - self.offset))
    }
}

fn send_some(socket: &TcpStream, file: &File, offset: &mut u64, end: u64) -> rustix::io::Result<usize> {
    let length = usize::try_from(end.saturating_sub(*offset)).unwrap_or(usize::MAX);
    rustix::fs::sendfile(socket, file, Some(offset), length)
}

/// Whether the socket becomes writable within [`LINGER`].
fn has_room_soon(socket: &impl AsFd) -> io::Result<bool> {
    match rustix::event::poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&LINGER)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

impl AsyncWrite for SocketWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_write(cx, bytes),
            Self::Tls(half) => Pin::new(half).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_write_vectored(cx, slices),
            Self::Tls(half) => Pin::new(half).poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_flush(cx),
            Self::Tls(half) => Pin::new(half).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_shutdown(cx),
            Self::Tls(half) => Pin::new(half).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use towpath_store::{
        memory::MemoryStore,
        sys::{disk, net},
    };

    use super::*;
    use crate::{ServeConfig, Server};

    /// Returns a client, and the response writer of its connection.
    async fn connected() -> (tokio::net::TcpStream, ResponseWriter) {
        let config = ServeConfig { listen: Vec::new(), ..ServeConfig::default() };
        let service = Server::builder(Arc::new(MemoryStore::new(0)), &config).bind().unwrap().service();
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let client = net::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_, sending) = listener.accept().await.unwrap().0.into_split();
        let end = CancellationToken::new();
        let trackers = [PeerProgress::new(end.clone()), PeerProgress::new(end.clone())];
        (client, ResponseWriter::new(SocketWriter::Plain(sending), &service, end, trackers))
    }

    #[tokio::test]
    async fn short_answers_of_many_tasks_leave_together_and_whole() {
        let (mut client, response_writer) = connected().await;
        let answers = ["first", "second", "third"].map(|answer| response_writer.send_together(answer.as_bytes()));
        let sent = futures::future::join_all(answers);
        assert!(sent.await.into_iter().all(|sent| sent.is_ok()));
        assert_eq!(response_writer.short().sent, 3);
        let mut got = [0; 16];
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"firstsecondthird");
    }

    #[tokio::test]
    async fn a_file_that_fails_tears_no_connection() {
        let directory = tempfile::tempdir().unwrap();
        let write_only = Arc::new(disk::append(&directory.path().join("file")).unwrap());
        let (mut client, response_writer) = connected().await;
        assert!(response_writer.send_file(b"head", &write_only, 0, 3).await.unwrap().is_err());
        response_writer.send(b"next").await.unwrap();
        let mut got = [0; 11];
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"head\0\0\0next");
    }

    #[tokio::test]
    async fn a_file_that_ends_early_is_an_error_and_tears_no_connection() {
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, b"ab").unwrap();
        let (mut client, response_writer) = connected().await;
        let outcome = response_writer.send_file(b"head", &Arc::new(file), 0, 3).await.unwrap();
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        response_writer.send(b"next").await.unwrap();
        let mut got = [0; 11];
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"headab\0next");
    }
}
