//! Errors of this crate.

/// Why the metadata of a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not begin as a ROOT file.
    #[error("not a ROOT file")]
    NotRoot,
    /// The metadata contradict the format. It is an error of the file, or of the bytes that the caller provided.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// The metadata use a feature of the format that this crate does not read.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The metadata exceed a limit of this crate.
    #[error("{what}: {number}, at most {limit} are read")]
    TooLarge {
        /// What exceeds the limit.
        what: &'static str,
        /// Its size or number.
        number: u64,
        /// The limit.
        limit: u64,
    },
    /// The caller failed to read bytes.
    #[error("reading the file failed: {0}")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns an error of a damaged file.
pub(crate) fn damaged(message: impl Into<String>) -> Error {
    Error::Damaged(message.into())
}

/// Returns an error of a feature that is not supported.
pub(crate) fn unsupported(message: impl Into<String>) -> Error {
    Error::Unsupported(message.into())
}

/// Fails if `number` exceeds `limit`.
pub(crate) fn check_limit(what: &'static str, number: u64, limit: u64) -> Result<()> {
    if number > limit {
        return Err(Error::TooLarge { what, number, limit });
    }
    Ok(())
}
