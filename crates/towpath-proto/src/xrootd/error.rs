//! Errors of decoding.

use super::codes::{ErrorCode, RequestCode};

/// Bytes from a peer that violate the protocol.
///
/// `what` is the protocol's name of the field or message. The error never contains bytes of the peer, so it can be
/// logged and sent back unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message ends before the field does.
    #[error("{what} is truncated: {needed} bytes needed, {available} available")]
    Truncated {
        /// Name of the field.
        what: &'static str,
        /// Bytes that the field needs.
        needed: usize,
        /// Available bytes.
        available: usize,
    },
    /// A length exceeds the limit.
    #[error("{what} is too long: {bytes} bytes, at most {limit} are accepted")]
    TooLong {
        /// Name of the field.
        what: &'static str,
        /// Length announced by the peer, in bytes (or elements, for a vector).
        bytes: u64,
        /// Maximum length, in the same unit.
        limit: u64,
    },
    /// A required argument is missing.
    #[error("{what} is missing")]
    Missing {
        /// Name of the argument.
        what: &'static str,
    },
    /// A value that the protocol does not permit.
    #[error("{what} is invalid")]
    Invalid {
        /// Name of the field.
        what: &'static str,
    },
    /// A request code that this library does not know.
    #[error("unknown request code {}", .0.0)]
    UnknownRequest(RequestCode),
    /// Bytes that do not match their CRC32C.
    #[error("{what} has checksum {computed:08x}, but {announced:08x} was announced")]
    Checksum {
        /// Name of the data that the checksum covers.
        what: &'static str,
        /// The checksum received with the bytes.
        announced: u32,
        /// The checksum of the received bytes.
        computed: u32,
    },
}

impl DecodeError {
    /// Returns the error code for the response to a request that cannot be decoded.
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
