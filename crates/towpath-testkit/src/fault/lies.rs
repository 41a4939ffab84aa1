//! What a store says of its files that is not so.

use std::ops::Range;

use towpath_proto::checksum::Digests;
use towpath_store::Metadata;

/// What a store lies about, to readers only. The default is nothing.
#[derive(Debug, Clone, Default)]
pub struct Lies {
    /// Bytes that are read as other ones.
    pub wrong: Range<u64>,
    /// The digests, which are those of the right bytes, as far as they are told.
    pub digests: Told,
    /// The size that it says its files have.
    pub size: Option<u64>,
}

/// When digests are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Told {
    /// With the metadata, as far as they are known.
    #[default]
    Known,
    /// Only when they are asked for by name.
    OnRequest,
    /// Never.
    Nothing,
}

impl Lies {
    /// Whether other bytes are read than there are.
    pub(super) fn are_in_content(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// The metadata as they are told.
    pub(super) fn metadata(&self, mut metadata: Metadata) -> Metadata {
        if self.digests != Told::Known {
            metadata.digests = Digests::default();
        }
        metadata.size = self.size.unwrap_or(metadata.size);
        metadata
    }

    /// Makes bytes at `offset` what they are read as.
    pub(super) fn spoil(&self, offset: u64, data: &mut [u8]) {
        for (byte, at) in data.iter_mut().zip(offset..) {
            *byte ^= u8::from(self.wrong.contains(&at));
        }
    }
}
