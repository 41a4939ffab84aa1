//! Wrong metadata and content that a store returns to readers.

use std::{ops::Range, sync::Arc};

use towpath_proto::checksum::Digests;
use towpath_store::{Capabilities, FileKind, Freshness, Metadata, READ_BYTES, Residency, VersionTag};

/// The lies of a store to readers; none by default.
#[derive(Debug, Clone, Default)]
pub struct ReadFaults {
    /// Range of bytes that are read inverted.
    pub wrong: Range<u64>,
    /// When to return digests; they are those of the right bytes.
    pub digests: DigestAvailability,
    /// The reported size of files.
    pub size: Option<u64>,
    /// The reported residency of files; also in listings.
    pub residency: Option<Residency>,
    /// Whether version tags are weak.
    pub has_weak_tags: bool,
    /// Whether each request counts as having its own connection.
    pub has_separate_connections: bool,
    /// The reported freshness of files.
    pub freshness: Option<Freshness>,
    /// Whether an open gets the file that is open, also after another one has taken its name, as of XRootD servers.
    pub shares_open_files: bool,
}

/// When a store returns digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DigestAvailability {
    /// With the metadata, as far as they are known.
    #[default]
    Known,
    /// Only on an explicit request.
    OnRequest,
    /// Never.
    Nothing,
}

impl ReadFaults {
    /// Returns whether the content is wrong.
    pub(super) fn are_in_content(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// Returns the reported capabilities.
    pub(super) fn capabilities(&self, mut capabilities: Capabilities) -> Capabilities {
        if self.has_separate_connections {
            capabilities.read_bytes = 4 * READ_BYTES;
        }
        capabilities.confirms |= self.shares_open_files;
        capabilities
    }

    /// Returns the reported metadata.
    pub(super) fn metadata(&self, mut metadata: Metadata) -> Metadata {
        if self.digests != DigestAvailability::Known {
            metadata.digests = Digests::default();
        }
        metadata.size = self.size.unwrap_or(metadata.size);
        if self.has_weak_tags {
            metadata.version = metadata.version.map(VersionTag::into_weak);
        }
        metadata.freshness = self.freshness.clone().map(Arc::new).or(metadata.freshness);
        self.with_residency(metadata)
    }

    /// Returns the metadata with the reported residency.
    pub(super) fn with_residency(&self, mut metadata: Metadata) -> Metadata {
        if metadata.kind == FileKind::File {
            metadata.residency = self.residency.unwrap_or(metadata.residency);
        }
        metadata
    }

    /// Replaces the bytes at `offset` by the reported ones.
    pub(super) fn spoil(&self, offset: u64, data: &mut [u8]) {
        for (byte, at) in data.iter_mut().zip(offset..) {
            *byte ^= u8::from(self.wrong.contains(&at));
        }
    }
}
