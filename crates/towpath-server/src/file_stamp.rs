//! Versions of files, to detect changes.

use std::{fs::Metadata, os::unix::fs::MetadataExt as _};

/// Identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of the file with this metadata.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { inode: metadata.ino(), bytes: metadata.size(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}
