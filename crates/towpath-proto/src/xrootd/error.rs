//! Why bytes could not be understood.

use super::codes::{ErrorCode, RequestCode};

/// Bytes from a peer that violate the protocol.
///
/// `what` names the field or message in the protocol's words. The error never holds bytes of the peer, so it can be
/// logged and sent back as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message ends before the field does.
    #[error("{what} is cut short: {needed} bytes needed, {available} there")]
    Truncated {
        /// Which field.
        what: &'static str,
        /// Bytes that the field needs.
        needed: usize,
        /// Bytes that were left.
        available: usize,
    },
    /// A length exceeds the limit.
    #[error("{what} is too long: {bytes} bytes, at most {limit} are accepted")]
    TooLong {
        /// Which field.
        what: &'static str,
        /// The length that the peer announced, in bytes (or elements, for a vector).
        bytes: u64,
        /// The largest length accepted, in the same unit.
        limit: u64,
    },
    /// A required argument is absent.
    #[error("{what} is missing")]
    Missing {
        /// Which argument.
        what: &'static str,
    },
    /// A value that the protocol does not permit.
    #[error("{what} is invalid")]
    Invalid {
        /// Which field.
        what: &'static str,
    },
    /// A request code that this library does not know.
    #[error("unknown request code {}", .0.0)]
    UnknownRequest(RequestCode),
    /// Bytes that do not match their CRC32C.
    #[error("{what} has checksum {computed:08x}, but {announced:08x} was announced")]
    Checksum {
        /// What the checksum covers.
        what: &'static str,
        /// The checksum that came with the bytes.
        announced: u32,
        /// The checksum of the bytes that came.
        computed: u32,
    },
}

impl DecodeError {
    /// The error code with which a server answers a request that cannot be decoded.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Truncated { .. } | Self::Invalid { .. } => ErrorCode::ArgInvalid,
            Self::TooLong { .. } => ErrorCode::ArgTooLong,
            Self::Missing { .. } => ErrorCode::ArgMissing,
            Self::UnknownRequest(_) => ErrorCode::InvalidRequest,
            Self::Checksum { .. } => ErrorCode::ChkSumErr,
        }
    }
}
