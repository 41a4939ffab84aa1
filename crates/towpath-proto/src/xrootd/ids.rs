//! The small opaque identifiers in headers.

/// Matches a response with its request; chosen by the client, returned by the server, unique among the outstanding
/// requests of one connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub [u8; 2]);

impl StreamId {
    /// The id of the handshake's response and of unsolicited responses.
    pub const ZERO: Self = Self([0, 0]);

    /// Creates the id whose two bytes are `number` in big-endian order.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        Self(number.to_be_bytes())
    }

    /// Returns the two bytes as a big-endian number.
    #[must_use]
    pub const fn number(self) -> u16 {
        u16::from_be_bytes(self.0)
    }
}

impl std::fmt::Debug for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamId({})", self.number())
    }
}

/// Identifies an open file within one session; the server chooses its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileHandle(pub [u8; 4]);

impl FileHandle {
    /// Creates the handle whose four bytes are `number` in big-endian order.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number.to_be_bytes())
    }

    /// Returns the four bytes as a big-endian number.
    #[must_use]
    pub const fn number(self) -> u32 {
        u32::from_be_bytes(self.0)
    }
}

impl std::fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileHandle({:#x})", self.number())
    }
}

/// Identifies a session: returned by `login`, used by `bind` and `endsess`. It is a secret, because any holder can join
/// the session; `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SessionId(pub [u8; 16]);

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionId(..)")
    }
}

/// Identifies one of the connections of a session: 0 is the connection that logged in, others come from `bind`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PathId(pub u8);

impl PathId {
    /// The connection that logged in.
    pub const MAIN: Self = Self(0);
}
