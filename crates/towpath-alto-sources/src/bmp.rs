//! The BGP Monitoring Protocol, version 3 (RFC 7854): a router reports its own routes and those received from its
//! peers.
//!
//! [`Stream`] takes the bytes of one connection in chunks of any size and returns [`BmpEvent`]s. It does no I/O: the
//! caller feeds it and takes all events before feeding more.
//!
//! ```text
//! feed(bytes) -> next() -> event, event, .. None -> feed(bytes) -> ..        on error: close the connection
//! ```
//!
//! Pre-policy routes, post-policy routes and the router's own selection (Loc-RIB, RFC 9069) have [`Peer`]s that
//! differ in their [`Rib`]. A router that reports several of these tables sends each route once per table; callers
//! filter by `Rib`. Routes advertised to peers (Adj-RIB-Out, RFC 8671), statistics and mirrored messages are skipped.
//! Whether prefixes carry path identifiers is determined when a session comes up. A damaged message is skipped and
//! counted, provided its length is valid.
//!
//! A connection that closes without [`BmpEvent::End`] is not detected here. In either case the validity of the
//! reported routes is unknown from then on. When a session comes up ([`BmpEvent::Up`]), its routes are sent again, up
//! to the end of each family ([`Event::EndOfRib`]); routes not sent by then are invalid.

mod message;
mod open;
#[cfg(test)]
mod tests;

pub use crate::bgp_update::{Event, Peer, Preference, Rib};
use message::Decoder;

/// Maximum size of a message. Updates have at most 64 KiB; mirrored messages and initiation messages can be longer.
pub(crate) const MAX_MESSAGE_BYTES: u32 = 16 << 20;

/// Maximum number of concurrent ADD-PATH sessions per router.
pub(crate) const MAX_ADD_PATH_SESSIONS: usize = 1 << 16;

/// Size of the common header (RFC 7854 §4.1).
const HEADER_BYTES: usize = 6;

/// Buffer capacity kept after the received bytes are consumed.
const KEPT_BYTES: usize = 256 << 10;

/// An event reported by a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BmpEvent {
    /// A change of routes.
    Change(Event),
    /// A session came up: its routes are sent again.
    Up {
        /// The peer whose session came up.
        router: Peer,
    },
    /// The router sent its initiation message.
    Session {
        /// The name of the router (sysName).
        name: Option<String>,
        /// The description of the router (sysDescr).
        description: Option<String>,
    },
    /// The router ends the stream.
    End {
        /// Human-readable reason.
        reason: String,
    },
}

/// Reason why a stream cannot be decoded any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BmpError {
    /// The stream has another BMP version or is not BMP.
    #[error("unsupported BMP version {0}; configure the router to send version 3 (RFC 7854)")]
    Version(u8),
    /// A message is shorter than its header or longer than [`MAX_MESSAGE_BYTES`].
    #[error("message length of {0} bytes is out of range: {HEADER_BYTES} to {MAX_MESSAGE_BYTES}")]
    Length(u32),
    /// The router has more than [`MAX_ADD_PATH_SESSIONS`].
    #[error("the router has more than {MAX_ADD_PATH_SESSIONS} sessions with ADD-PATH")]
    Sessions,
}

/// Decoder for one connection of a router. Buffers at most one message, the bytes fed after it, and the events of one
/// update (at most 65,536).
#[derive(Debug, Default)]
pub struct Stream {
    inlet: MessageSplitter,
    decoder: Decoder,
}

impl Stream {
    /// Appends received bytes. To bound memory to one message, call it only after [`Self::next`] returned `None`.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.inlet.feed(bytes);
    }

    /// Returns the next event, or `None` until more bytes are fed.
    ///
    /// # Errors
    /// [`BmpError`]; every later call returns the same error. Close the connection.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end at the first `None`")]
    pub fn next(&mut self) -> Result<Option<BmpEvent>, BmpError> {
        loop {
            if let Some(event) = self.decoder.take() {
                return Ok(Some(event));
            }
            if self.decoder.add_path_sessions() > MAX_ADD_PATH_SESSIONS {
                return Err(BmpError::Sessions);
            }
            let Some(message) = self.inlet.message()? else { return Ok(None) };
            self.decoder.decode(message);
            let length = HEADER_BYTES + message.body.len();
            self.inlet.consume(length);
        }
    }

    /// Returns the number of damaged messages skipped.
    pub fn skipped(&self) -> u64 {
        self.decoder.skipped()
    }

    /// Returns the reason why the first damaged message was skipped.
    pub(crate) fn first_skipped(&self) -> Option<&str> {
        self.decoder.first_skipped()
    }
}

/// An undecoded message.
#[derive(Debug, Clone, Copy)]
struct Message<'a> {
    kind: u8,
    body: &'a [u8],
}

/// Splits received bytes into messages.
#[derive(Debug, Default)]
struct MessageSplitter {
    buffer: Vec<u8>,
    /// Number of bytes already consumed.
    read_bytes: usize,
}

impl MessageSplitter {
    fn feed(&mut self, bytes: &[u8]) {
        if self.read_bytes > 0 {
            self.buffer.drain(..self.read_bytes);
            self.buffer.shrink_to(KEPT_BYTES);
            self.read_bytes = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete message without consuming it.
    fn message(&self) -> Result<Option<Message<'_>>, BmpError> {
        let unread = self.buffer.get(self.read_bytes..).unwrap_or_default();
        if let Some(version) = unread.first().filter(|version| **version != 3) {
            return Err(BmpError::Version(*version));
        }
        let Some((&[_, a, b, c, d, kind], rest)) = unread.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]);
        match (length as usize).checked_sub(HEADER_BYTES) {
            Some(body) if length <= MAX_MESSAGE_BYTES => Ok(rest.get(..body).map(|body| Message { kind, body })),
            _ => Err(BmpError::Length(length)),
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.read_bytes += bytes;
    }
}
