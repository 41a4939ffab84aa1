//! The destination of response data: the only code between the socket and the caller's buffer.
//!
//! A sink belongs to a request in flight. The connection's reader passes each run of data to it, either by
//! [`Sink::push`] (bytes that arrived in the reader's own small buffer) or, for long runs, by receiving directly into
//! [`Sink::room`] and calling [`Sink::received`].

mod pages;

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use towpath_proto::xrootd::{ResponseHead, page::Page, response::PgReadStatus};

pub(super) use pages::Pages;

/// The destination of the data of a response.
#[derive(Debug)]
pub(super) enum Sink {
    /// Appends the data to the buffer; at most `limit` bytes.
    Plain { buffer: Vec<u8>, limit: usize },
    /// Verifies pages and removes their checksums.
    Pages(Pages),
    /// Passes the data on piece by piece, for listings.
    Stream(ChunkSender),
    /// Discards the data: the request was cancelled.
    Nowhere,
}

/// The channel for the pieces of a streamed response to the caller.
#[derive(Debug)]
pub(super) struct ChunkSender {
    pub(super) pieces: mpsc::UnboundedSender<ResponseChunk>,
    /// KiB that may be buffered between reader and caller.
    pub(super) room: Arc<Semaphore>,
}

/// A piece of a streamed response, with its permit for the buffer.
#[derive(Debug)]
pub(super) struct ResponseChunk {
    pub(super) bytes: Bytes,
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

impl ChunkSender {
    /// Creates a sender that buffers at most `room_kib` KiB, and its receiver.
    pub(super) fn new(room_kib: usize) -> (Self, mpsc::UnboundedReceiver<ResponseChunk>) {
        let (pieces, outcome) = mpsc::unbounded_channel();
        (Self { pieces, room: Arc::new(Semaphore::new(room_kib)) }, outcome)
    }

    /// Passes `bytes` on. If the buffer is full, `alone` decides whether to wait: a waiting reader blocks all other
    /// responses of its connection, and the caller may need one of those before it continues to read.
    async fn push(&self, bytes: Bytes, alone: impl FnOnce() -> bool) {
        let kib = bytes.len().div_ceil(1024) as u32;
        let permit = match Arc::clone(&self.room).try_acquire_many_owned(kib) {
            Ok(permit) => Some(permit),
            Err(_) if alone() => tokio::select! {
                permit = Arc::clone(&self.room).acquire_many_owned(kib) => permit.ok(),
                () = self.pieces.closed() => None,
            },
            Err(_) => None,
        };
        // A dropped receiver is detected with the next response.
        let _ = self.pieces.send(ResponseChunk { bytes, _permit: permit });
    }
}

/// A response that violates the protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum InvalidResponse {
    #[error("it sent more data than requested")]
    TooMuch,
    #[error("it sent pages at the wrong offset")]
    WrongOffset,
    #[error("it sent a different kind of data than requested")]
    WrongKind,
    #[error("it sent a page without data")]
    EmptyPage,
}

impl Sink {
    /// Creates a sink for a response of at most `limit` bytes.
    pub(super) fn answer(limit: usize) -> Self {
        Self::Plain { buffer: Vec::new(), limit }
    }

    /// Starts a response of `length` data bytes.
    pub(super) fn begin(&mut self, head: &ResponseHead, length: u64) -> Result<(), InvalidResponse> {
        match (self, &head.status) {
            (Self::Nowhere, _) => Ok(()),
            (Self::Plain { buffer, limit }, None) => {
                let length = usize::try_from(length).map_err(|_| InvalidResponse::TooMuch)?;
                if length > *limit {
                    return Err(InvalidResponse::TooMuch);
                }
                buffer.reserve(length);
                Ok(())
            }
            (Self::Stream(_), None) => Ok(()),
            (Self::Pages(pages), Some(status)) => {
                let status = PgReadStatus::from_body(status).map_err(|_| InvalidResponse::WrongKind)?;
                pages.begin(status.offset, u64::from(status.data_len))
            }
            // The response to pgwrite, with a short list of bad pages.
            (Self::Plain { limit, .. }, Some(_)) if length <= *limit as u64 => Ok(()),
            _ => Err(InvalidResponse::WrongKind),
        }
    }

    /// Accepts bytes of the response; see [`ChunkSender`] for `alone`, which only a streamed response uses.
    pub(super) async fn push(&mut self, bytes: Bytes, alone: impl FnOnce() -> bool) -> Result<(), InvalidResponse> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Plain { buffer, limit } => {
                *limit = limit.checked_sub(bytes.len()).ok_or(InvalidResponse::TooMuch)?;
                buffer.extend_from_slice(&bytes);
                Ok(())
            }
            Self::Pages(pages) => pages.push(&bytes),
            Self::Stream(sender) => {
                sender.push(bytes, alone).await;
                Ok(())
            }
        }
    }

    /// Returns a buffer to append received bytes to, and their maximum number; `None` if bytes have to be pushed.
    pub(super) fn room(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        match self {
            Self::Plain { buffer, .. } => {
                let room = buffer.capacity() - buffer.len();
                Some((buffer, room))
            }
            Self::Pages(pages) => Some(pages.room()),
            Self::Stream(_) | Self::Nowhere => None,
        }
    }

    /// Records `length` bytes received into the buffer of [`Self::room`].
    pub(super) fn received(&mut self, length: usize) -> Result<(), InvalidResponse> {
        match self {
            Self::Plain { limit, .. } => {
                *limit = limit.checked_sub(length).ok_or(InvalidResponse::TooMuch)?;
                Ok(())
            }
            Self::Pages(pages) => pages.received(length),
            Self::Stream(_) | Self::Nowhere => Ok(()),
        }
    }

    /// Ends the response started by [`Self::begin`].
    pub(super) fn end(&mut self) -> Result<(), InvalidResponse> {
        match self {
            Self::Pages(pages) => pages.end(),
            _ => Ok(()),
        }
    }

    /// Returns the buffer, and the pages in it whose checksum failed.
    pub(super) fn into_parts(self) -> (Vec<u8>, Vec<Page>) {
        match self {
            Self::Plain { buffer, .. } => (buffer, Vec::new()),
            Self::Pages(pages) => pages.into_parts(),
            Self::Stream(_) | Self::Nowhere => (Vec::new(), Vec::new()),
        }
    }
}
