//! By what a copy was verified.

use towpath_proto::checksum::{Digest, Digests};

/// A digest of the whole file that both ends of a copy have, and where each value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// The digest.
    pub digest: Digest,
    /// Where the value of the source comes from.
    pub source: DigestOrigin,
    /// Where the value of the destination comes from.
    pub destination: DigestOrigin,
}

/// Where the digest of a file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestOrigin {
    /// Whoever named the file knows it, as a Metalink does.
    Named,
    /// The storage reported it with the metadata of the file.
    Reported,
    /// The storage computed it on request, or its file was read for it.
    Computed,
    /// The destination computed it from the written data.
    Written,
    /// This program computed it from the bytes that passed.
    Streamed,
}

impl DigestOrigin {
    /// Its name, for programs.
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

/// The digests that `source` and `destination` have in common, with where each value comes from.
pub(crate) fn verified(
    (source, source_origin): (&Digests, impl Fn(&Digest) -> DigestOrigin),
    (destination, destination_origin): (&Digests, impl Fn(&Digest) -> DigestOrigin),
) -> Vec<Verified> {
    let shared = source.shared_with(destination);
    let each = |digest: &Digest| Verified {
        digest: *digest,
        source: source_origin(digest),
        destination: destination_origin(digest),
    };
    shared.iter().map(each).collect()
}
