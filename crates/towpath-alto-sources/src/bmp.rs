//! The BGP Monitoring Protocol, version 3 (RFC 7854): what a router says of its own routes and of those that its peers tell it.
//!
//! [`Stream`] takes the bytes of one connection, however they are cut, and gives [`BmpEvent`]s. It has no I/O: who listens feeds
//! it, and takes all events before feeding it more.
//!
//! ```text
//! feed(bytes) -> next() -> event, event, .. None -> feed(bytes) -> ..        an error: close the connection
//! ```
//!
//! Routes before policy, routes after policy and the router's own choice (Loc-RIB, RFC 9069) have [`Peer`]s that differ in their
//! [`Rib`]; a router that tells several of them tells each route as often, and who wants only some passes over the others. What
//! the router tells others (Adj-RIB-Out, RFC 8671), statistics and mirrored messages are passed over. Whether prefixes have path
//! identifiers is seen when a session comes up. A message that is damaged is passed over and counted, as long as its length holds.
//!
//! A connection that ends without [`BmpEvent::End`] is not seen here. Either way, nobody knows any more whether the routes that it
//! told hold. When a session comes up ([`BmpEvent::Up`]) its routes are told anew, to the end of each family
//! ([`Event::EndOfRib`]); what is not told by then holds no more.

mod message;
mod open;
#[cfg(test)]
mod tests;

pub use crate::bgp_update::{Event, Peer, Preference, Rib};
use message::Decoder;

/// The longest message. Updates have at most 64 KiB; mirrored messages and greetings may be long.
pub const MAX_MESSAGE_BYTES: u32 = 16 << 20;

/// The most sessions with ADD-PATH that a router may have at once.
pub const MAX_ADD_PATH_SESSIONS: usize = 1 << 16;

/// The length of the header of all messages (RFC 7854 §4.1).
const HEADER_BYTES: usize = 6;

/// Memory for received bytes that is kept when they are read.
const KEPT_BYTES: usize = 256 << 10;

/// What a router says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BmpEvent {
    /// Routes changed.
    Change(Event),
    /// A session came up: its routes are told anew.
    Up {
        /// Whose.
        router: Peer,
    },
    /// It greets.
    Session {
        /// How it calls itself.
        name: Option<String>,
        /// What it is.
        description: Option<String>,
    },
    /// It will say nothing more.
    End {
        /// Why, for people.
        reason: String,
    },
}

/// Why a stream cannot be followed any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BmpError {
    /// It is of another version, or not BMP at all.
    #[error("a message has version {0} of BMP; have the router send version 3 (RFC 7854)")]
    Version(u8),
    /// A message is shorter than its header, or longer than [`MAX_MESSAGE_BYTES`].
    #[error("a message says that it has {0} bytes; it must have {HEADER_BYTES} to {MAX_MESSAGE_BYTES}")]
    Length(u32),
    /// There are more than [`MAX_ADD_PATH_SESSIONS`].
    #[error("the router has more than {MAX_ADD_PATH_SESSIONS} sessions with ADD-PATH")]
    Sessions,
}

/// One connection of a router. Holds at most one message, what was fed behind it, and the events of one update (at most 65,536).
#[derive(Debug, Default)]
pub struct Stream {
    inlet: Inlet,
    decoder: Decoder,
}

impl Stream {
    /// Takes bytes that were received. [`Self::next`] must have given `None` before, or memory is taken for more than a message.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.inlet.feed(bytes);
    }

    /// The next event, or `None` until more is fed.
    ///
    /// # Errors
    /// [`BmpError`], and the same one from then on: close the connection.
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

    /// How many messages were passed over because they are damaged.
    pub fn skipped(&self) -> u64 {
        self.decoder.skipped()
    }

    /// What the first of them has.
    pub fn first_skipped(&self) -> Option<&str> {
        self.decoder.first_skipped()
    }
}

/// A message as it came.
#[derive(Debug, Clone, Copy)]
struct Message<'a> {
    kind: u8,
    body: &'a [u8],
}

/// Bytes that came, cut into messages.
#[derive(Debug, Default)]
struct Inlet {
    buffer: Vec<u8>,
    /// How many of them are read.
    read_bytes: usize,
}

impl Inlet {
    fn feed(&mut self, bytes: &[u8]) {
        if self.read_bytes > 0 {
            self.buffer.drain(..self.read_bytes);
            self.buffer.shrink_to(KEPT_BYTES);
            self.read_bytes = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, not consumed, once all of it is there.
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
