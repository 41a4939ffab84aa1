//! The digests by which a copy was verified.

use towpath_proto::checksum::{Digest, Digests};

/// A digest of the whole file that both ends of a copy have, and where each value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedDigest {
    /// The digest.
    pub digest: Digest,
    /// Origin of the source's value.
    pub source: DigestOrigin,
    /// Origin of the destination's value.
    pub destination: DigestOrigin,
}

/// The origin of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestOrigin {
    /// Given together with the file's name, as in a Metalink.
    Named,
    /// The storage reported it with the metadata of the file.
    Reported,
    /// The storage computed it on request, or its file was read for it.
    Computed,
    /// The destination computed it from the written data.
    Written,
    /// Computed by this program from the transferred bytes.
    Streamed,
}

impl DigestOrigin {
    /// Returns the name in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Reported => "reported",
            Self::Computed => "computed",
            Self::Written => "written",
            Self::Streamed => "streamed",
        }
    }
}

/// Returns the digests that `source` and `destination` have in common, with their origins.
pub(crate) fn verified(
    (source, source_origin): (&Digests, impl Fn(&Digest) -> DigestOrigin),
    (destination, destination_origin): (&Digests, impl Fn(&Digest) -> DigestOrigin),
) -> Vec<VerifiedDigest> {
    let shared = source.shared_with(destination);
    let each = |digest: &Digest| VerifiedDigest {
        digest: *digest,
        source: source_origin(digest),
        destination: destination_origin(digest),
    };
    shared.iter().map(each).collect()
}
